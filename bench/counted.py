"""The whole server in one process without sockets, for `instructions.py` to count.

The store is a real SQLite file, and the clients are the scripts of the bench. Time is a number
that moves with the passes, and nothing else in here asks a clock, so that every run does the same.
"""

import asyncio
import gc
import json
import math
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import uvloop

from bench import anypoint, discue, http
from bench.client import NewScript, Refused
from bench.courier import Queue
from courier import app
from courier.clock import SteadyClock
from courier.config import Config
from courier.connection import Connection
from courier.proxies import Proxies
from courier.store.disk_sqlite import writer
from courier.traffic import Traffic, TrafficLimits

# What callgrind is told to write its counts at. Nothing else in the server calls it.
MARK = "getsid"
WARM_PASSES = 2
START_MS = 1_800_000_000_000
PASS_NS = 1_000_000
READY_WAIT_S = 120.0


class Load(NamedTuple):
    name: str
    clients: int
    batch: int
    cycle: bool
    passes: int
    dialect: str = "cloudflare"

    @property
    def messages(self) -> int:
        """Of all passes."""
        return self.clients * self.batch * self.passes


LOADS = (
    Load("publish 64x1", 64, 1, False, 6),
    Load("cycle 64x1", 64, 1, True, 4),
    Load("publish 16x100", 16, 100, False, 2),
    Load("cycle 16x100", 16, 100, True, 2),
    # The other dialects, and what they are compared with.
    Load("publish 16x10", 16, 10, False, 4),
    Load("cycle 16x10", 16, 10, True, 4),
    Load("anypoint publish 64x1", 64, 1, False, 6, "anypoint"),
    Load("anypoint cycle 64x1", 64, 1, True, 4, "anypoint"),
    Load("anypoint publish 16x10", 16, 10, False, 4, "anypoint"),
    Load("anypoint cycle 16x10", 16, 10, True, 4, "anypoint"),
    Load("discue publish 64x1", 64, 1, False, 6, "discue"),
)


class Scripts(Protocol):
    """One queue, through one dialect."""

    def publishing(self, batch: int) -> NewScript: ...

    def cycling(self, batch: int) -> NewScript: ...


class Ticks:
    """Time: it passes when it is told to."""

    def __init__(self) -> None:
        self.ns = 0

    def elapsed_ns(self) -> int:
        return self.ns

    def wall_ns(self) -> int:
        return START_MS * 1_000_000 + self.ns


