"""All that the oracle's queues hold, and how it comes and goes."""

import sys
from copy import deepcopy
from typing import Any

import msgspec

from courier import ids
from courier.core import events
from courier.core.errors import NotFound
from courier.core.lifecycle import GROUP_DEFAULT, Again, after_failure
from courier.core.types import (
    BROKER,
    MINUTE_MS,
    Actor,
    Draft,
    Listener,
    Message,
    Origin,
    Push,
    Queue,
    Report,
)
from courier.core.waiters import Waiters
from tests.oracle.backlog import Backlog, Delivery
from tests.oracle.journal import Cause, Journal
from tests.oracle.pushes import OPEN, PushLine


class Holdings:
    """The queues, and those that are dropped until the sweep has emptied them.

    Whatever is done here to a message or a push writes its events.
    """

    def __init__(self, journal: Journal, waiters: Waiters) -> None:
        self.backlogs: dict[str, Backlog] = {}
        self.dropped: list[Backlog] = []
        self.doubt_ms = 0
        self._journal = journal
        self._waiters = waiters

    def backlog(self, queue: str) -> Backlog:
        if queue not in self.backlogs:
            raise NotFound("queue", queue)
        return self.backlogs[queue]

    # --- queues and listeners come and go ---

    def put_queue(self, queue: Queue, now_ms: int) -> None:
        new = Backlog(queue, now_ms // MINUTE_MS)
        self.backlogs.setdefault(queue.id, new).queue = queue
        self._waiters.wake(queue.id, sys.maxsize)

    def drop_queue(self, queue: Queue) -> None:
        self.dropped.append(self.backlogs.pop(queue.id))
        self._waiters.wake(queue.id, sys.maxsize)

    def put_listener(self, listener: Listener) -> None:
        backlog = self.backlogs.get(listener.parent)
        if backlog is not None:
            new = PushLine(listener)
            backlog.lines.setdefault(listener.id, new).listener = listener
        self._waiters.wake(listener.id, sys.maxsize)

    def drop_listener(self, listener: Listener) -> None:
        for backlog in (*self.backlogs.values(), *self.dropped):
            line = backlog.lines.pop(listener.id, None)
            if line is not None:
                backlog.dropped_lines.append(line)
        self._waiters.wake(listener.id, sys.maxsize)

    # --- messages come and go ---

    def store(
        self,
        backlog: Backlog,
        draft: Draft,
        by: Cause,
        *,
        listener: str | None = None,
    ) -> str:
        """Store a draft, for all listeners or for one; the id of its message."""
        queue, now_ms = backlog.queue, by.now_ms
        backlog.tail += 1
        seq = backlog.tail
        delay_ms = queue.delay_ms if draft.delay_ms is None else draft.delay_ms
        follows_queue = queue.fifo and draft.delay_ms is None
        ttl_ms = queue.retention_ms if draft.ttl_ms is None else draft.ttl_ms
        has_own = draft.ttl_ms is not None or self.doubt_ms > 0
        message = Message(
            seq=seq,
            id=draft.id or ids.message_id(published_ms=now_ms, seq=seq, queue=queue.id),
            published_ms=now_ms,
            body=draft.body,
            content_type=draft.content_type,
            headers=deepcopy(draft.headers),
            group=(draft.group or GROUP_DEFAULT) if queue.fifo else draft.group,
            expires_ms=now_ms + ttl_ms + self.doubt_ms if has_own else None,
            origin=draft.origin,
            delay_ms=draft.delay_ms if queue.fifo else (delay_ms or None),
            sealed=draft.sealed,
        )
        due_ms = None if follows_queue else now_ms + delay_ms
        delivery = Delivery(message, draft.id, due_ms, returning=delay_ms > 0)
        backlog.deliveries[seq] = delivery
        for line in backlog.lines.values():
            if listener in (None, line.listener.id):
                line.bind(seq, due_ms=now_ms + delay_ms)
        detail = events.routed(by.exchange) if by.exchange else None
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
            detail=msgspec.to_builtins(draft.origin) if draft.origin else detail,
        )
        return message.id

    def fail(
        self,
        kind: str,
        backlog: Backlog,
        delivery: Delivery,
        by: Cause,
        ended_ms: int,
        delay_ms: int | None = None,
    ) -> None:
        """The attempt ended at `ended_ms` without an ack: hand it out again, or bury it."""
        queue, attempt = backlog.queue, delivery.attempts
        step = after_failure(queue, attempt=attempt, delay_ms=delay_ms, ended_ms=ended_ms)
        if isinstance(step, Again):
            delivery.until_ms = None
            delivery.due_ms = step.due_ms
            delay_ms = step.due_ms - ended_ms
            self._journal.message(kind, by, queue, delivery, attempt=attempt, delay_ms=delay_ms)
            return
        self._journal.message(kind, by, queue, delivery, attempt=attempt)
        into = self.backlogs.get(step.into or "")
        self.end(
            "buried", backlog, delivery, by, detail=events.buried(into.queue.id if into else None)
        )
        if into is not None:
            origin = Origin(queue.id, delivery.message.id, attempts=attempt, reason="attempts")
            self._copy(delivery, into, origin, by.now_ms)

    def _copy(self, delivery: Delivery, into: Backlog, origin: Origin, now_ms: int) -> None:
        """Put a dead letter where it belongs."""
        copy = carried(delivery, origin, delay_ms=None if into.queue.fifo else 0)
        self.store(into, copy, Cause(BROKER, now_ms))

    def end(
        self, kind: str, backlog: Backlog, delivery: Delivery, by: Cause, **columns: Any
    ) -> None:
        """Take the message off its queue, and tell its whole life."""
        seq = delivery.message.seq
        del backlog.deliveries[seq]
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
        aged = kind == "expired" and delivery.message.expires_ms is None
        wanted = delivery.delivered or backlog.wanted(seq)
        if (kind in ("acked", "buried") and wanted) or (aged and backlog.owed(seq)):
            # What pullers did with it is told, and of no use to listeners.
            delivery.attempts = 0
            backlog.kept[seq] = delivery
        else:
            self._drop_pushes(kind, backlog, delivery, by.now_ms)

    def end_kept(self, reason: str, backlog: Backlog, delivery: Delivery, *, now_ms: int) -> None:
        """Let go of a message that only pushes still needed. Its own end was told before."""
        del backlog.kept[delivery.message.seq]
        self._drop_pushes(reason, backlog, delivery, now_ms)

    # --- pushes come and go ---

    def push_arrived(
        self, backlog: Backlog, line: PushLine, push: Push, report: Report, *, now_ms: int
    ) -> None:
        delivery = backlog.known(push.seq)
        line.arrived(push, report, now_ms=now_ms)
        detail = events.push(push.listener, report, failed=False)
        self._note_push("pushed", backlog, delivery, push, now_ms, detail)
        self._let_go(backlog, delivery, now_ms)

    def push_failed(
        self,
        backlog: Backlog,
        line: PushLine,
        push: Push,
        report: Report,
        *,
        delay_ms: int | None,
        ended_ms: int,
        now_ms: int,
    ) -> None:
        """The attempt ended at `ended_ms`: try again after a delay, or bury a copy."""
        queue, delivery = backlog.queue, backlog.known(push.seq)
        due_ms = None if delay_ms is None else ended_ms + delay_ms
        line.failed(push, report, due_ms=due_ms, now_ms=now_ms)
        detail = events.push(push.listener, report, failed=True)
        self._note_push("push_failed", backlog, delivery, push, now_ms, detail, delay_ms)
        into = self.backlogs.get(queue.dead_letter or "")
        if delay_ms is None and into is not None:
            id, attempts = delivery.message.id, push.attempts
            origin = Origin(queue.id, id, attempts=attempts, reason="push")
            self._copy(delivery, into, origin, now_ms)
        # What has expired since the attempt ended is ended by the sweep, with that as its reason.
        if not backlog.over(delivery, now_ms) or backlog.over(delivery, ended_ms):
            self._let_go(backlog, delivery, now_ms)

    def end_push(self, backlog: Backlog, line: PushLine, push: Push, *, now_ms: int) -> None:
        """Its listener is gone."""
        delivery = backlog.known(push.seq)
        del line.pushes[push.seq]
        self._note_drop("listener", backlog, delivery, push, now_ms)
        if push.status != "acknowledged":
            self._let_go(backlog, delivery, now_ms)

    def _drop_pushes(self, reason: str, backlog: Backlog, delivery: Delivery, now_ms: int) -> None:
        """Their message is gone."""
        for line in (*backlog.live_lines(), *backlog.dropped_lines):
            push = line.pushes.pop(delivery.message.seq, None)
            if push is not None:
                line.expired += reason == "expired" and push.status != "acknowledged"
                self._note_drop(reason, backlog, delivery, push, now_ms)

    def _let_go(self, backlog: Backlog, delivery: Delivery, now_ms: int) -> None:
        """A message that was kept for its pushes goes with the last of them.

        One that has an exhausted push stays as long as the queue's retention says; so does one
        that is delivered by now.
        """
        seq = delivery.message.seq
        if seq in backlog.deliveries and backlog.delivered(seq):
            delivery.delivered = True
            self.end("acked", backlog, delivery, Cause(BROKER, now_ms))
        elif seq in backlog.kept:
            wanted = delivery.delivered or backlog.wanted(seq)
            if not wanted or backlog.over(delivery, now_ms):
                self.end_kept("expired", backlog, delivery, now_ms=now_ms)

    def make_room(self, backlog: Backlog, size: int, bytes_max: int, now_ms: int) -> None:
        """Forget delivered messages, oldest first, where they and `size` more are too much."""
        delivered = [d for d in backlog.all_known() if d.delivered]
        held = backlog.stats(now_ms).bytes + sum(d.message.size for d in delivered)
        for delivery in delivered:
            if held + size <= bytes_max:
                break
            held -= delivery.message.size
            delivery.delivered = False
            self._let_go(backlog, delivery, now_ms)

    def _note_push(
        self,
        kind: str,
        backlog: Backlog,
        delivery: Delivery,
        push: Push,
        now_ms: int,
        detail: dict[str, Any],
        delay_ms: int | None = None,
    ) -> None:
        by = Cause(Actor(push.listener, "push"), now_ms)
        self._journal.message(
            kind,
            by,
            backlog.queue,
            delivery,
            attempt=push.attempts,
            delay_ms=delay_ms,
            detail=detail,
        )

    def _note_drop(
        self, reason: str, backlog: Backlog, delivery: Delivery, push: Push, now_ms: int
    ) -> None:
        if push.status in OPEN:
            detail = events.push_dropped(push.listener, reason)
            by = Cause(BROKER, now_ms)
            self._journal.message(
                "push_dropped", by, backlog.queue, delivery, attempt=push.attempts, detail=detail
            )


def carried(delivery: Delivery, origin: Origin, *, delay_ms: int | None) -> Draft:
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
        origin=origin,
    )
