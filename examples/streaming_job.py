"""A streaming job of your own: orders per minute and country, from the journal into a file.

python streaming_job.py courier-data orders orders-per-minute

Each run brings the file up to date and ends; leave `availableNow` out, and it goes on for ever.
Kill it whenever you like: every order is counted once.
"""

import json
import os
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, count, from_json, sum, window

DATA, QUEUE, OUT = sys.argv[1:]
credentials = json.loads(Path(DATA, "credentials.json").read_text())

# Spark looks for the format, and runs its tasks, with this Python.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
spark = SparkSession.builder.appName("orders per minute").getOrCreate()
published = (
    spark.readStream.format("courier")
    .option("url", credentials["cloudflare"]["base_url"].removesuffix("/client/v4"))
    .option("token", credentials["admin"]["token"])
    .option("queue", QUEUE)
    .option("kinds", "published")
    # The broker keeps the journal until this job has seen it, and shows how far behind it is.
    .option("pipeline", "orders-per-minute")
    .load()
)
orders = published.select(
    "at", from_json(col("body").cast("string"), "country string, total double").alias("order")
)
per_minute = orders.groupBy(window("at", "1 minute").start.alias("minute"), "order.country").agg(
    count("*").alias("orders"), sum("order.total").alias("total")
)


def write(rows: DataFrame, batch: int) -> None:
    """The result is small, so it is written whole; a batch that runs again writes the same."""
    rows.orderBy("minute", "country").coalesce(1).write.mode("overwrite").json(f"{OUT}/result")


query = (
    per_minute.writeStream.outputMode("complete")
    .foreachBatch(write)
    .option("checkpointLocation", f"{OUT}/checkpoint")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
result = spark.read.json(f"{OUT}/result").orderBy("minute", "country")
result.select("minute", "country", "orders", "total").show(truncate=False)