class Wire(asyncio.Transport):
    """The server's end of a connection: what it writes is handed to a client in the next round."""

    def __init__(self, answered: Callable[[bytes], None]) -> None:
        super().__init__()
        self._answered = answered
        self._soon = asyncio.get_running_loop().call_soon

    def write(self, data: Any) -> None:
        self._soon(self._answered, data)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 1) if name == "peername" else default

    def is_closing(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


class Line:
    """One client's connection to the server."""

    def __init__(self, traffic: Traffic, answered: Callable[[bytes], None]) -> None:
        self._connection = Connection(traffic)
        self._connection.connection_made(Wire(answered))

    def send(self, request: bytes) -> None:
        left = memoryview(request)
        while left:
            buffer = self._connection.get_buffer(-1)
            part = left[: len(buffer)]
            buffer[: len(part)] = part
            self._connection.buffer_updated(len(part))
            left = left[len(part) :]


class Recorded:
    """Gives the answers that were recorded, again and again, in place of the server."""

    def __init__(self, answers: Sequence[bytes], answered: Callable[[bytes], None]) -> None:
        self._answers = deque(answers)
        self._answered = answered
        self._soon = asyncio.get_running_loop().call_soon

    def send(self, _: bytes) -> None:
        self._answers.rotate(-1)
        self._soon(self._answered, self._answers[-1])


class Passes:
    """One client: runs its script so many times."""

    def __init__(self, new_script: NewScript) -> None:
        self._new_script = new_script
        self.send: Callable[[bytes], None] = lambda _: None
        self.answers: list[bytes] = []
        self.recording = False

    def run(self, count: int) -> "asyncio.Future[None]":
        self._left = count
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._begin()
        return self.ended

    def _begin(self) -> None:
        self._script = self._new_script()
        request, self._whole = next(self._script)
        self.send(request)

    def answered(self, answer: bytes) -> None:
        if self.recording:
            self.answers.append(answer)
        try:
            if not self._whole(answer):
                raise Refused(f"half an answer: {answer[:100]!r}")
            request, self._whole = self._script.send(answer)
            self.send(request)
        except StopIteration:
            self._left -= 1
            if self._left:
                self._begin()
            else:
                self.ended.set_result(None)
        except Exception as error:
            self.ended.set_exception(error)


def mark() -> None:
    """Everything since the last mark is a count of its own."""
    os.getsid(0)


async def all_pass(clients: Sequence[Passes], count: int) -> None:
    await asyncio.gather(*[client.run(count) for client in clients])


async def run(load: Load, queue: Scripts, traffic: Traffic, ticks: Ticks) -> None:
    """Leaves two counts: of the passes with the server, and of the clients alone."""
    new_script = queue.cycling(load.batch) if load.cycle else queue.publishing(load.batch)
    clients = [Passes(new_script) for _ in range(load.clients)]
    for client in clients:
        client.send = Line(traffic, client.answered).send
    for warm in range(WARM_PASSES):
        for client in clients:
            client.recording = warm == WARM_PASSES - 1
        await all_pass(clients, 1)
        ticks.ns += PASS_NS
    for client in clients:
        client.recording = False
    mark()
    for _ in range(load.passes):
        await all_pass(clients, 1)
        ticks.ns += PASS_NS
    mark()
    for client in clients:
        client.send = Recorded(client.answers, client.answered).send
    mark()
    for _ in range(load.passes):
        await all_pass(clients, 1)
        ticks.ns += PASS_NS
    mark()


class Asked:
    """Requests through a connection of their own, outside what is counted."""

    def __init__(self, traffic: Traffic, made: dict[str, Any]) -> None:
        """`made`: the credentials of a tenant."""
        self._line = Line(traffic, self._answered)
        self._made = made

    def _answered(self, answer: bytes) -> None:
        self._answer.set_result(answer)

    async def ask(self, request: bytes) -> Any:
        self._answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._line.send(request)
        answer = await self._answer
        http.check(answer)
        return json.loads(answer.partition(b"\r\n\r\n")[2])

    async def _post(self, path: str, token: str, body: Any, method: str = "POST") -> Any:
        told = json.dumps(body).encode()
        return await self.ask(http.request(path, token=token, body=told, method=method))

    async def cloudflare(self, name: str) -> Scripts:
        own = self._made["cloudflare"]
        queues, token = f"/client/v4/accounts/{own['account_id']}/queues", own["api_token"]
        made = await self._post(queues, token, {"queue_name": name})
        path = f"{queues}/{made['result']['queue_id']}"
        await self._post(f"{path}/consumers", token, {"type": "http_pull"})
        return Queue(path, token)

    async def anypoint(self, name: str) -> Scripts:
        paths = anypoint.Paths(self._made["anypoint"])
        user = await self._post(*paths.login)
        app = await self._post(*paths.authorize)
        await self._post(paths.queue(name), user["access_token"], {}, "PUT")
        return anypoint.Destination(paths.destination(name), app["access_token"])

    async def discue(self, name: str) -> Scripts:
        key = self._made["discue"]["api_key"]
        made = await self.ask(discue.request("POST", "/queues", key, {"name": name}))
        return discue.Messages(f"/queues/{made['queue']['id']}", key)


def wait_for(go: Path) -> None:
    """Until counting has begun. Busy, because callgrind takes orders only from what runs."""
    until_s = time.monotonic() + READY_WAIT_S
    print("ready", flush=True)
    while not go.exists():
        if time.monotonic() > until_s:
            sys.exit("nobody has begun to count")


async def main(directory: Path, names: Sequence[str], go: Path | None) -> None:
    # How many calls share a group must not depend on how fast they are counted.
    writer.GATHER_S_MAX = writer.GROUP_S_MAX = math.inf  # type: ignore[attr-defined]
    config = Config(data=directory / "data", commit_inline_ms_max=1_000_000, console=False)
    config.data.mkdir()
    ticks = Ticks()
    store = await app.open_store(config)
    clock = SteadyClock(
        START_MS, step_wait_ms=60_000, wall_ns=ticks.wall_ns, elapsed_ns=ticks.elapsed_ns
    )
    courier = app.build(store, config, clock, port=config.port)
    _, made = await courier.credentials.create_tenant("default")
    traffic = Traffic(courier.app, TrafficLimits(), Proxies(()))
    loads = [load for load in LOADS if load.name in names]
    asked = Asked(traffic, made)
    queues = [await getattr(asked, load.dialect)(f"bench-{n}") for n, load in enumerate(loads)]
    gc.collect()
    gc.disable()
    if go is not None:
        wait_for(go)
    for load, queue in zip(loads, queues, strict=True):
        await run(load, queue, traffic, ticks)
    await courier.transport.close()
    await store.close()


if __name__ == "__main__":
    directory, go, *names = sys.argv[1:]
    uvloop.run(main(Path(directory), names, Path(go) if go else None))
