"""Reading and trimming the journal."""

import threading
from collections.abc import Iterable
from pathlib import Path

import apsw
import msgspec

from courier.core.types import Run
from courier.store.sqlite.book import NEVER_MS, Book
from courier.store.sqlite.connection import connect, disk_errors

_READ = "SELECT last, count, data FROM journal WHERE last > ? ORDER BY last"
_OLD = """
SELECT last, at_ms FROM journal
WHERE last <= ? AND last < (SELECT max(last) FROM journal) ORDER BY last LIMIT 1000
"""
_TRIM = "DELETE FROM journal WHERE last <= ?"
_CACHE_BYTES = 2_000_000

_decode = msgspec.msgpack.Decoder(list[Run]).decode


class JournalReader:
    """Reads committed rows on threads of its own, so that a long read holds up nobody."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._local = threading.local()

    def _connection(self) -> apsw.Connection:
        if not hasattr(self._local, "db"):
            self._local.db = connect(self._path, cache_bytes=_CACHE_BYTES, readonly=True)
        connection: apsw.Connection = self._local.db
        return connection

    def read(self, after: int, limit: int) -> list[Run]:
        runs: list[Run] = []
        found = 0
        with disk_errors():
            rows: Iterable[tuple[int, int, bytes]] = self._connection().execute(_READ, (after,))
            for last, count, data in rows:
                runs += _decode(data)
                found += min(count, last - after)
                if found >= limit:
                    break
        return runs


def trim(book: Book, upto: int, before_ms: int | None) -> int:
    """Forget the oldest rows, never the newest one: it says where the journal ends."""
    old_ms = NEVER_MS if before_ms is None else before_ms
    last = 0
    for row_last, at_ms in book.rows(_OLD, (upto,)):
        if at_ms >= old_ms:
            break
        last = row_last
    if not last:
        return 0
    book.db.execute(_TRIM, (last,))
    book.changed = True
    return last + 1 - book.journal_first
