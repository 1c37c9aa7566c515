"""Running the ASGI application: uvicorn, with limits on slow and oversized requests, and a drain.

uvicorn waits for ever for the rest of a request. Here a connection notes when a request began,
and one watch over all connections cuts those that take too long; a request that behaves pays
nothing for it.
"""

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from courier.web import CALLER, WHOLE_ANSWER, App

WATCH_EVERY_S = 0.25
# How many connections are looked at before others get their turn.
WATCHED_AT_ONCE = 50
# A longer body costs more to copy behind its head than to be sent as a second part.
JOINED_BYTES_MAX = 64 << 10


def _refusal(status: bytes, sentence: bytes) -> bytes:
    """The answer to what is no request yet, and so speaks to no dialect."""
    body = (
        b'{"success":false,"errors":[{"code":10026,"message":"%s"}],"messages":[],"result":null}'
        % sentence
    )
    return (
        b"HTTP/1.1 %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\n"
        b"connection: close\r\n\r\n%s" % (status, len(body), body)
    )


def protocol(
    *,
    connections_max: int,
    header_bytes_max: int,
    header_wait_s: float,
    request_wait_s: float,
    idle_wait_s: float,
) -> type[HttpToolsProtocol]:
    """The connection class for these limits."""

    class Connection(HttpToolsProtocol):
        began_s: float | None = None
        idle_s = 0.0
        in_head = False
        head_bytes = 0
        part_bytes = 0
        running: Any = None
        left = False
        on_gone: Callable[[], None] | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self.idle_s = self.loop.time()
            if len(self.connections) > connections_max:
                sentence = b"there are %d connections already" % connections_max
                self.refuse(b"503 Service Unavailable", sentence)

        def connection_lost(self, exc: Exception | None) -> None:
            # uvicorn tells only the newest of several pipelined requests.
            self.pipeline.clear()
            if self.running is not None and not self.running.response_complete:
                self.running.disconnected = True
                self.running.message_event.set()
            super().connection_lost(exc)
            self.leave()
            # Each of these leads back to the connection: without them it goes at once, and not
            # when the collector comes by.
            self.running = self.cycle = self.scope = self.parser = None  # type: ignore[assignment]

        def eof_received(self) -> None:
            # From here on nothing is sent any more, though the connection is lost only later.
            self.leave()

        @property
        def gone(self) -> bool:
            return self.left or self.transport.is_closing()

        def leave(self) -> None:
            self.left = True
            if self.on_gone is not None:
                self.on_gone()

        def _start_asgi_task(self, cycle: Any, app: Any) -> None:
            self.running = cycle
            super()._start_asgi_task(cycle, app)

        def data_received(self, data: bytes) -> None:
            self.part_bytes = len(data)
            super().data_received(data)
            if self.began_s is None and (self.cycle is None or self.cycle.response_complete):
                # Nothing but the empty lines that may stand before a request.
                self.began_s = self.loop.time()
                self.in_head = True
            if self.in_head:
                self.head_bytes += self.part_bytes
                if self.head_bytes > header_bytes_max:
                    self.refuse_head()

        def on_message_begin(self) -> None:
            self.began_s = self.loop.time()
            self.in_head = True
            self.head_bytes = 0
            super().on_message_begin()
            extensions: dict[str, Any] = {WHOLE_ANSWER: self.answer, CALLER: self}
            self.scope["extensions"] = extensions

        def on_headers_complete(self) -> None:
            self.in_head = False
            if self.head_bytes + self.part_bytes > header_bytes_max:
                size = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
                if size > header_bytes_max:
                    self.refuse_head()
                    return
            super().on_headers_complete()

        def on_body(self, body: bytes) -> None:
            if self.cycle is not None:
                super().on_body(body)

        def on_message_complete(self) -> None:
            self.began_s = None
            if self.cycle is not None:
                super().on_message_complete()

        async def answer(self, head: bytes, body: bytes | memoryview, close: bool) -> None:
            """Send a whole answer in one write; two would be two packets and two system calls.

            `head` is the status line and headers, without the line that ends them.
            """
            cycle = self.running
            if cycle is not None and self.flow.write_paused:
                await self.flow.drain()
            if cycle is None or cycle.disconnected:
                return
            cycle.response_started = cycle.response_complete = True
            cycle.keep_alive = cycle.keep_alive and not close
            end = b"\r\n" if cycle.keep_alive else b"connection: close\r\n\r\n"
            if len(body) > JOINED_BYTES_MAX:
                self.transport.writelines((head + end, body))
            else:
                self.transport.write(b"".join((head, end, body)))
            cycle.message_event.set()
            if not cycle.keep_alive:
                self.transport.close()
            self.on_response_complete()

        def on_response_complete(self) -> None:
            self.server_state.total_requests += 1
            if self.transport.is_closing():
                return
            self.flow.resume_reading()
            if self.pipeline:
                self._start_asgi_task(*self.pipeline.pop())
            else:
                self.idle_s = self.loop.time()

        def send_400_response(self, msg: str) -> None:
            """What came is not HTTP. Good requests before it are answered, nothing after them."""
            last = self.cycle
            if last is not None and last.more_body and self.pipeline:
                self.pipeline.popleft()  # the request that is broken, and has not begun
                last = self.pipeline[0][0] if self.pipeline else self.running
            if last is None or last.more_body or last.response_complete:
                self.refuse(b"400 Bad Request", b"this is not a valid HTTP request")
                return
            last.keep_alive = False
            self.began_s = None
            self.flow.pause_reading()

        def refuse_head(self) -> None:
            sentence = b"request line and headers are over %d bytes" % header_bytes_max
            self.refuse(b"431 Request Header Fields Too Large", sentence)

        def refuse(self, status: bytes, sentence: bytes) -> None:
            self.began_s = None
            if self.transport.is_closing():
                return
            if self.cycle is None or not self.cycle.response_started:
                self.transport.write(_refusal(status, sentence))
            self.transport.close()

        def cut_if_slow(self, now_s: float) -> None:
            """End the connection when its request takes too long to arrive, or does not come."""
            if self.began_s is not None:
                allowed_s = header_wait_s if self.in_head else request_wait_s
                if now_s - self.began_s > allowed_s:
                    sentence = b"the request did not arrive within %d ms" % (allowed_s * 1000)
                    self.refuse(b"408 Request Timeout", sentence)
            elif self.running is not None and not self.running.response_complete:
                return  # it waits for us
            elif now_s - self.idle_s > idle_wait_s:
                self.transport.close()

    return Connection


