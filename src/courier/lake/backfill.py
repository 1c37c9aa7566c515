"""Messages that are over, pushed to one listener only: what the broker holds it pushes by itself.

A message must not reach the listener twice, and the lake does not tell which messages the broker
still keeps for pushes, or has bound to the listener in an earlier backfill. So whatever may be
one of those is left out, by what the journal says of pushes:

- What expired, was purged or deleted is gone, and its pushes with it.
- What was acked or buried is kept as long as a listener has not taken it. A listener that owes
  nothing has taken all; of one that owes something, each message needs its `pushed` event.
- What the broker acknowledged itself, on a queue that only pushes, is in the queue until its
  retention ends it. The broker pushes that, as it does what is live.
- A listener gets what is published after it was created, and by a backfill what was still kept
  then. So a message that was gone before that can be none of what it owes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession, functions
from pyspark.sql.functions import array_contains, coalesce, col, expr, greatest, lit

from courier.lake import archive, replay, selection
from courier.lake.catalog import Lake
from courier.lake.client import Client, Place, Slice, read
from courier.lake.options import PAGE_ROWS
from courier.lake.replay import Asked, Chosen
from courier.lake.schema import LISTENER, MESSAGE
from courier.lake.selection import time_of
from courier.lake.tables import LakeError

_GONE = ("expired", "purged", "deleted")
_COLUMNS = ("at", "kind", "queue_id", "seq", "actor", "headers")
_HAPPENED = "at timestamp, kind string, queue_id string, seq long, actor string, headers string"
_LISTENER = f"get_json_object(headers, \"$['{LISTENER}']\")"
_MESSAGE = f"get_json_object(headers, \"$['{MESSAGE}']\")"


@dataclass(frozen=True)
class QueueListener:
    """A listener of the queue, and whether there is anything that it has not taken."""

    id: str
    created_ms: int
    owes: bool


def choose(
    spark: SparkSession,
    lake: Lake,
    place: Place,
    asked: Asked,
    *,
    tenant: str,
    listeners: Sequence[QueueListener],
    retention_ms: int,
    replay_id: str,
    now_ms: int,
) -> tuple[Chosen, int]:
    """What is over and the listener has not got, and how much else is left out as doubtful.

    `listeners` are those of the queue, as they were before this was called, and `retention_ms` is
    how long the queue holds a message.
    """
    (own,) = [each for each in listeners if each.id == asked.listener]
    since_ms = replay.since_ms(asked, now_ms=now_ms)
    until_ms = min(replay.until_ms(asked, now_ms=now_ms), own.created_ms)
    over = selection.choose(
        lake.messages,
        spark,
        tenant=tenant,
        queue=asked.queue,
        since_ms=since_ms,
        until_ms=until_ms,
        where=asked.where,
    ).where((col("outcome") != "live") & ~_delivered(now_ms - retention_ms))
    happened = _happened(spark, lake, place, asked.queue, since_ms=since_ms).cache()
    sent = happened.where((col("kind") == "published") & (expr(_LISTENER) == own.id))
    over = over.join(sent.select(expr(_MESSAGE).alias("message_id")), "message_id", "left_anti")
    pushed = happened.where("kind = 'pushed'").groupBy("queue_id", "seq")
    known = pushed.agg(
        functions.max("at").alias("_pushed_at"), functions.collect_set("actor").alias("_takers")
    )
    over = over.join(known, ["queue_id", "seq"], "left").where(~_took(own))
    chosen = replay.measure(over.where(_clear(listeners)), asked, replay=replay_id)
    return chosen, over.count() - chosen.count


def _delivered(since_ms: int) -> Column:
    """Whether the queue may still hold the message, because it was published after that."""
    acked = (col("outcome") == "acked") & (col("attempts") == 0)
    return acked & (col("published_at") > lit(time_of(since_ms)))


def _took(listener: QueueListener) -> Column:
    return coalesce(array_contains("_takers", listener.id), lit(False))


def _clear(listeners: Sequence[QueueListener]) -> Column:
    """Whether the broker has no push of the message any more, for anybody."""
    clear = lit(True)
    gone_at = greatest("done_at", "_pushed_at")
    for each in listeners:
        if each.owes:
            clear &= _took(each) | (gone_at < lit(time_of(each.created_ms)))
    return col("outcome").isin(*_GONE) | clear


def _happened(
    spark: SparkSession, lake: Lake, place: Place, queue: str, *, since_ms: int
) -> DataFrame:
    """What was pushed and published: from the lake and, what is not in there, the journal."""
    last = datetime.max.replace(tzinfo=UTC)
    files = lake.events.files(meets=("at", time_of(since_ms), last))
    kinds = ("pushed", "published")
    kept = lake.events.read(spark, files).where((col("queue") == queue) & col("kind").isin(*kinds))
    with Client(place) as broker:
        head = broker.head()
    if lake.events.epoch not in ("", head.epoch):
        raise LakeError(
            f"the lake {lake.root} was made from another store than the one at {place.url}: its "
            "messages can be replayed, but a listener cannot be backfilled from it"
        )
    after = archive.last(lake.events)
    tail = Slice(head.epoch, after, head.last, columns=_COLUMNS, queues=(queue,), kinds=kinds)
    pages = list(read(place, tail, rows=PAGE_ROWS)) if after < head.last else []
    fresh = pa.Table.from_batches(pages).select(_COLUMNS).to_pylist() if pages else []
    rows = [tuple(row[name] for name in _COLUMNS) for row in fresh]
    return kept.select(*_COLUMNS).unionByName(spark.createDataFrame(rows, _HAPPENED))
