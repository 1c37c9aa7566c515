"""Many messages leased at once under a name.

A claim leases ranges, and rows for messages that had one. It stands while what is left of its
ranges and the rows that it leases are together as many as it took.
"""

from bisect import bisect_left, bisect_right
from typing import NamedTuple

import msgspec

from courier.core.errors import ClaimLost, NotFound
from courier.core.limits import Allowance
from courier.core.types import CLAIM_KNOWN_MS, DAY_MS, Actor, Message
from courier.store.engine.calls import GroupRunner, Verbs, on_queue
from courier.store.engine.deliveries import Deliveries
from courier.store.engine.disk import Fact, OfClaim
from courier.store.engine.endings import Endings
from courier.store.engine.facts import KnownFacts
from courier.store.engine.journal import EventColumns
from courier.store.engine.layout import LEASED
from courier.store.engine.leases import Leases
from courier.store.engine.lines import Delivery, QueueLine, Range
from courier.store.engine.messages import StoredMessages


class Claim(NamedTuple):
    """`no` marks its ranges and rows, which lie between the sequences `first` and `last`."""

    no: int
    total: int
    acked: bool
    first: int
    last: int


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Claim).decode


class Members(NamedTuple):
    """What a claim has leased: whole ranges, and rows."""

    ranges: list[Range]
    rows: list[Delivery]


class Claims(Verbs):
    """`ClaimVerbs`."""

    def __init__(
        self,
        calls: GroupRunner,
        deliveries: Deliveries,
        leases: Leases,
        endings: Endings,
        messages: StoredMessages,
        facts: KnownFacts,
    ) -> None:
        super().__init__(calls)
        self._deliveries = deliveries
        self._leases = leases
        self._endings = endings
        self._messages = messages
        self._facts = facts

    @on_queue
    async def take(
        self, line: QueueLine, name: str, *, count: int, lease_ms: int, actor: Actor, now_ms: int
    ) -> int:
        found = await self._find(line, name, now_ms)
        if found is not None:
            if not found.acked:
                await self._members(line, name, found, now_ms)
            return found.total
        if count <= 0:
            return 0
        # The offset of its first event: no other claim has the same.
        no = self._book.offset + 1
        total, first, last = await self._leases.lease_all(
            line, count, lease_ms, actor, now_ms, claim=no
        )
        if total:
            made = Claim(no, total, False, first, last)
            self._put(line, name, made, now_ms + lease_ms + DAY_MS)
        return total

    @on_queue
    async def messages(
        self,
        line: QueueLine,
        name: str,
        *,
        first: int,
        count: int,
        now_ms: int,
        allowance: Allowance | None = None,
    ) -> list[Message]:
        claim = await self._known(line, name, now_ms)
        if claim.acked:
            raise ClaimLost(name)
        members = await self._members(line, name, claim, now_ms)
        wanted = _places(members, first, count)
        if allowance is not None:
            blocks = [(seq, await self._book.blocks.at(line, seq)) for seq, _ in wanted]
            sizes = [block.size(seq - block.first) for seq, block in blocks]
            wanted = wanted[: allowance.fitting(sizes)]
        return await self._messages.at(line, wanted)

    @on_queue
    async def extend(
        self, line: QueueLine, name: str, *, lease_ms: int, actor: Actor, now_ms: int
    ) -> None:
        claim = await self._known(line, name, now_ms)
        members = await self._members(line, name, claim, now_ms)
        until_ms = now_ms + lease_ms
        about = EventColumns(members.rows)
        for leased in members.ranges:
            block = await self._deliveries.block_of(line, leased)
            about.add(block, leased.seqs(), attempt=1)
            self._deliveries.extend_range(line, leased, until_ms)
        for row in members.rows:
            self._deliveries.put(line, row, LEASED, until_ms)
        if members.rows:
            about.sort()
        self._put(line, name, claim, until_ms + DAY_MS)
        self._book.note_messages(
            "extended", line.queue, about, actor=actor, now_ms=now_ms, lease_ms=lease_ms
        )

    @on_queue
    async def ack(
        self, line: QueueLine, name: str, *, actor: Actor, now_ms: int, after: str | None = None
    ) -> None:
        claim = await self._known(line, name, now_ms)
        if not claim.acked:
            members = await self._members(line, name, claim, now_ms)
            await self._leases.ack_ranges(line, members.ranges, actor, now_ms)
            await self._endings.end(line, "acked", members.rows, actor, now_ms)
            known_ms = DAY_MS if after is None else CLAIM_KNOWN_MS
            self._put(line, name, claim._replace(acked=True), now_ms + known_ms)
        if after and after != name:
            before = await self._find(line, after, 0)
            if before is not None and before.acked:
                self._facts.put(line, "claim", after, None)

    # --- what is known of it ---

    def _put(self, line: QueueLine, name: str, claim: Claim, until_ms: int) -> None:
        self._facts.put(line, "claim", name, Fact(until_ms, _encode(claim)))

    async def _find(self, line: QueueLine, name: str, now_ms: int) -> Claim | None:
        fact = await self._facts.one(line, "claim", name, now_ms)
        return _decode(fact.value) if fact else None

    async def _known(self, line: QueueLine, name: str, now_ms: int) -> Claim:
        claim = await self._find(line, name, now_ms)
        if claim is None:
            raise NotFound("claim", name)
        return claim

    async def _members(self, line: QueueLine, name: str, claim: Claim, now_ms: int) -> Members:
        """Raises ClaimLost when one of its messages is not leased by it any more."""
        at = bisect_left(line.firsts, claim.first)
        stop = bisect_right(line.firsts, claim.last)
        ranges = [each for each in line.ranges[at:stop] if each.claim == claim.no]
        # One that was extended alone has left its range, and has a row with the claim's number.
        count = sum([each.left for each in ranges])
        rows: list[Delivery] = []
        if count < claim.total:
            rows = await self._deliveries.rows(line, OfClaim(claim.no), claim.total)
            rows = [row for row in rows if row.state == LEASED]
        lost = count + len(rows) != claim.total
        members = Members(ranges, rows)
        if lost or await self._over(line, members, now_ms):
            raise ClaimLost(name)
        return members

    async def _over(self, line: QueueLine, members: Members, now_ms: int) -> bool:
        """Something of it has ended, and the sweep has not come to it yet."""
        if not self._book.behind(now_ms) and line.expiry_ms > now_ms:
            return False
        retention_ms = line.queue.retention_ms
        found = list(members.rows)
        for leased in members.ranges:
            found += await self._deliveries.of_range(line, leased)
        for each in found:
            own_ms = each.expires_ms
            expires_ms = each.published_ms + retention_ms if own_ms is None else own_ms
            if min(each.due_ms, expires_ms) <= now_ms:
                return True
        return False


def _places(members: Members, first: int, count: int) -> list[tuple[int, int]]:
    """Sequence and attempt of its messages by sequence, from number `first` on."""
    parts = [(row.seq, 1, row.attempt) for row in members.rows]
    for leased in members.ranges:
        if leased.left == len(leased.done):
            parts.append((leased.first, leased.left, 1))
        else:
            parts += [(seq, 1, 1) for seq in leased.seqs()]
    found: list[tuple[int, int]] = []
    for seq, size, attempt in sorted(parts):
        if first >= size:
            first -= size
            continue
        stop = min(size, first + count - len(found))
        found += [(seq + i, attempt) for i in range(first, stop)]
        first = 0
        if len(found) >= count:
            break
    return found
