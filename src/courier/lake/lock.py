"""One pipeline to a lake: a lock that ends with the process that holds it."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from courier.lake.tables import LakeError


@contextmanager
def hold(root: str) -> Iterator[None]:
    """Raises LakeError when another process has it. Lakes elsewhere than on a disk have none."""
    if "://" in root:
        yield
        return
    file = _file(root)
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a+") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LakeError(
                f"another pipeline is at work on the lake {root}: process {holder(root)}"
            ) from None
        held.truncate(0)
        held.write(str(os.getpid()))
        held.flush()
        yield


def holder(root: str) -> str | None:
    """The process that has the lock, or None."""
    file = _file(root)
    if "://" in root or not file.exists():
        return None
    with file.open() as probe:
        try:
            fcntl.flock(probe, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return probe.read(20) or "?"
    return None


def _file(root: str) -> Path:
    return Path(root) / "_lock"
