"""The groups of FIFO queues: which of them may be handed out, and what is taken of them.

Every group that holds a message has a row in `grp`, kept up to date by whatever happens to its
messages. Groups of dropped queues are left alone until the queue itself is gone.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from courier.store.sqlite.book import WAKE_MAX, Book
from courier.store.sqlite.delivery import Delivery, keys_json
from courier.store.sqlite.line import DELAYED, LANE, LEASED, NEVER_MS, SEQ_MASK, Line

_BEGIN = "INSERT INTO grp VALUES (?, ?, 0, ?, ?) ON CONFLICT DO NOTHING"
_READY = """
SELECT name FROM grp INDEXED BY grp_ready
WHERE ready = 1 AND head > ? AND head < ? ORDER BY head LIMIT ?
"""
_FIRST = """
SELECT m.id, coalesce(d.attempt, 0), d.state, m.published_ms, m.size, m.content_type, m.own_id,
    m.headers, m.grp, m.expires_ms, m.origin, m.body, m.delay_ms, m.sealed
FROM message AS m INDEXED BY message_group
LEFT JOIN delivery AS d ON d.id = (m.id & ~4398046511104)
WHERE m.grp = ? AND m.id > ? AND m.id < ? ORDER BY m.id LIMIT ?
"""
_FIRST_KEYS = """
SELECT m.id, coalesce(d.attempt, 0), d.state, m.published_ms, m.size, NULL, m.own_id, NULL, m.grp,
    m.expires_ms
FROM message AS m INDEXED BY message_group
LEFT JOIN delivery AS d ON d.id = (m.id & ~4398046511104)
WHERE m.grp = ? AND m.id > ? AND m.id < ? ORDER BY m.id LIMIT ?
"""
_LEASE_FRESH = """
INSERT INTO delivery
SELECT id & ~4398046511104, 1, 1, 1, ?, published_ms, ?, ?, size, own_id, ?
FROM message WHERE id IN (SELECT value FROM json_each(?))
"""
_BLOCK = "UPDATE grp SET leased = leased + ?, ready = 0 WHERE no = ? AND name = ?"
_NAMES = "SELECT id, grp FROM message WHERE id IN (SELECT value FROM json_each(?))"
_HEAD = """
SELECT id & ~4398046511104 FROM message INDEXED BY message_group
WHERE grp = ? AND id > ? AND id < ? ORDER BY id LIMIT 1
"""
_REFRESH = """
UPDATE grp SET leased = leased - ?1, head = ?2, ready = (
    leased = ?1 AND NOT EXISTS (SELECT 1 FROM delivery WHERE id = ?2 AND state = 2))
WHERE no = ?3 AND name = ?4 RETURNING ready
"""
_END = "DELETE FROM grp WHERE no = ? AND name = ?"
_END_ALL = "DELETE FROM grp WHERE no = ?"
_DELAY = """
INSERT INTO delivery
SELECT id & ~4398046511104, 2, 1, 0, published_ms + ?1, published_ms, NULL, NULL, size, own_id,
    NULL
FROM message
WHERE id > ?2 AND id < ?3 AND delay_ms IS NULL AND published_ms + ?1 > ?4
ON CONFLICT (id) DO UPDATE SET state = 2, due_ms = excluded.due_ms WHERE attempt = 0
"""
_UNDELAY = """
UPDATE delivery SET state = 0, due_ms = 0
WHERE id > ?2 AND id < ?3 AND state = 2 AND attempt = 0 AND published_ms + ?1 <= ?4
    AND EXISTS (
        SELECT 1 FROM message AS m
        WHERE m.id = (delivery.id | 4398046511104) AND m.delay_ms IS NULL)
"""
_REFRESH_ALL = """
UPDATE grp SET ready = NOT EXISTS (SELECT 1 FROM delivery WHERE id = head AND state = 2)
WHERE no = ? AND leased = 0
"""
_RECOUNT = """
SELECT count(*) FILTER (WHERE state = 2), count(*) FILTER (WHERE state = 0),
    min(due_ms) FILTER (WHERE state = 2)
