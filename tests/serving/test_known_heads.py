"""Requests whose head was parsed before, beside a connection that parses every one."""

import asyncio
import random
from collections.abc import Iterable, Iterator
from typing import Any, cast

import pytest
import uvloop

from courier.connection import Connection
from courier.heads import (
    FIELDS_REMEMBERED_MAX,
    HEAD_REMEMBERED_BYTES_MAX,
    HEADS_REMEMBERED_MAX,
    Heads,
    spelled,
)
from courier.incoming import Incoming
from courier.proxies import Proxies
from courier.traffic import Traffic, TrafficLimits
from courier.web import App, Head, Response

POST = b"POST /a?b=c HTTP/1.1\r\nHost: courier\r\nAuthorization: Bearer x\r\n"
LENGTH = b"Content-Length: %d\r\n\r\n%s"
# Paths that end in a name which admits nobody, and the names that are routes of their own.
PUT = b"PUT /named/%s HTTP/1.1\r\nHost: courier\r\nAuthorization: Bearer x\r\n"
FIXED = frozenset(("locks", "a.b"))
UPGRADE = b"Upgrade: h2c\r\nConnection: Upgrade\r\n"


class Wire(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.sent = b""
        self.closed = False

    def write(self, data: Any) -> None:
        self.sent += bytes(data)

    def write_eof(self) -> None:
        self.closed = True

    def can_write_eof(self) -> bool:
        return True

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class Echo:
    """Answers with all that it was asked, and lets everybody in. Below /named/ a path ends in a
    name, unless that is a fixed one."""

    async def respond(self, request: Incoming) -> Response:
        request.admitted = True
        body = request.whole(1 << 20)
        if body is None:
            body = await request.read(1 << 20)
        head = request.head
        path = head.raw_path
        if path.startswith(b"/named/"):
            head.seldom = not path.endswith(tuple(b"/" + name.encode() for name in FIXED))
            head.names = FIXED if path.count(b"/") == 2 else None
        if request.name:
            path = path[: path.rindex(b"/") + 1] + request.name.encode()
        asked = (head.method, path, head.query_string, head.old, request.keep_alive)
        fields = sorted((k, v) for k, v in head.headers.items() if k != b"content-length")
        return Response(repr((*asked, fields, body)).encode())


class Forgetful(Heads):
    def keep(self, spelling: bytes, head: Head) -> None: ...


class Counted(Heads):
    def __init__(self) -> None:
        super().__init__()
        self.hits = 0
        known = self.find

        def find(spelling: bytes) -> Head | None:
            found = known(spelling)
            self.hits += found is not None
            return found

        self.find = find  # type: ignore[assignment]

    def named(self, spelling: bytes) -> tuple[Head, str] | None:
        found = super().named(spelling)
        self.hits += found is not None
        return found


async def story(parts: Iterable[bytes], heads: Heads) -> tuple[bytes, bool]:
    """What a connection answers to these parts, and whether it has ended by then."""
    traffic = Traffic(cast(App, Echo()), TrafficLimits(), Proxies(()))
    traffic.heads = heads
    connection, wire = Connection(traffic), Wire()
    connection.connection_made(wire)
    for part in parts:
        left = part
        while left and not wire.closed:
            buffer = connection.get_buffer(-1)
            size = min(len(left), len(buffer))
            buffer[:size] = left[:size]
            connection.buffer_updated(size)
            left = left[size:]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    return wire.sent, wire.closed


def both(*parts: bytes) -> int:
    """How often a head was known; the answers are the same as without."""

    async def run() -> int:
        counted = Counted()
        assert await story(parts, counted) == await story(parts, Forgetful())
        return counted.hits

    return uvloop.run(run())


def post(body: bytes, head: bytes = POST) -> bytes:
    return head + LENGTH % (len(body), body)


def test_a_head_is_parsed_once_whatever_the_length_of_the_body() -> None:
    assert both(post(b"one"), post(b"three"), post(b""), post(b"x" * 3_000)) == 3
    get = b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n"
    assert both(get, get, get) == 2
    # What is read in one piece with its head is at most a buffer.
    assert both(post(b"one"), post(b"x" * 8_000), post(b"two")) == 1


def put(name: bytes, body: bytes = b"body") -> bytes:
    return post(body, PUT % name)


def test_a_head_is_parsed_once_whatever_name_its_path_ends_in() -> None:
    assert both(put(b"one"), put(b"two", b"longer"), put(b"3-._~" + b"x" * 200)) == 2
    get = b"GET /named/%s HTTP/1.1\r\nhost: x\r\n\r\n"
    assert both(get % b"one", get % b"two", put(b"one"), get % b"one") == 2


@pytest.mark.parametrize(
    "name",
    [b"", b"locks", b"a.b", b"x%2Fy", b"x?y=z", b"?", b"x#y", b"x/y", b"/", b"x//", b"x y", b"+",
     b"x\tHTTP/1.1", b"x HTTP/1.1\r\nHost: other", b"\xc3\xa4", b"http://courier/named/x"],
)  # fmt: skip
def test_names_that_may_mean_more_are_parsed(name: bytes) -> None:
    assert both(put(b"one"), put(name), put(b"two")) <= 1
    both(put(name), put(b"one"), put(name))


def test_a_head_is_known_only_by_what_stands_around_the_name() -> None:
    other = PUT.replace(b"Bearer x", b"Bearer y")
    both(put(b"one"), post(b"body", other % b"one"), post(b"body", other % b"two"), put(b"two"))
    below = b"PUT /named/one/%s HTTP/1.1\r\nhost: x\r\n\r\n"
    assert both(below % b"a", below % b"b", below % b"a") == 0
    absolute = b"PUT http://courier/named/%s HTTP/1.1\r\nhost: courier\r\n\r\n"
    assert both(absolute % b"a", absolute % b"b") == 0
    query = b"PUT /named/a?b=/%s HTTP/1.1\r\nhost: courier\r\n\r\n"
    assert both(query % b"a", query % b"b") == 0


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param([post(b"one") + post(b"two"), post(b"six") + post(b"ten")], id="pipelined"),
        pytest.param([post(b"one"), post(b"12345")[:-2], b"45", post(b"two")], id="in parts"),
        pytest.param([post(b"one"), post(b"12345") + b"\r\n", post(b"two")], id="empty line"),
        pytest.param([b"\r\n" + post(b"one"), b"\r\n" + post(b"two")], id="empty line before"),
        pytest.param([POST + b"connection: close\r\n" + LENGTH % (1, b"1")] * 3, id="close"),
        pytest.param([POST + b"expect: 100-continue\r\n" + LENGTH % (1, b"1")] * 3, id="expect"),
        pytest.param([post(b"one", POST.replace(b"1.1", b"1.0"))] * 3, id="1.0"),
        pytest.param(
            [POST + b"transfer-encoding: chunked\r\n\r\n3\r\none\r\n0\r\n\r\n"] * 3, id="chunked"
        ),
        pytest.param([POST + b"X-Length: 0\r\n\r\n", POST + b"X-Length: 3\r\n\r\nabc"], id="other"),
        pytest.param([post(b"a", POST + b"x-length: 1\r\n")] * 3, id="another length before"),
        pytest.param([POST + b"content-length:3\r\n\r\none"] * 3, id="no blank"),
        pytest.param([POST + b"content-length: 3 \r\n\r\none"] * 3, id="blank after"),
        pytest.param([POST + b"content-length: 003\r\n\r\none"] * 2, id="leading zeros"),
        pytest.param([post(b"one"), POST + b"content-length: +3\r\n\r\none"], id="sign"),
        pytest.param([post(b"one"), POST + b"content-length: 3\r\n 3\r\n\r\none"], id="folded"),
        pytest.param([POST + b"content-length: 3\n\r\n\r\none"] * 2, id="bare line feed"),
        pytest.param([post(b"one"), POST + b"content-length: \r\n\r\n"], id="no number"),
        pytest.param([post(b"one", POST + b"content-length: 3\r\n")] * 2, id="twice"),
        pytest.param([post(b"one"), POST + b"content-length: 99999999999\r\n\r\n"], id="huge"),
        pytest.param([post(b"one", POST + UPGRADE)] * 2, id="upgrade"),
        pytest.param([POST.replace(b"POST", b"CONNECT") + b"\r\n"] * 2, id="connect"),
        pytest.param([POST.replace(b"POST", b"HEAD") + b"\r\n"] * 2, id="head"),
    ],
)  # fmt: skip
def test_odd_requests_are_answered_as_if_nothing_were_remembered(parts: list[bytes]) -> None:
    both(post(b"zero"), *parts, post(b"last"))


