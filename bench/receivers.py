"""What receivers that are not well cost others: a thousand that hang, and one that often refuses.

Of two tenants the first has a thousand listeners, a hundred on each of ten queues, that accept and
never answer. Beside them, and without them in turns, messages are published at a fixed rate to a
queue of each tenant whose listeners answer at once, and it is measured how soon they arrive. All
phases count: when the thousand begin, when their requests time out, and when they are tried again.

Then a backlog goes to one listener that takes 100 ms for each message, and as many to one that
also refuses the first attempt of 30 % of them; a refused push is made again after 50 ms.
"""

import asyncio
import time
from array import array
from collections.abc import Iterator
from itertools import count, cycle
from pathlib import Path
from typing import NamedTuple

from bench import http
from bench.client import NewScript, Script, measured, move, undisturbed
from bench.comparison import say
from bench.discue import DiscueServer, PushQueue, Receiver
from bench.figure import Figure, middle
from bench.plan import Plan
from bench.pushes import arrived, fill
from bench.receiver import HANG, LIVE, SLOW, SOME
from bench.table import Row

HANGING = 1_000
HANGING_QUEUES = 10
# To each of the queues, at the beginning of a turn.
HANGING_MESSAGES = 10
WELL = 5
PUBLISHERS = 2
# Not in step with the moments of delivery (50 ms): a run would meet all of them, or none.
PUBLISH_EVERY_S = 0.083
OTHER, SAME = "another tenant", "the same tenant"
REFUSED_OF = 300
_SWITCHES = 16
_COURIER = "courier"


class Receivers(NamedTuple):
    """By whose listeners are well; and how long each of two backlogs took."""

    alone: dict[str, Figure]
    beside: dict[str, Figure]
    all_taken_s: float
    some_refused_s: float

    @property
    def hanging_cpu_ms(self) -> float:
        """CPU time that one listener which hangs costs the server in a minute. A busy machine
        hardly changes it."""

        def busy(figures: dict[str, Figure]) -> float:
            return sum(each.rate * each.cpu_s_per_1000 for each in figures.values()) / 1000

        return (busy(self.beside) - busy(self.alone)) * 60 * 1000 / HANGING

    def rows(self) -> list[Row]:
        rows = []
        for whose in self.alone:
            what = f"push to {WELL} listeners of {whose}, paced"
            rows.append(Row(what, _COURIER, self.alone[whose], note="without those that hang"))
            beside = f"beside {HANGING:,} that hang, in turns"
            rows.append(Row(what, _COURIER, self.beside[whose], note=beside))
        cost = f"{self.hanging_cpu_ms:.1f} ms of CPU in a minute"
        rows.append(Row("a listener that hangs", _COURIER, note=cost))
        what = f"{REFUSED_OF} messages to a receiver that takes 100 ms"
        rows.append(Row(what, _COURIER, note=f"{self.all_taken_s:.1f} s with none refused"))
        rows.append(Row(what, _COURIER, note=f"{self.some_refused_s:.1f} s with 30 % refused once"))
        return rows


