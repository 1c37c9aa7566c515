"""Handing messages out to pullers, and what becomes of the lease."""

from collections.abc import Sequence

from courier.core import events, lifecycle
from courier.core.journal import UNIT_BYTES
from courier.core.limits import Allowance
from courier.core.types import (
    BROKER,
    Ack,
    Actor,
    Extend,
    Leased,
    Message,
    Outcome,
    Retry,
    Settlement,
)
from courier.store.engine.book import Book
from courier.store.engine.deliveries import Deliveries, Fresh, alive, let_in
from courier.store.engine.disk import Ready
from courier.store.engine.endings import Endings
from courier.store.engine.fifo import FifoGroups
from courier.store.engine.journal import EventColumns
from courier.store.engine.layout import DELAYED, LEASED, READY, WAITING
from courier.store.engine.lines import Delivery, QueueLine, Range
from courier.store.engine.messages import StoredMessages
from courier.store.engine.publishing import Publishing, dead_letter

_NOTHING = Fresh([], 0, [])


class Leases:
    """Verbs on one queue's line. `sweep.py` lets time pass before each of them."""

    def __init__(
        self,
        book: Book,
        deliveries: Deliveries,
        fifo: FifoGroups,
        messages: StoredMessages,
        publishing: Publishing,
        endings: Endings,
    ) -> None:
        self._book = book
        self._deliveries = deliveries
        self._fifo = fifo
        self._messages = messages
        self._publishing = publishing
        self._endings = endings

    # --- handing out ---

    def note_puller(self, line: QueueLine) -> None:
        """A puller asks. From now on it is pullers who say what is done."""
        if not line.pulled:
            line.pulled = True
            self._book.touch(line)

    async def ready(
        self,
        line: QueueLine,
        count: int,
        now_ms: int,
        *,
        bodies: bool,
        shares: Sequence[int] = (),
        allowance: Allowance | None = None,
    ) -> tuple[list[Delivery], Fresh]:
        """What may be handed out: rows, then fresh messages; none that has expired. `shares`: it is
        for several callers, who get messages of different groups."""
        if line.expiry_ms <= now_ms and not await self._endings.keep_up(line, now_ms):
            return [], _NOTHING
        behind = self._book.behind(now_ms)
        rows: list[Delivery] = []
        if line.queue.fifo:
            rows = await self._fifo.ready(line, shares or [count])
        elif line.again:
            rows = await self._deliveries.rows(line, Ready(), count)
        if behind:
            left = alive(rows, now_ms)
            if len(left) < len(rows):
                return let_in(left, allowance), _NOTHING
        if allowance is not None and rows:
            rows = let_in(rows, allowance)
            if allowance.cut:
                return rows, _NOTHING
        if line.queue.fifo or len(rows) == count or line.cursor >= line.tail:
            return rows, _NOTHING
        fresh = await self._deliveries.fresh(
            line,
            count - len(rows),
            now_ms=now_ms if behind else None,
            bodies=bodies,
            allowance=allowance,
        )
        return rows, fresh

    async def lease(
        self,
        line: QueueLine,
        counts: Sequence[int],
        lease_ms: int,
        actor: Actor,
        now_ms: int,
        *,
        leased_max: int | None = None,
        allowance: Allowance | None = None,
    ) -> Leased:
        """To one caller, or several: each is given as many as it asks for before the next."""
        self.note_puller(line)
        until_ms = now_ms + lease_ms
        count = sum(counts)
        if leased_max is not None and count > leased_max - line.leased:
            count = leased_max - line.leased
            line.full = True
        messages: list[Message] = []
        if count > 0:
            rows, fresh = await self.ready(
                line,
                count,
                now_ms,
                bodies=True,
                shares=counts if len(counts) > 1 else (),
                allowance=allowance,
            )
            self._hand_out(line, rows, fresh, lease_ms, actor, now_ms, claim=0)
            messages = await self._messages.handed_out(line, rows, fresh.spans)
        return Leased(messages, until_ms, await self._deliveries.stats(line))

    async def lease_all(
        self, line: QueueLine, count: int, lease_ms: int, actor: Actor, now_ms: int, *, claim: int
    ) -> tuple[int, int, int]:
        """Lease without reading bodies; how many, and between which sequences."""
        self.note_puller(line)
        rows, fresh = await self.ready(line, count, now_ms, bodies=False)
        self._hand_out(line, rows, fresh, lease_ms, actor, now_ms, claim=claim)
        seqs = [row.seq for row in rows]
        for span in fresh.spans:
            seqs += [span.first, span.first + span.length - 1]
        total = len(rows) + sum([span.length for span in fresh.spans])
        return total, min(seqs, default=0), max(seqs, default=0)

    def _hand_out(
        self,
        line: QueueLine,
        rows: Sequence[Delivery],
        fresh: Fresh,
        lease_ms: int,
        actor: Actor,
        now_ms: int,
        *,
        claim: int,
    ) -> None:
        until_ms = now_ms + lease_ms
        self._deliveries.hand_out(line, rows, fresh, until_ms=until_ms, now_ms=now_ms, claim=claim)
        if not rows and not fresh.spans:
            return
        about = EventColumns(rows)
        for span in fresh.spans:
            about.add(span.block, range(span.first, span.first + span.length), attempt=1)
        queue = line.queue
        self._book.note_messages(
            "leased", queue, about, actor=actor, now_ms=now_ms, lease_ms=lease_ms
        )
        if sum(about.sizes) > UNIT_BYTES:
            units = sum([max(0, -(-size // UNIT_BYTES) - 1) for size in about.sizes])
            if units:
                self._book.tally("leased_units", queue.tenant, queue.id, count=units, now_ms=now_ms)

    # --- settling ---

    async def settle(
        self, line: QueueLine, items: Sequence[Settlement], actor: Actor, now_ms: int
    ) -> list[Outcome]:
        """Those of the first items, see `Store.settle`."""
        neighbours = _acked_neighbours(line, items, now_ms) if line.ranges else None
        if neighbours is not None:
            await self._acked(line, neighbours, actor, now_ms)
            return [Outcome.DONE] * len(items)
        return await self._settle_each(line, items, actor, now_ms)

    async def _settle_each(
        self, line: QueueLine, items: Sequence[Settlement], actor: Actor, now_ms: int
    ) -> list[Outcome]:
        """Settle whatever the items are, one after the other. Acks are noted together, those of
        ranges at the end, and those of rows also before what could change these rows."""
        fifo = line.queue.fifo
        outcomes: list[Outcome] = []
        acks: dict[int, tuple[Range, list[int]]] = {}
        ended: list[Delivery] = []
        rows: dict[int, Delivery] | None = None
        for item in items:
            seq = item.seq
            leased = line.range_at(seq) if line.ranges else None
            if type(item) is Retry and outcomes and self._book.blocks.copied_much:
                break
            if leased is not None and type(item) is Ack:
                outcomes.append(_ack_of_range(leased, item, acks, now_ms))
                continue
            if rows is None:
                rows = await self._rows(line, items)
            if leased is not None or (fifo and not isinstance(item, Ack)):
                # On a FIFO queue, whatever happens to one message may change another's row.
                await self._endings.end(line, "acked", ended, actor, now_ms)
                ended = []
                rows |= await self._deliveries.standing_at(line, [seq])
            delivery = rows.get(seq)
            if delivery is None or not 1 <= item.attempt <= delivery.attempt:
                outcomes.append(Outcome.GONE)
            elif isinstance(item, Ack):
                current = delivery.is_held(item.attempt, now_ms)
                outcomes.append(Outcome.DONE if current else Outcome.LATE)
                if current or item.late:
                    ended.append(rows.pop(seq))
            else:
                outcomes.append(await self._settle_one(line, delivery, item, actor, now_ms))
                if delivery.state < 0:
                    del rows[seq]
            if fifo and not isinstance(item, Ack):
                rows = None
        if acks:
            await self._acked(line, list(acks.values()), actor, now_ms)
        if ended:
            await self._endings.end(line, "acked", ended, actor, now_ms)
        return outcomes

    async def _rows(self, line: QueueLine, items: Sequence[Settlement]) -> dict[int, Delivery]:
        """Rows of those messages that stand on the line, for items that need one."""
        wanted = {item.seq for item in items if 0 < item.seq <= line.tail}
        found = await self._deliveries.rows_at(line, wanted) if wanted else {}
        return {seq: row for seq, row in found.items() if row.state >= 0}

    async def _settle_one(
        self,
        line: QueueLine,
        delivery: Delivery,
        item: Retry | Extend,
        actor: Actor,
        now_ms: int,
    ) -> Outcome:
        if not delivery.is_held(item.attempt, now_ms):
            return Outcome.LATE
        if isinstance(item, Retry):
            await self.fail(
                line,
                delivery,
                kind="retried",
                delay_ms=item.delay_ms,
                ended_ms=now_ms,
                actor=actor,
                now_ms=now_ms,
            )
        else:
            self._deliveries.put(line, delivery, LEASED, now_ms + item.lease_ms)
            self._book.note_messages(
                "extended",
                line.queue,
                EventColumns([delivery]),
                actor=actor,
                now_ms=now_ms,
                lease_ms=item.lease_ms,
            )
        return Outcome.DONE

    async def ack_ranges(
        self, line: QueueLine, ranges: Sequence[Range], actor: Actor, now_ms: int
    ) -> None:
        """Everything that is left of these is done."""
        if ranges:
            await self._acked(line, [(each, each.seqs()) for each in ranges], actor, now_ms)

    async def _acked(
        self,
        line: QueueLine,
        acks: Sequence[tuple[Range, Sequence[int]]],
        actor: Actor,
        now_ms: int,
    ) -> None:
        """Messages of ranges are done: bits are set, and one run tells of all."""
        about = EventColumns(lives=True)
        for leased, mine in acks:
            block = await self._deliveries.block_of(line, leased)
            about.add(block, mine, attempt=1, leased_ms=leased.at_ms)
            self._deliveries.done(line, leased, mine)
        self._book.let_go(line)
        self._book.removed(line, about)
        self._book.note_messages("acked", line.queue, about, actor=actor, now_ms=now_ms)

    # --- the end of an attempt ---

    async def fail(
        self,
        line: QueueLine,
        delivery: Delivery,
        *,
        kind: str,
        delay_ms: int | None,
        ended_ms: int,
        actor: Actor,
        now_ms: int,
    ) -> bool:
        """End an attempt without an ack; True when that buried the message."""
        step = lifecycle.after_failure(
            line.queue, attempt=delivery.attempt, delay_ms=delay_ms, ended_ms=ended_ms
        )
        about = EventColumns([delivery])
        if isinstance(step, lifecycle.Bury):
            self._book.note_messages(kind, line.queue, about, actor=actor, now_ms=now_ms)
            await self._bury(line, delivery, step.into, actor, now_ms)
            return True
        delay_ms = step.due_ms - ended_ms
        self._book.note_messages(
            kind, line.queue, about, actor=actor, now_ms=now_ms, delay_ms=delay_ms
        )
        await self.release(line, delivery, step.due_ms, now_ms)
        return False

    async def release(self, line: QueueLine, delivery: Delivery, due_ms: int, now_ms: int) -> None:
        """A leased or delayed message is ready at `due_ms`."""
        if delivery.state == LEASED:
            self._book.let_go(line)
        delivery.claim = 0
        if due_ms > now_ms:
            self._deliveries.put(line, delivery, DELAYED, due_ms)
        elif line.queue.fifo:
            self._deliveries.put(line, delivery, WAITING, 0)
        else:
            self._deliveries.put(line, delivery, READY, 0)
            self._book.wake(line, 1)
        if line.queue.fifo:
            await self._fifo.refresh(line, [delivery.group])

    async def _bury(
        self, line: QueueLine, delivery: Delivery, into: str | None, actor: Actor, now_ms: int
    ) -> None:
        target = self._book.lines.get(into) if into else None
        [message] = await self._messages.of(line, [delivery])
        detail = events.buried(target.id if target else None)
        await self._endings.end(line, "buried", [delivery], actor, now_ms, detail)
        if target:
            draft = dead_letter(message, delivery, "attempts", source=line, target=target)
            self._book.blocks.copied(message.size)
            await self._publishing.insert(target, [draft], BROKER, now_ms)


def _ack_of_range(
    leased: Range, item: Ack, acks: dict[int, tuple[Range, list[int]]], now_ms: int
) -> Outcome:
    """Adds it to the acks, by the first sequence of its range, if it takes effect."""
    current = leased.until_ms > now_ms
    if item.attempt != 1:
        return Outcome.GONE
    if current or item.late:
        leased.done[item.seq - leased.first] = 1
        acks.setdefault(leased.first, (leased, []))[1].append(item.seq)
    return Outcome.DONE if current else Outcome.LATE


def _acked_neighbours(
    line: QueueLine, items: Sequence[Settlement], now_ms: int
) -> list[tuple[Range, range]] | None:
    """What the items ack, if that is nothing but neighbours that are leased as they say."""
    seqs = [item.seq for item in items if type(item) is Ack and item.attempt == 1]
    if not items or len(seqs) < len(items):
        return None
    found: list[tuple[Range, range]] = []
    at, firsts = 0, set[int]()
    while at < len(seqs):
        seq = seqs[at]
        leased = line.range_at(seq)
        if leased is None or leased.until_ms <= now_ms or leased.first in firsts:
            return None
        place = seq - leased.first
        count = min(len(seqs) - at, len(leased.done) - place)
        if seqs[at : at + count] != [*range(seq, seq + count)]:
            return None
        if any(leased.done[place : place + count]):
            return None
        found.append((leased, range(seq, seq + count)))
        firsts.add(leased.first)
        at += count
    return found
