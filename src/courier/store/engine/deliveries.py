"""What stands on a line: fresh messages beyond its cursor, ranges, and rows; and how that changes.

Nothing else looks into ranges or rows, moves a cursor, or takes a message off a line.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Sequence
from itertools import takewhile
from typing import NamedTuple

from courier.core.errors import StoreDamaged
from courier.core.limits import SMALL_ANSWER_BYTES, Allowance
from courier.core.types import QueueStats
from courier.store.engine.blocks import NOT_RARE, Block
from courier.store.engine.book import Book
from courier.store.engine.disk import At, Between, Which
from courier.store.engine.layout import DELAYED, FRESH, GONE, LEASED, NEVER_MS, SEQ_MASK
from courier.store.engine.lines import Delivery, PushLine, QueueLine, Range

AnyLine = QueueLine | PushLine


class BlockSpan(NamedTuple):
    """Neighbouring messages of one block: `length` from place `at` on."""

    block: Block
    at: int
    length: int

    @property
    def first(self) -> int:
        return self.block.first + self.at


class Fresh(NamedTuple):
    """Spans beyond a cursor, how far the cursor gets with them, and what it passes that is gone."""

    spans: list[BlockSpan]
    end: int
    gone: list[int]


def queue_line(line: AnyLine) -> QueueLine:
    """The line of the queue whose blocks this line stands on."""
    if isinstance(line, QueueLine):
        return line
    assert line.line is not None, "pushes without their queue"
    return line.line


class Deliveries:
    def __init__(self, book: Book) -> None:
        self._book = book
        self._blocks = book.blocks

    def _rows(self, line: AnyLine) -> dict[int, Delivery | None]:
        """Rows of this kind of line that the group has changed."""
        changes = self._book.changes
        return changes.pushes if isinstance(line, PushLine) else changes.deliveries

    # --- looking ---

    async def rows(self, line: AnyLine, which: Which, limit: int) -> list[Delivery]:
        await self._book.spill()
        pushes = isinstance(line, PushLine)
        return await self._book.disk.deliveries(line.no, which, pushes=pushes, limit=limit)

    async def rows_at(self, line: AnyLine, seqs: Collection[int]) -> dict[int, Delivery]:
        """Rows of these messages, also those that are over."""
        changed, leased, base = self._rows(line), self._book.leased_rows, line.base
        found: dict[int, Delivery] = {}
        unknown: list[int] = []
        for seq in seqs:
            key = base | seq
            if key in changed:
                if (row := changed[key]) is not None:
                    found[seq] = row
            elif key in leased:
                found[seq] = leased[key]
            else:
                unknown.append(seq)
        if unknown:
            pushes = isinstance(line, PushLine)
            count = len(unknown)
            for row in await self._book.disk.deliveries(
                line.no, At(unknown), pushes=pushes, limit=count
            ):
                found[row.seq] = row
        return found

    async def standing_at(self, line: AnyLine, seqs: Collection[int]) -> dict[int, Delivery]:
        """Those of the messages that the line has not done with."""
        found: dict[int, Delivery] = {}
        others: list[int] = []
        for seq in seqs:
            leased = line.range_at(seq)
            if leased is None:
                others.append(seq)
            else:
                found[seq] = await self._in_range(line, leased, seq)
        rows = await self.rows_at(line, others) if others and not line.rowless else {}
        owner = queue_line(line)
        for seq in others:
            row = rows.get(seq)
            if row is not None:
                if row.state >= 0:
                    found[seq] = row
            elif line.cursor < seq <= min(line.tail, owner.tail):
                block = await self._blocks.seek(owner, seq)
                if block is not None and block.first <= seq and not line.passes(block):
                    found[seq] = _delivery(line, block, seq, None)
        return found

    async def standing(
        self,
        line: AnyLine,
        *,
        after: int = 0,
        upto: int = SEQ_MASK,
        limit: int,
        fresh: bool = True,
    ) -> list[Delivery]:
        """Messages that the line has not done with, by sequence; `fresh`: also fresh ones."""
        found: list[Delivery] = []
        at = max(0, bisect_right(line.firsts, after) - 1)
        while at < len(line.ranges) and line.firsts[at] <= upto and len(found) < limit:
            leased = line.ranges[at]
            for seq in leased.seqs():
                if after < seq <= upto:
                    found.append(await self._in_range(line, leased, seq))
            at += 1
        if not line.rowless:
            found += await self.rows(line, Between(after + 1, upto), limit)
        beyond = await self.fresh(line, limit if fresh else 0, after=after, upto=upto)
        for block, place, count in beyond.spans:
            first = block.first + place
            found += [_delivery(line, block, seq, None) for seq in range(first, first + count)]
        found.sort(key=_by_key)
        return found[:limit]

    async def first_seq(self, line: AnyLine) -> int:
        """No message up to and without this sequence stands on the line."""
        firsts = line.firsts[:1]
        rows = await self.rows(line, Between(1, SEQ_MASK), 1)
        fresh = line.cursor + 1
        return min([*firsts, *[row.seq for row in rows], fresh])

    async def _in_range(self, line: AnyLine, leased: Range, seq: int) -> Delivery:
        return _delivery(line, await self.block_of(line, leased), seq, leased)

    async def of_range(self, line: AnyLine, leased: Range) -> list[Delivery]:
        return [await self._in_range(line, leased, seq) for seq in leased.seqs()]

    async def block_of(self, line: AnyLine, leased: Range) -> Block:
        if leased.block is None:
            leased.block = await self._blocks.at(queue_line(line), leased.first)
        return leased.block

    async def fresh(
        self,
        line: AnyLine,
        limit: int,
        *,
        after: int = 0,
        upto: int = SEQ_MASK,
        now_ms: int | None = None,
        bodies: bool = False,
        allowance: Allowance | None = None,
    ) -> Fresh:
        """Up to `limit` messages beyond the cursor; of an expired one (by `now_ms`) it stops."""
        owner = queue_line(line)
        last = min(owner.tail, line.tail, upto)
        seq = max(line.cursor, after) + 1
        found = Fresh([], seq - 1, [])
        spans, passed = found.spans, found.gone
        while seq <= last and limit > 0:
            # Once there is much, sizes are looked at before bodies are read.
            much = allowance is not None and allowance.size > SMALL_ANSWER_BYTES
            read = bodies and not much
            block = await self._blocks.seek(owner, seq, bodies=read, ahead=limit)
            if block is None:
                seq = last + 1
                break
            seq = max(seq, block.first)
            if line.passes(block):
                seq = block.end
                continue
            end = min(block.end, last + 1)
            gone = await self._gone(line, seq, end) if line.gone else ()
            while seq < end and limit > 0:
                if seq in gone:
                    passed.append(seq)
                    seq += 1
                    continue
                stop = min([at for at in gone if at > seq], default=end) if gone else end
                count = wanted = min(stop - seq, limit)
                place = seq - block.first
                if now_ms is not None and block.rare:
                    count = _unexpired(block, place, count, now_ms)
                if allowance is not None and count:
                    count = allowance.fitting(block.sizes_of(place, count))
                if bodies and count and block.bodies is None:
                    block = await self._blocks.at(owner, seq, bodies=True)
                if count < wanted:
                    if count:
                        spans.append(BlockSpan(block, place, count))
                    return Fresh(spans, seq + count - 1, passed)
                spans.append(BlockSpan(block, place, count))
                seq += count
                limit -= count
        return Fresh(spans, min(seq - 1, last), passed)

    async def _gone(self, line: AnyLine, first: int, end: int) -> set[int]:
        rows = await self.rows(line, Between(first, end - 1, over=True), end - first)
        return {row.seq for row in rows if row.state == GONE}

    async def stats(self, line: QueueLine) -> QueueStats:
        if line.count and not line.oldest_known:
            line.oldest_ms = await self._oldest(line)
            line.oldest_known = True
        return line.stats()

    async def _oldest(self, line: QueueLine) -> int:
        """When the oldest message was published, of those in ranges, with rows and fresh ones."""
        found: list[int] = []
        if line.ranges:
            found.append((await self.block_of(line, line.ranges[0])).at_ms)
        if line.count > line.fresh + line.ranged:
            rows = await self.rows(line, Between(1, SEQ_MASK), 1)
            found += [row.published_ms for row in rows]
        if line.fresh and not line.ranges:
            fresh = await self.fresh(line, 1)
            found += [span.block.at_ms for span in fresh.spans]
        if not found:
            raise StoreDamaged("line", line.no)
        return min(found)

    # --- changing ---

    async def forget_gone(self, line: AnyLine, first: int, end: int) -> None:
        """The block of these messages is gone, so the cursor will not come to them."""
        for seq in await self._gone(line, first, end) if line.gone else ():
            self._rows(line)[line.base | seq] = None
            line.gone -= 1
            self._book.touch(line)

    def hand_out(
        self,
        line: AnyLine,
        rows: Sequence[Delivery],
        fresh: Fresh,
        *,
        until_ms: int,
        now_ms: int,
        claim: int = 0,
    ) -> None:
        """Lease what is ready on a line, to pullers or to a listener."""
        self._lease(line, rows, until_ms=until_ms, now_ms=now_ms, claim=claim)
        self._move_cursor(line, fresh)
        for span in fresh.spans:
            self._hold(line, span, until_ms=until_ms, now_ms=now_ms, claim=claim)

    def _move_cursor(self, line: AnyLine, fresh: Fresh) -> None:
        """Past what was found, if it is handed out."""
        if fresh.spans or not fresh.gone:
            line.cursor = max(line.cursor, fresh.end)
        if not fresh.spans:
            return
        rows = self._rows(line)
        for seq in fresh.gone:
            rows[line.base | seq] = None
            line.gone -= 1

    def _hold(
        self, line: AnyLine, span: BlockSpan, *, until_ms: int, now_ms: int, claim: int
    ) -> None:
        """Lease fresh messages, which the cursor has just passed."""
        first, count = span.first, span.length
        last = line.ranges[-1] if line.ranges else None
        if (
            last is not None
            and not last.stored
            and last.block is span.block
            and last.first + len(last.done) == first
            and (last.until_ms, last.at_ms, last.claim) == (until_ms, now_ms, claim)
        ):
            last.done.extend(bytes(count))
            last.left += count
        else:
            last = Range(first, bytearray(count), until_ms, now_ms, claim, span.block)
            line.add_range(last)
            self._book.range_ends(line, last)
        self._book.changes.ranges[line.base | last.first] = last
        line.leased += count
        line.ranged += count
        line.fresh -= count
        self._book.touch(line)

    def extend_range(self, line: AnyLine, leased: Range, until_ms: int) -> None:
        leased.until_ms = until_ms
        self._book.range_ends(line, leased)
        self._book.changes.ranges[line.base | leased.first] = leased
        self._book.touch(line)

    def done(self, line: AnyLine, leased: Range, seqs: Sequence[int]) -> None:
        """Messages of a range are done, or go on by themselves."""
        first = leased.first
        if len(seqs) == leased.left:
            leased.done[:] = b"\1" * len(leased.done)
        elif isinstance(seqs, range):
            leased.done[seqs.start - first : seqs.stop - first] = b"\1" * len(seqs)
        else:
            for seq in seqs:
                leased.done[seq - first] = 1
        leased.left -= len(seqs)
        line.leased -= len(seqs)
        line.ranged -= len(seqs)
        self._book.changes.ranges[line.base | first] = leased
        if not leased.left:
            line.drop_range(leased)
        self._book.touch(line)

    def put(self, line: AnyLine, delivery: Delivery, state: int, due_ms: int) -> None:
        """A delivery has come into this state, and has a row from now on."""
        if delivery.range is not None:
            self.done(line, delivery.range, [delivery.seq])
            delivery.range = None
        else:
            line.shift(delivery.state, -1)
            _shift_group(line, delivery, (state == LEASED) - (delivery.state == LEASED))
        line.shift(state, 1)
        delivery.state, delivery.due_ms = state, due_ms
        self._rows(line)[delivery.key] = delivery
        waits = state in (LEASED, DELAYED)
        self._book.touch(line, due_ms=due_ms if waits else NEVER_MS)

    def _lease(
        self, line: AnyLine, rows: Sequence[Delivery], *, until_ms: int, now_ms: int, claim: int
    ) -> None:
        """Lease messages that have rows."""
        changed = self._rows(line)
        self._shift_all(line, rows, LEASED)
        for row in rows:
            row.state, row.due_ms = LEASED, until_ms
            row.attempt += 1
            if row.first_ms is None:
                row.first_ms = now_ms
            row.last_ms = now_ms
            row.claim = claim
            row.follows = 0
            changed[row.key] = row
        if rows:
            self._book.touch(line, due_ms=until_ms)

    def _shift_all(self, line: AnyLine, rows: Sequence[Delivery], state: int) -> None:
        """Rows come into a state; GONE: they leave the line."""
        states = [row.state for row in rows]
        for old in set(states):
            count = states.count(old)
            line.shift(old, -count)
            line.shift(state, count)
        if isinstance(line, QueueLine) and line.queue.fifo:
            leases = state == LEASED
            moved = [row.group for row in rows if (row.state == LEASED) != leases]
            for group, count in Counter(moved).items():
                line.shift_group(group, count if leases else -count)

    def add(self, line: AnyLine, rows: Sequence[Delivery]) -> None:
        """Rows for messages that were not on this line, or were not there at all."""
        changed = self._rows(line)
        for row in rows:
            changed[row.key] = row
        states = [row.state for row in rows]
        for state in set(states):
            line.shift(state, states.count(state))
        due = [row.due_ms for row in rows if row.state in (LEASED, DELAYED)]
        self._book.touch(line, due_ms=min(due, default=NEVER_MS))

    def forget(self, line: AnyLine, delivery: Delivery) -> None:
        """Delete the row of something that is over."""
        self._rows(line)[delivery.key] = None
        self._book.touch(line)

    def off_all(self, line: AnyLine, ended: Sequence[Delivery]) -> None:
        """The line has done with these messages."""
        if any([each.range is not None or each.state == FRESH for each in ended]):
            for each in ended:
                self.off(line, each)
            return
        rows = self._rows(line)
        self._shift_all(line, ended, GONE)
        for each in ended:
            rows[each.key] = None
            each.state = GONE
        self._book.touch(line)

    def off(self, line: AnyLine, delivery: Delivery) -> None:
        """The line has done with this message."""
        if delivery.range is not None:
            self.done(line, delivery.range, [delivery.seq])
        else:
            line.shift(delivery.state, -1)
            _shift_group(line, delivery, -(delivery.state == LEASED))
            if delivery.state != FRESH:
                self._rows(line)[delivery.key] = None
            elif delivery.seq == line.cursor + 1:
                line.cursor += 1
            else:
                line.gone += 1
                self._rows(line)[delivery.key] = delivery
            self._book.touch(line)
        delivery.state = GONE


def _shift_group(line: AnyLine, delivery: Delivery, by: int) -> None:
    if by and delivery.group is not None and isinstance(line, QueueLine):
        line.shift_group(delivery.group, by)


def alive(rows: Sequence[Delivery], now_ms: int) -> list[Delivery]:
    """Up to the first that has expired, which the sweep has not come to yet."""
    return list(takewhile(lambda row: row.expires_ms is None or row.expires_ms > now_ms, rows))


def let_in(rows: list[Delivery], allowance: Allowance | None) -> list[Delivery]:
    return rows if allowance is None else rows[: allowance.fitting([row.size for row in rows])]


def _by_key(delivery: Delivery) -> int:
    return delivery.key


def _unexpired(block: Block, at: int, count: int, now_ms: int) -> int:
    """How many messages from place `at` on have not expired, up to the first that has."""
    for place in range(at, at + count):
        expires_ms = block.rare.get(place, NOT_RARE).expires_ms
        if expires_ms is not None and expires_ms <= now_ms:
            return place - at
    return count


def _delivery(line: AnyLine, block: Block, seq: int, leased: Range | None) -> Delivery:
    """Of a message without a row: in a range, or fresh."""
    place = seq - block.first
    rare = block.rare.get(place, NOT_RARE)
    at_ms = leased.at_ms if leased else None
    return Delivery(
        line.base | seq,
        LEASED if leased else FRESH,
        1 if leased else 0,
        leased.until_ms if leased else block.at_ms,
        block.at_ms,
        at_ms,
        at_ms,
        block.size(place),
        rare.own_id,
        rare.expires_ms,
        None,
        0,
        leased.claim if leased else 0,
        None,
        leased,
    )