class CannotListen(Exception):
    """The address is taken, or is none of this machine's."""


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, on_exit: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_exit = on_exit

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._on_exit()
        super().handle_exit(sig, frame)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """uvicorn dies of the signal that ended it; a drained server has nothing to die of."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        yield


def listen(host: str, port: int) -> socket.socket:
    """A listening socket, so that its port is known before anything is served."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=4096)
    except OSError as error:
        raise CannotListen(f"cannot listen on {host}:{port}: {error.strerror}") from error


async def run(
    app: App,
    listener: socket.socket,
    *,
    connection: type[HttpToolsProtocol],
    drain_wait_ms_max: int,
) -> None:
    """Serve until SIGTERM or SIGINT, then let running requests finish."""
    config = uvicorn.Config(
        app,
        loop="none",
        http=connection,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=max(1, drain_wait_ms_max // 1000),
    )
    # Its own lines about starting and stopping say less than ours do.
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    server = _Server(config, app.drain)
    watch = asyncio.create_task(_watch(server))
    try:
        await server.serve(sockets=[listener])
    finally:
        watch.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watch


async def _watch(server: _Server) -> None:
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(WATCH_EVERY_S)
        connections = list(server.server_state.connections)
        for start in range(0, len(connections), WATCHED_AT_ONCE):
            now_s = loop.time()
            for connection in connections[start : start + WATCHED_AT_ONCE]:
                connection.cut_if_slow(now_s)  # type: ignore[union-attr]
            await asyncio.sleep(0)
