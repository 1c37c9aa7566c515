"""Rates of queues that hold over all nodes: what is left of one is a fact of the queue's line."""

import msgspec

from courier.core.limits import spent
from courier.core.types import SECOND_MS
from courier.store.engine.calls import GroupRunner, Verbs, on_queue
from courier.store.engine.disk import Fact
from courier.store.engine.facts import KnownFacts
from courier.store.engine.lines import QueueLine

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[float, int]).decode


class SharedRates(Verbs):
    def __init__(self, calls: GroupRunner, facts: KnownFacts) -> None:
        super().__init__(calls)
        self._facts = facts

    @on_queue
    async def take(
        self, line: QueueLine, what: str, units: int, *, limit: int, now_ms: int
    ) -> None:
        known = await self._facts.one(line, "rate", what, now_ms)
        left, at_ms = _decode(known.value) if known else (float(limit), now_ms)
        # Another node's clock may be some milliseconds ahead.
        passed_ms = max(0, now_ms - at_ms)
        left += passed_ms * limit / SECOND_MS
        left = spent(what, left, units, limit=limit, window_ms=SECOND_MS)
        full_ms = at_ms + passed_ms + int((limit - left) * SECOND_MS / limit) + 1
        fact = Fact(full_ms, _encode((left, at_ms + passed_ms)))
        self._facts.put(line, "rate", what, fact)
