"""Changes of records, and what they do to the lines of queues and listeners.

Callers see what is committed. Changes of the group that is being written are seen by the changes
after them in the same group, and by nobody else until the group is durable.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from courier.core import events
from courier.core.errors import Conflict
from courier.core.journal import RECORD_KINDS, UNNOTED_UPDATES
from courier.core.records import Change, Pending, Records
from courier.core.types import Actor, AnyRecord, Consumer, Listener, Queue
from courier.store.engine.book import WAKE_ALL, Book, arrange, record_of
from courier.store.engine.fifo import FifoGroups
from courier.store.engine.lines import PushLine, QueueLine

_KINDS: dict[str, type[AnyRecord]] = {kind.__name__: kind for kind in RECORD_KINDS}


class SettingChanges:
    """`mirror` is what callers see, `pending` what the changes of a group see."""

    def __init__(self, book: Book, fifo: FifoGroups) -> None:
        self._book = book
        self._fifo = fifo
        self.mirror = Records()
        self.pending = Pending(self.mirror)

    def load(self) -> None:
        self.mirror.apply(puts=self._book.records)

    def follow(self, records: Sequence[AnyRecord]) -> None:
        """These are all the records there are by now. Those that are as before stay the same
        objects."""
        known = {(type(record), record.id) for record in records}
        gone = [old for old in self.mirror.all() if (type(old), old.id) not in known]
        new = [each for each in records if self.mirror.get(type(each), each.id) != each]
        if new or gone:
            self.mirror.apply(puts=new, drops=gone)

    def follow_some(self, bodies: Mapping[tuple[str, str], bytes | None]) -> None:
        """Another node has changed these."""
        old: list[AnyRecord] = []
        for kind, id in bodies:
            known = self.mirror.get(_KINDS[kind], id)
            if known is not None:
                old.append(known)
        new = [record_of(body) for body in bodies.values() if body is not None]
        if bodies:
            self.mirror.apply(puts=new, drops=old)

    def is_new(self, record: AnyRecord) -> bool:
        """It would add to what is stored for good; sessions and notes of progress do not."""
        kind = type(record)
        return kind not in UNNOTED_UPDATES and self.pending.get(kind, record.id) is None

    # --- changing ---

    def check(self, change: Change[Any]) -> None:
        """Raise Conflict when a name, or the place of a queue's consumer, is taken."""
        changed = {(type(record), record.id) for record in (*change.drops, *change.puts)}
        names: set[tuple[type, str, str]] = set()
        parents: set[str] = set()
        for record in change.puts:
            kind = type(record)
            if record.name:
                name = (kind, record.tenant, record.name)
                holder = self.pending.named(kind, tenant=record.tenant, name=record.name)
                if name in names or (holder and (kind, holder.id) not in changed):
                    raise Conflict(RECORD_KINDS[kind], record.name)
                names.add(name)
            if isinstance(record, Consumer):
                others = self.pending.scan(Consumer, parent=record.parent)
                taken = any((kind, other.id) not in changed for other in others)
                if record.parent in parents or taken:
                    raise Conflict("consumer", record.parent)
                parents.add(record.parent)

    async def change(self, change: Change[Any], actor: Actor, now_ms: int) -> None:
        puts, drops = change.puts, change.drops
        if not puts and not drops:
            return
        new = self._new_lines(puts, drops)
        for record in drops:
            known = self.pending.get(type(record), record.id)
            if known is not None:
                self._drop(known)
                self._note(None, known, puts, actor, now_ms)
        for record in puts:
            known = self.pending.get(type(record), record.id)
            self._put(record)
            if isinstance(record, Queue):
                await self._put_queue(record, new, now_ms)
            elif isinstance(record, Listener):
                self._put_listener(record, new)
            self._note(record, known, puts, actor, now_ms)
        self._book.changed = True

    def _new_lines(self, puts: Sequence[AnyRecord], drops: Sequence[AnyRecord]) -> dict[str, int]:
        """Numbers for lines that are to be made. Raises OverLimit before anything is changed."""
        dropped = {record.id for record in drops}
        made: dict[str, int] = {}
        try:
            for record in puts:
                if isinstance(record, (Queue, Listener)) and record.id not in made:
                    lines = self._book.lines if isinstance(record, Queue) else self._book.pushes
                    if record.id not in lines or record.id in dropped:
                        made[record.id] = self._book.numbers.take()
        except BaseException:
            for no in made.values():
                self._book.numbers.free(no)
            raise
        return made

    def _put(self, record: AnyRecord) -> None:
        kind = type(record)
        self.pending.apply(puts=[record])
        body = msgspec.json.encode(record)
        self._book.changes.records[kind.__name__, record.id] = body
        if isinstance(record, Consumer):
            self._book.consumed.add(record.parent)

    def _drop(self, record: AnyRecord) -> None:
        kind, book = type(record), self._book
        self.pending.apply(drops=[record])
        book.changes.records[kind.__name__, record.id] = None
        if isinstance(record, Queue):
            line = book.lines.pop(record.id)
            line.dropped = True
            book.dropped[line.no] = line
            book.touch(line)
            book.wake(line, WAKE_ALL)
        elif isinstance(record, Listener):
            del book.listeners[record.id]
            pushes = book.pushes.pop(record.id)
            pushes.dropped = True
            pushes.tail = pushes.line.tail if pushes.line is not None else 0
            book.dropped_pushes[pushes.no] = pushes
            if pushes.line is not None:
                arrange(pushes.line)
            book.touch(pushes)
            book.wake(pushes, WAKE_ALL)
        elif isinstance(record, Consumer):
            book.consumed.discard(record.parent)

    async def _put_queue(self, queue: Queue, new: dict[str, int], now_ms: int) -> None:
        book = self._book
        line = book.lines.get(queue.id)
        if line is not None:
            delay_ms, line.queue = line.queue.delay_ms, queue
            if queue.fifo and queue.delay_ms != delay_ms:
                await self._fifo.follow_delay(line, queue, now_ms)
            book.next_retention_ms = 0
            book.retention_stale = True
            book.touch(line)
            book.wake(line, WAKE_ALL)
            return
        line = QueueLine(new[queue.id], queue)
        line.minute = book.minute
        book.lines[queue.id] = book.by_no[line.no] = line
        book.touch(line)
        # A listener may have been there before its queue.
        for listener in self.pending.scan(Listener, parent=queue.id):
            pushes = book.pushes.get(listener.id)
            if pushes is not None:
                book.attach(pushes, line)

    def _put_listener(self, listener: Listener, new: dict[str, int]) -> None:
        book = self._book
        book.listeners[listener.id] = listener
        pushes = book.pushes.get(listener.id)
        if pushes is not None:
            pushes.listener = listener
            if pushes.line is not None:
                arrange(pushes.line)
            book.wake(pushes, WAKE_ALL)
            return
        pushes = PushLine(new[listener.id], listener)
        line = book.lines.get(listener.parent)
        pushes.cursor = line.tail if line else 0
        book.pushes[listener.id] = book.by_no[pushes.no] = pushes
        book.attach(pushes, line)
        book.touch(pushes)
        book.wake(pushes, WAKE_ALL)

    def _note(
        self,
        record: AnyRecord | None,
        known: AnyRecord | None,
        puts: Sequence[AnyRecord],
        actor: Actor,
        now_ms: int,
    ) -> None:
        event, about = events.setting(record, known, actor=actor), record or known
        if event is None or about is None:
            return
        kind, detail = event
        self._book.note(
            kind,
            self._queue_of(about, puts),
            tenant=about.tenant,
            actor=actor,
            now_ms=now_ms,
            columns={"detail": detail},
        )

    def _queue_of(self, record: AnyRecord, puts: Sequence[AnyRecord]) -> Queue | None:
        """The queue that a record is about, which may come or go in the same call."""
        if isinstance(record, Queue):
            return record
        id = events.queue_of(record)
        new = {put.id: put for put in puts if isinstance(put, Queue)}
        found = new.get(id) or self.pending.get(Queue, id) or self.mirror.get(Queue, id)
        return found if isinstance(found, Queue) else None
