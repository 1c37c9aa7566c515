"""Records: mirrored in memory, so that reading one costs a dict look-up.

Callers see what is committed. Changes of the group that is being written are seen by the changes
after them in the same group, and by nobody else until the group is durable.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import msgspec

from courier.core.errors import Conflict
from courier.core.journal import RECORD_KINDS, SECRET_FIELDS, UNNOTED, UNNOTED_UPDATES
from courier.core.types import Actor, AnyRecord, Binding, Consumer, Listener, Queue
from courier.store.engine.book import WAKE_ALL, Book, arrange
from courier.store.engine.groups import Groups
from courier.store.engine.lines import PushLine, QueueLine

R = TypeVar("R", bound=AnyRecord)
RecordKey = tuple[type, str]


class Mirror:
    """Records by kind and id, by name, by parent."""

    def __init__(self) -> None:
        self._by_name: dict[tuple[type, str, str], AnyRecord] = {}
        self._by_parent: dict[tuple[type, str], dict[str, AnyRecord]] = {}
        self._by_kind: dict[type, dict[str, AnyRecord]] = {kind: {} for kind in RECORD_KINDS}
        # The same records in order: of a kind, and of a kind and tenant.
        self._ordered: dict[tuple[type, str | None], list[AnyRecord]] = {}

    def keep(self, record: AnyRecord) -> None:
        kind = type(record)
        self.forget(kind, record.id)
        self._by_kind[kind][record.id] = record
        if record.name:
            self._by_name[kind, record.tenant, record.name] = record
        self._by_parent.setdefault((kind, record.parent), {})[record.id] = record
        for owner in (None, record.tenant):
            insort(self._ordered.setdefault((kind, owner), []), record, key=_order)

    def forget(self, kind: type, id: str) -> None:
        old = self._by_kind[kind].pop(id, None)
        if old is None:
            return
        named = (kind, old.tenant, old.name)
        # Within one group another record may have taken the name already.
        if self._by_name.get(named) is old:
            del self._by_name[named]
        siblings = self._by_parent[kind, old.parent]
        del siblings[id]
        if not siblings:
            del self._by_parent[kind, old.parent]
        for owner in (None, old.tenant):
            among = self._ordered[kind, owner]
            del among[bisect_left(among, _order(old), key=_order)]
            if not among:
                del self._ordered[kind, owner]

    def get(self, kind: type, id: str) -> AnyRecord | None:
        return self._by_kind[kind].get(id)

    def named(self, kind: type, tenant: str, name: str) -> AnyRecord | None:
        return self._by_name.get((kind, tenant, name))

    def of_parent(self, kind: type, parent: str) -> Iterable[AnyRecord]:
        return self._by_parent.get((kind, parent), {}).values()

    def scan(self, kind: type, tenant: str | None, parent: str | None) -> list[Any]:
        if parent is None:
            return list(self._ordered.get((kind, tenant), ()))
        among = self.of_parent(kind, parent)
        return sorted(
            [record for record in among if tenant is None or record.tenant == tenant], key=_order
        )


class Settings:
    """`mirror` is what callers see. `_changed` are the records of the group, None for deleted."""

    def __init__(self, book: Book, groups: Groups) -> None:
        self._book = book
        self._groups = groups
        self.mirror = Mirror()
        self._changed: dict[RecordKey, AnyRecord | None] = {}

    def load(self) -> None:
        self.mirror = Mirror()
        self.reset()
        for record in sorted(self._book.records, key=_order):
            self.mirror.keep(record)

    def reset(self) -> None:
        """The group was rolled back."""
        self._changed = {}

    def committed(self) -> None:
        """Make the group's changes visible."""
        for (kind, id), record in self._changed.items():
            if record is None:
                self.mirror.forget(kind, id)
        for record in self._changed.values():
            if record is not None:
                self.mirror.keep(record)
        self._changed = {}

    def is_new(self, record: AnyRecord) -> bool:
        """It would add to what is stored for good; sessions and notes of progress do not."""
        kind = type(record)
        return kind not in UNNOTED_UPDATES and self._get(kind, record.id) is None

    # --- as the group sees it ---

    def _get(self, kind: type, id: str) -> AnyRecord | None:
        key = (kind, id)
        return self._changed[key] if key in self._changed else self.mirror.get(kind, id)

    def _named(self, kind: type, tenant: str, name: str) -> AnyRecord | None:
        for record in self._changed.values():
            if record is None or type(record) is not kind:
                continue
            if (record.tenant, record.name) == (tenant, name):
                return record
        found = self.mirror.named(kind, tenant, name)
        return None if found is None or (kind, found.id) in self._changed else found

    def _of_parent(self, kind: type, parent: str) -> list[AnyRecord]:
        found = [
            record
            for record in self._changed.values()
            if record is not None and type(record) is kind and record.parent == parent
        ]
        kept = self.mirror.of_parent(kind, parent)
        return found + [record for record in kept if (kind, record.id) not in self._changed]

    # --- changing ---

    def _check(self, puts: Sequence[AnyRecord], drops: Sequence[AnyRecord]) -> None:
        """Raise Conflict when a name, or the place of a queue's consumer, is taken."""
        changed = {(type(record), record.id) for record in (*drops, *puts)}
        names: set[tuple[type, str, str]] = set()
        parents: set[str] = set()
        for record in puts:
            kind = type(record)
            if record.name:
                name = (kind, record.tenant, record.name)
                holder = self._named(*name)
                if name in names or (holder and (kind, holder.id) not in changed):
                    raise Conflict(RECORD_KINDS[kind], record.name)
                names.add(name)
            if isinstance(record, Consumer):
                others = self._of_parent(kind, record.parent)
                taken = any((kind, other.id) not in changed for other in others)
                if record.parent in parents or taken:
                    raise Conflict("consumer", record.parent)
                parents.add(record.parent)

    async def change(
        self,
        puts: Sequence[AnyRecord],
        drops: Sequence[AnyRecord],
        actor: Actor,
        now_ms: int,
    ) -> None:
        self._check(puts, drops)
        new = self._new_lines(puts, drops)
        for record in drops:
            known = self._get(type(record), record.id)
            if known is not None:
                self._drop(known)
                self._note("deleted", known, None, puts, actor, now_ms)
        for record in puts:
            known = self._get(type(record), record.id)
            self._put(record)
            if isinstance(record, Queue):
                await self._put_queue(record, new, now_ms)
            elif isinstance(record, Listener):
                self._put_listener(record, new)
            what = "updated" if known else "created"
            self._note(what, record, known, puts, actor, now_ms)
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
        self._changed.pop((kind, record.id), None)
        self._changed[kind, record.id] = record
        body = msgspec.json.encode(record)
        self._book.changes.records[kind.__name__, record.id] = body
        if isinstance(record, Consumer):
            self._book.consumed.add(record.parent)

    def _drop(self, record: AnyRecord) -> None:
        kind, book = type(record), self._book
        self._changed.pop((kind, record.id), None)
        self._changed[kind, record.id] = None
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
                await self._groups.follow_delay(line, queue, now_ms)
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
        for listener in self._of_parent(Listener, queue.id):
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
        what: str,
        record: AnyRecord,
        known: AnyRecord | None,
        puts: Sequence[AnyRecord],
        actor: Actor,
        now_ms: int,
    ) -> None:
        unnoted = UNNOTED_UPDATES if what == "updated" else UNNOTED
        if isinstance(record, unnoted):
            return
        detail = msgspec.to_builtins(record)
        if what == "updated" and known is not None:
            detail["changed"] = _changed(known, record)
        for name in SECRET_FIELDS:
            detail.pop(name, None)
        if actor.address:
            detail["address"] = actor.address
        self._book.note(
            f"{RECORD_KINDS[type(record)]}_{what}",
            self._queue_of(record, puts),
            tenant=record.tenant,
            actor=actor,
            now_ms=now_ms,
            columns={"detail": detail},
        )

    def _queue_of(self, record: AnyRecord, puts: Sequence[AnyRecord]) -> Queue | None:
        """The queue that a record is about, which may come or go in the same call."""
        if isinstance(record, Queue):
            return record
        id = record.queue if isinstance(record, Binding) else record.parent
        new = {put.id: put for put in puts if isinstance(put, Queue)}
        found = new.get(id) or self._get(Queue, id) or self.mirror.get(Queue, id)
        return found if isinstance(found, Queue) else None


def _order(record: AnyRecord) -> tuple[int, str, str]:
    """Oldest first, then by name and id."""
    return record.created_ms, record.name, record.id


def _changed(old: AnyRecord, new: AnyRecord) -> list[str]:
    """Names of the fields that differ."""
    names = type(new).__struct_fields__
    return sorted(name for name in names if getattr(old, name) != getattr(new, name))
