"""A disk that fails when it is told to, and remembers every write, sync and name.

SQLite's files come in through a VFS, the store's own through wrapped functions of `os`. Nothing
is synced for real: the memory of what was is enough to make every image that a power loss could
have left (`images.py`), and a killed process finds what was written, synced or not.
"""

import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import apsw

from courier import files

KINDS = ("write", "sync", "truncate", "open", "delete")
ERRORS = ("EIO", "ENOSPC", "short")
_EIO = {
    "write": apsw.SQLITE_IOERR_WRITE,
    "sync": apsw.SQLITE_IOERR_FSYNC,
    "truncate": apsw.SQLITE_IOERR_TRUNCATE,
    "open": apsw.SQLITE_CANTOPEN,
    "delete": apsw.SQLITE_IOERR_DELETE,
}
_numbers = count(1)


class Op(NamedTuple):
    """`write`, `truncate` (to `at`), `sync`, `lost` (a sync that failed), `create`, `delete`,
    `rename` (to `data`), `names` (of a directory are synced), `mark` (of the story)."""

    kind: str
    path: str
    at: int = 0
    data: Any = b""


class Fault(NamedTuple):
    """The `number`-th call of one of `kinds` fails, counted from 1, and `times` - 1 after it.

    Only calls to files whose names end with `file` count. `own` before a kind: only calls that
    Courier makes itself, not those of SQLite.
    """

    kinds: tuple[str, ...]
    number: int
    error: str
    times: int = 1
    file: str = ""


class LyingDisk(apsw.VFS):
    def __init__(self, root: Path, fault: Fault | None = None, *, recording: bool = False) -> None:
        self._base = "unix"
        self.root = str(root)
        self.log: list[Op] = []
        self.recording = recording
        self.fault = fault
        self.calls = 0
        self.failed: list[str] = []
        self.grow: Callable[[int], None] = lambda count: None
        self.name = f"lying-{next(_numbers)}"
        super().__init__(self.name, self._base, makedefault=True)

    @contextmanager
    def healthy(self) -> Iterator[None]:
        """Meanwhile nothing fails."""
        fault, self.fault = self.fault, None
        try:
            yield
        finally:
            self.fault = fault

    def note(self, kind: str, path: str, at: int = 0, data: Any = b"") -> None:
        if self.recording and path.startswith(self.root):
            self.log.append(Op(kind, path, at, data))

    def fails(self, kind: str, path: str, *, own: bool = False) -> str:
        """How this call is to fail, if it is."""
        fault = self.fault
        if fault is None or not path.startswith(self.root) or not path.endswith(fault.file):
            return ""
        if kind not in fault.kinds and not (own and f"own {kind}" in fault.kinds):
            return ""
        self.calls += 1
        if not fault.number <= self.calls < fault.number + fault.times:
            return ""
        self.failed.append(f"{kind} {path.removeprefix(self.root)}")
        return fault.error

    def check(self, kind: str, path: str) -> None:
        if error := self.fails(kind, path):
            full = error != "EIO" and kind in ("write", "truncate")
            raise apsw.exception_for(apsw.SQLITE_FULL if full else _EIO[kind])

    def excepthook(self, *_: object) -> bool:
        """Errors that SQLite has no use for are meant all the same."""
        return True

    # --- what SQLite calls ---

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        path = str(name.filename() if isinstance(name, apsw.URIFilename) else name)
        self.check("open", path)
        there = os.path.exists(path)
        file = _File(self, name, flags, path)
        if not there:
            self.note("create", path)
        return file

    def xDelete(self, filename: str, syncdir: bool) -> None:
        self.check("delete", filename)
        super().xDelete(filename, syncdir)
        self.note("delete", filename)
        if syncdir:
            self.note("names", os.path.dirname(filename))


