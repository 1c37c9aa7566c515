"""Letting time pass for pushes: waits and leases end, pushes of listeners that are gone go."""

from courier.core.types import Report
from courier.store.sqlite.book import Book
from courier.store.sqlite.delivery import keys_json
from courier.store.sqlite.kept import Kept
from courier.store.sqlite.line import LANE, LEASED, LINE_BITS, PushLine
from courier.store.sqlite.outcomes import Failure, Outcomes
from courier.store.sqlite.push_rows import PushRow, PushRows

_SILENCE = Report(error="no outcome was noted")

_DUE = """
SELECT id, state, lane, attempt, due_ms, published_ms, size, own_id, expires_ms, status
FROM push INDEXED BY push_due WHERE state > 0 AND due_ms <= ? ORDER BY due_ms, id LIMIT ?
"""
_FIRST = """
SELECT id, state, lane, attempt, due_ms, published_ms, size, own_id, expires_ms, status
FROM push WHERE id > ? AND id < ? ORDER BY id LIMIT ?
"""
_RELEASE = "UPDATE push SET state = 0 WHERE id IN (SELECT value FROM json_each(?))"
_DELETE_UPTO = "DELETE FROM push WHERE id > ? AND id <= ?"
_DROP_LINE = "DELETE FROM subscription WHERE no = ?"


class PushSweep:
    def __init__(self, book: Book, push_rows: PushRows, kept: Kept, outcomes: Outcomes) -> None:
        self._book = book
        self._db = book.db
        self._push_rows = push_rows
        self._kept = kept
        self._outcomes = outcomes

    def due(self, now_ms: int, limit: int) -> int:
        """Make up to `limit` pushes ready whose wait is over, or whose lease is."""
        found: dict[int, list[PushRow]] = {}
        for row in self._book.rows(_DUE, (now_ms, limit)):
            found.setdefault(row[0] >> LINE_BITS, []).append(PushRow(*row))
        return sum([self._due(self._book.push_lines.by_no[no], found[no], now_ms) for no in found])

    def _due(self, pushes: PushLine, rows: list[PushRow], now_ms: int) -> int:
        line = pushes.line
        assert line is not None, "a push without its queue"
        if pushes.dropped or line.no in self._book.dropped:
            # Nothing comes due any more; these are about to go.
            self._release(pushes, rows)
            return len(rows)
        # What goes together with its message, whose expiry is its own, is left to that.
        rows = [row for row in rows if row.expires_ms is None or row.expires_ms > row.due_ms]
        over = [Failure(row, _SILENCE, row.due_ms, 0) for row in rows if row.state == LEASED]
        ready = [row for row in rows if row.state != LEASED]
        if ready:
            self._release(pushes, ready)
            self._push_rows.wake(pushes, len(ready))
        if over:
            self._outcomes.failed(line, pushes, over, now_ms)
        return len(rows)

    def _release(self, pushes: PushLine, rows: list[PushRow]) -> None:
        self._db.execute(_RELEASE, (keys_json(row.id for row in rows),))
        self._book.touch_pushes(pushes)

    def dropped(self, now_ms: int, limit: int) -> int:
        """End up to `limit` pushes of listeners that are gone."""
        ended = 0
        for pushes in list(self._book.push_lines.dropped.values()):
            if ended < limit:
                ended += self._dropped(pushes, limit - ended, now_ms)
        return ended

    def _dropped(self, pushes: PushLine, limit: int, now_ms: int) -> int:
        line = pushes.line
        bounds = (pushes.base, pushes.base + LANE, limit)
        rows = [PushRow(*row) for row in self._book.rows(_FIRST, bounds)]
        if rows and line:
            self._db.execute(_DELETE_UPTO, (pushes.base, rows[-1].id))
            self._push_rows.left(line, pushes, rows, "listener", now_ms)
            self._kept.release(line, [row.seq for row in rows], now_ms)
        if len(rows) < limit:
            self.forget(pushes)
        return len(rows)

    def forget(self, pushes: PushLine) -> None:
        """Nothing is left of this line."""
        self._db.execute(_DROP_LINE, (pushes.no,))
        self._book.push_lines.forget(pushes)
        self._book.changed = True
