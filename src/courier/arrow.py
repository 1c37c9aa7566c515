"""Journal events as an Arrow stream, built from columns."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa

from courier.core import journal
from courier.core.types import Run

_TIME = pa.timestamp("us", tz="UTC")
_TIMES = {"at_ms": "at", "published_ms": "published_at", "first_leased_ms": "first_leased_at",
          "last_leased_ms": "last_leased_at"}  # fmt: skip
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

SCHEMA = pa.schema(
    [
        (_TIMES[name], _TIME) if name in _TIMES else (name, _TYPES.get(name, pa.string()))
        for name in journal.FIELDS
    ]
)


def stream(parts: Sequence[tuple[Run, int, int]]) -> bytes:
    """One record batch with the events of `parts`, as cut by `journal.cut`."""
    columns: list[pa.Array] = []
    for name, field in zip(journal.FIELDS, SCHEMA, strict=True):
        values = _values(name, parts)
        if name in _TIMES:
            values = [None if value is None else value * 1000 for value in values]
        elif name in _JSON:
            values = [None if value is None else _text(value) for value in values]
        columns.append(pa.array(values, type=field.type))
    batch = pa.record_batch(columns, schema=SCHEMA)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, SCHEMA) as writer:
        writer.write_batch(batch)
    whole: bytes = sink.getvalue().to_pybytes()
    return whole


def _values(name: str, parts: Sequence[tuple[Run, int, int]]) -> list[Any]:
    values: list[Any] = []
    for run, start, stop in parts:
        if name == "offset":
            values += range(run.offset + start, run.offset + stop)
        elif name in journal.COLUMNS:
            values += journal.column(run, name)[start:stop]
        else:
            values += [getattr(run, name)] * (stop - start)
    return values


def _text(value: Any) -> str:
    return msgspec.json.encode(value).decode()
