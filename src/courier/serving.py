"""Running the server: listening, watching over all connections, and the drain."""

import asyncio
import contextlib
import logging
import signal
import socket

from courier.connection import Connection
from courier.proxies import Proxies
from courier.tls import LOOK_EVERY_S, Certificate
from courier.traffic import Traffic, TrafficLimits
from courier.web import App

WATCH_EVERY_S = 0.25
# How many connections are looked at before others get their turn.
WATCHED_AT_ONCE = 50
BACKLOG = 4_096
# When no more files can be opened, wait for some to be closed.
ACCEPT_AGAIN_S = 0.1
DRAIN_LOOK_S = 0.01

log = logging.getLogger("courier.serving")


class CannotListen(Exception):
    """The address is taken, or is none of this machine's."""


def listen(host: str, port: int) -> socket.socket:
    """A listening socket, so that its port is known before anything is served."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise CannotListen(f"cannot listen on {host}:{port}: {error.strerror}") from error


class Server:
    def __init__(
        self,
        app: App,
        limits: TrafficLimits,
        *,
        proxies: Proxies,
        certificate: Certificate | None,
        drain_wait_ms_max: int,
    ) -> None:
        self._app = app
        self._traffic = Traffic(app, limits, proxies)
        self._certificate = certificate
        self._drain_wait_ms_max = drain_wait_ms_max
        self._loop = asyncio.get_running_loop()
        self._handshakes: dict[socket.socket, None] = {}  # under way, the longest first

    async def run(self, listener: socket.socket) -> None:
        """Serve until SIGTERM or SIGINT, then let running requests finish."""
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, stop.set)
        watches = [asyncio.create_task(self._watch())]
        if self._certificate is None:
            traffic = self._traffic
            accepting = await self._loop.create_server(
                lambda: Connection(traffic), sock=listener, backlog=BACKLOG
            )
            await stop.wait()
            self._app.drain()
            accepting.close()
        else:
            self._loop.add_signal_handler(signal.SIGHUP, self._certificate.reload)
            watches.append(asyncio.create_task(self._watch_certificate(self._certificate)))
            accepting_tls = asyncio.create_task(self._accept(listener, self._certificate))
            await stop.wait()
            self._app.drain()
            accepting_tls.cancel()
            listener.close()
        await self._drain()
        for watch in watches:
            watch.cancel()
        await asyncio.gather(*watches, return_exceptions=True)

    async def _drain(self) -> None:
        traffic = self._traffic
        traffic.stopping = True
        traffic.draining.set()
        for connection in list(traffic.connections):
            connection.close_if_idle()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._drain_wait_ms_max / 1000):
                while traffic.busy:
                    await asyncio.sleep(DRAIN_LOOK_S)
        if traffic.busy:
            log.warning("requests_cut_off", extra={"connections": len(traffic.connections)})
        for connection in list(traffic.connections):
            connection.abort()

    async def _accept(self, listener: socket.socket, certificate: Certificate) -> None:
        """Take connections that begin with a handshake, which are counted from the first byte."""
        traffic = self._traffic
        listener.setblocking(False)
        while True:
            try:
                accepted, peer = await self._loop.sock_accept(listener)
            except OSError as error:
                log.warning("cannot_accept", extra={"reason": error.strerror})
                await asyncio.sleep(ACCEPT_AGAIN_S)
                continue
            if traffic.full(str(peer[0]), beside=len(self._handshakes)):
                accepted.close()
                continue
            if len(self._handshakes) >= traffic.limits.handshakes_max:
                slowest = next(iter(self._handshakes))
                del self._handshakes[slowest]
                with contextlib.suppress(OSError):  # it has just ended
                    slowest.shutdown(socket.SHUT_RDWR)
            self._handshakes[accepted] = None
            traffic.spawn(self._shake_hands(accepted, certificate))

    async def _shake_hands(self, accepted: socket.socket, certificate: Certificate) -> None:
        traffic = self._traffic
        try:
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await self._loop.connect_accepted_socket(
                lambda: Connection(traffic),
                accepted,
                ssl=certificate.context,
                ssl_handshake_timeout=traffic.limits.header_wait_s,
                ssl_shutdown_timeout=traffic.limits.linger_wait_s,
            )
        except OSError as error:  # TLS errors too
            accepted.close()
            log.debug("handshake_failed", extra={"reason": str(error)})
        finally:
            self._handshakes.pop(accepted, None)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(WATCH_EVERY_S)
            connections = list(self._traffic.connections)
            for start in range(0, len(connections), WATCHED_AT_ONCE):
                now_s = self._loop.time()
                for connection in connections[start : start + WATCHED_AT_ONCE]:
                    connection.cut_if_slow(now_s)
                await asyncio.sleep(0)

    async def _watch_certificate(self, certificate: Certificate) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            certificate.reload_if_changed()
