"""Claims: many messages leased together, under a name."""

from bisect import bisect_right
from contextlib import closing
from itertools import accumulate
from typing import Any, NamedTuple

import apsw

from courier.core.errors import ClaimLost, NotFound
from courier.core.types import CLAIM_KNOWN_MS, DAY_MS, Actor
from courier.store.sqlite.book import Book, packed
from courier.store.sqlite.delivery import Delivery
from courier.store.sqlite.endings import Endings
from courier.store.sqlite.leases import Leases
from courier.store.sqlite.line import SEQ_MASK, Line

_FIND = """
SELECT no, count, acked FROM claim WHERE subscription = ? AND name = ? AND until_ms > ?
"""
_SAVE = """
INSERT OR REPLACE INTO claim (subscription, name, count, until_ms) VALUES (?, ?, ?, ?)
RETURNING no
"""
_EXTEND = "UPDATE claim SET until_ms = ? WHERE no = ?"
_EXTEND_DELIVERIES = """
UPDATE delivery INDEXED BY delivery_claim SET due_ms = ? WHERE claim = ?
"""
_ACK = "UPDATE claim SET acked = 1, until_ms = ? WHERE no = ?"
_FORGET = "DELETE FROM claim WHERE subscription = ? AND name = ? AND acked = 1"
_COUNT = "SELECT count(*) FROM delivery INDEXED BY delivery_claim WHERE claim = ?"
_FIRST_END = """
SELECT min(min(d.due_ms), min(coalesce(m.expires_ms, m.published_ms + ?)))
FROM delivery AS d INDEXED BY delivery_claim
CROSS JOIN message AS m ON m.id = (d.id | (d.lane << 42))
WHERE d.claim = ?
"""
_DELIVERIES = """
SELECT id, state, lane, attempt, due_ms, published_ms, first_ms, last_ms, size, own_id
FROM delivery INDEXED BY delivery_claim WHERE claim = ? ORDER BY id
"""
_SIZES = """
SELECT size FROM delivery INDEXED BY delivery_claim WHERE claim = ? ORDER BY id LIMIT ? OFFSET ?
"""
_MESSAGES = """
SELECT m.id, d.attempt, d.state, m.published_ms, m.size, m.content_type, m.own_id, m.headers, m.grp,
    m.expires_ms, m.origin, m.body, m.delay_ms, m.sealed
FROM (
    SELECT id, attempt, state, lane FROM delivery INDEXED BY delivery_claim
    WHERE claim = ? ORDER BY id LIMIT ? OFFSET ?
) AS d CROSS JOIN message AS m ON m.id = (d.id | (d.lane << 42))
"""


class Claim(NamedTuple):
    no: int
    total: int
    acked: int


