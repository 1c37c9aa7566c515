"""Every workload on every contestant, in turns, so that noise meets all of them alike."""

import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from bench import sqlite
from bench.client import measure
from bench.courier import Courier, CourierServer
from bench.figure import Figure, middle
from bench.plan import Plan
from bench.redis import RedisServer
from bench.redis_py import RedisPy
from bench.table import Row
from bench.workload import WORKLOADS, Contestant, Workload, scripts

SQLITE = "sqlite, plain inserts"


class Comparison(NamedTuple):
    figures: dict[tuple[str, str], Figure]  # by workload and contestant
    rows: list[Row]

    def rate(self, workload: str, who: str) -> float | None:
        figure = self.figures.get((workload, who))
        return figure.rate if figure else None

    def cpu(self, workload: str, who: str) -> float | None:
        """Seconds of the server for a thousand messages."""
        figure = self.figures.get((workload, who))
        return figure.cpu_s_per_1000 if figure else None


def say(text: str) -> None:
    """Progress goes to standard error; standard output holds the table alone."""
    print(text, file=sys.stderr, flush=True)


def compare(
    contestants: Sequence[Contestant],
    plan: Plan,
    root: Path,
    workloads: Sequence[Workload] = WORKLOADS,
) -> Comparison:
    comparison = Comparison({}, [])
    for workload in workloads:
        _compare(workload, contestants, plan, root, comparison)
    return comparison


def _compare(
    workload: Workload,
    contestants: Sequence[Contestant],
    plan: Plan,
    root: Path,
    comparison: Comparison,
) -> None:
    takers = [contestant for contestant in contestants if contestant.takes(workload)]
    figures: dict[str, list[Figure]] = {contestant.name: [] for contestant in takers}
    figures[SQLITE] = []
    groups: dict[str, list[float]] = {contestant.name: [] for contestant in takers}
    for turn in range(plan.rounds):
        for contestant in takers:
            if not contestant.installed():
                continue
            say(f"{workload.name}, {contestant.name}, round {turn + 1} of {plan.rounds}")
            figure, group = _run(contestant, workload, plan, root)
            figures[contestant.name].append(figure)
            if group is not None:
                groups[contestant.name].append(group)
        if not workload.cycle and not workload.ours:
            group = groups[Courier.name][-1]
            figures[SQLITE].append(_ceiling(_messages(group, workload), plan, root))

    for name, rounds in figures.items():
        if rounds:
            figure = comparison.figures[workload.name, name] = middle(rounds)
            note = _note(name, groups, workload)
            comparison.rows.append(Row(workload.name, name, figure, note=note))
        elif name != SQLITE:
            comparison.rows.append(Row(workload.name, name, note="not installed"))


def _run(
    contestant: Contestant, workload: Workload, plan: Plan, root: Path
) -> tuple[Figure, float | None]:
    """The figure, and for Courier itself how many calls shared a commit."""
    with tempfile.TemporaryDirectory(dir=root) as directory:
        server = contestant.start(Path(directory))
        with server.process as process:
            if isinstance(contestant, RedisPy):
                assert isinstance(server, RedisServer)
                return contestant.measure(server, workload, plan), None
            figure = measure(
                process,
                scripts(server, workload),
                warmup_s=plan.warmup_s,
                seconds=plan.seconds,
            )
            if isinstance(contestant, Courier):
                assert isinstance(server, CourierServer)
                return figure, server.calls_per_commit()
            return figure, None


def _ceiling(group: int, plan: Plan, root: Path) -> Figure:
    with tempfile.TemporaryDirectory(dir=root) as directory:
        return sqlite.measure(Path(directory), group=group, seconds=plan.seconds)


def _messages(calls_per_commit: float, workload: Workload) -> int:
    return max(1, round(calls_per_commit * workload.batch))


def _note(name: str, groups: Mapping[str, Sequence[float]], workload: Workload) -> str:
    if name == SQLITE:
        return f"{_messages(groups[Courier.name][-1], workload)} messages per commit"
    own = groups[name]
    return f"{sum(own) / len(own):.1f} calls per commit" if own else ""
