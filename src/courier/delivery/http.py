"""The transport over HTTP/1.1: a client of our own, since a push is little else than its request.

A connection has one request at a time, and stays open for the next one to the same endpoint.
"""

import asyncio
import re
import socket
import ssl
import time
from base64 import b64encode
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple, cast
from urllib.parse import unquote_to_bytes, urlsplit

import aiohappyeyeballs
import httptools

from courier.delivery.targets import Targets
from courier.delivery.transport import USER_AGENT, Push, PushResult

ANSWER_BYTES_MAX = 64 << 10
# Of one answer, all that is not its body: heads, also those that only announce another, chunk
# sizes and extensions, trailers.
FRAMING_BYTES_MAX = 64 << 10
IDLE_S_MAX = 30.0
CLOSE_S_MAX = 1.0
# A host's next address is tried beside the one before if that does not answer so soon.
NEXT_ADDRESS_S = 0.25
# A longer body costs more to copy behind its head than to be sent as a second part.
JOINED_BYTES_MAX = 64 << 10
ERROR_CHARACTERS_MAX = 500

_FIELDS = re.compile(rb"(?:[!#$%&'*+.^_`|~0-9A-Za-z-]+: [^\x00-\x08\x0a-\x1f\x7f]*\r\n)*")
_TARGET = re.compile(r"[!-~]+")
_CLOSED = "the connection was closed before a whole answer came"
_NO_BODY = (204, 304)
_OURS = ("host", "content-length", "transfer-encoding", "connection")
_DEFAULTS = [
    ("user-agent", USER_AGENT),
    ("accept", "*/*"),
    ("accept-encoding", "identity"),  # nothing here unpacks an answer
]

# An entry of `getaddrinfo`.
Place = tuple[int, int, int, str, tuple[Any, ...]]


class BadAnswer(Exception):
    """What came is no whole answer; the message says why."""


class Endpoint(NamedTuple):
    encrypted: bool
    host: str
    port: int


class ReceiverAnswer(NamedTuple):
    status: int
    body: bytes
    retry_after: str


class HttpTransport:
    """Keeps connections open between pushes. Follows no redirect, keeps no cookie."""

    def __init__(self, targets: Targets, *, connections_max: int) -> None:
        self._targets = targets
        self._guarded = _Pool(targets, connections_max)
        self._trusted = _Pool(None, connections_max)
        # Its own, or listeners that are well would seem down because others do not answer.
        self._probing = _Pool(targets, connections_max)

    async def send(self, push: Push, *, timeout_ms: int) -> PushResult:
        pool = self._trusted if push.trusted else self._guarded
        return await self._request(pool, push.url, push.headers, push.body, timeout_ms)

    async def get(self, url: str, *, timeout_ms: int) -> PushResult:
        return await self._request(self._probing, url, {}, None, timeout_ms)

    async def _request(
        self,
        pool: "_Pool",
        url: str,
        headers: Mapping[str, str],
        body: bytes | None,
        timeout_ms: int,
    ) -> PushResult:
        began_s = time.perf_counter()
        status, error, content, after = 0, "", b"", ""
        try:
            if pool is not self._trusted:
                self._targets.check_url(url)
            endpoint, head = _request_head(url, headers, body)
            async with asyncio.timeout(timeout_ms / 1000):
                status, content, after = await pool.exchange(endpoint, head, body or b"")
        except TimeoutError:
            error = f"no whole answer within {timeout_ms} ms"
        except (BadAnswer, OSError, ValueError) as cause:
            error = (str(cause) or type(cause).__name__)[:ERROR_CHARACTERS_MAX]
        duration_ms = round((time.perf_counter() - began_s) * 1000)
        return PushResult(status, duration_ms, error, content, after)

    async def close(self) -> None:
        for pool in (self._guarded, self._trusted, self._probing):
            await pool.close()


