"""Storing drafts: into the block that the group fills, with one run in the journal."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from courier import ids
from courier.core import events
from courier.core.errors import OverLimit, Rejected
from courier.core.lifecycle import GROUP_DEFAULT
from courier.core.types import Actor, Draft, Message, Origin, PlainDrafts, Receipt, Via
from courier.store.engine.blocks import Block, Rare
from courier.store.engine.book import Book
from courier.store.engine.deliveries import Deliveries
from courier.store.engine.disk import Between, Fact
from courier.store.engine.facts import KnownFacts
from courier.store.engine.fifo import FifoGroups
from courier.store.engine.journal import EventColumns
from courier.store.engine.layout import DELAYED, HELD, READY, ROWS, SEQ_MASK, WAITING
from courier.store.engine.lines import Delivery, PushLine, QueueLine

# Delivered messages that one call forgets to make room; more go with the next.
FORGOTTEN_MAX = 1_000
# Messages that may be published to a queue in all its life: 14 years at 10,000 a second. The last
# numbers are left to what comes back to it, or is buried in it.
NUMBERS_MAX = SEQ_MASK - (1 << 32)

_encode_json = msgspec.json.Encoder().encode


class Publishing:
    """A block holds up to `block_messages`, and ends with the message that makes it longer than
    `block_bytes`."""

    def __init__(
        self,
        book: Book,
        deliveries: Deliveries,
        fifo: FifoGroups,
        facts: KnownFacts,
        *,
        block_messages: int,
        block_bytes: int,
    ) -> None:
        self._book = book
        self._deliveries = deliveries
        self._fifo = fifo
        self._facts = facts
        self._block_messages = block_messages
        self._block_bytes = block_bytes

    async def publish(
        self,
        batches: Sequence[tuple[str, Sequence[Draft]]],
        actor: Actor,
        now_ms: int,
        *,
        bytes_max: int | None,
        via: Via | None,
    ) -> list[Receipt]:
        lines = [(self._book.line(queue), drafts) for queue, drafts in batches]
        for line, drafts in lines:
            refuse_over(bytes_max, line, drafts)
        for line, drafts in lines:
            await self.make_room(bytes_max, line, drafts)
        receipts = [await self._publish(line, drafts, actor, now_ms, via) for line, drafts in lines]
        if via:
            self._tally(via, batches, receipts, now_ms)
        return receipts

    async def publish_joined(
        self,
        queue: str,
        calls: Sequence[Sequence[Draft]],
        actor: Actor,
        now_ms: int,
        *,
        bytes_max: int | None,
    ) -> list[Receipt | Rejected]:
        """Several calls at once. Each is refused alone if there is no room for it."""
        line = self._book.line(queue)
        together = PlainDrafts.of(calls)
        refuse_without_numbers(line, together)
        refused: dict[int, Rejected] = {}
        if bytes_max is not None and line.bytes + sizes_of(together) > bytes_max:
            refused = _over(bytes_max, line, calls)
            taken = [drafts for place, drafts in enumerate(calls) if place not in refused]
            together = PlainDrafts.of(taken)
        seq = line.tail + 1
        if together:
            await self.make_room(bytes_max, line, together)
            await self.insert(line, together, actor, now_ms)
        stats = await self._deliveries.stats(line)
        answers: list[Receipt | Rejected] = []
        made, at = _MadeIds(line.id, together, seq, now_ms).part, 0
        for place, drafts in enumerate(calls):
            if refused and place in refused:
                answers.append(refused[place])
                continue
            count = len(drafts)
            answers.append(Receipt(partial(made, at, count), [False] * count, stats))
            at += count
        return answers

    async def make_room(
        self, bytes_max: int | None, line: QueueLine, drafts: Sequence[Draft]
    ) -> None:
        """Forget delivered messages, oldest first, where they and these would be too much."""
        shelf = line.shelf
        if bytes_max is None or shelf is None or not shelf.exhausted:
            return
        over = line.bytes + shelf.bytes + sizes_of(drafts) - bytes_max
        if over <= 0:
            return
        for row in await self._deliveries.rows(shelf, Between(1, SEQ_MASK), FORGOTTEN_MAX):
            if over <= 0:
                break
            over -= row.size
            shelf.bytes -= row.size
            self._deliveries.off(shelf, row)

    def _tally(
        self,
        via: Via,
        batches: Sequence[tuple[str, Sequence[Draft]]],
        receipts: Sequence[Receipt],
        now_ms: int,
    ) -> None:
        """Count what an exchange was given, and what it made of that."""
        sizes = [
            draft.size
            for (_, drafts), receipt in zip(batches, receipts, strict=True)
            for draft, repeated in zip(drafts, receipt.repeated, strict=True)
            if not repeated
        ]
        for kind, count, size in (
            ("routed", via.count, via.bytes),
            ("copied", len(sizes), sum(sizes)),
        ):
            if count:
                self._book.tally(
                    kind, via.tenant, via.exchange, count=count, size=size, now_ms=now_ms
                )

    async def _publish(
        self, line: QueueLine, drafts: Sequence[Draft], actor: Actor, now_ms: int, via: Via | None
    ) -> Receipt:
        if not drafts:
            return Receipt([], [], await self._deliveries.stats(line))
        plain = isinstance(drafts, PlainDrafts)
        if not plain and any([draft.once_key is not None for draft in drafts]):
            return await self._publish_once(line, drafts, actor, now_ms, via)
        seqs = await self.insert(line, drafts, actor, now_ms, via=via)
        made = partial(_ids, line.id, drafts, seqs.start, now_ms)
        return Receipt(made, [False] * len(drafts), await self._deliveries.stats(line))

    async def _publish_once(
        self, line: QueueLine, drafts: Sequence[Draft], actor: Actor, now_ms: int, via: Via | None
    ) -> Receipt:
        keys = list({draft.once_key: None for draft in drafts if draft.once_key is not None})
        facts = await self._facts.known(line, "once", keys)
        known = {key: fact.value.decode() for key, fact in facts.items() if now_ms < fact.until_ms}
        new: list[Draft] = []
        places: list[int | None] = []  # of each draft among the new ones
        first: dict[str, int] = {}
        for draft in drafts:
            key = draft.once_key
            if key is not None and (key in known or key in first):
                places.append(None)
                continue
            if key is not None:
                first[key] = len(new)
            places.append(len(new))
            new.append(draft)
        made: list[str] = []
        if new:
            seqs = await self.insert(line, new, actor, now_ms, via=via)
            made = _ids(line.id, new, seqs.start, now_ms)
        for key, place in first.items():
            fact = Fact(now_ms + new[place].once_ms, made[place].encode())
            self._facts.put(line, "once", key, fact)
            known[key] = made[place]
        answer = [
            known[draft.once_key or ""] if place is None else made[place]
            for draft, place in zip(drafts, places, strict=True)
        ]
        repeated = [place is None for place in places]
        return Receipt(answer, repeated, await self._deliveries.stats(line))

    # --- storing ---

    async def insert(
        self,
        line: QueueLine,
        drafts: Sequence[Draft],
        actor: Actor,
        now_ms: int,
        *,
        via: Via | None = None,
        only: PushLine | None = None,
    ) -> range:
        """Store drafts; their sequences. `only`: for this listener alone; pullers are done."""
        queue = line.queue
        begun = line.tail + 1
        delays: list[int] | None = None
        plain = isinstance(drafts, PlainDrafts)
        if queue.delay_ms or (not plain and any([draft.delay_ms for draft in drafts])):
            delays = [
                queue.delay_ms if draft.delay_ms is None else draft.delay_ms for draft in drafts
            ]
        detail = events.routed(via.exchange) if via else None
        rows: list[Delivery] = []
        at, count = 0, len(drafts)
        while at < count:
            flags = ROWS if queue.fifo else 0
            stop = count
            if delays is not None:
                held = delays[at] > 0
                flags |= HELD if held else 0
                stop = at + 1
                while stop < count and (delays[stop] > 0) == held:
                    stop += 1
            block = self._open(line, now_ms, flags, only.no if only else 0)
            stop = min(stop, at + self._block_messages - block.count)
            stop = self._fitting(block, drafts, at, stop)
            part = drafts[at:stop] if stop - at < count else drafts
            part_delays = delays[at:stop] if delays is not None else None
            rows += self._fill(line, block, part, part_delays, actor, now_ms, detail, only)
            at = stop
        if rows:
            if queue.fifo:
                await self._lead(line, rows)
            self._deliveries.add(line, rows)
        return range(begun, line.tail + 1)

    def _open(self, line: QueueLine, now_ms: int, flags: int, only: int) -> Block:
        block = line.open
        if (
            block is None
            or (block.at_ms, block.flags, block.only) != (now_ms, flags, only)
            or block.count >= self._block_messages
            or block.nbytes >= self._block_bytes
        ):
            block = line.open = Block(line.base | line.tail + 1, now_ms, flags, only)
            self._book.blocks.add(block)
        return block

    def _fitting(self, block: Block, drafts: Sequence[Draft], at: int, stop: int) -> int:
        """Where the block is long enough."""
        size, bodies = block.nbytes, bodies_of(drafts)[at:stop]
        if size + sum(map(len, bodies)) < self._block_bytes:
            return stop
        for place, body in enumerate(bodies, at + 1):
            size += len(body)
            if size >= self._block_bytes:
                return place
        return stop

    def _fill(
        self,
        line: QueueLine,
        block: Block,
        drafts: Sequence[Draft],
        delays: Sequence[int] | None,
        actor: Actor,
        now_ms: int,
        detail: dict[str, Any] | None,
        only: PushLine | None,
    ) -> list[Delivery]:
        """Add drafts to a block, with their events; rows that they need on the queue's line."""
        base, count = block.count, len(drafts)
        if isinstance(drafts, PlainDrafts):
            sizes, types = list(map(len, drafts.bodies)), drafts.types
        else:
            sizes = [len(draft.body) if draft.sealed is None else draft.size for draft in drafts]
            types = [draft.content_type for draft in drafts]
        size = sum(sizes)
        aging = count - self._note_unusual(line, block, drafts, delays, now_ms)
        assert isinstance(block.sizes, list) and isinstance(block.types, list)
        assert block.bodies is not None
        block.bodies += bodies_of(drafts)
        block.sizes += sizes
        block.types += types
        block.count += count
        block.nbytes += size
        first = line.tail + 1
        line.tail += count
        columns: dict[str, Any] = {"block": block.key, "at": base}
        if detail:
            columns["detail"] = detail
        self._book.note(
            "published",
            line.queue,
            count=count,
            size=size,
            actor=actor,
            now_ms=now_ms,
            columns=columns,
        )
        if only is None:
            self._book.added(line, count=count, size=size, now_ms=now_ms, aging=aging > 0)
            rows = self._place(line, block, first, count)
        else:
            self._note_acked(line, block, base, count, actor, now_ms)
            rows = []
        self._bind(line, block, first, count, only)
        return rows

    def _note_unusual(
        self,
        line: QueueLine,
        block: Block,
        drafts: Sequence[Draft],
        delays: Sequence[int] | None,
        now_ms: int,
    ) -> int:
        """What the block says of single drafts beside body and type; how many end by themselves."""
        fifo, doubt_ms = line.queue.fifo, self._book.doubt_ms
        base, ending = block.count, 0
        same = delays is None and not fifo and not doubt_ms
        if same and isinstance(drafts, PlainDrafts):
            if drafts.ids:
                named = enumerate(drafts.ids, base)
                block.rare.update([(place, Rare(id)) for place, id in named if id is not None])
            return 0
        unusual = [
            (place, draft)
            for place, draft in enumerate(drafts)
            if not same
            or draft.headers is not None
            or draft.id is not None
            or draft.ttl_ms is not None
            or draft.group is not None
            or draft.sealed is not None
            or draft.origin is not None
        ]
        for place, draft in unusual:
            delay_ms = delays[place] if delays is not None else 0
            expires_ms = None
            if draft.ttl_ms is not None or doubt_ms:
                ttl_ms = line.queue.retention_ms if draft.ttl_ms is None else draft.ttl_ms
                expires_ms = now_ms + ttl_ms + doubt_ms
                ending += 1
                self._expires(block, expires_ms)
            block.rare[base + place] = Rare(
                draft.id,
                _encode_json(draft.headers) if draft.headers is not None else None,
                draft.group or GROUP_DEFAULT if fifo else draft.group,
                expires_ms,
                draft.delay_ms if fifo else delay_ms or None,
                draft.sealed,
                msgspec.to_builtins(draft.origin) if draft.origin else None,
                delay_ms or None,
            )
        return ending

    def _expires(self, block: Block, expires_ms: int) -> None:
        if block.expires_ms is None or expires_ms < block.expires_ms:
            block.expires_ms = self._book.changes.expiries[block.key] = expires_ms
        self._book.next_due_ms = min(self._book.next_due_ms, expires_ms)

    def _place(self, line: QueueLine, block: Block, first: int, count: int) -> list[Delivery]:
        """On the queue's own line: beyond the cursor, or with a row each."""
        if block.flags:
            return _rows(line, block, first, count)
        line.fresh += count
        self._book.wake(line, count)
        return []

    async def _lead(self, line: QueueLine, rows: Sequence[Delivery]) -> None:
        """The first message of a group that was empty may be handed out; one that joins a group
        whose first may be, with it."""
        firsts: dict[str, Delivery] = {}
        for row in rows:
            assert row.group is not None, "a message of a FIFO queue has a group"
            firsts.setdefault(row.group, row)
        heads = await self._fifo.heads(line, list(firsts))
        ready = any([head.state == READY for head in heads.values()])
        for name, row in firsts.items():
            if name not in heads and row.state == WAITING:
                row.state = READY
                ready = True
        if ready:
            self._book.wake(line, len(rows))

    def _bind(
        self,
        line: QueueLine,
        block: Block,
        first: int,
        count: int,
        only: PushLine | None,
    ) -> None:
        """A push for each listener, or for one alone."""
        for pushes in line.pushes if only is None else [only]:
            if pushes.dropped:
                continue
            if block.flags & HELD:
                self._deliveries.add(pushes, _rows(pushes, block, first, count))
            else:
                pushes.fresh += count
                self._book.touch(pushes)
                self._book.wake_pushes(pushes, count)

    def _note_acked(
        self, line: QueueLine, block: Block, base: int, count: int, actor: Actor, now_ms: int
    ) -> None:
        """Pullers are done with these as they come."""
        first, about = block.first + base, EventColumns()
        about.add(block, range(first, first + count), attempt=0)
        self._book.note_messages("acked", line.queue, about, actor=actor, now_ms=now_ms)
        self._book.touch(line)


