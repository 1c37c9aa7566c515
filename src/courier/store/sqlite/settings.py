"""Records: kept as JSON rows, mirrored in memory so that reading one costs a dict look-up."""

from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import apsw
import msgspec

from courier.core.errors import Conflict
from courier.core.journal import RECORD_KINDS, SECRET_FIELDS, UNNOTED, UNNOTED_UPDATES
from courier.core.types import Actor, AnyRecord, Binding, Consumer, Listener, Queue
from courier.store.sqlite.book import Book
from courier.store.sqlite.groups import Groups
from courier.store.sqlite.line import Line, PushLine

R = TypeVar("R", bound=AnyRecord)

WAKE_ALL = 1 << 62

_ALL = "SELECT body FROM record"
_PUT = "INSERT OR REPLACE INTO record VALUES (?, ?, ?)"
_DROP = "DELETE FROM record WHERE kind = ? AND id = ?"
_OPEN_LINE = "INSERT INTO subscription (queue, listener) VALUES (?, ?)"
_LINE = "SELECT no FROM subscription WHERE queue = ? AND listener = ?"
_CLOSE_LINE = "UPDATE subscription SET dropped = ? WHERE no = ?"

_decode = msgspec.json.Decoder(AnyRecord).decode


class Settings:
    def __init__(self, db: apsw.Connection, book: Book, groups: Groups) -> None:
        self._db = db.cursor()
        self._book = book
        self._groups = groups
        self._by_name: dict[tuple[type, str, str], AnyRecord] = {}
        self._by_parent: dict[tuple[type, str], dict[str, AnyRecord]] = {}
        self._by_kind: dict[type, dict[str, AnyRecord]] = {kind: {} for kind in RECORD_KINDS}
        # The same records in order: of a kind, and of a kind and tenant.
        self._ordered: dict[tuple[type, str | None], list[AnyRecord]] = {}

    def load(self) -> None:
        records = [_decode(body) for (body,) in self._book.rows(_ALL)]
        for record in sorted(records, key=_order):
            self._keep(record)

    def _keep(self, record: AnyRecord) -> None:
        self._forget(record)
        kind = type(record)
        self._by_kind[kind][record.id] = record
        if record.name:
            self._by_name[kind, record.tenant, record.name] = record
        self._by_parent.setdefault((kind, record.parent), {})[record.id] = record
        for owner in (None, record.tenant):
            insort(self._ordered.setdefault((kind, owner), []), record, key=_order)
        if isinstance(record, Queue):
            self._book.queues[record.id] = record
            if record.id in self._book.lines:
                self._book.lines[record.id].queue = record
                self._book.next_retention_ms = 0
        elif isinstance(record, Listener):
            self._book.push_lines.keep(record)

    def _forget(self, record: AnyRecord) -> None:
        kind = type(record)
        old = self._by_kind[kind].pop(record.id, None)
        if old is None:
            return
        self._by_name.pop((kind, old.tenant, old.name), None)
        siblings = self._by_parent[kind, old.parent]
        del siblings[old.id]
        if not siblings:
            del self._by_parent[kind, old.parent]
        for owner in (None, old.tenant):
            among = self._ordered[kind, owner]
            del among[bisect_left(among, _order(old), key=_order)]
            if not among:
                del self._ordered[kind, owner]

    def get(self, kind: type[R], id: str) -> R | None:
        return self._by_kind[kind].get(id)  # type: ignore[return-value]

    def named(self, kind: type[R], tenant: str, name: str) -> R | None:
        return self._by_name.get((kind, tenant, name))  # type: ignore[return-value]

    def scan(self, kind: type[R], tenant: str | None, parent: str | None) -> list[R]:
        if parent is None:
            return list(self._ordered.get((kind, tenant), ()))  # type: ignore[arg-type]
        among = self._by_parent.get((kind, parent), {})
        records: list[Any] = [
            record for record in among.values() if tenant is None or record.tenant == tenant
        ]
        records.sort(key=_order)
        return records

    def is_new(self, record: AnyRecord) -> bool:
        """It would add to what is stored for good; sessions and notes of progress do not."""
        kind = type(record)
        return kind not in UNNOTED_UPDATES and record.id not in self._by_kind[kind]

    def _check(self, puts: Sequence[AnyRecord], drops: Sequence[AnyRecord]) -> None:
        """Raise Conflict when a name, or the place of a queue's consumer, is taken."""
        changed = {(type(record), record.id) for record in (*drops, *puts)}
        names: set[tuple[type, str, str]] = set()
        parents: set[str] = set()
        for record in puts:
            kind = type(record)
            if record.name:
                name = (kind, record.tenant, record.name)
                holder = self._by_name.get(name)
                if name in names or (holder and (kind, holder.id) not in changed):
                    raise Conflict(RECORD_KINDS[kind], record.name)
                names.add(name)
            if isinstance(record, Consumer):
                others = self._by_parent.get((kind, record.parent), {})
                if record.parent in parents or any((kind, id) not in changed for id in others):
                    raise Conflict("consumer", record.parent)
                parents.add(record.parent)

    def write(
        self,
        puts: Sequence[AnyRecord],
        drops: Sequence[AnyRecord],
        actor: Actor,
        now_ms: int,
    ) -> None:
        self._check(puts, drops)
        new = {put.id: put for put in puts if isinstance(put, Queue)}
        for record in self._known(drops):
            self._db.execute(_DROP, (type(record).__name__, record.id))
            if isinstance(record, Queue):
                line = self._book.lines[record.id]
                self._db.execute(_CLOSE_LINE, (msgspec.json.encode(record), line.no))
                self._book.wake(line, WAKE_ALL)
            elif isinstance(record, Listener):
                self._drop_listener(record)
            self._note("deleted", record, new, actor, now_ms)
        for record in puts:
            known = record.id in self._by_kind[type(record)]
            body = msgspec.json.encode(record)
            self._db.execute(_PUT, (type(record).__name__, record.id, body))
            if isinstance(record, Queue):
                self._write_queue(record, now_ms)
            elif isinstance(record, Listener):
                self._write_listener(record)
            self._note("updated" if known else "created", record, new, actor, now_ms)
        self._book.changed = True

    def _write_queue(self, queue: Queue, now_ms: int) -> None:
        line = self._book.lines.get(queue.id)
        if line is None:
            self._db.execute(_OPEN_LINE, (queue.id, ""))
            return
        if queue.fifo and queue.delay_ms != line.queue.delay_ms:
            self._groups.delay(line, queue.delay_ms, now_ms)
        self._book.wake(line, WAKE_ALL)

    def _write_listener(self, listener: Listener) -> None:
        pushes = self._book.push_lines.live.get(listener.id)
        if pushes is None:
            self._db.execute(_OPEN_LINE, (listener.parent, listener.id))
        else:
            self._book.wake(pushes, WAKE_ALL)

    def _drop_listener(self, listener: Listener) -> None:
        pushes = self._book.push_lines.live.get(listener.id)
        if pushes:  # it went with its queue otherwise
            self._db.execute(_CLOSE_LINE, (msgspec.json.encode(listener), pushes.no))
            self._book.wake(pushes, WAKE_ALL)

    def _known(self, records: Sequence[AnyRecord]) -> list[AnyRecord]:
        """Those of the records that are there, as they are there."""
        found = (self._by_kind[type(record)].get(record.id) for record in records)
        return [record for record in found if record is not None]

    def _note(
        self,
        what: str,
        record: AnyRecord,
        new: Mapping[str, Queue],
        actor: Actor,
        now_ms: int,
    ) -> None:
        """`new` are the queues that are written with it."""
        unnoted = UNNOTED_UPDATES if what == "updated" else UNNOTED
        if isinstance(record, unnoted):
            return
        if isinstance(record, Queue):
            queue: Queue | None = record
        else:
            id = record.queue if isinstance(record, Binding) else record.parent
            queue = new.get(id) or self.get(Queue, id)
        detail = msgspec.to_builtins(record)
        if what == "updated":
            detail["changed"] = _changed(self._by_kind[type(record)][record.id], record)
        for name in SECRET_FIELDS:
            detail.pop(name, None)
        if actor.address:
            detail["address"] = actor.address
        self._book.note(
            f"{RECORD_KINDS[type(record)]}_{what}",
            queue,
            tenant=record.tenant,
            actor=actor,
            now_ms=now_ms,
            columns={"detail": detail},
        )

    def apply(self, puts: Sequence[AnyRecord], drops: Sequence[AnyRecord]) -> None:
        """Make what was written and committed visible."""
        for record in self._known(drops):
            self._forget(record)
            if isinstance(record, Queue):
                line = self._book.lines.pop(record.id)
                self._book.dropped[line.no] = line
                del self._book.queues[record.id]
            elif isinstance(record, Listener):
                del self._book.push_lines.listeners[record.id]
                if record.id in self._book.push_lines.live:
                    self._book.push_lines.drop(self._book.push_lines.live[record.id])
        for record in puts:
            self._keep(record)
            if isinstance(record, Queue) and record.id not in self._book.lines:
                self._open(record)
            elif isinstance(record, Listener) and record.id not in self._book.push_lines.live:
                self._open_pushes(record)

    def _open(self, queue: Queue) -> None:
        no = self._db.execute(_LINE, (queue.id, "")).get
        line = Line(no, queue)
        line.minute = self._book.minute
        self._book.lines[queue.id] = self._book.by_no[no] = line
        # A listener may have been there before its queue.
        for id in self._by_parent.get((Listener, queue.id), ()):
            if id in self._book.push_lines.live:
                self._book.push_lines.attach(self._book.push_lines.live[id], line)

    def _open_pushes(self, listener: Listener) -> None:
        no = self._db.execute(_LINE, (listener.parent, listener.id)).get
        line = self._book.lines.get(listener.parent)
        self._book.push_lines.open(PushLine(no, listener), line)


def _order(record: AnyRecord) -> tuple[int, str, str]:
    """Oldest first, then by name and id."""
    return record.created_ms, record.name, record.id


def _changed(old: AnyRecord, new: AnyRecord) -> list[str]:
    """Names of the fields that differ."""
    names = type(new).__struct_fields__
    return sorted(name for name in names if getattr(old, name) != getattr(new, name))
