"""Ending messages that are as old as their queue allows.

Only those without an expiry of their own; and a kept one only if no listener is owed it any more,
else it goes with its last open push (`kept.py`). They are found in the order of their lane, where
the others may lie before them for long: a line remembers how far it has looked, so that nothing is
passed over twice.
"""

from courier.core.types import BROKER
from courier.store.sqlite.book import Book
from courier.store.sqlite.delivery import Delivery
from courier.store.sqlite.endings import Endings
from courier.store.sqlite.line import KEPT, LANE, LEASED, NEVER_MS, SEQ_MASK, Line
from courier.store.sqlite.push_rows import PushRows

# What a verb does of all that is due before its own work; the rest is left to the sweep.
INLINE_MAX = 1_000

_STANDING = """
SELECT m.id & ~4398046511104, d.state, (m.id >> 42) & 1, coalesce(d.attempt, 0),
    coalesce(d.due_ms, 0), m.published_ms, d.first_ms, d.last_ms, m.size, m.own_id, m.expires_ms
FROM message AS m LEFT JOIN delivery AS d ON d.id = (m.id & ~4398046511104)
WHERE m.id > ? AND m.id < ? ORDER BY m.id LIMIT ?
"""


class Retention:
    def __init__(self, book: Book, endings: Endings, push_rows: PushRows) -> None:
        self._book = book
        self._endings = endings
        self._push_rows = push_rows

    def keep_up(self, line: Line, now_ms: int) -> bool:
        """Before something of this line is handed out. False: the sweep is still at it."""
        if line.expiry_ms <= now_ms:
            self.expire(line, INLINE_MAX, now_ms)
        return line.expiry_ms > now_ms

    def expire(self, line: Line, limit: int, now_ms: int) -> int:
        """End messages of this line, looking at up to `limit`; what is left is still due.

        Fewer of a queue with many listeners, whose pushes end with them.
        """
        limit = max(1, limit // line.weight)
        ended: list[Delivery] = []
        aging_ms = NEVER_MS
        for lane, held in ((0, True), (1, line.held), (KEPT, line.kept)):
            if held:
                left = limit - len(ended)
                lane_ms = self._look(line, lane, left, now_ms, ended) if left else line.aging_ms
                aging_ms = min(aging_ms, lane_ms)
        line.aging_ms = aging_ms
        self._endings.end_any(line, "expired", ended, BROKER, now_ms, aged=True)
        return len(ended)

    def _look(self, line: Line, lane: int, limit: int, now_ms: int, ended: list[Delivery]) -> int:
        """Add a lane's old messages to `ended`; the rest was published then or later."""
        old_ms = now_ms - line.queue.retention_ms
        low = line.message_key(line.passed[lane], lane)
        high = line.message_key(0, lane) + LANE
        rows = self._book.rows(_STANDING, (low, high, limit))
        owed: set[int] = set()
        if lane == KEPT:
            owed = self._push_rows.owed(line, [row[0] & SEQ_MASK for row in rows])
        published_ms = NEVER_MS
        for *row, own_ms in rows:
            delivery = Delivery(*row)
            published_ms = delivery.published_ms
            if own_ms is None:
                # A lease that has ended may yet save its message into the dead letters.
                over = delivery.state == LEASED and delivery.due_ms <= now_ms
                if published_ms > old_ms or over:
                    return published_ms
                if delivery.seq not in owed:
                    ended.append(delivery)
            line.passed[lane] = delivery.seq
        return published_ms if len(rows) == limit else NEVER_MS
