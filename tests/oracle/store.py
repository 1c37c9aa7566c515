"""Plain dicts and lists: the reference that every other store is measured against.

Nothing here is clever, on purpose. No verb gives way to another before it is done, which makes
each call the transaction that the protocol asks for; only the process must not be lost.
"""

from collections.abc import Sequence
from copy import deepcopy
from math import ceil

import msgspec

from courier import ids
from courier.core import events
from courier.core.errors import Conflict
from courier.core.journal import RECORD_KINDS, UNIT_BYTES
from courier.core.lifecycle import NAME_HEADER
from courier.core.limits import Allowance
from courier.core.records import Decide, Records, T
from courier.core.types import (
    Ack,
    Actor,
    AnyRecord,
    Consumer,
    Draft,
    Extend,
    Leased,
    Listener,
    Message,
    Origin,
    Outcome,
    Queue,
    QueueStats,
    Receipt,
    Retry,
    Settlement,
    Swept,
    Via,
)
from courier.core.waiters import Waiters
from tests.oracle.backlog import Backlog, Delivery
from tests.oracle.claims import Claims
from tests.oracle.holdings import Holdings, carried
from tests.oracle.journal import Cause, Journal
from tests.oracle.parts import (
    ClaimVerbs,
    Events,
    Health,
    Messages,
    Past,
    Pushes,
    Rates,
    Rows,
    fitting,
    refuse_over,
)
from tests.oracle.sweep import Sweep
from tests.oracle.tallies import Tallies


