"""The log of a Delta table: durable once a commit is reported, and whole before it is read.

delta-rs syncs nothing, and takes an empty commit for one that changes nothing. On a disk a file
beside the log names the newest commit, so that its absence is noticed. Objects in a bucket are
there as a whole or not at all: of those only the listing is checked.

The log is listed when a process first opens the table. After that, commits are found by name.
"""

import json
import os
import re
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs

from courier import files
from courier.lake.storage import filesystem, is_elsewhere

LOG = "_delta_log"
HEAD = "_head.json"
# In a commit of ours: how many actions it has.
ACTIONS = "courier_actions"
COUNTED = ("add", "remove", "txn")
_LAST_CHECKPOINT = "_last_checkpoint"
_CHECKPOINT = ".checkpoint.parquet"
_FILE = re.compile(r"([0-9]{20})\.(?:(json)|checkpoint(?:\.[0-9a-f.-]+)?\.parquet)")


class Log:
    """The log of the table at `uri`."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._table = None if is_elsewhere(uri) else Path(uri)
        self._synced = -1

    def follows(self, version: int) -> bool:
        """Whether there is a commit after this one: one look, however long the log is."""
        path = self._path(version + 1)
        if self._table is not None:
            return os.path.exists(path)
        system, root = filesystem(path)
        return bool(system.get_file_info(root).type == pafs.FileType.File)

    def infos(self, newest: int, count: int) -> Iterator[dict[str, Any]]:
        """What the last commits say about themselves, the newest first, as far as they are kept."""
        for version in range(newest, max(-1, newest - count), -1):
            system, path = filesystem(self._path(version))
            try:
                with system.open_input_stream(path) as file:
                    actions = _actions(file.read())
            except FileNotFoundError:  # trimmed
                return
            except ValueError:
                continue
            yield from (each["commitInfo"] for each in actions if "commitInfo" in each)

    def sync(self, newest: int) -> None:
        """Make commits and checkpoints up to `newest` durable, also those of other processes."""
        if self._table is None or newest == self._synced:
            return
        folder = self._table / LOG
        for path in self._unsynced(folder, newest):
            files.sync_file(path)
        files.sync_directory(folder)
        if self._synced < 0:
            files.sync_directory(self._table)
            files.sync_directory(self._table.parent)
        self._synced = newest
        files.write(self._table / HEAD, json.dumps({"version": newest}).encode())

    def take_back(self) -> int | None:
        """Remove what a power cut has left of commits that were never reported; the first of them.

        No other process may be committing. What they held comes from the broker again.
        """
        head = self._head()
        if self._table is None or head < 0:
            return None
        folder = self._table / LOG
        late = [
            match for name in _names(folder) if (match := _named(name)) and int(match[1]) > head
        ]
        commits = sorted(int(match[1]) for match in late if match[2])
        places = zip(commits, count(head + 1), strict=False)
        torn = next((at for at, place in places if at != place or self._torn([at])), None)
        if torn is not None:
            for version in reversed(commits[commits.index(torn) :]):  # a hole would hide the others
                files.remove(Path(self._path(version)))
        # What checkpoints sum up is in commits as well.
        if checkpoints := [match[0] for match in late if not match[2]]:
            for name in (_LAST_CHECKPOINT, *checkpoints):
                files.remove(folder / name)
        return torn

    def _unsynced(self, folder: Path, newest: int) -> list[Path]:
        newest_checkpoint = folder / _LAST_CHECKPOINT
        if self._synced < 0:
            found = [folder / name for name in _names(folder) if _named(name)]
            return [*found, newest_checkpoint]
        versions = range(self._synced + 1, newest + 1)
        commits = [Path(self._path(version)) for version in versions]
        checkpoints = [folder / f"{version:020d}{_CHECKPOINT}" for version in versions]
        new = [path for path in checkpoints if path.exists()]
        return [*commits, *new, *([newest_checkpoint] if new else [])]

    def _path(self, version: int) -> str:
        return f"{self._uri}/{LOG}/{version:020d}.json"

    def damage(self) -> str:
        """What is missing or cut short, in words; empty when nothing is."""
        # Read first: commits that come meanwhile only make the listing longer.
        head = self._head()
        system, root = filesystem(self._uri)
        listing = pafs.FileSelector(f"{root}/{LOG}", allow_not_found=True)
        commits: dict[int, int] = {}
        base = -1
        for info in system.get_file_info(listing):
            if match := _named(info.base_name):
                if match[2]:
                    commits[int(match[1])] = info.size or 0
                elif info.size:
                    base = max(base, int(match[1]))
        for version, size in commits.items():
            if not size:
                return f"commit {version} of its log is empty"
        newest = max(commits, default=base)
        for version in range(base + 1, max(newest, head) + 1):
            if version not in commits:
                return f"commit {version} is missing in its log"
        # What a checkpoint sums up is not read again.
        return self._torn([version for version in sorted(commits) if version > base])

    def _head(self) -> int:
        """The newest commit that was reported; -1 if there is no such note, or it is spoilt."""
        if self._table is None:
            return -1
        try:
            return int(json.loads((self._table / HEAD).read_bytes())["version"])
        except (OSError, ValueError, KeyError, TypeError):
            return -1

    def _torn(self, versions: list[int]) -> str:
        if self._table is None:
            return ""
        for version in versions:
            try:
                raw = Path(self._path(version)).read_bytes()
            except FileNotFoundError:  # trimmed meanwhile
                continue
            if not _whole(raw):
                return f"commit {version} of its log is cut short"
        return ""


def _whole(raw: bytes) -> bool:
    try:
        actions = _actions(raw)
        infos = [each["commitInfo"] for each in actions if "commitInfo" in each]
        expected = infos[0].get(ACTIONS) if infos else None
    except (ValueError, TypeError, AttributeError):
        return False
    count = sum(name in each for each in actions for name in COUNTED)
    return bool(actions) and expected in (None, str(count))


def _actions(raw: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in raw.splitlines() if line.strip()]


def _named(name: str) -> re.Match[str] | None:
    return _FILE.fullmatch(name)


def _names(folder: Path) -> list[str]:
    try:
        return [each.name for each in folder.iterdir()]
    except FileNotFoundError:
        return []
