"""Letting time pass: leases and delays end, messages expire, dropped queues empty themselves."""

from courier.core import lifecycle
from courier.core.types import BROKER, MINUTE_MS, Swept
from courier.store.sqlite.book import Book
from courier.store.sqlite.delivery import Delivery
from courier.store.sqlite.endings import Endings
from courier.store.sqlite.groups import Groups
from courier.store.sqlite.history import forget
from courier.store.sqlite.leases import Leases
from courier.store.sqlite.line import DELAYED, KEPT, LINE_BITS, NEVER_MS, NO_MASK, SEQ_MASK
from courier.store.sqlite.push_sweep import PushSweep
from courier.store.sqlite.retention import INLINE_MAX, Retention

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
_FORGET_ONCE_OF = "DELETE FROM once WHERE subscription = ?"
_FORGET_CLAIMS_OF = "DELETE FROM claim WHERE subscription = ?"
_FORGET_ROWS_OF = "DELETE FROM rows_stored WHERE subscription = ?"


class Sweep:
    def __init__(
        self,
        book: Book,
        groups: Groups,
        leases: Leases,
        endings: Endings,
        retention: Retention,
        pushes: PushSweep,
    ) -> None:
        self._book = book
        self._db = book.db
        self._groups = groups
        self._leases = leases
        self._endings = endings
        self._retention = retention
        self._pushes = pushes
        self._forgot_minute = 0

    def pass_time(self, now_ms: int) -> None:
        """What every verb does first. Costs three comparisons when nothing is due."""
        book = self._book
        if now_ms >= book.minute_end_ms:
            book.turn(now_ms)
        if now_ms >= book.next_due_ms or now_ms >= book.next_retention_ms:
            self._happen(now_ms, INLINE_MAX)

    def sweep(self, now_ms: int, limit: int) -> Swept:
        self._book.turn(now_ms)
        expired, returned, buried = self._happen(now_ms, limit)
        left = limit - expired - returned - buried
        dropped = self._pushes.dropped(now_ms, left)
        if self._book.dropped and dropped < left:
            dropped += self._dropped(now_ms, left - dropped)
        minute = now_ms // MINUTE_MS
        if minute > self._forgot_minute and forget(self._book, limit, now_ms):
            self._forgot_minute = minute
        next_ms = min(self._book.next_due(), self._book.next_retention())
        dropping = self._book.dropped or self._book.push_lines.dropped
        return Swept(
            expired,
            returned,
            buried,
            dropped,
            next_ms if next_ms < NEVER_MS else None,
            next_ms <= now_ms or bool(dropping) or minute > self._forgot_minute,
        )

    def _happen(self, now_ms: int, limit: int) -> tuple[int, int, int]:
        """Up to `limit` due things; how many messages expired, returned and were buried.

        Leases and delays come first and in order: one that ended before the message expired
        must not be overtaken, for it may have saved the message into the dead letters. Those of
        pushes come before the others, which may end the message.
        """
        expired = returned = buried = 0
        if now_ms >= self._book.next_due_ms:
            pushes = self._pushes.due(now_ms, limit)
            if pushes < limit:
                expired, returned, buried = self._due(now_ms, limit - pushes)
            returned += pushes
            left = limit - expired - returned - buried
            if left:
                expired += self._own_expiry(now_ms, left)
            self._book.next_due()
        left = limit - expired - returned - buried
        if left and now_ms >= self._book.next_retention_ms:
            expired += self._aged(now_ms, left)
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
                # Nothing comes due on a dropped queue; its messages are about to go.
                self._leases.release(line, delivery, now_ms, now_ms)
                returned += 1
            elif expires_ms <= delivery.due_ms:
                self._endings.end(line, "expired", [delivery], BROKER, now_ms, aged=own_ms is None)
                expired += 1
            elif delivery.state == DELAYED:
                self._leases.release(line, delivery, delivery.due_ms, now_ms)
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
        seqs: dict[int, list[int]] = {}
        for (key,) in rows:
            seqs.setdefault(key >> LINE_BITS & NO_MASK, []).append(key & SEQ_MASK)
        ended, left = 0, limit
        for no, expired in seqs.items():
            line = self._book.by_no[no]
            expired = expired[: max(1, left // line.weight)]
            ended += len(expired)
            left -= len(expired) * line.weight
            kind = "deleted" if no in self._book.dropped else "expired"
            found = self._endings.standing_at(line, expired, lanes=(0, 1, KEPT))
            self._endings.end_any(line, kind, [found[seq] for seq in expired], BROKER, now_ms)
            if left <= 0:
                break
        return ended

    def _aged(self, now_ms: int, limit: int) -> int:
        """Messages as old as their queue allows."""
        expired, left = 0, limit
        for line in self._book.lines.values():
            if line.expiry_ms <= now_ms:
                ended = self._retention.expire(line, left, now_ms)
                expired += ended
                left -= ended * line.weight
                if left <= 0:
                    break
        self._book.retention_stale = True
        self._book.next_retention()
        return expired

    def _dropped(self, now_ms: int, limit: int) -> int:
        line = next(iter(self._book.dropped.values()))
        ended = self._endings.first(line, limit=max(1, limit // line.weight))
        if ended:
            self._endings.end_any(line, "deleted", ended, BROKER, now_ms)
        else:
            for pushes in list(line.push_lines):
                self._pushes.forget(pushes)
            self._groups.end_all(line)
            self._db.execute(_FORGET_ONCE_OF, (line.no,))
            self._db.execute(_FORGET_CLAIMS_OF, (line.no,))
            self._db.execute(_FORGET_ROWS_OF, (line.no,))
            self._db.execute(_DROP_LINE, (line.no,))
            del self._book.dropped[line.no]
            del self._book.by_no[line.no]
            self._book.changed = True
        return len(ended)
