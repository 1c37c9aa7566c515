"""Handing messages out to listeners, what comes of it, and how far they have come."""

from collections.abc import Sequence
from itertools import groupby
from typing import Any, NamedTuple

import msgspec

from courier import ids
from courier.core import events
from courier.core.limits import Allowance
from courier.core.types import (
    BROKER,
    Actor,
    Message,
    Push,
    Pushed,
    PushFailed,
    PushSettlement,
    PushStats,
    PushStatus,
    Report,
)
from courier.store.engine.blocks import NOT_RARE
from courier.store.engine.calls import GroupRunner, Verbs, on_listener, on_queue, takes_space
from courier.store.engine.deliveries import Deliveries, Fresh, alive, let_in
from courier.store.engine.disk import Missed, Open, Ready
from courier.store.engine.endings import Endings
from courier.store.engine.journal import EventColumns
from courier.store.engine.layout import (
    ACKNOWLEDGED,
    DELAYED,
    EXHAUSTED,
    FRESH,
    LEASED,
    READY,
    SPAN,
)
from courier.store.engine.lines import Delivery, PushLine, QueueLine
from courier.store.engine.messages import StoredMessages
from courier.store.engine.publishing import Publishing, dead_letter

# A backfill may pass over this many messages of other times before it answers; fewer of a queue
# with many listeners.
LOOKED_AT_MAX = 5_000
# What is noted of a push whose lease ended.
SILENCE = Report(error="no outcome was noted")

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[int, str, int, bytes]).decode


class FailedPush(NamedTuple):
    """An attempt that ended at `ended_ms`, to be followed by another unless `delay_ms` is None."""

    delivery: Delivery
    report: Report
    ended_ms: int
    delay_ms: int | None


