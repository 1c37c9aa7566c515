"""Checksums of the rows that are mirrored in memory: settings, lines and ranges.

SQLite checks how its pages hang together, and not what the rows say: a bit that the disk got wrong
could be another setting, or a message that nobody gets. A row without a checksum is from before
there were any, or was copied from another store; the start gives it one.
"""

from collections.abc import Iterator, Sequence
from typing import Any
from zlib import crc32

import apsw
import msgspec

# With the columns of their keys, the first ones. The checksum is the last.
_TABLES = {"record": ("kind", "id"), "line": ("no",), "range": ("id",)}
# The schema that brought them.
_SCHEMA = 1_002

_encode = msgspec.msgpack.Encoder().encode


def summed(row: Sequence[Any]) -> tuple[Any, ...]:
    """The row, and its checksum behind it."""
    return (*row, crc32(_encode(row)))


def wrong_row(db: apsw.Connection) -> str:
    """The first row that is not what was written, or nothing."""
    if db.execute("PRAGMA user_version").get < _SCHEMA:
        return ""
    for table in _TABLES:
        try:
            found = next((key for key, _, kept in _wrong(db, table) if kept is not None), None)
        except UnicodeDecodeError:
            return f"a row of {table}"
        if found is not None:
            return " ".join([table, *map(str, found)])
    return ""


def complete(db: apsw.Connection) -> None:
    """Give every row its checksum; what had another has been accepted as it is."""
    for table, keys in _TABLES.items():
        rows = [(right, *key) for key, right, _ in _wrong(db, table)]
        if rows:
            where = " AND ".join(f"{key} = ?" for key in keys)
            with db:
                db.executemany(f"UPDATE {table} SET sum = ? WHERE {where}", rows)


def _wrong(db: apsw.Connection, table: str) -> Iterator[tuple[list[Any], int, int | None]]:
    """Of rows that do not match their checksum: the key, the right one, and the one they have."""
    for *row, kept in db.execute(f"SELECT * FROM {table}"):
        right = summed(row)[-1]
        if kept != right:
            yield row[: len(_TABLES[table])], right, kept
