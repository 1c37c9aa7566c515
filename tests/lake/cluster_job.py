"""A driver of its own, on the cluster of `cluster.py`: reader, writer and consumer.

The tests' own session is local, and a process has only one. Says what it found as JSON.
"""

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from courier.lake.session import session
from pyspark_courier import DefaultSource
from tests.lake.cluster import settings

FINISHED_S_MAX = 240


def executors(spark: SparkSession) -> list[int]:
    """The processes in which tasks run."""

    def parent(_: Any) -> list[int]:
        import os

        return [os.getppid()]

    return sorted(set(spark.sparkContext.parallelize(range(8), 8).flatMap(parent).collect()))


def run(spark: SparkSession, home: Path, shared: dict[str, str]) -> dict[str, Any]:
    told: dict[str, Any] = {"executors": executors(spark)}
    source = spark.read.format("courier").options(**shared)
    journal = source.option("numPartitions", 4).option("columns", "offset").load()
    told["offsets"] = sorted(row.offset for row in journal.collect())
    rows = spark.range(0, 400, 1, 4).selectExpr("cast(id as string) as body")
    rows.write.format("courier").options(**shared).option("queue", "in").mode("append").save()
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
    spark = session("cluster", master=url, settings=settings(home))
    spark.sparkContext.setLogLevel("OFF")
    # Spark looks for sources only among what is installed.
    spark.dataSource.register(DefaultSource)
    print(json.dumps(run(spark, home, shared)))
    spark.stop()


if __name__ == "__main__":
    main()
