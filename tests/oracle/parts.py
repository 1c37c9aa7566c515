"""The verbs of the oracle by noun."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from courier.core.errors import Conflict, NotFound, OverLimit, RateLimited, RowsChanged
from courier.core.limits import Allowance
from courier.core.matching import Sought, matcher
from courier.core.types import (
    CLAIM_KNOWN_MS,
    DAY_MS,
    MINUTE_MS,
    Actor,
    Draft,
    JournalHead,
    Level,
    Listener,
    Message,
    MessageState,
    Note,
    Numbering,
    Push,
    Pushed,
    PushFailed,
    PushSettlement,
    PushStats,
    Run,
    Standing,
    Tally,
)
from tests.oracle.backlog import Backlog, Delivery
from tests.oracle.journal import Cause
from tests.oracle.pushes import PushLine

if TYPE_CHECKING:
    from tests.oracle.store import Oracle


def fitting(found: list[Delivery], allowance: Allowance | None) -> list[Delivery]:
    if allowance is None:
        return found
    return found[: allowance.fitting([each.message.size for each in found])]


def _shown(found: list[Delivery], *, bodies: bool) -> list[Message]:
    messages = [delivery.shown() for delivery in found]
    if bodies:
        return messages
    return [msgspec.structs.replace(message, body=b"") for message in messages]


def _standing(backlog: Backlog, delivery: Delivery, now_ms: int) -> Standing:
    seq = delivery.message.seq
    if delivery.until_ms is not None:
        return Standing(seq, "leased", delivery.until_ms)
    if backlog.delayed(delivery, now_ms):
        return Standing(seq, "delayed", backlog.due_ms(delivery))
    return Standing(seq, "waiting")


class Part:
    def __init__(self, store: "Oracle") -> None:
        self._store = store


class ClaimVerbs(Part):
    async def take(
        self, queue: str, name: str, *, count: int, lease_ms: int, actor: Actor, now_ms: int
    ) -> int:
        backlog = self._store._enter(queue, now_ms)
        claim = self._store._claims.find(queue, name, now_ms)
        if claim is not None:
            if not claim.acked:
                claim.deliveries(backlog, name, now_ms)
            return len(claim.attempts)
        backlog.pulled = backlog.pulled or count > 0
        leased = self._store._hand_out(backlog, count, lease_ms, Cause(actor, now_ms))
        if leased:
            self._store._claims.made(queue, name, leased, until_ms=now_ms + lease_ms)
        return len(leased)

    async def messages(
        self,
        queue: str,
        name: str,
        *,
        first: int,
        count: int,
        now_ms: int,
        allowance: Allowance | None = None,
    ) -> list[Message]:
        backlog = self._store._enter(queue, now_ms)
        claim = self._store._claims.known(queue, name, now_ms)
        found = claim.deliveries(backlog, name, now_ms)[first : first + count]
        return [delivery.shown() for delivery in fitting(found, allowance)]

    async def extend(
        self, queue: str, name: str, *, lease_ms: int, actor: Actor, now_ms: int
    ) -> None:
        backlog = self._store._enter(queue, now_ms)
        claim = self._store._claims.known(queue, name, now_ms)
        for delivery in claim.deliveries(backlog, name, now_ms):
            self._store._extend(backlog, delivery, lease_ms, Cause(actor, now_ms))
        claim.until_ms = now_ms + lease_ms + DAY_MS
        self._store._sweep.look(now_ms)

    async def ack(
        self, queue: str, name: str, *, actor: Actor, now_ms: int, after: str | None = None
    ) -> None:
        backlog = self._store._enter(queue, now_ms)
        claim = self._store._claims.known(queue, name, now_ms)
        if not claim.acked:
            for delivery in claim.deliveries(backlog, name, now_ms):
                self._store._holdings.end("acked", backlog, delivery, Cause(actor, now_ms))
            claim.acked = True
            claim.until_ms = now_ms + (DAY_MS if after is None else CLAIM_KNOWN_MS)
            self._store._sweep.look(now_ms)
        if after and after != name:
            self._store._claims.forget_acked(queue, after)


class Pushes(Part):
    def _enter_line(self, listener: str, now_ms: int) -> tuple[Backlog, PushLine]:
        """The first step of every verb on a listener."""
        record = self._store.records.get(Listener, listener)
        if record is None:
            raise NotFound("listener", listener)
        backlog = self._store._enter(record.parent, now_ms)
        return backlog, backlog.lines[listener]

    async def take(
        self,
        listener: str,
        *,
        count: int,
        lease_ms: int,
        now_ms: int,
        allowance: Allowance | None = None,
    ) -> list[Message]:
        backlog, line = self._enter_line(listener, now_ms)
        messages = []
        ready = line.ready(now_ms)[:count]
        if allowance is not None:
            sizes = [backlog.known(push.seq).shown().size for push in ready]
            ready = ready[: allowance.fitting(sizes)]
        for push in ready:
            taken = line.take(push, lease_ms=lease_ms, now_ms=now_ms)
            message = backlog.known(push.seq).shown()
            messages.append(msgspec.structs.replace(message, attempts=taken.attempts))
        self._store._sweep.look(now_ms)
        return messages

    async def settle(
        self, listener: str, items: Sequence[PushSettlement], *, now_ms: int
    ) -> list[bool]:
        backlog, line = self._enter_line(listener, now_ms)
        settled = [self._settle_push(backlog, line, item, now_ms) for item in items]
        self._store._sweep.look(now_ms)
        return settled

    def _settle_push(
        self, backlog: Backlog, line: PushLine, item: PushSettlement, now_ms: int
    ) -> bool:
        push = line.in_flight(item.seq, item.attempt)
        if push is None:
            return False
        if isinstance(item, Pushed):
            self._store._holdings.push_arrived(backlog, line, push, item.report, now_ms=now_ms)
        elif isinstance(item, PushFailed):
            self._store._holdings.push_failed(
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

    async def of_message(self, queue: str, seq: int, *, now_ms: int) -> list[Push]:
        lines = self._store._enter(queue, now_ms).live_lines()
        return [line.shown(seq) for line in lines if seq in line.pushes]

    async def stats(self, listeners: Sequence[str], *, now_ms: int) -> dict[str, PushStats]:
        self._store._sweep.pass_time(now_ms)
        stats = {}
        for id in listeners:
            listener = self._store.records.get(Listener, id)
            backlog = self._store._holdings.backlogs.get(listener.parent) if listener else None
            if backlog is not None:
                stats[id] = backlog.lines[id].stats()
        return stats

    async def missed(
        self, listener: str, *, limit: int, now_ms: int, before_seq: int = 0
    ) -> list[str]:
        backlog, line = self._enter_line(listener, now_ms)
        seqs = [seq for seq in line.missed() if not before_seq or seq < before_seq]
        return [backlog.made_id(backlog.known(seq)) for seq in seqs[:limit]]

    async def retry(self, listener: str, seq: int, *, now_ms: int) -> bool:
        _, line = self._enter_line(listener, now_ms)
        retried = line.retry(seq, now_ms=now_ms)
        self._store._sweep.look(now_ms)
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
        self._store._sweep.look(now_ms)
        return len(unbound), seqs[-1] if seqs else 0


class Rows(Part):
    async def publish(
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
        backlog, by = self._store._enter(queue, now_ms), Cause(actor, now_ms)
        if listener is not None and listener not in backlog.lines:
            raise NotFound("listener", listener)
        stored = await self.count(queue, key=key, now_ms=now_ms)
        _, end_ms, mark = backlog.rows[key] if stored else (0, 0, None)
        if first > stored:
            raise Conflict("rows", key)
        if marks and mark and stored - first < len(marks) and marks[stored - first] != mark:
            raise RowsChanged(key, stored)
        new = drafts[stored - first :]
        if new:
            refuse_over(bytes_max, backlog, new, now_ms)
            self._store._make_room(bytes_max, backlog, new, now_ms)
        begun = backlog.tail
        for draft in new:
            self._store._holdings.store(backlog, draft, by, listener=listener)
        if listener is not None:
            for seq in range(begun + 1, backlog.tail + 1):
                self._store._holdings.end("acked", backlog, backlog.deliveries[seq], by)
        if new:
            # A mark is of all drafts of its key, so one that is missing is missing for good.
            mark = marks[-1] if marks is not None and (mark or not stored) else None
        if stored + len(new):
            backlog.rows[key] = stored + len(new), max(end_ms, numbering.until_ms), mark
        self._store._sweep.look(now_ms)
        return len(new)

    async def count(self, queue: str, *, key: str, now_ms: int, below: bool = False) -> int:
        known = self._store._enter(queue, now_ms).rows
        keys = [each for each in known if each.startswith(f"{key}/")] if below else [key]
        found = [known[each] for each in keys if each in known]
        return sum(stored for stored, end_ms, _ in found if now_ms < end_ms)


class Messages(Part):
    async def peek(
        self, queue: str, *, count: int, now_ms: int, allowance: Allowance | None = None
    ) -> list[Message]:
        self._store._enter(queue, now_ms).pulled = True
        return await self.ready(queue, count=count, now_ms=now_ms, allowance=allowance)

    async def ready(
        self,
        queue: str,
        *,
        count: int,
        now_ms: int,
        bodies: bool = True,
        allowance: Allowance | None = None,
    ) -> list[Message]:
        backlog = self._store._enter(queue, now_ms)
        return _shown(fitting(backlog.ready(now_ms)[:count], allowance), bodies=bodies)

    async def browse(
        self,
        queue: str,
        *,
        after_seq: int,
        limit: int,
        now_ms: int,
        kept: bool = False,
        bodies: bool = True,
        allowance: Allowance | None = None,
    ) -> list[Message]:
        backlog = self._store._enter(queue, now_ms)
        known = backlog.all_known() if kept else backlog.deliveries.values()
        found = [d for d in known if d.message.seq > after_seq][:limit]
        return _shown(fitting(found, allowance), bodies=bodies)

    async def states(
        self,
        queue: str,
        *,
        after_seq: int,
        before_seq: int,
        limit: int,
        now_ms: int,
        state: MessageState | None = None,
    ) -> tuple[list[Standing], int]:
        backlog = self._store._enter(queue, now_ms)
        between = [d for seq, d in backlog.deliveries.items() if after_seq < seq < before_seq]
        looked = between[:limit]
        found = [_standing(backlog, each, now_ms) for each in looked]
        last = looked[-1].message.seq if len(looked) == limit else 0
        return [each for each in found if state in (None, each.state)], last

    async def search(
        self,
        queue: str,
        sought: Sought,
        *,
        after_seq: int,
        before_seq: int,
        limit: int,
        now_ms: int,
        newest: bool = False,
    ) -> tuple[list[Message], int]:
        held = [each.shown() for each in self._store._enter(queue, now_ms).deliveries.values()]
        fits = matcher(queue, sought)
        found = [each for each in held if after_seq < each.seq < before_seq and fits(each)]
        found.sort(key=lambda each: each.seq, reverse=newest)
        return found[:limit], found[limit - 1].seq if len(found) > limit else 0

    async def find(self, queue: str, message: str, *, now_ms: int) -> Message | None:
        backlog = self._store._enter(queue, now_ms)
        for delivery in (*backlog.deliveries.values(), *backlog.kept.values()):
            if message in (delivery.message.id, backlog.made_id(delivery)):
                return delivery.shown()
        return None

    async def tail(self, queue: str) -> int:
        return self._store._holdings.backlog(queue).tail


class Past(Part):
    async def tally(self, counts: Mapping[tuple[str, str], int], *, now_ms: int) -> None:
        for (tenant, kind), count in counts.items():
            self._store._tallies.add(kind, tenant, tenant, count=count, now_ms=now_ms)

    async def tallies(
        self, *, tenant: str, id: str | None = None, since_ms: int, until_ms: int
    ) -> list[Tally]:
        return self._store._tallies.read(tenant, id, since_ms=since_ms, until_ms=until_ms)

    async def levels(self, queues: Sequence[str], *, since_ms: int) -> list[list[Level]]:
        found = [self._store._holdings.backlog(queue).levels for queue in queues]
        return [[each for each in one if each.minute >= since_ms // MINUTE_MS] for one in found]


class Events(Part):
    async def note(self, notes: Sequence[Note], *, now_ms: int) -> None:
        self._store._sweep.pass_time(now_ms)
        for each in notes:
            by = Cause(each.actor, now_ms)
            self._store._journal.append(
                each.kind, by, each.tenant, ("", ""), {"detail": each.detail}
            )
        self._store._sweep.look(now_ms)

    async def head(self) -> JournalHead:
        journal = self._store._journal
        return JournalHead(
            first=journal.first,
            last=journal.last,
            epoch=self._store._epoch,
            bytes=sum(len(row) for _, row in journal.rows),
            at_ms=journal.last_ms,
        )

    async def read(self, *, after: int, limit: int, bytes_max: int | None = None) -> list[Run]:
        start = max(0, after + 1 - self._store._journal.first)
        runs, size = [], 0
        for _, row in self._store._journal.rows[start : start + limit]:
            runs.append(msgspec.msgpack.decode(row, type=Run))
            size += len(row)
            if bytes_max is not None and size >= bytes_max:
                break
        return runs

    async def offset_at(self, at_ms: int) -> int:
        return self._store._journal.offset_at(at_ms)

    async def trim(self, *, upto: int, before_ms: int | None = None) -> int:
        return self._store._journal.trim(upto, before_ms)

    async def backlogs(self, *, tenant: str | None = None) -> tuple[int, dict[str, int]]:
        holdings = self._store._holdings
        held = [backlog for backlog in holdings.dropped if backlog.deliveries]
        return self._store._journal.last, {
            backlog.queue.id: len(backlog.deliveries)
            for backlog in (*holdings.backlogs.values(), *held)
            if tenant in (None, backlog.queue.tenant)
        }


class Rates(Part):
    def __init__(self, store: "Oracle") -> None:
        super().__init__(store)
        self._taken: dict[tuple[str, str], list[tuple[int, int]]] = {}

    async def take(self, queue: str, what: str, units: int, *, limit: int, now_ms: int) -> None:
        taken = self._taken.setdefault((queue, what), [])
        left, last_ms = float(limit), 0
        for at_ms, n in taken:
            left = min(limit, left + (at_ms - last_ms) * limit / 1_000) - n
            last_ms = at_ms
        left = min(limit, left + (now_ms - last_ms) * limit / 1_000)
        if left < min(units, limit):
            missing = min(units, limit) - left
            raise RateLimited(what, retry_after_ms=int(missing * 1_000 / limit) + 1)
        taken.append((now_ms, units))


class Health(Part):
    async def check(self) -> None:
        """Memory is always writable."""

    def unseen(self) -> "asyncio.Future[None] | None":
        return None

    def ahead_ns(self) -> int | None:
        return None

    def free_bytes(self) -> int | None:
        return None

    def figures(self) -> dict[str, int]:
        return {}


def refuse_over(
    bytes_max: int | None, backlog: Backlog, drafts: Sequence[Draft], now_ms: int
) -> None:
    """Raises OverLimit when the queue would hold too much with these."""
    size = backlog.stats(now_ms).bytes + sum(draft.size for draft in drafts)
    if bytes_max is not None and size > bytes_max:
        raise OverLimit("queue bytes", limit=bytes_max, actual=size)
