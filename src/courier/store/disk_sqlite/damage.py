"""What a crash or a bad disk left behind, judged before anything is written.

SQLite accepts the frames of a write-ahead log up to the first whose checksum is wrong, and says
nothing about those behind it. After a power loss that is right: one group commits at a time, so
only the last transaction can be incomplete. A frame that continues the checksum of a commit frame
before it shows that this commit had succeeded. If SQLite will not accept that commit, then data
that was acknowledged is lost, and the operator must know before anything is overwritten.
"""

import sys
import time
from array import array
from collections import Counter
from itertools import count
from operator import mul
from pathlib import Path
from typing import Any, BinaryIO

import apsw
from msgspec import Struct

from courier import files
from courier.core.errors import StoreUnavailable
from courier.store.disk_sqlite.connection import keep_log
from courier.store.disk_sqlite.sums import wrong_row

CHECK_MS_MAX = 500
_CHECK_STEPS = 10_000
_HEADER_BYTES = 32
_FRAME_HEADER_BYTES = 24
_MAGIC = 0x377F0682
_MASK = 0xFFFFFFFF
_PAGE_BYTES = 4_096
_FIRST_FRAMES = 3
_PAGES_BYTES = tuple(1 << bits for bits in range(9, 17))


class LogDamage(Struct, frozen=True):
    """Frame `frame` of `frames` is damaged, and `lost` or more successful commits with it."""

    frame: int
    frames: int
    lost: int


class _Sum:
    """SQLite's checksum of `pairs` pairs of words, as two products with fixed factors.

    Word by word in Python it would take too long.
    """

    def __init__(self, pairs: int) -> None:
        first: list[int] = []
        second: list[int] = []
        a, b, c, d = 1, 0, 0, 1  # the matrix [[1, 1], [1, 2]] to the power of the pairs that follow
        for _ in range(pairs):
            first += [b & _MASK, (a + b) & _MASK]
            second += [d & _MASK, (c + d) & _MASK]
            a, b, c, d = a + b, a + 2 * b, c + d, c + 2 * d
            a, b, c, d = a & _MASK, b & _MASK, c & _MASK, d & _MASK
        first.reverse()
        second.reverse()
        self._power = (a, b, c, d)
        self._first, self._second = first, second

    def __call__(self, words: "array[int]", seed: tuple[int, int]) -> tuple[int, int]:
        a, b, c, d = self._power
        s, t = seed
        return (
            (a * s + b * t + sum(map(mul, words, self._first))) & _MASK,
            (c * s + d * t + sum(map(mul, words, self._second))) & _MASK,
        )


def log_damage(database: Path, *, accepted: int = 0) -> LogDamage | None:
    """None: what SQLite accepts of the database's log is all that was ever acknowledged.

    `accepted` frames at its start are known to be good.
    """
    log = Path(f"{database}-wal")
    if not log.exists() or log.stat().st_size < _HEADER_BYTES + _FRAME_HEADER_BYTES:
        return None
    with log.open("rb") as file:
        scan = _Scan(file, log.stat().st_size)
        scan.run(accepted)
        if not scan.lost or (scan.headless and scan.is_copied(database)):
            return None
        return LogDamage(scan.bad, scan.frames, scan.lost)


