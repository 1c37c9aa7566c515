"""Whether FIFO queues kept their promise: of a group, nothing is leased before its turn.

A lease takes the messages of a group from its first on, and nothing of a group of which anything
is leased. So when a message is leased, every earlier one of its group has ended or is leased by
the same call, and so is whatever else is leased of the group. Events of one call have the same
time and actor, and stand together.
"""

from pyspark.sql import DataFrame, Window
from pyspark.sql.functions import (
    array_sort,
    coalesce,
    col,
    collect_list,
    count_if,
    dense_rank,
    expr,
    lag,
    lit,
    struct,
    when,
)
from pyspark.sql.functions import max as max_of
from pyspark.sql.functions import sum as sum_of

from courier.lake.latest import ENDS, LIVE, RETURNS

_GROUP = ("queue_id", "in_group")
_NEVER = (1 << 63) - 1
# Leases of a call behind which a message was left that had not ended then. `ends` are those of
# the group's messages in their order.
_PASSED_OVER = """
size(filter(skips, skip -> exists(
    slice(ends, skip.start, skip.length), message -> message.done > skip.offset)))
"""


def violations(steps: DataFrame) -> DataFrame:
    """How many leases came out of turn, in columns queue_id and order_violations.

    `steps` are events and live messages of FIFO queues, as `audit` has them.
    """
    line = _in_line(steps.where("in_group is not null"))
    kind = col("kind")
    follows = (
        (kind == "leased")
        & (col("last.kind") == "leased")
        & (col("last.at") == col("at"))
        & (col("last.actor") == col("actor"))
    )
    begins_call = (kind == "leased") & ~coalesce(follows, lit(False))
    early = begins_call & ((col("leases") > 0) | (col("cleared") > col("offset")))
    back = follows & (col("place") <= col("last.place"))
    length = col("place") - col("last.place") - 1
    skip = struct((col("last.place") + 1).alias("start"), length.alias("length"), "offset")
    groups = line.groupBy(*_GROUP).agg(
        count_if(early | coalesce(back, lit(False))).alias("early"),
        array_sort(collect_list(when(kind.isin("published", LIVE), struct("place", "done")))).alias(
            "ends"
        ),
        collect_list(when(follows & (length > 0), skip)).alias("skips"),
    )
    return groups.select("queue_id", (col("early") + expr(_PASSED_OVER)).alias("order_violations"))


def _in_line(steps: DataFrame) -> DataFrame:
    """Steps with their message's place in its group, and the state of the group before them."""
    kind = col("kind")
    begins = (kind == LIVE) & col("opens") | (kind == "leased") & ~col("open")
    ends = col("open") & kind.isin(*RETURNS, *ENDS)
    by_seq = Window.partitionBy(*_GROUP).orderBy("seq")
    by_offset = Window.partitionBy(*_GROUP).orderBy("offset", "seq")
    change = when(begins, 1).when(ends, -1).otherwise(0)
    placed = steps.withColumn("done", coalesce("done", lit(_NEVER))).select(
        "*",
        dense_rank().over(by_seq).alias("place"),
        # When the last of those before it ended.
        max_of("done").over(by_seq.rangeBetween(Window.unboundedPreceding, -1)).alias("cleared"),
    )
    return placed.select(
        "*",
        (sum_of(change).over(by_offset) - change).alias("leases"),
        lag(struct("kind", "at", "actor", "place")).over(by_offset).alias("last"),
    )
