"""Opening the database file, and what its errors mean."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import apsw

from courier import files
from courier.core.errors import StoreUnavailable

WAL_PAGES_MAX = 4_000

# What a full, broken or locked disk raises. Anything else from the driver is a bug of ours.
DISK_ERRORS = (
    apsw.FullError,
    apsw.IOError,
    apsw.CantOpenError,
    apsw.ReadOnlyError,
    apsw.BusyError,
    apsw.LockedError,
    apsw.CorruptError,
    apsw.NotADBError,
)


@contextmanager
def disk_errors() -> Iterator[None]:
    try:
        yield
    except DISK_ERRORS as error:
        raise StoreUnavailable(str(error)) from error


def claim(path: Path) -> IO[str]:
    """Make sure that no other process works on this file, for as long as the result is open."""
    # Files that SQLite adds later have the mode of the first one.
    for each in (path, file := Path(f"{path}.lock")):
        files.create(each)
    lock = file.open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        lock.close()
        raise StoreUnavailable(f"another courier process is using {path}") from error
    return lock


def connect(path: Path, *, cache_bytes: int, readonly: bool = False) -> apsw.Connection:
    flags = (
        apsw.SQLITE_OPEN_READONLY
        if readonly
        else apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
    )
    db = apsw.Connection(str(path), flags=flags, statementcachesize=200)
    # Without the stability guarantee SQLite plans every range query anew when its bounds
    # change, which costs more than running it.
    db.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    db.set_busy_timeout(5_000)
    db.execute(f"PRAGMA cache_size = {-cache_bytes // 1024:d}")
    db.execute("PRAGMA temp_store = memory")
    if not readonly:
        db.execute("PRAGMA journal_mode = wal")
        db.execute("PRAGMA synchronous = full")
        db.execute(f"PRAGMA wal_autocheckpoint = {WAL_PAGES_MAX:d}")
    return db
