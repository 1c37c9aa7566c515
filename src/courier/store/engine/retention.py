"""Ending messages that are as old as their queue allows.

Only those without an expiry of their own. Open pushes are not ended: a message that a listener is
owed is kept for it, and one that pullers are done with goes when no push of it is open and it is
old. They are found in the order of their sequences, where the
others may lie before them for long: a line remembers how far it has looked, so that nothing is
passed over twice.
"""

from courier.core.types import BROKER
from courier.store.engine.book import Book
from courier.store.engine.deliveries import Deliveries
from courier.store.engine.disk import Between
from courier.store.engine.endings import Endings
from courier.store.engine.layout import EXHAUSTED, LEASED, NEVER_MS, SEQ_MASK
from courier.store.engine.lines import Delivery, PushLine, QueueLine

# What a verb does of all that is due before its own work; the rest is left to the sweep.
INLINE_MAX = 1_000


class Retention:
    def __init__(self, book: Book, deliveries: Deliveries, endings: Endings) -> None:
        self._book = book
        self._deliveries = deliveries
        self._endings = endings

    async def keep_up(self, line: QueueLine, now_ms: int) -> bool:
        """Before something of this queue is handed out. False: the sweep is still at it."""
        if line.expiry_ms <= now_ms:
            await self.expire(line, INLINE_MAX, now_ms)
        return line.expiry_ms > now_ms

    async def expire(self, line: QueueLine, limit: int, now_ms: int) -> int:
        """End messages of this queue, looking at up to `limit` of each line; what is left is
        still due. Fewer of a queue with many listeners, whose pushes end with them."""
        limit = max(1, limit // line.weight)
        old = await self._look(line, limit, now_ms)
        await self._endings.end(line, "expired", old, BROKER, now_ms, aged=True)
        ended = len(old)
        if line.aging_ms + line.queue.retention_ms <= now_ms and line.count:
            return ended
        for pushes in line.pushes:
            if ended < limit and pushes.exhausted:
                # Pullers are done with these: all that they held and that is as old has gone.
                kept = await self._look_at_exhausted(line, pushes, limit - ended, now_ms)
                await self._endings.end_pushes(line, kept, "expired", now_ms)
                ended += len(kept)
        return ended

    async def _look(self, line: QueueLine, limit: int, now_ms: int) -> list[Delivery]:
        """The queue's old messages; notes when the next of it will be old."""
        old_ms = now_ms - line.queue.retention_ms
        found = await self._deliveries.standing(line, after=line.passed, limit=limit)
        old: list[Delivery] = []
        line.aging_ms = NEVER_MS
        for each in found:
            if each.expires_ms is None:
                # A lease that has ended may yet save its message into the dead letters.
                over = each.state == LEASED and each.due_ms <= now_ms
                if each.published_ms > old_ms or over:
                    line.aging_ms = each.published_ms
                    return old
                old.append(each)
            line.passed = each.seq
        if len(found) == limit:
            line.aging_ms = found[-1].published_ms
        return old

    async def _look_at_exhausted(
        self, line: QueueLine, pushes: PushLine, limit: int, now_ms: int
    ) -> list[int]:
        """Sequences of a listener's exhausted pushes whose messages are old, and owed to no other
        listener. One that is owed goes with its last open push."""
        old_ms = now_ms - line.queue.retention_ms
        which = Between(pushes.passed + 1, SEQ_MASK)
        found = await self._deliveries.rows(pushes, which, limit)
        old: list[int] = []
        pushes.aging_ms = NEVER_MS
        for each in found:
            if each.state == EXHAUSTED and each.expires_ms is None:
                if each.published_ms > old_ms:
                    pushes.aging_ms = each.published_ms
                    break
                old.append(each.seq)
            pushes.passed = each.seq
        else:
            if len(found) == limit:
                pushes.aging_ms = found[-1].published_ms
        owed = await self._endings.owed(line, old)
        return [seq for seq in old if seq not in owed]
