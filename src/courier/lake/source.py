"""`format("courier")`: the journal and queues as a source, queues as a sink.

Planned on the driver, read and written on executors by objects that carry nothing but where the
broker is and which part is theirs.
"""

import uuid
from collections.abc import Iterator, MutableMapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from courier.lake import client, options
from courier.lake.client import Client, CourierError, Recreated, Slice, Trimmed
from courier.lake.options import Options
from courier.lake.schema import CLAIMED, EVENTS

VERSION = 1
# A partition of fewer events costs more to start than to read.
PARTITION_ROWS_MIN = 50_000
PARTITIONS_MAX = 64


class CourierDataSource(DataSource):
    """See `docs/spark.md` for the options."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        return "courier"

    def _read_options(self) -> Options:
        return options.parse(self.options, known=options.READ)

    def schema(self) -> StructType:
        asked = self._read_options()
        whole = CLAIMED if asked.mode == "consume" else EVENTS
        if not asked.columns:
            return whole
        unknown = [name for name in asked.columns if name not in whole.names]
        if unknown:
            raise options.BadOption(
                f"option 'columns' names {', '.join(unknown)}; there are {', '.join(whole.names)}"
            )
        return StructType([whole[name] for name in asked.columns])

    def reader(self, schema: StructType) -> "JournalReader":
        asked = self._read_options()
        if asked.mode == "consume":
            raise options.BadOption("mode consume is for streams: use readStream")
        return JournalReader(asked, _columns(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        asked = self._read_options()
        if asked.mode == "consume":
            from courier.lake.consume import QueueStreamReader

            return QueueStreamReader(asked, schema)
        return JournalStreamReader(asked, _columns(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        from courier.lake.sink import QueueWriter

        return QueueWriter(options.parse(self.options, known=options.WRITE), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        from courier.lake.sink import QueueStreamWriter

        return QueueStreamWriter(options.parse(self.options, known=options.WRITE), schema, overwrite)


def _columns(schema: StructType) -> tuple[str, ...]:
    """The columns to ask for; none when all are wanted as they come."""
    unknown = [name for name in schema.names if name not in EVENTS.names]
    if unknown:
        raise options.BadOption(f"the journal has no column {', '.join(unknown)}")
    for asked in schema:
        if asked.dataType != EVENTS[asked.name].dataType:
            wanted = EVENTS[asked.name].dataType.simpleString()
            raise options.BadOption(f"column {asked.name} is of type {wanted}")
    return () if schema.names == EVENTS.names else tuple(schema.names)


class Part(InputPartition):
    def __init__(self, slice: Slice) -> None:
        super().__init__(None)
        self.slice = slice


def _read(asked: Options, part: InputPartition) -> Iterator[pa.RecordBatch]:
    assert isinstance(part, Part)
    yield from client.read(asked.place, part.slice, rows=asked.page_rows)


def _parts(asked: Options, whole: Slice) -> list[Part]:
    size = whole.upto - whole.after
    count = asked.partitions or max(1, min(PARTITIONS_MAX, size // PARTITION_ROWS_MIN))
    return [Part(part) for part in client.split(whole, count)]


class JournalReader(DataSourceReader):
    """A range of the journal, at the moment of planning."""

    def __init__(self, asked: Options, columns: tuple[str, ...]) -> None:
        self._asked = asked
        self._columns = columns
        self._queues: tuple[str, ...] = (asked.queue,) if asked.queue else ()
        self._kinds = asked.kinds
        self._after: int | None = None
        self._upto: int | None = None

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:
        """Filters on offset, kind and queue name are the broker's work; all are checked again."""
        for each in filters:
            self._note(each)
            yield each

    def _note(self, each: Filter) -> None:
        column = getattr(each, "attribute", ("",))
        value = getattr(each, "value", None)
        match each:
            case GreaterThan() if column == ("offset",):
                self._after = max(self._after or 0, value)
            case GreaterThanOrEqual() if column == ("offset",):
                self._after = max(self._after or 0, value - 1)
            case LessThan() if column == ("offset",):
                self._upto = min(value - 1, value - 1 if self._upto is None else self._upto)
            case LessThanOrEqual() if column == ("offset",):
                self._upto = min(value, value if self._upto is None else self._upto)
            case EqualTo() if column == ("kind",) and not self._kinds:
                self._kinds = (value,)
            case In() if column == ("kind",) and not self._kinds:
                self._kinds = tuple(value)
            case EqualTo() if column == ("queue",) and not self._queues:
                self._queues = (value,)
            case In() if column == ("queue",) and not self._queues:
                self._queues = tuple(value)

    def partitions(self) -> Sequence[InputPartition]:
        asked = self._asked
        with Client(asked.place) as broker:
            head = broker.head()
            after = _start(broker, asked, head)
            upto = _end(broker, asked, head)
        if self._after is not None:
            after = max(after, self._after)
        if self._upto is not None:
            upto = min(upto, self._upto)
        whole = Slice(head.epoch, after, max(after, upto), self._columns, self._queues, self._kinds)
        return _parts(asked, whole)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._asked, partition)


