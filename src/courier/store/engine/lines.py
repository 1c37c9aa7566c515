"""A line: one subscription of a queue, that of its pullers or a listener's, and where it stands.

A line has a cursor on the blocks of its queue. Messages beyond the cursor are fresh: never handed
out, and without a row. Messages that were handed out together for the first time are a range. All
others that the line still has to do with have a row of their own, a `Delivery`.
"""

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

import msgspec

from courier.core.types import MINUTE_MS, Listener, PushStats, Queue, QueueStats
from courier.store.engine.blocks import Block
from courier.store.engine.layout import (
    DELAYED,
    EXHAUSTED,
    FRESH,
    HELD,
    LEASED,
    NEVER_MS,
    READY,
    ROWS,
    SEQ_BITS,
    SEQ_MASK,
)

_EMPTY = QueueStats()


class Range:
    """Messages of one block that were leased together, each for the first time.

    `done[i]`: message `first + i` is done with, or has a row of its own by now; `left` are not.
    """

    __slots__ = ("at_ms", "block", "claim", "done", "first", "left", "stored", "until_ms")

    def __init__(
        self,
        first: int,
        done: bytearray,
        until_ms: int,
        at_ms: int,
        claim: int,
        block: Block | None,
    ) -> None:
        self.first = first
        self.done = done
        self.left = done.count(0)
        self.until_ms = until_ms
        self.at_ms = at_ms
        self.claim = claim
        self.block = block
        self.stored = block is None

    def seqs(self) -> list[int]:
        """Of those that are left."""
        first = self.first
        return [first + i for i, done in enumerate(self.done) if not done]


# Nothing in it leads back to it.
class Delivery(msgspec.Struct, gc=False):
    """How far one message has come on one line. The fields up to `report` are its row.

    `due_ms`: when a lease or a delay ends. `follows`: its delay is the FIFO queue's, as that
    changes. `claim`: number of the claim that leased it, 0 for none. `report` is what came of the
    last push. `range`: it has no row, but is part of this range. `stored`: its row is on disk.
    """

    key: int
    state: int
    attempt: int
    due_ms: int
    published_ms: int
    first_ms: int | None
    last_ms: int | None
    size: int
    own_id: str | None
    expires_ms: int | None
    group: str | None
    follows: int
    claim: int
    report: bytes | None
    range: Range | None = None
    stored: bool = False

    @property
    def seq(self) -> int:
        return self.key & SEQ_MASK

    def is_held(self, attempt: int, now_ms: int) -> bool:
        """The lease that this attempt is has not ended."""
        return self.state == LEASED and self.due_ms > now_ms and self.attempt == attempt


class BaseLine:
    """What all lines have. `again` rows are ready, `gone` rows lie beyond the cursor, `ranged`
    messages are in ranges."""

    tail: int

    __slots__ = (
        "again",
        "aging_ms",
        "base",
        "cursor",
        "delayed",
        "exhausted",
        "firsts",
        "fresh",
        "gone",
        "id",
        "leased",
        "no",
        "passed",
        "ranged",
        "ranges",
    )

    def __init__(self, no: int, id: str) -> None:
        self.no = no
        self.base = no << SEQ_BITS
        self.id = id
        self.cursor = self.gone = self.ranged = 0
        self.fresh = self.again = self.leased = self.delayed = self.exhausted = 0
        self.ranges: list[Range] = []
        self.firsts: list[int] = []
        self.aging_ms = NEVER_MS
        self.passed = 0

    def passes(self, block: Block) -> bool:
        """The cursor steps over the whole block: its messages have rows, or are for others."""
        raise NotImplementedError

    @property
    def rowless(self) -> bool:
        """No message that the line has to do with has a row, nor has one beyond the cursor."""
        raise NotImplementedError

    def range_at(self, seq: int) -> Range | None:
        """The range in which this message is leased."""
        at = bisect_right(self.firsts, seq) - 1
        if at < 0:
            return None
        found = self.ranges[at]
        place = seq - found.first
        return found if place < len(found.done) and not found.done[place] else None

    def range_from(self, first: int) -> Range | None:
        """The range that begins there."""
        at = bisect_right(self.firsts, first) - 1
        return self.ranges[at] if at >= 0 and self.firsts[at] == first else None

    def add_range(self, new: Range) -> None:
        at = bisect_right(self.firsts, new.first)
        self.ranges.insert(at, new)
        self.firsts.insert(at, new.first)

    def drop_range(self, old: Range) -> None:
        at = bisect_right(self.firsts, old.first) - 1
        if at >= 0 and self.ranges[at] is old:
            del self.ranges[at], self.firsts[at]

    def shift(self, state: int, by: int) -> None:
        """`by` deliveries have come into a state, or left it."""
        if state == LEASED:
            self.leased += by
        elif state == READY:
            self.again += by
        elif state == DELAYED:
            self.delayed += by
        elif state == FRESH:
            self.fresh += by
        elif state == EXHAUSTED:
            self.exhausted += by


