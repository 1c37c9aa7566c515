"""Handing messages out to listeners, and asking how far they have come."""

from collections.abc import Sequence
from itertools import groupby, takewhile
from typing import Any

from courier import ids
from courier.core.types import (
    Message,
    Push,
    Pushed,
    PushFailed,
    PushSettlement,
    PushStatus,
    Report,
)
from courier.store.sqlite.book import Book
from courier.store.sqlite.delivery import keys_json
from courier.store.sqlite.line import (
    ACKNOWLEDGED,
    EXHAUSTED,
    KEPT,
    LANE,
    LEASED,
    READY,
    SEQ_MASK,
    Line,
    PushLine,
)
from courier.store.sqlite.messages import Messages
from courier.store.sqlite.outcomes import Failure, Outcomes
from courier.store.sqlite.push_rows import PushRow, PushRows
from courier.store.sqlite.retention import Retention

# A backfill may pass over so many messages of other times before it answers.
LOOKED_AT_MAX = 5_000

_READY = """
SELECT p.id, p.attempt, p.state, m.published_ms, m.size, m.content_type, m.own_id, m.headers,
    m.grp, m.expires_ms, m.origin, m.body, m.delay_ms, m.sealed
FROM push AS p INDEXED BY push_ready
CROSS JOIN message AS m ON m.id IN (
    (?1 | (p.id & 4398046511103)) + (p.lane << 42),
    ?1 | (p.id & 4398046511103) | -9223372036854775808)
WHERE p.state = 0 AND p.id > ?2 AND p.id < ?3 ORDER BY p.id LIMIT ?4
"""
_FIRST = """
SELECT p.id, p.attempt, p.state, m.published_ms, m.size, m.content_type, m.own_id, m.headers,
    m.grp, m.expires_ms, m.origin, m.body, m.delay_ms, m.sealed
FROM push AS p INDEXED BY push_open
CROSS JOIN message AS m ON m.id IN (
    (?1 | (p.id & 4398046511103)) + (p.lane << 42),
    ?1 | (p.id & 4398046511103) | -9223372036854775808)
WHERE p.state >= 0 AND p.id > ?2 AND p.id < ?3 ORDER BY p.id LIMIT 1
"""
_TAKE = """
UPDATE push
SET state = 1, attempt = attempt + 1, due_ms = ?, first_ms = coalesce(first_ms, ?), last_ms = ?
WHERE id IN (SELECT value FROM json_each(?))
"""
_RETRY = "UPDATE push SET state = 0, due_ms = ? WHERE id = ?"
_OF_MESSAGE = """
SELECT id >> 43, state, attempt, first_ms, last_ms, due_ms, status, error, duration_ms, answer
FROM push WHERE id IN (SELECT value FROM json_each(?))
"""
_MISSED = """
SELECT published_ms, id & 4398046511103 FROM push INDEXED BY push_missed
WHERE status IS NOT NULL AND state <> -1 AND id > ? AND id < ? ORDER BY id DESC LIMIT ?
"""
_TIMES = "SELECT id, published_ms FROM message WHERE id > ? AND id < ? ORDER BY id LIMIT ?"


