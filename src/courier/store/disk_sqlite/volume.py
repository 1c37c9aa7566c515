"""The disk under the database: its write-ahead log, the room that is left, and a reserve.

The log is copied into the database beside the commits: when it is half as long as it may be, a
second connection on a thread of its own begins. What was written meanwhile is little, and is copied
between two commits, so that the log begins again. Only when the thread does not keep up do commits
wait for it, and the log never gets longer than it may.

A reserve file holds room back. When the disk is full it is given up, so that what is acknowledged,
purged or trimmed can still be written; publishers are refused by then. It is made again when
there is room.
"""

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw

from courier.core.errors import OutOfSpace, StoreUnavailable
from courier.store.disk_sqlite.connection import SPOILT, close, connect, keep_log
from courier.store.engine.disk import DiskRoom

WAL_PAGES_MAX = 4_000
WAL_PAGES_MIN = 32
# A shorter log is copied between two commits from the start.
COPIED_BESIDE_PAGES_MIN = 512
# How often the thread copies what has come since; less is left each time.
COPIES_BESIDE = 2
RESERVE_BYTES_MAX = 16 << 20
# What opening a database takes at most: the index of a log, and a log of a few pages.
OPENING_BYTES = 1 << 20
# Reserve and low-water mark never take more than this part of the disk.
DISK_PART = 16

_TOUCH = "UPDATE meta SET checked_ms = checked_ms + 1"
_PAGE_BYTES = "PRAGMA page_size"
_FREE_PAGES = "PRAGMA freelist_count"

log = logging.getLogger("courier.store")


@contextmanager
def room_to_open(path: Path) -> Iterator[None]:
    """Give the reserve up where there is no room even to open the store: it has to be drained.

    If that is not enough, the error says how little there is.
    """
    free, reserve = _free_bytes(path), _reserve_of(path)
    if free < OPENING_BYTES and reserve.exists():
        log.error("disk_full", extra={"released_bytes": reserve.stat().st_size})
        os.truncate(reserve, 0)
        free = _free_bytes(path)
    try:
        yield
    except StoreUnavailable as error:
        if free >= OPENING_BYTES or error.__cause__ is None:
            raise
        reason = f"{error.__cause__}; {free} bytes are left on the disk of {path}, make room there"
        raise StoreUnavailable(reason) from error


def _free_bytes(path: Path) -> int:
    room = os.statvfs(path.parent)
    return room.f_bavail * room.f_frsize


def _reserve_of(path: Path) -> Path:
    return path.with_suffix(".reserve")


