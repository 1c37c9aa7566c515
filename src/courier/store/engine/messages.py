"""Reading messages out of their blocks."""

from collections.abc import Sequence
from typing import Any

import msgspec

from courier import ids
from courier.core import events
from courier.core.lifecycle import NAME_HEADER
from courier.core.limits import Allowance
from courier.core.types import Actor, Message, MessageState, Origin, Standing
from courier.store.engine.blocks import NOT_RARE, Block
from courier.store.engine.book import Book
from courier.store.engine.deliveries import Deliveries, Span
from courier.store.engine.disk import Fact
from courier.store.engine.facts import Facts
from courier.store.engine.layout import DELAYED, LEASED, NEVER_MS, SEQ_MASK
from courier.store.engine.lines import Delivery, QueueLine

_decode_headers = msgspec.json.Decoder(dict[str, Any]).decode


def name_key(seq: int) -> str:
    """Sorts like the sequence."""
    return f"{seq:011x}"


class Messages:
    def __init__(self, book: Book, deliveries: Deliveries, facts: Facts) -> None:
        self._book = book
        self._blocks = book.blocks
        self._deliveries = deliveries
        self._facts = facts

    async def of_spans(self, line: QueueLine, spans: Sequence[Span], attempt: int) -> list[Message]:
        """Messages of spans that were read with their bodies."""
        found: list[Message] = []
        for block, at, count in spans:
            places = range(at, at + count)
            found += _messages(line, block, places, [attempt] * count, bodies=True)
        return await self._named(line, found) if line.renamed else found

    async def of(
        self,
        line: QueueLine,
        deliveries: Sequence[Delivery],
        *,
        bodies: bool = True,
    ) -> list[Message]:
        """In the same order."""
        wanted = [(each.key & SEQ_MASK, each.attempt) for each in deliveries]
        return await self.at(line, wanted, bodies=bodies)

    async def at(
        self, line: QueueLine, wanted: Sequence[tuple[int, int]], *, bodies: bool = True
    ) -> list[Message]:
        """Messages by sequence and attempts, which are there; without `bodies`, those are empty."""
        found: list[Message] = []
        done, count = 0, len(wanted)
        while done < count:
            block = await self._blocks.at(line, wanted[done][0], bodies=bodies)
            first, end, stop = block.first, block.end, done + 1
            while stop < count and first <= wanted[stop][0] < end:
                stop += 1
            part = wanted[done:stop]
            places, attempts = [seq - first for seq, _ in part], [each for _, each in part]
            found += _messages(line, block, places, attempts, bodies=bodies)
            done = stop
        return await self._named(line, found) if line.renamed else found

    async def _named(self, line: QueueLine, messages: list[Message]) -> list[Message]:
        """With the names that some were given later."""
        keys = {name_key(message.seq): message.seq for message in messages}
        known = await self._facts.known(line, "name", list(keys)) if keys else {}
        names = {keys[key]: fact.value.decode() for key, fact in known.items()}
        return [
            _renamed(message, names[message.seq]) if message.seq in names else message
            for message in messages
        ]

    # --- asking ---

    async def browse(
        self,
        line: QueueLine,
        after_seq: int,
        limit: int,
        *,
        kept: bool,
        bodies: bool,
        allowance: Allowance | None,
    ) -> list[Message]:
        after_seq = max(0, after_seq)
        held = await self._deliveries.standing(line, after=after_seq, limit=limit)
        wanted = {each.seq: each.attempt for each in held}
        sizes = {each.seq: each.size for each in held}
        for pushes in line.pushes if kept else ():
            if pushes.owing:
                owed = await self._deliveries.standing(pushes, after=after_seq, limit=limit)
                # What pullers did with a message is of no use to listeners.
                wanted |= {each.seq: 0 for each in owed if each.seq not in wanted}
                sizes |= {each.seq: each.size for each in owed}
        if kept:
            seqs = sorted(wanted)[:limit]
            there = await self._deliveries.standing_at(line, seqs)
            wanted = {seq: there[seq].attempt if seq in there else 0 for seq in seqs}
        found = sorted(wanted.items())[:limit]
        if allowance is not None:
            found = found[: allowance.fitting([sizes[seq] for seq, _ in found])]
        return await self.at(line, found, bodies=bodies)

    async def states(
        self,
        line: QueueLine,
        after_seq: int,
        before_seq: int,
        limit: int,
        *,
        state: MessageState | None,
        now_ms: int,
    ) -> tuple[list[Standing], int]:
        """What is fresh waits, so it is not looked at for another state."""
        held = {None: line.count, "leased": line.leased, "delayed": line.delayed}
        if not held.get(state, line.count - line.leased - line.delayed):
            return [], 0
        looked = await self._deliveries.standing(
            line,
            after=max(0, after_seq),
            upto=min(before_seq - 1, SEQ_MASK),
            limit=limit,
            fresh=state in (None, "waiting"),
        )
        found = [_standing(each, now_ms) for each in looked]
        last = looked[-1].seq if len(looked) == limit else 0
        return [each for each in found if state in (None, each.state)], last

    async def find(self, line: QueueLine, message: str) -> Message | None:
        """By its generated id or its own."""
        seq = ids.message_seq(message, queue=line.id)
        found = await self.known(line, seq) if seq is not None else None
        if found is not None:
            made = ids.message_id(published_ms=found.published_ms, seq=found.seq, queue=line.id)
            if message in (made, found.id):
                return found
        return await self._find_own(line, message)

    async def known(self, line: QueueLine, seq: int) -> Message | None:
        """A message that is held, or kept for pushes."""
        if not 0 < seq <= line.tail:
            return None
        held = (await self._deliveries.standing_at(line, [seq])).get(seq)
        if held is not None:
            return (await self.of(line, [held]))[0]
        for pushes in line.pushes:
            if pushes.owing and await self._deliveries.standing_at(pushes, [seq]):
                return (await self.at(line, [(seq, 0)]))[0]
        return None

    async def _find_own(self, line: QueueLine, own_id: str) -> Message | None:
        """Own ids have no index: blocks are looked through, held messages before kept ones."""
        seqs: list[int] = []
        seq = min([await self._deliveries.first_seq(each) for each in line.all_lines])
        while seq <= line.tail:
            block = await self._blocks.seek(line, seq)
            if block is None:
                break
            seqs += [block.first + at for at, rare in block.rare.items() if rare.own_id == own_id]
            seq = block.end
        held = await self._deliveries.standing_at(line, seqs) if seqs else {}
        for seq in sorted(held) or sorted(seqs):
            found = await self.known(line, seq)
            if found is not None:
                return found
        return None

    async def rename(
        self, line: QueueLine, seq: int, name: str, actor: Actor, now_ms: int
    ) -> Message | None:
        message = await self.known(line, seq)
        if message is None:
            return None
        key = name_key(seq)
        if not await self._facts.known(line, "name", [key]):
            line.renamed += 1
            self._book.touch(line)
        self._facts.put(line, "name", key, Fact(NEVER_MS, name.encode()))
        block = await self._blocks.at(line, seq)
        self._book.note(
            "renamed",
            line.queue,
            size=message.size,
            actor=actor,
            now_ms=now_ms,
            columns={
                "seq": seq,
                "own_id": block.rare.get(seq - block.first, NOT_RARE).own_id,
                "published_ms": message.published_ms,
                "size": message.size,
                "detail": events.renamed(name),
            },
        )
        return _renamed(message, name)


