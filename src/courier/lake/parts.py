"""Data files as Arrow writes and reads them, on a disk or in a bucket: no Hadoop, no jars.

Tasks of Spark do so (see `tasks`); few rows are written by the driver itself. Files are durable
before anybody hears of them, and belong to no table before they are committed.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from courier import files, ids
from courier.clock import SystemClock
from courier.lake.storage import filesystem

DATA = "data"
# As the folder of a partition without a value is called everywhere.
NONE = "__HIVE_DEFAULT_PARTITION__"
# What a file has in stats, for skipping it unread.
RANGED = ("offset", "at", "published_at", "done_at", "minute", "hour")
# Rows that are kept in memory before they are compressed and written.
GROUP_ROWS = 100_000
GROUP_BYTES = 64 << 20
# Partitions that are written beside each other; rows come in the order of time, or nearly so.
OPEN_MAX = 8


@dataclass(frozen=True)
class Part:
    """One file that was written, with its path in the table, and stats as Delta has them."""

    path: str
    size: int
    rows: int
    partition: dict[str, str | None]
    at_ms: int
    stats: dict[str, Any]


class Parts:
    """Writes rows into files of one partition and at most `rows_max` rows each."""

    def __init__(
        self,
        uri: str,
        name: str,
        schema: pa.Schema,
        *,
        partition_by: Sequence[str] = (),
        rows_max: int | None = None,
        all_of: Mapping[str, str | None] | None = None,
    ) -> None:
        """`all_of`: the partition of all rows, which then need not have its columns."""
        self._system, self._root = filesystem(uri)
        self._local = isinstance(self._system, pafs.LocalFileSystem)
        self._name = f"{name}-{ids.new_id()[:12]}"
        self._all_of = all_of
        self._stored = pa.schema([each for each in schema if each.name not in partition_by])
        self._partition_by = list(partition_by) if all_of is None else list(all_of)
        self._rows_max = rows_max
        self._count = 0
        self._folders: set[str] = set()
        self._open: dict[tuple[str | None, ...], _File] = {}
        self._done: list[Part] = []

    def add(self, rows: pa.Table) -> None:
        """More rows, with the columns of their partition."""
        for key, part in self._divided(rows):
            part = part.select(self._stored.names).cast(self._stored)
            while part.num_rows:
                file = self._file(key)
                room = part.num_rows
                if self._rows_max is not None:
                    room = self._rows_max - file.rows
                file.add(part.slice(0, room))
                part = part.slice(room)
                if file.rows == self._rows_max:
                    self._finish(key)

    def close(self) -> list[Part]:
        """The files, which are durable."""
        for key in [*self._open]:
            self._finish(key)
        for folder in self._folders if self._local else ():
            files.sync_directory(Path(self._root, folder))
        return self._done

    def _divided(self, rows: pa.Table) -> Iterator[tuple[tuple[str | None, ...], pa.Table]]:
        if self._all_of is not None or not self._partition_by:
            yield tuple((self._all_of or {}).values()), rows
            return
        import pyarrow.compute as pc

        kinds = rows.select(self._partition_by).group_by(self._partition_by, use_threads=False)
        found = kinds.aggregate([]).to_pylist()
        for values in found:
            chosen = rows
            if len(found) > 1:
                for name, value in values.items():
                    column = pc.field(name)
                    wanted = column.is_null() if value is None else column == value
                    chosen = chosen.filter(wanted)
            yield tuple(_folder(value) for value in values.values()), chosen

    def _file(self, key: tuple[str | None, ...]) -> "_File":
        if key not in self._open:
            if len(self._open) >= OPEN_MAX:
                self._finish(next(iter(self._open)))
            # Some readers take the partition from the path, whatever the log says.
            pairs = zip(self._partition_by, key, strict=True)
            folder = "/".join([DATA, *(f"{name}={NONE if v is None else v}" for name, v in pairs)])
            if self._local and folder not in self._folders:
                files.make_directory(Path(self._root, folder))
            self._folders.add(folder)
            path = f"{folder}/{self._name}-{self._count:04d}.parquet"
            self._count += 1
            self._open[key] = _File(self._system, self._root, path, self._stored)
        return self._open[key]

    def _finish(self, key: tuple[str | None, ...]) -> None:
        partition = dict(zip(self._partition_by, key, strict=True))
        self._done.append(self._open.pop(key).close(partition))


class _File:
    def __init__(self, system: pafs.FileSystem, root: str, path: str, schema: pa.Schema) -> None:
        self.rows = 0
        self._path = path
        self._waiting: list[pa.Table] = []
        self._waiting_rows = self._waiting_bytes = 0
        self._around = ExitStack()
        local = isinstance(system, pafs.LocalFileSystem)
        place = f"{root}/{path}"
        sink = files.open_new(Path(place)) if local else system.open_output_stream(place)
        self._sink = self._around.enter_context(sink)
        self._local = local
        self._footers: list[pq.FileMetaData] = []
        self._writer = pq.ParquetWriter(
            self._sink, schema, metadata_collector=self._footers, write_page_checksum=True
        )

    def add(self, rows: pa.Table) -> None:
        self.rows += rows.num_rows
        self._waiting.append(rows)
        self._waiting_rows += rows.num_rows
        self._waiting_bytes += rows.nbytes
        if self._waiting_rows >= GROUP_ROWS or self._waiting_bytes >= GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._waiting:
            group = pa.concat_tables(self._waiting)
            self._writer.write_table(group, row_group_size=GROUP_ROWS)
            self._waiting, self._waiting_rows, self._waiting_bytes = [], 0, 0

    def close(self, partition: dict[str, str | None]) -> Part:
        with self._around:
            self._flush()
            self._writer.close()
            if self._local:
                files.sync_open(self._sink)
            size = self._sink.tell()
        (footer,) = self._footers
        return Part(
            self._path, size, self.rows, partition, SystemClock().now_ms(), stats_of(footer)
        )


def stats_of(footer: pq.FileMetaData) -> dict[str, Any]:
    """Least and greatest values, and nulls, of the columns that files are chosen by."""
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for group in range(footer.num_row_groups):
        for number in range(footer.num_columns):
            column = footer.row_group(group).column(number)
            name, stats = column.path_in_schema, column.statistics
            if name not in RANGED or stats is None:
                continue
            nulls[name] = nulls.get(name, 0) + (stats.null_count or 0)
            if stats.has_min_max:
                low[name] = min(low.get(name, stats.min), stats.min)
                high[name] = max(high.get(name, stats.max), stats.max)
    return {
        "numRecords": footer.num_rows,
        "minValues": {name: _spelled(value) for name, value in low.items()},
        "maxValues": {name: _spelled(value, up=True) for name, value in high.items()},
        "nullCount": nulls,
    }


def _spelled(value: Any, *, up: bool = False) -> Any:
    """As Delta writes it: times in UTC with milliseconds, rounded away from the rows."""
    if not isinstance(value, datetime):
        return value
    if up:
        value += timedelta(microseconds=999)
    return f"{value:%Y-%m-%dT%H:%M:%S}.{value.microsecond // 1000:03d}Z"


def _folder(value: Any) -> str | None:
    """The value of a partition as Delta has it."""
    if value is None or isinstance(value, str):
        return value
    assert isinstance(value, date)
    return value.isoformat()


def columns_of(system: pafs.FileSystem, path: str, columns: pa.Schema) -> pa.Table:
    """Of a file. One of an earlier release has no column that came later: all of it is null."""
    with system.open_input_file(path) as source:
        found = pq.ParquetFile(source, page_checksum_verification=True).read(columns.names)
    return fitted(found, columns)


def fitted(found: pa.Table, columns: pa.Schema) -> pa.Table:
    for field in columns:
        if field.name not in found.column_names:
            found = found.append_column(field, pa.nulls(found.num_rows, field.type))
    return found.select(columns.names).cast(columns)
