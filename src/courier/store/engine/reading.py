"""Looking at the messages of a queue, searching and naming them."""

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from courier import ids
from courier.core import events
from courier.core.errors import StoreDamaged
from courier.core.limits import Allowance
from courier.core.matching import Sought, matcher
from courier.core.types import Actor, Message, MessageState, QueueStats, Standing
from courier.store.engine.blocks import NOT_RARE, BlockRow, block_of
from courier.store.engine.calls import GroupRunner, Verbs, on_queue
from courier.store.engine.deliveries import Deliveries
from courier.store.engine.disk import Fact, Needles
from courier.store.engine.facts import KnownFacts
from courier.store.engine.layout import DELAYED, LEASED, NEVER_MS, SEQ_MASK
from courier.store.engine.leases import Leases
from courier.store.engine.lines import Delivery, QueueLine
from courier.store.engine.messages import StoredMessages, messages_of, name_key, renamed

# Blocks that are judged at a time. Names given later are looked up by all their messages.
BLOCKS_MAX, NAMED_BLOCKS_MAX = 64, 8


class Reading(Verbs):
    """`MessageVerbs`, `rename` and `stats`."""

    def __init__(
        self,
        calls: GroupRunner,
        deliveries: Deliveries,
        messages: StoredMessages,
        facts: KnownFacts,
        leases: Leases,
    ) -> None:
        super().__init__(calls)
        self._deliveries = deliveries
        self._messages = messages
        self._facts = facts
        self._leases = leases

    @on_queue
    async def peek(
        self, line: QueueLine, *, count: int, now_ms: int, allowance: Allowance | None = None
    ) -> list[Message]:
        self._leases.note_puller(line)
        return await self._ready(line, count, now_ms, allowance=allowance)

    @on_queue
    async def ready(
        self,
        line: QueueLine,
        *,
        count: int,
        now_ms: int,
        bodies: bool = True,
        allowance: Allowance | None = None,
    ) -> list[Message]:
        return await self._ready(line, count, now_ms, bodies=bodies, allowance=allowance)

    async def _ready(
        self,
        line: QueueLine,
        count: int,
        now_ms: int,
        *,
        bodies: bool = True,
        allowance: Allowance | None,
    ) -> list[Message]:
        rows, fresh = await self._leases.ready(
            line, count, now_ms, bodies=bodies, allowance=allowance
        )
        found = await self._messages.of(line, rows, bodies=bodies)
        if bodies:
            return found + await self._messages.of_spans(line, fresh.spans, 0)
        places = [(span.first + i, 0) for span in fresh.spans for i in range(span.length)]
        return found + await self._messages.at(line, places, bodies=False)

    async def stats(self, queues: Sequence[str], *, now_ms: int) -> dict[str, QueueStats]:
        async def part(ids: Sequence[str]) -> dict[str, QueueStats]:
            lines = self._book.lines
            return {id: await self._deliveries.stats(lines[id]) for id in ids if id in lines}

        return await self.calls.in_parts(queues, now_ms, part)

    @on_queue
    async def browse(
        self,
        line: QueueLine,
        *,
        after_seq: int,
        limit: int,
        now_ms: int,
        kept: bool = False,
        bodies: bool = True,
        allowance: Allowance | None = None,
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
        return await self._messages.at(line, found, bodies=bodies)

    @on_queue
    async def states(
        self,
        line: QueueLine,
        *,
        after_seq: int,
        before_seq: int,
        limit: int,
        now_ms: int,
        state: MessageState | None = None,
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

    async def search(
        self,
        queue: str,
        /,
        sought: Sought,
        *,
        after_seq: int,
        before_seq: int,
        limit: int,
        now_ms: int,
        newest: bool = False,
    ) -> tuple[list[Message], int]:
        """Blocks are found and judged beside the group; it is asked which messages stand."""
        no, renamed, first, last = await self._searched(
            queue, after_seq=after_seq, before_seq=before_seq, now_ms=now_ms
        )
        if first > last:
            return [], 0
        rows, end = await self._book.disk.holding(
            no,
            _needles(queue, sought, renamed=renamed),
            first=first,
            last=last,
            newest=newest,
            limit=NAMED_BLOCKS_MAX if renamed else BLOCKS_MAX,
        )
        fits = matcher(queue, sought)
        try:
            found = await asyncio.to_thread(
                _judged, queue, rows, (first, last), None if renamed else fits
            )
        except StoreDamaged as error:
            self.calls.room.met_damage(error.place)
            raise
        found.sort(key=lambda message: message.seq, reverse=newest)
        if not renamed and len(found) > limit:
            found, end = found[:limit], found[limit - 1].seq
        if found:
            found = [each for each in await self._held(queue, found, now_ms=now_ms) if fits(each)]
        if len(found) > limit:
            found, end = found[:limit], found[limit - 1].seq
        return found, end

    @on_queue
    async def _searched(
        self, line: QueueLine, *, after_seq: int, before_seq: int, now_ms: int
    ) -> tuple[int, bool, int, int]:
        """Number of the line, whether messages have names given later, and where to look."""
        first = max(after_seq + 1, await self._deliveries.first_seq(line))
        return line.no, line.renamed > 0, first, min(before_seq - 1, line.tail)

    @on_queue
    async def _held(
        self, line: QueueLine, messages: list[Message], *, now_ms: int
    ) -> list[Message]:
        """Those that stand, as they are now."""
        held = await self._deliveries.standing_at(line, [each.seq for each in messages])
        there = [
            msgspec.structs.replace(each, attempts=held[each.seq].attempt)
            for each in messages
            if each.seq in held
        ]
        return await self._messages.named(line, there) if line.renamed else there

    @on_queue
    async def find(self, line: QueueLine, message: str, *, now_ms: int) -> Message | None:
        seq = ids.message_seq(message, queue=line.id)
        found = await self._messages.known(line, seq) if seq is not None else None
        if found is not None:
            made = ids.message_id(published_ms=found.published_ms, seq=found.seq, queue=line.id)
            if message in (made, found.id):
                return found
        return await self._find_own(line, message)

    async def _find_own(self, line: QueueLine, own_id: str) -> Message | None:
        """Own ids have no index: blocks are looked through, held messages before kept ones."""
        seqs: list[int] = []
        seq = min([await self._deliveries.first_seq(each) for each in line.all_lines])
        while seq <= line.tail:
            block = await self._book.blocks.seek(line, seq)
            if block is None:
                break
            seqs += [block.first + at for at, rare in block.rare.items() if rare.own_id == own_id]
            seq = block.end
        held = await self._deliveries.standing_at(line, seqs) if seqs else {}
        for seq in sorted(held) or sorted(seqs):
            found = await self._messages.known(line, seq)
            if found is not None:
                return found
        return None

    async def tail(self, queue: str, /) -> int:
        await self.calls.writer.current()
        return self._book.line(queue).tail

    @on_queue
    async def rename(
        self, line: QueueLine, seq: int, name: str, *, actor: Actor, now_ms: int
    ) -> Message | None:
        message = await self._messages.known(line, seq)
        if message is None:
            return None
        key = name_key(seq)
        if not await self._facts.known(line, "name", [key]):
            line.renamed += 1
            self._book.touch(line)
        self._facts.put(line, "name", key, Fact(NEVER_MS, name.encode()))
        block = await self._book.blocks.at(line, seq)
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
        return renamed(message, name)


def _standing(delivery: Delivery, now_ms: int) -> Standing:
    leased = delivery.range
    if leased is not None:
        return Standing(delivery.seq, "leased", leased.until_ms)
    if delivery.state == LEASED:
        return Standing(delivery.seq, "leased", delivery.due_ms)
    if delivery.state == DELAYED and delivery.due_ms > now_ms:
        return Standing(delivery.seq, "delayed", delivery.due_ms)
    return Standing(delivery.seq, "waiting")


def _needles(queue: str, sought: Sought, *, renamed: bool) -> Needles:
    """No block without one of these has a message that matches (`matching.py`)."""
    text = sought.text
    raw = text.encode("utf-8", "surrogatepass")
    if sought.path:
        return Needles((raw, _escape(text)) if _is_written_one_way(text) else (b"", None))
    try:
        quoted = msgspec.json.encode(text)[1:-1]
    except UnicodeEncodeError:  # half a character, which no header has
        quoted = raw
    seq = ids.message_seq(text, queue=queue) or 0
    return Needles((raw, None), (raw, quoted), seq, raw if renamed else None)


def _is_written_one_way(value: str) -> bool:
    """But for escapes, JSON has only one way to write the value; not so a fraction or an object."""
    if value[:1] in ("{", "["):
        return False
    try:
        float(value)
    except ValueError:
        return True
    return value.removeprefix("-").isdigit()


def _escape(value: str) -> bytes:
    """What a JSON string has that holds the value in other bytes."""
    return b"\\" if any(sign < " " or sign in '"\\/' for sign in value) else b"\\u"


def _judged(
    queue: str,
    rows: Sequence[BlockRow],
    span: tuple[int, int],
    fits: Callable[[Message], bool] | None,
) -> list[Message]:
    """Messages of blocks in that span of sequences, in the order of the rows; `fits` None: all."""
    found: list[Message] = []
    for row in rows:
        block = block_of(row)
        bodies = block.bodies or []
        places = [
            place
            for place, body in enumerate(bodies)
            if body is not None and span[0] <= block.first + place <= span[1]
        ]
        messages = messages_of(queue, block, places, [0] * len(places), bodies=True)
        found += filter(fits, messages) if fits else messages
    return found