class Pushes(Verbs):
    """`PushVerbs`, and how pushes end by themselves."""

    def __init__(
        self,
        calls: GroupRunner,
        deliveries: Deliveries,
        messages: StoredMessages,
        publishing: Publishing,
        endings: Endings,
    ) -> None:
        super().__init__(calls)
        self._deliveries = deliveries
        self._messages = messages
        self._publishing = publishing
        self._endings = endings

    # --- handing out ---

    @on_listener
    async def take(
        self,
        line: QueueLine,
        pushes: PushLine,
        *,
        count: int,
        lease_ms: int,
        now_ms: int,
        allowance: Allowance | None = None,
    ) -> list[Message]:
        if not count or not pushes.open:
            return []
        rows, fresh = await self._ready(pushes, count, now_ms, allowance)
        if not rows and not fresh.spans:
            return []
        until_ms = now_ms + lease_ms
        self._deliveries.hand_out(pushes, rows, fresh, until_ms=until_ms, now_ms=now_ms)
        messages = await self._messages.handed_out(line, rows, fresh.spans)
        return sorted(messages, key=lambda message: message.seq)

    async def _ready(
        self, pushes: PushLine, count: int, now_ms: int, allowance: Allowance | None
    ) -> tuple[list[Delivery], Fresh]:
        """What may be handed out: rows and fresh messages, the lowest sequences of both.

        An allowance lets in the rows first: what they end at, fresh messages do not pass.
        """
        behind_ms = now_ms if self._book.behind(now_ms) else None
        if pushes.listener.ordered:
            first = await self.first_open(pushes)
            rows = [first] if first is not None and first.state == READY else []
            count = 1 if first is not None and first.state == FRESH else 0
        else:
            rows = await self._deliveries.rows(pushes, Ready(), count) if pushes.again else []
        if behind_ms is not None:
            rows = alive(rows, now_ms)
        if rows and count and pushes.fresh:
            # Only those that come before the last fresh message are surely wanted.
            fresh = await self._deliveries.fresh(pushes, count, now_ms=behind_ms)
            seqs = [row.seq for row in rows]
            for span in fresh.spans:
                seqs += range(span.first, span.first + span.length)
            last = sorted(seqs)[:count][-1]
            rows = [row for row in rows if row.seq <= last]
        if rows:
            rows = let_in(rows, allowance)
        left = count - len(rows)
        if left <= 0 or not pushes.fresh or (allowance is not None and allowance.cut):
            return rows, Fresh([], 0, [])
        return rows, await self._deliveries.fresh(
            pushes, left, now_ms=behind_ms, bodies=True, allowance=allowance
        )

    async def first_open(self, pushes: PushLine) -> Delivery | None:
        """The first that is neither acknowledged nor exhausted."""
        found: list[Delivery] = []
        if pushes.ranges:
            found += (await self._deliveries.of_range(pushes, pushes.ranges[0]))[:1]
        found += await self._deliveries.rows(pushes, Open(), 1)
        fresh = await self._deliveries.fresh(pushes, 1)
        for span in fresh.spans:
            found += (await self._deliveries.standing_at(pushes, [span.first])).values()
        return min(found, key=lambda each: each.key, default=None)

    async def wake_ordered(self) -> None:
        """Wake ordered listeners on whose lines something happened, and which have one to take."""
        ordered, self._book.ordered = self._book.ordered, {}
        for pushes in ordered.values():
            there = self._book.by_no.get(pushes.no) is pushes
            if there and pushes.line is not None and not pushes.dropped:
                first = await self.first_open(pushes)
                if first is not None and first.state in (READY, FRESH):
                    self._book.wake(pushes, 1)

    # --- what comes of it ---

    @on_listener
    async def settle(
        self, line: QueueLine, pushes: PushLine, items: Sequence[PushSettlement], *, now_ms: int
    ) -> list[bool]:
        seqs = {item.seq for item in items if 0 < item.seq <= line.tail}
        found = await self._deliveries.standing_at(pushes, seqs)
        settled: list[tuple[PushSettlement, Delivery]] = []
        done: list[bool] = []
        for item in items:
            row = found.get(item.seq)
            if row is None or not row.is_held(item.attempt, now_ms):
                done.append(False)
                continue
            done.append(True)
            settled.append((item, row))
            del found[item.seq]
        for kind, pairs in groupby(settled, key=lambda pair: type(pair[0])):
            await self._settle(line, pushes, kind, list(pairs), now_ms)
        if settled and pushes.listener.ordered:
            self._book.wake_pushes(pushes, 1)
        return done

    async def _settle(
        self,
        line: QueueLine,
        pushes: PushLine,
        kind: type[PushSettlement],
        pairs: Sequence[tuple[PushSettlement, Delivery]],
        now_ms: int,
    ) -> None:
        if kind is Pushed:
            arrivals = [(row, item.report) for item, row in pairs if isinstance(item, Pushed)]
            self._arrived(line, pushes, arrivals, now_ms)
            seqs = [row.seq for row, _ in arrivals]
            await self._endings.after_pushes(line, seqs, now_ms, arrived=True)
        elif kind is PushFailed:
            failures = [
                FailedPush(row, item.report, now_ms, item.delay_ms)
                for item, row in pairs
                if isinstance(item, PushFailed)
            ]
            await self.failed(line, pushes, failures, now_ms)
        else:
            for _, row in pairs:
                row.attempt -= 1
                if not row.attempt:
                    row.first_ms = row.last_ms = None
                self._deliveries.put(pushes, row, READY, now_ms)
            self._book.wake_pushes(pushes, len(pairs))

    def _arrived(
        self,
        line: QueueLine,
        pushes: PushLine,
        arrivals: Sequence[tuple[Delivery, Report]],
        now_ms: int,
    ) -> None:
        rows = [row for row, _ in arrivals]
        for row, report in arrivals:
            pushes.missed -= row.report is not None
            row.report = _packed(report)
            self._deliveries.put(pushes, row, ACKNOWLEDGED, 0)
        pushes.acknowledged += len(rows)
        pushes.last_success_ms = now_ms
        detail = [events.push(pushes.id, report, failed=False) for _, report in arrivals]
        self._note("pushed", line, pushes, rows, now_ms, detail=detail)

    async def failed(
        self, line: QueueLine, pushes: PushLine, failures: Sequence[FailedPush], now_ms: int
    ) -> None:
        ready = 0
        for row, report, ended_ms, delay_ms in failures:
            pushes.missed += row.report is None
            row.report = _packed(report)
            due_ms = ended_ms + (delay_ms or 0)
            if delay_ms is None:
                self._deliveries.put(pushes, row, EXHAUSTED, due_ms)
            elif due_ms <= now_ms:
                self._deliveries.put(pushes, row, READY, due_ms)
                ready += 1
            else:
                self._deliveries.put(pushes, row, DELAYED, due_ms)
        pushes.last_failure_ms = now_ms
        if ready:
            self._book.wake_pushes(pushes, ready)
        rows = [failure.delivery for failure in failures]
        detail = [events.push(pushes.id, failure.report, failed=True) for failure in failures]
        delays = [failure.delay_ms for failure in failures]
        self._note("push_failed", line, pushes, rows, now_ms, delay_ms=delays, detail=detail)
        for failure in failures:
            if failure.delay_ms is None:
                await self._copy_to_dead_letters(line, failure.delivery, now_ms)
                self._endings.exhausted(line, pushes, failure.delivery)
        await self._endings.after_pushes(line, [f.delivery.seq for f in failures], now_ms)

    async def _copy_to_dead_letters(self, line: QueueLine, row: Delivery, now_ms: int) -> None:
        target = self._book.lines.get(line.queue.dead_letter or "")
        if target is None:
            return
        [message] = await self._messages.of(line, [row])
        draft = dead_letter(message, row, "push", source=line, target=target)
        await self._publishing.insert(target, [draft], BROKER, now_ms)

    def _note(
        self,
        kind: str,
        line: QueueLine,
        pushes: PushLine,
        rows: Sequence[Delivery],
        now_ms: int,
        **extra: Any,
    ) -> None:
        actor = Actor(pushes.id, "push")
        self._book.note_messages(
            kind, line.queue, EventColumns(rows), actor=actor, now_ms=now_ms, **extra
        )

    @on_listener
    async def retry(self, line: QueueLine, pushes: PushLine, seq: int, *, now_ms: int) -> bool:
        found = await self._deliveries.rows_at(pushes, [seq]) if 0 < seq <= line.tail else {}
        row = found.get(seq)
        if row is None or row.report is None or row.state < 0 or row.state == LEASED:
            return False
        waited = row.state != READY
        self._deliveries.put(pushes, row, READY, now_ms)
        if waited:
            self._book.wake_pushes(pushes, 1)
        return True

    # --- asking ---

    @on_queue
    async def of_message(self, line: QueueLine, seq: int, *, now_ms: int) -> list[Push]:
        if not 0 < seq <= line.tail or await self._messages.known(line, seq) is None:
            return []
        found: list[Push] = []
        for pushes in line.pushes:
            if pushes.dropped:
                continue
            row = (await self._deliveries.standing_at(pushes, [seq])).get(seq)
            row = row or (await self._deliveries.rows_at(pushes, [seq])).get(seq)
            if row is not None:
                found.append(_push(pushes.id, row))
        return found

    async def stats(self, listeners: Sequence[str], *, now_ms: int) -> dict[str, PushStats]:
        async def part(ids: Sequence[str]) -> dict[str, PushStats]:
            book = self._book
            known = [book.pushes[id] for id in ids if id in book.pushes]
            return {each.id: each.stats() for each in known if each.listener.parent in book.lines}

        return await self.calls.in_parts(listeners, now_ms, part)

    @on_listener
    async def missed(
        self, line: QueueLine, pushes: PushLine, *, limit: int, now_ms: int, before_seq: int = 0
    ) -> list[str]:
        rows = await self._deliveries.rows(pushes, Missed(before_seq or SPAN), limit)
        return ids.message_ids([(row.published_ms, row.seq) for row in rows], queue=line.id)

    # --- binding later ---

    @takes_space
    @on_listener
    async def backfill(
        self,
        line: QueueLine,
        pushes: PushLine,
        *,
        since_ms: int,
        until_ms: int,
        after_seq: int,
        limit: int,
        now_ms: int,
    ) -> tuple[int, int]:
        # Every listener has messages of its own to look at.
        looked_max = max(1, LOOKED_AT_MAX // line.weight)
        published = await self._times(line, max(0, after_seq), looked_max)
        chosen = [seq for seq, ms in published if since_ms <= ms < until_ms][:limit]
        bound = await self._bind(line, pushes, chosen, now_ms) if chosen else 0
        if len(chosen) < limit and len(published) == looked_max:
            return bound, published[-1][0]
        return bound, chosen[-1] if chosen else 0

    async def _times(self, line: QueueLine, after: int, limit: int) -> list[tuple[int, int]]:
        """Sequence and time of messages that are held or kept, from the oldest on."""
        times: dict[int, int] = {}
        for each in line.all_lines:
            found = await self._deliveries.standing(each, after=after, limit=limit)
            times |= {row.seq: row.published_ms for row in found}
        return sorted(times.items())[:limit]

    async def _bind(
        self, line: QueueLine, pushes: PushLine, seqs: Sequence[int], now_ms: int
    ) -> int:
        """Pushes of messages that this listener has none of; how many there were."""
        standing = await self._deliveries.standing_at(pushes, seqs)
        rows = await self._deliveries.rows_at(pushes, seqs)
        unbound = [seq for seq in seqs if seq not in standing and seq not in rows]
        made: list[Delivery] = []
        for seq in unbound:
            block = await self._book.blocks.at(line, seq)
            place = seq - block.first
            rare = block.rare.get(place, NOT_RARE)
            size, own_id, expires_ms = block.size(place), rare.own_id, rare.expires_ms
            row = Delivery(
                *(pushes.base | seq, READY, 0, now_ms, block.at_ms, None, None, size),
                *(own_id, expires_ms, None, 0, 0, None),
            )
            made.append(row)
        if made:
            self._deliveries.add(pushes, made)
            self._book.wake_pushes(pushes, len(made))
        return len(made)


def _packed(report: Report) -> bytes:
    return _encode((report.status, report.error, report.duration_ms, report.answer))


def _push(listener: str, row: Delivery) -> Push:
    waits = row.state in (READY, DELAYED, FRESH)
    return Push(
        listener,
        row.seq,
        _status(row),
        row.attempt,
        row.first_ms,
        row.last_ms,
        row.due_ms if waits else None,
        Report(*_decode(row.report)) if row.report is not None else None,
    )


def _status(row: Delivery) -> PushStatus:
    if row.state == LEASED:
        return "in_flight"
    if row.state == ACKNOWLEDGED:
        return "acknowledged"
    if row.state == EXHAUSTED:
        return "exhausted"
    return "retrying" if row.attempt else "pending"
