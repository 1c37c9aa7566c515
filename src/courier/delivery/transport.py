"""One HTTP request, a push or a look at a page, and what came of it."""

import asyncio
import os
import re
import time
from base64 import b64encode
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple, Protocol
from urllib.parse import unquote_to_bytes, urlsplit

from msgspec import Struct

from courier import __version__
from courier.delivery.connections import Endpoint, Pool
from courier.delivery.moments import Deadlines
from courier.delivery.targets import Targets

USER_AGENT = f"Courier/{__version__}"


class Target:
    """Where requests go, and the headers that are the same in all of them.

    `trusted`: the URL is the operator's own word, and may be anywhere. `route` is what a transport
    has made of the others, once.
    """

    __slots__ = ("headers", "route", "trusted", "url")

    def __init__(self, url: str, headers: Mapping[str, str], *, trusted: bool = False) -> None:
        self.url = url
        self.headers = headers
        self.trusted = trusted
        self.route: Any = None


class PushRequest(Struct, frozen=True):
    """One of many requests to a target, with headers of its own."""

    target: Target
    body: bytes
    headers: Mapping[str, str]


class PushResult(Struct, frozen=True):
    """What came of a push. Status 0: no whole answer came, and `error` says why."""

    status: int
    duration_ms: int
    error: str = ""
    body: bytes = b""
    retry_after: str = ""

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300


class OnItsWay(Protocol):
    """A push that was begun and has not ended."""

    def give_up(self) -> None:
        """Nobody hears what comes of it."""
        ...


class Transport(Protocol):
    """Nothing raises for what the other side does: a refusal is a result."""

    def begin(
        self, push: PushRequest, *, timeout_ms: int, ended: Callable[[PushResult], None]
    ) -> OnItsWay:
        """`ended` is called once, and never before this returns."""
        ...

    async def send(self, push: PushRequest, *, timeout_ms: int, trial: bool = False) -> PushResult:
        """`trial`: with the connections of probes, so that it takes none from pushes."""
        ...

    async def get(self, url: str, *, timeout_ms: int) -> PushResult:
        """Read what is there, from an address that may be called."""
        ...

    async def close(self) -> None: ...


ERROR_CHARACTERS_MAX = 500

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
# What a header's value may be made of, and the ends of lines.
_TEXT = bytes({*b"\t\r\n", *range(0x20, 0x7F), *range(0x80, 0x100)})
# Most pushes have headers of the same names.
NAMES_REMEMBERED_MAX = 10
# A byte is looked for much faster as a number.
_CR, _LF = b"\r\n"
_TARGET = re.compile(r"[!-~]+")
_OURS = frozenset(("host", "content-length", "transfer-encoding", "connection"))
_DEFAULTS = {
    "user-agent": USER_AGENT,
    "accept": "*/*",
    "accept-encoding": "identity",  # nothing here unpacks an answer
}


class HttpTransport:
    """Keeps connections open between pushes. Follows no redirect, keeps no cookie."""

    def __init__(self, targets: Targets, *, connections_max: int) -> None:
        self._targets = targets
        self._guarded = Pool(targets, connections_max)
        self._trusted = Pool(None, connections_max)
        # Its own, or listeners that are well would seem down because others do not answer.
        self._probing = Pool(targets, connections_max)
        self._deadlines = Deadlines()

    def begin(
        self, push: PushRequest, *, timeout_ms: int, ended: Callable[[PushResult], None]
    ) -> "HttpExchange":
        pool = self._trusted if push.target.trusted else self._guarded
        return self._begin(pool, push, timeout_ms, ended)

    def _begin(
        self, pool: Pool, push: PushRequest, timeout_ms: int, ended: Callable[[PushResult], None]
    ) -> "HttpExchange":
        target = push.target
        exchange = HttpExchange(pool, self._deadlines, timeout_ms, ended)
        try:
            route = target.route or self._route(target, "POST")
            _known_names(tuple(push.headers))
            own = _lines(push.headers)
        except (OSError, ValueError) as error:
            asyncio.get_running_loop().call_soon(exchange.failed, error)
        else:
            size = len(push.body)
            head = b"%bcontent-length: %d\r\n%b\r\n" % (route.head, size, own)
            exchange.start(route.endpoint, head, push.body)
        return exchange

    async def send(self, push: PushRequest, *, timeout_ms: int, trial: bool = False) -> PushResult:
        answer: asyncio.Future[PushResult] = asyncio.get_running_loop().create_future()
        if trial:
            exchange = self._begin(self._probing, push, timeout_ms, answer.set_result)
        else:
            exchange = self.begin(push, timeout_ms=timeout_ms, ended=answer.set_result)
        return await _ended(answer, exchange)

    async def get(self, url: str, *, timeout_ms: int) -> PushResult:
        answer: asyncio.Future[PushResult] = asyncio.get_running_loop().create_future()
        exchange = HttpExchange(self._probing, self._deadlines, timeout_ms, answer.set_result)
        try:
            route = self._route(Target(url, {}), "GET")
        except (OSError, ValueError) as error:
            exchange.failed(error)
        else:
            exchange.start(route.endpoint, route.head + b"\r\n", b"")
        return await _ended(answer, exchange)

    def _route(self, target: Target, method: str) -> "TargetHead":
        """Raises OSError for an address that may not be called, and ValueError."""
        if not target.trusted:
            self._targets.check_url(target.url)
        target.route = made = _route(target.url, target.headers, method)
        return made

    async def close(self) -> None:
        self._deadlines.close()
        for pool in (self._guarded, self._trusted, self._probing):
            await pool.close()


