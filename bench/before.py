"""This tree beside an earlier commit, in turns: what changes since then cost in speed."""

import io
import subprocess
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from bench.client import measure
from bench.comparison import say
from bench.courier import CourierServer
from bench.figure import Figure, middle
from bench.plan import Plan
from bench.table import Row
from bench.workload import WORKLOADS, Workload, scripts

NOW = "now"
# Those that every broker is asked for.
MEASURED = tuple(workload for workload in WORKLOADS if not workload.ours)
_ROOT = Path(__file__).resolve().parent.parent


class Before(NamedTuple):
    """The figures of this tree and of the commit, by workload."""

    commit: str
    now: dict[str, Figure]
    before: dict[str, Figure]

    def rows(self) -> list[Row]:
        return [
            Row(workload.name, who, figures[workload.name])
            for workload in MEASURED
            if workload.name in self.now
            for who, figures in ((NOW, self.now), (self.commit, self.before))
        ]


def export(commit: str, directory: Path) -> Path:
    """The sources of a commit of this repository, unpacked; needs nothing to be built."""
    asked = ["git", "-C", str(_ROOT), "archive", "--format=tar", commit, "src"]
    packed = subprocess.run(asked, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(directory, filter="data")
    return directory / "src"


def compare(
    commit: str, plan: Plan, root: Path, workloads: Sequence[Workload] = MEASURED
) -> Before:
    """Both run on the packages that are installed for this tree."""
    found = Before(commit, {}, {})
    with tempfile.TemporaryDirectory(dir=root) as directory:
        sources = {NOW: _ROOT / "src", commit: export(commit, Path(directory))}
        for workload in workloads:
            figures: dict[str, list[Figure]] = {who: [] for who in sources}
            for turn in range(plan.before_rounds):
                # Each is the first as often as the other.
                for who in sorted(sources, reverse=turn % 2 == 0):
                    say(f"{workload.name}, {who}, round {turn + 1} of {plan.before_rounds}")
                    figures[who].append(_run(sources[who], workload, plan, root))
            found.now[workload.name] = middle(figures[NOW])
            found.before[workload.name] = middle(figures[commit])
    return found


def _run(source: Path, workload: Workload, plan: Plan, root: Path) -> Figure:
    with tempfile.TemporaryDirectory(dir=root) as directory:
        server = CourierServer(Path(directory), source=source)
        with server.process as process:
            return measure(
                process,
                scripts(server, workload),
                warmup_s=plan.warmup_s,
                seconds=plan.seconds,
            )
