"""Queues as a sink: every row is published once, however often its task is run."""

import time
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
from courier.lake.client import Client, CourierError, Place, RowsChanged
from courier.lake.options import BadOption, Options

REQUEST_BYTES = 4 << 20
REQUEST_ROWS = 10_000
# With a rate, a request carries what may be sent in this time: more would come in bursts.
PACE_S = 0.25
_HEADERS = pa.map_(pa.string(), pa.string())
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
class Written(WriterCommitMessage):
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
        raise BadOption("there is a column 'content_type', so option 'contentType' says too much")
    for each in schema:
        taken = _TAKEN.get(each.name)
        if taken is None:
            raise BadOption(f"column '{each.name}' is none of {', '.join(_TAKEN)}")
        if each.dataType.simpleString() not in [kind.simpleString() for kind in taken]:
            wanted = " or ".join(kind.simpleString() for kind in taken)
            raise BadOption(f"column '{each.name}' is {each.dataType.simpleString()}, not {wanted}")
    with Client(place) as broker:
        broker.published(asked.queue, once="check")


def publish(
    asked: Options, run: str, batches: Iterator[pa.RecordBatch], *, partition: int
) -> Written:
    """Publish rows under a key; their numbers under it tell whether they were there before.

    Raises RowsChanged when other rows were, before any more are published.
    """
    key = f"{run}/{partition}"
    rows, digest = 0, ""
    pace = Pace(asked.rate)
    parts = (
        part for batch in batches for part in _cut(_typed(batch, asked.content_type), pace.rows_max)
    )
    with Client(asked.place) as broker:
        for part, last in _lasting(parts):
            told = broker.publish(
                asked.queue,
                part,
                once=key,
                first=rows,
                digest=digest,
                last=last,
                listener=asked.listener,
            )
            rows += part.num_rows
            digest = told.digest
            pace.wait(told.new)
    return Written(run, rows)


def none_beside(asked: Options, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Raises RowsChanged when an earlier run has left rows in partitions that nobody has now.

    The broker may know of fewer than there are: of a write that takes longer than it knows a key.
    """
    written = [each for each in messages if isinstance(each, Written)]
    if not written:
        return
    run, rows = written[0].run, sum(each.rows for each in written)
    with Client(asked.place) as broker:
        known = broker.published_below(asked.queue, run)
    if known > rows:
        raise RowsChanged(
            f"{known} rows are published to queue '{asked.queue}' under {run}, and this run has "
            f"{rows}: an earlier one had others or other partitions, so some may be published twice"
        )


def _lasting(parts: Iterator[pa.RecordBatch]) -> Iterator[tuple[pa.RecordBatch, bool]]:
    """Each part, and whether it is the last."""
    held = next(parts, None)
    while held is not None:
        following = next(parts, None)
        yield held, following is None
        held = following


class Pace:
    """No more than `rate` rows per second, of those that are really published."""

    def __init__(self, rate: int | None) -> None:
        self._rate = rate
        self.rows_max = REQUEST_ROWS if rate is None else max(1, int(rate * PACE_S))
        self._due_s = time.monotonic()

    def wait(self, rows: int) -> None:
        if self._rate is None or not rows:
            return
        # Time that was lost elsewhere is not made up for: that would be a burst.
        self._due_s = max(self._due_s, time.monotonic() - PACE_S) + rows / self._rate
        time.sleep(max(0.0, self._due_s - time.monotonic()))


def _typed(batch: pa.RecordBatch, content_type: str) -> pa.RecordBatch:
    """As the broker takes it: maps as they come also say whether their values may be null."""
    for place, field in enumerate(batch.schema):
        if pa.types.is_map(field.type) and field.type != _HEADERS:
            batch = batch.set_column(place, field.name, batch.column(place).cast(_HEADERS))
    if not content_type:
        return batch
    kinds = pa.repeat(pa.scalar(content_type), batch.num_rows)
    return batch.append_column("content_type", kinds)


def _cut(batch: pa.RecordBatch, rows_max: int) -> Iterator[pa.RecordBatch]:
    """Parts that one request can carry."""
    if not batch.num_rows:
        return
    row_bytes = max(1, batch.nbytes // batch.num_rows)
    size = max(1, min(rows_max, REQUEST_BYTES // row_bytes))
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
        check(asked, schema, asked.place.first_asked(), overwrite=overwrite)
        self._asked = asked
        self._run = asked.write_id or ids.new_id()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return publish(self._asked, self._run, iterator, partition=_task().partitionId())

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        none_beside(self._asked, messages)

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
        return publish(self._asked, run, iterator, partition=task.partitionId())

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        none_beside(self._asked, messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """The batch is run again under the same keys."""
