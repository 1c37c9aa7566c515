"""Drafts from an Arrow stream, read column by column.

What comes is not trusted: before a message of the stream is decoded, what it would decode to is
added up, and before a value is used, all offsets and texts are validated.
"""

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise, repeat
from typing import Any

import msgspec
import pyarrow as pa

from courier.core.errors import Forbidden, InvalidRequest, OverLimit, StoreUnavailable
from courier.core.types import DAY_MS, Draft

ROWS_MAX = 100_000
DECODED_BYTES_MAX = 64 << 20
BODY_BYTES_MAX = 10 << 20
HEADERS_BYTES_MAX = 1 << 20
DELAY_MS_MAX = DAY_MS
ID_CHARACTERS_MAX = 256
GROUP_CHARACTERS_MAX = 128
# Arrow makes Python's values without letting another thread run, so no more than these at once.
SLICE_ROWS = 2_000
SLICE_BYTES = 4 << 20

# Opens a sealed body, given the name of its key.
Open = Callable[[bytes, str], bytes]

_TEXTS = (pa.string(), pa.large_string())
_BYTES = (pa.binary(), pa.large_binary())
_LARGE = (pa.large_string(), pa.large_binary())
_NUMBERS = (pa.int64(), pa.int32(), pa.int16(), pa.int8())
_MAP = pa.map_(pa.string(), pa.string())
_TAKEN: dict[str, tuple[tuple[pa.DataType, ...], str]] = {
    "body": ((*_TEXTS, *_BYTES), "string or binary"),
    "content_type": (_TEXTS, "string"),
    "headers": ((*_TEXTS, _MAP), "string or map<string, string>"),
    "delay_ms": (_NUMBERS, "int64"),
    "group": (_TEXTS, "string"),
    "message_id": (_TEXTS, "string"),
    "sealed": (_TEXTS, "string"),
}
_CONTENT_TYPES = ("text", "json", "bytes")

_skim = msgspec.json.Decoder(msgspec.Raw).decode
_object = msgspec.json.Decoder(dict[str, Any]).decode
_pack = msgspec.msgpack.Encoder().encode


def read(raw: bytes, open: Open | None) -> list[Draft]:
    """The drafts of a stream. Without `open`, sealed bodies are refused.

    Raises InvalidRequest or OverLimit that names column and row, counted from 0.
    """
    drafts: list[Draft] = []
    try:
        for batch in _batches(raw):
            for rows in _parts(batch):
                drafts += _Rows(rows, len(drafts), open).drafts()
    except (pa.ArrowException, OSError, ValueError, struct.error) as error:
        reason = " ".join(str(error).split())[:200]
        raise InvalidRequest("", f"the body is not a sound Arrow stream: {reason}") from error
    return drafts


# --- the stream ------------------------------------------------------------------------------


def _batches(raw: bytes) -> Iterator[pa.RecordBatch]:
    messages = pa.ipc.MessageReader.open_stream(pa.py_buffer(raw))
    message = next(messages, None)
    if message is None or message.type != "schema":
        raise InvalidRequest("", "the body is not an Arrow stream: it does not begin with a schema")
    schema = pa.ipc.read_schema(message)
    _check(schema)
    rows = size = 0
    for message in messages:
        if message.type != "record batch":
            raise InvalidRequest("", f"the stream holds a {message.type}, not only record batches")
        size += _decoded_bytes(message)
        if size > DECODED_BYTES_MAX:
            raise OverLimit("the bytes of all rows", limit=DECODED_BYTES_MAX, actual=size)
        batch = pa.ipc.read_record_batch(message, schema)
        rows += batch.num_rows
        if rows > ROWS_MAX:
            raise OverLimit("the number of rows", limit=ROWS_MAX, actual=rows)
        batch.validate(full=True)
        yield batch


