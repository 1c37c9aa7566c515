"""Pushes as their messages come and go: bound when a message is stored, ended when it is gone."""

from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

from courier.core.types import BROKER, Actor
from courier.store.sqlite.book import Book, packed
from courier.store.sqlite.delivery import keys_json
from courier.store.sqlite.line import (
    ACKNOWLEDGED,
    EXHAUSTED,
    LANE,
    LEASED,
    LINE_BITS,
    READY,
    SEQ_MASK,
    Line,
    PushLine,
)

_BIND = """
INSERT INTO push (id, state, lane, attempt, due_ms, published_ms, size, own_id, expires_ms)
SELECT l.value | (m.id & 4398046511103), 2 * (coalesce(m.delay_ms, ?4) > 0), (m.id >> 42) & 1, 0,
    m.published_ms + coalesce(m.delay_ms, ?4), m.published_ms, m.size, m.own_id, m.expires_ms
FROM json_each(?1) AS l CROSS JOIN message AS m WHERE m.id > ?2 AND m.id <= ?3
"""
_BIND_LATE = """
INSERT INTO push (id, state, lane, attempt, due_ms, published_ms, size, own_id, expires_ms)
SELECT ?1 | (id & 4398046511103), 0, (id >> 42) & 1, 0, ?2, published_ms, size, own_id, expires_ms
FROM message WHERE id IN (SELECT value FROM json_each(?3))
ON CONFLICT DO NOTHING
"""
_FIRST_OPEN = """
SELECT state FROM push INDEXED BY push_open WHERE state >= 0 AND id > ? AND id < ?
ORDER BY id LIMIT 1
"""
_AT = """
SELECT id, state, lane, attempt, due_ms, published_ms, size, own_id, expires_ms, status
FROM push WHERE id IN (SELECT value FROM json_each(?))
"""
_UNACKNOWLEDGED = """
SELECT id & 4398046511103 FROM push
WHERE id IN (SELECT value FROM json_each(?)) AND state <> -1
"""
_OPEN = """
SELECT id & 4398046511103 FROM push
WHERE id IN (SELECT value FROM json_each(?)) AND state >= 0
"""
_DELETE = "DELETE FROM push WHERE id IN (SELECT value FROM json_each(?))"


class PushRow(NamedTuple):
    """An open one has a state of 0 or more. `status` None: the outcome of no attempt is known."""

    id: int
    state: int
    lane: int
    attempt: int
    due_ms: int
    published_ms: int
    size: int
    own_id: str | None
    expires_ms: int | None
    status: int | None

    @property
    def seq(self) -> int:
        return self.id & SEQ_MASK

    @property
    def missed(self) -> bool:
        return self.status is not None and self.state != ACKNOWLEDGED


