"""Events -> `queue_minutes`: what every queue did in every minute, and what it held after it."""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql.functions import (
    broadcast,
    coalesce,
    col,
    count,
    count_if,
    date_trunc,
    expr,
    least,
    lit,
    max_by,
    struct,
    to_date,
    when,
)
from pyspark.sql.functions import max as max_of
from pyspark.sql.functions import min as min_of
from pyspark.sql.functions import sum as sum_of

from courier.lake import schema
from courier.lake.latest import ENDS, passed_ms

_COLUMNS = schema.QUEUE_MINUTES.names
# A minute in which none of these happened to a queue has no row.
COUNTED = tuple(_COLUMNS[_COLUMNS.index("minute") + 1 : _COLUMNS.index("bytes")])
PERCENTS = (50, 95, 99)
KEY = ("queue_id", "minute")


def queue_minutes(events: DataFrame, batch: DataFrame, live: DataFrame) -> DataFrame:
    """Rows of `queue_minutes`, of each queue and minute that an event of the batch is in.

    `events` are all events of those minutes up to the batch's last, whichever batch brought them;
    of other minutes there may be more. `live` are all live rows of `messages` after the batch.
    The batch may be all events there are.

    What a queue held at the end of a minute is what it held after the last event of that minute,
    in the journal's order. Where the clock was set back and a minute goes on later, only that
    minute's row changes.
    """
    happened = _counted(events).select(
        *KEY,
        struct("offset", "tenant", "queue").alias("named"),
        "kind",
        "size",
        when((col("kind") == "leased") & (col("attempt") == 1), _since("published_at")).alias(
            "wait"
        ),
        when(col("kind") == "acked", _since("last_leased_at")).alias("work"),
        when(col("kind") == "acked", _since("published_at")).alias("total"),
    )
    # What was held joins as one more row of its minute, which spares a join, and minutes without
    # one are not of this batch.
    rows = happened.unionByName(_held(batch, live), allowMissingColumns=True)
    minutes = rows.groupBy(*KEY).agg(
        max_of("named").alias("named"),
        *[count_if(col("kind") == kind).alias(kind) for kind in COUNTED],
        sum_of(when(col("kind") == "published", col("size"))).alias("bytes"),
        *[_percentiles(what).alias(what) for what in ("wait", "work", "total")],
        max_of("backlog").alias("backlog"),
        max_of("oldest_ms").alias("oldest_ms"),
    )
    return _rows(minutes.where("backlog is not null"))


def _counted(events: DataFrame) -> DataFrame:
    minute = date_trunc("minute", "at").alias("minute")
    return events.where(col("kind").isin(*COUNTED)).select("*", minute)


def _since(column: str) -> Column:
    return passed_ms(col(column), col("at"))


def _percentiles(what: str) -> Column:
    """The least values that so many percent of all are not above."""
    shares = ", ".join(str(percent / 100) for percent in PERCENTS)
    return expr(f"percentile_disc(array({shares})) within group (order by {what})")


def _held(batch: DataFrame, live: DataFrame) -> DataFrame:
    """How many messages each queue held after each minute, and since when the first of them.

    Counted back from what is live now: without the messages that came later, and with those that
    ended later. The oldest is the first in the queue's order.
    """
    counted = _counted(batch)
    ended = col("kind").isin(*ENDS)
    steps = counted.where(ended | (col("kind") == "published")).select(
        "queue_id",
        "offset",
        lit(False).alias("mark"),
        lit(None).cast("timestamp").alias("minute"),
        when(ended, lit(-1)).otherwise(lit(1)).alias("net"),
        when(ended, struct("seq", "published_at")).alias("first"),
    )
    # A mark stands behind the last event of its minute.
    marks = (
        counted.groupBy(*KEY).agg(max_of("offset").alias("offset")).withColumn("mark", lit(True))
    )
    later = Window.partitionBy("queue_id").orderBy(col("offset").desc(), col("mark").desc())
    minutes = (
        steps.unionByName(marks, allowMissingColumns=True)
        .select(
            *KEY,
            "mark",
            sum_of("net").over(later).alias("net"),
            min_of("first").over(later).alias("first"),
        )
        .where("mark")
    )
    now = live.groupBy("queue_id").agg(
        count("*").alias("held"), min_of(struct("seq", "published_at")).alias("front")
    )
    backlog = coalesce(col("held"), lit(0)) - coalesce(col("net"), lit(0))
    oldest = least("first", "front")["published_at"]
    end = col("minute") + expr("interval 1 minute")
    return minutes.join(broadcast(now), "queue_id", "left").select(
        *KEY,
        backlog.alias("backlog"),
        when(backlog > 0, passed_ms(oldest, end)).alias("oldest_ms"),
    )


def _rows(minutes: DataFrame) -> DataFrame:
    made = {
        **{name: col(name) for name in (*KEY, *COUNTED, "backlog", "oldest_ms")},
        **{name: col("named")[name] for name in ("tenant", "queue")},
        "bytes": coalesce(col("bytes"), lit(0)),
        **{
            f"{what}_p{percent}_ms": col(what)[place].cast("long")
            for what in ("wait", "work", "total")
            for place, percent in enumerate(PERCENTS)
        },
        "date": to_date("minute"),
    }
    return minutes.select(*[made[name].cast(_type(name)).alias(name) for name in _COLUMNS])


def _type(name: str) -> str:
    return schema.QUEUE_MINUTES[name].dataType.simpleString()


def corrected(rows: DataFrame, new: DataFrame) -> DataFrame:
    """Rows of `queue_minutes` with those of a batch in place of the same queues' and minutes'."""
    # Without a join, which would make the new rows twice.
    both = rows.withColumn("fresh", lit(0)).unionByName(new.withColumn("fresh", lit(1)))
    last = both.groupBy(*KEY).agg(max_by(struct(*_COLUMNS), "fresh").alias("row"))
    return last.select("row.*")
