"""What the engine asks of a disk: rows in, rows out, one group at a time.

A disk knows no rule of the broker. The engine computes what a group of calls does against copies in
memory, and the disk writes the resulting rows in one transaction. `Changes` holds these rows. What
a group has changed is not on disk before `apply`, so a caller that reads rows of a table that the
group may have changed spills them first: `apply(last=False)` writes and stays in the
transaction.

`blocks` never needs that: blocks of the group are found in memory.
"""

import logging
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from courier.core.errors import StoreUnavailable
from courier.core.types import Level, Tally
from courier.store.engine.blocks import Block, BlockRow
from courier.store.engine.layout import SEQ_MASK
from courier.store.engine.lines import Delivery, PushLine, QueueLine, Range

log = logging.getLogger("courier.store")


class Fact(NamedTuple):
    """Something known under a key until `until_ms`."""

    until_ms: int
    value: bytes


FactKey = tuple[int, str, str]  # line number, kind, key


class Packet(NamedTuple):
    """The events of one group: offsets `last - length + 1` .. `last`.

    `before_bytes` and `total_bytes`: the length of all packets and of the blocks that they tell of
    since the beginning, without this one and with it.
    """

    last: int
    length: int
    at_ms: int
    before_bytes: int
    total_bytes: int
    checksum: int
    data: bytes


class Opened(NamedTuple):
    """What the engine begins with.

    `groups`: line, group, and how many messages of it are leased. `journal`: last offset, total
    bytes and time of the newest packet, then first offset of the oldest and the total bytes before
    it.
    """

    epoch: str
    secret: bytes
    records: list[bytes]
    lines: list[tuple[Any, ...]]
    ranges: list[tuple[int, int, int, int, bytearray]]  # key, until_ms, at_ms, claim, done
    groups: list[tuple[int, str, int]]
    journal: tuple[int, int, int, int, int]


class Changed(NamedTuple):
    """What other nodes have changed of all that is kept in memory. None: it is gone.

    `groups`: of lines of FIFO queues, how many messages of each group are leased. `blocks` may be
    gone or others by now; `published` are some that are there. `journal` as in Opened; no row comes
    due before `next_due_ms`.
    """

    lines: dict[int, tuple[Any, ...] | None]
    groups: dict[int, dict[str, int]]
    ranges: dict[int, tuple[Any, ...] | None]
    blocks: list[int]
    published: list[BlockRow]
    records: dict[tuple[str, str], bytes | None]
    journal: tuple[int, ...]
    next_due_ms: int


class Below(NamedTuple):
    """All keys that begin with this and a slash."""

    prefix: str


# --- which deliveries ---


class Ready(NamedTuple):
    """Those that are ready, by sequence."""


class ReadyGroups(NamedTuple):
    """Of groups of a FIFO queue whose first message is ready all messages, group by group; the
    group whose first comes first is the first of them."""


class Open(NamedTuple):
    """Of a listener's line: ready, leased or delayed, by sequence."""


class Missed(NamedTuple):
    """Of a listener's line: failed and not acknowledged since, newest first, below `before`."""

    before: int


class Between(NamedTuple):
    """All rows with a sequence in [first, last], by sequence; `over`: also those that are over."""

    first: int
    last: int
    over: bool = False


class At(NamedTuple):
    """Those with these sequences."""

    seqs: Sequence[int]


class InGroup(NamedTuple):
    """Of one group of a FIFO queue, by sequence."""

    name: str


class GroupHeads(NamedTuple):
    """The first of each of these groups."""

    names: Sequence[str]


class OfClaim(NamedTuple):
    """Those of one claim, by sequence."""

    claim: int


Which = Ready | ReadyGroups | Open | Missed | Between | At | InGroup | GroupHeads | OfClaim


class Needles(NamedTuple):
    """What is looked for in blocks; None: nothing.

    `bodies`, `rest`: one of these bytes in the bodies, or in what else is stored of the messages.
    `seq`: the message with this sequence. `name`: these bytes in a name given later.
    """

    bodies: tuple[bytes | None, bytes | None]
    rest: tuple[bytes | None, bytes | None] = (None, None)
    seq: int = 0
    name: bytes | None = None


# A part of the blocks that are searched: whichever comes first.
SEARCHED_BLOCKS = 10_000
SEARCHED_BYTES = 8 << 20


def searched(
    found: Sequence[BlockRow],
    looked: tuple[int, int],
    wanted: tuple[int, int],
    *,
    newest: bool,
    limit: int,
) -> int:
    """What `holding` has come to: `looked` are the ends of the part as keys, `wanted` sequences."""
    low, high = looked
    if len(found) == limit:
        low, high = found[-1].key, found[-1].key + found[-1].length - 1
    if newest:
        return low & SEQ_MASK if low & SEQ_MASK > wanted[0] else 0
    return high & SEQ_MASK if high & SEQ_MASK < wanted[1] else 0


class Since(NamedTuple):
    """The first packet of that time or later, and those after it."""

    at_ms: int


class Due(NamedTuple):
    """What has come due, each by time: rows of queues' lines and of listeners', and blocks in which
    messages expire."""

    deliveries: list[Delivery]
    pushes: list[Delivery]
    expiries: list[tuple[int, int]]  # time, block


class Loose(NamedTuple):
    """A block that no packet of the journal tells of any more. `last` was its packet."""

    key: int
    length: int
    last: int


