"""Reading messages out of their blocks."""

from collections.abc import Sequence
from typing import Any

import msgspec

from courier import ids
from courier.core.lifecycle import NAME_HEADER
from courier.core.types import Message, Origin
from courier.store.engine.blocks import NOT_RARE, Block
from courier.store.engine.book import Book
from courier.store.engine.deliveries import BlockSpan, Deliveries
from courier.store.engine.facts import KnownFacts
from courier.store.engine.layout import SEQ_MASK
from courier.store.engine.lines import Delivery, QueueLine

_decode_headers = msgspec.json.Decoder(dict[str, Any]).decode


def name_key(seq: int) -> str:
    """Sorts like the sequence."""
    return f"{seq:011x}"


class StoredMessages:
    def __init__(self, book: Book, deliveries: Deliveries, facts: KnownFacts) -> None:
        self._book = book
        self._blocks = book.blocks
        self._deliveries = deliveries
        self._facts = facts

    async def of_spans(
        self, line: QueueLine, spans: Sequence[BlockSpan], attempt: int
    ) -> list[Message]:
        """Messages of spans that were read with their bodies."""
        found: list[Message] = []
        for block, at, count in spans:
            places = range(at, at + count)
            found += messages_of(line.id, block, places, [attempt] * count, bodies=True)
        return await self.named(line, found) if line.renamed else found

    async def handed_out(
        self, line: QueueLine, rows: Sequence[Delivery], spans: Sequence[BlockSpan]
    ) -> list[Message]:
        """What was just leased: rows, and messages that were fresh."""
        found = await self.of(line, rows) if rows else []
        return found + await self.of_spans(line, spans, 1)

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
            found += messages_of(line.id, block, places, attempts, bodies=bodies)
            done = stop
        return await self.named(line, found) if line.renamed else found

    async def named(self, line: QueueLine, messages: list[Message]) -> list[Message]:
        """With the names that some were given later."""
        keys = {name_key(message.seq): message.seq for message in messages}
        known = await self._facts.known(line, "name", list(keys)) if keys else {}
        names = {keys[key]: fact.value.decode() for key, fact in known.items()}
        return [
            renamed(message, names[message.seq]) if message.seq in names else message
            for message in messages
        ]

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


def renamed(message: Message, name: str) -> Message:
    headers = (message.headers or {}) | {NAME_HEADER: name}
    return msgspec.structs.replace(message, headers=headers)


def messages_of(
    queue: str, block: Block, places: Sequence[int], attempts: Sequence[int], *, bodies: bool
) -> list[Message]:
    """Messages of one block."""
    first, at_ms, count = block.first, block.at_ms, len(places)
    own_ids = block.own_ids if block.rare else ()
    made = [id for place in places if (id := own_ids[place])] if own_ids else []
    if len(made) < count:
        made = ids.ids_together(at_ms, [first + place for place in places], queue=queue)
        if own_ids:
            made = [own_ids[place] or id for place, id in zip(places, made, strict=True)]
    texts: list[Any] = [b""] * count
    if bodies:
        assert block.bodies is not None, "the block was read with its bodies"
        texts = [block.bodies[place] for place in places]
        assert None not in texts, "the body of a message that is there"
    types: list[Any] = block.types_of(0, block.count)
    if not block.rare or block.only_named:
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
                id,
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