def _rows(line: QueueLine | PushLine, block: Block, first: int, count: int) -> list[Delivery]:
    """Of messages that were published with a delay, or on a FIFO queue."""
    queues = isinstance(line, QueueLine)
    grouped = bool(queues and block.flags & ROWS)
    state = DELAYED if block.flags & HELD else WAITING if queues else READY
    base, at_ms, rows = line.base, block.at_ms, []
    begin = first - block.first
    sizes = block.sizes_of(begin, count)
    for place in range(begin, begin + count):
        rare = block.rare[place]
        row = Delivery(
            base | block.first + place,
            state,
            0,
            at_ms + (rare.noted_ms or 0),
            at_ms,
            None,
            None,
            sizes[place - begin],
            rare.own_id,
            rare.expires_ms,
            rare.group if grouped else None,
            1 if grouped and rare.delay_ms is None else 0,
            0,
            None,
        )
        rows.append(row)
    return rows


class _MadeIds:
    """Ids of messages that were published together: made for all when the first caller asks."""

    __slots__ = ("_about", "_ids")

    def __init__(self, queue: str, drafts: Sequence[Draft], first: int, now_ms: int) -> None:
        self._about = queue, drafts, first, now_ms
        self._ids: list[str] | None = None

    def part(self, at: int, count: int) -> list[str]:
        made = self._ids
        if made is None:
            made = self._ids = _ids(*self._about)
        return made[at : at + count]


