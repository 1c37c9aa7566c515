"""The store of one process: the engine on SQLite, and the writer between them."""

from pathlib import Path
from typing import Self

from courier.core.sealed import Sealer
from courier.store.disk_sqlite import SqliteDisk
from courier.store.disk_sqlite.writer import Writer
from courier.store.engine import EngineStore
from courier.store.engine.engine import Engine
from courier.store.waiting import Waiters


class EmbeddedStore(EngineStore):
    disk: SqliteDisk
    writer: Writer

    @classmethod
    async def open(
        cls,
        path: Path,
        *,
        sealer: Sealer | None = None,
        cache_bytes: int = 32 << 20,
        commit_calls_max: int = 1_024,
        commit_inline_ms_max: int = 1,
        disk_free_bytes_min: int = 0,
        block_messages: int = 128,
        block_bytes: int = 256 << 10,
        block_cache_bytes: int = 16 << 20,
    ) -> Self:
        """Open or create the file. Raises StoreUnavailable when that cannot be done."""
        disk = SqliteDisk(
            path, sealer=sealer, cache_bytes=cache_bytes, free_bytes_min=disk_free_bytes_min
        )
        try:
            waiters = Waiters()
            engine = Engine(
                disk,
                waiters,
                cache_bytes=block_cache_bytes,
                block_messages=block_messages,
                block_bytes=block_bytes,
            )
            await engine.load()
            writer = Writer(
                disk.db,
                engine,
                disk.volume,
                calls_max=commit_calls_max,
                inline_s=commit_inline_ms_max / 1000,
            )
            return cls(disk, disk.volume, engine, waiters, writer)
        except BaseException:
            await disk.close()
            raise