def _start(broker: Client, asked: Options, head: client.Head) -> int:
    """The offset after which to begin."""
    offset, at_ms = options.offset_or_ms(asked.starting, "startingOffset")
    if asked.starting == "latest":
        return head.last
    if at_ms is not None:
        return max(head.first - 1, broker.head(at_ms=at_ms).last)
    if offset is None:
        return head.first - 1
    if offset + 1 < head.first:
        raise Trimmed(
            f"startingOffset {offset} is gone: the journal begins at {head.first}; "
            f"begin there, or at earliest"
        )
    return offset


def _end(broker: Client, asked: Options, head: client.Head) -> int:
    offset, at_ms = options.offset_or_ms(asked.ending, "endingOffset")
    if at_ms is not None:
        return min(head.last, broker.head(at_ms=at_ms).last)
    return head.last if offset is None else min(offset, head.last)


class JournalStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The journal as a stream: the same offsets always give the same rows."""

    def __init__(self, asked: Options, columns: tuple[str, ...]) -> None:
        self._asked = asked
        self._columns = columns
        self._until: dict[str, Any] | None = None

    def initialOffset(self) -> dict[str, Any]:
        with Client(self._asked.place) as broker:
            head = broker.head()
            return _offset(head.epoch, _start(broker, self._asked, head))

    def getDefaultReadLimit(self) -> ReadLimit:
        rows_max = self._asked.rows_max
        return ReadAllAvailable() if rows_max is None else ReadMaxRows(rows_max)

    def prepareForTriggerAvailableNow(self) -> None:
        with Client(self._asked.place) as broker:
            head = broker.head()
            self._until = _offset(head.epoch, head.last)

    def latestOffset(
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        with Client(self._asked.place) as broker:
            head = broker.head()
        begun = _after(start, head, self._asked.place.url) if start else head.first - 1
        upto = head.last if self._until is None else min(head.last, self._until["offset"])
        if isinstance(limit, ReadMaxRows):
            upto = min(upto, begun + limit.max_rows)
        return _offset(head.epoch, max(begun, upto))

    def reportLatestOffset(self) -> dict[str, Any] | None:
        with Client(self._asked.place) as broker:
            head = broker.head()
        return _offset(head.epoch, head.last)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        with Client(self._asked.place) as broker:
            _after(start, broker.head(), self._asked.place.url)
        queues = (self._asked.queue,) if self._asked.queue else ()
        whole = Slice(
            end["epoch"], start["offset"], end["offset"], self._columns, queues, self._asked.kinds
        )
        return _parts(self._asked, whole)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._asked, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """What is behind a committed offset may be trimmed, as far as this reader goes."""
        if self._asked.pipeline:
            with Client(self._asked.place) as broker:
                broker.commit(self._asked.pipeline, end["offset"])

    def stop(self) -> None:
        """Nothing is held between calls."""


def _offset(epoch: str, offset: int) -> dict[str, Any]:
    return {"v": VERSION, "epoch": epoch, "offset": offset}


def _after(start: dict[str, Any], head: client.Head, url: str) -> int:
    """The offset to go on after; what cannot be gone on from ends the query."""
    if start.get("v") != VERSION:
        raise CourierError(f"this checkpoint was written by another version: {start}")
    if start["epoch"] != head.epoch:
        raise Recreated(
            f"the store at {url} was recreated: this query has read the journal "
            f"'{start['epoch']}', and the one there now is '{head.epoch}'; "
            "start it with a new checkpoint"
        )
    offset = int(start["offset"])
    if offset + 1 < head.first:
        raise Trimmed(
            f"this query is at offset {offset}, and the journal now begins at {head.first}: "
            f"{head.first - 1 - offset} events are gone; start it with a new checkpoint, and "
            "register it with option 'pipeline' so that the journal waits for it"
        )
    return offset


def new_claims() -> str:
    """Names the claims of one query; kept in its checkpoint."""
    return uuid.uuid4().hex
