"""Journal events and claimed messages as Arrow streams, built from columns."""

from array import array
from collections.abc import Sequence
from itertools import chain
from operator import attrgetter
from typing import Any

import msgspec
import pyarrow as pa

from courier.core import journal
from courier.core.types import Message, Run

_TIME = pa.timestamp("us", tz="UTC")
_TYPES: dict[str, pa.DataType] = {
    "offset": pa.int64(),
    "seq": pa.int64(),
    "attempt": pa.int32(),
    "lease_ms": pa.int64(),
    "delay_ms": pa.int64(),
    "size": pa.int64(),
    "body": pa.binary(),
}
_JSON = ("headers", "detail")
_MILLISECOND = pa.timestamp("ms", tz="UTC")

_REQUIRED = ("offset", "at", "kind")


def _kind(name: str) -> pa.DataType:
    return _TIME if name in journal.TIMES else _TYPES.get(name, pa.string())


SCHEMA = pa.schema(
    [
        pa.field(
            shown,
            _kind(name),
            nullable=shown not in _REQUIRED,
        )
        for shown, name in journal.SHOWN.items()
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


def stream(parts: Parts, columns: Sequence[str] = ()) -> bytes:
    """One record batch with the events of `parts`, as cut by `journal.cut`; all columns or some."""
    shown = columns or SCHEMA.names
    schema = pa.schema([SCHEMA.field(name) for name in shown])
    page = _Page(parts)
    batch = pa.record_batch([page.column(journal.SHOWN[name]) for name in shown], schema=schema)
    return _written(batch)


def claimed(messages: Sequence[Message]) -> bytes:
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


def _written(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    whole: bytes = sink.getvalue().to_pybytes()
    return whole


class _Page:
    """Events by column. What one call wrote is one run, and often each call wrote one event."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._count = sum(stop - start for _, start, stop in parts)
        self._single = self._count == len(parts) and all(run.count == 1 for run, _, _ in parts)
        self._known = {name for run, _, _ in parts for name in run.columns}
        if "seq" in self._known:
            self._known.add("message_id")
        self._places: pa.Array | None = None

    def column(self, name: str) -> pa.Array:
        if name == "offset":
            return self._offsets()
        if name in journal.COLUMNS and name not in self._known:
            return pa.nulls(self._count, _kind(name))
        if name == "message_id":
            parts = [journal.column(run, name)[start:stop] for run, start, stop in self._parts]
            return _array(name, list(chain.from_iterable(parts)))
        values = self._by_run(name)
        if self._single:
            return _array(name, [v[0] if isinstance(v, list) else v for v in values])
        if any([isinstance(value, list) for value in values]):
            return _array(name, self._by_event(values))
        # One value for all events of each run: they are told apart by Arrow, which is faster.
        return _array(name, values).take(self._runs())

    def _by_run(self, name: str) -> list[Any]:
        """Of each run the one value that holds for all its events, or the list of them."""
        if name in journal.COLUMNS:
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

    def _runs(self) -> pa.Array:
        """Of each event, which of the runs it belongs to."""
        if self._places is None:
            places = array("i")
            for place, (_, start, stop) in enumerate(self._parts):
                places.extend([place] * (stop - start))
            buffers = [None, pa.py_buffer(places)]
            self._places = pa.Array.from_buffers(pa.int32(), self._count, buffers)
        return self._places

    def _offsets(self) -> pa.Array:
        offsets = array("q")
        for run, start, stop in self._parts:
            offsets.extend(range(run.offset + start, run.offset + stop))
        return pa.Array.from_buffers(pa.int64(), self._count, [None, pa.py_buffer(offsets)])


def _array(name: str, values: list[Any]) -> pa.Array:
    if name in journal.TIMES:
        return pa.array(values, type=_MILLISECOND).cast(_TIME)
    if name in _JSON:
        values = [None if value is None else _text(value) for value in values]
    return pa.array(values, type=_kind(name))


def _text(value: Any) -> str:
    return msgspec.json.encode(value).decode()
