"""Plain dicts and lists: the reference that every other store is measured against.

Nothing here is clever, on purpose. No verb gives way to another before it is done, which makes
each call the transaction that the protocol asks for; only the process must not be lost.
"""

import asyncio
from collections.abc import Mapping, Sequence
from copy import deepcopy
from math import ceil

import msgspec

from courier import ids
from courier.core.errors import Conflict, NotFound, OverLimit, RowsChanged
from courier.core.journal import RECORD_KINDS, UNIT_BYTES
from courier.core.lifecycle import NAME_HEADER
from courier.core.store import R
from courier.core.types import (
    CLAIM_KNOWN_MS,
    DAY_MS,
    MINUTE_MS,
    Ack,
    Actor,
    AnyRecord,
    Consumer,
    Draft,
    Extend,
    Head,
    Leased,
    Level,
    Listener,
    Message,
    Note,
    Numbering,
    Origin,
    Outcome,
    Push,
    Pushed,
    PushFailed,
    PushSettlement,
    PushStats,
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
from courier.store.waiting import Waiters
from tests.oracle.backlog import Backlog, Delivery
from tests.oracle.claims import Claims
from tests.oracle.holdings import Holdings, carried
from tests.oracle.journal import Cause, Journal
from tests.oracle.pushes import PushLine
from tests.oracle.sweep import Sweep
from tests.oracle.tallies import Tallies


class Oracle:
    """A Store that lives as long as its process."""

    def __init__(self) -> None:
        self._secret = ids.new_bytes(32)
        self._epoch = ids.new_id()
        self._records: dict[tuple[type, str], AnyRecord] = {}
        self._tallies = Tallies()
        self._waiters = Waiters()
        self._journal = Journal(self._tallies)
        self._holdings = Holdings(self._journal, self._waiters)
        self._claims = Claims()
        self._sweep = Sweep(self._holdings, self._tallies, self._waiters, self._claims)

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
        self._sweep.pass_time(now_ms)
        holdings, by = self._holdings, Cause(actor, now_ms)
        # A queue may come or go in the same call as what hangs on it, in any order.
        names = {id: backlog.queue.name for id, backlog in holdings.backlogs.items()}
        names |= {record.id: record.name for record in puts if isinstance(record, Queue)}

        for record in drops:
            known = self._records.pop((type(record), record.id), None)
            if known is None:
                continue
            if isinstance(known, Queue):
                holdings.drop_queue(known)
            elif isinstance(known, Listener):
                holdings.drop_listener(known)
            self._journal.deleted(by, known, names)

        for record in deepcopy(list(puts)):
            known = self._records.get((type(record), record.id))
            self._records[type(record), record.id] = record
            if isinstance(record, Queue):
                holdings.put_queue(record, now_ms)
            if known is None:
                self._journal.created(by, record, names)
            else:
                self._journal.updated(by, known, record, names)
        for record in puts:
            if isinstance(record, Listener):
                holdings.put_listener(record)
        for id, backlog in holdings.backlogs.items():
            backlog.consumed = bool(await self.scan(Consumer, parent=id))
        self._sweep.look(now_ms)

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
            _refuse_over(bytes_max, backlog, drafts, now_ms)
        for backlog, drafts in entered:
            self._make_room(bytes_max, backlog, drafts, now_ms)
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

    async def publish_rows(
        self,
        queue: str,
        drafts: Sequence[Draft],
        numbering: Numbering,
        *,
        actor: Actor,
        now_ms: int,
        bytes_max: int | None = None,
        listener: str | None = None,
    ) -> int:
        key, first, marks = numbering.key, numbering.first, numbering.marks
        backlog, by = self._enter(queue, now_ms), Cause(actor, now_ms)
        if listener is not None and listener not in backlog.lines:
            raise NotFound("listener", listener)
        stored = await self.rows(queue, key=key, now_ms=now_ms)
        _, end_ms, mark = backlog.rows[key] if stored else (0, 0, None)
        if first > stored:
            raise Conflict("rows", key)
        if marks and mark and stored - first < len(marks) and marks[stored - first] != mark:
            raise RowsChanged(key, stored)
        new = drafts[stored - first :]
        if new:
            _refuse_over(bytes_max, backlog, new, now_ms)
            self._make_room(bytes_max, backlog, new, now_ms)
        begun = backlog.tail
        for draft in new:
            self._holdings.store(backlog, draft, by, listener=listener)
        if listener is not None:
            for seq in range(begun + 1, backlog.tail + 1):
                self._holdings.end("acked", backlog, backlog.deliveries[seq], by)
        if new:
            # A mark is of all drafts of its key, so one that is missing is missing for good.
            mark = marks[-1] if marks is not None and (mark or not stored) else None
        if stored + len(new):
            backlog.rows[key] = stored + len(new), max(end_ms, numbering.until_ms), mark
        self._sweep.look(now_ms)
        return len(new)

    async def rows(self, queue: str, *, key: str, now_ms: int, below: bool = False) -> int:
        known = self._enter(queue, now_ms).rows
        keys = [each for each in known if each.startswith(f"{key}/")] if below else [key]
        found = [known[each] for each in keys if each in known]
        return sum(stored for stored, end_ms, _ in found if now_ms < end_ms)

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
        backlog.pulled = True
        by = Cause(actor, now_ms)
        if leased_max is not None:
            room = max(0, leased_max - backlog.stats(now_ms).leased)
            backlog.full = backlog.full or count > room
            count = min(count, room)
        chosen = self._hand_out(backlog, count, lease_ms, by)
        return Leased(
            messages=[delivery.shown() for delivery in chosen],
            until_ms=now_ms + lease_ms,
            stats=backlog.stats(now_ms),
        )

    def _hand_out(self, backlog: Backlog, count: int, lease_ms: int, by: Cause) -> list[Delivery]:
        now_ms = by.now_ms
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
        self._sweep.look(now_ms)
        return chosen

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

    async def claim(
        self, queue: str, name: str, *, count: int, lease_ms: int, actor: Actor, now_ms: int
    ) -> int:
        backlog = self._enter(queue, now_ms)
        claim = self._claims.find(queue, name, now_ms)
        if claim is not None:
            if not claim.acked:
                claim.deliveries(backlog, name, now_ms)
            return len(claim.attempts)
        backlog.pulled = backlog.pulled or count > 0
        leased = self._hand_out(backlog, count, lease_ms, Cause(actor, now_ms))
        if leased:
            self._claims.made(queue, name, leased, until_ms=now_ms + lease_ms)
        return len(leased)

    async def claimed(
        self,
        queue: str,
        name: str,
        *,
        first: int,
        count: int,
        now_ms: int,
        bytes_max: int | None = None,
    ) -> list[Message]:
        backlog = self._enter(queue, now_ms)
        claim = self._claims.known(queue, name, now_ms)
        messages: list[Message] = []
        size = 0
        for delivery in claim.deliveries(backlog, name, now_ms)[first : first + count]:
            size += delivery.message.size
            if messages and bytes_max is not None and size > bytes_max:
                break
            messages.append(delivery.shown())
        return messages

    async def extend_claim(
        self, queue: str, name: str, *, lease_ms: int, actor: Actor, now_ms: int
    ) -> None:
        backlog = self._enter(queue, now_ms)
        claim = self._claims.known(queue, name, now_ms)
        for delivery in claim.deliveries(backlog, name, now_ms):
            self._extend(backlog, delivery, lease_ms, Cause(actor, now_ms))
        claim.until_ms = now_ms + lease_ms + DAY_MS
        self._sweep.look(now_ms)

    async def ack_claim(
        self, queue: str, name: str, *, actor: Actor, now_ms: int, after: str | None = None
    ) -> None:
        backlog = self._enter(queue, now_ms)
        claim = self._claims.known(queue, name, now_ms)
        if not claim.acked:
            for delivery in claim.deliveries(backlog, name, now_ms):
                self._holdings.end("acked", backlog, delivery, Cause(actor, now_ms))
            claim.acked = True
            claim.until_ms = now_ms + (DAY_MS if after is None else CLAIM_KNOWN_MS)
            self._sweep.look(now_ms)
        if after and after != name:
            self._claims.forget_acked(queue, after)

    async def peek(self, queue: str, *, count: int, now_ms: int) -> list[Message]:
        backlog = self._enter(queue, now_ms)
        backlog.pulled = True
        return [delivery.shown() for delivery in backlog.ready(now_ms)[:count]]

    async def browse(
        self, queue: str, *, after_seq: int, limit: int, now_ms: int, kept: bool = False
    ) -> list[Message]:
        backlog = self._enter(queue, now_ms)
        found = backlog.all_known() if kept else backlog.deliveries.values()
        return [d.shown() for d in found if d.message.seq > after_seq][:limit]

    async def find(self, queue: str, message: str, *, now_ms: int) -> Message | None:
        backlog = self._enter(queue, now_ms)
        for delivery in (*backlog.deliveries.values(), *backlog.kept.values()):
            if message in (delivery.message.id, backlog.made_id(delivery)):
                return delivery.shown()
        return None

    async def rename(
        self, queue: str, seq: int, name: str, *, actor: Actor, now_ms: int
    ) -> Message | None:
        backlog = self._enter(queue, now_ms)
        for delivery in backlog.all_known():
            if delivery.message.seq == seq:
                headers = (delivery.message.headers or {}) | {NAME_HEADER: name}
                delivery.message = msgspec.structs.replace(delivery.message, headers=headers)
                by = Cause(actor, now_ms)
                self._journal.message("renamed", by, backlog.queue, delivery, detail={"name": name})
                return delivery.shown()
        return None

    async def remove(
        self, queue: str, seqs: Sequence[int], *, actor: Actor, now_ms: int
    ) -> list[bool]:
        backlog = self._enter(queue, now_ms)
        removed = [self._end("deleted", backlog, seq, Cause(actor, now_ms)) for seq in seqs]
        self._sweep.look(now_ms)
        return removed

    def _end(self, kind: str, backlog: Backlog, seq: int, by: Cause) -> bool:
        """End a message whatever its state, and whether it is held or kept."""
        if seq in backlog.deliveries:
            self._holdings.end(kind, backlog, backlog.deliveries[seq], by)
        elif seq in backlog.kept:
            self._holdings.end_kept(kind, backlog, backlog.kept[seq], now_ms=by.now_ms)
        else:
            return False
        return True

    async def purge(
        self, queue: str, *, upto_seq: int, limit: int, actor: Actor, now_ms: int
    ) -> int:
        backlog = self._enter(queue, now_ms)
        seqs = [d.message.seq for d in backlog.all_known() if d.message.seq <= upto_seq][:limit]
        for seq in seqs:
            self._end("purged", backlog, seq, Cause(actor, now_ms))
        self._sweep.look(now_ms)
        return len(seqs)

    async def tail(self, queue: str) -> int:
        return self._holdings.backlog(queue).tail

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
        self._holdings.store(source, carried(delivery, delay_ms=0), by, origin)
        self._holdings.end("deleted", backlog, delivery, by)
        return True

    async def stats(self, queues: Sequence[str], *, now_ms: int) -> dict[str, QueueStats]:
        self._sweep.pass_time(now_ms)
        found = self._holdings.backlogs
        return {id: found[id].stats(now_ms) for id in queues if id in found}

    async def backlogs(self, *, tenant: str | None = None) -> tuple[int, dict[str, int]]:
        holdings = self._holdings
        held = [backlog for backlog in holdings.dropped if backlog.deliveries]
        return self._journal.last, {
            backlog.queue.id: len(backlog.deliveries)
            for backlog in (*holdings.backlogs.values(), *held)
            if tenant in (None, backlog.queue.tenant)
        }

    # --- pushes ---

    def _enter_line(self, listener: str, now_ms: int) -> tuple[Backlog, PushLine]:
        """The first step of every verb on a listener."""
        record = self._records.get((Listener, listener))
        if record is None:
            raise NotFound("listener", listener)
        backlog = self._enter(record.parent, now_ms)
        return backlog, backlog.lines[listener]

    async def take_pushes(
        self, listener: str, *, count: int, lease_ms: int, now_ms: int
    ) -> list[Message]:
        backlog, line = self._enter_line(listener, now_ms)
        messages = []
        for push in line.ready(now_ms)[:count]:
            taken = line.take(push, lease_ms=lease_ms, now_ms=now_ms)
            message = backlog.known(push.seq).shown()
            messages.append(msgspec.structs.replace(message, attempts=taken.attempts))
        self._sweep.look(now_ms)
        return messages

    async def settle_pushes(
        self, listener: str, items: Sequence[PushSettlement], *, now_ms: int
    ) -> list[bool]:
        backlog, line = self._enter_line(listener, now_ms)
        settled = [self._settle_push(backlog, line, item, now_ms) for item in items]
        self._sweep.look(now_ms)
        return settled

    def _settle_push(
        self, backlog: Backlog, line: PushLine, item: PushSettlement, now_ms: int
    ) -> bool:
        push = line.in_flight(item.seq, item.attempt)
        if push is None:
            return False
        if isinstance(item, Pushed):
            self._holdings.push_arrived(backlog, line, push, item.report, now_ms=now_ms)
        elif isinstance(item, PushFailed):
            self._holdings.push_failed(
                backlog,
                line,
                push,
                item.report,
                delay_ms=item.delay_ms,
                ended_ms=now_ms,
                now_ms=now_ms,
            )
        else:
            line.returned(push, now_ms=now_ms)
        return True

    async def pushes(self, queue: str, seq: int, *, now_ms: int) -> list[Push]:
        lines = self._enter(queue, now_ms).live_lines()
        return [line.shown(seq) for line in lines if seq in line.pushes]

    async def push_stats(self, listeners: Sequence[str], *, now_ms: int) -> dict[str, PushStats]:
        self._sweep.pass_time(now_ms)
        stats = {}
        for id in listeners:
            listener = self._records.get((Listener, id))
            backlog = self._holdings.backlogs.get(listener.parent) if listener else None
            if backlog is not None:
                stats[id] = backlog.lines[id].stats()
        return stats

    async def missed(self, listener: str, *, limit: int, now_ms: int) -> list[str]:
        backlog, line = self._enter_line(listener, now_ms)
        return [backlog.made_id(backlog.known(seq)) for seq in line.missed()[:limit]]

    async def retry_push(self, listener: str, seq: int, *, now_ms: int) -> bool:
        _, line = self._enter_line(listener, now_ms)
        retried = line.retry(seq, now_ms=now_ms)
        self._sweep.look(now_ms)
        return retried

    async def backfill(
        self,
        listener: str,
        *,
        since_ms: int,
        until_ms: int,
        after_seq: int,
        limit: int,
        now_ms: int,
    ) -> tuple[int, int]:
        backlog, line = self._enter_line(listener, now_ms)
        seqs = [
            delivery.message.seq
            for delivery in backlog.all_known()
            if since_ms <= delivery.message.published_ms < until_ms
            and delivery.message.seq > after_seq
        ][:limit]
        unbound = [seq for seq in seqs if seq not in line.pushes]
        for seq in unbound:
            line.bind(seq, due_ms=now_ms)
        self._sweep.look(now_ms)
        return len(unbound), seqs[-1] if seqs else 0

    # --- numbers of the past ---

    async def tally(self, counts: Mapping[tuple[str, str], int], *, now_ms: int) -> None:
        for (tenant, kind), count in counts.items():
            self._tallies.add(kind, tenant, tenant, count=count, now_ms=now_ms)

    async def tallies(
        self, *, tenant: str, id: str | None = None, since_ms: int, until_ms: int
    ) -> list[Tally]:
        return self._tallies.read(tenant, id, since_ms=since_ms, until_ms=until_ms)

    async def levels(self, queue: str, *, since_ms: int) -> list[Level]:
        levels = self._holdings.backlog(queue).levels
        return [level for level in levels if level.minute >= since_ms // MINUTE_MS]

    # --- time passing ---

    async def sweep(self, *, limit: int, now_ms: int) -> Swept:
        return self._sweep.sweep(limit, now_ms)

    # --- journal ---

    async def note(self, notes: Sequence[Note], *, now_ms: int) -> None:
        self._sweep.pass_time(now_ms)
        for each in notes:
            by = Cause(each.actor, now_ms)
            self._journal.append(each.kind, by, each.tenant, ("", ""), {"detail": each.detail})
        self._sweep.look(now_ms)

    async def head(self) -> Head:
        journal = self._journal
        return Head(
            first=journal.first,
            last=journal.last,
            epoch=self._epoch,
            bytes=sum(len(row) for _, row in journal.rows),
            at_ms=journal.last_ms,
        )

    async def read_journal(
        self, *, after: int, limit: int, bytes_max: int | None = None
    ) -> list[Run]:
        start = max(0, after + 1 - self._journal.first)
        runs, size = [], 0
        for _, row in self._journal.rows[start : start + limit]:
            runs.append(msgspec.msgpack.decode(row, type=Run))
            size += len(row)
            if bytes_max is not None and size >= bytes_max:
                break
        return runs

    async def offset_at(self, at_ms: int) -> int:
        return self._journal.offset_at(at_ms)

    async def trim_journal(self, *, upto: int, before_ms: int | None = None) -> int:
        return self._journal.trim(upto, before_ms)

    async def check(self) -> None:
        """Memory is always writable."""

    def free_bytes(self) -> int | None:
        return None

    def figures(self) -> dict[str, int]:
        return {}

    async def close(self) -> None:
        """Nothing to let go of."""


def _refuse_over(
    bytes_max: int | None, backlog: Backlog, drafts: Sequence[Draft], now_ms: int
) -> None:
    """Raises OverLimit when the queue would hold too much with these."""
    size = backlog.stats(now_ms).bytes + sum(draft.size for draft in drafts)
    if bytes_max is not None and size > bytes_max:
        raise OverLimit("queue bytes", limit=bytes_max, actual=size)
