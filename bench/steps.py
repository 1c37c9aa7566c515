"""Microseconds of CPU per message and step of the hot path: `python -m bench.steps`.

The server of `counted.py`, without sockets, is looked at again and again while it runs: whichever
step it is in then. Time is that of the process, so a busy machine changes the figures little.
"""

import signal
import tempfile
import time
from collections import Counter
from pathlib import Path
from types import FrameType

import uvloop

from bench import counted

LOOK_EVERY_S = 0.001
# How long each load runs, so that there are enough looks.
PASSES = {"publish 64x1": 3_000, "cycle 64x1": 1_000, "publish 16x100": 150, "cycle 16x100": 100}
# The first that fits; what is in none of them is the loop or the bench's client.
STEPS = {
    "serving": ("connection.py", "reader.py", "heads.py", "incoming.py", "traffic.py"),
    "route and admission": ("courier/web.py", "admissions.py", "telemetry.py"),
    "JSON": ("dialects/json.py", "dialects/folding.py"),
    "dialect": ("dialects/", "long_texts.py"),
    "tokens and ids": ("courier/ids.py",),
    "broker": ("courier/core/", "courier/clock.py"),
    "group": ("engine/engine.py", "calls.py", "writer.py"),
    "engine": ("store/engine/",),
    "disk": ("store/disk_sqlite/",),
}
OTHERS = "loop and client"
LOADS = {load.name: load for load in counted.LOADS}


class Looks:
    """Where a load was when it was looked at. `mark` is called as `counted.py` would."""

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()
        self.cpu_s = 0.0
        self._marks = 0
        signal.signal(signal.SIGPROF, self._look)

    def mark(self) -> None:
        self._marks += 1
        if self._marks == 1:
            self.cpu_s = -time.process_time()
            signal.setitimer(signal.ITIMER_PROF, LOOK_EVERY_S, LOOK_EVERY_S)
        elif self._marks == 2:
            signal.setitimer(signal.ITIMER_PROF, 0)
            self.cpu_s += time.process_time()

    def _look(self, _: int, frame: FrameType | None) -> None:
        while frame is not None and "/src/courier/" not in frame.f_code.co_filename:
            frame = None if "/bench/" in frame.f_code.co_filename else frame.f_back
        self.seen[_step(frame.f_code.co_filename) if frame else OTHERS] += 1


def _step(file: str) -> str:
    return next((name for name, parts in STEPS.items() if any(p in file for p in parts)), OTHERS)


def measure(name: str, passes: int) -> dict[str, float]:
    """Microseconds per message, by step."""
    load = LOADS[name]._replace(passes=passes)
    looks = Looks()
    counted.LOADS, counted.mark = (load,), looks.mark  # type: ignore[assignment]
    with tempfile.TemporaryDirectory() as directory:
        uvloop.run(counted.main(Path(directory), [name], None))
    each_us = looks.cpu_s * 1e6 / load.messages / looks.seen.total()
    return {step: looks.seen[step] * each_us for step in (*STEPS, OTHERS)}


if __name__ == "__main__":
    found = {name: measure(name, passes) for name, passes in PASSES.items()}
    print(f"{'us per message':20}", *(f"{name:>15}" for name in found))
    for step in (*STEPS, OTHERS):
        print(f"{step:20}", *(f"{by_step[step]:15.2f}" for by_step in found.values()))
