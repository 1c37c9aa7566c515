"""Disks that can be filled up under a running server, and freed again."""

import os
import resource
import subprocess
from pathlib import Path
from typing import Protocol

from tests.server import Server

MIB = 1 << 20
SIZE_MIB = 12
UNMOUNT_S_MAX = 30


class Disk(Protocol):
    def fill(self, server: Server) -> None: ...

    def free(self, server: Server) -> None: ...


class FileLimit:
    """No file of the server may grow beyond what the largest has now, and a little more.

    Its writes fail as they do on a full disk, with another error number.
    """

    def fill(self, server: Server) -> None:
        files = [path for path in server.data.rglob("*") if path.suffix != ".reserve"]
        largest = max(path.stat().st_size for path in files)
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (largest + MIB, _hard(server)))

    def free(self, server: Server) -> None:
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (_hard(server), _hard(server)))


class SmallDisk:
    """A file system of its own in memory, and a file on it that takes all the room there is."""

    def __init__(self, mount: Path) -> None:
        self.mount = mount
        self._ballast = mount / "ballast"

    def __enter__(self) -> "SmallDisk":
        self.mount.mkdir()
        options = f"size={SIZE_MIB}m"
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", self.mount], check=True)
        # It goes when its stdin is closed, so also when this process is killed.
        self._guard = subprocess.Popen(
            ["sh", "-c", 'cat; umount --lazy "$MOUNT"'],
            env={**os.environ, "MOUNT": str(self.mount)},
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._guard.communicate(timeout=UNMOUNT_S_MAX)
        assert self._guard.returncode == 0

    def fill(self, server: Server | None = None) -> None:
        room = os.statvfs(self.mount)
        with self._ballast.open("wb") as ballast:
            os.posix_fallocate(ballast.fileno(), 0, max(1, room.f_bavail * room.f_frsize - MIB))

    def free(self, server: Server | None = None) -> None:
        self._ballast.unlink()


def may_mount() -> bool:
    """Whether this process may make file systems; most users may not."""
    return subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode == 0


def _hard(server: Server) -> int:
    return resource.prlimit(server.pid, resource.RLIMIT_FSIZE)[1]
