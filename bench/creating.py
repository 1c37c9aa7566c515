"""How fast queues are created through each dialect, in turns on the same server."""

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import NamedTuple

from bench import http
from bench.anypoint import AnypointServer
from bench.client import NewScript, Script, measure
from bench.comparison import say
from bench.figure import Figure, middle
from bench.plan import Plan
from bench.table import Row

CLIENTS = 64
QUEUES_MAX = 1_000_000


class Creating(NamedTuple):
    by_dialect: dict[str, Figure]

    def rows(self) -> list[Row]:
        name = f"create queues {CLIENTS}x1"
        return [Row(name, dialect, figure) for dialect, figure in self.by_dialect.items()]


def compare(directory: Path, plan: Plan) -> Creating:
    server = AnypointServer(directory, "--queues-max", str(QUEUES_MAX))
    numbers = count(1)
    creators = {
        "courier": _creating(server.new_queue_request, numbers),
        "courier, anypoint": _creating(server.new_destination_request, numbers),
        "courier, discue": _creating(server.new_discue_queue_request, numbers),
    }
    figures: dict[str, list[Figure]] = {name: [] for name in creators}
    with server.process as process:
        for turn in range(plan.rounds):
            say(f"creating queues, round {turn + 1} of {plan.rounds}")
            for name, script in creators.items():
                scripts = [script] * CLIENTS
                figures[name].append(
                    measure(process, scripts, warmup_s=plan.warmup_s, seconds=plan.seconds)
                )
    return Creating({name: middle(found) for name, found in figures.items()})


def _creating(request: Callable[[str], bytes], numbers: "count[int]") -> NewScript:
    def script() -> Script:
        http.check((yield request(f"made-{next(numbers)}"), http.whole))
        return 1

    return script