class Volume(DiskRoom):
    def __init__(self, path: Path, db: apsw.Connection, *, free_bytes_min: int) -> None:
        self._path = path
        self._db = db
        self._cursor = db.cursor()
        self._reserve = _reserve_of(path)
        room = os.statvfs(path.parent)
        part = room.f_blocks * room.f_frsize // DISK_PART
        self._reserve_bytes = min(RESERVE_BYTES_MAX, part) if free_bytes_min else 0
        self._free_bytes_min = min(free_bytes_min, part)
        self._page_bytes = int(db.execute(_PAGE_BYTES).get)
        # A full log must fit into the reserve: then it can be copied into the database.
        pages = self._reserve_bytes // self._page_bytes or WAL_PAGES_MAX
        self._pages_max = max(WAL_PAGES_MIN, min(WAL_PAGES_MAX, pages))
        self._pages_due = self._pages_max
        self._pages = 0
        self._partial = False
        self._off = False
        # Copying beside the commits begins when the log has `_frames_due` frames.
        self._half = self._pages_max // 2
        self._frames, self._frames_due = 0, self._half
        self._beside: tuple[apsw.Connection, int] | None = None
        self._copying = False
        self._copied = False  # but for the rest, which is little
        self._lost: apsw.Error | None = None  # why what was copied may not be on disk
        self._one_at_a_time = threading.Lock()
        self._full = False
        self.reserved = False
        self._measured(0)
        db.set_wal_hook(self._committed)

    def _committed(self, _: apsw.Connection, __: str, pages: int) -> int:
        if pages < self._frames:  # it has begun again
            self._frames_due = self._half
        self._pages = self._frames = pages
        return apsw.SQLITE_OK

    # --- the log ---

    @property
    def due(self) -> bool:
        """The log must be copied before the next commit."""
        waits = self._full or self._copied or self._pages >= self._pages_due
        return waits and not self._off

    def begin_copy(self) -> bool:
        """Whether it is long enough to be copied beside the commits; then `copy` must be called."""
        if self._copying or self._off or self._half < COPIED_BESIDE_PAGES_MIN:
            return False
        self._copying = self._frames >= self._frames_due
        return self._copying

    def copy(self) -> None:
        """Copy the log into the database while others write to it; on a thread of its own.

        What is copied is synced here, because SQLite does that only when it has copied all. What
        it fails to copy is copied again by `checkpoint`, which comes next.
        """
        with self._one_at_a_time:
            try:
                db, file = self._beside = self._beside or self._open_beside()
                for _ in range(COPIES_BESIDE):
                    db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
                    self._partial = True
                    os.fsync(file)
                    self._partial = False
            except apsw.Error as error:
                log.warning("copy_failed", extra={"reason": str(error)})
            except OSError as error:
                self._lost = apsw.IOError(str(error))
            self._copied, self._copying = True, False

    def _open_beside(self) -> tuple[apsw.Connection, int]:
        # A file that is closed takes all locks of the process on it along, so this one stays open.
        return connect(self._path, cache_bytes=0), os.open(self._path, os.O_RDONLY)

    def close(self) -> None:
        """Before the database itself is closed, which copies what is left of the log."""
        if self._lost is not None:
            keep_log(self._db)
        if self._beside is not None:
            close(self._beside[0])

    def closed(self) -> None:
        """After it."""
        if self._beside is not None:
            os.close(self._beside[1])
            self._beside = None

    def touch(self) -> None:
        self._cursor.execute(_TOUCH)

    def empty_log(self) -> None:
        """Copy all of the log into the database, and begin it again."""
        try:
            self._db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        except apsw.FullError:
            if not self._reserve.exists() or not self._empty_reserve():
                raise
            self._db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)

    def checkpoint(self) -> None:
        """Copy the log into the database, between two commits.

        SQLite writes without a sync when readers keep it from copying all, and does not write
        those pages again. If a sync fails after that, a later one that succeeds proves nothing
        about them: then the log is kept until the next start recovers from all of it.
        """
        with self._one_at_a_time:
            self._copied = False
            if self._lost is None:
                self._checkpoint()
            else:
                self._checkpoint_failed(self._lost)

    def _checkpoint(self) -> None:
        full, self._full = self._full, False
        mode = apsw.SQLITE_CHECKPOINT_TRUNCATE if full else apsw.SQLITE_CHECKPOINT_PASSIVE
        try:
            pages, copied = self._db.wal_checkpoint(mode=mode)
        except apsw.Error as error:
            self._checkpoint_failed(error)
            return
        self._partial = copied < pages
        self._frames_due = self._frames + self._half
        self._pages = pages - copied
        self._pages_due = self._pages + self._pages_max

    def _checkpoint_failed(self, error: apsw.Error) -> None:
        self._pages_due = self._pages + self._pages_max // 4
        if isinstance(error, apsw.BusyError):  # a reader; there will be another time
            return
        self.checkpoint_failures += 1
        log.error("checkpoint_failed", extra={"reason": str(error)})
        if isinstance(error, apsw.FullError):
            self._release()
        elif self._partial:
            self._off = True
            keep_log(self._db)
            log.error("checkpoints_stopped", extra={"until": "restart"})

    def failed(self, error: BaseException) -> bool:
        """A statement or a COMMIT met this error of the disk. True: there is room again."""
        if isinstance(error, (apsw.CorruptError, apsw.NotADBError, *SPOILT)):
            self.met_damage(str(error))
        return isinstance(error, apsw.FullError) and self._release()

    # --- the room ---

    def _release(self) -> bool:
        """Give the reserve up, and shorten the log with what it gives; False: it is gone."""
        if not self.reserved or not self._empty_reserve():
            return False
        log.error("disk_full", extra={"released_bytes": self._reserve_bytes})
        self.reserved = False
        self._measured(0)  # until the next look: what was given up is not for publishers
        self._full = True
        return True

    def _empty_reserve(self) -> bool:
        """False: the disk refuses even that, as one that copies on write may."""
        try:
            os.truncate(self._reserve, 0)
        except OSError as error:
            log.error("reserve_not_released", extra={"reason": str(error)})
            return False
        return True

    def look(self) -> None:
        """See how much room there is, and make the reserve if there is enough.

        Pages that deleted rows have left in the database count: new rows are written there.
        """
        try:
            free = _free_bytes(self._path)
        except OSError as error:  # for callers an error of the disk like any other
            raise apsw.IOError(str(error)) from error
        if self._reserve_bytes and not self.reserved and free >= 2 * self._reserve_bytes:
            try:
                self._make_reserve()
                free -= self._reserve_bytes
            except OSError as error:
                log.warning("reserve_not_made", extra={"reason": str(error)})
        self._measured(free + self._cursor.execute(_FREE_PAGES).get * self._page_bytes)

    def _measured(self, free_bytes: int) -> None:
        self.free_bytes = free_bytes
        self.short = free_bytes < self._mark

    def _make_reserve(self) -> None:
        file = os.open(self._reserve, os.O_CREAT | os.O_WRONLY, 0o600)
        try:
            if os.fstat(file).st_size != self._reserve_bytes:
                os.ftruncate(file, 0)
                os.posix_fallocate(file, 0, self._reserve_bytes)
        finally:
            os.close(file)
        self.reserved = True

    @property
    def _mark(self) -> int:
        """The low-water mark, which is higher without the reserve."""
        if self.reserved:
            return self._free_bytes_min
        return max(self._free_bytes_min, 2 * self._reserve_bytes)

    def require_space(self) -> None:
        if self.short:
            self.refusals += 1
            raise OutOfSpace(free=self.free_bytes or 0, limit=self._mark)

    def require_health(self) -> None:
        """Raises StoreUnavailable also when the log can no longer be copied."""
        super().require_health()
        if self._off:
            raise StoreUnavailable("the disk lost writes of a checkpoint; restart the server")


class Unlimited(DiskRoom):
    """In place of a volume, for a store in memory: it has no log."""

    due = False

    def __init__(self, db: apsw.Connection) -> None:
        self._cursor = db.cursor()

    def touch(self) -> None:
        self._cursor.execute(_TOUCH)

    def checkpoint(self) -> None: ...

    def begin_copy(self) -> bool:
        return False

    def copy(self) -> None: ...

    def failed(self, error: BaseException) -> bool:
        return False

    def close(self) -> None: ...

    def closed(self) -> None: ...
