"""The settings of a store, in memory, where everybody reads them.

Reading a record never waits. The promise to all who read: what is returned has been committed, and
it is the same object until that record is changed, so that `is` says whether something which was
worked out from a record still holds.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, TypeVar

from msgspec import Struct

from courier.core.errors import NotFound
from courier.core.journal import RECORD_KINDS
from courier.core.types import AnyRecord

R = TypeVar("R", bound=AnyRecord)
T = TypeVar("T")


class Records:
    """Records by kind and id, by name, by parent, and in order."""

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        # Grows with every change.
        self.version = 0
        self._by_kind: dict[type, dict[str, Any]] = {kind: {} for kind in RECORD_KINDS}
        self._by_name: dict[tuple[type, str, str], Any] = {}
        self._by_parent: dict[tuple[type, str], dict[str, Any]] = {}
        # Of a kind, and of a kind and tenant.
        self._ordered: dict[tuple[type, str | None], list[Any]] = {}

    # --- reading ---

    def get(self, kind: type[R], id: str) -> R | None:
        found: R | None = self._by_kind[kind].get(id)
        return found

    def require(self, kind: type[R], id: str, *, tenant: str | None = None) -> R:
        """Raises NotFound, also where it is another tenant's."""
        found = self.get(kind, id)
        if found is None or tenant not in (None, found.tenant):
            raise NotFound(RECORD_KINDS[kind], id)
        return found

    def named(self, kind: type[R], *, tenant: str, name: str) -> R | None:
        found: R | None = self._by_name.get((kind, tenant, name))
        return found

    def require_named(self, kind: type[R], *, tenant: str, name: str) -> R:
        """Raises NotFound."""
        found = self.named(kind, tenant=tenant, name=name)
        if found is None:
            raise NotFound(RECORD_KINDS[kind], name)
        return found

    def scan(
        self, kind: type[R], *, tenant: str | None = None, parent: str | None = None
    ) -> list[R]:
        """All records of a kind, oldest first, then by name and id.

        The `parent` of a queue is the one that it buries in, "" if there is none; a binding has its
        exchange and its queue.
        """
        if parent is None:
            return list(self._ordered.get((kind, tenant), ()))
        among = self._by_parent.get((kind, parent))
        if among is None:
            return []
        found = [each for each in among.values() if tenant in (None, each.tenant)]
        return sorted(found, key=order) if len(found) > 1 else found

    def count(self, kind: type, *, tenant: str | None = None) -> int:
        """How many `scan` would return."""
        return len(self._ordered.get((kind, tenant), ()))

    def all(self) -> list[AnyRecord]:
        """Every record of every kind."""
        return [record for records in self._by_kind.values() for record in records.values()]

    # --- changing: for stores ---

    def apply(self, *, puts: Iterable[AnyRecord] = (), drops: Iterable[AnyRecord] = ()) -> None:
        """Drop, then put, as one version."""
        self.version += 1
        for record in drops:
            self._forget(type(record), record.id)
        for record in puts:
            self._keep(record)

    def _keep(self, record: AnyRecord) -> None:
        kind = type(record)
        self._forget(kind, record.id)
        self._by_kind[kind][record.id] = record
        if record.name:
            self._by_name[kind, record.tenant, record.name] = record
        for parent in record.scan_parents:
            self._by_parent.setdefault((kind, parent), {})[record.id] = record
        for owner in (None, record.tenant):
            insort(self._ordered.setdefault((kind, owner), []), record, key=order)

    def _forget(self, kind: type, id: str) -> None:
        old = self._by_kind[kind].pop(id, None)
        if old is None:
            return
        named = (kind, old.tenant, old.name)
        # In the same change another record may have taken the name already.
        if self._by_name.get(named) is old:
            del self._by_name[named]
        for parent in old.scan_parents:
            siblings = self._by_parent[kind, parent]
            del siblings[id]
            if not siblings:
                del self._by_parent[kind, parent]
        for owner in (None, old.tenant):
            among = self._ordered[kind, owner]
            del among[bisect_left(among, order(old), key=order)]
            if not among:
                del self._ordered[kind, owner]


class Pending(Records):
    """What a group of changes sees: the records of `base` with its own changes on top.

    Nobody else sees the changes before `commit`. Each of them costs the same however many records
    there are.
    """

    def __init__(self, base: Records) -> None:
        super().__init__()  # itself it holds what the group has put
        self._base = base
        self._hidden = Records()  # those of the base that were replaced or dropped

    def get(self, kind: type[R], id: str) -> R | None:
        found = super().get(kind, id)
        if found is None and self._hidden.get(kind, id) is None:
            found = self._base.get(kind, id)
        return found

    def named(self, kind: type[R], *, tenant: str, name: str) -> R | None:
        found = super().named(kind, tenant=tenant, name=name)
        if found is None:
            found = self._base.named(kind, tenant=tenant, name=name)
            if found is not None and self._hidden.get(kind, found.id) is not None:
                return None
        return found

    def scan(
        self, kind: type[R], *, tenant: str | None = None, parent: str | None = None
    ) -> list[R]:
        found = self._base.scan(kind, tenant=tenant, parent=parent)
        own = super().scan(kind, tenant=tenant, parent=parent)
        hidden = {each.id for each in self._hidden.scan(kind, tenant=tenant, parent=parent)}
        if not own and not hidden:
            return found
        return sorted([*own, *[each for each in found if each.id not in hidden]], key=order)

    def count(self, kind: type, *, tenant: str | None = None) -> int:
        shown = self._base.count(kind, tenant=tenant) - self._hidden.count(kind, tenant=tenant)
        return shown + super().count(kind, tenant=tenant)

    def apply(self, *, puts: Iterable[AnyRecord] = (), drops: Iterable[AnyRecord] = ()) -> None:
        puts, drops = list(puts), list(drops)
        known = [self._base.get(type(record), record.id) for record in (*drops, *puts)]
        self._hidden.apply(puts=[each for each in known if each is not None])
        super().apply(puts=puts, drops=drops)

    def commit(self) -> None:
        """Make the changes of the group visible to all, and begin the next group."""
        if self.version:
            self._base.apply(puts=super().all(), drops=self._hidden.all())
            self.reset()

    def reset(self) -> None:
        """Forget the changes of the group."""
        if self.version:
            self._clear()
            self._hidden = Records()


class Change(Struct, Generic[T], frozen=True):
    """What a decision writes: it drops, then creates or replaces. `answer` is for who asked."""

    puts: Sequence[AnyRecord] = ()
    drops: Sequence[AnyRecord] = ()
    answer: T = None  # type: ignore[assignment]


# Reads records and decides what to write; see `Store.change`.
Decide = Callable[[Records], Change[T]]


def decided(*, puts: Sequence[AnyRecord] = (), drops: Sequence[AnyRecord] = ()) -> Decide[None]:
    """A decision that depends on nothing."""
    return lambda _: Change(puts, drops)


def order(record: AnyRecord) -> tuple[int, str, str]:
    """Oldest first, then by name and id."""
    return record.created_ms, record.name, record.id
