"""The groups of FIFO queues: which of them may be handed out, and what is taken of them.

Every message of a FIFO queue has a row. The first message of a group is READY while nothing of the
group is leased, unless it is delayed; all others that are neither leased nor delayed are WAITING.
"""

from collections.abc import Iterable, Sequence

from courier.core.types import Queue
from courier.store.engine.book import WAKE_MAX, Book
from courier.store.engine.deliveries import Deliveries
from courier.store.engine.disk import Between, GroupHeads, InGroup, Ready, ReadyGroups
from courier.store.engine.layout import DELAYED, READY, SEQ_MASK, WAITING
from courier.store.engine.lines import Delivery, QueueLine

# How many rows are looked at in one go when a queue's delay changes.
_LOOK_MAX = 1_000


class FifoGroups:
    def __init__(self, book: Book, deliveries: Deliveries) -> None:
        self._book = book
        self._deliveries = deliveries

    async def ready(self, line: QueueLine, shares: Sequence[int]) -> list[Delivery]:
        """What may be handed out, the group with the oldest message first, to callers who take
        these numbers of messages: each the whole of its share before the next, and of groups of
        which those before have nothing."""
        shares = [share for share in shares if share > 0]
        count = sum(shares)
        if count == len(shares):
            return await self._deliveries.rows(line, Ready(), count)
        rows = await self._deliveries.rows(line, ReadyGroups(), count)
        found = _shared(rows, shares)
        if len(found) == len(rows) or len(rows) < count:
            return found
        return await self._ready_by_group(line, shares)

    async def _ready_by_group(self, line: QueueLine, shares: Sequence[int]) -> list[Delivery]:
        """The same where much of it is delayed, or cannot be shared."""
        found: list[Delivery] = []
        left, *others = shares
        for head in await self._deliveries.rows(line, Ready(), sum(shares)):
            assert head.group is not None
            for row in await self._deliveries.rows(line, InGroup(head.group), left):
                if row.state == DELAYED:
                    break
                found.append(row)
                left -= 1
            if not left:
                if not others:
                    break
                left, *others = others
        return found

    async def heads(self, line: QueueLine, names: Sequence[str]) -> dict[str | None, Delivery]:
        """The first message of each of the groups of which the queue holds something."""
        heads = await self._deliveries.rows(line, GroupHeads(names), len(names))
        return {head.group: head for head in heads}

    async def refresh(self, line: QueueLine, names: Iterable[str | None]) -> None:
        """Something happened to messages of these groups."""
        if line.dropped:
            return
        leased = line.leased_groups
        wanted = [n for n in dict.fromkeys(names) if n is not None and n not in leased]
        ready = False
        for head in (await self.heads(line, wanted)).values() if wanted else ():
            if head.state == WAITING:
                self._deliveries.put(line, head, READY, 0)
            ready = ready or head.state == READY
        if ready:
            self._book.wake(line, min(line.count, WAKE_MAX))

    async def follow_delay(self, line: QueueLine, queue: Queue, now_ms: int) -> None:
        """The queue's delay changes for whatever has none of its own and was never attempted."""
        names: set[str | None] = set()
        after = 0
        while rows := await self._deliveries.rows(line, Between(after + 1, SEQ_MASK), _LOOK_MAX):
            after = rows[-1].seq
            for row in rows:
                if row.follows and not row.attempt:
                    due_ms = row.published_ms + queue.delay_ms
                    state = DELAYED if due_ms > now_ms else WAITING
                    self._deliveries.put(line, row, state, due_ms if state == DELAYED else 0)
                    names.add(row.group)
        await self.refresh(line, names)


def _shared(rows: Sequence[Delivery], shares: Sequence[int]) -> list[Delivery]:
    """Rows, group by group, without what is behind a delayed one, and without the rest of a group
    of which a caller before has a part."""
    found: list[Delivery] = []
    passed: str | None = None  # nothing more is taken of this group
    left, *others = shares
    for row in rows:
        if row.group == passed:
            continue
        if row.state == DELAYED:
            passed = row.group
            continue
        found.append(row)
        left -= 1
        if not left and others:
            passed = row.group
            left, *others = others
    return found
