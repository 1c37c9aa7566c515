"""A receiver of pushes: a real HTTP server that records what comes, and behaves as it is told.

It runs in a thread of its own. Nothing between it and the socket: what is recorded are the bytes
that came, and what it answers can be anything, also what no HTTP library would send.
"""

import asyncio
import socket
import ssl
import struct
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

ARRIVE_S_MAX = 20.0
REQUEST_BYTES_MAX = 4 << 20
HEAD_BYTES_MAX = 64 << 10
START_S_MAX = 10.0
# How long a request that is never answered is held.
HANG_S_MAX = 120.0
MANY_BYTES = 2 << 20
GARBAGE = b"\x16\x03\x01 this is not HTTP \x00\xff\r\n\r\n"


@dataclass(eq=False)
class Received:
    """One request, as it came. `answered_s` is when all of the answer was on its way.

    `time_ms` is the wall clock's word on `at_s`.
    """

    head: bytes
    body: bytes
    at_s: float = 0.0
    time_ms: int = 0
    answered_s: float | None = None
    gone: bool = False

    @property
    def method(self) -> str:
        return self.head.split(b" ", 1)[0].decode()

    @property
    def path(self) -> str:
        return self.head.split(b" ", 2)[1].decode()

    @property
    def fields(self) -> list[tuple[str, str]]:
        """Names in lower case and values, in their order, repeated ones too."""
        lines = self.head.decode("latin-1").split("\r\n")[1:]
        pairs = [line.partition(":") for line in lines if line]
        return [(name.lower(), value.strip()) for name, _, value in pairs]

    @property
    def headers(self) -> dict[str, str]:
        """Fails when a header came twice."""
        found = dict(self.fields)
        assert len(found) == len(self.fields), f"a header came twice: {self.fields}"
        return found