class PushRows:
    def __init__(self, book: Book) -> None:
        self._book = book
        self._db = book.db

    # --- coming ---

    def bind(self, line: Line, seqs: range, *, delayed: int, only: PushLine | None = None) -> None:
        """Messages were stored, `delayed` of them with a delay: one push for each listener.

        `only`: for this one alone.
        """
        there = [only] if only else [pushes for pushes in line.push_lines if not pushes.dropped]
        if not there:
            return
        bases = keys_json(pushes.base for pushes in there)
        delay_ms = line.queue.delay_ms if line.queue.fifo else 0
        first, last = line.base | seqs.start - 1, line.base | seqs.stop - 1
        if not line.queue.fifo:
            self._db.execute(_BIND, (bases, first, last, delay_ms))
        if line.queue.fifo or delayed:
            self._db.execute(_BIND, (bases, first + LANE, last + LANE, delay_ms))
        for pushes in there:
            pushes.open += len(seqs)
            self._book.touch_pushes(pushes)
            self.wake(pushes, len(seqs) - delayed)

    def bind_late(self, pushes: PushLine, keys: Collection[int], now_ms: int) -> int:
        """The same for messages that were there before the listener; returns how many were new."""
        self._db.execute(_BIND_LATE, (pushes.base, now_ms, keys_json(keys)))
        count = self._db.connection.changes()
        if count:
            pushes.open += count
            self._book.touch_pushes(pushes)
            self.wake(pushes, count)
        return count

    def wake(self, pushes: PushLine, count: int) -> None:
        """So many pushes have become ready, or one has made way for the next."""
        if count and pushes.listener.ordered:
            bounds = (pushes.base, pushes.base + LANE)
            count = int(self._db.execute(_FIRST_OPEN, bounds).get == READY)
        self._book.wake(pushes, count)

    # --- going ---

    def unacknowledged(self, line: Line, seqs: Collection[int]) -> set[int]:
        """Those of the messages that a listener has still to get."""
        owing = [pushes for pushes in line.push_lines if pushes.open or pushes.exhausted]
        if not owing:
            return set()
        return {seq for (seq,) in self._book.rows(_UNACKNOWLEDGED, (_keys(owing, seqs),))}

    def owed(self, line: Line, seqs: Collection[int]) -> set[int]:
        """Those of the messages that have an open push."""
        owing = [pushes for pushes in line.push_lines if pushes.open]
        if not owing or not seqs:
            return set()
        return {seq for (seq,) in self._book.rows(_OPEN, (_keys(owing, seqs),))}

    def end(self, line: Line, seqs: Collection[int], reason: str, now_ms: int) -> None:
        """These messages are gone, and their pushes go with them."""
        owing = [pushes for pushes in line.push_lines if pushes.open or pushes.exhausted]
        found: dict[int, list[PushRow]] = {pushes.no: [] for pushes in owing}
        for row in self.at(owing, seqs) if owing else ():
            found[row.id >> LINE_BITS].append(row)
        self._db.execute(_DELETE, (_keys(line.push_lines, seqs),))
        for pushes in owing:
            self.left(line, pushes, found[pushes.no], reason, now_ms)

    def at(self, lines: Iterable[PushLine], seqs: Collection[int]) -> list[PushRow]:
        return [PushRow(*row) for row in self._book.rows(_AT, (_keys(lines, seqs),))]

    def left(
        self, line: Line, pushes: PushLine, rows: Sequence[PushRow], reason: str, now_ms: int
    ) -> None:
        """Rows of one listener were deleted: count them, and tell which were open."""
        dropped = [row for row in rows if row.state >= 0]
        pushes.open -= len(dropped)
        pushes.in_flight -= sum([row.state == LEASED for row in dropped])
        pushes.exhausted -= sum([row.state == EXHAUSTED for row in rows])
        pushes.missed -= sum([row.missed for row in rows])
        self._book.touch_pushes(pushes)
        if dropped:
            detail = {"listener": pushes.id, "reason": reason}
            self.note("push_dropped", line, dropped, BROKER, now_ms, {"detail": detail})
            if pushes.listener.ordered:
                self.wake(pushes, 1)

    def note(
        self,
        kind: str,
        line: Line,
        rows: Sequence[PushRow],
        actor: Actor,
        now_ms: int,
        extra: dict[str, Any],
    ) -> None:
        """One event for each of these pushes."""
        sizes = [row.size for row in rows]
        columns: dict[str, Any] = {
            "seq": [row.seq for row in rows],
            "published_ms": packed([row.published_ms for row in rows]),
            "size": packed(sizes),
            "attempt": packed([row.attempt for row in rows]),
            **extra,
        }
        own = [row.own_id for row in rows]
        if own.count(None) != len(own):
            columns["own_id"] = own
        self._book.note(
            kind,
            line.queue,
            count=len(rows),
            size=sum(sizes),
            actor=actor,
            now_ms=now_ms,
            columns=columns,
        )


def _keys(lines: Iterable[PushLine], seqs: Collection[int]) -> str:
    bases = [pushes.base for pushes in lines]
    return keys_json([base | seq for base in bases for seq in seqs])
