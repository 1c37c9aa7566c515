"""An Arrow stream becomes drafts, or is refused with a sentence that says where and why."""

import struct
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from courier.core.errors import Forbidden, InvalidRequest, OverLimit
from courier.core.types import DAY_MS, Draft
from courier.ops import drafts
from courier.sealing import KeySealer

SEALER, HERE = KeySealer([b"k" * 32]), b"here"
MAP = pa.map_(pa.string(), pa.string())
NUMBERS = pa.map_(pa.string(), pa.int64())


def stream(*batches: pa.RecordBatch, compression: str | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, batches[0].schema, options=options) as writer:
        for batch in batches:
            writer.write_batch(batch)
    whole: bytes = sink.getvalue().to_pybytes()
    return whole


def columns(**values: Any) -> bytes:
    return stream(pa.record_batch(values))


def read(raw: bytes) -> list[Draft]:
    return drafts.read(raw, partial(SEALER.open, place=HERE))


# --- what is taken ---


def test_a_column_of_texts_is_enough() -> None:
    assert read(columns(body=["a", "größe", ""])) == [
        Draft(b"a", "text"),
        Draft("größe".encode(), "text"),
        Draft(b"", "text"),
    ]


@pytest.mark.parametrize(
    ("kind", "usual"),
    [(pa.string(), "text"), (pa.large_string(), "text"), (pa.binary(), "bytes"),
     (pa.large_binary(), "bytes")],
)  # fmt: skip
def test_every_kind_of_body_is_read(kind: pa.DataType, usual: str) -> None:
    found = read(columns(body=pa.array(["a", "bc"], type=kind)))
    assert [(draft.body, draft.content_type) for draft in found] == [(b"a", usual), (b"bc", usual)]


def test_every_column_is_read() -> None:
    found = read(
        columns(
            body=["1", "{}", "c"],
            content_type=["text", "json", None],
            headers=['{"k": [1, null]}', None, "{}"],
            delay_ms=pa.array([None, 0, DAY_MS]),
            group=["g", None, "h" * 128],
            message_id=[None, "m" * 256, "o"],
        )
    )
    assert found == [
        Draft(b"1", "text", {"k": [1, None]}, group="g"),
        Draft(b"{}", "json", id="m" * 256, delay_ms=0),
        Draft(b"c", "text", {}, "o", DAY_MS, group="h" * 128),
    ]


def test_headers_may_be_a_map() -> None:
    headers = pa.array([[("k", "v"), ("l", "")], None, []], type=MAP)
    found = read(columns(body=["a", "b", "c"], headers=headers))
    assert [draft.headers for draft in found] == [{"k": "v", "l": ""}, None, {}]


def test_optional_columns_may_say_nothing() -> None:
    names = ("content_type", "headers", "delay_ms", "group", "message_id", "sealed")
    nothing = {name: pa.nulls(2) for name in names}
    assert drafts.read(columns(body=["a", "b"], **nothing), None) == [Draft(b"a"), Draft(b"b")]


def test_a_stream_of_many_batches_and_slices_keeps_its_order() -> None:
    many = [str(number) for number in range(2 * drafts.SLICE_ROWS + 5)]
    whole = pa.record_batch({"body": many, "message_id": [f"m{each}" for each in many]})
    found = read(stream(whole.slice(3), whole.slice(0, 0), whole.slice(1, 2)))
    assert [draft.body.decode() for draft in found] == [*many[3:], *many[1:3]]
    assert [draft.id for draft in found] == [f"m{draft.body.decode()}" for draft in found]


def test_a_stream_without_rows_is_no_drafts() -> None:
    assert read(columns(body=pa.array([], type=pa.string()))) == []


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_a_compressed_stream_is_read(compression: str) -> None:
    batch = pa.record_batch({"body": ["a" * 1_000] * 100, "group": ["g"] * 100})
    found = read(stream(batch, compression=compression))
    assert found == [Draft(b"a" * 1_000, group="g")] * 100


