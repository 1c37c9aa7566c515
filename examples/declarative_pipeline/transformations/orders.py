"""A declarative pipeline on the journal: say what the tables are, Spark keeps them so.

Needs `pip install 'courier-mq[connect]'`, a queue `orders`, and to know the broker:

export COURIER_URL=http://127.0.0.1:8787 COURIER_TOKEN_FILE=token
spark-pipelines run --conf spark.sql.catalogImplementation=hive

What Spark makes is in `spark-warehouse`; Hive's catalog is what it remembers it by, so that the
next run goes on where this one ended.
"""

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, count, from_json, sum

spark = SparkSession.active()


@dp.table
def orders() -> DataFrame:
    """Every order that was published, once; grows with each run."""
    published = (
        spark.readStream.format("courier")
        .option("url", os.environ["COURIER_URL"])
        .option("tokenFile", os.environ["COURIER_TOKEN_FILE"])
        .option("queue", "orders")
        .option("kinds", "published")
        .load()
    )
    body = from_json(col("body").cast("string"), "country string, total double")
    return published.select("offset", "at", body.alias("order")).select("offset", "at", "order.*")


@dp.materialized_view
def countries() -> DataFrame:
    """What was ordered from where, of all time."""
    return (
        spark.table("orders")
        .groupBy("country")
        .agg(count("*").alias("orders"), sum("total").alias("total"))
    )
