"""A driver of its own, on the cluster of `cluster.py`: reader, writer and consumer.

The tests' own session is local, and a process has only one. Says what it found as JSON.
"""

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import Row, SparkSession

from courier.lake.session import session
from pyspark_courier import DefaultSource
from tests.lake.cluster import WORKERS, settings

FINISHED_S_MAX = 240
REGISTERED_S_MAX = 60
TRIED_S_MAX = 60
# Half of a task's rows, of a size that does not wait in buffers: some are published by then.
ROWS_BEFORE = 50
FILLING = 8_000
# A task that takes longer than others is tried a second time beside the first.
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.5",
    # Several requests in a task, so that both tries are in the midst of them.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10",
}


def executors(spark: SparkSession) -> list[int]:
    """The processes in which tasks run, when all do.

    One may come late, and the others have done its tasks by then.
    """

    def parent(_: Any) -> list[int]:
        import os

        return [os.getppid()]

    found: set[int] = set()
    deadline_s = time.monotonic() + REGISTERED_S_MAX
    while len(found) < WORKERS and time.monotonic() < deadline_s:
        found.update(spark.sparkContext.parallelize(range(8), 8).flatMap(parent).collect())
    return sorted(found)


def tried_twice(home: str) -> Callable[[Iterable[Row]], Iterator[Row]]:
    """Rows as they are; the first task waits in the midst of them until there is a second try."""

    def rows(given: Iterable[Row]) -> Iterator[Row]:
        import time
        from pathlib import Path

        from pyspark import TaskContext

        task = TaskContext.get()
        assert task is not None
        this = f"try-{task.partitionId()}-"
        Path(home, f"{this}{task.attemptNumber()}").touch()
        deadline_s = time.monotonic() + TRIED_S_MAX
        for number, row in enumerate(given):
            waits = task.partitionId() == 0 and number == ROWS_BEFORE
            while waits and len(list(Path(home).glob(f"{this}*"))) < 2:
                assert time.monotonic() < deadline_s, "there is no second try"
                time.sleep(0.1)
            yield row

    return rows


def run(spark: SparkSession, home: Path, shared: dict[str, str]) -> dict[str, Any]:
    told: dict[str, Any] = {"executors": executors(spark)}
    source = spark.read.format("courier").options(**shared)
    journal = source.option("numPartitions", 4).option("columns", "offset").load()
    told["offsets"] = sorted(row.offset for row in journal.collect())
    filled = f"map('filling', repeat('x', {FILLING})) as headers"
    rows = spark.range(0, 400, 1, 4).selectExpr("cast(id as string) as body", filled)
    tried = rows.rdd.mapPartitions(tried_twice(str(home))).toDF(rows.schema)
    tried.write.format("courier").options(**shared).option("queue", "in").mode("append").save()
    told["tries"] = sorted(each.name for each in home.glob("try-*"))
    taken = spark.readStream.format("courier").options(**shared).option("mode", "consume")
    taken = taken.option("queue", "in").option("maxRowsPerTrigger", 150).option("numPartitions", 3)
    sent = taken.load().selectExpr("concat('again ', cast(body as string)) as body")
    writer = sent.writeStream.format("courier").options(**shared).option("queue", "out")
    writer = writer.option("checkpointLocation", str(home / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(FINISHED_S_MAX)
    return told


def main() -> None:
    url, home, shared = sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3])
    spark = session("cluster", master=url, settings={**settings(home), **SPECULATION})
    spark.sparkContext.setLogLevel("OFF")
    # Spark looks for sources only among what is installed.
    spark.dataSource.register(DefaultSource)
    print(json.dumps(run(spark, home, shared)))
    spark.stop()


if __name__ == "__main__":
    main()
