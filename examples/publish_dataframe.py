"""Publish a DataFrame: every row becomes a message. `pip install courier-mq[spark]`, then

courier queue create orders
python publish_dataframe.py courier-data orders
"""

import json
import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.functions import array, col, create_map, element_at, lit, struct, to_json

DATA, QUEUE = sys.argv[1:]
credentials = json.loads(Path(DATA, "credentials.json").read_text())

# Spark looks for the format, and runs its tasks, with this Python.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
spark = SparkSession.builder.appName("publish").getOrCreate()
countries = array(*map(lit, ("NL", "DE", "PT")))
orders = spark.range(1_000).select(
    col("id").alias("order"),
    element_at(countries, (col("id") % 3 + 1).cast("int")).alias("country"),
    (col("id") * 7 % 500).alias("total"),
)
# A row needs a body. Headers, a delay in ms, a group and a message id are there for the asking.
messages = orders.select(
    to_json(struct("order", "country", "total")).alias("body"),
    lit("json").alias("content_type"),
    create_map(lit("country"), col("country")).alias("headers"),
)
(
    messages.write.format("courier")
    .option("url", credentials["cloudflare"]["base_url"].removesuffix("/client/v4"))
    .option("token", credentials["admin"]["token"])
    .option("queue", QUEUE)
    # Under the same name the same rows are published once, however often this is run.
    .option("writeId", "orders-2026-11")
    .mode("append")
    .save()
)
print(f"published {orders.count()} orders to {QUEUE}")
