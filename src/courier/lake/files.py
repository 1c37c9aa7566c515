"""The Parquet files that a table is made of, and what is known of each without reading it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.transaction import AddAction, RemoveAction

# What a file has in stats, for skipping it unread.
RANGED = ("offset", "at", "published_at", "done_at", "minute", "hour")


@dataclass(frozen=True)
class File:
    """One data file of a table. `low` and `high` bound its columns, as stats write them."""

    path: str
    rows: int
    size: int
    partition: Mapping[str, str | None]
    low: Mapping[str, Any]
    high: Mapping[str, Any]

    def meets(self, column: str, low: Any, high: Any) -> bool:
        """Whether rows with a value from `low` to `high` may be in it."""
        if column not in self.low or column not in self.high:
            return True
        return bool(self.low[column] <= high and self.high[column] >= low)


class Written:
    """Files in a folder of a table, not yet part of it."""

    def __init__(self, uri: str, place: str, *, partition_by: Sequence[str]) -> None:
        self.rows = 0
        self.actions: list[AddAction] = []
        self._low: dict[str, Any] = {}
        self._high: dict[str, Any] = {}
        system, root = filesystem(uri)
        for info in system.get_file_info(pafs.FileSelector(f"{root}/{place}", recursive=True)):
            if info.type == pafs.FileType.File and info.path.endswith(".parquet"):
                self._add(system, info, info.path[len(root) + 1 :], partition_by)

    def range(self, column: str) -> tuple[Any, Any]:
        """The least and the greatest value of a column."""
        return self._low[column], self._high[column]

    def _add(
        self, system: pafs.FileSystem, info: pafs.FileInfo, path: str, declared: Sequence[str]
    ) -> None:
        with system.open_input_file(info.path) as source:
            footer = pq.read_metadata(source)
        if not footer.num_rows:
            return
        self.rows += footer.num_rows
        low, high, nulls = _ranges(footer)
        for name in low:
            self._low[name] = min(self._low.get(name, low[name]), low[name])
            self._high[name] = max(self._high.get(name, high[name]), high[name])
        stats = {
            "numRecords": footer.num_rows,
            "minValues": {name: _spelled(value) for name, value in low.items()},
            "maxValues": {name: _spelled(value, up=True) for name, value in high.items()},
            "nullCount": nulls,
        }
        self.actions.append(
            AddAction(
                path=path,
                size=info.size,
                partition_values=_partition(path, declared),
                modification_time=int((info.mtime_ns or 0) // 1_000_000),
                data_change=True,
                stats=json.dumps(stats),
            )
        )


def removed(file: File, at_ms: int, *, data_change: bool) -> RemoveAction:
    """What takes a file out of its table."""
    return RemoveAction(
        path=file.path,
        data_change=data_change,
        deletion_timestamp=at_ms,
        size=file.size,
        partition_values=dict(file.partition),
    )


def filesystem(uri: str) -> tuple[pafs.FileSystem, str]:
    """What reads and writes files at an address or in a folder, and where they are in it."""
    if "://" not in uri:
        return pafs.LocalFileSystem(), uri.rstrip("/")
    system, path = pafs.FileSystem.from_uri(uri)
    return system, path.rstrip("/")


def _partition(path: str, declared: Sequence[str]) -> dict[str, str | None]:
    """The table's partition that a file's folders name; folders may say more than that."""
    pairs = (part.partition("=") for part in path.split("/") if "=" in part)
    return {
        name: None if value == "__HIVE_DEFAULT_PARTITION__" else unquote(value)
        for name, _, value in pairs
        if name in declared
    }


def _ranges(
    footer: pq.FileMetaData,
) -> tuple[dict[str, Any], dict[str, Any], dict[str, int]]:
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
    return low, high, nulls


def _spelled(value: Any, *, up: bool = False) -> Any:
    """As Delta writes it: times in UTC with milliseconds, rounded away from the rows."""
    if not isinstance(value, datetime):
        return value
    if up:
        value += timedelta(microseconds=999)
    return f"{value:%Y-%m-%dT%H:%M:%S}.{value.microsecond // 1000:03d}Z"


def files_of(
    table: DeltaTable,
    *,
    partition: str | None = None,
    meets: tuple[str, Any, Any] | None = None,
) -> list[File]:
    """Those of a table as it is open: all, of one partition, or with values in a range."""
    adds = pa.table(table.get_add_actions(flatten=False))
    if partition is not None and adds.num_rows:
        (values,) = adds.column("partition").combine_chunks().flatten()
        adds = adds.filter(pc.equal(values.cast(pa.string()), partition))
    found = [
        File(
            path=row["path"],
            rows=row.get("num_records") or 0,
            size=row.get("size_bytes") or 0,
            partition={k: None if v is None else str(v) for k, v in row["partition"].items()},
            low={k: v for k, v in (row.get("min") or {}).items() if v is not None},
            high={k: v for k, v in (row.get("max") or {}).items() if v is not None},
        )
        for row in adds.to_pylist()
    ]
    return [file for file in found if meets is None or file.meets(*meets)]
