"""Delta tables whose files Arrow writes and whose commits are delta-rs': no jars, no catalog.

A commit names the pipeline and the batch it is of, so a batch that is run again after a crash
finds that it was committed, and leaves its files to `vacuum`.
"""

import logging
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from courier import ids
from courier.clock import SystemClock, elapsed_ns
from courier.lake import sql
from courier.lake.files import File, Written, adds_of, files_in, has_all, least, removed
from courier.lake.log import ACTIONS, Log
from courier.lake.parts import RANGED, Parts, columns_of
from courier.lake.schema import TableSchema
from courier.lake.storage import delta_options, filesystem, is_elsewhere

# What only looks at tables does without Spark, which takes longer to import than that takes.
if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from courier.lake.sql import Rows
    from courier.lake.tasks import JournalPages

log = logging.getLogger("courier.lake")

COMMIT_TRIES = 5
LOOK_BACK = 1_000
# A live file is written again when one of its rows changes; this bounds how much that is.
FILE_ROWS_MAX = 100_000
EPOCH = "courier.epoch"
CHECKPOINTS = "delta.checkpointInterval"
# Commits after which the table's own log is summed up.
CHECKPOINT_COMMITS = 50
# Every commit lists the table's log, so the log must not grow: at a batch every 5 s this keeps
# about 700 commits. Clean-up is upkeep's, because it knows which versions are still needed.
LOG_RETENTION = "delta.logRetentionDuration"
LOG_RETENTION_HOURS = 1
# For so long the commit after the last that was seen cannot have been removed from the log, so one
# look at its name tells whether there are any.
LOOKED_S_MAX = LOG_RETENTION_HOURS * 3600 / 2
LOG_CLEANUP = "delta.enableExpiredLogCleanup"
# Checkpoints name the files that were replaced for as long as `vacuum` leaves those alone: at a
# batch every 5 s that is some ten thousand files a day.
REPLACED_RETENTION = "delta.deletedFileRetentionDuration"
REPLACED_RETENTION_HOURS = 24
# The layout of a table: raised when a release of before could not write to it any more.
LAYOUT = "courier.layout"
LAYOUT_NOW = 1
# Tells other readers which columns have stats: they take a missing one for a null.
STATS_COLUMNS = "delta.dataSkippingStatsColumns"
COMPACTED = "compacted"
NOTE = "courier."
# Commits of upkeep say nothing; there are never as many of them in a row.
NOTES_MAX = 100
TASK_ROWS = 50_000
TASK_BYTES = 32 << 20
# Up to here the driver reads and writes files itself, which is done before Spark has planned to.
FEW_ROWS = 10_000
FEW_BYTES = 16 << 20
RESULT_MAX = "spark.driver.maxResultSize"


class LakeError(Exception):
    """A table cannot be read or written; one sentence for the person who runs the pipeline."""


class BadRequest(LakeError):
    """What was asked for cannot be done, however often it is asked for."""


class Damaged(LakeError):
    """A table is not as it was committed: it is neither read nor written."""


class Moved(LakeError):
    """Files that were to be replaced have been replaced by somebody else meanwhile."""


class Outrun(LakeError):
    """Somebody else has added a batch meanwhile that this one was to follow, or holds a part of."""