class Pushes:
    """Verbs on one listener's line. `sweep.py` lets time pass before each of them."""

    def __init__(
        self,
        book: Book,
        push_rows: PushRows,
        messages: Messages,
        outcomes: Outcomes,
        retention: Retention,
    ) -> None:
        self._book = book
        self._db = book.db
        self._push_rows = push_rows
        self._messages = messages
        self._outcomes = outcomes
        self._retention = retention

    def take(
        self, line: Line, pushes: PushLine, count: int, lease_ms: int, now_ms: int
    ) -> list[Message]:
        rows = self._ready(line, pushes, count, now_ms)
        if not rows:
            return []
        until_ms = now_ms + lease_ms
        keys = keys_json(row[0] for row in rows)
        self._db.execute(_TAKE, (until_ms, now_ms, now_ms, keys))
        pushes.in_flight += len(rows)
        self._book.touch_pushes(pushes, due_ms=until_ms)
        return self._messages.read(line, rows, plus=1)

    def _ready(
        self, line: Line, pushes: PushLine, count: int, now_ms: int
    ) -> list[tuple[Any, ...]]:
        """Rows of what may be handed out, by sequence; none that has expired."""
        if not count or not pushes.open or not self._retention.keep_up(line, now_ms):
            return []
        bounds = (line.base, pushes.base, pushes.base + LANE)
        if pushes.listener.ordered:
            rows = [row for row in self._book.rows(_FIRST, bounds) if row[2] == READY]
        else:
            rows = self._book.rows(_READY, (*bounds, count))
        if self._book.behind(now_ms):
            rows = list(takewhile(lambda row: row[9] is None or row[9] > now_ms, rows))
        return rows

    def settle(
        self, line: Line, pushes: PushLine, items: Sequence[PushSettlement], now_ms: int
    ) -> list[bool]:
        seqs = {item.seq for item in items if 0 < item.seq <= line.tail}
        found = {row.seq: row for row in self._push_rows.at([pushes], seqs)}
        settled: list[tuple[PushSettlement, PushRow]] = []
        done: list[bool] = []
        for item in items:
            row = found.get(item.seq)
            in_flight = row is not None and row.state == LEASED and row.due_ms > now_ms
            if row is None or not in_flight or row.attempt != item.attempt:
                done.append(False)
                continue
            done.append(True)
            settled.append((item, row))
            del found[item.seq]
        for kind, pairs in groupby(settled, key=lambda pair: type(pair[0])):
            self._settle(line, pushes, kind, list(pairs), now_ms)
        if settled and pushes.listener.ordered:
            self._push_rows.wake(pushes, 1)
        return done

    def _settle(
        self,
        line: Line,
        pushes: PushLine,
        kind: type[PushSettlement],
        pairs: Sequence[tuple[PushSettlement, PushRow]],
        now_ms: int,
    ) -> None:
        if kind is Pushed:
            arrivals = [(row, item.report) for item, row in pairs if isinstance(item, Pushed)]
            self._outcomes.arrived(line, pushes, arrivals, now_ms)
        elif kind is PushFailed:
            failures = [
                Failure(row, item.report, now_ms, item.delay_ms)
                for item, row in pairs
                if isinstance(item, PushFailed)
            ]
            self._outcomes.failed(line, pushes, failures, now_ms)
        else:
            self._outcomes.returned(pushes, [row for _, row in pairs], now_ms)

    def retry(self, line: Line, pushes: PushLine, seq: int, now_ms: int) -> bool:
        rows = self._push_rows.at([pushes], [seq]) if 0 < seq <= line.tail else []
        if not rows or not rows[0].missed or rows[0].state == LEASED:
            return False
        [row] = rows
        self._db.execute(_RETRY, (now_ms, row.id))
        if row.state == EXHAUSTED:
            pushes.exhausted -= 1
            pushes.open += 1
        self._book.touch_pushes(pushes)
        if row.state != READY:
            self._push_rows.wake(pushes, 1)
        return True

    # --- asking ---

    def of_message(self, line: Line, seq: int) -> list[Push]:
        there = {pushes.no: pushes for pushes in line.push_lines if not pushes.dropped}
        if not there or not 0 < seq <= line.tail:
            return []
        keys = keys_json(pushes.base | seq for pushes in there.values())
        rows = {row[0]: row[1:] for row in self._book.rows(_OF_MESSAGE, (keys,))}
        return [_push(there[no].id, seq, rows[no]) for no in there if no in rows]

    def missed(self, line: Line, pushes: PushLine, limit: int) -> list[str]:
        bounds = (pushes.base, pushes.base + LANE, limit)
        rows: list[Any] = self._book.rows(_MISSED, bounds)
        return ids.message_ids(rows, queue=line.id)

    # --- binding later ---

    def backfill(
        self,
        line: Line,
        pushes: PushLine,
        times: tuple[int, int],
        after_seq: int,
        limit: int,
        now_ms: int,
    ) -> tuple[int, int]:
        """Bind messages of these times; see `core/store.py` for the answer."""
        rows: list[tuple[Any, ...]] = []
        for lane in (0, 1, KEPT):
            bounds = (line.message_key(after_seq, lane), line.message_key(0, lane) + LANE)
            rows += self._book.rows(_TIMES, (*bounds, LOOKED_AT_MAX))
        rows.sort(key=lambda row: row[0] & SEQ_MASK)
        rows = rows[:LOOKED_AT_MAX]
        since_ms, until_ms = times
        chosen = [key for key, ms in rows if since_ms <= ms < until_ms][:limit]
        bound = self._push_rows.bind_late(pushes, chosen, now_ms) if chosen else 0
        if len(chosen) < limit and len(rows) == LOOKED_AT_MAX:
            return bound, rows[-1][0] & SEQ_MASK
        return bound, chosen[-1] & SEQ_MASK if chosen else 0


def _push(listener: str, seq: int, row: tuple[Any, ...]) -> Push:
    state, attempts, first_ms, last_ms, due_ms, *report = row
    waits = state not in (LEASED, ACKNOWLEDGED, EXHAUSTED)
    return Push(
        listener,
        seq,
        _status(state, attempts),
        attempts,
        first_ms,
        last_ms,
        due_ms if waits else None,
        Report(*report) if report[0] is not None else None,
    )


def _status(state: int, attempts: int) -> PushStatus:
    if state == LEASED:
        return "in_flight"
    if state == ACKNOWLEDGED:
        return "acknowledged"
    if state == EXHAUSTED:
        return "exhausted"
    return "retrying" if attempts else "pending"
