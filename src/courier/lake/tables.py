"""Delta tables whose files Spark writes and whose commits are delta-rs': no jars, no catalog.

A commit names the pipeline and the batch it is of, so a batch that is run again after a crash
finds that it was committed, and leaves its files to `vacuum`.
"""

import json
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr
from pyspark.sql.types import StructType

COMMIT_TRIES = 5
# What a file has in stats, for skipping it unread.
RANGED = ("offset", "at", "published_at", "done_at", "minute", "hour")


class LakeError(Exception):
    """A table cannot be read or written; one sentence for the person who runs the pipeline."""


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


class Table:
    """One table under the lake's root. `partition_by` is column -> SQL that makes it of others."""

    def __init__(
        self,
        root: str,
        name: str,
        schema: StructType,
        *,
        partition_by: Mapping[str, str] | None = None,
        storage: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.uri = f"{root.rstrip('/')}/{name}"
        self.schema = schema
        self._derived = dict(partition_by or {})
        self.partition_by = list(self._derived)
        self._storage = dict(storage or {})

    # --- reading ---

    def open(self) -> DeltaTable | None:
        try:
            return DeltaTable(self.uri, storage_options=self._storage or None)
        except TableNotFoundError:
            return None

    def committed(self, app: str) -> int | None:
        """The last batch of this pipeline that is in the table."""
        table = self.open()
        return None if table is None else table.transaction_version(app)

    def files(self) -> list[File]:
        table = self.open()
        return [] if table is None else _files(table)

    def read(self, spark: SparkSession, files: Iterable[File] | None = None) -> DataFrame:
        """The rows of the table, or of some of its files."""
        chosen = self.files() if files is None else list(files)
        if not chosen:
            return spark.createDataFrame([], self.schema)
        paths = [f"{self.uri}/{file.path}" for file in chosen]
        stored = [field for field in self.schema if field.name not in self._derived]
        # Looked up recursively, paths say nothing to Spark about partitions.
        reader = spark.read.schema(StructType(stored)).option("recursiveFileLookup", "true")
        return self._with_partitions(reader.parquet(*paths))

    def _with_partitions(self, rows: DataFrame) -> DataFrame:
        made = {name: expr(sql) for name, sql in self._derived.items()}
        return rows.withColumns(made).select(*self.schema.names)

    # --- writing ---

    def write(self, rows: DataFrame, *, batch: int, files_max: int = 1) -> "Written":
        """Have Spark write the files of a batch; they belong to the table once committed."""
        place = f"data/{batch:012d}-{uuid.uuid4().hex[:12]}"
        writer = self._with_partitions(rows).coalesce(files_max).write.mode("error")
        if self.partition_by:
            writer = writer.partitionBy(*self.partition_by)
        writer.parquet(f"{self.uri}/{place}")
        return Written(self, place)

    def commit(
        self,
        written: "Written | None",
        *,
        app: str,
        batch: int,
        removes: Sequence[File] = (),
        note: Mapping[str, str] | None = None,
    ) -> bool:
        """Add what was written and remove files, at once; False: the batch was there already."""
        adds = written.actions() if written else []
        now_ms = time.time_ns() // 1_000_000
        actions: list[AddAction | RemoveAction] = [*adds, *(_remove(f, now_ms) for f in removes)]
        properties = CommitProperties(
            custom_metadata=dict(note or {}),
            app_transactions=[Transaction(app, batch)],
        )
        for left in reversed(range(COMMIT_TRIES)):
            table = self.open() or self._create()
            known = table.transaction_version(app)
            if known is not None and known >= batch:
                return False
            try:
                table.create_write_transaction(
                    actions,
                    mode="append",
                    schema=table.schema(),
                    partition_by=self.partition_by,
                    commit_properties=properties,
                )
                return True
            except CommitFailedError as error:
                if not left:
                    raise LakeError(f"table {self.name} cannot be committed: {error}") from error
        return False

    def _create(self) -> DeltaTable:
        return DeltaTable.create(
            self.uri,
            schema=_arrow(self.schema),
            mode="ignore",
            partition_by=self.partition_by,
            storage_options=self._storage or None,
        )


class Written:
    """Files that Spark wrote into a table's folder, not yet part of the table."""

    def __init__(self, table: Table, place: str) -> None:
        self._table = table
        self._place = place

    def actions(self) -> list[AddAction]:
        system, root = _filesystem(self._table.uri)
        found = system.get_file_info(pafs.FileSelector(f"{root}/{self._place}", recursive=True))
        adds = []
        for info in found:
            if info.type != pafs.FileType.File or not info.path.endswith(".parquet"):
                continue
            with system.open_input_file(info.path) as source:
                footer = pq.read_metadata(source)
            if not footer.num_rows:
                continue
            path = info.path[len(root) + 1 :]
            adds.append(
                AddAction(
                    path=path,
                    size=info.size,
                    partition_values=_partition(path),
                    modification_time=int((info.mtime_ns or 0) // 1_000_000),
                    data_change=True,
                    stats=json.dumps(_stats(footer)),
                )
            )
        return adds


def _remove(file: File, at_ms: int) -> RemoveAction:
    return RemoveAction(
        path=file.path,
        data_change=True,
        deletion_timestamp=at_ms,
        size=file.size,
        partition_values=dict(file.partition),
    )


def _filesystem(uri: str) -> tuple[pafs.FileSystem, str]:
    system, path = pafs.FileSystem.from_uri(uri if "://" in uri else f"file://{uri}")
    return system, path.rstrip("/")


def _partition(path: str) -> dict[str, str | None]:
    pairs = (part.partition("=") for part in path.split("/") if "=" in part)
    return {
        name: None if value == "__HIVE_DEFAULT_PARTITION__" else value for name, _, value in pairs
    }


def _stats(footer: pq.FileMetaData) -> dict[str, Any]:
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    for group in range(footer.num_row_groups):
        for number in range(footer.num_columns):
            column = footer.row_group(group).column(number)
            name, stats = column.path_in_schema, column.statistics
            if name not in RANGED or stats is None or not stats.has_min_max:
                continue
            low[name] = min(low.get(name, stats.min), stats.min)
            high[name] = max(high.get(name, stats.max), stats.max)
    return {
        "numRecords": footer.num_rows,
        "minValues": {name: _spelled(value) for name, value in low.items()},
        "maxValues": {name: _spelled(value, up=True) for name, value in high.items()},
        "nullCount": {},
    }


def _spelled(value: Any, *, up: bool = False) -> Any:
    """As Delta writes it: times in UTC with milliseconds, rounded away from the rows."""
    if not hasattr(value, "isoformat"):
        return value
    ms = value.microsecond // 1000
    text = value.strftime("%Y-%m-%dT%H:%M:%S")
    return f"{text}.{min(999, ms + 1) if up and value.microsecond % 1000 else ms:03d}Z"


def _files(table: DeltaTable) -> list[File]:
    found = []
    for row in pa.table(table.get_add_actions(flatten=False)).to_pylist():
        found.append(
            File(
                path=row["path"],
                rows=row.get("num_records") or 0,
                size=row.get("size_bytes") or 0,
                partition=row.get("partition") or row.get("partition_values") or {},
                low={k: v for k, v in (row.get("min") or {}).items() if v is not None},
                high={k: v for k, v in (row.get("max") or {}).items() if v is not None},
            )
        )
    return found


def _arrow(schema: StructType) -> pa.Schema:
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, timezone="UTC")
