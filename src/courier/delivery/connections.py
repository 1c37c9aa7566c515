"""Connections to receivers: HTTP/1.1, one request at a time on each, kept open for the next one."""

import asyncio
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple, Protocol, cast

import aiohappyeyeballs
import httptools

from courier.delivery.targets import Targets

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

_CLOSED = "the connection was closed before a whole answer came"
_NO_BODY = (204, 304)

# An entry of `getaddrinfo`.
Place = tuple[int, int, int, str, tuple[Any, ...]]


class BadAnswer(Exception):
    """What came is no whole answer; the message says why."""


class Endpoint(NamedTuple):
    encrypted: bool
    host: str
    port: int


class Asking(Protocol):
    """A request. It hears once what came of it, unless it has left its pool before."""

    endpoint: Endpoint
    head: bytes
    body: bytes

    def answered(self, status: int, body: bytes, retry_after: str) -> None: ...

    def failed(self, error: Exception) -> None: ...


class Pool:
    """Connections to the addresses that `targets` allows, or to any without it."""

    def __init__(self, targets: Targets | None, connections_max: int) -> None:
        self._targets = targets
        self._connections_max = connections_max
        # What each request is on its way with: a connection, or the task that opens one.
        self._used: dict[Asking, _Link | asyncio.Task[None]] = {}
        self._waiting: dict[Asking, None] = {}
        self._links: set[_Link] = set()
        self._free: dict[Endpoint, list[_Link]] = {}
        self._idle_s: dict[_Link, float] = {}  # since when, the longest first
        self._sweep: asyncio.TimerHandle | None = None
        self._trust: ssl.SSLContext | None = None

    def start(self, asking: Asking) -> None:
        """Send it, as soon as there is room for one more."""
        if len(self._used) >= self._connections_max:
            self._waiting[asking] = None
        elif link := self._take(asking.endpoint):
            self._used[asking] = link
            link.send(asking)
        else:
            self._used[asking] = asyncio.create_task(self._open_for(asking))

    def leave(self, asking: Asking) -> None:
        """The request is over, or given up, which also ends its connection."""
        used = self._used.pop(asking, None)
        if used is None:
            self._waiting.pop(asking, None)
            return
        if isinstance(used, asyncio.Task):
            used.cancel()
        else:
            used.leave(asking)
            self._give_back(used)
        if self._waiting:
            first = next(iter(self._waiting))
            del self._waiting[first]
            self.start(first)

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

    async def _open_for(self, asking: Asking) -> None:
        try:
            link = await self._open(asking.endpoint)
        except Exception as error:
            asking.failed(error)
        else:
            self._used[asking] = link
            link.send(asking)

    async def _open(self, endpoint: Endpoint) -> "_Link":
        while self._idle_s and len(self._idle_s) + len(self._used) > self._connections_max:
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
    """One connection to a receiver, and the request that is to be answered on it."""

    def __init__(self, endpoint: Endpoint, lost: Callable[["_Link"], None]) -> None:
        self.endpoint = endpoint
        self._lost = lost
        self._parser = httptools.HttpResponseParser(self)
        self._asking: Asking | None = None
        self._again = True
        self._begin()

    def send(self, asking: Asking) -> None:
        self._begin()
        self._framing = 0
        self._asking = asking
        head, body = asking.head, asking.body
        if self._transport.is_closing():
            asyncio.get_running_loop().call_soon(self._fail, BadAnswer(_CLOSED))
        elif len(body) > JOINED_BYTES_MAX:
            self._transport.writelines((head, body))
        else:
            self._transport.write(head + body)

    def leave(self, asking: Asking) -> None:
        """Whatever is still to come of this request is for nobody."""
        if self._asking is asking:
            self._asking = None
            self.abort()

    @property
    def closing(self) -> bool:
        return self._transport.is_closing()

    @property
    def reusable(self) -> bool:
        """Whether the next answer would be that to the next request."""
        transport = self._transport
        return self._again and not transport.is_closing() and not transport.get_write_buffer_size()

    def close(self) -> None:
        # Who answered before it had read all may never read the rest, which would stay in memory.
        unsent = self._transport.get_write_buffer_size()
        self._transport.close() if self._again and not unsent else self._transport.abort()

    def abort(self) -> None:
        self._again = False
        self._transport.abort()

    def _begin(self) -> None:
        self._status = 0
        self._whole = False
        self._bounded = False  # the answer says where it ends
        self._retry_after = ""
        self._body = bytearray()  # not a list of parts, which may be very small

    def _settle(self) -> None:
        if self._asking is not None:
            asking, self._asking = self._asking, None
            body = bytes(self._body[:ANSWER_BYTES_MAX])
            asking.answered(self._status, body, self._retry_after)

    def _fail(self, error: Exception) -> None:
        self._again = False
        if self._asking is not None:
            asking, self._asking = self._asking, None
            asking.failed(error)

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
        if self._asking is None:
            self.abort()  # nobody asked, and it would be taken for the next answer
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
        self._body += body
        if len(self._body) >= ANSWER_BYTES_MAX:
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
