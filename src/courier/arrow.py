"""Journal events and claimed messages as Arrow streams, built from columns."""

import sys
from array import array
from binascii import hexlify
from collections.abc import Sequence
from itertools import accumulate
from operator import attrgetter
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from courier import event_columns, ids
from courier.core import journal
from courier.core.types import Message, Run

_TIME = pa.timestamp("us", tz="UTC")
_TYPES = {
    event_columns.TEXT: pa.string(),
    event_columns.LONG: pa.int64(),
    event_columns.INT: pa.int32(),
    event_columns.TIME: _TIME,
    event_columns.BYTES: pa.binary(),
}
_KINDS = {each.field: _TYPES[each.kind] for each in event_columns.ALL}
_JSON = ("headers", "detail")
_MILLISECOND = pa.timestamp("ms", tz="UTC")
_WORD = pa.uint64()
# A message of no length.
_STREAM_END_BYTES = 8

SCHEMA = pa.schema(
    [
        pa.field(each.name, _TYPES[each.kind], nullable=each.name not in event_columns.REQUIRED)
        for each in event_columns.ALL
    ]
)

CLAIMED = pa.schema(
    [
        pa.field("message_id", pa.string(), nullable=False),
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("attempt", pa.int32(), nullable=False),
        pa.field("published_at", _TIME, nullable=False),
        pa.field("content_type", pa.string(), nullable=False),
        pa.field("headers", pa.string()),
        pa.field("group", pa.string()),
        pa.field("body", pa.binary(), nullable=False),
    ]
)

Parts = Sequence[tuple[Run, int, int]]


def stream(parts: Parts, columns: Sequence[str] = ()) -> memoryview:
    """One record batch with the events of `parts`, as cut by `journal.cut`; all columns or some."""
    shown = columns or SCHEMA.names
    schema = pa.schema([SCHEMA.field(name) for name in shown])
    page = _Page(parts)
    batch = pa.record_batch([page.column(journal.SHOWN[name]) for name in shown], schema=schema)
    return _written(batch)


def claimed(messages: Sequence[Message]) -> memoryview:
    """One record batch with messages of a claim."""
    published = pa.array([message.published_ms for message in messages], type=_MILLISECOND)
    columns = [
        [message.id for message in messages],
        [message.seq for message in messages],
        [message.attempts for message in messages],
        published.cast(_TIME),
        [message.content_type for message in messages],
        [_text(message.headers) if message.headers else None for message in messages],
        [message.group for message in messages],
        [message.body for message in messages],
    ]
    typed = [pa.array(c, type=field.type) for c, field in zip(columns, CLAIMED, strict=True)]
    return _written(pa.record_batch(typed, schema=CLAIMED))


def _written(batch: pa.RecordBatch) -> memoryview:
    """A stream of one batch, in memory of just its size: one that grows is copied as it does.

    A page is some megabytes, and to a copy of it the system hands page after page of new memory;
    two copies more were a third of what a page cost.
    """
    size = batch.schema.serialize().size + pa.ipc.get_record_batch_size(batch) + _STREAM_END_BYTES
    written = pa.allocate_buffer(size)
    with pa.FixedSizeBufferWriter(written) as sink, pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return memoryview(written)


