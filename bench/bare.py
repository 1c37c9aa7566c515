"""A bare ASGI application that answers `{}`, on uvicorn: what HTTP alone costs in Python."""

import sys
from collections.abc import Awaitable, Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bench.client import NewScript
from bench.courier import Queue
from bench.process import Process, free_port
from bench.workload import Workload

_START = {
    "type": "http.response.start",
    "status": 200,
    "headers": [(b"content-type", b"application/json"), (b"content-length", b"2")],
}


async def application(
    scope: dict[str, Any],
    receive: Callable[[], Awaitable[dict[str, Any]]],
    send: Callable[[dict[str, Any]], Awaitable[None]],
) -> None:
    if scope["type"] == "http":
        while (await receive()).get("more_body"):
            pass
        await send(_START)
        await send({"type": "http.response.body", "body": b"{}"})


class BareServer:
    def __init__(self, directory: Path) -> None:
        port = free_port()
        self.process = Process(
            [
                *(sys.executable, "-m", "uvicorn", "bench.bare:application", "--port", str(port)),
                *("--loop", "uvloop", "--http", "httptools", "--lifespan", "off"),
                *("--no-access-log", "--log-level", "warning"),
            ],
            port=port,
            directory=directory,
        )
        self.process.wait_until(self.process.answers)

    def publish(self, client: int, batch: int) -> NewScript:
        """The requests of Courier's publishers, to a path as long as theirs."""
        return Queue(f"/client/v4/accounts/{'a' * 32}/queues/{'q' * 32}", "t" * 40).publishing(
            batch
        )

    def cycle(self, client: int, batch: int) -> NewScript:
        """Nobody asks for it: it keeps nothing."""
        return self.publish(client, batch)


class Bare:
    name = "bare uvicorn application"

    def takes(self, workload: Workload) -> bool:
        return not workload.cycle and not workload.ours and workload.batch == 1

    def installed(self) -> bool:
        return find_spec("uvicorn") is not None

    def start(self, directory: Path) -> BareServer:
        return BareServer(directory)
