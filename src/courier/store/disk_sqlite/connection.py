"""Opening the database file, and what its errors mean."""

import fcntl
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import apsw
import msgspec

from courier import files
from courier.core.errors import StoreDamaged, StoreUnavailable

log = logging.getLogger("courier.store")

_STATEMENTS = 200
# What is to become a store has this name until it is complete.
COPYING = ".copying"

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
    apsw.ProtocolError,
    apsw.PermissionsError,
)
# What reading a value raises that is not what was written.
SPOILT = (UnicodeDecodeError, msgspec.DecodeError)


@contextmanager
def disk_errors() -> Iterator[None]:
    try:
        yield
    except (*DISK_ERRORS, OSError) as error:
        # What is wrong with a schema is said with its lines.
        raise StoreUnavailable(" ".join(str(error).split())) from error
    except SPOILT as error:
        raise StoreDamaged("value") from error


def refuse_unfinished(path: Path) -> None:
    """Raises StoreUnavailable while a copy is to become the store at this path."""
    if (unfinished := Path(f"{path}{COPYING}")).exists():
        raise StoreUnavailable(
            f"{unfinished} is an unfinished copy: run the same courier store copy again, or remove "
            "it and begin with an empty store"
        )


def claim(path: Path) -> IO[str]:
    """Make sure that no other process works on this file, for as long as the result is open."""
    with disk_errors():
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
    db = apsw.Connection(str(path), flags=flags, statementcachesize=_STATEMENTS)
    try:
        _set_up(db, cache_bytes=cache_bytes, readonly=readonly)
    except BaseException:
        abandon(db)
        raise
    return db


def connect_memory() -> apsw.Connection:
    """A database that is gone when it is closed."""
    db = apsw.Connection(":memory:", statementcachesize=_STATEMENTS)
    _tune(db, cache_bytes=0)
    return db


def close(db: apsw.Connection) -> None:
    """What cannot be written any more is in the log, and the next start finds it there."""
    try:
        db.close()
    except DISK_ERRORS as error:
        log.warning("close_failed", extra={"reason": str(error)})


def abandon(db: apsw.Connection) -> None:
    """Close a store that could not be opened, without a checkpoint.

    The name of its log may not be durable yet. A power loss could then take the log and leave a
    database of which only some pages were copied.
    """
    keep_log(db)
    close(db)


def keep_log(db: apsw.Connection, keep: bool = True) -> None:
    """Whether closing leaves the log as it is, in place of copying it into the database."""
    db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, int(keep))


def _set_up(db: apsw.Connection, *, cache_bytes: int, readonly: bool) -> None:
    _tune(db, cache_bytes=cache_bytes)
    if not readonly:
        # SQLite goes on in the old mode, in which a power loss can undo commits, and says so.
        if db.execute("PRAGMA journal_mode = wal").get != "wal":
            raise StoreUnavailable("its journal mode cannot be set")
        db.execute("PRAGMA synchronous = full")
        db.wal_autocheckpoint(0)  # its errors would not be noticed; see `volume.py`


def _tune(db: apsw.Connection, *, cache_bytes: int) -> None:
    # Without the stability guarantee SQLite plans every range query again when its bounds
    # change, which costs more than running it.
    db.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    db.set_busy_timeout(5_000)
    db.execute(f"PRAGMA cache_size = {-cache_bytes // 1024:d}")
    db.execute("PRAGMA temp_store = memory")
