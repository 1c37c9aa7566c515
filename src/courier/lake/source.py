"""`format("courier")`: the journal and queues as a source, queues as a sink.

Planned on the driver, read and written on executors by objects that carry nothing but where the
broker is and which part is theirs.
"""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    Filter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from courier.lake import client, options
from courier.lake.client import (
    Client,
    CourierError,
    JournalRange,
    Recreated,
    Slice,
    Trimmed,
    recreated,
)
from courier.lake.filters import WantedEvents, narrowed
from courier.lake.options import BadOption, Options
from courier.lake.schema import CLAIMED, EVENTS, TableSchema

# As in `client`.
if TYPE_CHECKING:
    import pyarrow as pa

VERSION = 1
# A partition of fewer events costs more to start than to read. How many there are depends on the
# offsets alone: a batch that is run again, on whatever machine, has the same ones.
PARTITION_ROWS_MIN = 50_000
PARTITIONS_MAX = 64
# Reading every column of fewer events is over soon anyway.
WIDE_ROWS = 100_000


class CourierDataSource(DataSource):
    """See `docs/spark.md` for the options."""

    @classmethod
    def name(cls) -> str:
        return "courier"

    def schema(self) -> StructType:
        asked = options.parse(self.options, options.READ)
        whole = CLAIMED if asked.mode == "consume" else EVENTS
        if not asked.columns:
            return whole.spark()
        unknown = [name for name in asked.columns if name not in whole.names]
        if unknown:
            raise BadOption(
                f"option 'columns' names {', '.join(unknown)}; there are {', '.join(whole.names)}"
            )
        return whole.only(list(dict.fromkeys(asked.columns))).spark()

    def reader(self, schema: StructType) -> "JournalReader":
        if self.options.get("mode") == "consume":
            raise BadOption("mode consume is for streams: use readStream")
        asked = options.parse(self.options, options.BATCH, "a batch read")
        made = FilteringReader if asked.filters else JournalReader
        return made(asked, Columns.of(schema, EVENTS))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        if self.options.get("mode") == "consume":
            from courier.lake.consume import QueueStreamReader

            asked = options.parse(self.options, options.CONSUME, "consuming a queue")
            return QueueStreamReader(asked, schema)
        asked = options.parse(self.options, options.STREAM, "a stream of the journal")
        return JournalStreamReader(asked, Columns.of(schema, EVENTS))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        from courier.lake.sink import QueueWriter

        asked = options.parse(self.options, options.BATCH_WRITE, "a batch write")
        return QueueWriter(asked, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        from courier.lake.sink import QueueStreamWriter

        asked = options.parse(self.options, options.STREAM_WRITE, "a stream write")
        return QueueStreamWriter(asked, schema, overwrite)


@dataclass(frozen=True)
class Columns:
    """The columns that were asked for, in their order; travels to executors.

    `relaxed` are those that are never null and that the user's schema nevertheless lets be null,
    as every column of a schema given as text does. Spark compares this, too.
    """

    names: tuple[str, ...]
    relaxed: frozenset[str]
    all: bool

    @staticmethod
    def of(schema: StructType, known: TableSchema) -> "Columns":
        """Raises BadOption unless `schema` has some of the known columns."""
        whole = known.spark()
        for asked in schema:
            if schema.names.count(asked.name) > 1:
                raise BadOption(f"column '{asked.name}' is there twice")
            if asked.name not in whole.names:
                raise BadOption(f"unknown column '{asked.name}'; known: {', '.join(whole.names)}")
            there = whole[asked.name]
            if asked.dataType != there.dataType:
                raise BadOption(
                    f"column '{asked.name}' is {there.dataType.simpleString()}, "
                    f"not {asked.dataType.simpleString()}"
                )
            if there.nullable and not asked.nullable:
                raise BadOption(f"column '{asked.name}' can be null; leave out NOT NULL")
        relaxed = (each.name for each in schema if each.nullable and not whole[each.name].nullable)
        names = tuple(schema.names)
        return Columns(names, frozenset(relaxed), all=names == tuple(whole.names))

    def fit(self, batch: "pa.RecordBatch") -> "pa.RecordBatch":
        """The same columns, declared as the user's schema has them."""
        if not self.relaxed:
            return batch
        import pyarrow as pa

        fields = [
            field.with_nullable(True) if field.name in self.relaxed else field
            for field in batch.schema
        ]
        return pa.RecordBatch.from_arrays(batch.columns, schema=pa.schema(fields))


class SlicePartition(InputPartition):
    """One task's slice of the journal."""

    def __init__(self, slice: Slice) -> None:
        super().__init__(None)
        self.slice = slice


def _read(asked: Options, columns: Columns, part: InputPartition) -> "Iterator[pa.RecordBatch]":
    assert isinstance(part, SlicePartition)
    return map(columns.fit, client.read(asked.place, part.slice, rows=asked.page_rows))


def _parts(asked: Options, whole: Slice) -> list[SlicePartition]:
    size = whole.upto - whole.after
    count = asked.partitions or max(1, min(PARTITIONS_MAX, size // PARTITION_ROWS_MIN))
    return [SlicePartition(part) for part in client.split(whole, count)]


def _asked_for(asked: Options) -> WantedEvents:
    return WantedEvents(
        queues=(asked.queue,) if asked.queue else None,
        kinds=asked.kinds or None,
    )


def _check_kinds(broker: Client, asked: Options) -> None:
    """A misspelled kind would otherwise be a stream that never has a row."""
    if not asked.kinds:
        return
    known = broker.kinds()
    for kind in asked.kinds:
        if kind not in known:
            raise BadOption(f"option 'kinds': unknown kind '{kind}'; known: {', '.join(known)}")


def _warn_of_width(columns: Columns, rows: int) -> None:
    """Spark does not tell a Python source which columns a query uses."""
    if columns.all and rows >= WIDE_ROWS:
        warnings.warn(
            f"format courier reads all {len(columns.names)} columns of {rows:,} events, bodies "
            "included. If the query needs only some of them, name those with option 'columns': "
            "without 'body' a read is several times faster",
            stacklevel=2,
        )


class JournalReader(DataSourceReader):
    """A range of the journal, as it is at the moment of planning."""

    def __init__(self, asked: Options, columns: Columns) -> None:
        self._asked = asked
        self._columns = columns
        self._wanted = _asked_for(asked)
        if asked.starting == "latest" or asked.ending == "earliest":
            raise BadOption("a batch read goes from startingOffset on, to endingOffset")

    def partitions(self) -> Sequence[InputPartition]:
        asked = self._asked
        with Client(asked.place.first_asked()) as broker:
            head = broker.head()
            _check_kinds(broker, asked)
            wanted = self._known(broker)
            after = max(_start(broker, asked, head), wanted.after)
            if wanted.since_ms is not None:
                after = max(after, broker.head(at_ms=wanted.since_ms).last)
            upto = _end(broker, asked, head)
        if wanted.upto is not None:
            upto = min(upto, wanted.upto)
        if wanted.nothing:
            upto = after
        upto = max(after, upto)
        _warn_of_width(self._columns, upto - after)
        return _parts(asked, _slice(head, after, upto, self._columns, wanted))

    def _known(self, broker: Client) -> WantedEvents:
        return self._wanted

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        return _read(self._asked, self._columns, partition)


def _slice(
    head: JournalRange, after: int, upto: int, columns: Columns, wanted: WantedEvents
) -> Slice:
    names = () if columns.all else columns.names
    return Slice(head.epoch, after, upto, names, wanted.queues or (), wanted.kinds or ())


class FilteringReader(JournalReader):
    """A range of the journal less what one query would throw away.

    Only where it is asked for: Spark 4.3 keeps the plan of a `load()` for every query on it, and
    others, with other filters or none, would miss rows.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:
        self._wanted = narrowed(self._wanted, filters)
        yield from filters  # all are checked again

    def _known(self, broker: Client) -> WantedEvents:
        """A filter may name kinds that do not exist; the broker refuses to look for those."""
        if self._wanted.kinds is None:
            return self._wanted
        known = set(broker.kinds())
        return replace(self._wanted, kinds=tuple(k for k in self._wanted.kinds if k in known))


def _start(broker: Client, asked: Options, head: JournalRange) -> int:
    """The offset after which to begin."""
    offset, at_ms = options.offset_or_ms(asked.starting, "startingOffset")
    if asked.starting == "latest":
        return head.last
    if at_ms is not None:
        return max(head.first - 1, broker.head(at_ms=at_ms).last)
    if offset is None:
        return head.first - 1
    if offset + 1 < head.first:
        if not asked.fail_on_loss:
            return _past_gap(offset, head)
        raise Trimmed(
            f"events after startingOffset {offset} are gone: the journal begins at {head.first}; "
            "begin at earliest, or set failOnDataLoss to false"
        )
    if offset > head.last:
        raise CourierError(
            f"startingOffset {offset} is beyond the end: the journal at {asked.place.url} ends "
            f"at {head.last}; begin at latest"
        )
    return offset


def _end(broker: Client, asked: Options, head: JournalRange) -> int:
    """The last offset to read."""
    offset, at_ms = options.offset_or_ms(asked.ending, "endingOffset")
    if at_ms is not None:
        return min(head.last, broker.head(at_ms=at_ms).last)
    return head.last if offset is None else min(offset, head.last)


def _past_gap(offset: int, head: JournalRange) -> int:
    """Where to go on when the events after `offset` have been trimmed."""
    warnings.warn(
        f"{head.first - 1 - offset} events after offset {offset} are gone: the journal now begins "
        f"at {head.first}; going on there, because failOnDataLoss is false",
        stacklevel=2,
    )
    return head.first - 1


class JournalStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The journal as a stream: the same offsets always give the same rows.

    With option `pipeline` the broker knows where the query is from its first moment on, and
    keeps what it has not processed.
    """

    def __init__(self, asked: Options, columns: Columns) -> None:
        options.offset_or_ms(asked.starting, "startingOffset")
        self._asked = asked
        self._columns = columns
        self._until: int | None = None
        # The last offset that the broker was told of.
        self._committed: int | None = None

    def initialOffset(self) -> dict[str, Any]:
        asked = self._asked
        with Client(asked.place.first_asked()) as broker:
            head = broker.head()
            _check_kinds(broker, asked)
            after = _start(broker, asked, head)
            if asked.pipeline:
                broker.register(asked.pipeline, after)
                self._committed = after
            return _offset(head.epoch, after)

    def getDefaultReadLimit(self) -> ReadLimit:
        rows_max = self._asked.rows_max
        return ReadAllAvailable() if rows_max is None else ReadMaxRows(rows_max)

    def prepareForTriggerAvailableNow(self) -> None:
        self._until = self._head().last

    def latestOffset(
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        """A limit counts offsets: those of other queues and kinds too."""
        head = self._head()
        begun = self._known(start, head) if start else head.first - 1
        if start:
            # Spark asks after it has committed the batch that ended here. It calls `commit` only
            # when it plans the next one, which may be much later, or never.
            self._commit(begun)
        upto = head.last if self._until is None else min(head.last, self._until)
        if isinstance(limit, ReadMaxRows):
            upto = min(upto, begun + limit.max_rows)
        return _offset(head.epoch, max(begun, upto))

    def reportLatestOffset(self) -> dict[str, Any] | None:
        head = self._head()
        return _offset(head.epoch, head.last)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        head = self._head()
        after, upto = self._known(start, head), self._known(end, head)
        upto = max(after, upto)
        whole = _slice(head, after, upto, self._columns, _asked_for(self._asked))
        return _parts(self._asked, whole)

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        return _read(self._asked, self._columns, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """What is behind a committed offset may be trimmed, as far as this reader goes."""
        self._commit(int(end["offset"]))

    def _commit(self, offset: int) -> None:
        if self._asked.pipeline and offset != self._committed:
            with Client(self._asked.place) as broker:
                broker.commit(self._asked.pipeline, offset)
            self._committed = offset

    def stop(self) -> None:
        """Nothing is held between calls."""

    def _head(self) -> JournalRange:
        with Client(self._asked.place) as broker:
            return broker.head()

    def _known(self, given: dict[str, Any], head: JournalRange) -> int:
        """An offset of the checkpoint; one that cannot be gone on from ends the query."""
        url = self._asked.place.url
        if given.get("v") != VERSION or "epoch" not in given:
            raise CourierError(f"this checkpoint is not one of a stream of the journal: {given}")
        if given["epoch"] != head.epoch:
            raise Recreated(recreated(url, given["epoch"], head.epoch))
        offset = int(given["offset"])
        if offset + 1 < head.first:
            if not self._asked.fail_on_loss:
                return self._skip(offset, head)
            raise Trimmed(
                f"this query is at offset {offset}, and the journal now begins at {head.first}: "
                f"{head.first - 1 - offset} events are gone; go on after them with failOnDataLoss "
                "set to false, or start with a new checkpoint; option 'pipeline' makes the "
                "journal wait for this query"
            )
        if offset > head.last:
            raise Recreated(
                f"this query is at offset {offset}, and the journal at {url} ends at {head.last}: "
                "its store is older than this query, perhaps restored from a backup; start it "
                "with a new checkpoint"
            )
        return offset

    def _skip(self, offset: int, head: JournalRange) -> int:
        """Go on after a gap; the broker records it once, however often Spark plans the batch."""
        after = _past_gap(offset, head)
        if self._asked.pipeline:
            with Client(self._asked.place) as broker:
                broker.skip(self._asked.pipeline, after, lost=after - offset)
            self._committed = after
        return after


def _offset(epoch: str, offset: int) -> dict[str, Any]:
    return {"v": VERSION, "epoch": epoch, "offset": offset}
