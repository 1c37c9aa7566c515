"""Publishing by number: of the drafts under one key, none is stored a second time."""

from collections.abc import Sequence

import msgspec

from courier.core.errors import Conflict, NotFound, RowsChanged
from courier.core.types import Actor, Draft, Numbering
from courier.store.engine.calls import GroupRunner, Verbs, on_queue, takes_space
from courier.store.engine.disk import Fact
from courier.store.engine.facts import KnownFacts
from courier.store.engine.lines import PushLine, QueueLine
from courier.store.engine.publishing import Publishing, refuse_over

Stored = tuple[int, bytes | None]  # how many drafts, and their mark

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Stored).decode


class Numbered(Verbs):
    """`RowVerbs`."""

    def __init__(self, calls: GroupRunner, facts: KnownFacts, publishing: Publishing) -> None:
        super().__init__(calls)
        self._facts = facts
        self._publishing = publishing

    @on_queue
    async def count(self, line: QueueLine, *, key: str, now_ms: int, below: bool = False) -> int:
        if below:
            facts = await self._facts.below(line, "rows", key, now_ms)
            return sum([_decode(fact.value)[0] for fact in facts])
        fact = await self._facts.one(line, "rows", key, now_ms)
        return _decode(fact.value)[0] if fact else 0

    @takes_space
    @on_queue
    async def publish(
        self,
        line: QueueLine,
        drafts: Sequence[Draft],
        numbering: Numbering,
        *,
        actor: Actor,
        now_ms: int,
        bytes_max: int | None = None,
        listener: str | None = None,
    ) -> int:
        key, first, marks = numbering.key, numbering.first, numbering.marks
        only = _listening(line, listener)
        fact = await self._facts.one(line, "rows", key, now_ms)
        count, mark = _decode(fact.value) if fact else (0, None)
        if first > count:
            raise Conflict("rows", key)
        if marks and mark and count - first < len(marks) and marks[count - first] != mark:
            raise RowsChanged(key, count)
        new = drafts[count - first :]
        if new:
            refuse_over(bytes_max, line, new)
            await self._publishing.make_room(bytes_max, line, new)
            await self._publishing.insert(line, new, actor, now_ms, only=only)
            # A mark is of all drafts of its key, so one that is missing is missing for good.
            mark = marks[-1] if marks is not None and (mark or not count) else None
        if count + len(new):
            known_ms = max(fact.until_ms if fact else 0, numbering.until_ms)
            self._facts.put(line, "rows", key, Fact(known_ms, _encode((count + len(new), mark))))
        return len(new)


def _listening(line: QueueLine, listener: str | None) -> PushLine | None:
    """The line of a listener of this queue."""
    if listener is None:
        return None
    for pushes in line.pushes:
        if pushes.id == listener and not pushes.dropped:
            return pushes
    raise NotFound("listener", listener)