def test_sealed_bodies_are_opened() -> None:
    (one, key), (two, _) = SEALER.seal(b'{"n":1}', HERE), SEALER.seal(b"\xff", HERE)
    batch = {
        "body": pa.array([one, two, b"{}"]),
        "content_type": ["json", "bytes", "json"],
        "sealed": [key, key, None],
    }
    assert read(columns(**batch)) == [
        Draft(b'{"n":1}', "json"),
        Draft(b"\xff", "bytes"),
        Draft(b"{}", "json"),
    ]
    with pytest.raises(Forbidden, match="journal"):
        drafts.read(columns(**batch), None)


# --- what is refused ---

BIG = "9" * 30
REFUSED: dict[str, tuple[Callable[[], bytes], str]] = {
    "no body": (lambda: columns(text=["a"]), "^text: is none of the columns body, "),
    "body missing": (lambda: columns(group=["a"]), "^body: is missing"),
    "unknown column": (lambda: columns(body=["a"], ttl=[1]), "^ttl: is none of the columns"),
    "number as body": (lambda: columns(body=[1]), "^body: must be string or binary, not int64"),
    "all null": (lambda: columns(body=pa.nulls(2)), "^body: must be string or binary, not null"),
    "null body": (lambda: columns(body=["a", None]), "^body: row 1 is null"),
    "null body far on": (
        lambda: columns(body=["a"] * 4_321 + [None]),
        "^body: row 4321 is null",
    ),
    "dictionary": (
        lambda: columns(body=pa.array(["a"]).dictionary_encode()),
        "^body: must be string or binary, not dictionary",
    ),
    "text delay": (lambda: columns(body=["a"], delay_ms=["1"]), "^delay_ms: must be int64, not"),
    "negative delay": (
        lambda: columns(body=["a", "b"], delay_ms=[0, -1]),
        "^delay_ms: row 1 must be from 0 to 86400000, not -1",
    ),
    "long delay": (
        lambda: columns(body=["a"], delay_ms=[DAY_MS + 1]),
        "^delay_ms: row 0 must be from 0 to 86400000, not 86400001",
    ),
    "content type": (
        lambda: columns(body=["a", "b"], content_type=["text", "xml"]),
        "^content_type: row 1 is 'xml', none of text, json, bytes",
    ),
    "no JSON": (
        lambda: columns(body=["{}", "{"], content_type=["json", "json"]),
        "^body: row 1 is no JSON",
    ),
    "deep JSON": (
        lambda: columns(body=["[" * 100_000], content_type=["json"]),
        "^body: row 0 is no JSON",
    ),
    "text not UTF-8": (
        lambda: columns(body=[b"a", b"\xff"], content_type=["text", "text"]),
        "^body: row 1 is text, and not UTF-8",
    ),
    "JSON not UTF-8": (
        lambda: columns(body=[b'"\xff"'], content_type=["json"]),
        "^body: row 0 is json, and not UTF-8",
    ),
    "headers": (lambda: columns(body=["a"], headers=["[]"]), "^headers: row 0 is no JSON object"),
    "deep headers": (
        lambda: columns(body=["a"], headers=['{"a":' * 5_000 + "1" + "}" * 5_000]),
        "^headers: row 0 is no JSON object",
    ),
    "huge number": (
        lambda: columns(body=["a"], headers=[f'{{"a": {BIG}}}']),
        "^headers: row 0 holds a number over 64 bits",
    ),
    "map of numbers": (
        lambda: columns(body=["a"], headers=pa.array([[("a", 1)]], NUMBERS)),
        "^headers: must be string or map<string, string>, not map",
    ),
    "empty group": (
        lambda: columns(body=["a"], group=[""]),
        "^group: row 0 must have 1 to 128 characters, not 0",
    ),
    "long group": (lambda: columns(body=["a"], group=["g" * 129]), "^group: row 0 .* not 129"),
    "long id": (
        lambda: columns(body=["a"], message_id=["m" * 257]),
        "^message_id: row 0 must have 1 to 256 characters, not 257",
    ),
    "sealed by another": (
        lambda: columns(body=[b"a" * 40], sealed=["0" * 16]),
        f"^sealed: row 0 cannot be opened with the key '{'0' * 16}'",
    ),
    "sealed and no text": (
        lambda: columns(body=[SEALER.seal(b"\xff", HERE)[0]], sealed=[SEALER.seal(b"", HERE)[1]],
                        content_type=["text"]),
        "^body: row 0 is text, and not UTF-8",
    ),
    "nothing": (lambda: b"", "does not begin with a schema"),
    "not Arrow": (lambda: b'{"body": "a"}', "not a sound Arrow stream"),
    "a file": (lambda: b"ARROW1\0\0" + columns(body=["a"]), "not a sound Arrow stream"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refused_with_a_sentence(case: str) -> None:
    build, sentence = REFUSED[case]
    with pytest.raises(InvalidRequest, match=sentence):
        read(build())


def test_a_column_that_is_there_twice_is_refused() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["body", "body"])
    with pytest.raises(InvalidRequest, match="body: is there twice"):
        read(stream(batch))


def test_a_stream_that_breaks_off_is_refused_or_read_up_to_a_whole_batch() -> None:
    batch = pa.record_batch({"body": ["a" * 50] * 20, "group": ["g"] * 20})
    whole = stream(batch, batch)
    for length in range(len(whole)):
        try:
            found = len(read(whole[:length]))
        except InvalidRequest:
            continue
        assert found in (0, 20, 40)


def test_a_stream_with_a_changed_byte_is_never_more_than_refused() -> None:
    """Whatever the byte says, nothing falls over, and what is read keeps to the limits."""
    for compression in (None, "lz4"):
        batch = pa.record_batch({"body": ["a" * 9] * 9, "headers": ['{"k":1}'] * 9})
        whole = stream(batch, compression=compression)
        for place in range(len(whole)):
            for flip in (0x01, 0x80, 0xFF):
                changed = bytearray(whole)
                changed[place] ^= flip
                with suppress(InvalidRequest, OverLimit):
                    assert len(read(bytes(changed))) <= drafts.ROWS_MAX


# --- limits ---


def test_there_is_a_limit_on_rows() -> None:
    body = ["a"] * (drafts.ROWS_MAX // 2)
    batch = pa.record_batch({"body": body})
    assert len(read(stream(batch, batch))) == drafts.ROWS_MAX
    with pytest.raises(OverLimit, match="the number of rows is 100001, the limit is 100000"):
        read(stream(batch, batch, pa.record_batch({"body": ["a"]})))


def test_there_is_a_limit_on_a_body() -> None:
    most = "a" * drafts.BODY_BYTES_MAX
    assert len(read(columns(body=[most]))[0].body) == drafts.BODY_BYTES_MAX
    with pytest.raises(OverLimit, match="the bytes of body in row 1 is 10485761, the limit is"):
        read(columns(body=["a", most + "a"]))


def test_there_is_a_limit_on_headers() -> None:
    with pytest.raises(OverLimit, match="the bytes of headers in row 0 is "):
        read(columns(body=["a"], headers=['{"a": "%s"}' % ("b" * drafts.HEADERS_BYTES_MAX)]))


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_what_would_decode_to_too_much_is_not_decoded(compression: str) -> None:
    part = pa.record_batch({"body": ["\0" * (9 << 20)]})
    bomb = stream(*[part] * 8, compression=compression)
    assert len(bomb) < 1 << 20
    room = pa.total_allocated_bytes()
    with pytest.raises(OverLimit, match=r"the bytes of all rows is \d+, the limit is 67108864"):
        read(bomb)
    assert pa.total_allocated_bytes() - room < 1 << 20


def test_a_buffer_that_says_it_is_huge_is_not_believed() -> None:
    text = "\0" * 5_000
    raw = stream(pa.record_batch({"body": [text]}), compression="lz4")
    # The last place that tells the length of the text is the beginning of its compressed bytes.
    at = raw.rindex(struct.pack("<q", len(text)))
    with pytest.raises(OverLimit, match=str(1 << 45)[:8]):
        read(raw[:at] + struct.pack("<q", 1 << 45) + raw[at + 8 :])
