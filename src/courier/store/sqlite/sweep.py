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
from courier.store.sqlite.messages import Delivery, Messages

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
    def __init__(self, book: Book, messages: Messages) -> None:
        self._book = book
        self._db = book.db
        self._messages = messages
        self._swept_minute = 0

    def pass_time(self, now_ms: int) -> None:
        """What every verb does first. Costs two comparisons when nothing is due."""
        if now_ms >= self._book.next_due_ms:
            self._due(now_ms, INLINE_MAX)
        if now_ms >= self._book.next_retention_ms:
            self._retention(now_ms, INLINE_MAX)

    def sweep(self, now_ms: int, limit: int) -> Swept:
        expired = returned = buried = dropped = 0
        if now_ms >= self._book.next_due_ms:
            expired, returned, buried = self._due(now_ms, limit)
        if now_ms >= self._book.next_retention_ms:
            expired += self._retention(now_ms, limit)
        if self._book.dropped:
            dropped = self._dropped(now_ms, limit)
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

    def _due(self, now_ms: int, limit: int) -> tuple[int, int, int]:
        """Leases, delays and messages' own expiry, in the order in which they came due."""
        expired = returned = buried = 0
        for *row, own_ms in self._book.rows(_DUE, (now_ms, limit)):
            delivery = Delivery(*row)
            line = self._book.by_no[delivery.id >> LINE_BITS]
            expires_ms = lifecycle.expires_ms(
                line.queue, published_ms=delivery.published_ms, own_ms=own_ms
            )
            if line.no in self._book.dropped:
                self._park(line, delivery, now_ms)
            elif expires_ms <= delivery.due_ms:
                self._messages.end(line, "expired", [delivery], BROKER, now_ms)
                expired += 1
            elif delivery.state == DELAYED:
                line.delayed -= 1
                self._messages.release(line, delivery.id, delivery.due_ms, now_ms)
                returned += 1
            elif self._messages.fail(
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
        for (key,) in self._book.rows(_EXPIRED, (now_ms, limit)):
            line = self._book.by_no[key >> LINE_BITS]
            seq = key & SEQ_MASK
            self._expire(line, list(self._messages.standing_at(line, [seq]).values()), now_ms)
            expired += 1
        self._book.next_due()
        return expired, returned, buried

    def _park(self, line: Line, delivery: Delivery, now_ms: int) -> None:
        """Nothing comes due on a dropped queue; its messages are about to go."""
        if delivery.state == LEASED:
            line.leased -= 1
        else:
            line.delayed -= 1
        self._messages.release(line, delivery.id, READY, now_ms)

    def _expire(self, line: Line, standings: list[Delivery], now_ms: int) -> None:
        kind = "deleted" if line.no in self._book.dropped else "expired"
        self._messages.end(line, kind, standings, BROKER, now_ms)

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
                standings = [
                    standing
                    for standing in self._messages.standing(
                        line, lane=lane, limit=max(1, limit - expired)
                    )
                    if standing.published_ms <= old_ms
                ]
                if standings:
                    self._messages.end(line, "expired", standings, BROKER, now_ms)
                    expired += len(standings)
            self._book.oldest_ms(line)
        self._book.retention_stale = True
        self._book.next_retention()
        return expired

    def _dropped(self, now_ms: int, limit: int) -> int:
        line = next(iter(self._book.dropped.values()))
        standings = self._messages.standing(line, lane=0, limit=limit)
        if len(standings) < limit:
            rest = limit - len(standings)
            standings += self._messages.standing(line, lane=1, limit=rest)
        if standings:
            self._messages.end(line, "deleted", standings, BROKER, now_ms)
        else:
            self._db.execute(_FORGET_ONCE_OF, (line.no,))
            self._db.execute(_DROP_LINE, (line.no,))
            del self._book.dropped[line.no]
            del self._book.by_no[line.no]
            self._book.changed = True
        return len(standings)

    def _forget(self, now_ms: int, limit: int) -> None:
        self._db.execute(_FORGET_ONCE, (now_ms, limit))
        self._db.execute(_FORGET_MINUTES, ((now_ms - MINUTES_KEPT_MS) // MINUTE_MS,))
        if self._db.connection.changes():
            self._book.changed = True
