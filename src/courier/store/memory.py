"""Plain dicts and lists: the reference that every other store is measured against.

Nothing here is clever, on purpose. No verb gives way to another before it is done, which makes
each call the transaction that the protocol asks for; only the process must not be lost.
"""

import asyncio
import sys
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from math import ceil
from typing import Any

import msgspec

from courier import ids
from courier.core.errors import Conflict, NotFound, OverLimit
from courier.core.journal import RECORD_KINDS, SECRET_FIELDS, UNIT_BYTES, UNNOTED_UPDATES
from courier.core.lifecycle import GROUP_DEFAULT, Again, after_failure
from courier.core.store import R
from courier.core.types import (
    BROKER,
    DAY_MS,
    MINUTE_MS,
    Ack,
    Actor,
    AnyRecord,
    Binding,
    Consumer,
    Draft,
    Extend,
    Head,
    Leased,
    Level,
    Message,
    Origin,
    Outcome,
    Queue,
    QueueStats,
    Receipt,
    Retry,
    Run,
    Settlement,
    Swept,
    Tally,
    Via,
)
from courier.store.backlog import Backlog, Delivery
from courier.store.tallies import Tallies
from courier.store.waiting import Waiters

LEVELS_KEPT_MS = 16 * DAY_MS


@dataclass(frozen=True)
class _Cause:
    """Who makes a change, when, and through which exchange if any: the same for a whole call."""

    actor: Actor
    now_ms: int
    exchange: str | None = None


class _Journal:
    """Every event is a packed row of its own, so nobody who reads history can change it."""

    def __init__(self, tallies: Tallies) -> None:
        self.rows: list[tuple[int, bytes]] = []
        self.first = 1
        self._tallies = tallies

    def append(
        self, kind: str, by: _Cause, tenant: str, queue: tuple[str, str], columns: dict[str, Any]
    ) -> None:
        run = Run(
            offset=self.first + len(self.rows),
            count=1,
            kind=kind,
            at_ms=by.now_ms,
            tenant=tenant,
            queue=queue[0],
            queue_name=queue[1],
            actor=by.actor.id,
            dialect=by.actor.dialect,
            columns={name: value for name, value in columns.items() if value is not None},
        )
        self.rows.append((by.now_ms, msgspec.msgpack.encode(run)))
        if queue[0]:
            size = columns.get("size", 0)
            self._tallies.add(kind, tenant, queue[0], size=size, now_ms=by.now_ms)

    def setting(
        self, verb: str, by: _Cause, record: AnyRecord, queue_names: dict[str, str]
    ) -> None:
        id = record.parent
        if isinstance(record, Queue):
            id = record.id
        elif isinstance(record, Binding):
            id = record.queue
        queue = (id, queue_names[id]) if id in queue_names else ("", "")
        detail = msgspec.to_builtins(record)
        for secret in SECRET_FIELDS:
            detail.pop(secret, None)
        kind = f"{RECORD_KINDS[type(record)]}_{verb}"
        self.append(kind, by, record.tenant, queue, {"detail": detail})

    def message(
        self, kind: str, by: _Cause, queue: Queue, delivery: Delivery, **columns: Any
    ) -> None:
        message = delivery.message
        columns |= {
            "seq": message.seq,
            "own_id": delivery.own_id,
            "published_ms": message.published_ms,
            "size": message.size,
        }
        self.append(kind, by, queue.tenant, (queue.id, queue.name), columns)


