"""What pushes cost: how soon one arrives, beside a dead listener and without, and how many do.

Times are from the answer to a publish until the request is at its receiver, which is a process of
its own; the clock is the machine's, and the same for all. The dead listener hangs (it accepts and
says nothing) or refuses, and its liveness probe answers, so it is tried again and again.
"""

import asyncio
import math
import subprocess
import sys
import time
from array import array
from itertools import count
from pathlib import Path
from typing import NamedTuple

from bench import http
from bench.client import Refused, Script, measured, move, undisturbed
from bench.comparison import say
from bench.discue import DiscueServer, PushQueue, Receiver
from bench.figure import Figure, middle
from bench.plan import Plan
from bench.process import free_port
from bench.receiver import HANG, LIVE, Arrivals
from bench.table import Row

COURIER = "courier"
PLAIN = "plain aiohttp script"
WELL = 5
PUBLISHERS = 4
PUBLISH_EVERY_S = 0.08
# With so many listeners there are ten times as many requests at a time.
SENT_TO = (1, 8)
_FILLERS = 16
_ARRIVE_S_MAX = 300.0
_LOOK_S = 0.2
DEAD = ("none", "hangs", "refuses")


class Pushes(NamedTuple):
    latency: dict[str, Figure]  # by what the dead listener does
    speed: dict[tuple[int, str], Figure]  # by how many listeners, and who sends

    def rows(self) -> list[Row]:
        rows = [
            Row(
                f"push to {WELL} listeners, paced",
                COURIER,
                figure,
                note="alone" if dead == "none" else f"beside one that {dead}, in turns",
            )
            for dead, figure in self.latency.items()
        ]
        for (listeners, who), figure in self.speed.items():
            rows.append(
                Row(
                    f"push to {listeners} listener{'s' if listeners > 1 else ''}, full speed",
                    who,
                    figure,
                    note=f"{10 * listeners} at a time",
                )
            )
        return rows


def measure(directory: Path, plan: Plan) -> Pushes:
    receiver = Receiver(directory)
    server = DiscueServer(directory)
    try:
        latency = _latency(server, receiver, plan)
        return Pushes(latency, _speed(server, receiver, plan))
    finally:
        server.process.stop()
        receiver.process.stop()


# --- how soon ---


def _latency(server: DiscueServer, receiver: Receiver, plan: Plan) -> dict[str, Figure]:
    queue = server.new_push_queue("paced")
    live = receiver.url(LIVE)
    for number in range(WELL):
        queue.listen(receiver.url(f"/{number}"), live)
    dead = {
        "hangs": queue.listen(receiver.url(HANG), live, status="disabled"),
        "refuses": queue.listen(f"http://127.0.0.1:{free_port()}/", live, status="disabled"),
    }
    numbers = count()
    figures: dict[str, list[Figure]] = {name: [] for name in DEAD}
    for turn in range(plan.push_rounds):
        say(f"pushes, paced, round {turn + 1} of {plan.push_rounds}")
        for name in DEAD:
            if name in dead:
                queue.switch(dead[name], "enabled")
            figures[name].append(undisturbed(_paced(server, receiver, queue, numbers, plan)))
            if name in dead:
                queue.switch(dead[name], "disabled")
    return {name: middle(found) for name, found in figures.items()}


async def _paced(
    server: DiscueServer, receiver: Receiver, queue: PushQueue, numbers: "count[int]", plan: Plan
) -> Figure:
    answered_s: dict[int, float] = {}

    def script() -> Script:
        number = next(numbers)
        http.check((yield queue.publish(number), http.whole))
        answered_s[number] = time.perf_counter()
        return 1

    figure = await measured(
        server.process,
        [script] * PUBLISHERS,
        warmup_s=plan.warmup_s,
        seconds=plan.push_seconds,
        every_s=PUBLISH_EVERY_S,
    )
    arrivals = await arrived(receiver, WELL * len(answered_s))
    latencies_s = array(
        "d",
        [at_s - answered_s[number] for found in arrivals.values() for number, at_s in found],
    )
    pushes = figure.rate * WELL
    return Figure.of(
        messages=len(latencies_s),
        latencies_s=latencies_s,
        elapsed_s=len(latencies_s) / pushes,
        cpu_s=figure.cpu_s_per_1000 / WELL * len(latencies_s) / 1000,
        client_cpu_s=0.0,
    )