def mutations(seed: int) -> Iterator[bytes]:
    """Requests and what is nearly one: bytes changed, dropped, repeated, cut at any place."""
    dice = random.Random(seed)
    lines = [b"X-Length: 1\r\n", b"Accept: */*\r\n", b"content-length: 2\r\n", b"\r\n", b"a: b\n"]
    for _ in range(12):
        body = bytes(dice.choices(b"ab\r\n:1 ", k=dice.randrange(8)))
        name = bytes(dice.choices(b"ab.%/? ", k=dice.randrange(4)))
        data = bytearray(dice.choice((post(body), put(name, body), put(b"locks", body))))
        for _ in range(dice.choice((0, 0, 1, 1, 2))):
            at = dice.randrange(len(data))
            change = dice.randrange(4)
            if change == 0:
                data[at] = dice.choice(b"\r\n: 0129aT\t")
            elif change == 1:
                del data[at]
            elif change == 2:
                data[at:at] = bytes([dice.choice(b"\r\n: 019")])
            else:
                line = data.find(b"\n", at) + 1
                data[line:line] = dice.choice(lines)
        yield bytes(data)


@pytest.mark.parametrize("seed", range(100))
def test_whatever_comes_is_answered_as_if_nothing_were_remembered(seed: int) -> None:
    both(post(b"first"), put(b"first"), *mutations(seed), post(b"last"), put(b"last"))


