"""Handing messages out, and what becomes of the lease."""

from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import Any

from courier.core import lifecycle
from courier.core.journal import UNIT_BYTES
from courier.core.types import (
    BROKER,
    Ack,
    Actor,
    Leased,
    Message,
    Origin,
    Outcome,
    Retry,
    Settlement,
)
from courier.store.sqlite.book import Book, packed
from courier.store.sqlite.delivery import Delivery, keys_json
from courier.store.sqlite.endings import Endings
from courier.store.sqlite.groups import Groups
from courier.store.sqlite.line import DELAYED, LANE, LEASED, READY, SEQ_MASK, Line
from courier.store.sqlite.messages import Messages
from courier.store.sqlite.publishing import Publishing, copy_of
from courier.store.sqlite.retention import Retention

_FRESH = """
SELECT id, 0, NULL, published_ms, size, content_type, own_id, headers, grp, expires_ms, origin,
    body, delay_ms, sealed
FROM message WHERE id > ? AND id < ? ORDER BY id LIMIT ?
"""
_AGAIN = """
SELECT m.id, d.attempt, 0, m.published_ms, m.size, m.content_type, m.own_id, m.headers, m.grp,
    m.expires_ms, m.origin, m.body, m.delay_ms, m.sealed
FROM delivery AS d INDEXED BY delivery_ready
CROSS JOIN message AS m ON m.id = (d.id | (d.lane << 42))
WHERE d.state = 0 AND d.id > ? AND d.id < ? ORDER BY d.id LIMIT ?
"""
# The same rows without what only the message's reader needs.
_FRESH_KEYS = """
SELECT id, 0, NULL, published_ms, size, NULL, own_id, NULL, grp, expires_ms
FROM message WHERE id > ? AND id < ? ORDER BY id LIMIT ?
"""
_AGAIN_KEYS = """
SELECT m.id, d.attempt, 0, m.published_ms, m.size, NULL, m.own_id, NULL, m.grp, m.expires_ms
FROM delivery AS d INDEXED BY delivery_ready
CROSS JOIN message AS m ON m.id = (d.id | (d.lane << 42))
WHERE d.state = 0 AND d.id > ? AND d.id < ? ORDER BY d.id LIMIT ?
"""
_LEASE_FRESH = """
INSERT INTO delivery
SELECT id, 1, 0, 1, ?, published_ms, ?, ?, size, own_id, ? FROM message WHERE id > ? AND id <= ?
"""
_LEASE_AGAIN = """
UPDATE delivery
SET state = 1, attempt = attempt + 1, due_ms = ?, first_ms = coalesce(first_ms, ?), last_ms = ?,
    claim = ?
WHERE id IN (SELECT value FROM json_each(?))
"""
_DELIVERY = """
SELECT id, state, lane, attempt, due_ms, published_ms, first_ms, last_ms, size, own_id
FROM delivery WHERE id = ?
"""
_DELIVERIES = """
SELECT id, state, lane, attempt, due_ms, published_ms, first_ms, last_ms, size, own_id
FROM delivery WHERE id IN (SELECT value FROM json_each(?))
"""
_EXTEND_DELIVERY = "UPDATE delivery SET due_ms = ? WHERE id = ?"
_MOVE_DELIVERY = "UPDATE delivery SET state = ?, due_ms = ?, claim = NULL WHERE id = ?"


