"""Two servers behind an address: each request goes to the other one than the request before."""

import asyncio
import re
import threading
from collections.abc import Sequence
from contextlib import suppress
from itertools import cycle
from pathlib import Path
from typing import Any

from tests import postgres
from tests.faults.cluster import Cluster
from tests.server import free_port

START_S_MAX = 10.0
_CONNECTION = re.compile(rb"\r\nconnection:[^\r\n]*", re.IGNORECASE)


class Balancer:
    """Lets every connection have one request, so that the next one goes elsewhere."""

    def __init__(self, port: int, servers: Sequence[int]) -> None:
        self._port = port
        self._servers = cycle(servers)
        self.requests = dict.fromkeys(servers, 0)
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="balancer", daemon=True)
        self._thread.start()
        assert self._ready.wait(START_S_MAX), "the balancer does not start"

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(START_S_MAX)

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        self._over = asyncio.Event()
        tasks: set[asyncio.Task[None]] = set()

        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.create_task(self._pass(reader, writer))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

        server = await asyncio.start_server(accept, "127.0.0.1", self._port)
        self._ready.set()
        await self._over.wait()
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            port = next(self._servers)
            self.requests[port] += 1
            there, to = await asyncio.open_connection("127.0.0.1", port)
            line, _, headers = _CONNECTION.sub(b"", head).partition(b"\r\n")
            to.write(line + b"\r\nConnection: close\r\n" + headers)
            sending = asyncio.create_task(_copy(reader, to))
            try:
                await _copy(there, writer)
            finally:
                sending.cancel()
                to.close()
        writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()


class _Shared:
    """The database that tests of this process share, which outlives them."""

    def __init__(self) -> None:
        self._schema = f"outside_{free_port()}"

    def url(self, _: str) -> str:
        return postgres.server().url(self._schema)

    def remove(self) -> None: ...


class TwoServers(Cluster):
    """To clients one server, at `url`."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, seed=0)
        self.balancer = Balancer(self.port, [node.port for node in self.nodes])

    def _databases(self) -> Any:
        return _Shared()

    def __exit__(self, *error: object) -> None:
        self.balancer.stop()
        super().__exit__(*error)