class Peer:
    """The other side of a request that is being answered."""

    def __init__(
        self, request: Received, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.request = request
        self.reader = reader
        self.writer = writer

    async def write(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def close(self) -> None:
        self.writer.close()

    async def reset(self) -> None:
        """End the connection so that the other side reads an error, not an end."""
        raw: socket.socket = self.writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


# What a receiver does with a request.
Answer = Callable[[Peer], Awaitable[None]]


def status(code: int, body: bytes = b"", headers: Mapping[str, str] | None = None) -> Answer:
    async def answer(peer: Peer) -> None:
        await peer.write(_head(code, len(body), headers) + body)

    return answer


def retry_after(value: str, code: int = 503) -> Answer:
    return status(code, headers={"Retry-After": value})


def redirect(to: str, code: int = 307) -> Answer:
    return status(code, headers={"Location": to})


def large(size: int = MANY_BYTES) -> Answer:
    return status(200, b"x" * size)


async def hang(peer: Peer) -> None:
    """Accept, and say nothing, until the other side has had enough."""
    async with asyncio.timeout(HANG_S_MAX):
        while await peer.reader.read(HEAD_BYTES_MAX):
            pass
    await peer.close()


def drip(*, gap_s: float, body: bytes = b"ok") -> Answer:
    """A good answer, a byte at a time."""

    async def answer(peer: Peer) -> None:
        for byte in _head(200, len(body), None) + body:
            await peer.write(bytes([byte]))
            await asyncio.sleep(gap_s)

    return answer


def late(seconds: float, then: Answer) -> Answer:
    async def answer(peer: Peer) -> None:
        await asyncio.sleep(seconds)
        await then(peer)

    return answer


async def reset(peer: Peer) -> None:
    await peer.reset()


async def close(peer: Peer) -> None:
    """End the connection without a word."""
    await peer.close()


async def too_short(peer: Peer) -> None:
    """Promise more than comes."""
    await peer.write(_head(200, 100, None) + b"only this")
    await peer.close()


async def half_then_reset(peer: Peer) -> None:
    await peer.write(_head(200, 100, None) + b"only this")
    await peer.reset()


async def too_long(peer: Peer) -> None:
    """More comes than was promised: another answer, to a request that nobody has made yet."""
    await peer.write(_head(200, 2, None) + b"ok" + _head(200, 4, None) + b"more")


async def cut_chunk(peer: Peer) -> None:
    """The answer comes in chunks, and the last one never does."""
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    await peer.write(head + b"5\r\nhello\r\n")
    await peer.close()


async def until_close(peer: Peer) -> None:
    """A good answer whose end is the end of the connection."""
    await peer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nok")
    await peer.close()


async def garbage(peer: Peer) -> None:
    await peer.write(GARBAGE)
    await peer.close()


async def endless_head(peer: Peer) -> None:
    """Headers without end, up to a few megabytes."""
    await peer.write(b"HTTP/1.1 200 OK\r\n")
    for number in range(MANY_BYTES // 32):
        await peer.write(b"X-Header-%08d: %s\r\n" % (number, b"y" * 10))
    await peer.close()


def _head(code: int, length: int, headers: Mapping[str, str] | None) -> bytes:
    lines = [f"HTTP/1.1 {code} Said so", f"Content-Length: {length}"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    return "\r\n".join([*lines, "", ""]).encode()


OK = status(200)


class Hold:
    """Requests that are not answered before somebody lets them go, oldest first."""

    def __init__(self, loop: asyncio.AbstractEventLoop, then: Answer) -> None:
        self._loop = loop
        self._then = then
        self._free = asyncio.Semaphore(0)

    async def __call__(self, peer: Peer) -> None:
        await self._free.acquire()
        await self._then(peer)

    def let_go(self, count: int = 1) -> None:
        def release() -> None:
            for _ in range(count):
                self._free.release()

        self._loop.call_soon_threadsafe(release)


@dataclass
class _Place:
    """One path: what comes there, and what is answered next. The last answer is for all others."""

    answers: list[Answer] = field(default_factory=lambda: [OK])
    received: list[Received] = field(default_factory=list)
    in_flight: int = 0
    peak: int = 0


class Receiver:
    """Listens from `start` to `stop`; a path that nobody spoke of answers 200."""

    def __init__(
        self, *, port: int = 0, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None
    ) -> None:
        self.port = port
        self._host = host
        self._tls = tls
        self.connections = 0
        self._places: dict[str, _Place] = {}
        self._changed = threading.Condition()
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []
        self._thread = threading.Thread(target=self._run, name="receiver", daemon=True)
        self._ready = threading.Event()
        self._over = asyncio.Event()

    def start(self) -> Self:
        self._thread.start()
        assert self._ready.wait(START_S_MAX), "the receiver does not start"
        return self

    def stop(self) -> None:
        """Refuse connections from now on, and let go of everybody."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._over.set)
            self._thread.join(START_S_MAX)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    # --- telling it what to do ---

    def url(self, path: str) -> str:
        return f"http://{self._host}:{self.port}{path}"

    def on(self, path: str, *answers: Answer) -> None:
        """Answer the next requests so, one after the other; the last for all that follow."""
        with self._changed:
            self._place(path).answers = list(answers)

    def hold(self, path: str, then: Answer = OK) -> Hold:
        held = Hold(self._loop, then)
        self.on(path, held)
        return held

    # --- asking it what came ---

    def received(self, path: str) -> list[Received]:
        """In the order of arrival."""
        with self._changed:
            return list(self._place(path).received)

    def bodies(self, path: str) -> list[str]:
        return [each.body.decode() for each in self.received(path)]

    def in_flight(self, path: str) -> int:
        """Requests that are not answered yet."""
        with self._changed:
            return self._place(path).in_flight

    def peak(self, path: str) -> int:
        """The most that were in flight at a time."""
        with self._changed:
            return self._place(path).peak

    def wait(self, path: str, count: int, *, seconds: float = ARRIVE_S_MAX) -> list[Received]:
        """What came, once it is at least so many."""
        return self.wait_until(path, lambda received: len(received) >= count, seconds=seconds)

    def wait_until(
        self,
        path: str,
        true: Callable[[list[Received]], bool],
        *,
        seconds: float = ARRIVE_S_MAX,
    ) -> list[Received]:
        with self._changed:
            place = self._place(path)
            came = self._changed.wait_for(lambda: true(place.received), seconds)
            received = list(place.received)
        assert came, f"after {seconds:.0f} s only {len(received)} requests came to {path}"
        return received

    def wait_for_open(self, count: int) -> None:
        """Until no more connections than that are open."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self._tasks) <= count, ARRIVE_S_MAX)

    # --- in its thread ---

    def _place(self, path: str) -> _Place:
        return self._places.setdefault(path, _Place())

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        server = await asyncio.start_server(
            self._connected,
            self._host,
            self.port,
            limit=HEAD_BYTES_MAX,
            backlog=1_000,
            ssl=self._tls,
        )
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._over.wait()
        # Nobody else is let in, and who was let in at the last moment has a task by then. A server
        # that is closed first would drop such a connection on the floor.
        for listening in server.sockets:
            self._loop.remove_reader(listening.fileno())
        await _turns()
        server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in self._writers:
            writer.transport.abort()  # also where the other side never read the answer
        await _turns()  # connections end later than they are closed

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.append(writer)
        self.connections += 1
        try:
            while not writer.is_closing():
                head = await reader.readuntil(b"\r\n\r\n")
                request = Received(head.removesuffix(b"\r\n\r\n"), b"")
                length = int(dict(request.fields).get("content-length", "0"))
                assert length <= REQUEST_BYTES_MAX
                request.body = await reader.readexactly(length)
                await self._answer(Peer(request, reader, writer))
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the other side is gone, or it is over
        finally:
            with self._changed:
                self._tasks.discard(task)
                self._changed.notify_all()
            with suppress(RuntimeError):
                writer.close()

    async def _answer(self, peer: Peer) -> None:
        request = peer.request
        with self._changed:
            place = self._place(request.path)
            request.at_s = time.perf_counter()
            request.time_ms = time.time_ns() // 1_000_000
            place.received.append(request)
            place.in_flight += 1
            place.peak = max(place.peak, place.in_flight)
            answer = place.answers.pop(0) if len(place.answers) > 1 else place.answers[0]
            self._changed.notify_all()
        try:
            await answer(peer)
            request.answered_s = time.perf_counter()
        finally:
            with self._changed:
                request.gone = request.answered_s is None
                place.in_flight -= 1
                self._changed.notify_all()


async def _turns() -> None:
    """Let what is under way in the event loop come to its end."""
    for _ in range(10):
        await asyncio.sleep(0)


def closed_port() -> int:
    """A port where nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