class HttpExchange:
    """One request on its way, until its answer has come, or none in time, or it is given up."""

    __slots__ = (
        *("_began_s", "_deadlines", "_ended", "_pool", "_timeout_ms"),
        *("body", "endpoint", "head"),
    )

    endpoint: Endpoint
    head: bytes
    body: bytes

    def __init__(
        self,
        pool: Pool,
        deadlines: Deadlines,
        timeout_ms: int,
        ended: Callable[[PushResult], None],
    ) -> None:
        self._pool = pool
        self._deadlines = deadlines
        self._timeout_ms = timeout_ms
        self._ended: Callable[[PushResult], None] | None = ended
        self._began_s = time.perf_counter()

    def start(self, endpoint: Endpoint, head: bytes, body: bytes) -> None:
        self.endpoint, self.head, self.body = endpoint, head, body
        self._deadlines.add(self, self._timeout_ms)
        self._pool.start(self)

    def give_up(self) -> None:
        if self._ended is not None:
            self._ended = None
            self._deadlines.take_away(self, self._timeout_ms)
            self._pool.leave(self)

    def answered(self, status: int, body: bytes, retry_after: str) -> None:
        self._end(PushResult(status, self._took_ms(), "", body, retry_after))

    def failed(self, error: Exception) -> None:
        if isinstance(error, ConnectionError) and error.errno:
            # In words, not the number that the system has for it.
            says = os.strerror(error.errno).lower()
            text = f"{says} by {self.endpoint.host}:{self.endpoint.port}"
        else:
            text = str(error) or type(error).__name__
        self._end(PushResult(0, self._took_ms(), text[:ERROR_CHARACTERS_MAX]))

    def expired(self) -> None:
        text = f"no whole answer within {self._timeout_ms} ms"
        self._end(PushResult(0, self._took_ms(), text))

    def _took_ms(self) -> int:
        return round((time.perf_counter() - self._began_s) * 1000)

    def _end(self, result: PushResult) -> None:
        ended = self._ended
        if ended is not None:
            self.give_up()
            ended(result)


async def _ended(answer: "asyncio.Future[PushResult]", exchange: HttpExchange) -> PushResult:
    try:
        return await answer
    finally:
        exchange.give_up()


class TargetHead(NamedTuple):
    """What all requests to a target have in common: the first lines of their heads."""

    endpoint: Endpoint
    head: bytes


def _route(url: str, headers: Mapping[str, str], method: str) -> TargetHead:
    """Raises ValueError."""
    parts = urlsplit(url)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    place = parts.netloc.rpartition("@")[2]
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("the URL is not an absolute http:// or https:// URL")
    if not _TARGET.fullmatch(path) or not _TARGET.fullmatch(place):
        raise ValueError("the URL has characters that must be percent-encoded")
    own = {"host": place}
    if "@" in parts.netloc:
        user = unquote_to_bytes(f"{parts.username or ''}:{parts.password or ''}")
        own["authorization"] = f"Basic {b64encode(user).decode()}"
    given = {name.lower() for name in headers}
    own |= {name: value for name, value in _DEFAULTS.items() if name not in given}
    line = f"{method} {path} HTTP/1.1\r\n".encode()
    head = line + _lines(own) + _fields(headers)
    encrypted = parts.scheme == "https"
    port = parts.port or (443 if encrypted else 80)
    return TargetHead(Endpoint(encrypted, parts.hostname, port), head)


def _fields(headers: Mapping[str, str]) -> bytes:
    """Raises ValueError."""
    _check_names(tuple(headers))
    return _lines(headers)


def _check_names(names: tuple[str, ...]) -> None:
    if not _OURS.isdisjoint(map(str.lower, names)):
        raise ValueError("a header is one that only the client itself may set")
    if not all(map(_NAME.fullmatch, names)):
        raise ValueError("a header has characters that headers cannot have")


_known_names = lru_cache(maxsize=NAMES_REMEMBERED_MAX)(_check_names)


def _lines(headers: Mapping[str, str]) -> bytes:
    lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()]).encode()
    ends = lines.count(_CR), lines.count(_LF)
    if ends != (len(headers), len(headers)) or lines.translate(None, _TEXT):
        raise ValueError("a header has characters that headers cannot have")
    return lines