class MemoryStore:
    """A Store that lives as long as its process."""

    def __init__(self) -> None:
        self._secret = ids.new_bytes(32)
        self._epoch = ids.new_id()
        self._records: dict[tuple[type, str], AnyRecord] = {}
        self._backlogs: dict[str, Backlog] = {}
        self._dropped: list[Backlog] = []
        self._tallies = Tallies()
        self._journal = _Journal(self._tallies)
        self._waiters = Waiters()

    @property
    def secret(self) -> bytes:
        return self._secret

    # --- settings ---

    async def get(self, kind: type[R], id: str) -> R | None:
        record = self._records.get((kind, id))
        return deepcopy(record) if isinstance(record, kind) else None

    async def named(self, kind: type[R], *, tenant: str, name: str) -> R | None:
        for record in await self.scan(kind, tenant=tenant):
            if name and record.name == name:
                return record
        return None

    async def scan(
        self, kind: type[R], *, tenant: str | None = None, parent: str | None = None
    ) -> list[R]:
        found = [
            deepcopy(record)
            for record in self._records.values()
            if isinstance(record, kind)
            and tenant in (None, record.tenant)
            and parent in (None, record.parent)
        ]
        return sorted(found, key=lambda r: (r.created_ms, r.name, r.id))

    async def change(
        self,
        *,
        puts: Sequence[AnyRecord] = (),
        drops: Sequence[AnyRecord] = (),
        actor: Actor,
        now_ms: int,
    ) -> None:
        self._refuse_conflicts(puts, drops)
        self._pass(now_ms)
        by = _Cause(actor, now_ms)
        # A queue may come or go in the same call as what hangs on it, in any order.
        names = {id: backlog.queue.name for id, backlog in self._backlogs.items()}
        names |= {record.id: record.name for record in puts if isinstance(record, Queue)}

        for record in drops:
            known = self._records.pop((type(record), record.id), None)
            if known is None:
                continue
            if isinstance(known, Queue):
                self._dropped.append(self._backlogs.pop(known.id))
                self._waiters.wake(known.id, sys.maxsize)
            self._journal.setting("deleted", by, known, names)

        for record in deepcopy(list(puts)):
            known = self._records.get((type(record), record.id))
            self._records[type(record), record.id] = record
            if isinstance(record, Queue):
                new = Backlog(record, now_ms // MINUTE_MS)
                self._backlogs.setdefault(record.id, new).queue = record
                self._waiters.wake(record.id, sys.maxsize)
            if known is None:
                self._journal.setting("created", by, record, names)
            elif not isinstance(record, UNNOTED_UPDATES):
                self._journal.setting("updated", by, record, names)
        self._look(now_ms)

    def _refuse_conflicts(self, puts: Sequence[AnyRecord], drops: Sequence[AnyRecord]) -> None:
        records = dict(self._records)
        for record in drops:
            records.pop((type(record), record.id), None)
        for record in puts:
            word = RECORD_KINDS[type(record)]
            for other in records.values():
                if type(other) is not type(record) or other.id == record.id:
                    continue
                if record.name and (other.tenant, other.name) == (record.tenant, record.name):
                    raise Conflict(word, record.name)
                if isinstance(record, Consumer) and other.parent == record.parent:
                    raise Conflict(word, record.parent)
            records[type(record), record.id] = record

    # --- messages ---

    def _enter(self, queue: str, now_ms: int) -> Backlog:
        """The first step of every verb on a queue: it must exist, and time passes."""
        backlog = self._backlog(queue)
        self._pass(now_ms)
        return backlog

    def _backlog(self, queue: str) -> Backlog:
        if queue not in self._backlogs:
            raise NotFound("queue", queue)
        return self._backlogs[queue]

    async def publish(
        self,
        batches: Sequence[tuple[str, Sequence[Draft]]],
        *,
        actor: Actor,
        now_ms: int,
        bytes_max: int | None = None,
        via: Via | None = None,
    ) -> list[Receipt]:
        by = _Cause(actor, now_ms, exchange=via.exchange if via else None)
        receipts = []
        # Every queue must be there, with room, before the first draft is stored.
        entered = [(self._enter(queue, now_ms), drafts) for queue, drafts in batches]
        for backlog, drafts in entered:
            size = backlog.stats(now_ms).bytes + sum(draft.size for draft in drafts)
            if bytes_max is not None and size > bytes_max:
                raise OverLimit("queue bytes", limit=bytes_max, actual=size)
        copied: list[Draft] = []
        for backlog, drafts in entered:
            answers = [self._publish_once(backlog, draft, by) for draft in drafts]
            copied += [d for d, (_, repeated) in zip(drafts, answers, strict=True) if not repeated]
            receipts.append(
                Receipt(
                    ids=[id for id, _ in answers],
                    repeated=[repeated for _, repeated in answers],
                    stats=backlog.stats(now_ms),
                )
            )
        if via:
            self._tally_exchange(via, copied, now_ms)
        self._look(now_ms)
        return receipts

    def _tally_exchange(self, via: Via, copied: Sequence[Draft], now_ms: int) -> None:
        size = sum(draft.size for draft in copied)
        counts = {"routed": (via.count, via.bytes), "copied": (len(copied), size)}
        for kind, (count, size) in counts.items():
            if count:
                self._tallies.add(
                    kind, via.tenant, via.exchange, count=count, size=size, now_ms=now_ms
                )

    def _publish_once(self, backlog: Backlog, draft: Draft, by: _Cause) -> tuple[str, bool]:
        """The message's id, and whether it was there already."""
        if draft.once_key is None:
            return self._store(backlog, draft, by), False
        id, end_ms = backlog.once.get(draft.once_key, ("", by.now_ms))
        if by.now_ms < end_ms:
            return id, True
        id = self._store(backlog, draft, by)
        backlog.once[draft.once_key] = id, by.now_ms + draft.once_ms
        return id, False

    def _store(
        self, backlog: Backlog, draft: Draft, by: _Cause, origin: Origin | None = None
    ) -> str:
        queue, now_ms = backlog.queue, by.now_ms
        backlog.tail += 1
        seq = backlog.tail
        delay_ms = queue.delay_ms if draft.delay_ms is None else draft.delay_ms
        follows_queue = queue.fifo and draft.delay_ms is None
        message = Message(
            seq=seq,
            id=draft.id or ids.message_id(published_ms=now_ms, seq=seq, queue=queue.id),
            published_ms=now_ms,
            body=draft.body,
            content_type=draft.content_type,
            headers=deepcopy(draft.headers),
            group=(draft.group or GROUP_DEFAULT) if queue.fifo else draft.group,
            expires_ms=None if draft.ttl_ms is None else now_ms + draft.ttl_ms,
            origin=origin,
            delay_ms=draft.delay_ms if queue.fifo else (delay_ms or None),
            sealed=draft.sealed,
        )
        due_ms = None if follows_queue else now_ms + delay_ms
        delivery = Delivery(message, draft.id, due_ms, returning=delay_ms > 0)
        backlog.deliveries[seq] = delivery
        detail = {"exchange": by.exchange} if by.exchange else None
        self._journal.message(
            "published",
            by,
            queue,
            delivery,
            content_type=message.content_type,
            headers=message.headers,
            group=message.group,
            body=message.body,
            sealed=message.sealed,
            delay_ms=delay_ms or None,
            detail=msgspec.to_builtins(origin) if origin else detail,
        )
        return message.id

    async def lease(
        self,
        queue: str,
        *,
        count: int,
        lease_ms: int,
        actor: Actor,
        now_ms: int,
        leased_max: int | None = None,
    ) -> Leased:
        backlog = self._enter(queue, now_ms)
        by = _Cause(actor, now_ms)
        if leased_max is not None:
            room = max(0, leased_max - backlog.stats(now_ms).leased)
            backlog.full = backlog.full or count > room
            count = min(count, room)
        chosen = backlog.ready(now_ms)[:count]
        for delivery in chosen:
            delivery.attempts += 1
            delivery.until_ms = now_ms + lease_ms
            delivery.returning = True
            delivery.last_leased_ms = now_ms
            if delivery.attempts == 1:
                delivery.first_leased_ms = now_ms
            self._journal.message(
                "leased", by, backlog.queue, delivery, attempt=delivery.attempts, lease_ms=lease_ms
            )
        self._tally_units(backlog.queue, chosen, now_ms)
        self._look(now_ms)
        return Leased(
            messages=[delivery.shown() for delivery in chosen],
            until_ms=now_ms + lease_ms,
            stats=backlog.stats(now_ms),
        )

    def _tally_units(self, queue: Queue, leased: Sequence[Delivery], now_ms: int) -> None:
        units = sum(max(0, ceil(d.message.size / UNIT_BYTES) - 1) for d in leased)
        if units:
            self._tallies.add("leased_units", queue.tenant, queue.id, count=units, now_ms=now_ms)

    def wait(self, queue: str) -> "asyncio.Future[bool]":
        return self._waiters.wait(queue)

    def wake(self, queue: str) -> None:
        self._waiters.wake(queue, 1)

    async def settle(
        self, queue: str, items: Sequence[Settlement], *, actor: Actor, now_ms: int
    ) -> list[Outcome]:
        backlog = self._enter(queue, now_ms)
        outcomes = [self._settle(backlog, item, _Cause(actor, now_ms)) for item in items]
        self._look(now_ms)
        return outcomes

    def _settle(self, backlog: Backlog, item: Settlement, by: _Cause) -> Outcome:
        delivery = backlog.deliveries.get(item.seq)
        if delivery is None or not 1 <= item.attempt <= delivery.attempts:
            return Outcome.GONE
        current = delivery.leased(by.now_ms) and item.attempt == delivery.attempts
        if isinstance(item, Ack) and (current or item.late):
            self._end("acked", backlog, delivery, by)
        elif isinstance(item, Retry) and current:
            self._fail("retried", backlog, delivery, by, by.now_ms, item.delay_ms)
        elif isinstance(item, Extend) and current:
            delivery.until_ms = by.now_ms + item.lease_ms
            self._journal.message(
                "extended",
                by,
                backlog.queue,
                delivery,
                attempt=item.attempt,
                lease_ms=item.lease_ms,
            )
        return Outcome.DONE if current else Outcome.LATE

    def _fail(
        self,
        kind: str,
        backlog: Backlog,
        delivery: Delivery,
        by: _Cause,
        ended_ms: int,
        delay_ms: int | None = None,
    ) -> None:
        """The attempt ended at `ended_ms` without an ack: hand it out again, or bury it."""
        queue, message, attempt = backlog.queue, delivery.message, delivery.attempts
        step = after_failure(queue, attempt=attempt, delay_ms=delay_ms, ended_ms=ended_ms)
        if isinstance(step, Again):
            delivery.until_ms = None
            delivery.due_ms = step.due_ms
            delay_ms = step.due_ms - ended_ms
            self._journal.message(kind, by, queue, delivery, attempt=attempt, delay_ms=delay_ms)
            return
        self._journal.message(kind, by, queue, delivery, attempt=attempt)
        into = self._backlogs.get(step.into or "")
        self._end("buried", backlog, delivery, by, detail={"into": into and into.queue.id})
        if into is not None:
            origin = Origin(queue.id, message.id, attempts=attempt, reason="attempts")
            copier = _Cause(BROKER, by.now_ms)
            copy = _draft(delivery, delay_ms=None if into.queue.fifo else 0)
            self._store(into, copy, copier, origin)

    def _end(
        self, kind: str, backlog: Backlog, delivery: Delivery, by: _Cause, **columns: Any
    ) -> None:
        """Take the message off its queue, and tell its whole life."""
        del backlog.deliveries[delivery.message.seq]
        self._journal.message(
            kind,
            by,
            backlog.queue,
            delivery,
            attempt=delivery.attempts,
            first_leased_ms=delivery.first_leased_ms,
            last_leased_ms=delivery.last_leased_ms,
            **columns,
        )

    async def peek(self, queue: str, *, count: int, now_ms: int) -> list[Message]:
        backlog = self._enter(queue, now_ms)
        return [delivery.shown() for delivery in backlog.ready(now_ms)[:count]]

    async def browse(self, queue: str, *, after_seq: int, limit: int, now_ms: int) -> list[Message]:
        found = self._enter(queue, now_ms).deliveries
        return [found[seq].shown() for seq in sorted(found) if seq > after_seq][:limit]

    async def find(self, queue: str, message: str, *, now_ms: int) -> Message | None:
        for delivery in self._enter(queue, now_ms).deliveries.values():
            if delivery.message.id == message:
                return delivery.shown()
        return None

    async def remove(
        self, queue: str, seqs: Sequence[int], *, actor: Actor, now_ms: int
    ) -> list[bool]:
        backlog = self._enter(queue, now_ms)
        removed = []
        for seq in seqs:
            delivery = backlog.deliveries.get(seq)
            if delivery is not None:
                self._end("deleted", backlog, delivery, _Cause(actor, now_ms))
            removed.append(delivery is not None)
        self._look(now_ms)
        return removed

    async def purge(
        self, queue: str, *, upto_seq: int, limit: int, actor: Actor, now_ms: int
    ) -> int:
        backlog = self._enter(queue, now_ms)
        chosen = [d for seq, d in backlog.deliveries.items() if seq <= upto_seq][:limit]
        for delivery in chosen:
            self._end("purged", backlog, delivery, _Cause(actor, now_ms))
        self._look(now_ms)
        return len(chosen)

    async def tail(self, queue: str) -> int:
        return self._backlog(queue).tail

    async def redrive(
        self, queue: str, *, seqs: Sequence[int], actor: Actor, now_ms: int, dry_run: bool = False
    ) -> list[bool]:
        backlog = self._enter(queue, now_ms)
        by = _Cause(actor, now_ms)
        redriven: list[bool] = []
        for i, seq in enumerate(seqs):
            # A dry run leaves the message there, where a second mention would meet it again.
            repeated = seq in seqs[:i]
            redriven.append(not repeated and self._redrive(backlog, seq, by, dry_run=dry_run))
        self._look(now_ms)
        return redriven

    def _redrive(self, backlog: Backlog, seq: int, by: _Cause, *, dry_run: bool) -> bool:
        delivery = backlog.deliveries.get(seq)
        if delivery is None or delivery.leased(by.now_ms):
            return False
        buried = delivery.message.origin
        if buried is None or buried.reason != "attempts":
            return False
        source = self._backlogs.get(buried.queue)
        if source is None or source.queue.tenant != backlog.queue.tenant:
            return False
        if dry_run:
            return True
        origin = Origin(backlog.queue.id, delivery.message.id, reason="redrive")
        self._store(source, _draft(delivery, delay_ms=0), by, origin)
        self._end("deleted", backlog, delivery, by)
        return True

    async def stats(self, queue: str, *, now_ms: int) -> QueueStats:
        return self._enter(queue, now_ms).stats(now_ms)

    # --- numbers of the past ---

    async def tally(self, counts: Mapping[tuple[str, str], int], *, now_ms: int) -> None:
        for (tenant, kind), count in counts.items():
            self._tallies.add(kind, tenant, tenant, count=count, now_ms=now_ms)

    async def tallies(
        self, *, tenant: str, id: str | None = None, since_ms: int, until_ms: int
    ) -> list[Tally]:
        return self._tallies.read(tenant, id, since_ms=since_ms, until_ms=until_ms)

    async def levels(self, queue: str, *, since_ms: int) -> list[Level]:
        levels = self._backlog(queue).levels
        return [level for level in levels if level.minute >= since_ms // MINUTE_MS]

    # --- time passing ---

    def _due(self, now_ms: int) -> list[tuple[Backlog, Delivery]]:
        """Deliveries that time takes something from, in the order in which it is due."""
        due = [
            (backlog.ends(delivery)[0], backlog, delivery)
            for backlog in self._backlogs.values()
            for delivery in backlog.deliveries.values()
        ]
        due = [item for item in due if item[0] <= now_ms]
        return [(backlog, delivery) for _, backlog, delivery in sorted(due, key=lambda i: i[0])]

    def _happen(self, backlog: Backlog, delivery: Delivery, now_ms: int) -> str:
        """End what is due, the message or its lease, and say what became of it."""
        by = _Cause(BROKER, now_ms)
        ended_ms, whole = backlog.ends(delivery)
        if whole:
            self._end("expired", backlog, delivery, by)
            return "expired"
        self._fail("lease_expired", backlog, delivery, by, ended_ms)
        return "returned" if delivery.message.seq in backlog.deliveries else "buried"

    def _pass(self, now_ms: int) -> None:
        """Make everything happen that is due. A lease's end can be followed by an expiry."""
        while due := self._due(now_ms):
            for backlog, delivery in due:
                self._happen(backlog, delivery, now_ms)
        self._look(now_ms)

    def _look(self, now_ms: int) -> None:
        """After every change: keep levels, and tell those who wait what has become ready."""
        for id, backlog in self._backlogs.items():
            leased_before = backlog.counters[1]
            backlog.keep_level(now_ms)
            if backlog.full and backlog.counters[1] < leased_before:
                backlog.full = False
                self._waiters.wake(id, sys.maxsize)
            ready = {delivery.message.seq for delivery in backlog.ready(now_ms)}
            self._waiters.wake(id, len(ready - backlog.told))
            backlog.told = ready

    async def sweep(self, *, limit: int, now_ms: int) -> Swept:
        counts = {"expired": 0, "returned": 0, "buried": 0, "dropped": 0}
        while due := self._due(now_ms)[: limit - sum(counts.values())]:
            for backlog, delivery in due:
                counts[self._happen(backlog, delivery, now_ms)] += 1
        for backlog in self._dropped:
            for delivery in list(backlog.deliveries.values())[: limit - sum(counts.values())]:
                self._end("deleted", backlog, delivery, _Cause(BROKER, now_ms))
                counts["dropped"] += 1
        self._dropped = [backlog for backlog in self._dropped if backlog.deliveries]
        self._look(now_ms)
        self._forget(now_ms)
        return Swept(
            **counts,
            next_ms=min(self._next(now_ms), default=None),
            more=bool(self._due(now_ms) or self._dropped),
        )

    def _forget(self, now_ms: int) -> None:
        """Keys and numbers that nobody will ask for any more."""
        oldest_level = (now_ms - LEVELS_KEPT_MS) // MINUTE_MS
        for backlog in self._backlogs.values():
            backlog.once = {k: once for k, once in backlog.once.items() if now_ms < once[1]}
            backlog.levels = [level for level in backlog.levels if level.minute >= oldest_level]
        self._tallies.age(now_ms)

    def _next(self, now_ms: int) -> Iterator[int]:
        """Every time at which something ends, be it a lease, a delay or a message."""
        for backlog in self._backlogs.values():
            for delivery in backlog.deliveries.values():
                yield backlog.ends(delivery)[0]
                if backlog.delayed(delivery, now_ms):
                    yield backlog.due_ms(delivery)

    # --- journal ---

    async def head(self) -> Head:
        journal = self._journal
        return Head(
            first=journal.first,
            last=journal.first + len(journal.rows) - 1,
            epoch=self._epoch,
            bytes=sum(len(row) for _, row in journal.rows),
        )

    async def read_journal(self, *, after: int, limit: int) -> list[Run]:
        start = max(0, after + 1 - self._journal.first)
        rows = self._journal.rows[start : start + limit]
        return [msgspec.msgpack.decode(row, type=Run) for _, row in rows]

    async def trim_journal(self, *, upto: int, before_ms: int | None = None) -> int:
        journal = self._journal
        forgotten = 0
        for at_ms, _ in journal.rows[: max(0, upto + 1 - journal.first)]:
            if before_ms is not None and at_ms >= before_ms:
                break
            forgotten += 1
        del journal.rows[:forgotten]
        journal.first += forgotten
        return forgotten

    async def check(self) -> None:
        """Memory is always writable."""

    def figures(self) -> dict[str, int]:
        return {}

    async def close(self) -> None:
        """Nothing to let go of."""


def _draft(delivery: Delivery, *, delay_ms: int | None) -> Draft:
    """What carries a message over to another queue."""
    message = delivery.message
    return Draft(
        body=message.body,
        content_type=message.content_type,
        headers=message.headers,
        id=delivery.own_id,
        delay_ms=delay_ms,
        group=message.group,
        sealed=message.sealed,
    )