FROM delivery WHERE id > ? AND id < ?
"""


class Groups:
    def __init__(self, book: Book) -> None:
        self._book = book
        self._db = book.db

    def published(
        self, line: Line, rows: Iterable[tuple[Any, ...]], delays: Mapping[int, int]
    ) -> None:
        """Rows of messages were stored, in order; `delays` holds the delay of some, by sequence."""
        first: dict[str, tuple[int, str, int, bool]] = {}
        for row in rows:
            name, key = row[6], row[0] & ~LANE
            if name not in first:
                first[name] = (line.no, name, key, key & SEQ_MASK not in delays)
        self._db.executemany(_BEGIN, first.values())

    def ready(self, line: Line, count: int, *, whole: bool) -> list[tuple[Any, ...]]:
        """Rows of what may be handed out, the group with the oldest message first."""
        first = _FIRST if whole else _FIRST_KEYS
        base = line.base
        rows: list[tuple[Any, ...]] = []
        for (name,) in self._book.rows(_READY, (base, base + LANE, count)):
            bounds = (name, base + LANE, base + 2 * LANE, count - len(rows))
            for row in self._book.rows(first, bounds):
                if row[2] == DELAYED:
                    break
                rows.append(row)
            if len(rows) == count:
                break
        return rows

    def lease(
        self,
        line: Line,
        rows: Iterable[tuple[Any, ...]],
        until_ms: int,
        now_ms: int,
        claim: int | None,
    ) -> None:
        """Rows of `ready` are handed out: block their groups, and begin deliveries of new ones."""
        fresh: list[int] = []
        leases: dict[str, int] = {}
        for row in rows:
            if row[2] is None:
                fresh.append(row[0])
            leases[row[8]] = leases.get(row[8], 0) + 1
        if fresh:
            self._db.execute(_LEASE_FRESH, (until_ms, now_ms, now_ms, claim, keys_json(fresh)))
        self._db.executemany(_BLOCK, [(n, line.no, name) for name, n in leases.items()])

    def of(self, line: Line, deliveries: Iterable[Delivery]) -> dict[str, int]:
        """The groups of these messages, with how many of them are leased. Read before they go."""
        if line.no in self._book.dropped:
            return {}
        states = {delivery.id | LANE: delivery.state for delivery in deliveries}
        leases: dict[str, int] = {}
        for key, name in self._book.rows(_NAMES, (keys_json(states),)):
            leases[name] = leases.get(name, 0) + (states[key] == LEASED)
        return leases

    def refresh(self, line: Line, leases: Mapping[str, int]) -> None:
        """Something happened to messages of these groups, and so many leases of each ended."""
        base = line.base
        ready = False
        for name, ended in leases.items():
            head = self._db.execute(_HEAD, (name, base + LANE, base + 2 * LANE)).get
            if head is None:
                self._db.execute(_END, (line.no, name))
            elif self._db.execute(_REFRESH, (ended, head, line.no, name)).get:
                ready = True
        if ready:
            self._book.wake(line, min(line.count, WAKE_MAX))

    def delay(self, line: Line, delay_ms: int, now_ms: int) -> None:
        """The queue's delay changes, for whatever has none of its own and was never attempted."""
        base = line.base
        if delay_ms:
            self._db.execute(_DELAY, (delay_ms, base + LANE, base + 2 * LANE, now_ms))
        self._db.execute(_UNDELAY, (delay_ms, base, base + LANE, now_ms))
        self._db.execute(_REFRESH_ALL, (line.no,))
        counts = self._book.row(_RECOUNT, (base, base + LANE))
        assert counts is not None, "a query without GROUP BY has a row"
        line.delayed, line.again, due_ms = counts
        self._book.touch(line, due_ms=due_ms or NEVER_MS)

    def end_all(self, line: Line) -> None:
        self._db.execute(_END_ALL, (line.no,))
