"""Processes that a command has started, wherever they are: found by a mark in their environment.

Java is in a session of its own, and outlives a driver that is killed by a moment.
"""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from courier import ids

MARK = "TEST_COMMAND"
# Makes a command the first process of a container. It ends with what it was started by.
CONTAINER = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")


class Started(subprocess.Popen[bytes]):
    """A command in a session of its own, with a mark that all it starts inherits."""

    def __init__(self, command: Sequence[Any], *, env: Mapping[str, str], **others: Any) -> None:
        self.mark = ids.new_id()
        super().__init__(command, env={**env, MARK: self.mark}, start_new_session=True, **others)

    def belongings(self) -> dict[int, str]:
        """The processes that are left of it, and their names."""
        return marked(self.mark)

    def kill_all(self) -> None:
        kill_marked(self.mark)


def marked(mark: str) -> dict[int, str]:
    """Living processes with this mark, and their names."""
    sought = f"{MARK}={mark}".encode()
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if sought in (folder / "environ").read_bytes().split(b"\0"):
                name, state = (folder / "stat").read_text().partition("(")[2].rsplit(") ", 1)
                if state[0] not in "ZX":
                    found[int(folder.name)] = name
    return found


def kill_marked(mark: str, *, spare: int = 0) -> None:
    """All of them but one; those that start meanwhile, too."""
    while left := [pid for pid in marked(mark) if pid != spare]:
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def first_of(container: int) -> int:
    """The first process in a container, as its surroundings know it."""
    [child] = Path(f"/proc/{container}/task/{container}/children").read_text().split()
    return int(child)
