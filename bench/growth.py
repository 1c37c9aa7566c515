"""What history costs the pipeline, and how old the newest rows of the lake are.

A run is measured without the start of Spark itself: from planning to the last table written.
Old events are those of messages that were published, pulled and acked, as they are in a broker
that keeps up.
"""

import signal
import subprocess
import sys
import time
from bisect import bisect_left
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import NamedTuple

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from bench.client import measured, move, undisturbed
from bench.comparison import say
from bench.courier import CourierServer
from bench.figure import percentile
from bench.lake import new_session
from bench.plan import Plan
from bench.table import Row
from bench.workload import WORKLOADS, scripts
from courier.lake.catalog import Lake
from courier.lake.client import Client, Place
from courier.lake.pipeline import LakePipeline

# One message that is published, pulled and acked is three of them.
EVENTS_EACH = 3
EVERY_S = 5
RATE = 2_000
_CLIENTS, _BATCH = 4, 50
_CYCLE = next(each for each in WORKLOADS if each.name == "cycle 16x100")
_WAIT_S_MAX = 120.0


class Growth(NamedTuple):
    """Seconds of a run on `new` events, by how many there were before."""

    new: int
    seconds: dict[int, float]

    def rows(self) -> list[Row]:
        return [
            Row(
                f"pipeline, {self.new:,} new events",
                "courier",
                note=f"{seconds:.2f} s with {old:,} old ones",
            )
            for old, seconds in self.seconds.items()
        ]

    @property
    def ratio(self) -> float:
        few, many = self.seconds.values()
        return many / few


class Freshness(NamedTuple):
    rate: float
    ages_s: list[float]  # from publish until a row is in the table

    @property
    def p95_s(self) -> float:
        return percentile(self.ages_s, 95)

    def rows(self) -> list[Row]:
        return [
            Row(
                f"publish to visible in events, --every {EVERY_S}s",
                "courier",
                note=f"p50 {percentile(self.ages_s, 50):.1f} s, p95 {self.p95_s:.1f} s, "
                f"max {max(self.ages_s):.1f} s at {self.rate:,.0f} messages/s",
            )
        ]


class Old(NamedTuple):
    """A server and its lake, which has so many events already."""

    events: int
    server: CourierServer
    lake: Lake

    def fill(self, events: int) -> None:
        move(self.server.process, scripts(self.server, _CYCLE), messages=events // EVENTS_EACH)

    @property
    def place(self) -> Place:
        url = f"http://127.0.0.1:{self.server.process.port}"
        return Place(url=url, token=self.server.credentials["admin"]["token"])

    def run(self, spark: SparkSession) -> float:
        began_s = time.perf_counter()
        LakePipeline(spark, self.lake, self.place, name="bench").run(every_ms=None)
        return time.perf_counter() - began_s


def measure_growth(directory: Path, plan: Plan) -> Growth:
    """In turns: Java gets faster the longer it runs, and would make either look better."""
    spark = new_session()
    lakes: list[Old] = []
    try:
        for events in plan.lake_old:
            say(f"{events:,} old events")
            home = directory / str(events)
            home.mkdir()
            lakes.append(Old(events, CourierServer(home), Lake(f"{home}/lake")))
            lakes[-1].fill(events)
            lakes[-1].run(spark)
        times_s: dict[int, list[float]] = {old.events: [] for old in lakes}
        for turn in range(max(2, plan.rounds)):
            for old in lakes:
                old.fill(plan.lake_new)
                times_s[old.events].append(old.run(spark))
                told = f"{plan.lake_new:,} new events with {old.events:,} old ones"
                say(f"{told}, run {turn + 1}: {times_s[old.events][-1]:.2f} s")
        return Growth(plan.lake_new, {old: median(found) for old, found in times_s.items()})
    finally:
        spark.stop()
        for old in lakes:
            old.server.process.stop()


def measure_freshness(directory: Path, plan: Plan) -> Freshness:
    server = CourierServer(directory)
    lake = directory / "lake"
    command = [sys.executable, "-m", "courier", "pipeline", "run", "--every", f"{EVERY_S}s"]
    command += ["--data", str(directory), "--lake", str(lake)]
    pipeline = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        log = lake / "events" / "_delta_log"
        _wait(lambda: len(list(log.glob("*.json"))) > 1, "the pipeline wrote nothing")
        say(f"{RATE:,} messages/s for {plan.fresh_seconds:.0f} s, pipeline beside it")
        figure = undisturbed(
            measured(
                server.process,
                [server.cycle(client, _BATCH) for client in range(_CLIENTS)],
                warmup_s=2 * EVERY_S,
                seconds=plan.fresh_seconds,
                every_s=_CLIENTS * _BATCH / RATE,
            )
        )
        last = _last(server)
        _wait(lambda: _commits(lake)[-1][0] >= last, "the pipeline did not come to the end")
    finally:
        pipeline.send_signal(signal.SIGTERM)
        pipeline.wait(_WAIT_S_MAX)
        server.process.stop()
    return Freshness(figure.rate, _ages(lake))


def _last(server: CourierServer) -> int:
    place = Place(f"http://127.0.0.1:{server.process.port}", server.credentials["admin"]["token"])
    with Client(place) as broker:
        return broker.head().last


def _wait(ready: Callable[[], bool], otherwise: str) -> None:
    deadline_s = time.monotonic() + _WAIT_S_MAX
    while not ready():
        if time.monotonic() > deadline_s:
            raise RuntimeError(otherwise)
        time.sleep(0.2)


def _commits(lake: Path) -> list[tuple[int, float]]:
    """The last offset that was in the table after each commit, and when that was."""
    table = DeltaTable(f"{lake}/events")
    found = []
    for commit in table.history():
        file = lake / "events" / "_delta_log" / f"{commit['version']:020d}.json"
        if "courier.upto" in commit and file.exists():
            found.append((int(commit["courier.upto"]), file.stat().st_mtime))
    return sorted(found) or [(0, 0.0)]


def _ages(lake: Path) -> list[float]:
    rows = DeltaTable(f"{lake}/events").to_pyarrow_table(
        columns=["offset", "at"], filters=[("kind", "=", "published")]
    )
    commits = _commits(lake)
    offsets = [upto for upto, _ in commits]
    at_us = rows["at"].cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_pylist()
    pairs = zip(rows["offset"].to_pylist(), at_us, strict=True)
    return [commits[bisect_left(offsets, offset)][1] - us / 1e6 for offset, us in pairs]
