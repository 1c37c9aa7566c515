"""Events -> `consumers_hours`: what every consumer took in every hour, and what came of it.

A consumer is whoever leases: a key that pulls, or a worker. Listeners lease nothing, and are in
`queue_minutes` only. What a lease came to counts for who held it, in the hour in which it ended;
an ack that came too late, when nobody held the message, counts for who sent it.
"""

from pyspark.sql import DataFrame, Window
from pyspark.sql.functions import (
    coalesce,
    col,
    count_if,
    date_trunc,
    lag,
    lit,
    max_by,
    struct,
    to_date,
    when,
)
from pyspark.sql.functions import max as max_of
from pyspark.sql.functions import round as rounded
from pyspark.sql.functions import sum as sum_of

from courier.lake import schema
from courier.lake.latest import ENDS, KEY, LEASED, RETURNS, passed_ms

ROW_KEY = ("queue_id", "actor", "hour")
_SUMS = ("attempts", "acked", "wasted", "bytes")


def consumers_hours(known: DataFrame, events: DataFrame) -> DataFrame:
    """What these events add to `consumers_hours`; `added` adds it.

    `known` are live rows of `messages` as they were before the events, as for `latest.fold`.
    """
    steps = events.where(col("kind").isin("leased", *RETURNS, *ENDS)).select(
        *KEY, "offset", "at", "kind", "actor", "tenant", "queue", "size", "attempt"
    )
    held = known.where(LEASED).select(
        *KEY,
        lit(0).alias("offset"),
        col("last_leased_at").alias("at"),
        lit("leased").alias("kind"),
        col("last_leased_by").alias("actor"),
    )
    before = lag(struct("kind", "at", "actor")).over(Window.partitionBy(*KEY).orderBy("offset"))
    told = steps.unionByName(held, allowMissingColumns=True).select("*", before.alias("before"))
    leased = col("kind") == "leased"
    ends_lease = ~leased & (col("before.kind") == "leased")
    acked = (col("kind") == "acked") & (col("attempt") > 0)
    counted = told.where((col("offset") > 0) & (leased | ends_lease | acked)).select(
        "queue_id",
        when(ends_lease, col("before.actor")).otherwise(col("actor")).alias("actor"),
        date_trunc("hour", "at").alias("hour"),
        struct("offset", "tenant", "queue").alias("named"),
        leased.alias("leased"),
        acked.alias("acked"),
        (col("kind").isin(*RETURNS)).alias("wasted"),
        when(ends_lease, passed_ms(col("before.at"), col("at"))).alias("lease_ms"),
        when(leased, col("size")).alias("bytes"),
    )
    sums = counted.groupBy(*ROW_KEY).agg(
        max_of("named").alias("named"),
        count_if("leased").alias("attempts"),
        count_if("acked").alias("acked"),
        count_if("wasted").alias("wasted"),
        coalesce(sum_of("lease_ms"), lit(0)).alias("lease_ms"),
        coalesce(sum_of("bytes"), lit(0)).alias("bytes"),
    )
    return _rows(sums)


def added(rows: DataFrame, new: DataFrame) -> DataFrame:
    """Rows of `consumers_hours`, and what a batch adds to them or to none of them."""
    both = rows.withColumn("late", lit(0)).unionByName(new.withColumn("late", lit(1)))
    # Whole milliseconds add up to the same in any order; fractions of seconds do not.
    ms = rounded(col("lease_seconds") * 1000).cast("long")
    sums = both.groupBy(*ROW_KEY).agg(
        max_by(struct("tenant", "queue"), "late").alias("named"),
        *[sum_of(name).alias(name) for name in _SUMS],
        sum_of(ms).alias("lease_ms"),
    )
    return _rows(sums)


def _rows(sums: DataFrame) -> DataFrame:
    made = {
        **{name: col(name) for name in (*ROW_KEY, *_SUMS)},
        **{name: col("named")[name] for name in ("tenant", "queue")},
        "lease_seconds": col("lease_ms") / 1000,
        "date": to_date("hour"),
    }
    return sums.select(*[made[name].alias(name) for name in schema.CONSUMERS_HOURS.names])
