"""An answer that is sent in parts ends quietly when its client goes between two of them."""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from typing import cast

import pytest
import uvloop

from courier.connection import Connection
from courier.incoming import Incoming
from courier.proxies import Proxies
from courier.traffic import Traffic, TrafficLimits
from courier.web import App, Response

REQUEST = b"GET / HTTP/1.1\r\nhost: courier\r\n\r\n"


class _Parts:
    """An application that aborts its client's connection itself, so that the moment is certain."""

    def __init__(self, *, before_head: bool) -> None:
        self.before_head = before_head
        self.connections: list[Connection] = []
        self.ended = asyncio.Event()

    async def respond(self, request: Incoming) -> Response:
        if self.before_head:
            # The head is sent by a task that starts later than this.
            asyncio.get_running_loop().call_soon(self.connections[0].abort)
        return Response(b"", stream=self._stream())

    async def _stream(self) -> AsyncIterator[bytes]:
        try:
            yield b"first"
            self.connections[0].abort()
            yield b"second"
            yield b"third"
        finally:
            self.ended.set()


@pytest.mark.parametrize("before_head", [False, True])
def test_a_client_that_goes_is_no_error(
    before_head: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        app = _Parts(before_head=before_head)
        traffic = Traffic(cast(App, app), TrafficLimits(), Proxies(()))

        def connect() -> Connection:
            app.connections.append(Connection(traffic))
            return app.connections[0]

        loop = asyncio.get_running_loop()
        server = await loop.create_server(connect, "127.0.0.1", 0, family=socket.AF_INET)
        host, port = server.sockets[0].getsockname()
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(REQUEST)
        async with asyncio.timeout(5):
            with pytest.raises(ConnectionError):
                while await reader.read(1 << 10):
                    pass
                raise ConnectionResetError
            while traffic.busy:
                await asyncio.sleep(0.001)
            assert before_head or app.ended.is_set()
        writer.close()
        server.close()

    with caplog.at_level(logging.WARNING):
        uvloop.run(story())
    assert not caplog.records
