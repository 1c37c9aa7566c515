"""What has happened: the journal, tallies and levels, read, trimmed and summed up."""

import threading
from collections.abc import Iterable
from itertools import takewhile
from pathlib import Path
from typing import Any

import apsw
import msgspec

from courier.core.types import DAY_MS, MINUTE_MS, Level, Run, Tally
from courier.store.disk_sqlite.connection import connect, disk_errors
from courier.store.sqlite import claims
from courier.store.sqlite.book import Book
from courier.store.sqlite.line import NEVER_MS, Line

MINUTES_KEPT_MS = 16 * DAY_MS
HOURS_KEPT_MS = 460 * DAY_MS
LEVELS_KEPT_MS = 16 * DAY_MS

_RUNS = "SELECT last, count, data FROM journal WHERE last > ? ORDER BY last"
_ROW_AT = "SELECT last, at_ms, data FROM journal WHERE last > ? ORDER BY last LIMIT 1"
_LAST = "SELECT last FROM journal ORDER BY last DESC LIMIT 1"
_TALLIES = """
SELECT minute, queue, kind, count, bytes FROM minute INDEXED BY minute_tenant
WHERE tenant = ? AND minute >= ? AND minute < ? ORDER BY minute, queue, kind
"""
_TALLIES_OF = """
SELECT minute, queue, kind, count, bytes FROM minute INDEXED BY minute_queue
WHERE queue = ? AND tenant = ? AND minute >= ? AND minute < ? ORDER BY minute, kind
"""
_LEVELS = """
SELECT minute, count, leased, delayed FROM level WHERE queue = ? AND minute >= ? ORDER BY minute
"""
_OLD = """
SELECT last, at_ms FROM journal
WHERE last <= ? AND last < (SELECT max(last) FROM journal) ORDER BY last LIMIT 1000
"""
_TRIM = "DELETE FROM journal WHERE last <= ?"
_FORGET_ONCE = """
DELETE FROM once WHERE (subscription, key) IN (
    SELECT subscription, key FROM once WHERE until_ms <= ? LIMIT ?)
"""
_FORGET_ROWS = """
DELETE FROM rows_stored WHERE (subscription, key) IN (
    SELECT subscription, key FROM rows_stored WHERE until_ms <= ? LIMIT ?)
"""
_FORGET_CLAIMS = """
DELETE FROM claim WHERE no IN (SELECT no FROM claim WHERE until_ms <= ? LIMIT ?)
"""
_FORGET_LEVELS = """
DELETE FROM level WHERE (queue, minute) IN (
    SELECT queue, minute FROM level WHERE minute < ? LIMIT ?)
"""
_FORGET_TALLIES = """
DELETE FROM minute WHERE (minute, queue, kind) IN (
    SELECT minute, queue, kind FROM minute WHERE minute < ? LIMIT ?)
"""
_ROLLED = "SELECT rolled FROM meta"
_SUM_UP = """
INSERT INTO minute (minute, queue, kind, tenant, count, bytes)
SELECT minute - minute % 60, queue, kind, tenant, count, bytes FROM minute
WHERE minute >= ? AND minute < ? AND minute % 60 > 0 ORDER BY minute, queue, kind LIMIT ?
ON CONFLICT DO UPDATE SET count = count + excluded.count, bytes = bytes + excluded.bytes
"""
_FORGET_SUMMED = """
DELETE FROM minute WHERE (minute, queue, kind) IN (
    SELECT minute, queue, kind FROM minute
    WHERE minute >= ? AND minute < ? AND minute % 60 > 0 ORDER BY minute, queue, kind LIMIT ?)
"""
_SAVE_ROLLED = "UPDATE meta SET rolled = ?"
_CACHE_BYTES = 2_000_000

_NO_RUNS = msgspec.msgpack.encode([])
_decode = msgspec.msgpack.Decoder(list[Run]).decode