class _Pool:
    """Connections to the addresses that `targets` allows, or to any without it."""

    def __init__(self, targets: Targets | None, connections_max: int) -> None:
        self._targets = targets
        self._connections_max = connections_max
        self._room = asyncio.Semaphore(connections_max)
        self._used = 0
        self._links: set[_Link] = set()
        self._free: dict[Endpoint, list[_Link]] = {}
        self._idle_s: dict[_Link, float] = {}  # since when, the longest first
        self._sweep: asyncio.TimerHandle | None = None
        self._trust: ssl.SSLContext | None = None

    async def exchange(self, endpoint: Endpoint, head: bytes, body: bytes) -> ReceiverAnswer:
        async with self._room:
            self._used += 1
            link = None
            try:
                link = self._take(endpoint) or await self._open(endpoint)
                return await link.exchange(head, body)
            finally:
                self._used -= 1
                if link is not None:
                    self._give_back(link)

    async def close(self) -> None:
        """End every connection. A farewell (TLS) would need a loop that is about to end."""
        if self._sweep is not None:
            self._sweep.cancel()
        for link in self._links:
            link.abort()
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S_MAX):
                while self._links:
                    await asyncio.sleep(0)

    def _gone(self, link: "_Link") -> None:
        """It was closed, perhaps while it was idle."""
        self._links.discard(link)
        self._reserve(link)

    def _reserve(self, link: "_Link") -> None:
        """No longer hand it out, if it was idle."""
        if self._idle_s.pop(link, None) is None:
            return
        links = self._free[link.endpoint]
        links.remove(link)
        if not links:
            del self._free[link.endpoint]

    def _take(self, endpoint: Endpoint) -> "_Link | None":
        while links := self._free.get(endpoint):
            link = links[-1]
            self._reserve(link)
            if link.reusable:
                return link
            link.close()
        return None

    def _give_back(self, link: "_Link") -> None:
        if not link.reusable:
            link.close()
            return
        loop = asyncio.get_running_loop()
        self._free.setdefault(link.endpoint, []).append(link)
        self._idle_s[link] = loop.time()
        if self._sweep is None:
            self._sweep = loop.call_later(IDLE_S_MAX, self._close_old)

    def _close_old(self) -> None:
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        self._sweep = None
        for link, since_s in list(self._idle_s.items()):
            if now_s - since_s < IDLE_S_MAX:
                self._sweep = loop.call_at(since_s + IDLE_S_MAX, self._close_old)
                break
            self._drop(link)

    def _drop(self, link: "_Link") -> None:
        self._reserve(link)
        link.close()

    async def _open(self, endpoint: Endpoint) -> "_Link":
        while self._idle_s and len(self._idle_s) + self._used > self._connections_max:
            self._drop(next(iter(self._idle_s)))
        loop = asyncio.get_running_loop()
        raw = await aiohappyeyeballs.start_connection(
            await self._find(endpoint),
            happy_eyeballs_delay=NEXT_ADDRESS_S,
            interleave=1,
            socket_factory=None if self._targets is None else self._targets.open_socket,
        )
        try:
            _, link = await loop.create_connection(
                lambda: _Link(endpoint, self._gone),
                sock=raw,
                ssl=await self._trusting() if endpoint.encrypted else None,
                server_hostname=endpoint.host if endpoint.encrypted else None,
            )
        except BaseException:
            raw.close()
            raise
        if not link.closing:
            self._links.add(link)
        return link

    async def _find(self, endpoint: Endpoint) -> list[Place]:
        host, port = endpoint.host, endpoint.port
        if self._targets is None:
            loop = asyncio.get_running_loop()
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            return cast(list[Place], found)
        return [
            (
                each.family,
                socket.SOCK_STREAM,
                each.protocol,
                "",
                (each.address, port) + ((0, 0) if each.family == socket.AF_INET6 else ()),
            )
            for each in await self._targets.resolve(host, port, socket.AF_UNSPEC)
        ]

    async def _trusting(self) -> ssl.SSLContext:
        if self._trust is None:
            # In a thread: it reads all the certificates of the system.
            self._trust = await asyncio.to_thread(ssl.create_default_context)
        return self._trust


