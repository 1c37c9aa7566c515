"""A job that tests kill: some of three queries, one after the other, through the source as it is.

`publish` makes a message of every line of the files in a folder, `consume` writes the messages of
a queue into files, and `read` the offsets of the journal; a file is named after its batch.

At chosen points it kills itself: whoever comes to the point that is named in the file `die` takes
the file away, and with it the whole job.
"""

import json
import os
import signal
import sys
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

FINISHED_S_MAX = 300
# Longer than it takes to start a job on a busy machine.
LEASE_MS = 180_000
NAMES = ("publish", "consume", "read")
POINTS = (
    "publish: before a task",
    "publish: within a task",
    "publish: after a task",
    "publish: before the commit",
    "consume: after the claim",
    "consume: after planning",
    "consume: before the file",
    "consume: after the file",
    "consume: before the ack",
    "consume: after the ack",
    "read: after planning",
    "read: before the file",
    "read: after the file",
)


def passes(home: str, point: str) -> None:
    """Die here, if this is where to."""
    die = Path(home) / "die"
    try:
        if die.read_text() != point:
            return
        die.rename(die.with_name("died"))
    except FileNotFoundError:
        return
    os.killpg(int((Path(home) / "group").read_text()), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


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


def run(spark: SparkSession, home: str, shared: dict[str, str], names: list[str]) -> None:
    """Each until it has done all that is there."""
    shared = {**shared, "home": home}
    spark.dataSource.register(Mortal)
    made = {"publish": publish, "consume": consume, "read": read}
    for name in names:
        writer = made[name](spark, home, shared).trigger(availableNow=True)
        query = writer.option("checkpointLocation", f"{home}/checkpoint-{name}").start()
        (Path(home) / "started").touch()
        assert query.awaitTermination(FINISHED_S_MAX)


def publish(spark: SparkSession, home: str, shared: dict[str, str]) -> Any:
    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(f"{home}/lines")
    writer = lines.selectExpr("value as body").writeStream.format("mortal")
    return writer.options(**shared).option("queue", "out")


def consume(spark: SparkSession, home: str, shared: dict[str, str]) -> Any:
    source = spark.readStream.format("mortal").options(**shared).option("mode", "consume")
    source = source.option("queue", "in").option("maxRowsPerTrigger", 50)
    rows = source.option("leaseMs", LEASE_MS).load()
    return into_files(rows, home, "consume", "cast(body as string)")


def read(spark: SparkSession, home: str, shared: dict[str, str]) -> Any:
    source = spark.readStream.format("mortal").options(**shared).option("columns", "offset")
    rows = source.option("maxRowsPerTrigger", 150).option("numPartitions", 2).load()
    return into_files(rows, home, "read", "cast(offset as string)")


def main() -> None:
    home, shared, names = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3:]
    (Path(home) / "group").write_text(str(os.getpgid(0)))
    settings = {
        "spark.driver.memory": "512m",
        "spark.local.dir": f"{home}/tmp",
        # Several requests in a task, so that one may die between them.
        "spark.sql.execution.arrow.maxRecordsPerBatch": "10",
    }
    spark = session("job", master="local[2]", settings=settings)
    spark.sparkContext.setLogLevel("OFF")
    run(spark, home, shared, names)
    spark.stop()


if __name__ == "__main__":
    main()