class Leases:
    """Verbs on one queue's line. `sweep.py` lets time pass before each of them."""

    def __init__(
        self,
        book: Book,
        groups: Groups,
        messages: Messages,
        publishing: Publishing,
        endings: Endings,
        retention: Retention,
    ) -> None:
        self._book = book
        self._db = book.db
        self._groups = groups
        self._messages = messages
        self._publishing = publishing
        self._endings = endings
        self._retention = retention

    def peek(self, line: Line, count: int, now_ms: int) -> list[Message]:
        return self._messages.read(line, self.ready(line, count, now_ms), plus=0)

    def ready(
        self, line: Line, count: int, now_ms: int, *, whole: bool = True
    ) -> list[tuple[Any, ...]]:
        """Rows of what may be handed out, in that order; none that has expired.

        `whole`: with what only the message's reader needs.
        """
        if line.expiry_ms <= now_ms and not self._retention.keep_up(line, now_ms):
            return []
        rows: list[tuple[Any, ...]] = []
        if line.queue.fifo:
            rows = self._groups.ready(line, count, whole=whole)
        else:
            base = line.base
            if line.again:
                again = _AGAIN if whole else _AGAIN_KEYS
                rows = self._book.rows(again, (base, base + LANE, count))
            if len(rows) < count and line.cursor < line.tail:
                bounds = (base | line.cursor, base + LANE, count - len(rows))
                rows += self._book.rows(_FRESH if whole else _FRESH_KEYS, bounds)
        if self._book.behind(now_ms):
            rows = list(takewhile(lambda row: row[9] is None or row[9] > now_ms, rows))
        return rows

    def lease(
        self,
        line: Line,
        count: int,
        lease_ms: int,
        actor: Actor,
        now_ms: int,
        *,
        leased_max: int | None = None,
    ) -> Leased:
        until_ms = now_ms + lease_ms
        if leased_max is not None and count > leased_max - line.leased:
            count = leased_max - line.leased
            line.full = True
        rows = self.ready(line, count, now_ms) if count > 0 else []
        if not rows:
            return Leased([], until_ms, self._book.stats(line))
        self.hand_out(line, rows, count, lease_ms, actor, now_ms)
        messages = self._messages.read(line, rows, plus=1)
        return Leased(messages, until_ms, self._book.stats(line))

    def hand_out(
        self,
        line: Line,
        rows: list[tuple[Any, ...]],
        count: int,
        lease_ms: int,
        actor: Actor,
        now_ms: int,
        *,
        claim: int | None = None,
    ) -> None:
        """Lease what `ready` has found of `count` that were asked for; `claim` is its number."""
        until_ms = now_ms + lease_ms
        again: list[int] = []
        if line.again:
            again = [row[0] & ~LANE for row in rows if row[2] is not None]
        if again:
            self._db.execute(_LEASE_AGAIN, (until_ms, now_ms, now_ms, claim, keys_json(again)))
            line.again -= len(again)
        if line.queue.fifo:
            self._groups.lease(line, rows, until_ms, now_ms, claim)
        elif len(again) < len(rows):
            last = rows[-1][0]
            bounds = (line.base | line.cursor, last)
            self._db.execute(_LEASE_FRESH, (until_ms, now_ms, now_ms, claim, *bounds))
            line.cursor = last & SEQ_MASK
        if len(rows) < count and not self._book.behind(now_ms):
            line.cursor = line.tail
        line.leased += len(rows)
        self._book.touch(line, due_ms=until_ms)
        self._note_leased(line, rows, lease_ms, actor, now_ms)

    def _note_leased(
        self,
        line: Line,
        rows: list[tuple[Any, ...]],
        lease_ms: int,
        actor: Actor,
        now_ms: int,
    ) -> None:
        sizes = [row[4] for row in rows]
        size = sum(sizes)
        columns: dict[str, Any] = {
            "seq": [row[0] & SEQ_MASK for row in rows],
            "published_ms": packed([row[3] for row in rows]),
            "size": packed(sizes),
            "attempt": packed([row[1] + 1 for row in rows]),
            "lease_ms": lease_ms,
        }
        own = [row[6] for row in rows]
        if own.count(None) != len(own):
            columns["own_id"] = own
        queue = line.queue
        self._book.note(
            "leased",
            queue,
            count=len(rows),
            size=size,
            actor=actor,
            now_ms=now_ms,
            columns=columns,
        )
        if size > UNIT_BYTES:
            units = sum([max(0, -(-size // UNIT_BYTES) - 1) for size in sizes])
            if units:
                self._book.tally("leased_units", queue.tenant, queue.id, count=units, now_ms=now_ms)

    def _deliveries(self, line: Line, seqs: Iterable[int]) -> dict[int, Delivery]:
        keys = [line.base | seq for seq in seqs]
        if len(keys) == 1:
            rows = self._book.rows(_DELIVERY, (keys[0],))
        else:
            rows = self._book.rows(_DELIVERIES, (keys_json(keys),))
        return {row[0] & SEQ_MASK: Delivery(*row) for row in rows}

    def settle(
        self, line: Line, items: Sequence[Settlement], actor: Actor, now_ms: int
    ) -> list[Outcome]:
        found = self._deliveries(line, {item.seq for item in items})
        outcomes: list[Outcome] = []
        acked: list[Delivery] = []
        for item in items:
            delivery = found.get(item.seq)
            if delivery is None or not 1 <= item.attempt <= delivery.attempt:
                outcomes.append(Outcome.GONE)
                continue
            current = (
                delivery.state == LEASED
                and delivery.attempt == item.attempt
                and delivery.due_ms > now_ms
            )
            outcomes.append(Outcome.DONE if current else Outcome.LATE)
            if isinstance(item, Ack):
                if current or item.late:
                    acked.append(delivery)
                    del found[item.seq]
            elif current:
                if isinstance(item, Retry):
                    self.fail(
                        line,
                        delivery,
                        kind="retried",
                        delay_ms=item.delay_ms,
                        ended_ms=now_ms,
                        actor=actor,
                        now_ms=now_ms,
                    )
                else:
                    self._extend(line, delivery, item.lease_ms, actor, now_ms)
                # What the next item of the same batch meets.
                found.pop(item.seq)
                found.update(self._deliveries(line, [item.seq]))
        if acked:
            self._endings.end(line, "acked", acked, actor, now_ms)
        return outcomes

    def _extend(
        self, line: Line, delivery: Delivery, lease_ms: int, actor: Actor, now_ms: int
    ) -> None:
        until_ms = now_ms + lease_ms
        self._db.execute(_EXTEND_DELIVERY, (until_ms, delivery.id))
        self._book.touch(line, due_ms=until_ms)
        self._note_one("extended", line, delivery, actor, now_ms, {"lease_ms": lease_ms})

    def _note_one(
        self,
        kind: str,
        line: Line,
        delivery: Delivery,
        actor: Actor,
        now_ms: int,
        extra: dict[str, Any],
    ) -> None:
        self._book.note(
            kind,
            line.queue,
            size=delivery.size,
            actor=actor,
            now_ms=now_ms,
            columns={
                "seq": delivery.seq,
                "own_id": delivery.own_id,
                "published_ms": delivery.published_ms,
                "size": delivery.size,
                "attempt": delivery.attempt,
                **extra,
            },
        )

    def fail(
        self,
        line: Line,
        delivery: Delivery,
        *,
        kind: str,
        delay_ms: int | None,
        ended_ms: int,
        actor: Actor,
        now_ms: int,
    ) -> bool:
        """End an attempt without an ack; True when that buried the message."""
        step = lifecycle.after_failure(
            line.queue, attempt=delivery.attempt, delay_ms=delay_ms, ended_ms=ended_ms
        )
        if isinstance(step, lifecycle.Bury):
            self._note_one(kind, line, delivery, actor, now_ms, {})
            self._bury(line, delivery, step.into, actor, now_ms)
            return True
        extra = {"delay_ms": step.due_ms - ended_ms}
        self._note_one(kind, line, delivery, actor, now_ms, extra)
        self.release(line, delivery, step.due_ms, now_ms)
        return False

    def release(self, line: Line, delivery: Delivery, due_ms: int, now_ms: int) -> None:
        """A leased or delayed message is ready at `due_ms`."""
        if delivery.state == LEASED:
            self._book.let_go(line, 1)
        else:
            line.delayed -= 1
        if due_ms <= now_ms:
            self._db.execute(_MOVE_DELIVERY, (READY, 0, delivery.id))
            line.again += 1
            self._book.wake(line, 1)
        else:
            self._db.execute(_MOVE_DELIVERY, (DELAYED, due_ms, delivery.id))
            line.delayed += 1
        if line.queue.fifo:
            self._groups.refresh(line, self._groups.of(line, [delivery]))
        self._book.touch(line, due_ms=due_ms)

    def _bury(
        self, line: Line, delivery: Delivery, into: str | None, actor: Actor, now_ms: int
    ) -> None:
        target = self._book.lines.get(into) if into else None
        message = self._messages.at(line, delivery.seq, delivery.lane)
        assert message is not None, "a delivery without its message"
        detail = {"into": target.queue.id if target else None}
        self._endings.end(line, "buried", [delivery], actor, now_ms, detail)
        if target:
            origin = Origin(line.queue.id, message.id, delivery.attempt, "attempts")
            delay_ms = None if target.queue.fifo else 0
            draft = copy_of(message, delivery.own_id, delay_ms=delay_ms)
            self._publishing.insert(target, [draft], BROKER, now_ms, origin=origin)