async def arrived(receiver: Receiver, wanted: int) -> Arrivals:
    """All that was wanted, from the listeners that are well."""
    arrivals: Arrivals = {}
    deadline_s = time.perf_counter() + _ARRIVE_S_MAX
    while sum(map(len, arrivals.values())) < wanted:
        if time.perf_counter() > deadline_s:
            raise Refused(f"of {wanted} pushes only {sum(map(len, arrivals.values()))} arrived")
        await asyncio.sleep(_LOOK_S)
        for path, found in receiver.arrivals().items():
            if path != HANG:
                arrivals.setdefault(path, []).extend(found)
    return arrivals


# --- how many ---


def _speed(server: DiscueServer, receiver: Receiver, plan: Plan) -> dict[tuple[int, str], Figure]:
    figures: dict[tuple[int, str], list[Figure]] = {}
    for turn in range(plan.rounds):
        for listeners in SENT_TO:
            say(f"pushes to {listeners}, round {turn + 1} of {plan.rounds}")
            name = f"speed-{listeners}-{turn}"
            found = _push(server, receiver, name, listeners=listeners, messages=plan.pushes)
            figures.setdefault((listeners, COURIER), []).append(found)
            found = _send(receiver, listeners=listeners, messages=plan.pushes)
            figures.setdefault((listeners, PLAIN), []).append(found)
    return {key: middle(found) for key, found in figures.items()}


def _push(
    server: DiscueServer, receiver: Receiver, name: str, *, listeners: int, messages: int
) -> Figure:
    """Let a backlog go to all listeners at once."""
    queue = server.new_push_queue(name)
    live = receiver.url(LIVE)
    paths = [
        queue.listen(receiver.url(f"/{number}"), live, status="disabled")
        for number in range(listeners)
    ]
    published = fill(server, queue, messages)
    cpu_s = server.process.cpu_s()
    for path in paths:
        queue.switch(path, "enabled")
    arrivals = asyncio.run(arrived(receiver, listeners * published))
    return _figure(arrivals, server.process.cpu_s() - cpu_s)


def fill(server: DiscueServer, queue: PushQueue, messages: int) -> int:
    """Publish so many messages, or a few more; how many they were."""
    numbers = count()
    published = 0

    def script() -> Script:
        nonlocal published
        http.check((yield queue.publish(next(numbers)), http.whole))
        published += 1
        return 1

    move(server.process, [script] * _FILLERS, messages=messages)
    return published


def _send(receiver: Receiver, *, listeners: int, messages: int) -> Figure:
    """The same without a broker."""
    command = [sys.executable, "-m", "bench.plain_sender", str(receiver.port)]
    command += [str(listeners), str(messages)]
    ran = subprocess.run(command, check=True, timeout=_ARRIVE_S_MAX, stdout=subprocess.PIPE)
    arrivals = asyncio.run(arrived(receiver, listeners * messages))
    return _figure(arrivals, float(ran.stdout))


def _figure(arrivals: Arrivals, cpu_s: float) -> Figure:
    """From the first to the last arrival; how long a single one took is not known."""
    times_s = [at_s for found in arrivals.values() for _, at_s in found]
    return Figure(
        rate=len(times_s) / (max(times_s) - min(times_s)),
        p50_ms=math.nan,
        p99_ms=math.nan,
        cpu_s_per_1000=cpu_s / len(times_s) * 1000,
        client_busy=0.0,
    )
