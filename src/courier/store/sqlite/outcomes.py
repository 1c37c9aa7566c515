"""What the outcome of an attempt does to its push, and to the message behind it."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from courier.core.journal import push_detail
from courier.core.types import BROKER, Actor, Origin, Report
from courier.store.sqlite.book import Book
from courier.store.sqlite.kept import Kept
from courier.store.sqlite.line import (
    ACKNOWLEDGED,
    DELAYED,
    EXHAUSTED,
    KEPT,
    READY,
    Line,
    PushLine,
)
from courier.store.sqlite.messages import Messages
from courier.store.sqlite.publishing import Publishing, copy_of
from courier.store.sqlite.push_rows import PushRow, PushRows

_SETTLE = """
UPDATE push SET state = ?, due_ms = ?, status = ?, error = ?, duration_ms = ?, answer = ?
WHERE id = ?
"""
_RETURN = """
UPDATE push
SET state = 0, attempt = attempt - 1, due_ms = ?1,
    first_ms = iif(attempt > 1, first_ms, NULL), last_ms = iif(attempt > 1, last_ms, NULL)
WHERE id = ?2
"""


class Failure(NamedTuple):
    """An attempt that ended at `ended_ms`, to be followed by another unless `delay_ms` is None."""

    row: PushRow
    report: Report
    ended_ms: int
    delay_ms: int | None


class Outcomes:
    """Of attempts in flight, one listener's at a time."""

    def __init__(
        self,
        book: Book,
        push_rows: PushRows,
        kept: Kept,
        messages: Messages,
        publishing: Publishing,
    ) -> None:
        self._book = book
        self._db = book.db
        self._push_rows = push_rows
        self._kept = kept
        self._messages = messages
        self._publishing = publishing

    def arrived(
        self,
        line: Line,
        pushes: PushLine,
        arrivals: Sequence[tuple[PushRow, Report]],
        now_ms: int,
    ) -> None:
        settled = [(ACKNOWLEDGED, 0, *_told(report), row.id) for row, report in arrivals]
        self._db.executemany(_SETTLE, settled)
        rows = [row for row, _ in arrivals]
        pushes.open -= len(rows)
        pushes.in_flight -= len(rows)
        pushes.missed -= sum([row.missed for row in rows])
        pushes.acknowledged += len(rows)
        pushes.last_success_ms = now_ms
        self._book.touch_pushes(pushes)
        detail = [push_detail(pushes.id, report, failed=False) for _, report in arrivals]
        self._push_rows.note("pushed", line, rows, _actor(pushes), now_ms, {"detail": detail})
        self._kept.release(line, [row.seq for row in rows], now_ms)

    def failed(
        self, line: Line, pushes: PushLine, failures: Sequence[Failure], now_ms: int
    ) -> None:
        settled: list[tuple[Any, ...]] = []
        exhausted: list[PushRow] = []
        ready = 0
        for row, report, ended_ms, delay_ms in failures:
            due_ms = ended_ms + (delay_ms or 0)
            if delay_ms is None:
                state = EXHAUSTED
                exhausted.append(row)
            elif due_ms <= now_ms:
                state = READY
                ready += 1
            else:
                state = DELAYED
                self._book.touch_pushes(pushes, due_ms=due_ms)
            settled.append((state, due_ms, *_told(report), row.id))
        self._db.executemany(_SETTLE, settled)
        rows = [failure.row for failure in failures]
        pushes.open -= len(exhausted)
        pushes.in_flight -= len(rows)
        pushes.exhausted += len(exhausted)
        pushes.missed += sum([not row.missed for row in rows])
        pushes.last_failure_ms = now_ms
        self._book.touch_pushes(pushes)
        self._push_rows.wake(pushes, ready)
        columns = {
            "delay_ms": [failure.delay_ms for failure in failures],
            "detail": [push_detail(pushes.id, failure.report, failed=True) for failure in failures],
        }
        self._push_rows.note("push_failed", line, rows, _actor(pushes), now_ms, columns)
        for row in exhausted:
            self._copy_to_dead_letters(line, row, now_ms)
        if exhausted:
            self._kept.release(line, [row.seq for row in exhausted], now_ms)

    def _copy_to_dead_letters(self, line: Line, row: PushRow, now_ms: int) -> None:
        target = self._book.lines.get(line.queue.dead_letter or "")
        if target is None:
            return
        message = self._messages.at(line, row.seq, row.lane)
        message = message or self._messages.at(line, row.seq, KEPT)
        assert message is not None, "a push without its message"
        origin = Origin(line.queue.id, message.id, row.attempt, "push")
        draft = copy_of(message, row.own_id, delay_ms=None if target.queue.fifo else 0)
        self._publishing.insert(target, [draft], BROKER, now_ms, origin=origin)

    def returned(self, pushes: PushLine, rows: Sequence[PushRow], now_ms: int) -> None:
        """These attempts were not made after all."""
        self._db.executemany(_RETURN, [(now_ms, row.id) for row in rows])
        pushes.in_flight -= len(rows)
        self._book.touch_pushes(pushes)
        self._push_rows.wake(pushes, len(rows))


def _told(report: Report) -> tuple[int, str, int, bytes]:
    return report.status, report.error, report.duration_ms, report.answer


def _actor(pushes: PushLine) -> Actor:
    return Actor(pushes.id, "push")
