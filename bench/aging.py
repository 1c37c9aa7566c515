"""What a long life costs the pipeline: many commits, many files, and many that were replaced.

The logs are made as they would be, with the pipeline's own upkeep: of the commits, an hour's are
kept, and files that were replaced are remembered for a day.
"""

import json
import os
from pathlib import Path
from statistics import median
from typing import NamedTuple

from deltalake.transaction import AddAction, RemoveAction
from pyspark.sql import SparkSession

from bench.comparison import say
from bench.courier import CourierServer
from bench.growth import Old
from bench.lake import new_session
from bench.plan import Plan
from bench.table import Row
from courier.clock import SystemClock
from courier.lake.catalog import LIVE, Lake
from courier.lake.log import LOG
from courier.lake.tables import CHECKPOINT_COMMITS, Table

# A batch every 5 s: as many commits in an hour, and in a day.
HOUR_COMMITS, DAY_COMMITS = 720, 17_280
# 100M events are about 12 GB; two small files of each batch are compacted into files of 64 MB.
DAY_FILES, DAY_REPLACED = 200, 2 * DAY_COMMITS
ACTIONS_EACH = 5_000
FIRST_EVENTS = 3_000
LONG_AGO = "2001-01-01"


class Past(NamedTuple):
    """What happened to a table before: commits, files that are there, files that were."""

    name: str
    commits: int
    files: int = 0
    replaced: int = 0


FEW = Past("100 commits", 100)
MANY = Past("100,000 commits", 100_000)
DAY = Past("a day of 100M events", DAY_COMMITS, DAY_FILES, DAY_REPLACED)


class Aging(NamedTuple):
    """Seconds of a run on `new` events, by what was before."""

    new: int
    seconds: dict[str, float]

    def rows(self) -> list[Row]:
        return [
            Row(f"pipeline, {self.new:,} new events", "courier", note=f"{each:.2f} s after {past}")
            for past, each in self.seconds.items()
        ]

    def ratio(self, past: Past) -> float:
        return self.seconds[past.name] / self.seconds[FEW.name]


def measure_aging(directory: Path, plan: Plan) -> Aging:
    spark = new_session()
    lakes: dict[str, Old] = {}
    try:
        for number, past in enumerate((FEW, MANY, DAY)):
            say(f"a lake after {past.name}")
            home = directory / str(number)
            home.mkdir()
            lakes[past.name] = _aged(Old(0, CourierServer(home), Lake(f"{home}/lake")), past, spark)
        times_s: dict[str, list[float]] = {name: [] for name in lakes}
        # The first turn is Java's.
        for turn in range(2 * plan.rounds + 2):
            for name, old in lakes.items():
                old.fill(plan.lake_few)
                seconds = old.run(spark)
                say(f"{plan.lake_few:,} new events after {name}, run {turn}: {seconds:.2f} s")
                times_s[name] += [seconds] if turn else []
        return Aging(plan.lake_few, {name: median(found) for name, found in times_s.items()})
    finally:
        spark.stop()
        for old in lakes.values():
            old.server.process.stop()


def _aged(old: Old, past: Past, spark: SparkSession) -> Old:
    old.fill(FIRST_EVENTS)
    old.run(spark)
    for table in old.lake.tables:
        _add(table, past)
        _renumber(table, past.commits)
    return old._replace(lake=Lake(old.lake.root))


def _add(table: Table, past: Past) -> None:
    """Files of long ago, which are links to one that is there, and files that are there no more."""
    opened, now_ms = table.open(), SystemClock().now_ms()
    file = next(each for each in table.files() if LIVE not in each.partition.values())
    (partition,) = table.partition_by
    folder = f"data/{partition}={LONG_AGO}"
    Path(table.uri, folder).mkdir(parents=True, exist_ok=True)
    actions: list[AddAction | RemoveAction] = []
    for number in range(past.files):
        path = f"{folder}/old-{number}.parquet"
        os.link(f"{table.uri}/{file.path}", f"{table.uri}/{path}")
        times = {name: f"{LONG_AGO}T00:00:00.000Z" for name in file.low if name != "offset"}
        ends = {**times, **({"offset": -number} if "offset" in file.low else {})}
        stats = {"numRecords": file.rows, "minValues": ends, "maxValues": ends, "nullCount": {}}
        values = {partition: LONG_AGO}
        actions.append(AddAction(path, file.size, values, now_ms, True, json.dumps(stats)))
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
