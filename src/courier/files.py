"""Files that nobody but their owner reads, under names that survive a power cut.

Writing a file does not make its name durable: the directory has to be synced too. Everything
that Courier creates, renames or removes itself goes through here.
"""

import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from errno import EINVAL
from pathlib import Path
from typing import BinaryIO

FILE_MODE = 0o600
DIRECTORY_MODE = 0o700
_UMASK = 0o077
_PART_BYTES = 1 << 20
# What a file that is being written has behind its name.
FRESH = ".new"


def be_private() -> None:
    """From now on, files of this process and of those it starts are readable by the owner only."""
    os.umask(_UMASK)


def write(path: Path, content: bytes) -> None:
    """Replace a file. After a crash it has the old content or the new, whole.

    If it raises OSError, no part of a file is left, and no file that was not there before.
    """
    fresh = path.with_name(path.name + FRESH)
    # A file left by a crash may have another mode or, in a shared directory, another owner.
    fresh.unlink(missing_ok=True)
    try:
        with open_new(fresh) as file:
            file.write(content)
            sync_open(file)
        is_new = not path.exists()
        fresh.replace(path)
    except OSError:
        _discard(fresh)
        raise
    _keep_name(path, is_new=is_new)


def open_new(path: Path) -> BinaryIO:
    """A file to be written, of a name that is new. The directory is left to the caller."""
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW
    return open(os.open(path, flags, FILE_MODE), "wb")


def sync_open(file: BinaryIO) -> None:
    """Make what was written to a file durable."""
    file.flush()
    os.fsync(file.fileno())


def sync_file(path: Path) -> None:
    """Make a file durable that somebody else has written; no effect if it is gone."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_again(path: Path) -> None:
    """Write a file's bytes over themselves, and sync them.

    After a failed sync the system may hold pages that it takes for written though the disk never
    got them. What is to be built on must not be among those.
    """
    if not path.exists():
        return
    file = os.open(path, os.O_RDWR)
    try:
        at = 0
        while data := os.pread(file, _PART_BYTES, at):
            at += os.pwrite(file, data, at)
        os.fsync(file)
    finally:
        os.close(file)


def _keep_name(path: Path, *, is_new: bool) -> None:
    """Make a name durable. A new one that cannot be is taken back, because later calls take every
    file that is there for durable."""
    try:
        sync_directory(path.parent)
    except OSError:
        if is_new:
            _discard(path)
        raise


def _discard(path: Path) -> None:
    """Remove what a failed call has left, as far as the disk lets us."""
    with suppress(OSError):
        path.unlink()


def create(path: Path) -> None:
    """Make an empty file, unless there is one."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, FILE_MODE))
    except FileExistsError:
        return
    _keep_name(path, is_new=True)


def make_directory(path: Path) -> None:
    """Make a directory and those above it that are missing."""
    if path.is_dir():
        return
    if path.parent != path:
        make_directory(path.parent)
    path.mkdir(DIRECTORY_MODE, exist_ok=True)
    try:
        sync_directory(path.parent)
    except OSError:
        path.rmdir()  # else the next start would take it for durable
        raise


def remove(path: Path) -> None:
    """Remove a file, if it is there."""
    try:
        path.unlink()
    except FileNotFoundError:
        return
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable, as far as the file system and its modes let us."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except PermissionError:  # names may be made in a directory that may not be read
        return
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno != EINVAL:  # some network file systems cannot, and need not
            raise
    finally:
        os.close(handle)


def tree(root: Path) -> Iterable[Path]:
    """A directory and everything below it, without following links."""
    yield root
    for folder, folders, names in os.walk(root):
        for name in (*folders, *names):
            yield Path(folder, name)


def tighten(paths: Iterable[Path]) -> int:
    """Take what exists away from everybody but its owner; how many of them were open to others.

    Left as they are: links, what belongs to someone else, and directories made to be shared, such
    as /tmp.
    """
    changed = 0
    for path in paths:
        with suppress(OSError):  # removed or replaced meanwhile; another user's
            if _too_open(path.lstat().st_mode):
                changed += _tighten(path)
    return changed


def _too_open(mode: int) -> bool:
    if stat.S_ISDIR(mode):
        return not mode & stat.S_ISVTX and bool(stat.S_IMODE(mode) & ~DIRECTORY_MODE)
    return stat.S_ISREG(mode) and bool(stat.S_IMODE(mode) & ~FILE_MODE)


def _tighten(path: Path) -> bool:
    """Through a handle: a link that takes the place of the file meanwhile leads nowhere."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        mode = os.fstat(handle).st_mode
        if _too_open(mode):
            os.fchmod(handle, mode & (DIRECTORY_MODE if stat.S_ISDIR(mode) else FILE_MODE))
        return _too_open(mode)
    finally:
        os.close(handle)
