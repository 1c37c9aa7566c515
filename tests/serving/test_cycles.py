"""However a request ends, nothing of it is left for the collector, which seldom comes by.

A stranger could fill the memory with what waits for it.
"""

import asyncio
import gc
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import uvloop

from courier import app
from courier.clock import SteadyClock
from courier.config import Config
from courier.connection import Connection
from courier.incoming import Incoming
from courier.proxies import Proxies
from courier.traffic import Traffic, TrafficLimits
from courier.web import BodiesFull, Head
from tests.oracle.store import Oracle
from tests.serving.test_known_heads import Wire

HOST = b"Host: courier\r\nContent-Type: application/json\r\n"
LOGIN = b"POST /accounts/login HTTP/1.1\r\n" + HOST
SIGN_IN = b"POST /console/sign-in HTTP/1.1\r\n" + HOST
PART = LOGIN + b"Content-Length: 90\r\n\r\n{"
CHUNKED = LOGIN + b"Transfer-Encoding: chunked\r\n\r\n"
WRONG = b'{"username":"a","password":"b"}'


def gone(link: Connection) -> None:
    link.connection_lost(None)


def late(link: Connection) -> None:
    link.cut_if_slow(asyncio.get_running_loop().time() + 1_000)


def full(link: Connection) -> None:
    """As when too many bodies of admitted callers are on their way."""
    request = link._reader.arriving
    assert request is not None
    request.fail(BodiesFull(limit=1))


def whole(body: bytes, head: bytes = LOGIN) -> bytes:
    return head + b"Content-Length: %d\r\n\r\n%s" % (len(body), body)


ENDS: dict[str, tuple[bytes, Callable[[Connection], None]]] = {
    "wrong credentials": (whole(WRONG), gone),
    "not JSON": (whole(b"{"), gone),
    "wrong type": (whole(b'{"username":1}'), gone),
    "a key twice": (whole(b'{"username":"a","username":"b"}'), gone),
    "not UTF-8": (whole(b'{"\xff":1}'), gone),
    "a wrong form": (whole(b"a=%ff"), gone),
    "a sign-in": (whole(b'{"key":"a"}', SIGN_IN), gone),
    "no such path": (b"GET /nowhere HTTP/1.1\r\n" + HOST + b"\r\n", gone),
    "no such key": (b"GET /v1/queues HTTP/1.1\r\nX-API-KEY: a\r\n" + HOST + b"\r\n", gone),
    "left in its head": (LOGIN, gone),
    "left in its body": (PART, gone),
    "left in its chunks": (CHUNKED + b"2\r\n{}\r\n", gone),
    "late in its head": (LOGIN, late),
    "late in its body": (PART, late),
    "gave way in its head": (LOGIN, Connection.give_way),
    "gave way in its body": (PART, Connection.give_way),
    "no room for its body": (PART, full),
    "a body too long": (LOGIN + b"Content-Length: 99999999\r\n\r\n{", gone),
    "chunks too long": (CHUNKED + (b"400\r\n%s\r\n" % (b"x" * 0x400)) * 12, gone),
    "bad chunks": (CHUNKED + b"2\r\n{}\r\nzz\r\n", gone),
    "bad framing": (CHUNKED + b"1;%s\r\n{\r\n" % (b"e" * 20_000), gone),
    "no HTTP": (b"\x16\x03\x01\r\n\r\n", gone),
    "no HTTP behind it": (whole(WRONG) + b"\x16\x03\x01\r\n\r\n", gone),
    "several": (whole(WRONG) * 20 + PART, gone),
}


def left() -> list[object]:
    kinds = (Incoming, Head, Connection)
    return [each for each in gc.get_objects() if isinstance(each, kinds)]


async def ended(traffic: Traffic, data: bytes, end: Callable[[Connection], None]) -> bytes:
    """What the client got."""
    link, wire = Connection(traffic), Wire()
    link.connection_made(wire)
    while data:
        buffer = link.get_buffer(-1)
        size = min(len(buffer), len(data))
        buffer[:size] = data[:size]
        data = data[size:]
        link.buffer_updated(size)
        await settled()
    end(link)
    await settled()
    if end is not gone:
        gone(link)
        await settled()
    return wire.sent


async def settled() -> None:
    """Handlers take a few rounds of the loop, and wait for nothing else."""
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.mark.parametrize("name", ENDS)
def test_nothing_is_left_of_a_request_however_it_ends(tmp_path: Path, name: str) -> None:
    async def tried() -> tuple[bytes, int]:
        clock = SteadyClock(0, step_wait_ms=0)
        made = app.build(Oracle(), Config(data=tmp_path), clock, port=1)
        traffic = Traffic(made.app, TrafficLimits(), Proxies())
        await ended(traffic, *ENDS[name])  # what is loaded and remembered the first time
        gc.collect()
        gc.disable()
        try:
            before = len(left())
            sent = await ended(traffic, *ENDS[name])
            return sent, len(left()) - before
        finally:
            gc.enable()

    work: Coroutine[Any, Any, tuple[bytes, int]] = tried()
    sent, count = uvloop.run(work)
    assert count == 0
    assert sent.startswith(b"HTTP/1.1 ") or name.startswith("left in")
    assert b"HTTP/1.1 5" not in sent or b"HTTP/1.1 503" in sent