class Oracle:
    """A Store that lives as long as its process."""

    def __init__(self, waiters: Waiters | None = None) -> None:
        self._secret = ids.new_bytes(32)
        self._epoch = ids.new_id()
        self.records = Records()
        self._tallies = Tallies()
        self.waiters = waiters or Waiters()
        self._journal = Journal(self._tallies)
        self._holdings = Holdings(self._journal, self.waiters)
        self._claims = Claims()
        self.messages = Messages(self)
        self.rows = Rows(self)
        self.claims = ClaimVerbs(self)
        self.pushes = Pushes(self)
        self.journal = Events(self)
        self.past = Past(self)
        self.health = Health(self)
        self.rates = Rates(self)
        self._sweep = Sweep(self._holdings, self._tallies, self.waiters, self._claims)

    @property
    def secret(self) -> bytes:
        return self._secret

    @property
    def doubt_ms(self) -> int:
        return self._holdings.doubt_ms

    @doubt_ms.setter
    def doubt_ms(self, ms: int) -> None:
        self._holdings.doubt_ms = ms

    # --- settings ---

    async def change(self, decide: Decide[T], *, actor: Actor, now_ms: int) -> T:
        change = decide(self.records)
        puts, drops = change.puts, change.drops
        self._refuse_conflicts(puts, drops)
        self._sweep.pass_time(now_ms)
        holdings, by = self._holdings, Cause(actor, now_ms)
        # A queue may come or go in the same call as what hangs on it, in any order.
        names = {id: backlog.queue.name for id, backlog in holdings.backlogs.items()}
        names |= {record.id: record.name for record in puts if isinstance(record, Queue)}

        for record in drops:
            known = self.records.get(type(record), record.id)
            if known is None:
                continue
            self.records.apply(drops=[known])
            if isinstance(known, Queue):
                holdings.drop_queue(known)
            elif isinstance(known, Listener):
                holdings.drop_listener(known)
            self._journal.setting(by, None, known, names)

        for record in deepcopy(list(puts)):
            known = self.records.get(type(record), record.id)
            self.records.apply(puts=[record])
            if isinstance(record, Queue):
                holdings.put_queue(record, now_ms)
            self._journal.setting(by, record, known, names)
        for record in puts:
            if isinstance(record, Listener):
                holdings.put_listener(record)
        for id, backlog in holdings.backlogs.items():
            backlog.consumed = bool(self.records.scan(Consumer, parent=id))
        self._sweep.look(now_ms)
        return change.answer

    def _refuse_conflicts(self, puts: Sequence[AnyRecord], drops: Sequence[AnyRecord]) -> None:
        records = {(type(each), each.id): each for each in self.records.all()}
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
        backlog = self._holdings.backlog(queue)
        self._sweep.pass_time(now_ms)
        return backlog

    async def publish(
        self,
        batches: Sequence[tuple[str, Sequence[Draft]]],
        *,
        actor: Actor,
        now_ms: int,
        bytes_max: int | None = None,
        via: Via | None = None,
    ) -> list[Receipt]:
        by = Cause(actor, now_ms, exchange=via.exchange if via else None)
        receipts = []
        # Every queue must be there, with room, before the first draft is stored.
        entered = [(self._enter(queue, now_ms), drafts) for queue, drafts in batches]
        for backlog, drafts in entered:
            refuse_over(bytes_max, backlog, drafts, now_ms)
        for backlog, drafts in entered:
            self._make_room(bytes_max, backlog, drafts, now_ms)
        copied: list[Draft] = []
        for backlog, drafts in entered:
            answers = [self._publish_once(backlog, draft, by) for draft in drafts]
            copied += [d for d, (_, repeated) in zip(drafts, answers, strict=True) if not repeated]
            receipts.append(
                Receipt(
                    made=[id for id, _ in answers],
                    repeated=[repeated for _, repeated in answers],
                    stats=backlog.stats(now_ms),
                )
            )
        if via:
            self._tally_exchange(via, copied, now_ms)
        self._sweep.look(now_ms)
        return receipts

    def _make_room(
        self, bytes_max: int | None, backlog: Backlog, drafts: Sequence[Draft], now_ms: int
    ) -> None:
        if bytes_max is not None:
            size = sum(draft.size for draft in drafts)
            self._holdings.make_room(backlog, size, bytes_max, now_ms)

    def _tally_exchange(self, via: Via, copied: Sequence[Draft], now_ms: int) -> None:
        size = sum(draft.size for draft in copied)
        counts = {"routed": (via.count, via.bytes), "copied": (len(copied), size)}
        for kind, (count, size) in counts.items():
            if count:
                self._tallies.add(
                    kind, via.tenant, via.exchange, count=count, size=size, now_ms=now_ms
                )

    def _publish_once(self, backlog: Backlog, draft: Draft, by: Cause) -> tuple[str, bool]:
        """The message's id, and whether it was there already."""
        if draft.once_key is None:
            return self._holdings.store(backlog, draft, by), False
        id, end_ms = backlog.once.get(draft.once_key, ("", by.now_ms))
        if by.now_ms < end_ms:
            return id, True
        id = self._holdings.store(backlog, draft, by)
        backlog.once[draft.once_key] = id, by.now_ms + draft.once_ms
        return id, False

    async def lease(
        self,
        queue: str,
        *,
        count: int,
        lease_ms: int,
        actor: Actor,
        now_ms: int,
        leased_max: int | None = None,
        allowance: Allowance | None = None,
    ) -> Leased:
        backlog = self._enter(queue, now_ms)
        backlog.pulled = True
        by = Cause(actor, now_ms)
        if leased_max is not None:
            room = max(0, leased_max - backlog.stats(now_ms).leased)
            backlog.full = backlog.full or count > room
            count = min(count, room)
        chosen = self._hand_out(backlog, count, lease_ms, by, allowance)
        return Leased(
            messages=[delivery.shown() for delivery in chosen],
            until_ms=now_ms + lease_ms,
            stats=backlog.stats(now_ms),
        )

    def _hand_out(
        self,
        backlog: Backlog,
        count: int,
        lease_ms: int,
        by: Cause,
        allowance: Allowance | None = None,
    ) -> list[Delivery]:
        now_ms = by.now_ms
        chosen = fitting(backlog.ready(now_ms)[:count], allowance)
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
        self._sweep.look(now_ms)
        return chosen

    def _tally_units(self, queue: Queue, leased: Sequence[Delivery], now_ms: int) -> None:
        units = sum(max(0, ceil(d.message.size / UNIT_BYTES) - 1) for d in leased)
        if units:
            self._tallies.add("leased_units", queue.tenant, queue.id, count=units, now_ms=now_ms)

    async def settle(
        self, queue: str, items: Sequence[Settlement], *, actor: Actor, now_ms: int
    ) -> list[Outcome]:
        backlog = self._enter(queue, now_ms)
        outcomes = [self._settle(backlog, item, Cause(actor, now_ms)) for item in items]
        self._sweep.look(now_ms)
        return outcomes

    def _settle(self, backlog: Backlog, item: Settlement, by: Cause) -> Outcome:
        delivery = backlog.deliveries.get(item.seq)
        if delivery is None or not 1 <= item.attempt <= delivery.attempts:
            return Outcome.GONE
        current = delivery.leased(by.now_ms) and item.attempt == delivery.attempts
        if isinstance(item, Ack) and (current or item.late):
            self._holdings.end("acked", backlog, delivery, by)
        elif isinstance(item, Retry) and current:
            self._holdings.fail("retried", backlog, delivery, by, by.now_ms, item.delay_ms)
        elif isinstance(item, Extend) and current:
            self._extend(backlog, delivery, item.lease_ms, by)
        return Outcome.DONE if current else Outcome.LATE

    def _extend(self, backlog: Backlog, delivery: Delivery, lease_ms: int, by: Cause) -> None:
        delivery.until_ms = by.now_ms + lease_ms
        self._journal.message(
            "extended",
            by,
            backlog.queue,
            delivery,
            attempt=delivery.attempts,
            lease_ms=lease_ms,
        )

    async def rename(
        self, queue: str, seq: int, name: str, *, actor: Actor, now_ms: int
    ) -> Message | None:
        backlog = self._enter(queue, now_ms)
        for delivery in backlog.all_known():
            if delivery.message.seq == seq:
                headers = (delivery.message.headers or {}) | {NAME_HEADER: name}
                delivery.message = msgspec.structs.replace(delivery.message, headers=headers)
                by = Cause(actor, now_ms)
                self._journal.message(
                    "renamed", by, backlog.queue, delivery, detail=events.renamed(name)
                )
                return delivery.shown()
        return None

    async def remove(
        self,
        queue: str,
        seqs: Sequence[int],
        *,
        actor: Actor,
        now_ms: int,
        leased: bool = True,
        dry_run: bool = False,
    ) -> list[bool]:
        backlog = self._enter(queue, now_ms)
        removed: list[bool] = []
        for place, seq in enumerate(seqs):
            held = backlog.deliveries.get(seq)
            there = held is not None or seq in backlog.kept
            if not leased:
                there = held is not None and not held.leased(now_ms)
            removed.append(there and seq not in seqs[:place])
            if removed[-1] and not dry_run:
                self._end("deleted", backlog, seq, Cause(actor, now_ms))
        self._sweep.look(now_ms)
        return removed

    def _end(self, kind: str, backlog: Backlog, seq: int, by: Cause) -> None:
        """End a message whatever its state, and whether it is held or kept."""
        if seq in backlog.deliveries:
            self._holdings.end(kind, backlog, backlog.deliveries[seq], by)
        else:
            self._holdings.end_kept(kind, backlog, backlog.kept[seq], now_ms=by.now_ms)

    async def purge(
        self, queue: str, *, upto_seq: int, limit: int, actor: Actor, now_ms: int
    ) -> int:
        backlog = self._enter(queue, now_ms)
        seqs = [d.message.seq for d in backlog.all_known() if d.message.seq <= upto_seq][:limit]
        for seq in seqs:
            self._end("purged", backlog, seq, Cause(actor, now_ms))
        self._sweep.look(now_ms)
        return len(seqs)

    async def redrive(
        self, queue: str, *, seqs: Sequence[int], actor: Actor, now_ms: int, dry_run: bool = False
    ) -> list[bool]:
        backlog = self._enter(queue, now_ms)
        by = Cause(actor, now_ms)
        redriven: list[bool] = []
        for i, seq in enumerate(seqs):
            # A dry run leaves the message there, where a second mention would meet it again.
            repeated = seq in seqs[:i]
            redriven.append(not repeated and self._redrive(backlog, seq, by, dry_run=dry_run))
        self._sweep.look(now_ms)
        return redriven

    def _redrive(self, backlog: Backlog, seq: int, by: Cause, *, dry_run: bool) -> bool:
        delivery = backlog.deliveries.get(seq)
        if delivery is None or delivery.leased(by.now_ms):
            return False
        buried = delivery.message.origin
        if buried is None or buried.reason != "attempts":
            return False
        source = self._holdings.backlogs.get(buried.queue)
        if source is None or source.queue.tenant != backlog.queue.tenant:
            return False
        if dry_run:
            return True
        origin = Origin(backlog.queue.id, delivery.message.id, reason="redrive")
        self._holdings.store(source, carried(delivery, origin, delay_ms=0), by)
        self._holdings.end("deleted", backlog, delivery, by)
        return True

    async def stats(self, queues: Sequence[str], *, now_ms: int) -> dict[str, QueueStats]:
        self._sweep.pass_time(now_ms)
        found = self._holdings.backlogs
        return {id: found[id].stats(now_ms) for id in queues if id in found}

    # --- time passing ---

    async def hold(
        self, duties: Sequence[str], *, now_ms: int, evenly: bool = False
    ) -> dict[str, int]:
        return dict.fromkeys(duties, 1)

    async def sweep(self, *, limit: int, now_ms: int) -> Swept:
        return self._sweep.sweep(limit, now_ms)

    async def close(self) -> None:
        """Nothing to let go of."""