def _ids(queue: str, drafts: Sequence[Draft], first: int, now_ms: int) -> list[str]:
    made = ids.ids_together(now_ms, range(first, first + len(drafts)), queue=queue)
    if isinstance(drafts, PlainDrafts):
        return [own or id for own, id in zip(drafts.ids, made, strict=True)] if drafts.ids else made
    return [draft.id or id for draft, id in zip(drafts, made, strict=True)]


def bodies_of(drafts: Sequence[Draft]) -> list[bytes]:
    return drafts.bodies if isinstance(drafts, PlainDrafts) else [draft.body for draft in drafts]


def sizes_of(drafts: Sequence[Draft]) -> int:
    if isinstance(drafts, PlainDrafts):
        return sum(map(len, drafts.bodies))
    # Asking a draft for its size costs a call, and most are not sealed.
    return sum([len(draft.body) if draft.sealed is None else draft.size for draft in drafts])


def refuse_over(bytes_max: int | None, line: QueueLine, drafts: Sequence[Draft]) -> None:
    """Raises OverLimit when the queue would hold too much with these, or lacks numbers for them."""
    refuse_without_numbers(line, drafts)
    if bytes_max is None:
        return
    actual = line.bytes + sizes_of(drafts)
    if actual > bytes_max:
        raise OverLimit("queue bytes", limit=bytes_max, actual=actual)