class Claims:
    """Verbs on one queue's line. `sweep.py` lets time pass before each of them."""

    def __init__(self, book: Book, leases: Leases, endings: Endings) -> None:
        self._book = book
        self._db = book.db
        self._leases = leases
        self._endings = endings

    def claim(
        self, line: Line, name: str, count: int, lease_ms: int, actor: Actor, now_ms: int
    ) -> int:
        found = _find(self._db, line, name, now_ms)
        if found is not None:
            if not found.acked:
                self._require(line, name, found, now_ms)
            return found.total
        rows = self._leases.ready(line, count, now_ms, whole=False) if count > 0 else []
        if rows:
            known_ms = now_ms + lease_ms + DAY_MS
            no = self._db.execute(_SAVE, (line.no, name, len(rows), known_ms)).get
            self._leases.hand_out(line, rows, count, lease_ms, actor, now_ms, claim=no)
        return len(rows)

    def extend(self, line: Line, name: str, lease_ms: int, actor: Actor, now_ms: int) -> None:
        claim = self._standing(line, name, now_ms)
        deliveries = self._deliveries(claim)
        until_ms = now_ms + lease_ms
        self._db.execute(_EXTEND_DELIVERIES, (until_ms, claim.no))
        self._db.execute(_EXTEND, (until_ms + DAY_MS, claim.no))
        self._book.touch(line, due_ms=until_ms)
        _, _, _, attempts, _, published, _, _, sizes, own = zip(*deliveries, strict=True)
        columns: dict[str, Any] = {
            "seq": [delivery.id & SEQ_MASK for delivery in deliveries],
            "published_ms": packed(published),
            "size": packed(sizes),
            "attempt": packed(attempts),
            "lease_ms": lease_ms,
        }
        if own.count(None) != claim.total:
            columns["own_id"] = own
        self._book.note(
            "extended",
            line.queue,
            count=claim.total,
            size=sum(sizes),
            actor=actor,
            now_ms=now_ms,
            columns=columns,
        )

    def ack(self, line: Line, name: str, actor: Actor, now_ms: int, *, after: str | None) -> None:
        claim = _known(self._db, line, name, now_ms)
        if not claim.acked:
            self._require(line, name, claim, now_ms)
            self._endings.end(line, "acked", self._deliveries(claim), actor, now_ms)
            known_ms = DAY_MS if after is None else CLAIM_KNOWN_MS
            self._db.execute(_ACK, (now_ms + known_ms, claim.no))
        if after and after != name:
            self._db.execute(_FORGET, (line.no, after))
            self._book.changed = True

    def _deliveries(self, claim: Claim) -> list[Delivery]:
        return [Delivery(*row) for row in self._book.rows(_DELIVERIES, (claim.no,))]

    def _standing(self, line: Line, name: str, now_ms: int) -> Claim:
        claim = _known(self._db, line, name, now_ms)
        self._require(line, name, claim, now_ms)
        return claim

    def _require(self, line: Line, name: str, claim: Claim, now_ms: int) -> None:
        """Raises ClaimLost."""
        if not _intact(self._db, line, claim, now_ms, behind=self.behind(line, now_ms)):
            raise ClaimLost(name)

    def behind(self, line: Line, now_ms: int) -> bool:
        """Something may have ended that is still there, because the sweep is not through."""
        return self._book.behind(now_ms) or line.expiry_ms <= now_ms


def messages(
    db: apsw.Connection,
    line: Line,
    name: str,
    *,
    first: int,
    count: int,
    bytes_max: int | None,
    behind: bool,
    now_ms: int,
) -> list[tuple[Any, ...]]:
    """Rows of a claim's messages; on any connection, while others write."""
    # What is read belongs together; a cursor left open would keep later readers at this moment.
    with db, closing(db.cursor()) as cursor:
        claim = _known(cursor, line, name, now_ms)
        if claim.acked or not _intact(cursor, line, claim, now_ms, behind=behind):
            raise ClaimLost(name)
        if bytes_max is not None:
            count = min(count, _fitting(cursor, claim, first, count, bytes_max))
        rows = cursor.execute(_MESSAGES, (claim.no, count, first)).fetchall()
    return rows


def _fitting(db: apsw.Cursor, claim: Claim, first: int, count: int, bytes_max: int) -> int:
    """How many messages from `first` on fit into so many bytes; one always does."""
    sizes: list[Any] = db.execute(_SIZES, (claim.no, count, first)).fetchall()
    totals: list[int] = list(accumulate(size for (size,) in sizes))
    return max(1, bisect_right(totals, bytes_max))


def _find(db: apsw.Cursor, line: Line, name: str, now_ms: int) -> Claim | None:
    row = db.execute(_FIND, (line.no, name, now_ms)).fetchone()
    return Claim(*row) if row else None


def _known(db: apsw.Cursor, line: Line, name: str, now_ms: int) -> Claim:
    claim = _find(db, line, name, now_ms)
    if claim is None:
        raise NotFound("claim", name)
    return claim


def _intact(db: apsw.Cursor, line: Line, claim: Claim, now_ms: int, *, behind: bool) -> bool:
    if db.execute(_COUNT, (claim.no,)).get != claim.total:
        return False
    if not behind:
        return True
    first_end_ms: int = db.execute(_FIRST_END, (line.queue.retention_ms, claim.no)).get
    return first_end_ms > now_ms
