"""The oracle's journal: a list of packed events, each counted as it is written."""

from dataclasses import dataclass
from typing import Any

import msgspec

from courier.core import events
from courier.core.types import Actor, AnyRecord, Queue, Run
from tests.oracle.backlog import Delivery
from tests.oracle.tallies import Tallies


@dataclass(frozen=True)
class Cause:
    """Who makes a change, when, and through which exchange if any: the same for a whole call."""

    actor: Actor
    now_ms: int
    exchange: str | None = None


class Journal:
    """Every event is a packed row of its own, so nobody who reads history can change it."""

    def __init__(self, tallies: Tallies) -> None:
        self.rows: list[tuple[int, bytes]] = []
        self.first = 1
        self.last_ms = 0
        self._tallies = tallies

    @property
    def last(self) -> int:
        return self.first + len(self.rows) - 1

    def append(
        self, kind: str, by: Cause, tenant: str, queue: tuple[str, str], columns: dict[str, Any]
    ) -> None:
        # Callers may have read the clock before the last event was written.
        self.last_ms = max(self.last_ms, by.now_ms)
        run = Run(
            offset=self.last + 1,
            count=1,
            kind=kind,
            at_ms=self.last_ms,
            tenant=tenant,
            queue=queue[0],
            queue_name=queue[1],
            actor=by.actor.id,
            dialect=by.actor.dialect,
            columns={name: value for name, value in columns.items() if value is not None},
        )
        self.rows.append((self.last_ms, msgspec.msgpack.encode(run)))
        counted_under = queue[0] or tenant
        if counted_under:
            size = columns.get("size", 0)
            self._tallies.add(kind, tenant, counted_under, size=size, now_ms=by.now_ms)

    def setting(
        self,
        by: Cause,
        record: AnyRecord | None,
        known: AnyRecord | None,
        queue_names: dict[str, str],
    ) -> None:
        event, about = events.setting(record, known, actor=by.actor), record or known
        if event is None or about is None:
            return
        id = events.queue_of(about)
        queue = (id, queue_names[id]) if id in queue_names else ("", "")
        self.append(event[0], by, about.tenant, queue, {"detail": event[1]})

    def message(
        self, kind: str, by: Cause, queue: Queue, delivery: Delivery, **columns: Any
    ) -> None:
        message = delivery.message
        columns |= {
            "seq": message.seq,
            "own_id": delivery.own_id,
            "published_ms": message.published_ms,
            "size": message.size,
        }
        self.append(kind, by, queue.tenant, (queue.id, queue.name), columns)

    def offset_at(self, at_ms: int) -> int:
        for place, (happened_ms, _) in enumerate(self.rows):
            if happened_ms >= at_ms:
                return self.first + place - 1
        return self.last

    def trim(self, upto: int, before_ms: int | None) -> int:
        forgotten = 0
        for at_ms, _ in self.rows[: max(0, upto + 1 - self.first)]:
            if before_ms is not None and at_ms >= before_ms:
                break
            forgotten += 1
        del self.rows[:forgotten]
        self.first += forgotten
        return forgotten
