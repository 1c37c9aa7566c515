"""Long bodies: read in slices, they mean what they mean when they are parsed whole."""

import asyncio
import json
import random
from base64 import b64encode
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from courier.core.errors import InvalidRequest, OverLimit
from courier.dialects import folding
from courier.dialects import json as bodies
from courier.dialects.anypoint import wire
from courier.dialects.folding import Folded
from courier.long_texts import AT_ONCE_BYTES_MAX, SHORT_BYTES_MAX, SLICE_BYTES, LongTexts
from courier.web import NotJson

# Among them are what must not be cut in two: escapes, half pairs, characters of many bytes.
PIECES = [
    "a", "plain text ", '\\"', "\\\\", "\\\\\\\\", "\\n", "\\u0001", "\\u00e9", "\\ud83d\\ude00",
    "é", "☃", "😀", "{", "}", "[", ",", ":", "\\/", "\\\\u0041", '\\\\\\"',
]  # fmt: skip


class Writer:
    """Random messages, some of them wrong."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def text(self) -> bytes:
        chosen = self._random.choices(PIECES, k=self._random.choice([0, 3, 60, 300]))
        text = "".join(chosen).encode()
        if self._random.random() < 0.05:
            place = self._random.randrange(len(text) + 1)
            bad = self._random.choice([b"\xff", b"\n", b"\\x", b'"', b"\\ud83d", b"\xc3"])
            text = text[:place] + bad + text[place:]
        return b'"%s"' % text

    def value(self, depth: int = 2) -> bytes:
        kind = self._random.random()
        if depth and kind < 0.2:
            return b"[%s]" % b",".join(self.value(depth - 1) for _ in range(3))
        if depth and kind < 0.5:
            return self.object(depth - 1)
        return self.text() if kind < 0.9 else b"12"

    def object(self, depth: int = 2) -> bytes:
        members = [
            self.text() + b":" + self.value(depth) for _ in range(self._random.choice([1, 3]))
        ]
        return b"{%s}" % b", ".join(members)

    def message(self) -> bytes:
        names = self._random.choices([b"headers", b"properties", b"body", b"other"], k=3)
        values = {b"body": self.text, b"other": self.value}
        members = [b'"%s": %s' % (name, values.get(name, self.object)()) for name in names]
        text = b"{%s}" % b",".join(members)
        return text[:-1] if self._random.random() < 0.02 else text


def read(raw: bytes) -> wire.MessageBody:
    folded = Folded(raw, rest_bytes_max=len(raw), slice_bytes=64)
    message = wire._folded_message(folded.rest, folded)
    folded.check()
    return message


def outcome(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except (InvalidRequest, NotJson):  # which of two mistakes is found first does not matter
        return "refused"


@pytest.mark.parametrize("seed", range(20))
def test_folded_bodies_mean_the_same(seed: int) -> None:
    writer = Writer(seed)
    set_aside = 0
    for _ in range(100):
        raw = writer.message()
        folded = Folded(raw, rest_bytes_max=len(raw), slice_bytes=64)
        set_aside += len(folded.rest) < len(raw)
        assert folded.whole(folded.rest) == raw
        assert folded.length(folded.rest) == len(raw)
        whole = outcome(partial(bodies.decode, raw, wire.MessageBody))
        parts = outcome(partial(read, raw))
        assert parts == whole, raw
    assert set_aside > 20


def escaped(size: int) -> bytes:
    return b"\\u0001" * size


def test_the_largest_message_can_be_escaped_throughout() -> None:
    raw = b'{"headers":{"a":1},"body":"%s"}' % escaped(wire.BODY_BYTES_MAX)
    read = wire.message(raw)
    assert read.headers == {"a": 1}
    assert read.body == "\x01" * wire.BODY_BYTES_MAX
    with pytest.raises(OverLimit, match="message bytes"):
        wire.message(b'{"body":"%s"}' % escaped(wire.BODY_BYTES_MAX + 1))


def test_a_batch_has_a_bad_item_where_a_long_text_is_bad() -> None:
    good = json.dumps({"body": "é\n" * 1_000_000}).encode()
    bad = json.dumps({"headers": {"messageId": "m"}, "body": "x" * 3_000_000}).encode()
    bad = bad[:1_500_000] + b"\x01" + bad[1_500_001:]
    long = json.dumps({"properties": {"p": "x" * 1_000_000}, "body": "short"}).encode()
    first, second, third = wire.batch(b"[%s , %s,%s]" % (good, bad, long))
    assert isinstance(first, wire.MessageBody) and first.body == "é\n" * 1_000_000
    assert isinstance(second, wire.BadItem) and second.id == "m"
    assert isinstance(third, wire.MessageBody) and third.body == "short"
    assert third.properties == {"p": "x" * 1_000_000}


def test_headers_of_a_long_request_are_limited_with_their_long_texts() -> None:
    text = b'"%s"' % (b"x" * (5 << 20))
    for part in (b"headers", b"properties"):
        with pytest.raises(OverLimit, match="message headers"):
            wire.message(b'{"%s":{"a":%s}}' % (part, text))


def test_what_is_no_long_text_is_limited() -> None:
    many = b",".join([b'"headers":0'] * 2_000_000)
    with pytest.raises(OverLimit, match="outside of long texts"):
        wire.message(b"{%s}" % many)
    assert folding.SLICE_BYTES * 2 * wire.BATCH_MAX < wire.REST_BYTES_MAX < 12 << 20


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("base64", [False, True])
def test_long_texts_are_written_as_they_would_be_at_once(seed: int, base64: bool) -> None:
    luck = random.Random(seed)
    size = luck.choice((SHORT_BYTES_MAX, SLICE_BYTES - 1, SLICE_BYTES + 1, 3 * SLICE_BYTES))
    pieces = luck.choice(("a", '"\\', "\x01\n", "é", "€", "\U0001f600", 'a"é€\U0001f600\x00'))
    bodies = ["".join(luck.choices(pieces, k=size)).encode() for _ in range(3)]
    texts = LongTexts(AT_ONCE_BYTES_MAX + 1)
    answer = {"rows": [{"id": n, "b": texts.text(b, base64=base64)} for n, b in enumerate(bodies)]}

    async def written() -> bytes:
        parts = texts.parts(json.dumps(answer).encode())
        if parts is None:
            return json.dumps(answer).encode()
        return b"".join([part async for part in parts])

    rows = json.loads(asyncio.run(written()))["rows"]
    assert [row["id"] for row in rows] == [0, 1, 2]
    shown = [b64encode(body).decode() if base64 else body.decode() for body in bodies]
    assert [row["b"] for row in rows] == shown
