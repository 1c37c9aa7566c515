"""The load: many connections on one event loop, the same skeleton for every protocol.

A script is one pass of one client, written as a generator: it yields what to send and a test
for "the answer is whole", is given the answer, and returns how many messages it moved. There
is no future and no task per request, so the client stays much cheaper than what it measures.
"""

import asyncio
import gc
import time
from array import array
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from typing import Any, TypeVar, cast

import uvloop

from bench.figure import Figure
from bench.process import Process

T = TypeVar("T")

Whole = Callable[[bytes], bool]
Script = Generator[tuple[bytes, Whole], bytes, int]
NewScript = Callable[[], Script]

DRAIN_S_MAX = 30.0
MOVE_S_MAX = 600.0


class Refused(Exception):
    """The server answered something else than success."""


def lines(count: int) -> Whole:
    """The answer is whole when it has so many lines. Bodies here never contain a line end."""

    def whole(answer: bytes) -> bool:
        return answer.count(b"\r\n") == count and answer.endswith(b"\r\n")

    return whole


class Tally:
    """What the clients of one load did since the last `reset`."""

    def __init__(self, *, messages_max: int | None = None) -> None:
        self.messages = 0
        self.latencies_s = array("d")
        self.stopping = False
        self.messages_max = messages_max
        self.running = 0
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def reset(self) -> None:
        self.messages = 0
        self.latencies_s = array("d")

    def add(self, messages: int, latency_s: float) -> None:
        self.messages += messages
        self.latencies_s.append(latency_s)
        if self.messages_max is not None and self.messages >= self.messages_max:
            self.stopping = True

    def end(self, error: Exception | None) -> None:
        """One client has ended; the first error ends the load."""
        self.running -= 1
        if self.ended.done():
            return
        if error is not None:
            self.ended.set_exception(error)
        elif self.running == 0:
            self.ended.set_result(None)


class Client(asyncio.Protocol):
    """One connection that runs its script again and again until the tally says stop."""

    def __init__(self, new_script: NewScript, tally: Tally) -> None:
        self._new_script = new_script
        self._tally = tally
        self._answer = b""
        self._whole: Whole = bool
        self._open = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do not inherit from asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        self._begin()

    def data_received(self, data: bytes) -> None:
        if self._answer:
            data = self._answer + data
        if not self._whole(data):
            self._answer = data
            return
        self._answer = b""
        try:
            request, self._whole = self._script.send(data)
        except StopIteration as stop:
            self._tally.add(stop.value, time.perf_counter() - self._started_s)
            if self._tally.stopping:
                self._end(None)
            else:
                self._begin()
        except Exception as error:
            self._end(error)
        else:
            self._transport.write(request)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(exc or ConnectionError("the server closed the connection"))

    def _begin(self) -> None:
        self._start(time.perf_counter())

    def _start(self, started_s: float) -> None:
        self._script = self._new_script()
        self._started_s = started_s
        request, self._whole = next(self._script)
        self._transport.write(request)

    def leave(self) -> None:
        """Close the connection, whatever it is waiting for."""
        self._end(None)

    def _end(self, error: Exception | None) -> None:
        if self._open:
            self._open = False
            self._transport.close()
            self._tally.end(error)


class PacedClient(Client):
    """A client that begins a pass every so often, however fast the answers come.

    A pass that is due while the one before it is still unanswered counts from when it was due.
    """

    def __init__(
        self, new_script: NewScript, tally: Tally, *, first_s: float, every_s: float
    ) -> None:
        super().__init__(new_script, tally)
        self._due_s = first_s
        self._every_s = every_s

    def _begin(self) -> None:
        due_s = self._due_s
        self._due_s += self._every_s
        early_s = due_s - time.perf_counter()
        if early_s > 0:
            asyncio.get_running_loop().call_later(early_s, self._start_on_time)
        else:
            self._start(due_s)

    def _start_on_time(self) -> None:
        if self._tally.stopping:
            self._end(None)
        elif self._open:
            self._start(time.perf_counter())


async def connect(
    port: int, scripts: list[NewScript], tally: Tally, *, every_s: float = 0.0
) -> list[Client]:
    """A connection for each script; with `every_s` each is paced, and they take turns."""
    tally.running = len(scripts)
    loop = asyncio.get_running_loop()
    now_s = time.perf_counter()
    clients: list[Client] = []
    for number, new_script in enumerate(scripts):
        make: Callable[[], Client] = partial(Client, new_script, tally)
        if every_s:
            first_s = now_s + (1 + number / len(scripts)) * every_s
            make = partial(PacedClient, new_script, tally, first_s=first_s, every_s=every_s)
        _, client = await loop.create_connection(make, "127.0.0.1", port)
        clients.append(client)
    return clients


async def _pass_time(tally: Tally, seconds: float) -> None:
    """Let the load run; an error of a client is raised here."""
    await asyncio.wait([tally.ended], timeout=seconds)
    if tally.ended.done():
        tally.ended.result()


async def measured(
    process: Process,
    scripts: list[NewScript],
    *,
    warmup_s: float,
    seconds: float,
    every_s: float = 0.0,
) -> Figure:
    """Run every script on a connection of its own for a while; figures without the warm-up."""
    tally = Tally()
    await connect(process.port, scripts, tally, every_s=every_s)
    await _pass_time(tally, warmup_s)

    tally.reset()
    started_s, own_cpu_s, cpu_s = time.perf_counter(), time.process_time(), process.cpu_s()
    await _pass_time(tally, seconds)
    # Slow contestants need more than a short time; one that hangs ends in Figure.of.
    deadline_s = started_s + seconds + DRAIN_S_MAX
    while len(tally.latencies_s) < len(scripts) and time.perf_counter() < deadline_s:
        await _pass_time(tally, seconds)
    elapsed_s = time.perf_counter() - started_s
    figure = Figure.of(
        messages=tally.messages,
        latencies_s=tally.latencies_s,
        elapsed_s=elapsed_s,
        cpu_s=process.cpu_s() - cpu_s,
        client_cpu_s=time.process_time() - own_cpu_s,
    )

    tally.stopping = True
    await asyncio.wait_for(tally.ended, DRAIN_S_MAX)
    return figure


async def _move(process: Process, scripts: list[NewScript], *, messages: int) -> None:
    tally = Tally(messages_max=messages)
    await connect(process.port, scripts, tally)
    await asyncio.wait_for(tally.ended, MOVE_S_MAX)


def undisturbed(load: Coroutine[Any, Any, T]) -> T:
    """Run a load on an event loop of its own, without garbage collection in between."""
    gc.collect()
    gc.disable()
    try:
        return uvloop.run(load)
    finally:
        gc.enable()


def measure(
    process: Process, scripts: list[NewScript], *, warmup_s: float, seconds: float
) -> Figure:
    """`measured`, for those who have no event loop."""
    return undisturbed(measured(process, scripts, warmup_s=warmup_s, seconds=seconds))


def move(process: Process, scripts: list[NewScript], *, messages: int) -> None:
    """Run the scripts until they have moved at least so many messages. Nothing is timed."""
    uvloop.run(_move(process, scripts, messages=messages))
