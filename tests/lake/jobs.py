"""A job that tests kill: three queries beside each other, through the source as it is.

`publish` makes a message of every line of the files in a folder, `consume` writes the messages of
a queue into files, and `read` the offsets of the journal; a file is named after its batch. Each
dies where it is told to, see `dying`.
"""

import json
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition, WriterCommitMessage
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from courier.lake.consume import QueueStreamReader
from courier.lake.session import session
from courier.lake.sink import QueueStreamWriter
from courier.lake.source import CourierDataSource, JournalStreamReader
from tests.lake.dying import passes

FINISHED_S_MAX = 300
# Longer than it takes to start a job on a busy machine.
LEASE_MS = 180_000
NAMES = ("publish", "consume", "read")
POINTS = (
    "publish: before a task",
    "publish: within a task",
    "publish: after a task",
    "publish: before the commit",
    "publish: after the commit",
    "consume: after the claim",
    "consume: after planning",
    "consume: before the file",
    "consume: after the file",
    "consume: before the ack",
    "consume: after the ack",
    "read: after planning",
    "read: before the file",
    "read: after the file",
    "read: before the source commit",
    "read: after the source commit",
)
EVERY_MS = 200
ONCE = "once"
POLL_S = 0.05
# In a batch of a job that is to die, so that there are many; who only ends it all takes more.
FILES_MAX, MESSAGES_MAX, EVENTS_MAX = 6, 100, 1000
TIMES_MORE = 20


class Writer(QueueStreamWriter):
    home = ""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        passes(self.home, "publish: before a task")
        written = super().write(self._watched(iterator))
        passes(self.home, "publish: after a task")
        return written

    def _watched(self, iterator: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(iterator):
            if number:
                passes(self.home, "publish: within a task")
            yield batch

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        passes(self.home, "publish: before the commit")
        super().commit(messages, batchId)
        passes(self.home, "publish: after the commit")


class Consumer(QueueStreamReader):
    home = ""

    def latestOffset(
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        end = super().latestOffset(start, limit)
        # Before its first batch a query has no name that would outlive it: see `docs/spark.md`.
        if start is not None and start["batch"] and end != start:
            passes(self.home, "consume: after the claim")
        return end

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        parts = super().partitions(start, end)
        passes(self.home, "consume: after planning")
        return parts

    def _ack(self, claim: str) -> None:
        if claim:
            passes(self.home, "consume: before the ack")
        super()._ack(claim)
        if claim:
            passes(self.home, "consume: after the ack")

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "home": self.home}


class Reader(JournalStreamReader):
    home = ""

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        parts = super().partitions(start, end)
        passes(self.home, "read: after planning")
        return parts

    def commit(self, end: dict[str, Any]) -> None:
        passes(self.home, "read: before the source commit")
        super().commit(end)
        passes(self.home, "read: after the source commit")


class Mortal(CourierDataSource):
    """`format("mortal")`: the source, in objects that know where to die."""

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self._home = self.options.pop("home")

    @classmethod
    def name(cls) -> str:
        return "mortal"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        made: Any = super().streamReader(schema)
        made.__class__ = Consumer if isinstance(made, QueueStreamReader) else Reader
        made.home = self._home
        return made  # type: ignore[no-any-return]

    def streamWriter(self, schema: StructType, overwrite: bool) -> QueueStreamWriter:
        made: Any = super().streamWriter(schema, overwrite)
        made.__class__ = Writer
        made.home = self._home
        return made  # type: ignore[no-any-return]


def into_files(rows: DataFrame, home: str, name: str, line: str) -> Any:
    folder = Path(home) / name

    def keep(batch: DataFrame, number: int) -> None:
        lines = [row[0] for row in batch.selectExpr(line).collect()]
        passes(home, f"{name}: before the file")
        part = folder / f"{number}.part"
        part.write_text("".join(f"{each}\n" for each in lines))
        part.rename(folder / f"{number}.txt")
        passes(home, f"{name}: after the file")

    return rows.writeStream.foreachBatch(keep)


def run(spark: SparkSession, home: str, shared: dict[str, str], *, every_ms: int | None) -> None:
    """Until all is done that is there; or, given a time, whatever comes, for ever."""
    shared = {**shared, "home": home}
    spark.dataSource.register(Mortal)
    asked: dict[str, Any] = {"availableNow": True}
    if every_ms is not None:
        asked = {"processingTime": f"{every_ms} milliseconds"}
    more = TIMES_MORE if every_ms is None else 1
    queries = []
    for name, make in {"publish": publish, "consume": consume, "read": read}.items():
        writer = make(spark, home, shared, more).trigger(**asked)
        writer = writer.queryName(f"{name} once")
        writer = writer.option("checkpointLocation", f"{home}/checkpoint-{name}")
        query = writer.start()
        queries.append(query)
        # Spark gives the worker of a source ten seconds to start, so they start one by one.
        deadline_s = time.monotonic() + FINISHED_S_MAX
        while query.isActive and query.status["message"].startswith("Initializing"):
            assert time.monotonic() < deadline_s
            time.sleep(POLL_S)
    try:
        if every_ms is not None:
            spark.streams.awaitAnyTermination()
        for query in queries:
            assert query.awaitTermination(FINISHED_S_MAX)
    finally:
        for query in queries:
            query.stop()


def publish(spark: SparkSession, home: str, shared: dict[str, str], more: int) -> Any:
    lines = spark.readStream.option("maxFilesPerTrigger", FILES_MAX * more).text(f"{home}/lines")
    writer = lines.selectExpr("value as body").writeStream.format("mortal")
    return writer.options(**shared).option("queue", "out")


def consume(spark: SparkSession, home: str, shared: dict[str, str], more: int) -> Any:
    source = spark.readStream.format("mortal").options(**shared).option("mode", "consume")
    source = source.option("queue", "in").option("maxRowsPerTrigger", MESSAGES_MAX * more)
    rows = source.option("leaseMs", LEASE_MS).load()
    return into_files(rows, home, "consume", "cast(body as string)")


def read(spark: SparkSession, home: str, shared: dict[str, str], more: int) -> Any:
    source = spark.readStream.format("mortal").options(**shared).option("columns", "offset")
    source = source.option("maxRowsPerTrigger", EVENTS_MAX * more).option("numPartitions", 2)
    # With a name the broker is told what was read.
    rows = source.option("pipeline", "read").load()
    return into_files(rows, home, "read", "cast(offset as string)")


def main(args: Sequence[str]) -> int:
    """HOME OPTIONS, as JSON; and `once` to end when all is done that is there."""
    home, shared, once = args[0], json.loads(args[1]), args[2:] == [ONCE]
    settings = {
        "spark.driver.memory": "512m",
        "spark.local.dir": f"{home}/tmp",
        # Several requests in a task, so that one may die between them.
        "spark.sql.execution.arrow.maxRecordsPerBatch": "10",
    }
    spark = session("job", master="local[2]", settings=settings)
    spark.sparkContext.setLogLevel("OFF")
    run(spark, home, shared, every_ms=None if once else EVERY_MS)
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
