"""The store of many nodes: the engine on PostgreSQL, and the writer between them."""

from collections.abc import Sequence
from typing import Self

import asyncpg

from courier import ids
from courier.core.sealed import Sealer
from courier.core.waiters import Waiters
from courier.store.disk_postgres import PostgresDisk
from courier.store.disk_postgres.connection import Address, disk_errors
from courier.store.disk_postgres.database_time import DatabaseTime
from courier.store.disk_postgres.migrate import load_secret, migrate
from courier.store.disk_postgres.notices import Notices
from courier.store.disk_postgres.rates import SharedRates
from courier.store.disk_postgres.writer import PostgresWriter
from courier.store.engine.disk import DiskRoom
from courier.store.engine.engine import EngineStore

READERS = 4
_TOKEN_BYTES = 7


class SharedStore(EngineStore):
    disk: PostgresDisk
    writer: PostgresWriter
    notices: Notices

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        sealer: Sealer,
        commit_calls_max: int = 1_024,
        block_messages: int = 128,
        block_bytes: int = 256 << 10,
        block_cache_bytes: int = 16 << 20,
    ) -> Self:
        """Open the database, or make it Courier's. Raises StoreUnavailable when it cannot be."""
        address = Address(url)
        with disk_errors(address):
            connection = await address.connect()
        try:
            with disk_errors(address):
                await migrate(connection, address)
                epoch, secret = await load_secret(connection, sealer)
                readers = await asyncpg.create_pool(
                    connect=lambda *_, **__: address.connect(), min_size=0, max_size=READERS
                )
            token = int.from_bytes(ids.new_bytes(_TOKEN_BYTES))
            time = DatabaseTime()
            disk = PostgresDisk(address, readers, epoch=epoch, secret=secret, token=token)
            store = cls(
                disk,
                DiskRoom(),  # the database looks after its own disk
                Waiters(),
                cache_bytes=block_cache_bytes,
                block_messages=block_messages,
                block_bytes=block_bytes,
            )
            with disk_errors(address):
                await time.measure(connection)
                async with connection.transaction(isolation="repeatable_read", readonly=True):
                    await disk.look(connection)
                    await store.load()
        except BaseException:
            connection.terminate()
            raise
        notices = Notices(address, token, time)
        writer = PostgresWriter(
            address, disk, store, connection, notices, calls_max=commit_calls_max
        )
        notices.start(writer.look_soon, disk.seen)
        store.begin(writer)
        store.notices = notices
        store.rates = SharedRates(store, writer)
        store.health.ahead_ns = time.ahead_ns
        return store

    async def hold(
        self, duties: Sequence[str], *, now_ms: int, evenly: bool = False
    ) -> dict[str, int]:
        return await self.disk.hold(duties, evenly=evenly)

    async def close(self) -> None:
        await self.notices.close()
        await super().close()