class _Link(asyncio.Protocol):
    """One connection to a receiver, and the answer that is awaited on it."""

    def __init__(self, endpoint: Endpoint, lost: Callable[["_Link"], None]) -> None:
        self.endpoint = endpoint
        self._lost = lost
        self._parser = httptools.HttpResponseParser(self)
        self._answer: asyncio.Future[ReceiverAnswer] | None = None
        self._again = True
        self._begin()

    async def exchange(self, head: bytes, body: bytes) -> ReceiverAnswer:
        """Raises BadAnswer, or OSError when the connection ends."""
        if self._transport.is_closing():
            raise BadAnswer(_CLOSED)
        self._begin()
        self._framing = 0
        self._answer = asyncio.get_running_loop().create_future()
        if len(body) > JOINED_BYTES_MAX:
            self._transport.writelines((head, body))
        else:
            self._transport.write(head + body)
        try:
            return await self._answer
        except BaseException:
            self._spoil()
            raise
        finally:
            self._answer = None

    @property
    def reusable(self) -> bool:
        """Whether the next answer would be that to the next request."""
        transport = self._transport
        closing = transport.is_closing()
        return self._again and not closing and transport.get_write_buffer_size() == 0

    def close(self) -> None:
        self._transport.close() if self._again else self._transport.abort()

    def abort(self) -> None:
        self._transport.abort()

    @property
    def closing(self) -> bool:
        return self._transport.is_closing()

    def _begin(self) -> None:
        self._status = 0
        self._whole = False
        self._bounded = False  # the answer says where it ends
        self._retry_after = ""
        self._parts: list[bytes] = []
        self._size = 0

    def _spoil(self) -> None:
        self._again = False
        self._transport.abort()

    def _settle(self) -> None:
        if self._answer is not None and not self._answer.done():
            body = b"".join(self._parts)[:ANSWER_BYTES_MAX]
            self._answer.set_result(ReceiverAnswer(self._status, body, self._retry_after))

    def _fail(self, error: Exception) -> None:
        self._again = False
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)

    # --- called by the transport ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is None and self._status and not self._bounded:
            self._settle()
        self._fail(exc or BadAnswer(_CLOSED))
        self._lost(self)
        # The parser leads back here; without it both are freed at once.
        del self._parser

    def data_received(self, data: bytes) -> None:
        if self._answer is None or self._answer.done():
            self._spoil()  # nobody asked, and it would be taken for the next answer
            return
        self._framing += len(data)
        error = ""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            error = "the answer is an upgrade, which was not asked for"
        except httptools.HttpParserError as cause:
            error = f"the answer is not valid HTTP: {cause}"
        if self._framing > FRAMING_BYTES_MAX:
            self._fail(BadAnswer(f"the answer has more than {FRAMING_BYTES_MAX} bytes of headers"))
        elif self._whole:
            self._again = self._again and not error
            self._settle()
        elif error:
            self._fail(BadAnswer(error))

    # --- called by the parser ---

    def on_message_begin(self) -> None:
        if self._whole:
            self._again = False  # more than was promised

    def on_header(self, name: bytes, value: bytes) -> None:
        match name.lower():
            case b"retry-after":
                self._retry_after = value.decode("latin-1")
            case b"content-length" | b"transfer-encoding":
                self._bounded = True

    def on_headers_complete(self) -> None:
        if not self._whole:
            self._status = self._parser.get_status_code()
            self._bounded |= self._status in _NO_BODY

    def on_body(self, body: bytes) -> None:
        if self._whole:
            return
        self._framing -= len(body)
        self._parts.append(body)
        self._size += len(body)
        if self._size >= ANSWER_BYTES_MAX:
            self._again, self._whole = False, True  # what is over the limit is not read

    def on_message_complete(self) -> None:
        if self._whole:
            return
        if self._status < 100 or self._status == 101:
            self._fail(BadAnswer(f"the answer has status {self._status}"))
        elif self._status < 200:
            self._begin()  # it announces another
        else:
            self._again, self._whole = self._parser.should_keep_alive(), True


def _request_head(
    url: str, headers: Mapping[str, str], body: bytes | None
) -> tuple[Endpoint, bytes]:
    """Where a request goes, and all of it before the body. Raises ValueError."""
    parts = urlsplit(url)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    place = parts.netloc.rpartition("@")[2]
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("the URL is not an absolute http:// or https:// URL")
    if not _TARGET.fullmatch(target) or not _TARGET.fullmatch(place):
        raise ValueError("the URL has characters that must be percent-encoded")
    given = {name.lower() for name in headers}
    if not given.isdisjoint(_OURS):
        raise ValueError("a header is one that only the client itself may set")
    fields = [("host", place)]
    if body is not None:
        fields.append(("content-length", str(len(body))))
    if "@" in parts.netloc:
        user = unquote_to_bytes(f"{parts.username or ''}:{parts.password or ''}")
        fields.append(("authorization", f"Basic {b64encode(user).decode()}"))
    fields += [each for each in _DEFAULTS if each[0] not in given]
    fields += headers.items()
    lines = "".join([f"{name}: {value}\r\n" for name, value in fields]).encode()
    if lines.count(b"\n") != len(fields) or not _FIELDS.fullmatch(lines):
        raise ValueError("a header has characters that headers cannot have")
    method = "GET" if body is None else "POST"
    encrypted = parts.scheme == "https"
    endpoint = Endpoint(encrypted, parts.hostname, parts.port or (443 if encrypted else 80))
    return endpoint, b"%s %s HTTP/1.1\r\n%s\r\n" % (method.encode(), target.encode(), lines)