class Table:
    """One table under the lake's root. `partition_by` is column -> SQL that makes it of others.

    Files are sorted by `sort_by` and hold at most `file_rows_max` rows, so that few of them meet a
    range, and little has to be written again when a row changes.
    """

    def __init__(
        self,
        root: str,
        name: str,
        schema: TableSchema,
        *,
        partition_by: Mapping[str, str] | None = None,
        sort_by: Sequence[str] = (),
        file_rows_max: int = FILE_ROWS_MAX,
    ) -> None:
        self.name = name
        self.uri = f"{root.rstrip('/')}/{name}"
        self.schema = schema
        self._derived = dict(partition_by or {})
        self.partition_by = list(self._derived)
        self._sort_by = list(sort_by)
        self._rows_max = file_rows_max if sort_by else None
        self._log = Log(self.uri)
        self._ranged = {name for name in RANGED if name not in self._derived}
        self._delta: DeltaTable | None = None
        self._known: tuple[int, pa.Table] | None = None
        self._last: tuple[int, str, int | None] | None = None
        # When the last look for a later commit was.
        self._looked_s = -math.inf

    # --- reading ---

    def open(self) -> DeltaTable | None:
        """The table as it is now. Only what is new since the last time is read."""
        if self._delta is not None:
            if self._is_behind(self._delta.version()):
                self._delta.update_incremental()
            return self._delta
        if reason := self._log.damage():
            raise self._damaged(reason)
        try:
            table = DeltaTable(self.uri, storage_options=delta_options(self.uri))
        except TableNotFoundError:
            return None
        except DeltaError as error:
            raise self._damaged(f"{str(error).splitlines()[0][:200]}") from error
        self._check(table)
        self._delta, self._looked_s = table, _elapsed_s()
        return table

    def _is_behind(self, version: int) -> bool:
        """Whether there may be commits after this one, which was the last when it was looked at."""
        before_s, self._looked_s = self._looked_s, _elapsed_s()
        return self._looked_s - before_s > LOOKED_S_MAX or self._log.follows(version)

    def take_back(self) -> None:
        """Remove commits that a power cut has left in parts, and that were never reported."""
        version = self._log.take_back()
        if version is not None:
            text = "table %s: a power cut has left commit %d in parts; what it held comes again"
            log.warning(text, self.name, version)

    def _damaged(self, reason: str) -> Damaged:
        return Damaged(
            f"table {self.name} is damaged: {reason}; restore {self.uri} from a copy, or, if it is "
            "not events, remove it and run `courier pipeline rebuild`"
        )

    def check_files(self) -> None:
        """Raises Damaged when a file on disk is missing, or shorter or longer than it was."""
        table = self.open()
        if table is None or is_elsewhere(self.uri):
            return
        for row in self._adds(table).select(["path", "size_bytes"]).to_pylist():
            try:
                size = os.stat(f"{self.uri}/{row['path']}").st_size
            except FileNotFoundError:
                raise self._damaged(f"its file {row['path']} is missing") from None
            if size != row["size_bytes"]:
                raise self._damaged(
                    f"its file {row['path']} has {size} bytes in place of {row['size_bytes']}"
                )

    def _check(self, table: DeltaTable) -> None:
        """Raises LakeError unless the table is one of ours, of this release or of one near it.

        Columns that can be null come and go with releases: those of a later one are left alone,
        and `upgrade` adds what an earlier one did not have.
        """
        there = {field.name: field.nullable for field in table.schema().fields}
        ours = all(name in there for name in self.schema.required) and all(
            nullable for name, nullable in there.items() if name not in self.schema.names
        )
        if not ours or table.metadata().partition_columns != self.partition_by:
            raise LakeError(
                f"{self.uri} is not one of Courier's tables: it has the columns "
                f"{', '.join(there)[:200]}; choose another place with --lake"
            )
        if int(table.metadata().configuration.get(LAYOUT, 0)) > LAYOUT_NOW:
            raise LakeError(f"{self.uri} was written by a newer Courier: use that one")

    def upgrade(self) -> None:
        """Give a table of an earlier release the columns and properties of this one."""
        table = self.open()
        if table is None:
            return
        there = {field.name for field in table.schema().fields}
        missing = self.schema.without(there)
        if missing.names:
            table.alter.add_columns(list(Schema.from_arrow(missing.arrow()).fields))
        known, wanted = self.properties(), self._properties()
        if any(known.get(name) != value for name, value in wanted.items()):
            self.set_properties(wanted)
        self.sync()

    def sync(self) -> None:
        """Make durable what is committed, by whomever; it survives a power cut from then on."""
        table = self.open()
        if table is not None:
            self._log.sync(table.version())

    def _properties(self) -> dict[str, str]:
        return {
            CHECKPOINTS: str(CHECKPOINT_COMMITS),
            LOG_RETENTION: f"interval {LOG_RETENTION_HOURS} hours",
            LOG_CLEANUP: "false",
            REPLACED_RETENTION: f"interval {REPLACED_RETENTION_HOURS} hours",
            LAYOUT: str(LAYOUT_NOW),
            STATS_COLUMNS: ",".join(name for name in self.schema.names if name in self._ranged),
        }

    def properties(self) -> Mapping[str, str]:
        """What is recorded of the table as a whole."""
        table = self.open()
        return {} if table is None else table.metadata().configuration

    def set_properties(self, properties: Mapping[str, str]) -> None:
        table = self.open()
        assert table is not None
        table.alter.set_table_properties(dict(properties), raise_if_not_exists=False)

    def trim_log(self) -> None:
        """Remove commits that are summed up in a checkpoint and older than the log's retention."""
        table = self.open()
        if table is not None:
            table.cleanup_metadata()

    @property
    def id(self) -> str:
        """What it is known by, wherever it lies; empty when it is not there."""
        table = self.open()
        return "" if table is None else str(table.metadata().id)

    @property
    def epoch(self) -> str:
        """Which journal the table was made of; empty when it is not there."""
        return self.properties().get(EPOCH, "")

    def committed(self, app: str) -> int | None:
        """The last batch of this pipeline that is in the table."""
        table = self.open()
        return None if table is None else self._committed(table, app)

    def _committed(self, table: DeltaTable, app: str) -> int | None:
        """The last answer is kept: delta-rs reads the log for it, and a batch asks many times."""
        version = table.version()
        if self._last is None or self._last[:2] != (version, app):
            self._last = version, app, table.transaction_version(app)
        return self._last[2]

    def note(self) -> dict[str, Any]:
        """What the last batch said about itself, and when; nothing when there was none."""
        table = self.open()
        for info in () if table is None else self._log.infos(table.version(), NOTES_MAX):
            if any(key.startswith(NOTE) for key in info):
                return info
        return {}

    def files(
        self, *, partition: str | None = None, meets: tuple[str, Any, Any] | None = None
    ) -> list[File]:
        """Its files: all, those of one partition, or those that may have values in a range."""
        table = self.open()
        return (
            [] if table is None else files_in(self._adds(table), partition=partition, meets=meets)
        )

    def least(self, column: str) -> Any:
        """The least value of a column; None if there is none."""
        table = self.open()
        return None if table is None else least(self._adds(table), column)

    def _adds(self, table: DeltaTable) -> pa.Table:
        """What the log says of its files. The last answer is kept: a batch asks many times."""
        version = table.version()
        if self._known is None or self._known[0] != version:
            self._known = version, adds_of(table)
        return self._known[1]

    def files_at(self, app: str, batch: int, *, partition: str | None = None) -> list[File]:
        """Its files as they were when a batch was the last; they stay until `vacuum`."""
        table = DeltaTable(self.uri, storage_options=delta_options(self.uri))
        for version in range(table.version(), max(-1, table.version() - LOOK_BACK), -1):
            try:
                table.load_as_version(version)
            except TableNotFoundError:  # its commit has been removed from the log
                break
            if (table.transaction_version(app) or 0) <= batch:
                return files_in(adds_of(table), partition=partition)
        raise LakeError(
            f"table {self.name} has no version of batch {batch} any more: rebuild it with "
            "`courier pipeline rebuild`"
        )

    def read(self, spark: "SparkSession", files: Iterable[File] | None = None) -> "DataFrame":
        """The rows of the table, or of some of its files."""
        chosen = self.files() if files is None else list(files)
        if not chosen:
            # Spark sees that there are none, and leaves out what would be done with them.
            none = [f"null::{kind} as `{name}`" for name, kind in self.schema.kinds.items()]
            return spark.sql(f"select {', '.join(none)} where false")
        rows = self._stored_rows(spark, chosen).selectExpr(*self._columns())
        # One task does a few rows as fast as two, and nothing has to be shuffled between them.
        few = sum(file.rows for file in chosen) < TASK_ROWS
        return rows.coalesce(1) if few else rows

    def _stored_rows(self, spark: "SparkSession", chosen: Sequence[File]) -> "DataFrame":
        stored = self._stored()
        if is_few(chosen):
            return spark.createDataFrame(self.look(chosen, stored.names))
        if is_elsewhere(self.uri):
            from courier.lake.tasks import read_by_tasks

            tasks = [[file.path for file in task] for task in _tasks(chosen)]
            return read_by_tasks(spark, self.uri, tasks, stored.spark())
        # Looked up recursively, paths say nothing to Spark about partitions.
        reader = spark.read.schema(stored.spark()).option("recursiveFileLookup", "true")
        return reader.parquet(*(f"{self.uri}/{file.path}" for file in chosen))

    def _stored(self) -> TableSchema:
        """The columns that are in files; those of partitions are in the log."""
        return self.schema.without(self._derived)

    def look(self, files: Iterable[File], columns: Sequence[str]) -> pa.Table:
        """Some columns of some files, in this process: sooner than Spark plans to read them."""
        system, root = filesystem(self.uri)
        wanted = self.schema.only(columns).arrow()
        parts = [columns_of(system, f"{root}/{file.path}", wanted) for file in files]
        return pa.concat_tables([wanted.empty_table(), *parts])

    def here(self, files: Iterable[File]) -> pa.Table:
        """All columns of some files, in this process."""
        return self._completed(self.look(files, self._stored().names))

    def _completed(self, rows: pa.Table) -> pa.Table:
        """With the columns of partitions."""
        return sql.completed(rows, self._derived, self.schema.arrow())

    def _columns(self) -> list[str]:
        """SQL for all of them, of rows that need not have those of partitions."""
        made = {name: f"{made_of} as {name}" for name, made_of in self._derived.items()}
        return [made.get(name, f"`{name}`") for name in self.schema.names]

    # --- writing ---

    def write(
        self,
        rows: "Rows | JournalPages",
        *,
        batch: int,
        files_max: int = 1,
        rows_max: int | None = None,
    ) -> Written:
        """Write the files of a batch; they belong to the table once committed.

        Spark's tasks do it, unless the rows are here, or at most `rows_max` and that is few.
        """
        name = f"{batch:012d}"
        if isinstance(rows, pa.Table):
            return self._write_here(self._completed(rows), name)
        from courier.lake.tasks import JournalPages, copy_by_tasks, write_by_tasks

        unique = f"{name}-{ids.new_id()[:12]}"
        if isinstance(rows, JournalPages):
            return Written(copy_by_tasks(rows, self.uri, unique, files_max=files_max))
        columns = self._order()
        rows = rows.selectExpr(*self._columns()).coalesce(files_max)
        if rows_max is not None and rows_max <= FEW_ROWS:
            found = _collected(rows)
            if found is not None:
                return self._write_here(found, name)
        if columns:
            rows = rows.sortWithinPartitions(*columns)
        days, limit = self.partition_by, self._rows_max
        return Written(write_by_tasks(rows, self.uri, unique, partition_by=days, rows_max=limit))

    def _order(self) -> list[str]:
        return [*self.partition_by, *self._sort_by] if self._sort_by else []

    def _write_here(self, rows: pa.Table, name: str) -> Written:
        if columns := self._order():
            rows = rows.sort_by([(column, "ascending") for column in columns])
        by, limit = self.partition_by, self._rows_max
        parts = Parts(self.uri, name, self.schema.arrow(), partition_by=by, rows_max=limit)
        parts.add(rows)
        return Written(parts.close())

    def rewrite(
        self, files: Sequence[File], change: Callable[[pa.Table], pa.Table] | None = None
    ) -> Written:
        """Write the rows of some files of one partition into one, in the order of the files.

        They may be changed on the way, or be left out.
        """
        system, root = filesystem(self.uri)
        columns = self._stored().arrow()
        parts = Parts(self.uri, COMPACTED, columns, all_of=files[0].partition)
        for file in files:
            found = columns_of(system, f"{root}/{file.path}", columns)
            parts.add(found if change is None else change(found))
        return Written(parts.close())

    def write_rows(self, rows: Sequence[Mapping[str, Any]], **partition: str | None) -> Written:
        """Write a few rows of one partition, without Spark."""
        columns = self._stored().arrow()
        parts = Parts(self.uri, COMPACTED, columns, all_of=partition)
        parts.add(pa.Table.from_pylist(list(rows), columns))
        return Written(parts.close())

    def commit(
        self,
        written: Written | None,
        *,
        app: str = "",
        batch: int = 0,
        after: int | None = None,
        removes: Sequence[File] = (),
        note: Mapping[str, str] | None = None,
        same_rows: bool = False,
    ) -> bool:
        """Add what was written and remove files, at once; False: the batch was there already.

        Batches are numbered upwards; without an app it is of none. `same_rows` says that they are
        only in other files now. Raises Moved when a file to remove is not there any more, and
        Outrun when the last batch is not `after`.
        """
        adds = written.actions if written else []
        for add in adds:
            add.data_change = not same_rows
        now_ms = SystemClock().now_ms()
        gone = [removed(file, now_ms, data_change=not same_rows) for file in removes]
        actions: list[AddAction | RemoveAction] = [*adds, *gone]
        count = len(actions) + bool(app)
        properties = CommitProperties(
            custom_metadata={**(note or {}), ACTIONS: str(count)},
            app_transactions=[Transaction(app, batch)] if app else None,
            # A conflict comes back here, to see whether it was with this very batch.
            max_commit_retries=0,
        )
        for left in reversed(range(COMMIT_TRIES)):
            table = self.open() or self.create()
            known = self._committed(table, app) if app else None
            if known is not None and known >= batch:
                self.sync()  # the process that committed it may have died before
                return False
            if known is not None and after is not None and known != after:
                raise Outrun(
                    f"table {self.name} was moved from {after} to {known} by another pipeline "
                    "meanwhile: end that one, or this"
                )
            if removes and not has_all(self._adds(table), removes):
                raise Moved(f"files of table {self.name} have been compacted meanwhile")
            try:
                table.create_write_transaction(
                    actions,
                    mode="append",
                    schema=table.schema(),
                    partition_by=self.partition_by,
                    commit_properties=properties,
                )
                self.sync()
                return True
            except CommitFailedError as error:
                # Whatever the last look said, there is a later commit.
                self._looked_s = -math.inf
                if not left:
                    raise LakeError(f"table {self.name} cannot be committed: {error}") from error
        return False

    def create(self, *, epoch: str = "") -> DeltaTable:
        """Make the table, unless it is there, for the journal of this epoch."""
        DeltaTable.create(
            self.uri,
            schema=self.schema.arrow(),
            mode="ignore",
            partition_by=self.partition_by,
            storage_options=delta_options(self.uri),
            configuration={EPOCH: epoch, **self._properties()},
            raise_if_key_not_exists=False,
        )
        table = self.open()
        assert table is not None
        self.sync()
        return table


def _elapsed_s() -> float:
    """While a machine sleeps, others may remove what it has not seen of a log in a bucket."""
    return elapsed_ns() / 1e9


def _collected(rows: "DataFrame") -> pa.Table | None:
    """The rows, in this process; None if they are larger than Spark lets through."""
    from pyspark.errors import PySparkException

    try:
        return rows.toArrow()
    except PySparkException as error:
        if RESULT_MAX not in str(error):
            raise
        return None


def is_few(files: Sequence[File]) -> bool:
    """Whether the driver has read their rows before Spark has planned to."""
    return (
        sum(file.rows for file in files) <= FEW_ROWS
        and sum(file.size for file in files) <= FEW_BYTES
    )


def _tasks(files: Sequence[File]) -> Iterator[list[File]]:
    """Files by the task that reads them: few, or one that is large."""
    task: list[File] = []
    for file in files:
        if task and sum(each.size for each in task) + file.size > TASK_BYTES:
            yield task
            task = []
        task.append(file)
    yield task
