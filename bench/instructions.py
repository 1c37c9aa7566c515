"""Instructions per message, counted by callgrind: a figure that a busy machine does not spoil.

The server and its clients run in one process (`counted.py`), which marks where one part of its
work ends and the next begins; the clients' own instructions are counted apart and taken off. What
the kernel and the disk do is not in the figure.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from bench.bars import Bar
from bench.counted import LOADS, MARK, Load

# Instructions per message, as the bars ask for them.
BARS = {
    "publish 64x1": 120_000,
    "cycle 64x1": 480_000,
    "publish 16x100": 16_000,
    "cycle 16x100": 50_000,
}
NAMES = tuple([load.name for load in LOADS])
RUN_S_MAX = 600
_TOTALS = re.compile(rb"^totals: (\d+)", re.MULTILINE)
_COUNTS = re.compile(r"\.(\d+)$")
# Counts of each load: warming up, passes, what lies between, clients alone.
_PARTS = 4


class NotCounted(Exception):
    """The counts are not what was asked for."""


class Count(NamedTuple):
    """Of one load: instructions of the server, and of its clients, over all messages."""

    load: Load
    server: int
    clients: int

    @property
    def per_message(self) -> int:
        return round(self.server / self.load.messages)

    def __str__(self) -> str:
        per, client = self.per_message, round(self.clients / self.load.messages)
        return f"{per:,} instructions per message (clients: {client:,} more)"


def installed() -> bool:
    return all(map(shutil.which, ("valgrind", "vgdb")))


def count(directory: Path, names: Sequence[str] = NAMES) -> list[Count]:
    """Run the loads under callgrind, with everything that is written below the directory."""
    out, go = directory / "counts", directory / "go"
    counted = subprocess.Popen(
        [
            *("valgrind", "--tool=callgrind", "--instr-atstart=no", f"--dump-before={MARK}"),
            *(f"--callgrind-out-file={out}", f"--vgdb-prefix={directory / 'vgdb'}"),
            *(sys.executable, "-m", "bench.counted", str(directory), str(go), *names),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={"PYTHONHASHSEED": "0", "PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"},
        cwd=Path(__file__).parents[1],
    )
    try:
        assert counted.stdout is not None
        if counted.stdout.readline() != b"ready\n":
            raise NotCounted(counted.communicate(timeout=RUN_S_MAX)[1].decode(errors="replace"))
        subprocess.run(
            [
                *("vgdb", f"--vgdb-prefix={directory / 'vgdb'}", f"--pid={counted.pid}"),
                *("--max-invoke-ms=0", "instrumentation", "on"),
            ],
            check=True,
            capture_output=True,
            timeout=RUN_S_MAX,
        )
        go.touch()
        _, errors = counted.communicate(timeout=RUN_S_MAX)
    finally:
        counted.kill()
    if counted.returncode:
        raise NotCounted(errors.decode(errors="replace"))
    return _counts(out, [load for load in LOADS if load.name in names])


def _counts(out: Path, loads: Sequence[Load]) -> list[Count]:
    """What was counted between marks, in the order in which the loads ran."""
    numbered = {
        int(match[1]): file
        for file in out.parent.glob(f"{out.name}.*")
        if (match := _COUNTS.search(file.name))
    }
    totals = [_total(numbered[number]) for number in sorted(numbered)]
    if len(totals) < _PARTS * len(loads):
        raise NotCounted(f"{len(totals)} counts of {_PARTS * len(loads)}")
    counts = []
    for place, load in enumerate(loads):
        both, _, clients = totals[_PARTS * place + 1 : _PARTS * (place + 1)]
        counts.append(Count(load, both - clients, clients))
    return counts


def _total(file: Path) -> int:
    found = _TOTALS.search(file.read_bytes())
    if found is None:
        raise NotCounted(f"no total in {file.name}")
    return int(found[1])


def bars(counts: Sequence[Count]) -> list[Bar]:
    return [
        Bar(
            f"{count.load.name}: instructions per message",
            count.per_message / 1_000,
            BARS[count.load.name] / 1_000,
            "k",
            at_most=True,
        )
        for count in counts
        if count.load.name in BARS
    ]
