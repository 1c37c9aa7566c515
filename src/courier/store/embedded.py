"""The store of one process: the engine on SQLite, and the writer between them."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from courier.core.errors import StoreDamaged, StoreUnavailable
from courier.core.sealed import Sealer
from courier.core.waiters import Waiters
from courier.store.disk_sqlite import MemoryDisk, SqliteDisk
from courier.store.disk_sqlite.connection import disk_errors
from courier.store.disk_sqlite.writer import SqliteWriter
from courier.store.engine.engine import EngineStore


class EmbeddedStore(EngineStore):
    disk: SqliteDisk
    writer: SqliteWriter

    @classmethod
    async def open(
        cls,
        path: Path | None,
        *,
        waiters: Waiters | None = None,
        sealer: Sealer | None = None,
        cache_bytes: int = 32 << 20,
        commit_calls_max: int = 1_024,
        commit_inline_ms_max: int = 1,
        disk_free_bytes_min: int = 0,
        check_at_start: str = "off",
        accept_damage: bool = False,
        block_messages: int = 128,
        block_bytes: int = 256 << 10,
        block_cache_bytes: int = 16 << 20,
    ) -> Self:
        """Open or create the file; None: in memory. Raises StoreUnavailable when it cannot be done.

        `check_at_start` is off, quick or full. With `accept_damage` a damaged store is opened with
        what can be read of it, and the first sweep writes a `damage_accepted` event.
        """
        if path is None:
            disk: SqliteDisk = MemoryDisk()
        else:
            with _damage_of(path):
                disk = SqliteDisk(
                    path,
                    sealer=sealer,
                    cache_bytes=cache_bytes,
                    free_bytes_min=disk_free_bytes_min,
                    check_at_start=check_at_start,
                    accept_damage=accept_damage,
                )
        try:
            store = cls(
                disk,
                disk.volume,
                waiters or Waiters(),
                cache_bytes=block_cache_bytes,
                block_messages=block_messages,
                block_bytes=block_bytes,
                accepted=disk.accepted,
            )
            with _damage_of(path), disk_errors():
                await store.load()
            writer = SqliteWriter(
                disk.db,
                store,
                disk.volume,
                calls_max=commit_calls_max,
                inline_s=math.inf if path is None else commit_inline_ms_max / 1000,
            )
            store.begin(writer)
            return store
        except BaseException:
            await disk.abandon()
            raise


@contextmanager
def _damage_of(path: Path | None) -> Iterator[None]:
    """Damage to what must be read for anything else, as what a start says."""
    try:
        yield
    except StoreDamaged as error:
        raise StoreUnavailable(
            f"{path} is damaged ({error.place}): nothing can be read without that, not even with "
            "--accept-damage; restore a backup"
        ) from error
