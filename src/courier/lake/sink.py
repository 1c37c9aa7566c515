"""Queues as a sink: every row is published once, however often its task is run."""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
)

from courier.lake.client import Client, CourierError
from courier.lake.options import BadOption, Options

REQUEST_BYTES = 4 << 20
REQUEST_ROWS = 10_000
_TEXT = (StringType(),)
_TAKEN: dict[str, tuple[DataType, ...]] = {
    "body": (StringType(), BinaryType()),
    "content_type": _TEXT,
    "headers": (MapType(StringType(), StringType()), StringType()),
    "delay_ms": (LongType(), IntegerType()),
    "group": _TEXT,
    "message_id": _TEXT,
}


@dataclass
class Written(WriterCommitMessage):
    """What one task published, and how much of that an earlier run of it had published before."""

    rows: int
    repeated: int


def check(asked: Options, schema: StructType, *, overwrite: bool) -> None:
    """Raises BadOption before any row is sent."""
    if not asked.queue:
        raise BadOption("option 'queue' is missing: the queue to publish to")
    if overwrite:
        raise BadOption("a queue cannot be overwritten: use mode append")
    if "body" not in schema.names:
        raise BadOption(f"there is no column 'body' among {', '.join(schema.names)}")
    for each in schema:
        taken = _TAKEN.get(each.name)
        if taken is None:
            raise BadOption(f"column '{each.name}' is none of {', '.join(_TAKEN)}")
        if not any(_same(each.dataType, kind) for kind in taken):
            wanted = " or ".join(kind.simpleString() for kind in taken)
            raise BadOption(
                f"column '{each.name}' is {each.dataType.simpleString()}, not {wanted}"
            )


def _same(given: DataType, wanted: DataType) -> bool:
    return given.simpleString() == wanted.simpleString()


def publish(asked: Options, key: str, batches: Iterator[pa.RecordBatch]) -> Written:
    """Publish rows under a key; their numbers under it tell whether they were there before."""
    rows = new = 0
    with Client(asked.place) as broker:
        for batch in batches:
            for part in _cut(batch):
                new += broker.publish(asked.queue, part, once=key, first=rows)
                rows += part.num_rows
    return Written(rows, rows - new)


def _cut(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Parts that one request can carry."""
    if not batch.num_rows:
        return
    row_bytes = max(1, batch.nbytes // batch.num_rows)
    size = max(1, min(REQUEST_ROWS, REQUEST_BYTES // row_bytes))
    for first in range(0, batch.num_rows, size):
        yield batch.slice(first, size)


def _task() -> TaskContext:
    task = TaskContext.get()
    if task is None:
        raise CourierError("rows are published by Spark's tasks only")
    return task


class QueueWriter(DataSourceArrowWriter):
    """One write. With option `writeId` it can be run again, and publishes only what is missing."""

    def __init__(self, asked: Options, schema: StructType, overwrite: bool) -> None:
        check(asked, schema, overwrite=overwrite)
        self._asked = asked
        self._key = asked.write_id or uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return publish(self._asked, f"{self._key}/{_task().partitionId()}", iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Rows are published as they come."""

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """What was published stays; the same write run again goes on from there."""


class QueueStreamWriter(DataSourceStreamArrowWriter):
    """The rows of query, batch and partition have the same key in every attempt and every run."""

    def __init__(self, asked: Options, schema: StructType, overwrite: bool) -> None:
        check(asked, schema, overwrite=overwrite)
        self._asked = asked

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        task = _task()
        query = task.getLocalProperty("sql.streaming.queryId")
        batch = task.getLocalProperty("streaming.sql.batchId")
        if not query or batch is None:
            raise CourierError("Spark does not say which query and batch this task belongs to")
        return publish(self._asked, f"{query}/{batch}/{task.partitionId()}", iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Rows are published as they come."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """The batch is run again under the same keys."""