def test_only_what_leaves_no_doubt_is_remembered() -> None:
    def keeps(spelling: bytes, headers: dict[bytes, bytes], **more: Any) -> bool:
        heads = Heads()
        heads.keep(spelling, Head("POST", b"/", b"", headers, **more))
        return heads.find(spelling) is not None

    long = {b"content-length": b"3"}
    assert keeps(b"POST / HTTP/1.1\r\ncontent-length: \r\n\r\n", long)
    assert keeps(b"POST / HTTP/1.1\r\n\r\n", {})
    assert not keeps(b"POST / HTTP/1.1\r\nx-length: \r\n\r\n", {b"x-length": b"3"})
    assert not keeps(b"POST / HTTP/1.1\r\nx-length: \r\ncontent-length: 3\r\n\r\n", long)
    assert not keeps(b"POST / HTTP/1.1\r\nx-content-length: \r\n\r\n", {})
    assert not keeps(b"POST / HTTP/1.1\r\n\r\n", {b"transfer-encoding": b"chunked"})
    assert not keeps(b"POST / HTTP/1.1\r\n\r\n", {b"expect": b"100-continue"})
    assert not keeps(b"POST / HTTP/1.1\r\n\r\n", {b"upgrade": b"h2c"})
    assert not keeps(b"POST / HTTP/1.1\r\n\r\n", {}, keep_alive=False)
    assert not keeps(b"POST / HTTP/1.0\r\n\r\n", {}, old=True)
    many = {b"%d" % number: b"" for number in range(FIELDS_REMEMBERED_MAX + 1)}
    assert not keeps(b"POST / HTTP/1.1\r\n\r\n", many)


def test_few_and_short_heads_are_remembered() -> None:
    heads = Heads()
    for number in range(2 * HEADS_REMEMBERED_MAX):
        heads.keep(b"%d" % number, Head("GET", b"/", b"", {}))
    assert len(heads._known) <= HEADS_REMEMBERED_MAX
    assert spelled(b"GET /" + b"a" * HEAD_REMEMBERED_BYTES_MAX + b" HTTP/1.1\r\n\r\n") is None