def _parts(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The batch in halves of halves, down to what may be read at once or to single rows."""
    rows = batch.num_rows
    if rows <= 1 or (rows <= SLICE_ROWS and batch.nbytes <= SLICE_BYTES):
        yield batch
    else:
        yield from _parts(batch.slice(0, rows // 2))
        yield from _parts(batch.slice(rows // 2))


def _check(schema: pa.Schema) -> None:
    for name, kind in zip(schema.names, schema.types, strict=True):
        if name not in _TAKEN:
            raise InvalidRequest(name[:80], f"is none of the columns {', '.join(_TAKEN)}")
        if schema.names.count(name) > 1:
            raise InvalidRequest(name, "is there twice")
        kinds, told = _TAKEN[name]
        if kind not in kinds and (name == "body" or kind != pa.null()):
            raise InvalidRequest(name, f"must be {told}, not {str(kind)[:80]}")
    if "body" not in schema.names:
        raise InvalidRequest("body", "is missing")


def _decoded_bytes(message: pa.Message) -> int:
    """How long the buffers of a record batch are once they are no longer compressed.

    A compressed buffer begins with its length. Arrow believes it, and would make room for it.
    """
    told = message.metadata.to_pybytes()
    (root,) = struct.unpack_from("<I", told)
    header = _field(told, root, 2)
    compressed = header and _field(told, _follow(told, header), 3)
    buffers = header and _field(told, _follow(told, header), 2)
    if not compressed or not buffers:
        return message.body.size if message.body is not None else 0
    start = _follow(told, buffers)
    (count,) = struct.unpack_from("<I", told, start)
    body = message.body
    size = 0
    for number in range(count):
        at, length = struct.unpack_from("<qq", told, start + 4 + 16 * number)
        if length:
            (clear,) = struct.unpack_from("<q", body, at)
            size += clear if clear >= 0 else length
    return size


def _field(told: bytes, table: int, number: int) -> int:
    """Where a field of a flatbuffer's table is; 0 if it is not there."""
    (back,) = struct.unpack_from("<i", told, table)
    fields = table - back
    (size,) = struct.unpack_from("<H", told, fields)
    if 4 + 2 * number >= size:
        return 0
    (at,) = struct.unpack_from("<H", told, fields + 4 + 2 * number)
    return table + at if at else 0


def _follow(told: bytes, at: int) -> int:
    (further,) = struct.unpack_from("<I", told, at)
    found: int = at + further
    return found


# --- rows ------------------------------------------------------------------------------------


class _Rows:
    """Rows of a record batch. The first of them is row `first` of the request."""

    def __init__(self, batch: pa.RecordBatch, first: int, open: Open | None) -> None:
        self._batch = batch
        self._first = first
        self._open = open

    def drafts(self) -> list[Draft]:
        bodies, kinds = self._bodies()
        return list(
            map(
                Draft,
                bodies,
                kinds,
                self._headers(),
                self._texts("message_id", ID_CHARACTERS_MAX),
                self._delays(),
                repeat(None),
                self._texts("group", GROUP_CHARACTERS_MAX),
            )
        )

    def _column(self, name: str) -> pa.Array | None:
        """None where it is absent or says nothing."""
        if name not in self._batch.schema.names:
            return None
        column = self._batch.column(name)
        return None if column.null_count == len(column) else column

    def _refuse(self, column: str, number: int, reason: str) -> InvalidRequest:
        return InvalidRequest(column, f"row {self._first + number} {reason}")

    def _bodies(self) -> tuple[list[bytes], Sequence[Any]]:
        """Bodies in clear, and their content types."""
        column = self._batch.column("body")
        if column.null_count:
            raise self._refuse("body", column.is_null().index(True).as_py(), "is null")
        bodies = _slices(column)
        kinds = self._kinds("text" if column.type in _TEXTS else "bytes")
        sealed = self._column("sealed")
        if sealed is not None:
            self._unseal(bodies, sealed.to_pylist())
        for number, body in enumerate(bodies):
            if len(body) > BODY_BYTES_MAX:
                what = f"the bytes of body in row {self._first + number}"
                raise OverLimit(what, limit=BODY_BYTES_MAX, actual=len(body))
        # Texts of a string column have been validated, unless they were sealed.
        known = column.type in _TEXTS and sealed is None
        if not known or "json" in kinds:
            self._check_texts(bodies, kinds, known)
        return bodies, kinds

    def _kinds(self, usual: str) -> list[Any]:
        column = self._column("content_type")
        if column is None:
            return [usual] * self._batch.num_rows
        for kind in column.unique().to_pylist():
            if kind is not None and kind not in _CONTENT_TYPES:
                number = column.index(kind).as_py()
                told = f"is '{kind[:40]}', none of {', '.join(_CONTENT_TYPES)}"
                raise self._refuse("content_type", number, told)
        return [kind or usual for kind in column.to_pylist()]

    def _unseal(self, bodies: list[bytes], names: list[str | None]) -> None:
        if self._open is None:
            raise Forbidden("journal")
        for number, name in enumerate(names):
            if name is None:
                continue
            try:
                bodies[number] = self._open(bodies[number], name)
            except StoreUnavailable:
                told = f"cannot be opened with the key '{name[:40]}'"
                raise self._refuse("sealed", number, told) from None

    def _check_texts(self, bodies: list[bytes], kinds: Sequence[Any], known: bool) -> None:
        """Text must be UTF-8, and JSON be JSON."""
        for number, (body, kind) in enumerate(zip(bodies, kinds, strict=True)):
            try:
                if kind != "bytes" and not known:
                    body.decode()
                if kind == "json":
                    _skim(body)
            except UnicodeDecodeError:
                raise self._refuse("body", number, f"is {kind}, and not UTF-8") from None
            except (msgspec.DecodeError, RecursionError):
                raise self._refuse("body", number, "is no JSON") from None

    def _headers(self) -> Iterable[Any]:
        column = self._column("headers")
        if column is None:
            return repeat(None)
        if column.nbytes > SLICE_BYTES:  # of a single row
            raise self._too_long(0, column.nbytes)
        headers: list[dict[str, Any] | None] = []
        for number, value in enumerate(column.to_pylist()):
            headers.append(None if value is None else self._header(number, value))
        return headers

    def _header(self, number: int, value: str | list[tuple[str, str]]) -> dict[str, Any]:
        try:
            size = len(value) if isinstance(value, str) else 0
            if size <= HEADERS_BYTES_MAX:
                header = _object(value) if isinstance(value, str) else dict(value)
                size = len(_pack(header))
        except (msgspec.DecodeError, RecursionError):
            raise self._refuse("headers", number, "is no JSON object") from None
        except OverflowError:
            raise self._refuse("headers", number, "holds a number over 64 bits") from None
        if size > HEADERS_BYTES_MAX:
            raise self._too_long(number, size)
        return header

    def _too_long(self, number: int, size: int) -> OverLimit:
        what = f"the bytes of headers in row {self._first + number}"
        return OverLimit(what, limit=HEADERS_BYTES_MAX, actual=size)

    def _texts(self, name: str, characters_max: int) -> Iterable[Any]:
        column = self._column(name)
        if column is None:
            return repeat(None)
        texts: list[str | None] = column.to_pylist()
        for number, text in enumerate(texts):
            if text is not None and not 1 <= len(text) <= characters_max:
                told = f"must have 1 to {characters_max} characters, not {len(text)}"
                raise self._refuse(name, number, told)
        return texts

    def _delays(self) -> Iterable[Any]:
        column = self._column("delay_ms")
        if column is None:
            return repeat(None)
        delays: list[int | None] = column.to_pylist()
        for number, delay_ms in enumerate(delays):
            if delay_ms is not None and not 0 <= delay_ms <= DELAY_MS_MAX:
                told = f"must be from 0 to {DELAY_MS_MAX}, not {delay_ms}"
                raise self._refuse("delay_ms", number, told)
        return delays


def _slices(column: pa.Array) -> list[bytes]:
    """The values of a column without nulls; cut out of its buffer, which is many times faster."""
    _, offsets, values = column.buffers()
    if offsets is None or values is None or not len(column):
        return [b""] * len(column)
    kind, width = ("q", 8) if column.type in _LARGE else ("i", 4)
    ends = struct.unpack_from(f"={len(column) + 1}{kind}", offsets, width * column.offset)
    first = ends[0]
    data = values.slice(first, ends[-1] - first).to_pybytes()
    return [data[start - first : stop - first] for start, stop in pairwise(ends)]
