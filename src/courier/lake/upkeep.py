"""Keeping a lake in shape: few files in place of many, and none that nobody needs.

Both may run beside a pipeline: what it replaces meanwhile is left alone, and it makes again what
was about to replace a file that is compacted.
"""

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow.fs as pafs

from courier.clock import SystemClock
from courier.lake import archive, iceberg, lock, views
from courier.lake.catalog import LIVE, Lake
from courier.lake.files import File
from courier.lake.storage import filesystem, is_elsewhere
from courier.lake.tables import (
    FILE_ROWS_MAX,
    LOG_RETENTION_HOURS,
    REPLACED_RETENTION_HOURS,
    LakeError,
    Moved,
    Table,
)

# What a file should have grown to before it is left alone.
FILE_BYTES = 64 << 20
# Neighbouring small files from which they are compacted into one.
FILES_MIN = 8
FILES_MAX = 1_000
RETENTION_HOURS = REPLACED_RETENTION_HOURS
HOUR_MS = 3_600_000
# A batch that is being written has files that no table knows of yet.
RUNNING_HOURS = 1


@dataclass(frozen=True)
class Compacted:
    """How many files became how many."""

    before: int
    after: int

    def __str__(self) -> str:
        if not self.before:
            return "there is nothing to compact"
        return f"compacted {self.before} files into {self.after}"


@dataclass(frozen=True)
class Vacuumed:
    """Files that nobody needs any more."""

    files: int
    dry_run: bool

    def __str__(self) -> str:
        return f"{'would remove' if self.dry_run else 'removed'} {self.files} files"


def compact(lake: Lake, table: str | None = None) -> Compacted:
    """Make many small files few, in all tables or in one."""
    before = after = 0
    for each in _chosen(lake, table):
        for files in _heaps(lake, each):
            try:
                each.commit(each.rewrite(files), removes=files, same_rows=True)
            except (Moved, FileNotFoundError):
                # A batch has replaced some of them; those that it wrote have their turn later.
                continue
            before += len(files)
            after += 1
    return Compacted(before, after)


def vacuum(
    lake: Lake,
    retention_hours: int = RETENTION_HOURS,
    dry_run: bool = False,
    *,
    alone: bool = False,
) -> Vacuumed:
    """Remove files that the tables have not used for so long, and those of dead attempts.

    `alone`: the caller holds the lake's lock, so no pipeline is about to use them.
    """
    if not alone and retention_hours < RUNNING_HOURS and lock.holder(lake.root) is not None:
        raise LakeError(
            f"a pipeline is running on this lake: with less than {RUNNING_HOURS} h, files "
            "that it is about to use would be removed"
        )
    if not dry_run:
        refresh(lake)
    found = 0
    for table in _chosen(lake, None):
        if table is lake.messages and _needed(lake, retention_hours):
            continue
        opened = table.open()
        if opened is None:
            continue
        there = _paths(table)
        gone = opened.vacuum(
            retention_hours=retention_hours,
            dry_run=dry_run,
            enforce_retention_duration=False,
            full=True,
        )
        # The log tells for a while of files that are gone.
        found += len(there.intersection(gone))
        if not dry_run and not is_elsewhere(table.uri):
            _remove_empty(Path(table.uri) / "data")
    return Vacuumed(found, dry_run)


def refresh(lake: Lake) -> None:
    """Write again what names the lake's files: its file of views and its catalog, if there."""
    views.refresh(lake)
    iceberg.refresh(lake)


def trim_logs(lake: Lake) -> None:
    """Keep the tables' logs short, except where a table is still to be made of an old version."""
    for table in lake.tables:
        if table is not lake.messages or not _needed(lake, LOG_RETENTION_HOURS):
            table.trim_log()


def _needed(lake: Lake, hours: int) -> bool:
    """Whether a table is still to be made of messages as they were so long ago."""
    upto = archive.last(lake.messages)
    since_ms = SystemClock().now_ms() - hours * HOUR_MS
    behind = [table for table in lake.derived if archive.last(table) < upto]
    return any(int(table.note().get("timestamp", 0)) <= since_ms for table in behind)


def _chosen(lake: Lake, name: str | None) -> list[Table]:
    found = [table for table in lake.tables if name in (None, table.name)]
    if not found:
        names = ", ".join(table.name for table in lake.tables)
        raise LakeError(f"there is no table '{name}': the lake has {names}")
    return found


def _heaps(lake: Lake, table: Table) -> Iterator[list[File]]:
    """Small files of one partition that lie beside each other, so that ranges stay narrow."""
    partitions: dict[str, list[File]] = {}
    for each in table.files():
        partitions.setdefault(str([*each.partition.values()]), []).append(each)
    if table in (lake.queue_minutes, lake.consumers_hours) and partitions:
        # Every batch replaces a part of the last day.
        del partitions[max(partitions)]
    for partition, files in partitions.items():
        # Every batch replaces live files with a message that changed, so they stay short.
        rows_max = FILE_ROWS_MAX if LIVE in partition else sys.maxsize
        heap: list[File] = []
        line: list[File | None] = [*sorted(files, key=_place), None]
        for file in line:
            if file is None or _large(file, rows_max) or _large_with(heap, file, rows_max):
                if len(heap) >= FILES_MIN:
                    yield heap
                heap = []
            if file is not None and not _large(file, rows_max):
                heap.append(file)


def _large(file: File, rows_max: int) -> bool:
    """Whether it would be written again for little."""
    return file.size >= FILE_BYTES // 4 or file.rows >= rows_max // 2


def _large_with(heap: list[File], file: File, rows_max: int) -> bool:
    return (
        sum(each.size for each in heap) + file.size > FILE_BYTES
        or sum(each.rows for each in heap) + file.rows > rows_max
        or len(heap) >= FILES_MAX
    )


def _place(file: File) -> tuple[object, ...]:
    """Where in its partition a file is: by its first range."""
    for column in ("offset", "published_at", "minute", "hour"):
        if column in file.low:
            return (file.low[column], file.path)
    return (file.path,)


def _paths(table: Table) -> set[str]:
    """The files that are there, as the log names them."""
    system, root = filesystem(table.uri)
    listed = system.get_file_info(pafs.FileSelector(f"{root}/data", True, recursive=True))
    return {info.path.removeprefix(f"{root}/") for info in listed}


def _remove_empty(folder: Path) -> None:
    """Folders whose last file is gone. Object stores have none."""
    for path, _, _ in os.walk(folder, topdown=False):
        try:
            os.rmdir(path)
        except OSError:
            continue
