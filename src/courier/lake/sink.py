"""Queues as a sink: every row is published once, however often its task is run."""

from collections.abc import Iterator, Sequence
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

from courier import ids
from courier.lake.bulk import none_beside, publish
from courier.lake.client import Client, CourierError, Place
from courier.lake.options import BadOption, Options

_TEXT = (StringType(),)
_TAKEN: dict[str, tuple[DataType, ...]] = {
    "body": (StringType(), BinaryType()),
    "content_type": _TEXT,
    "headers": (MapType(StringType(), StringType()), StringType()),
    "delay_ms": (LongType(), IntegerType()),
    "group": _TEXT,
    "message_id": _TEXT,
    "sealed": _TEXT,
}


@dataclass
class TaskPublished(WriterCommitMessage):
    """What one task published, now or in an earlier run, under the key `run` and its partition."""

    run: str
    rows: int


def check(asked: Options, schema: StructType, place: Place, *, overwrite: bool) -> None:
    """Raises CourierError before any row is sent."""
    if not asked.queue:
        raise BadOption("option 'queue' is missing: the queue to publish to")
    if overwrite:
        raise BadOption("a queue cannot be overwritten: use mode append")
    if "body" not in schema.names:
        raise BadOption(f"there is no column 'body' among {', '.join(schema.names)}")
    if "content_type" in schema.names and asked.content_type:
        raise BadOption("give column 'content_type' or option 'contentType', not both")
    for each in schema:
        taken = _TAKEN.get(each.name)
        if taken is None:
            raise BadOption(f"unknown column '{each.name}'; known: {', '.join(_TAKEN)}")
        if each.dataType.simpleString() not in [kind.simpleString() for kind in taken]:
            wanted = " or ".join(kind.simpleString() for kind in taken)
            raise BadOption(f"column '{each.name}' is {each.dataType.simpleString()}, not {wanted}")
    with Client(place) as broker:
        broker.published(asked.queue, once="check")


def _none_beside(asked: Options, messages: Sequence[WriterCommitMessage | None]) -> None:
    written = [each for each in messages if isinstance(each, TaskPublished)]
    if written:
        none_beside(asked, written[0].run, rows=sum(each.rows for each in written))


def _task() -> TaskContext:
    task = TaskContext.get()
    if task is None:
        raise CourierError("rows are published by Spark's tasks only")
    return task


class QueueWriter(DataSourceArrowWriter):
    """One write. With option `writeId` it can be run again, and publishes only what is missing."""

    def __init__(self, asked: Options, schema: StructType, overwrite: bool) -> None:
        check(asked, schema, asked.place.first_asked(), overwrite=overwrite)
        self._asked = asked
        self._run = asked.write_id or ids.new_id()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        rows = publish(self._asked, self._run, iterator, partition=_task().partitionId())
        return TaskPublished(self._run, rows)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        _none_beside(self._asked, messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """What was published stays; the same write run again goes on from there."""


class QueueStreamWriter(DataSourceStreamArrowWriter):
    """The rows of query, batch and partition have the same key in every attempt and every run."""

    def __init__(self, asked: Options, schema: StructType, overwrite: bool) -> None:
        # Made for every batch, too, when the broker may be away for longer than at first.
        check(asked, schema, asked.place, overwrite=overwrite)
        self._asked = asked

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        task = _task()
        query = task.getLocalProperty("sql.streaming.queryId")
        batch = task.getLocalProperty("streaming.sql.batchId")
        if not query or batch is None:
            raise CourierError("Spark does not say which query and batch this task belongs to")
        run = f"{query}/{batch}"
        return TaskPublished(run, publish(self._asked, run, iterator, partition=task.partitionId()))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        _none_beside(self._asked, messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """The batch is run again under the same keys."""
