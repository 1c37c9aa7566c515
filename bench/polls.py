"""What many idle long polls cost: memory, the time of others, and how soon a message reaches one.

The polls are spread over queues that stay empty, and each is asked again when it ends. They end
spread over time, as those of clients that know nothing of each other do.
"""

import asyncio
import time
from array import array
from itertools import chain, count, cycle, repeat
from pathlib import Path
from typing import NamedTuple

from bench import http
from bench.anypoint import Anypoint, AnypointServer, Destination, check_done, locked
from bench.client import Client, NewScript, Refused, Script, Tally, connect, measured, undisturbed
from bench.comparison import say
from bench.figure import Figure, middle, percentile
from bench.plan import Plan
from bench.table import MB, Row

QUEUES = 50
POLL_MS = 20_000
PUBLISHERS = 8
PUBLISH_EVERY_S = 0.02
FIRST_EVERY_S = 0.01
# Consumers that wait, each on a queue of its own, and as many publishers.
CROWD = 64
CROWD_EVERY_S = 0.2
_SETTLE_S = 1.0
_ARRIVE_S_MAX = 5.0
_CREATED = b"HTTP/1.1 201 "


class Polls(NamedTuple):
    held: int
    idle_bytes: int
    resident_bytes: int
    alone: Figure  # publishing without the polls, in turns with `beside`
    beside: Figure
    first_s: "array[float]"  # from sending a message until a waiter has it
    crowd_s: "array[float]"  # the same with few who wait, and as many publishers

    @property
    def first_p99_ms(self) -> float:
        return percentile(self.first_s, 99) * 1000

    @property
    def crowd_p50_ms(self) -> float:
        return percentile(self.crowd_s, 50) * 1000

    @property
    def crowd_p99_ms(self) -> float:
        return percentile(self.crowd_s, 99) * 1000

    def rows(self) -> list[Row]:
        name, polls = Anypoint.name, f"{self.held:,} long polls"
        publish = f"publish, {PUBLISHERS} paced clients"
        return [
            Row(publish, name, self.alone, note="no polls"),
            Row(publish, name, self.beside, note=f"beside {polls}, in turns with no polls"),
            Row(
                f"first message, {polls}",
                name,
                p50_ms=percentile(self.first_s, 50) * 1000,
                p99_ms=self.first_p99_ms,
                note=f"longest of {len(self.first_s):,}: {max(self.first_s) * 1000:.1f} ms",
            ),
            Row(
                f"first message, {CROWD} wait, {CROWD} paced publishers",
                name,
                p50_ms=self.crowd_p50_ms,
                p99_ms=self.crowd_p99_ms,
                note=f"longest of {len(self.crowd_s):,}: {max(self.crowd_s) * 1000:.1f} ms",
            ),
            Row(
                f"memory, {polls}",
                name,
                note=f"{self.resident_bytes / MB:.1f} MB resident,"
                f" {self.idle_bytes / MB:.1f} MB without them",
            ),
        ]


def measure(directory: Path, plan: Plan) -> Polls:
    server = AnypointServer(directory)
    try:
        return undisturbed(_measure(server, plan))
    finally:
        server.process.stop()


async def _measure(server: AnypointServer, plan: Plan) -> Polls:
    empty = [server.new_destination(f"empty-{number}") for number in range(QUEUES)]
    held = Held(server, empty, count=plan.polls)
    idle_bytes = server.process.resident_bytes()
    await held.open()
    await asyncio.sleep(plan.hold_s)
    resident_bytes = server.process.resident_bytes()
    alone: list[Figure] = []
    beside: list[Figure] = []
    for turn in range(plan.poll_rounds):
        say(f"{plan.polls:,} long polls, round {turn + 1} of {plan.poll_rounds}")
        beside.append(await _publish(server, plan))
        await held.close()
        alone.append(await _publish(server, plan))
        await held.open()
    first_s = await _first(server, held, messages=plan.firsts)
    await held.close()
    queues = [server.new_destination(f"crowd-{number}") for number in range(CROWD)]
    crowd = Held(server, queues, count=CROWD)
    await crowd.open()
    crowd_s = await _first(
        server, crowd, messages=plan.firsts, publishers=CROWD, every_s=CROWD_EVERY_S
    )
    await crowd.close()
    return Polls(
        held=plan.polls,
        idle_bytes=idle_bytes,
        resident_bytes=resident_bytes,
        alone=middle(alone),
        beside=middle(beside),
        first_s=first_s,
        crowd_s=crowd_s,
    )


class Held:
    """The polls: one connection each, every `QUEUES`th on the same queue."""

    def __init__(self, server: AnypointServer, queues: list[Destination], *, count: int) -> None:
        self.queues = queues
        self.sent_s: dict[bytes, float] = {}
        self.arrived_s = array("d")
        self._port = server.process.port
        self._count = count
        self._clients: list[Client] = []

    async def open(self) -> None:
        self._tally = Tally()
        scripts = [
            self._polling(queue, first_ms=POLL_MS * (number + 1) // self._count)
            for number, queue in zip(range(self._count), cycle(self.queues), strict=False)
        ]
        self._clients = await connect(self._port, scripts, self._tally)
        await asyncio.sleep(_SETTLE_S)
        self.check()

    def _polling(self, queue: Destination, *, first_ms: int) -> NewScript:
        first, usual = queue.get(1, wait_ms=first_ms), queue.get(1, wait_ms=POLL_MS)
        polls = chain([first], repeat(usual))

        def script() -> Script:
            answer = yield next(polls), http.whole
            if answer.startswith(http.NOTHING):
                return 0
            now_s = time.perf_counter()
            messages = locked(answer)
            [(id, _)] = messages
            self.arrived_s.append(now_s - self.sent_s.pop(id))
            check_done((yield queue.ack(messages), http.whole), 1)
            return 1

        return script

    def check(self) -> None:
        """Raises when one of them has ended otherwise than it should."""
        if self._tally.ended.done():
            self._tally.ended.result()
            raise Refused("the polls have ended")

    async def close(self) -> None:
        self.check()
        for client in self._clients:
            client.leave()
        await asyncio.sleep(_SETTLE_S)


async def _publish(server: AnypointServer, plan: Plan) -> Figure:
    return await measured(
        server.process,
        [server.destination.publishing(1)] * PUBLISHERS,
        warmup_s=plan.warmup_s,
        seconds=plan.poll_seconds,
        every_s=PUBLISH_EVERY_S,
    )


async def _first(
    server: AnypointServer,
    held: Held,
    *,
    messages: int,
    publishers: int = 1,
    every_s: float = FIRST_EVERY_S,
) -> "array[float]":
    """Publish to the queues of the polls in turn; how long each message took to reach a waiter."""
    puts = cycle([queue.put(1) for queue in held.queues])
    numbers = count(1)

    def script() -> Script:
        id = b"first-%d" % next(numbers)
        request = next(puts) % id
        held.sent_s[id] = time.perf_counter()
        http.check((yield request, http.whole), _CREATED)
        return 1

    tally = Tally(messages_max=messages)
    await connect(server.process.port, [script] * publishers, tally, every_s=every_s)
    await tally.ended
    deadline_s = time.perf_counter() + _ARRIVE_S_MAX
    while held.sent_s and time.perf_counter() < deadline_s:
        held.check()
        await asyncio.sleep(FIRST_EVERY_S)
    if held.sent_s:
        raise Refused(f"{len(held.sent_s)} of {messages} messages reached no waiter")
    return held.arrived_s
