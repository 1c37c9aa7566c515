"""What a long life costs the pipeline: many commits, many files, and many that were replaced.

The logs are made as they would be, with the pipeline's own upkeep: of the commits, an hour's are
kept, and files that were replaced are remembered for a day.
"""

import itertools
import json
import os
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from deltalake.transaction import AddAction, RemoveAction
from pyspark.sql import SparkSession

from bench.client import move
from bench.comparison import say
from bench.courier import CourierServer
from bench.growth import EVENTS_EACH, Old
from bench.lake import new_session
from bench.plan import Plan
from bench.table import Row
from courier.clock import SystemClock
from courier.lake.catalog import LIVE, Lake
from courier.lake.log import HEAD, LOG
from courier.lake.pipeline import UPKEEP_BATCHES, LakePipeline
from courier.lake.tables import CHECKPOINT_COMMITS, Table
from courier.lake.upkeep import FILE_BYTES

# A batch every 5 s: as many commits in an hour, and in a day.
HOUR_COMMITS, DAY_COMMITS = 720, 17_280
# 100M events are about 12 GB; two small files of each batch are compacted into files of 64 MB.
DAY_FILES, DAY_REPLACED = 200, 2 * DAY_COMMITS
ACTIONS_EACH = 5_000
FIRST_EVENTS = 300
LONG_AGO = "2001-01-01"
# What lists a log, or reads what is new in it.
LOG_CALLS = ("update_incremental", "history", "scandir", "listdir")


class Past(NamedTuple):
    """What happened to a table before: commits, files that are there, files that were."""

    name: str
    commits: int
    files: int = 0
    replaced: int = 0


FEW = Past("100 commits", 100)
MANY = Past("100,000 commits", 100_000)
DAY = Past("a day of 100M events", DAY_COMMITS, DAY_FILES, DAY_REPLACED)


class Cost(NamedTuple):
    """What one batch took: seconds of this process' CPU, reads of files and sockets, calls of
    Python functions, and calls that list a log or read what is new in it.

    Batches are so small that Java has no part in them.
    """

    seconds: float
    reads: float
    calls: float
    looks: float

    def __str__(self) -> str:
        return (
            f"{self.seconds * 1000:.0f} ms CPU, {self.reads:,.0f} reads, {self.calls:,.0f} calls, "
            f"{self.looks:.1f} of them list a log"
        )


class Aging(NamedTuple):
    """What a batch of `new` events into all tables costs, by what was before.

    The least of all turns: others may use the machine meanwhile, and only ever add to it.
    """

    new: int
    costs: dict[str, Cost]

    def rows(self) -> list[Row]:
        return [
            Row(f"a batch of {self.new:,} events", "courier", note=f"{cost}, {past}")
            for past, cost in self.costs.items()
        ]

    def ratio(self, past: Past) -> float:
        return self.costs[past.name].seconds / self.costs[FEW.name].seconds

    def calls_ratio(self, past: Past) -> float:
        return self.costs[past.name].calls / self.costs[FEW.name].calls


class Batches:
    """One pipeline at work on a lake, batch by batch, as a query that runs for long has it."""

    def __init__(self, old: Old, spark: SparkSession) -> None:
        self._old = old
        self._pipeline = LakePipeline(spark, old.lake, old.place, name="bench")
        self._pipeline.check()
        self._numbers = itertools.count(1)

    def timed(self, events: int) -> tuple[float, float]:
        """Seconds and reads of a batch, on average of as many as there is upkeep with the last."""
        seconds = reads = 0.0
        for _ in range(UPKEEP_BATCHES):
            _fill(self._old, events)
            before_s, before = time.process_time(), _reads()
            self._batch()
            seconds, reads = seconds + time.process_time() - before_s, reads + _reads() - before
        return seconds / UPKEEP_BATCHES, reads / UPKEEP_BATCHES

    def counted(self, events: int) -> tuple[float, float]:
        """Calls of a batch, and those that look at a log; as many batches as above."""
        calls = looks = 0

        def profile(_: FrameType, event: str, what: Any) -> None:
            nonlocal calls, looks
            calls += event == "call"
            looks += event == "c_call" and what.__name__ in LOG_CALLS

        for _ in range(UPKEEP_BATCHES):
            _fill(self._old, events)
            sys.setprofile(profile)
            try:
                self._batch()
            finally:
                sys.setprofile(None)
        return calls / UPKEEP_BATCHES, looks / UPKEEP_BATCHES

    def _batch(self) -> None:
        self._pipeline._bring(next(self._numbers))


