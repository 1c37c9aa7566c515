"""Journal events as an Arrow stream, built from columns."""

from array import array
from collections.abc import Sequence
from operator import attrgetter
from typing import Any

import msgspec
import pyarrow as pa

from courier.core import journal
from courier.core.types import Run

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

SCHEMA = pa.schema(
    [
        pa.field(
            shown,
            _TIME if name in journal.TIMES else _TYPES.get(name, pa.string()),
            nullable=shown not in _REQUIRED,
        )
        for shown, name in journal.SHOWN.items()
    ]
)

Parts = Sequence[tuple[Run, int, int]]


def stream(parts: Parts, columns: Sequence[str] = ()) -> bytes:
    """One record batch with the events of `parts`, as cut by `journal.cut`; all columns or some."""
    shown = columns or SCHEMA.names
    schema = pa.schema([SCHEMA.field(name) for name in shown])
    page = _Page(parts)
    batch = pa.record_batch([page.column(journal.SHOWN[name]) for name in shown], schema=schema)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
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

    def column(self, name: str) -> pa.Array:
        kind = _TIME if name in journal.TIMES else _TYPES.get(name, pa.string())
        if name == "offset":
            return self._offsets()
        if name in journal.COLUMNS and name not in self._known:
            return pa.nulls(self._count, kind)
        values = self._values(name)
        if name in journal.TIMES:
            return pa.array(values, type=_MILLISECOND).cast(_TIME)
        if name in _JSON:
            values = [None if value is None else _text(value) for value in values]
        return pa.array(values, type=kind)

    def _offsets(self) -> pa.Array:
        offsets = array("q")
        for run, start, stop in self._parts:
            offsets.extend(range(run.offset + start, run.offset + stop))
        return pa.Array.from_buffers(pa.int64(), self._count, [None, pa.py_buffer(offsets)])

    def _values(self, name: str) -> list[Any]:
        values: list[Any] = []
        if name not in journal.COLUMNS:
            get = attrgetter(name)
            if self._single:
                return [get(run) for run, _, _ in self._parts]
            for run, start, stop in self._parts:
                values += [get(run)] * (stop - start)
            return values
        if self._single and name != "message_id":
            found = [run.columns.get(name) for run, _, _ in self._parts]
            return [value[0] if isinstance(value, list) else value for value in found]
        for run, start, stop in self._parts:
            if name == "message_id":
                values += journal.column(run, name)[start:stop]
            elif isinstance(value := run.columns.get(name), list):
                values += value[start:stop]
            else:
                values += [value] * (stop - start)
        return values


def _text(value: Any) -> str:
    return msgspec.json.encode(value).decode()