class QueueLine(BaseLine):
    """The line that all pullers of a queue share, and the queue's own numbers.

    `oldest_ms` is never later than the oldest message's time; `oldest_known`: it is exactly that.
    No message without an expiry of its own was published before `aging_ms`, and none has a
    sequence up to `passed`. `renamed` messages have another name than they were published with.
    `level` is what it held (messages, leased, delayed) after its last change, in `minute`. `full`:
    a lease was cut short by the number of leases allowed. `pushes` are its listeners' lines in the
    order of the listeners' creation, those of deleted listeners last. `near` is the block used
    last, `open` the one that this group publishes into. `spent`: the queue is deleted and empty,
    and only the journal still needs its blocks. `pulled`: a puller has asked for messages, now or
    ever. `shelf`, the last of `pushes`, is there once something was delivered. `leased_groups`:
    how many messages of each group of a FIFO queue are leased.
    """

    __slots__ = (
        "bytes",
        "count",
        "dropped",
        "full",
        "leased_groups",
        "level",
        "minute",
        "near",
        "oldest_known",
        "oldest_ms",
        "open",
        "pulled",
        "pushes",
        "queue",
        "renamed",
        "shelf",
        "spent",
        "tail",
    )

    def __init__(self, no: int, queue: Queue) -> None:
        super().__init__(no, queue.id)
        self.queue = queue
        self.tail = self.count = self.bytes = self.renamed = 0
        self.oldest_ms = 0
        self.oldest_known = False
        self.pushes: list[PushLine] = []
        self.level = (0, 0, 0)
        self.minute = queue.created_ms // MINUTE_MS
        self.full = self.dropped = self.spent = self.pulled = False
        self.shelf: Shelf | None = None
        self.leased_groups: dict[str, int] = {}
        self.near: Block | None = None
        self.open: Block | None = None

    def passes(self, block: Block) -> bool:
        return bool(block.flags & (HELD | ROWS) or block.only)

    @property
    def rowless(self) -> bool:
        return self.count == self.fresh + self.ranged and not self.gone

    def shift_group(self, group: str | None, by: int) -> None:
        """`by` messages of a group were leased, or are no longer."""
        if group is not None and by:
            left = self.leased_groups.get(group, 0) + by
            if left:
                self.leased_groups[group] = left
            else:
                del self.leased_groups[group]

    @property
    def expiry_ms(self) -> int:
        """Nothing of this queue reaches its retention before this."""
        aging_ms = self.aging_ms if self.count else NEVER_MS
        for pushes in self.pushes:
            if pushes.exhausted:
                aging_ms = min(aging_ms, pushes.aging_ms)
        return aging_ms + self.queue.retention_ms if aging_ms < NEVER_MS else NEVER_MS

    @property
    def weight(self) -> int:
        """What ending one of its messages costs, beside one of a queue without listeners."""
        listeners = len(self.pushes) - (self.shelf is not None)
        return 1 + listeners // 4

    @property
    def all_lines(self) -> "list[QueueLine | PushLine]":
        return [self, *self.pushes]

    def row(self) -> tuple[Any, ...]:
        dropped = msgspec.json.encode(self.queue) if self.dropped else None
        return (
            *(self.no, self.id, "", self.tail, self.cursor, self.count, self.bytes, self.fresh),
            *(self.again, self.leased, self.delayed, 0, self.gone, self.renamed),
            *(0, 0, 0, 0, dropped, int(self.spent), int(self.pulled), 0),
        )

    def load(self, row: Sequence[Any]) -> None:
        """Where it stood, from a row."""
        self.tail, self.cursor, self.count, self.bytes, self.fresh, self.again = row[3:9]
        self.leased, self.delayed, _, self.gone, self.renamed = row[9:14]
        self.dropped, self.spent, self.pulled = row[18] is not None, bool(row[19]), bool(row[20])
        self.aging_ms = 0 if self.count else NEVER_MS
        self.level = (self.count, self.leased, self.delayed)

    def stats(self) -> QueueStats:
        if not self.count:
            return _EMPTY
        return QueueStats(self.count, self.bytes, self.oldest_ms, self.leased, self.delayed)