class _Page:
    """Events by column. What one call wrote is one run, and often each call wrote one event."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        counts = [stop - start for _, start, stop in parts]
        self._count = sum(counts)
        self._ends = pa.array(accumulate(counts), pa.int32())
        self._single = self._count == len(parts) and all(run.count == 1 for run, _, _ in parts)
        self._known = {name for run, _, _ in parts for name in run.columns}
        # Ids are made of columns that may be asked for themselves.
        self._done: dict[str, pa.Array] = {}

    def column(self, name: str) -> pa.Array:
        if name == "offset":
            return self._offsets()
        if name == "message_id":
            return self._message_ids()
        if name in journal.COLUMNS and name not in self._known:
            return pa.nulls(self._count, _KINDS[name])
        return self._plain(name)

    def _plain(self, name: str) -> pa.Array:
        if name not in self._done:
            self._done[name] = self._made(name)
        return self._done[name]

    def _made(self, name: str) -> pa.Array:
        values = self._by_run(name)
        if self._single:
            return _array(name, [v[0] if isinstance(v, list) else v for v in values])
        if any([isinstance(value, list) for value in values]):
            return _array(name, self._by_event(values))
        return self._spread(_array(name, values))

    def _by_run(self, name: str) -> list[Any]:
        """Of each run the one value that holds for all its events, or the list of them."""
        if name in self._known:
            return [run.columns.get(name) for run, _, _ in self._parts]
        get = attrgetter(name)
        return [get(run) for run, _, _ in self._parts]

    def _by_event(self, values: Sequence[Any]) -> list[Any]:
        spread: list[Any] = []
        for value, (_, start, stop) in zip(values, self._parts, strict=True):
            if isinstance(value, list):
                spread += value[start:stop]
            else:
                spread += [value] * (stop - start)
        return spread

    def _spread(self, values: pa.Array) -> pa.Array:
        """One value for all events of each run, repeated by Arrow, which is faster."""
        return pc.run_end_decode(pa.RunEndEncodedArray.from_arrays(self._ends, values))

    def _offsets(self) -> pa.Array:
        """Of all events of a part, the offset is equally far ahead of the place in the page."""
        stops = pa.array([run.offset + stop for run, _, stop in self._parts], pa.int64())
        return pc.add(self._spread(pc.subtract(stops, self._ends)), pa.arange(0, self._count))

    def _message_ids(self) -> pa.Array:
        """The publishers' own ids, and where there is none what `ids.message_ids` would make."""
        if "seq" not in self._known:
            return pa.nulls(self._count, pa.string())
        seqs = self._plain("seq")
        published = self._plain("published_ms").cast(_MILLISECOND).cast(pa.int64())
        runs = [run for run, _, _ in self._parts]
        marks = [ids.mark(run.queue) if "seq" in run.columns else None for run in runs]
        made = _made_ids(published, seqs, self._spread(pa.array(marks, pa.int64())))
        return pc.coalesce(self._plain("own_id"), made) if "own_id" in self._known else made


def _made_ids(published_ms: pa.Array, seqs: pa.Array, marks: pa.Array) -> pa.Array:
    """What `ids.message_ids` makes, by column: one by one they were a third of a page's cost."""
    count = len(seqs)
    times, places, ends = (each.cast(_WORD) for each in (published_ms, seqs, marks))
    after_time, before_mark = ids.SEQ_BITS + ids.MARK_BITS - 64, 64 - ids.MARK_BITS
    high = pc.bit_wise_or(
        pc.shift_left(times, pa.scalar(after_time, _WORD)),
        pc.shift_right(places, pa.scalar(before_mark, _WORD)),
    )
    high = pc.bit_wise_or(high, pa.scalar(ids.FIRST_BYTE << 56, _WORD))
    low = pc.bit_wise_or(pc.shift_left(places, pa.scalar(ids.MARK_BITS, _WORD)), ends)
    words = array("Q", bytes(16 * count))
    words[0::2] = _words(high)
    words[1::2] = _words(low)
    if sys.byteorder == "little":
        words.byteswap()
    starts = pa.arange(0, 32 * count + 1, 32).cast(pa.int32())
    buffers = [None, starts.buffers()[1], pa.py_buffer(hexlify(words))]
    made = pa.Array.from_buffers(pa.string(), count, buffers)
    return pc.if_else(seqs.is_valid(), made, None) if seqs.null_count else made


def _words(values: pa.Array) -> "array[int]":
    words = array("Q")
    words.frombytes(memoryview(values.buffers()[1])[: 8 * len(values)])
    return words


def _array(name: str, values: list[Any]) -> pa.Array:
    if name in journal.TIMES:
        return pa.array(values, type=_MILLISECOND).cast(_TIME)
    if name in _JSON:
        values = [None if value is None else _text(value) for value in values]
    return pa.array(values, type=_KINDS.get(name, pa.string()))


def _text(value: Any) -> str:
    return msgspec.json.encode(value).decode()
