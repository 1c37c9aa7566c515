"""`python -m tests.faults.lying_server serve ...`: the real server, on a disk that lies.

The variable LYING names a file. While it is there, its one line says which call fails: kinds with
commas between, number, error and how often, such as `sync;1;EIO;1`. Calls are counted from when
the file appears; those that have failed are listed beside it. All of the data directory lies on
that disk. The variable QUOTA names another file, with the size of the disk and the bytes of it that
others take.
"""

import os
import sys
from pathlib import Path

import apsw

from courier.cli.main import main
from tests.faults.lying import Fault, LyingDisk, wrapped_os

BLOCK = 4_096


class ArmedDisk(LyingDisk):
    def __init__(self, root: Path, arm: Path) -> None:
        self._arm = arm
        self._armed = 0  # since when
        super().__init__(root)

    def fails(self, kind: str, path: str, *, own: bool = False) -> str:
        armed = self._arm.stat().st_mtime_ns if self._arm.exists() else 0
        if armed != self._armed:
            self._armed, self.fault, self.calls = armed, None, 0
        if armed and self.fault is None:
            kinds, number, error, times = self._arm.read_text().split(";")
            self.fault = Fault(tuple(kinds.split(",")), int(number), error, int(times))
        if error := super().fails(kind, path, own=own):
            with self._arm.with_suffix(".failed").open("a") as file:
                file.write(f"{self.failed[-1]}\n")
        return error


class Quota:
    """A disk of the size that the file says."""

    def __init__(self, root: Path, file: Path) -> None:
        self._root = root
        self._file = file
        self._statvfs, self._fallocate = os.statvfs, os.posix_fallocate
        os.statvfs = self.statvfs
        os.posix_fallocate = self.fallocate

    def free(self) -> tuple[int, int]:
        """All bytes, and those that are left."""
        size, others = map(int, self._file.read_text().split())
        used = sum(file.stat().st_size for file in self._root.glob("courier.*"))
        return size, max(0, size - others - used)

    def grow(self, count: int) -> None:
        if count > self.free()[1]:
            raise apsw.exception_for(apsw.SQLITE_FULL)

    def statvfs(self, path: object) -> os.statvfs_result:
        size, free = self.free()
        left = free // BLOCK
        return os.statvfs_result((BLOCK, BLOCK, size // BLOCK, left, left, 0, 0, 0, 0, 255))

    def fallocate(self, file: int, at: int, count: int) -> None:
        if count > self.free()[1]:
            raise OSError(28, os.strerror(28))
        self._fallocate(file, at, count)


if __name__ == "__main__":
    data = Path(sys.argv[sys.argv.index("--data") + 1])
    disk = ArmedDisk(data, Path(os.environ["LYING"]))
    if "QUOTA" in os.environ:
        disk.grow = Quota(data, Path(os.environ["QUOTA"])).grow
    with wrapped_os(disk):
        sys.exit(main())