class AfterTrim(NamedTuple):
    """The first offset that is left and the total bytes before it; some loose blocks, by packet."""

    first: int
    before_bytes: int
    loose: list[Loose]


class Cutoffs(NamedTuple):
    """What is older may be forgotten: facts by time, the rest by minute. Minutes before `minute`
    are summed up by the hour."""

    now_ms: int
    minute: int
    hour: int
    level: int


class Changes:
    """The rows that a group changes. None in place of a row: it is deleted."""

    __slots__ = (
        "blocks",
        "deliveries",
        "emptied",
        "expiries",
        "facts",
        "forgotten",
        "freed",
        "levels",
        "lines",
        "long_blocks",
        "minutes",
        "next_due_ms",
        "packet",
        "pushes",
        "ranges",
        "records",
        "settled",
    )

    def __init__(self) -> None:
        self.lines: dict[int, QueueLine | PushLine | None] = {}
        self.blocks: list[BlockRow] = []
        self.long_blocks: list[Block] = []  # whose rows are made one after the other
        self.freed: list[int] = []
        # Lines of which everything but the blocks is deleted.
        self.emptied: list[int] = []
        self.ranges: dict[int, Range] = {}
        self.deliveries: dict[int, Delivery | None] = {}
        self.pushes: dict[int, Delivery | None] = {}
        # Keys first .. last of pushes that are over, to be deleted.
        self.settled: list[tuple[int, int]] = []
        self.expiries: dict[int, int | None] = {}
        self.facts: dict[FactKey, Fact | None] = {}
        # Line, kind, first key and the key after the last: facts to be deleted.
        self.forgotten: list[tuple[int, str, str, str]] = []
        self.records: dict[tuple[str, str], bytes | None] = {}
        self.packet: Packet | None = None
        self.minutes: dict[tuple[int, str, str, str], list[int]] = {}
        self.levels: list[tuple[str, int, int, int, int]] = []
        # Nothing comes due before this, as far as the engine knows.
        self.next_due_ms = 0

    @property
    def spillable(self) -> bool:
        """Something was changed that may be asked for within the group."""
        return bool(self.deliveries or self.pushes or self.expiries or self.facts)


class Disk(Protocol):
    async def open(self) -> Opened:
        """Everything that is kept in memory, as it was last committed."""
        ...

    async def blocks(
        self, line: int, seq: int, *, messages: int, bodies: bool, bytes_max: int
    ) -> list[BlockRow]:
        """From the block that holds `seq` on, or the next one, until they hold `messages`, or
        bodies of `bytes_max`."""
        ...

    async def holding(
        self, line: int, needles: Needles, *, first: int, last: int, newest: bool, limit: int
    ) -> tuple[list[BlockRow], int]:
        """Of a part of the blocks with messages in [first, last], by sequence or backwards: up to
        `limit` that have one of the needles. And the sequence up to which, or down to which, blocks
        were looked at; 0: all. Committed ones only."""
        ...

    async def deliveries(
        self, line: int, which: Which, *, pushes: bool, limit: int
    ) -> list[Delivery]:
        """Rows of a line, without those that are over unless asked for. `pushes`: a listener's."""
        ...

    async def due(self, now_ms: int, *, limit: int) -> Due: ...

    async def known(self, line: int, kind: str, keys: Sequence[str] | Below) -> dict[str, Fact]: ...

    async def apply(self, changes: Changes, *, last: bool) -> None:
        """Write the rows. Not `last`: only what may be asked for within the group."""
        ...

    async def packets(
        self, after: int | Since, *, limit: int, bytes_max: int | None
    ) -> list[tuple[Packet, list[BlockRow]]]:
        """Packets with offsets > `after` and the blocks they tell of; committed ones only."""
        ...

    async def trim(
        self, upto: int, *, before_ms: int | None, loose_after: int, limit: int
    ) -> AfterTrim:
        """Delete up to `limit` of the oldest packets that end at or below `upto` and are older than
        `before_ms`, but never the newest one. Then up to `limit` loose blocks whose packets ended
        after `loose_after`."""
        ...

    async def forget(self, cutoffs: Cutoffs, *, limit: int) -> bool:
        """Delete old facts, levels and tallies, and sum minutes up by the hour; False: there is
        more to do."""
        ...

    async def tallies(
        self, tenant: str, id: str | None, since_minute: int, until_minute: int
    ) -> list[Tally]: ...

    async def levels(self, queues: Sequence[str], since_minute: int) -> list[list[Level]]: ...

    async def close(self) -> None: ...


class DiskRoom:
    """The room that a disk has left, and its health. This one is never short of room."""

    free_bytes: int | None = None  # at the last look; None: there is no limit
    short = False  # it was below the low-water mark at the last look
    refusals = checkpoint_failures = damaged_reads = 0
    damaged = ""

    def look(self) -> None:
        """See how much room there is."""

    def touch(self) -> None:
        """Change something small in the open transaction, so that its COMMIT writes."""

    def met_damage(self, what: str) -> None:
        """What was read is not what was written."""
        log.error("store_damaged", extra={"what": what})
        self.damaged = what
        self.damaged_reads += 1

    def require_space(self) -> None:
        """Raises OutOfSpace below the low-water mark."""

    def require_health(self) -> None:
        """Raises StoreUnavailable once damage was met."""
        if self.damaged:
            raise StoreUnavailable(f"the database is damaged: {self.damaged}")
