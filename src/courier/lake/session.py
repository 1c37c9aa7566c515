"""Spark sessions as Courier wants them: quiet, in UTC, with Arrow."""

import os
import sys

from pyspark.sql import SparkSession

LOCAL = "local[*]"
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Without this Spark refuses a source that takes filters.
    "spark.sql.python.filterPushdown.enabled": "true",
    # Parquet's older timestamps have no statistics, and files could not be skipped by time.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    "spark.sql.streaming.minBatchesToRetain": "10",
    "spark.sql.adaptive.enabled": "false",
}


def session(
    name: str, *, master: str = LOCAL, settings: dict[str, str] | None = None
) -> SparkSession:
    """A new session, or the one that this process has."""
    # Executors on this machine are started with the same Python as this.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name).master(master)
    chosen = {**SETTINGS, **(settings or {})}
    if master.startswith("local"):
        chosen.setdefault("spark.sql.shuffle.partitions", str(os.cpu_count() or 2))
        chosen.setdefault("spark.driver.bindAddress", "127.0.0.1")
        chosen.setdefault("spark.driver.host", "127.0.0.1")
    for key, value in chosen.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()
