"""Reads of the journal, of past numbers and of messages that are searched, beside the group: on
threads and connections of their own."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import apsw

from courier.core.errors import StoreUnavailable
from courier.core.types import Level, Tally
from courier.store.disk_sqlite import statements as sql
from courier.store.disk_sqlite.connection import connect, disk_errors
from courier.store.disk_sqlite.volume import Unlimited, Volume
from courier.store.engine.blocks import BlockRow
from courier.store.engine.disk import (
    SEARCHED_BLOCKS,
    SEARCHED_BYTES,
    Needles,
    Packet,
    Since,
    searched,
)
from courier.store.engine.journal import packet_bytes
from courier.store.engine.layout import SEQ_BITS, SEQ_MASK

T = TypeVar("T")

READERS = 2
_CACHE_BYTES = 2_000_000


class SqliteReaders:
    volume: Volume | Unlimited

    def __init__(self, path: Path) -> None:
        self._path = path
        self._local = threading.local()
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="courier-read")

    async def packets(
        self, after: int | Since, *, limit: int, bytes_max: int | None
    ) -> list[tuple[Packet, list[BlockRow]]]:
        return await self._read(self._packets, after, limit, bytes_max)

    def _packets(
        self, after: int | Since, limit: int, bytes_max: int | None
    ) -> list[tuple[Packet, list[BlockRow]]]:
        found: list[tuple[Packet, list[BlockRow]]] = []
        count = size = 0
        # Packets and blocks must be of one moment: a trim may come between.
        with disk_errors(), self._reader() as db:
            if isinstance(after, Since):
                after = _last_before(db, after.at_ms)
            for row in db.execute(sql.PACKETS, (after,)):
                packet = Packet(*row)
                blocks = [BlockRow(*b) for b in db.execute(sql.BLOCKS_OF, (packet.last,))]
                found.append((packet, blocks))
                count += min(packet.length, packet.last - after)
                size += packet_bytes(packet, blocks)
                if count >= limit or (bytes_max is not None and size >= bytes_max):
                    break
        return found

    async def holding(
        self, line: int, needles: Needles, *, first: int, last: int, newest: bool, limit: int
    ) -> tuple[list[BlockRow], int]:
        return await self._read(
            self._holding, line << SEQ_BITS, needles, first, last, newest, limit
        )

    def _holding(
        self, base: int, needles: Needles, first: int, last: int, newest: bool, limit: int
    ) -> tuple[list[BlockRow], int]:
        search = sql.SEARCH_BACKWARDS if newest else sql.SEARCH
        with disk_errors(), self._reader() as db:
            begin = db.execute(sql.BLOCK_AT, (base, base | first)).fetchone()
            low, high = base | first, base | last
            if begin is not None and begin[0] + begin[1] > low:
                low = begin[0]
            part = (low, high, SEARCHED_BLOCKS, SEARCHED_BYTES)
            [(low, high)] = db.execute(search.part, part)
            if low is None:
                return [], 0
            rest = (base | needles.seq, needles.name, base >> SEQ_BITS, SEQ_MASK, limit)
            values = (low, high, *needles.bodies, *needles.rest, *rest)
            found = [BlockRow(*row) for row in db.execute(search.holding, values)]
        return found, searched(found, (low, high), (first, last), newest=newest, limit=limit)

    async def tallies(
        self, tenant: str, id: str | None, since_minute: int, until_minute: int
    ) -> list[Tally]:
        def read() -> list[Tally]:
            minutes = (since_minute, until_minute)
            with disk_errors():
                execute = self._reader().execute
                if id is None:
                    rows = execute(sql.TALLIES, (tenant, *minutes))
                else:
                    rows = execute(sql.TALLIES_OF, (id, tenant, *minutes))
                return [Tally(*row) for row in rows]

        return await self._read(read)

    async def levels(self, queues: Sequence[str], since_minute: int) -> list[list[Level]]:
        def of(queue: str) -> list[Level]:
            rows = self._reader().execute(sql.LEVELS, (queue, since_minute))
            return [Level(*row) for row in rows]

        def read() -> list[list[Level]]:
            with disk_errors():
                return [of(queue) for queue in queues]

        return await self._read(read)

    def _reader(self) -> apsw.Connection:
        if not hasattr(self._local, "db"):
            self._local.db = connect(self._path, cache_bytes=_CACHE_BYTES, readonly=True)
        connection: apsw.Connection = self._local.db
        return connection

    async def _read(self, verb: Callable[..., T], *values: Any) -> T:
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._readers, verb, *values)
        except StoreUnavailable as error:
            if error.__cause__ is not None:
                self.volume.failed(error.__cause__)
            raise


def _last_before(db: apsw.Connection, at_ms: int) -> int:
    """The last offset of the packets before that time: they lie in the order of their times."""
    before, upto = 0, db.execute(sql.LAST_OFFSET).get or 0
    while before < upto:
        middle = (before + upto) // 2
        found = db.execute(sql.PACKET_TIME, (middle,)).fetchone()
        assert found is not None, "an offset of the journal has its packet"
        last, then_ms = found
        if then_ms < at_ms:
            before = last
        else:
            upto = middle
    return before
