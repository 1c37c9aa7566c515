"""Rates of queues that hold over all nodes: what is left of one is a fact of the queue's line."""

import msgspec

from courier.core.limits import spent
from courier.core.types import SECOND_MS
from courier.store.engine.calls import Calls
from courier.store.engine.disk import Fact
from courier.store.engine.lines import QueueLine

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[float, int]).decode


class SharedRates(Calls):
    async def take(self, queue: str, what: str, units: int, *, limit: int, now_ms: int) -> None:
        facts = self.engine.facts

        async def take(line: QueueLine) -> None:
            known = await facts.one(line, "rate", what, now_ms)
            left, at_ms = _decode(known.value) if known else (float(limit), now_ms)
            # Another node's clock may be some milliseconds ahead.
            passed_ms = max(0, now_ms - at_ms)
            left += passed_ms * limit / SECOND_MS
            left = spent(what, left, units, limit=limit, window_ms=SECOND_MS)
            full_ms = at_ms + passed_ms + int((limit - left) * SECOND_MS / limit) + 1
            fact = Fact(full_ms, _encode((left, at_ms + passed_ms)))
            facts.put(line, "rate", what, fact)

        await self._on(queue, now_ms, take)