class History:
    """Reads committed rows on threads of its own, so that a long read holds up nobody."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._local = threading.local()

    def _connection(self) -> apsw.Connection:
        if not hasattr(self._local, "db"):
            self._local.db = connect(self._path, cache_bytes=_CACHE_BYTES, readonly=True)
        connection: apsw.Connection = self._local.db
        return connection

    def runs(self, after: int, limit: int, bytes_max: int | None) -> list[Run]:
        runs: list[Run] = []
        found = size = 0
        with disk_errors():
            rows: Iterable[tuple[int, int, bytes]] = self._connection().execute(_RUNS, (after,))
            for last, count, data in rows:
                runs += _decode(data)
                found += min(count, last - after)
                size += len(data)
                if found >= limit or (bytes_max is not None and size >= bytes_max):
                    break
        return runs

    def offset_at(self, at_ms: int) -> int:
        """Rows lie in the order of their times, so the first of that time is found by halving."""
        with disk_errors():
            execute = self._connection().execute
            before, upto = 0, execute(_LAST).get or 0
            data = _NO_RUNS
            while before < upto:
                middle = (before + upto) // 2
                for last, row_ms, row_data in execute(_ROW_AT, (middle,)):
                    if row_ms < at_ms:
                        before = last
                    else:
                        upto, data = middle, row_data
        return next((run.offset - 1 for run in _decode(data) if run.at_ms >= at_ms), before)

    def tallies(self, tenant: str, id: str | None, since_ms: int, until_ms: int) -> list[Tally]:
        minutes = (since_ms // MINUTE_MS, -(-until_ms // MINUTE_MS))
        with disk_errors():
            execute = self._connection().execute
            if id is None:
                rows = execute(_TALLIES, (tenant, *minutes))
            else:
                rows = execute(_TALLIES_OF, (id, tenant, *minutes))
            return [Tally(*row) for row in rows]

    def levels(self, queue: str, since_ms: int) -> list[Level]:
        with disk_errors():
            rows = self._connection().execute(_LEVELS, (queue, since_ms // MINUTE_MS))
            return [Level(*row) for row in rows]

    def claimed(
        self,
        line: Line,
        name: str,
        first: int,
        count: int,
        bytes_max: int | None,
        behind: bool,
        now_ms: int,
    ) -> list[tuple[Any, ...]]:
        """Rows of a claim's messages, see `claims.py`."""
        with disk_errors():
            return claims.messages(
                self._connection(),
                line,
                name,
                first=first,
                count=count,
                bytes_max=bytes_max,
                behind=behind,
                now_ms=now_ms,
            )


def trim(book: Book, upto: int, before_ms: int | None) -> int:
    """Forget the oldest rows, never the newest one: it says where the journal ends."""
    old_ms = NEVER_MS if before_ms is None else before_ms
    # Row by row: most of the time the first one is too young, and the others stay unread.
    old = takewhile(lambda row: row[1] < old_ms, book.db.execute(_OLD, (upto,)))
    last: int = max((last for last, _ in old), default=0)
    if not last:
        return 0
    book.db.execute(_TRIM, (last,))
    book.changed = True
    return last + 1 - book.journal_first


def forget(book: Book, limit: int, now_ms: int) -> bool:
    """Up to `limit` publish keys, claims, levels and tallies that nobody will ask for any more.

    Tallies of minutes are first summed up by the hour. False: there is more to forget.
    """
    hours = (now_ms - HOURS_KEPT_MS) // MINUTE_MS
    minutes = (now_ms - MINUTES_KEPT_MS) // MINUTE_MS
    levels = (now_ms - LEVELS_KEPT_MS) // MINUTE_MS
    old = (book.db.execute(_ROLLED).get, minutes, limit)
    forgotten = [
        _changes(book, _FORGET_ONCE, (now_ms, limit)),
        _changes(book, _FORGET_CLAIMS, (now_ms, limit)),
        _changes(book, _FORGET_ROWS, (now_ms, limit)),
        _changes(book, _FORGET_LEVELS, (levels, limit)),
        _changes(book, _FORGET_TALLIES, (hours, limit)),
    ]
    book.db.execute(_SUM_UP, old)
    summed = _changes(book, _FORGET_SUMMED, old)
    if 0 < summed < limit:
        book.db.execute(_SAVE_ROLLED, (minutes,))
    return max(*forgotten, summed) < limit


def _changes(book: Book, sql: str, values: tuple[int, ...]) -> int:
    book.db.execute(sql, values)
    changes = book.db.connection.changes()
    if changes:
        book.changed = True
    return changes