def refuse_without_numbers(line: QueueLine, drafts: Sequence[Draft]) -> None:
    actual = line.tail + len(drafts)
    if actual > NUMBERS_MAX:
        raise OverLimit("messages that the queue has had", limit=NUMBERS_MAX, actual=actual)


def _over(bytes_max: int, line: QueueLine, calls: Sequence[Sequence[Draft]]) -> dict[int, Rejected]:
    """Of several calls, by place, those that the queue has no room for after the others."""
    refused: dict[int, Rejected] = {}
    held = line.bytes
    for place, drafts in enumerate(calls):
        actual = held + sizes_of(drafts)
        if actual > bytes_max:
            refused[place] = OverLimit("queue bytes", limit=bytes_max, actual=actual)
        else:
            held = actual
    return refused


def dead_letter(
    message: Message, row: Delivery, reason: str, *, source: QueueLine, target: QueueLine
) -> Draft:
    """What goes to the dead letters. It is not delayed, except by its new queue's delay where that
    is FIFO."""
    origin = Origin(source.id, message.id, row.attempt, reason)
    delay_ms = None if target.queue.fifo else 0
    return copy_of(message, row.own_id, origin, delay_ms=delay_ms)


def copy_of(message: Message, own_id: str | None, origin: Origin, *, delay_ms: int | None) -> Draft:
    """What carries a message over to another queue."""
    return Draft(
        message.body,
        message.content_type,
        message.headers,
        own_id,
        delay_ms,
        group=message.group,
        sealed=message.sealed,
        origin=origin,
    )