class PushLine(BaseLine):
    """The line of one listener. `line` is its queue's, None if there is no such queue.

    `dropped`: the listener is deleted, and the sweep is about to end its pushes. What was published
    after `tail` is not for it any more. `missed` messages failed and are still there, `expired`
    ones went without having been acknowledged.
    """

    __slots__ = (
        "acknowledged",
        "dropped",
        "expired",
        "last_failure_ms",
        "last_success_ms",
        "line",
        "listener",
        "missed",
        "tail",
    )

    def __init__(self, no: int, listener: Listener) -> None:
        super().__init__(no, listener.id)
        self.listener = listener
        self.line: QueueLine | None = None
        self.dropped = False
        self.tail = SEQ_MASK
        self.missed = self.expired = self.acknowledged = 0
        self.last_success_ms = self.last_failure_ms = 0

    def passes(self, block: Block) -> bool:
        return bool(block.flags & HELD) or block.only not in (0, self.no)

    @property
    def rowless(self) -> bool:
        rows = self.again + self.delayed + self.exhausted + self.gone
        return not rows and self.leased == self.ranged

    @property
    def open(self) -> int:
        return self.fresh + self.again + self.leased + self.delayed

    @property
    def owing(self) -> bool:
        """Some message has not been acknowledged."""
        return bool(self.open or self.exhausted)

    def row(self) -> tuple[Any, ...]:
        dropped = msgspec.json.encode(self.listener) if self.dropped else None
        return (
            *(self.no, self.listener.parent, self.id, self.tail, self.cursor, 0, 0, self.fresh),
            *(self.again, self.leased, self.delayed, self.exhausted, self.gone, 0, self.missed),
            *(self.acknowledged, self.last_success_ms, self.last_failure_ms, dropped, 0, 0),
            self.expired,
        )

    def load(self, row: Sequence[Any]) -> None:
        """Where it stood, from a row."""
        self.tail, self.cursor = row[3:5]
        self.fresh, self.again, self.leased, self.delayed = row[7:11]
        self.exhausted, self.gone, _, self.missed, self.acknowledged = row[11:16]
        self.last_success_ms, self.last_failure_ms = row[16:18]
        self.dropped, self.expired = row[18] is not None, row[21]
        self.aging_ms = 0 if self.exhausted else NEVER_MS

    def stats(self) -> PushStats:
        return PushStats(
            self.open,
            self.leased,
            self.missed,
            self.acknowledged,
            self.last_success_ms,
            self.last_failure_ms,
            self.expired,
        )


# In the place of a listener's id.
SHELF = "shelf"


class Shelf(PushLine):
    """Where a queue without pullers keeps what all its listeners have acknowledged.

    To the rules it is a deleted listener that exhausted every message: nothing more is bound to
    it, and a message that stands here is kept until it expires. `bytes` are those of its messages.
    """

    __slots__ = ("bytes",)

    def __init__(self, no: int, queue: str) -> None:
        super().__init__(
            no,
            Listener(
                id=SHELF,
                tenant="",
                parent=queue,
                name="",
                created_ms=NEVER_MS,
                title="",
                modified_ms=0,
                url="",
                liveness_url="",
            ),
        )
        self.dropped = True
        self.cursor = SEQ_MASK
        self.bytes = 0

    def row(self) -> tuple[Any, ...]:
        return (
            *(self.no, self.listener.parent, SHELF, self.tail, self.cursor, 0, self.bytes),
            *(0, 0, 0, 0, self.exhausted, 0, 0, 0, 0, 0, 0, None, 0, 0, 0),
        )

    def load(self, row: Sequence[Any]) -> None:
        super().load(row)
        self.dropped, self.bytes = True, row[6]
