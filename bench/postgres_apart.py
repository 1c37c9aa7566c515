"""Two servers with a queue each on one PostgreSQL beside one server, over HTTP.

Groups of all servers follow each other, so what a second server adds is cores for HTTP and JSON.
Where there are too few of them for two servers, their database and the load, each server is given
a part of one: then it is the servers' cores that are short, as on machines of their own.
"""

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.postgres import Database

from bench import http
from bench.bars import Bar, ratio
from bench.client import measured, undisturbed
from bench.comparison import say
from bench.courier import CourierServer, Queue
from bench.figure import Figure, middle
from bench.plan import Plan
from bench.process import Process, free_port
from bench.table import Row
from courier.sealing import new_key

NAME = "postgres, servers with a queue each"
CALLERS, BATCH = 64, 1
# One for each server, one for the database, one for the load, and some for the disk and all else.
CORES_MIN = 6
# Of a core, for each server, where there are fewer.
PART = 0.25
_GROUPS = Path("/sys/fs/cgroup")
# A quota is at least a millisecond.
_PERIOD_US = 4_000


class Apart:
    """How many servers -> what they cycle together."""

    def __init__(self, figures: dict[int, Figure], part: float | None) -> None:
        self.figures = figures
        self.part = part

    def rows(self) -> list[Row]:
        of = f", {self.part} of a core each" if self.part else ""
        return [Row(NAME, f"{count}{of}", figure) for count, figure in self.figures.items()]

    def bars(self) -> list[Bar]:
        if self.part is None and not _enough_cores():
            return []
        two, one = self.figures[2].rate, self.figures[1].rate
        return [Bar(f"{NAME}, two beside one", ratio(two, one), 1.2, "x")]


def _enough_cores() -> bool:
    return (os.cpu_count() or 1) >= CORES_MIN


def measure(plan: Plan, root: Path) -> Apart:
    """`root`: a directory for the servers' data."""
    part = None if _enough_cores() or not _may_limit() else PART
    os.environ["COURIER_ENCRYPTION_KEYS"] = new_key()
    database = Database("checkpoint_timeout=1h", "max_wal_size=20GB")
    found: dict[int, list[Figure]] = {1: [], 2: []}
    try:
        with Pair(database.url("courier"), root, part) as pair:
            for turn in range(plan.rounds):
                say(f"{NAME}, round {turn + 1} of {plan.rounds}")
                for count, figures in found.items():
                    figures.append(pair.together(count, plan))
    finally:
        database.remove()
        del os.environ["COURIER_ENCRYPTION_KEYS"]
    return Apart({count: middle(figures) for count, figures in found.items()}, part)


class Pair:
    """Two servers of one database; the second idles while the first is measured alone."""

    def __init__(self, url: str, root: Path, part: float | None) -> None:
        self._store = ("--store", url)
        self._root = root
        self._part = part
        self._started = ExitStack()

    def __enter__(self) -> "Pair":
        one, two = self._root / "one", self._root / "two"
        init = [sys.executable, "-m", "courier", "init", *self._store, "--data", str(one)]
        subprocess.run(init, check=True, stdout=subprocess.DEVNULL)
        two.mkdir()
        shutil.copy(one / "credentials.json", two)
        first = CourierServer(one, args=self._store)
        self._started.enter_context(first.process)
        second = self._started.enter_context(self._second(two))
        self._of: list[tuple[Process, Queue]] = [
            (first.process, first.queue),
            (second, first.new_queue("second")),
        ]
        if self._part:
            for process, _ in self._of:
                self._started.enter_context(_limited(process, self._part))
        return self

    def _second(self, directory: Path) -> Process:
        port = free_port()
        where = ["--host", "127.0.0.1", "--port", str(port), "--data", str(directory)]
        command = [sys.executable, "-m", "courier", "serve", *where, *self._store]
        process = Process(command, port=port, directory=directory)
        process.wait_until(lambda: http.is_ready(port))
        return process

    def __exit__(self, *_: object) -> None:
        self._started.close()

    def together(self, count: int, plan: Plan) -> Figure:
        async def all_of_them() -> list[Figure]:
            loads = [
                measured(
                    process,
                    [queue.cycling(BATCH)] * CALLERS,
                    warmup_s=plan.warmup_s,
                    seconds=plan.seconds,
                )
                for process, queue in self._of[:count]
            ]
            return await asyncio.gather(*loads)

        figures = undisturbed(all_of_them())
        rate = sum(figure.rate for figure in figures)
        # The load is one process, whose time each has counted as its own.
        return middle(figures)._replace(rate=rate)


def _may_limit() -> bool:
    try:
        with _limits(PART):
            return True
    except OSError:
        return False


@contextmanager
def _limits(part: float) -> Iterator[Path]:
    """A group of processes that gets no more than this part of a core. Raises OSError."""
    old = _GROUPS / "cpu"
    group = (old if old.is_dir() else _GROUPS) / f"courier-bench-{os.urandom(4).hex()}"
    group.mkdir()
    try:
        quota_us = int(part * _PERIOD_US)
        if old.is_dir():
            (group / "cpu.cfs_period_us").write_text(str(_PERIOD_US))
            (group / "cpu.cfs_quota_us").write_text(str(quota_us))
        else:
            (group / "cpu.max").write_text(f"{quota_us} {_PERIOD_US}")
        yield group
    finally:
        group.rmdir()


@contextmanager
def _limited(process: Process, part: float) -> Iterator[None]:
    with _limits(part) as group:
        (group / "cgroup.procs").write_text(str(process.pid))
        try:
            yield
        finally:
            (group.parent / "cgroup.procs").write_text(str(process.pid))