def _renamed(message: Message, name: str) -> Message:
    headers = (message.headers or {}) | {NAME_HEADER: name}
    return msgspec.structs.replace(message, headers=headers)


def _messages(
    line: QueueLine, block: Block, places: Sequence[int], attempts: Sequence[int], *, bodies: bool
) -> list[Message]:
    """Messages of one block."""
    first, at_ms, count = block.first, block.at_ms, len(places)
    made = ids.message_ids([(at_ms, first + place) for place in places], queue=line.id)
    texts: list[Any] = [b""] * count
    if bodies:
        assert block.bodies is not None, "the block was read with its bodies"
        texts = [block.bodies[place] for place in places]
        assert None not in texts, "the body of a message that is there"
    types: list[Any] = block.types_of(0, block.count)
    if not block.rare:
        return [
            Message(first + place, id, at_ms, text, types[place], None, None, None, None, attempt)
            for place, id, text, attempt in zip(places, made, texts, attempts, strict=True)
        ]
    found: list[Message] = []
    for place, id, text, attempt in zip(places, made, texts, attempts, strict=True):
        rare = block.rare.get(place, NOT_RARE)
        headers, origin = rare.headers, rare.origin
        found.append(
            Message(
                first + place,
                rare.own_id or id,
                at_ms,
                text,
                types[place],
                _decode_headers(headers) if headers is not None else None,
                rare.group,
                rare.expires_ms,
                Origin(**origin) if origin else None,
                attempt,
                rare.delay_ms,
                rare.sealed,
            )
        )
    return found


def _standing(delivery: Delivery, now_ms: int) -> Standing:
    leased = delivery.range
    if leased is not None:
        return Standing(delivery.seq, "leased", leased.until_ms)
    if delivery.state == LEASED:
        return Standing(delivery.seq, "leased", delivery.due_ms)
    if delivery.state == DELAYED and delivery.due_ms > now_ms:
        return Standing(delivery.seq, "delayed", delivery.due_ms)
    return Standing(delivery.seq, "waiting")