def measure_aging(directory: Path, plan: Plan) -> Aging:
    spark = new_session()
    lakes: list[Old] = []
    try:
        batches: dict[str, Batches] = {}
        for number, past in enumerate((FEW, MANY, DAY)):
            say(f"a lake after {past.name}")
            home = directory / str(number)
            home.mkdir()
            lakes.append(Old(0, CourierServer(home), Lake(f"{home}/lake")))
            lakes[-1] = _aged(lakes[-1], past, spark)
            batches[past.name] = Batches(lakes[-1], spark)
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in batches}
        # The first turn warms up.
        for turn in range(plan.rounds + 1):
            for name, each in batches.items():
                seconds, reads = each.timed(plan.lake_few)
                say(f"after {name}, turn {turn}: {seconds * 1000:.0f} ms CPU, {reads:.0f} reads")
                times[name] += [(seconds, reads)] if turn else []
        counts = {name: each.counted(plan.lake_few) for name, each in batches.items()}
        costs = {name: Cost(*min(times[name]), *counts[name]) for name in batches}
        return Aging(plan.lake_few, costs)
    finally:
        spark.stop()
        for old in lakes:
            old.server.process.stop()


def _reads() -> int:
    """Calls of this process that read."""
    told = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(told["syscr"])


def _fill(old: Old, events: int) -> None:
    """By one client in calls of so many messages: others would add theirs."""
    messages = events // EVENTS_EACH
    move(old.server.process, [old.server.cycle(0, messages)], messages=messages)


def _aged(old: Old, past: Past, spark: SparkSession) -> Old:
    _fill(old, FIRST_EVENTS)
    old.run(spark)
    for table in old.lake.tables:
        _add(table, past)
        _renumber(table, past.commits)
    return old._replace(lake=Lake(old.lake.root))


def _add(table: Table, past: Past) -> None:
    """Files of long ago, links to one that nobody reads, and files that are there no more.

    It is as large as compaction leaves alone.
    """
    opened, now_ms = table.open(), SystemClock().now_ms()
    file = next(each for each in table.files() if LIVE not in each.partition.values())
    (partition,) = table.partition_by
    folder = f"data/{partition}={LONG_AGO}"
    Path(table.uri, folder).mkdir(parents=True, exist_ok=True)
    large = Path(table.uri, folder, "large")
    large.touch()
    os.truncate(large, FILE_BYTES)
    actions: list[AddAction | RemoveAction] = []
    for number in range(past.files):
        path = f"{folder}/old-{number}.parquet"
        os.link(large, f"{table.uri}/{path}")
        times = {name: f"{LONG_AGO}T00:00:00.000Z" for name in file.low if name != "offset"}
        ends = {**times, **({"offset": -number} if "offset" in file.low else {})}
        stats = {"numRecords": file.rows, "minValues": ends, "maxValues": ends, "nullCount": {}}
        values = {partition: LONG_AGO}
        actions.append(AddAction(path, FILE_BYTES, values, now_ms, True, json.dumps(stats)))
    for number in range(past.replaced):
        path = f"{folder}/gone-{number}.parquet"
        actions.append(RemoveAction(path, True, now_ms, file.size, {partition: LONG_AGO}))
    for first in range(0, len(actions), ACTIONS_EACH):
        assert opened is not None
        opened.create_write_transaction(
            actions[first : first + ACTIONS_EACH],
            mode="append",
            schema=opened.schema(),
            partition_by=table.partition_by,
        )
        opened.update_incremental()


def _renumber(table: Table, commits: int) -> None:
    """The log as it is after that many commits, of which the last changed nothing."""
    opened = table.open()
    assert opened is not None
    opened.create_checkpoint()
    log = Path(table.uri, LOG)
    version = opened.version()
    state = (log / f"{version:020d}.checkpoint.parquet").read_bytes()
    texts = [each.read_text() for each in sorted(log.glob("*.json"))]
    info = json.loads([text for text in texts if "courier.upto" in text][-1].splitlines()[0])
    info["commitInfo"].pop("courier_actions", None)
    told = json.loads((log / "_last_checkpoint").read_text())
    for each in log.iterdir():
        each.unlink()
    base = max(0, commits - HOUR_COMMITS)
    for number in range(base, commits + 1):
        if number in (base, number // CHECKPOINT_COMMITS * CHECKPOINT_COMMITS):
            (log / f"{number:020d}.checkpoint.parquet").write_bytes(state)
            told["version"] = number
        if number > base:
            step = {"txn": {"appId": "bench", "version": number, "lastUpdated": None}}
            lines = [json.dumps(info), json.dumps(step)]
            (log / f"{number:020d}.json").write_text("\n".join(lines))
    (log / "_last_checkpoint").write_text(json.dumps(told))
    # Later ones would be taken for what a power cut has left.
    Path(table.uri, HEAD).write_text(json.dumps({"version": commits}))
