"""One pipeline to a lake: a lock that ends with the process that holds it."""

import fcntl
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from courier import files
from courier.lake.tables import LakeError

log = logging.getLogger("courier.lake")

_LOCK = "_lock"
# What a lake has beside its tables.
_OURS = (_LOCK, "_logs", "_checkpoints", "_replays", "_erasures", "_iceberg", "views.duckdb")


@contextmanager
def hold(root: str) -> Iterator[None]:
    """Raises LakeError when another process has it. Lakes elsewhere than on a disk have none."""
    if "://" in root:
        yield
        return
    file = _file(root)
    files.make_directory(file.parent)
    files.create(file)
    with file.open("a+") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LakeError(
                f"another pipeline is running on the lake {root}: process {holder(root)}"
            ) from None
        _tighten(file.parent)
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


def _tighten(root: Path) -> None:
    """Tables and our own files from before are for their owner only; others stay as they are."""
    ours = [root]
    for each in root.iterdir():
        if each.name in _OURS or (each / "_delta_log").is_dir():
            ours += files.tree(each)
    if changed := files.tighten(ours):
        log.warning("%d files of the lake %s were open to others; now they are not", changed, root)


def _file(root: str) -> Path:
    return Path(root) / _LOCK