class _Scan:
    """A walk over the frames: `bad` is the first that SQLite does not accept."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file = file
        header = file.read(_HEADER_BYTES)
        magic = _number(header, 0)
        self._page = _number(header, 8)
        self._big = bool(magic & 1)
        self._stored: tuple[int, int] | None = (_number(header, 24), _number(header, 28))
        self._salts = header[16:24]
        good = magic & ~1 == _MAGIC and self._page in _PAGES_BYTES
        self.headless = not good or self._stored != _Sum(3)(_words(header[:24], self._big), (0, 0))
        if self.headless:
            # SQLite takes such a log for empty. Its frames still say what they are.
            self._stored = None
            self._big, self._page = sys.byteorder == "big", _PAGE_BYTES
        self._frame_bytes = _FRAME_HEADER_BYTES + self._page
        if self.headless:
            self._salts = self._usual_salts()
        self._sum = _Sum((8 + self._page) // 8)
        self.frames = (size - _HEADER_BYTES) // self._frame_bytes
        self.bad = int(self.headless)
        self.lost = 0
        self._newest: dict[int, int] = {}
        self._pages = 0

    def _usual_salts(self) -> bytes:
        """Those of the first frames; what hit the header may have hit one of them."""
        seen: Counter[bytes] = Counter()
        for number in range(_FIRST_FRAMES):
            self._file.seek(_HEADER_BYTES + number * self._frame_bytes + 8)
            seen[self._file.read(8)] += 1
        return seen.most_common(1)[0][0]

    def run(self, accepted: int) -> None:
        if accepted and not self.headless:
            self._file.seek(_HEADER_BYTES + (accepted - 1) * self._frame_bytes + 16)
            last = self._file.read(8)
            self._stored = (_number(last, 0), _number(last, 4))
        commit = False
        for number in range(accepted + 1, self.frames + 1):
            at = _HEADER_BYTES + (number - 1) * self._frame_bytes
            self._file.seek(at)
            head, data = self._file.read(_FRAME_HEADER_BYTES), self._file.read(self._page)
            if head[8:16] != self._salts:
                self.bad, self._stored, commit = self.bad or number, None, False
                continue
            own = (_number(head, 16), _number(head, 20))
            if not self._follows(head, data, own):
                self.bad = self.bad or number
            elif commit and self.bad:
                self.lost += 1
            self._stored, commit = own, _number(head, 4) != 0
            self._newest[_number(head, 0)] = at + _FRAME_HEADER_BYTES
            self._pages = _number(head, 4) or self._pages

    def _follows(self, head: bytes, data: bytes, own: tuple[int, int]) -> bool:
        """It was written when the frame before it was the last of the log."""
        if self._stored is None:
            return False
        return self._sum(_words(head[:8] + data, self._big), self._stored) == own

    def is_copied(self, database: Path) -> bool:
        """All pages of the log are in the database: then it was about to begin again.

        A header that was cut short in that moment is no damage.
        """
        with database.open("rb") as pages:
            for number, at in self._newest.items():
                pages.seek((number - 1) * self._page)
                self._file.seek(at)
                if number <= self._pages and pages.read(self._page) != self._file.read(self._page):
                    return False
        return True


def _number(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 4], "big")


def _words(data: bytes, big: bool) -> "array[int]":
    words = array("I", data)
    if big != (sys.byteorder == "big"):
        words.byteswap()
    return words


def recover(db: apsw.Connection, path: Path, *, check: str, accept: bool) -> dict[str, Any]:
    """Judge what the last process left, before anything is written; what was accepted of damage.

    `check` is off, quick or full.
    """
    keep_log(db)
    damage = settle_log(db, path, accept=accept)
    found = check_database(db, path, check=check, accept=accept)
    keep_log(db, keep=False)
    log = {"frame": damage.frame, "frames": damage.frames, "lost": damage.lost} if damage else {}
    return {**log, **({"database": found} if found else {})}


def settle_log(db: apsw.Connection, path: Path, *, accept: bool) -> LogDamage | None:
    """Make sure that what SQLite has recovered may be built on; the damage that was accepted.

    To be called before anything is written. Raises StoreUnavailable when acknowledged
    transactions are lost. With `accept` the log is kept aside and the start goes on without them.
    """
    log = Path(f"{path}-wal")
    db.execute("PRAGMA user_version")  # reading recovers
    accepted, _ = db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)
    damage = log_damage(path, accepted=max(0, accepted))
    if damage is not None and not accept:
        raise StoreUnavailable(
            f"{log} is damaged at frame {damage.frame} of {damage.frames}, and {damage.lost} or "
            "more transactions that were acknowledged are lost; restore a backup, or start once "
            "with --accept-damage to go on without them (a copy of the log is kept)"
        )
    if damage is not None:
        files.write(_free_name(log), log.read_bytes())
    files.write_again(log)
    return damage


def _free_name(log: Path) -> Path:
    names = (log.with_name(f"{log.name}.damaged-{number}") for number in count(1))
    return next(name for name in names if not name.exists())


def check_database(db: apsw.Connection, path: Path, *, check: str, accept: bool) -> str:
    """What is wrong with the database, or nothing. Raises StoreUnavailable unless `accept`.

    A check that is not full looks only as far as it gets in CHECK_MS_MAX. What is mirrored in
    memory is checked whatever it is.
    """
    found = _found(db, check == "full") if check != "off" else ""
    found = found or _wrong_row(db)
    if found and not accept:
        raise StoreUnavailable(
            f"{path} is damaged ({found}); restore a backup, or start once with --accept-damage "
            "to go on with what can be read"
        )
    return found


def _found(db: apsw.Connection, full: bool) -> str:
    until_s = time.monotonic() + CHECK_MS_MAX / 1000
    if not full:
        db.set_progress_handler(lambda: time.monotonic() > until_s, _CHECK_STEPS)
    try:
        said = db.execute("PRAGMA integrity_check(1)" if full else "PRAGMA quick_check(1)").get
    except apsw.InterruptError:
        return ""
    except (apsw.CorruptError, apsw.NotADBError) as error:
        return str(error)
    finally:
        db.set_progress_handler(None)
    return "" if said == "ok" else " ".join(str(said).split())


def _wrong_row(db: apsw.Connection) -> str:
    try:
        return wrong_row(db)
    except (apsw.CorruptError, apsw.NotADBError, apsw.SQLError) as error:  # of a wrong schema
        return str(error)
