"""Letting time pass: leases and delays end, messages expire, dropped queues empty themselves."""

from courier.core import lifecycle
from courier.core.types import BROKER, DAY_MS, MINUTE_MS, Swept
from courier.store.sqlite.book import (
    DELAYED,
    LEASED,
    LINE_BITS,
    NEVER_MS,
    READY,
    SEQ_MASK,
    Book,
    Line,
)
from courier.store.sqlite.delivery import Delivery
from courier.store.sqlite.endings import Endings
from courier.store.sqlite.leases import Leases

# What a verb does of it before its own work; the rest is left to the sweep.
INLINE_MAX = 1_000
MINUTES_KEPT_MS = 16 * DAY_MS

_DUE = """
SELECT d.id, d.state, d.lane, d.attempt, d.due_ms, d.published_ms, d.first_ms, d.last_ms, d.size,
    d.own_id, m.expires_ms
FROM delivery AS d INDEXED BY delivery_due
CROSS JOIN message AS m ON m.id = (d.id | (d.lane << 42))
WHERE d.state > 0 AND d.due_ms <= ? ORDER BY d.due_ms, d.id LIMIT ?
"""
_EXPIRED = """
SELECT id FROM message INDEXED BY message_expires
WHERE expires_ms <= ? ORDER BY expires_ms LIMIT ?
"""
_DROP_LINE = "DELETE FROM subscription WHERE no = ?"
_FORGET_ONCE = """
DELETE FROM once WHERE (subscription, key) IN (
    SELECT subscription, key FROM once WHERE until_ms <= ? LIMIT ?)
"""
_FORGET_ONCE_OF = "DELETE FROM once WHERE subscription = ?"
_FORGET_MINUTES = "DELETE FROM minute WHERE minute < ?"


class Sweep:
    def __init__(self, book: Book, leases: Leases, endings: Endings) -> None:
        self._book = book
        self._db = book.db
        self._leases = leases
        self._endings = endings
        self._swept_minute = 0

    def pass_time(self, now_ms: int) -> None:
        """What every verb does first. Costs two comparisons when nothing is due."""
        if now_ms >= self._book.next_due_ms or now_ms >= self._book.next_retention_ms:
            self._happen(now_ms, INLINE_MAX)

    def sweep(self, now_ms: int, limit: int) -> Swept:
        expired, returned, buried = self._happen(now_ms, limit)
        left = limit - expired - returned - buried
        dropped = self._dropped(now_ms, left) if self._book.dropped and left else 0
        if now_ms // MINUTE_MS > self._swept_minute:
            self._swept_minute = now_ms // MINUTE_MS
            self._forget(now_ms, limit)
        next_ms = min(self._book.next_due(), self._book.next_retention())
        return Swept(
            expired,
            returned,
            buried,
            dropped,
            next_ms if next_ms < NEVER_MS else None,
            next_ms <= now_ms or bool(self._book.dropped),
        )

    def _happen(self, now_ms: int, limit: int) -> tuple[int, int, int]:
        """Up to `limit` due things; how many messages expired, returned and were buried.

        Leases and delays come first and in order: one that ended before the message expired
        must not be overtaken, for it may have saved the message into the dead letters.
        """
        expired = returned = buried = 0
        if now_ms >= self._book.next_due_ms:
            expired, returned, buried = self._due(now_ms, limit)
            left = limit - expired - returned - buried
            if left:
                expired += self._own_expiry(now_ms, left)
            self._book.next_due()
        left = limit - expired - returned - buried
        if left and now_ms >= self._book.next_retention_ms:
            expired += self._retention(now_ms, left)
        return expired, returned, buried

    def _due(self, now_ms: int, limit: int) -> tuple[int, int, int]:
        """Leases and delays, in the order in which they came due."""
        expired = returned = buried = 0
        for *row, own_ms in self._book.rows(_DUE, (now_ms, limit)):
            delivery = Delivery(*row)
            line = self._book.by_no[delivery.id >> LINE_BITS]
            expires_ms = lifecycle.expires_ms(
                line.queue, published_ms=delivery.published_ms, own_ms=own_ms
            )
            if line.no in self._book.dropped:
                self._park(line, delivery, now_ms)
                returned += 1
            elif expires_ms <= delivery.due_ms:
                self._endings.end(line, "expired", [delivery], BROKER, now_ms)
                expired += 1
            elif delivery.state == DELAYED:
                line.delayed -= 1
                self._leases.release(line, delivery.id, delivery.due_ms, now_ms)
                returned += 1
            elif self._leases.fail(
                line,
                delivery,
                kind="lease_expired",
                delay_ms=None,
                ended_ms=delivery.due_ms,
                actor=BROKER,
                now_ms=now_ms,
            ):
                buried += 1
            else:
                returned += 1
        return expired, returned, buried

    def _own_expiry(self, now_ms: int, limit: int) -> int:
        """Messages that were published with an expiry of their own."""
        rows = self._book.rows(_EXPIRED, (now_ms, limit))
        for (key,) in rows:
            line = self._book.by_no[key >> LINE_BITS]
            kind = "deleted" if line.no in self._book.dropped else "expired"
            ended = list(self._endings.standing_at(line, [key & SEQ_MASK]).values())
            self._endings.end(line, kind, ended, BROKER, now_ms)
        return len(rows)

    def _park(self, line: Line, delivery: Delivery, now_ms: int) -> None:
        """Nothing comes due on a dropped queue; its messages are about to go."""
        if delivery.state == LEASED:
            line.leased -= 1
        else:
            line.delayed -= 1
        self._leases.release(line, delivery.id, READY, now_ms)

    def _retention(self, now_ms: int, limit: int) -> int:
        """Messages as old as their queue allows. The oldest of a lane come first."""
        expired = 0
        for line in self._book.lines.values():
            if line.expiry_ms > now_ms:
                continue
            self._book.oldest_ms(line)
            if line.expiry_ms > now_ms:
                continue
            old_ms = now_ms - line.queue.retention_ms
            for lane in (0, 1):
                ended = [
                    delivery
                    for delivery in self._endings.standing(line, lane=lane, limit=limit - expired)
                    if delivery.published_ms <= old_ms
                ]
                if ended:
                    self._endings.end(line, "expired", ended, BROKER, now_ms)
                    expired += len(ended)
            self._book.oldest_ms(line)
            if expired >= limit:
                break
        self._book.retention_stale = True
        self._book.next_retention()
        return expired

    def _dropped(self, now_ms: int, limit: int) -> int:
        line = next(iter(self._book.dropped.values()))
        ended = self._endings.standing(line, lane=0, limit=limit)
        if len(ended) < limit:
            rest = limit - len(ended)
            ended += self._endings.standing(line, lane=1, limit=rest)
        if ended:
            self._endings.end(line, "deleted", ended, BROKER, now_ms)
        else:
            self._db.execute(_FORGET_ONCE_OF, (line.no,))
            self._db.execute(_DROP_LINE, (line.no,))
            del self._book.dropped[line.no]
            del self._book.by_no[line.no]
            self._book.changed = True
        return len(ended)

    def _forget(self, now_ms: int, limit: int) -> None:
        """Publish keys and minutes that nobody will ask for any more."""
        before = self._db.connection.total_changes()
        self._db.execute(_FORGET_ONCE, (now_ms, limit))
        self._db.execute(_FORGET_MINUTES, ((now_ms - MINUTES_KEPT_MS) // MINUTE_MS,))
        if self._db.connection.total_changes() != before:
            self._book.changed = True
