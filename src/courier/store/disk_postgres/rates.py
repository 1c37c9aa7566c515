"""Rates of queues that hold over all nodes: what is left of one is a fact of the queue's line."""

import msgspec

from courier.core.errors import RateLimited
from courier.core.limits import spent
from courier.core.types import SECOND_MS
from courier.store.disk_postgres.writer import PostgresWriter
from courier.store.engine.disk import Fact
from courier.store.engine.engine import EngineStore

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[float, int]).decode


class SharedRates:
    def __init__(self, engine: EngineStore, writer: PostgresWriter) -> None:
        self._engine = engine
        self._writer = writer

    async def take(self, queue: str, what: str, units: int, *, limit: int, now_ms: int) -> None:
        taken: bool | None = None  # None: not asked yet; the group may run more than once

        async def take() -> None:
            nonlocal taken
            if taken is False:
                return
            await self._engine.time.pass_time(now_ms)
            try:
                await self._take(queue, what, units, limit, now_ms, told=bool(taken))
            except RateLimited:
                taken = False
                raise
            taken = True

        await self._writer.submit_early(take)

    async def _take(
        self, queue: str, what: str, units: int, limit: int, now_ms: int, *, told: bool
    ) -> None:
        """`told`: its caller goes on already, so it counts whatever is left."""
        line, facts = self._engine.book.line(queue), self._engine.facts
        known = await facts.one(line, "rate", what, now_ms)
        left, at_ms = _decode(known.value) if known else (float(limit), now_ms)
        # Another node's clock may be some milliseconds ahead.
        passed_ms = max(0, now_ms - at_ms)
        left += passed_ms * limit / SECOND_MS
        if told:
            left = min(limit, left) - units
        else:
            left = spent(what, left, units, limit=limit, window_ms=SECOND_MS)
        full_ms = at_ms + passed_ms + int((limit - left) * SECOND_MS / limit) + 1
        facts.put(line, "rate", what, Fact(full_ms, _encode((left, at_ms + passed_ms))))