class _File(apsw.VFSFile):
    def __init__(
        self, disk: LyingDisk, name: str | apsw.URIFilename | None, flags: list[int], path: str
    ) -> None:
        super().__init__("unix", name, flags)
        self._disk = disk
        self._path = path
        # SQLite syncs the directory with the first sync of a journal that it has made. It does so
        # for logs as well, but ignores errors: the store must not rely on that.
        self._is_new = path.endswith("-journal")

    def excepthook(self, *_: object) -> bool:
        """As of the disk."""
        return True

    def xWrite(self, data: Any, offset: int) -> None:
        data = bytes(data)
        if error := self._disk.fails("write", self._path):
            if error == "short":
                part = data[: len(data) // 2]
                super().xWrite(part, offset)
                self._disk.note("write", self._path, offset, part)
            code = apsw.SQLITE_IOERR_WRITE if error == "EIO" else apsw.SQLITE_FULL
            raise apsw.exception_for(code)
        self._disk.grow(max(0, offset + len(data) - self.xFileSize()))
        super().xWrite(data, offset)
        self._disk.note("write", self._path, offset, data)

    def xSync(self, flags: int) -> None:
        if self._disk.fails("sync", self._path):
            self._disk.note("lost", self._path)
            raise apsw.exception_for(apsw.SQLITE_IOERR_FSYNC)
        self._disk.note("sync", self._path)
        if self._is_new:
            self._is_new = False
            self._disk.note("names", os.path.dirname(self._path))

    def xTruncate(self, newsize: int) -> None:
        self._disk.check("truncate", self._path)
        super().xTruncate(newsize)
        self._disk.note("truncate", self._path, newsize)


# --- what the store itself calls ---

_OS_ERRORS = {"EIO": 5, "ENOSPC": 28, "short": 28}


def failure(error: str, path: str) -> OSError:
    number = _OS_ERRORS[error]
    return OSError(number, os.strerror(number), path)


class _Raw(io.FileIO):
    """A file whose writes are calls to the disk."""

    def __init__(self, disk: LyingDisk, file: int, path: str) -> None:
        super().__init__(file, "wb")
        self._disk = disk
        self._path = path

    def write(self, data: Any) -> int:
        if error := self._disk.fails("write", self._path, own=True):
            if error == "short":
                super().write(bytes(data)[: len(data) // 2])
            raise failure(error, self._path)
        return super().write(data)


@contextmanager
def wrapped_os(disk: LyingDisk) -> Iterator[None]:
    """Let the files that are opened through `os` lie on this disk, too."""
    real: dict[str, Callable[..., Any]] = {
        name: getattr(os, name)
        for name in ("open", "fsync", "pwrite", "mkdir", "rmdir", "replace", "rename", "unlink")
    }
    paths: dict[int, str] = {}

    def fail(kind: str, path: str) -> None:
        if error := disk.fails(kind, path, own=True):
            if kind == "sync":
                disk.note("lost", path)
            raise failure(error, path)

    def open(path: Any, flags: int, mode: int = 0o777, **more: Any) -> int:
        text = os.fspath(path) if isinstance(path, str | Path) else ""
        fail("open", text)
        there = os.path.exists(text)
        file: int = real["open"](path, flags, mode, **more)
        paths[file] = text
        if not there:
            disk.note("create", text)
        return file

    def pwrite(file: int, data: bytes, at: int) -> int:
        fail("write", paths.get(file, ""))
        written: int = real["pwrite"](file, data, at)
        disk.note("write", paths.get(file, ""), at, bytes(data[:written]))
        return written

    def fsync(file: int) -> None:
        path = paths.get(file, "")
        fail("sync", path)
        if os.path.isdir(path):
            disk.note("names", path)
            return
        if path and not path.endswith((".db", "-wal")):  # what is written to those is noted
            disk.note("truncate", path, 0)
            disk.note("write", path, 0, Path(path).read_bytes())
        disk.note("sync", path)

    def mkdir(path: Any, *rest: Any, **more: Any) -> None:
        fail("create", os.fspath(path))
        real["mkdir"](path, *rest, **more)
        disk.note("create", f"{os.fspath(path)}/")

    def rmdir(path: Any, **more: Any) -> None:
        real["rmdir"](path, **more)
        disk.note("delete", f"{os.fspath(path)}/")

    def replace(source: Any, target: Any, **more: Any) -> None:
        fail("delete", os.fspath(target))
        real["replace"](source, target, **more)
        disk.note("rename", os.fspath(source), data=os.fspath(target))

    def unlink(path: Any, **more: Any) -> None:
        fail("unlink", os.fspath(path))
        real["unlink"](path, **more)
        disk.note("delete", os.fspath(path))

    fakes = {"open": open, "pwrite": pwrite, "fsync": fsync, "mkdir": mkdir}
    fakes |= {"rmdir": rmdir}
    fakes |= {"replace": replace, "rename": replace, "unlink": unlink}
    for name, fake in fakes.items():
        setattr(os, name, fake)
    files.open = lambda file, _: io.BufferedWriter(  # type: ignore[attr-defined]
        _Raw(disk, file, paths.get(file, ""))
    )
    try:
        yield
    finally:
        del files.open  # type: ignore[attr-defined]
        for name, function in real.items():
            setattr(os, name, function)


@contextmanager
def lying_disk(
    root: Path, fault: Fault | None = None, *, recording: bool = False
) -> Iterator[LyingDisk]:
    """The disk of everything below `root`, for as long."""
    disk = LyingDisk(root, fault, recording=recording)
    try:
        with wrapped_os(disk):
            yield disk
    finally:
        disk.unregister()