class _Crowd:
    """The listeners that hang."""

    def __init__(self, server: DiscueServer, receiver: Receiver) -> None:
        self._server = server
        self._queues: list[PushQueue] = []
        self._listeners: list[tuple[PushQueue, str]] = []
        live = receiver.url(LIVE)
        for number in range(HANGING_QUEUES):
            queue = server.new_push_queue(f"hanging-{number}")
            self._queues.append(queue)
            for _ in range(HANGING // HANGING_QUEUES):
                path = queue.listen(receiver.url(HANG), live, status="disabled")
                self._listeners.append((queue, path))

    def switch(self, status: str) -> None:
        self._ask(queue.switching(path, status) for queue, path in self._listeners)

    def publish(self) -> None:
        self._ask(queue.publish(0) for queue in self._queues * HANGING_MESSAGES)

    def _ask(self, requests: Iterator[bytes]) -> None:
        every = list(requests)
        # Some are made twice by those who are not done when others are.
        turns = cycle(every)

        def script() -> Script:
            http.check((yield next(turns), http.whole))
            return 1

        move(self._server.process, [script] * _SWITCHES, messages=len(every))


def measure(directory: Path, plan: Plan) -> Receivers:
    receiver = Receiver(directory)
    server = DiscueServer(directory, "--push-delay-percent", "1")
    try:
        alone, beside = _latency(server, receiver, plan)
        taken_s = _backlog(server, receiver, SLOW, plan)
        return Receivers(alone, beside, taken_s, _backlog(server, receiver, SOME, plan))
    finally:
        server.process.stop()
        receiver.process.stop()


def _latency(
    server: DiscueServer, receiver: Receiver, plan: Plan
) -> tuple[dict[str, Figure], dict[str, Figure]]:
    say(f"{HANGING:,} listeners that hang")
    crowd = _Crowd(server, receiver)
    queues = {
        OTHER: server.new_push_queue("well", key=server.new_tenant("other")),
        SAME: server.new_push_queue("well"),
    }
    for name, queue in queues.items():
        for number in range(WELL):
            path = f"/{name.replace(' ', '-')}/{number}"
            queue.listen(receiver.url(path), receiver.url(LIVE))
    numbers = count()
    alone: list[dict[str, Figure]] = []
    beside: list[dict[str, Figure]] = []
    for turn in range(plan.receiver_rounds):
        say(f"beside those that hang, round {turn + 1} of {plan.receiver_rounds}")
        alone.append(undisturbed(_paced(server, receiver, queues, numbers, plan)))
        crowd.switch("enabled")
        crowd.publish()
        beside.append(undisturbed(_paced(server, receiver, queues, numbers, plan)))
        crowd.switch("disabled")
    return _middles(alone), _middles(beside)


def _middles(rounds: list[dict[str, Figure]]) -> dict[str, Figure]:
    return {name: middle([each[name] for each in rounds]) for name in rounds[0]}


async def _paced(
    server: DiscueServer,
    receiver: Receiver,
    queues: dict[str, PushQueue],
    numbers: "count[int]",
    plan: Plan,
) -> dict[str, Figure]:
    answered_s: dict[int, float] = {}
    whose: dict[int, str] = {}

    def publishing(name: str) -> NewScript:
        def script() -> Script:
            number = next(numbers)
            whose[number] = name
            http.check((yield queues[name].publish(number), http.whole))
            answered_s[number] = time.perf_counter()
            return 1

        return script

    figure = await measured(
        server.process,
        [publishing(name) for name in queues] * PUBLISHERS,
        warmup_s=plan.warmup_s,
        seconds=plan.receiver_seconds,
        every_s=PUBLISH_EVERY_S,
    )
    arrivals = await arrived(receiver, WELL * len(answered_s))
    found = {name: array("d") for name in queues}
    for pairs in arrivals.values():
        for number, at_s in pairs:
            found[whose[number]].append(at_s - answered_s[number])
    pushes = figure.rate * WELL
    return {
        name: Figure.of(
            messages=len(latencies_s),
            latencies_s=latencies_s,
            elapsed_s=len(latencies_s) / pushes * len(queues),
            cpu_s=figure.cpu_s_per_1000 / WELL * len(latencies_s) / 1000,
            client_cpu_s=0.0,
        )
        for name, latencies_s in found.items()
    }


def _backlog(server: DiscueServer, receiver: Receiver, path: str, plan: Plan) -> float:
    """How long a backlog takes to arrive; the shortest time of several rounds."""
    times_s: list[float] = []
    for turn in range(plan.receiver_rounds):
        say(f"a slow receiver, {path}, round {turn + 1} of {plan.receiver_rounds}")
        queue = server.new_push_queue(f"backlog-{path[1:]}-{turn}")
        listener = queue.listen(receiver.url(path), receiver.url(LIVE), status="disabled")
        published = fill(server, queue, REFUSED_OF)
        began_s = time.perf_counter()
        queue.switch(listener, "enabled")
        arrivals = asyncio.run(arrived(receiver, published))
        ended_s = max(at_s for found in arrivals.values() for _, at_s in found)
        times_s.append((ended_s - began_s) * REFUSED_OF / published)
    return min(times_s)
