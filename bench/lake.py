"""The Spark side: reading the journal, the events table, publishing, and how the cost grows.

Server and Spark share the machine, as they do by default. Every rate is of rows; what is compared
reads or writes the same rows, in turns.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession

from bench.client import measure, move
from bench.comparison import say
from bench.courier import CourierServer
from bench.json_source import JsonSource
from bench.plan import Plan
from bench.table import Row
from bench.workload import WORKLOADS, scripts
from courier.lake.catalog import Lake
from courier.lake.client import Client, Place, Slice
from courier.lake.session import session
from courier.lake.tasks import JournalPages

PARTS = 2
READ = "journal into Spark"
EVENTS = "journal to the events table"
PUBLISH = "publish from Spark"
ARROW, JSON, PARQUET = "courier", "the same with JSON pages", "Spark from Parquet"
RAW = "publish 16x100 without Spark"
_PUBLISH = next(load for load in WORKLOADS if load.name == "publish 16x100")


class Lakes(NamedTuple):
    """Rows per second, by what is done and who does it."""

    rows_of: dict[str, int]
    rates: dict[tuple[str, str], float]

    def rows(self) -> list[Row]:
        return [
            Row(what, who, note=f"{rate:,.0f} rows/s, {self.rows_of[what]:,} rows")
            for (what, who), rate in self.rates.items()
        ]


def new_session() -> SparkSession:
    # Spark's Python workers find the bench's own source where this process found it.
    here = str(Path(__file__).resolve().parent.parent)
    os.environ["PYTHONPATH"] = os.pathsep.join([here, os.environ.get("PYTHONPATH", "")])
    spark = session("bench", master=f"local[{PARTS}]", settings={"spark.driver.memory": "4g"})
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(JsonSource)
    return spark


def measure_rates(directory: Path, plan: Plan) -> Lakes:
    server = CourierServer(directory)
    spark = new_session()
    try:
        return _Trial(server, spark, directory, plan).run()
    finally:
        spark.stop()
        server.process.stop()


class _Trial:
    def __init__(
        self, server: CourierServer, spark: SparkSession, directory: Path, plan: Plan
    ) -> None:
        self._server = server
        self._spark = spark
        self._directory = directory
        self._plan = plan
        self._numbers = 0
        self._url = f"http://127.0.0.1:{server.process.port}"
        self._token: str = server.credentials["admin"]["token"]

    def run(self) -> Lakes:
        rows = self._plan.lake_rows
        say(f"filling the journal with {rows:,} events")
        # Equal bodies would cost Parquet, which keeps equal values once, next to nothing.
        fill = self._server.queue.filling(_PUBLISH.batch)
        move(self._server.process, [fill] * _PUBLISH.clients, messages=rows)
        plain = f"{self._directory}/plain"
        self._journal().write.parquet(plain)
        rows = self._spark.read.parquet(plain).count()
        contests: dict[tuple[str, str], Callable[[], float]] = {
            (READ, ARROW): lambda: rows / _noop(self._journal()),
            (READ, JSON): lambda: rows / _noop(self._json(rows)),
            (READ, PARQUET): lambda: rows / _noop(self._spark.read.parquet(plain)),
            (EVENTS, ARROW): lambda: rows / self._archive(),
            (EVENTS, PARQUET): lambda: rows / self._copy(plain),
            (PUBLISH, ARROW): lambda: self._publish(plain),
            (PUBLISH, RAW): self._raw,
        }
        rates: dict[tuple[str, str], list[float]] = {key: [] for key in contests}
        for turn in range(self._plan.rounds):
            for (what, who), contest in contests.items():
                say(f"{what}, {who}, round {turn + 1} of {self._plan.rounds}")
                rates[what, who].append(contest())
        counts = {READ: rows, EVENTS: rows, PUBLISH: self._plan.lake_published}
        return Lakes(counts, {key: median(found) for key, found in rates.items()})

    def _journal(self) -> DataFrame:
        reader = self._spark.read.format("courier").option("url", self._url)
        return reader.option("token", self._token).option("numPartitions", PARTS).load()

    def _json(self, last: int) -> DataFrame:
        reader = self._spark.read.format("courier_json").option("url", self._url)
        reader = reader.option("token", self._token).option("last", last)
        return reader.option("parts", PARTS).load()

    def _archive(self) -> float:
        """What the pipeline does with a batch's events, all of them in one."""
        table = Lake(self._new("lake")).events
        place = Place(self._url, self._token)
        began_s = time.perf_counter()
        with Client(place) as broker:
            head = broker.head()
        part = Slice(head.epoch, head.first - 1, head.last)
        written = table.write(JournalPages(self._spark, place, part), batch=0, files_max=PARTS)
        assert table.commit(written, app="bench", batch=0)
        return time.perf_counter() - began_s

    def _copy(self, plain: str) -> float:
        began_s = time.perf_counter()
        dated = self._spark.read.parquet(plain).selectExpr("*", "to_date(at) AS date")
        dated.coalesce(PARTS).write.partitionBy("date").parquet(self._new("copy"))
        return time.perf_counter() - began_s

    def _publish(self, plain: str) -> float:
        """Rows per second; they lie in memory, so that only publishing them is measured."""
        queue = Path(self._new("from-spark")).name
        self._server.new_queue(queue)
        bodies = self._spark.read.parquet(plain).where("kind = 'published'").select("body")
        chosen = bodies.limit(self._plan.lake_published).repartition(PARTS).cache()
        count = chosen.count()
        writer = chosen.write.format("courier").option("url", self._url).mode("append")
        writer = writer.option("token", self._token).option("queue", queue)
        began_s = time.perf_counter()
        writer.save()
        elapsed_s = time.perf_counter() - began_s
        chosen.unpersist()
        return count / elapsed_s

    def _new(self, name: str) -> str:
        self._numbers += 1
        return f"{self._directory}/{name}-{self._numbers}"

    def _raw(self) -> float:
        figure = measure(
            self._server.process,
            scripts(self._server, _PUBLISH),
            warmup_s=self._plan.warmup_s,
            seconds=self._plan.seconds,
        )
        return figure.rate


def _noop(rows: DataFrame) -> float:
    """Seconds to read them all and keep nothing."""
    began_s = time.perf_counter()
    rows.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - began_s
