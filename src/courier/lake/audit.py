"""Events and `messages` -> `audit`: whether all adds up, and what should not have happened."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime

from pyspark.sql import DataFrame, Window
from pyspark.sql.functions import abs as size_of
from pyspark.sql.functions import (
    broadcast,
    coalesce,
    col,
    count_distinct,
    count_if,
    expr,
    last,
    lit,
    struct,
    to_date,
    when,
)
from pyspark.sql.functions import count as count_of
from pyspark.sql.functions import max as max_of
from pyspark.sql.functions import min as min_of
from pyspark.sql.functions import sum as sum_of

from courier.lake import schema
from courier.lake.latest import CHANGES, ENDS, KEY, LEASED, LIVE
from courier.lake.order import violations

# Counts of all time, and the kinds of events they count.
TOTALS = {"accepted": "published", **{kind: kind for kind in ENDS}}
# Counts of one run.
FINDINGS = ("double_leases", "unleased_acks", "revived", "order_violations")


@dataclass(frozen=True)
class Run:
    """One run of the audit: the offsets that it is about, and when it took place."""

    batch: int
    after: int
    upto: int
    at: datetime


def fifo_queues(events: DataFrame) -> set[str]:
    """Ids of the FIFO queues whose settings these events tell. A queue stays what it is."""
    told = events.where("kind in ('queue_created', 'queue_updated', 'queue_deleted')")
    fifo = told.where("get_json_object(detail, '$.fifo') = 'true'")
    return {row["queue_id"] for row in fifo.select("queue_id").distinct().collect()}


def findings(
    known: DataFrame,
    events: DataFrame,
    live: DataFrame,
    previous: DataFrame,
    *,
    run: Run,
    broker: Mapping[str, int] | None,
    fifo: Collection[str],
    whole: bool = False,
) -> DataFrame:
    """Rows of `audit` for a run, about the events that have its offsets.

    `known` are all live rows of `messages` before the events, `live` those after. `previous` are
    rows of `audit`, among them the last of every queue. `broker` is how many messages each queue
    held at the broker after the last of the events; None if that is not known. `fifo` are the
    ids of FIFO queues.

    There is a row for every queue that an event is about or whose numbers differ (`whole`: for
    every queue), and one with an empty queue_id for the offsets. Nothing is wrong where
    `difference` and the findings are 0.
    """
    told = _told(_concerned(known, events, fifo), events)
    parts = told.where("offset > 0").select(
        "queue_id",
        struct("offset", "tenant", "queue").alias("named"),
        "kind",
        *[col(name).cast("long").alias(name) for name in FINDINGS[:3]],
    )
    # Columns of parts that there may be none of.
    absent = {name: lit(None).cast("long") for name in ("order_violations", "live_broker")}
    parts = parts.withColumns(absent)
    if fifo:
        parts = _with(parts, violations(told.where(col("queue_id").isin(*fifo))))
    parts = _with(parts, live.groupBy("queue_id").agg(count_of("*").alias("live_lake")))
    before = struct("last_offset", "tenant", "queue", *TOTALS).alias("before")
    parts = _with(parts, previous.where("queue_id <> ''").select("queue_id", before))
    if broker is not None:
        held = [*broker.items()]
        session = events.sparkSession
        parts = _with(parts, session.createDataFrame(held, "queue_id string, live_broker long"))
    rows = _rows(parts, with_broker=broker is not None)
    if not whole:
        rows = rows.where("events > 0 or difference <> 0")
    return _shown(rows, run).unionByName(_shown(_offsets(events, run), run))


def _with(parts: DataFrame, more: DataFrame) -> DataFrame:
    """All that is known of a queue meets in one aggregation, which is cheaper than joins."""
    return parts.unionByName(more, allowMissingColumns=True)


def _concerned(known: DataFrame, events: DataFrame, fifo: Collection[str]) -> DataFrame:
    """The live messages that the events are about, or that were before those in their group."""
    about = events.where(col("kind").isin(*CHANGES)).select(*KEY)
    ordered = col("queue_id").isin(*fifo)
    rows = known.where(~ordered).join(broadcast(about.where(~ordered)), list(KEY), "left_semi")
    if not fifo:
        return rows
    tops = about.where(ordered).groupBy("queue_id").agg(max_of("seq").alias("top"))
    lined_up = known.where(ordered).join(broadcast(tops), "queue_id")
    return rows.unionByName(lined_up.where(f"seq <= top or {LEASED}").drop("top"))


def _told(known: DataFrame, events: DataFrame) -> DataFrame:
    """Events, and live messages before them, with what each should not have been."""
    kind = col("kind")
    happened = events.where(kind.isin("published", *CHANGES)).select(
        *KEY,
        *("offset", "kind", "at", "actor", "attempt", "group", "tenant", "queue", "published_at"),
        # Extending a lease leaves it what it was.
        when(kind != "extended", kind == "leased").alias("opens"),
    )
    remembered = known.select(
        *KEY,
        lit(0).cast("long").alias("offset"),
        lit(LIVE).alias("kind"),
        col("attempts").alias("attempt"),
        "group",
        expr(LEASED).alias("opens"),
    )
    message = Window.partitionBy(*KEY)
    earlier = message.orderBy("offset").rowsBetween(Window.unboundedPreceding, -1)
    attempts = max_of(when(kind.isin("leased", LIVE), col("attempt"))).over(earlier)
    steps = happened.unionByName(remembered, allowMissingColumns=True).select(
        "*",
        max_of("group").over(message).alias("in_group"),
        min_of(when(kind.isin(*ENDS), col("offset"))).over(message).alias("done"),
        coalesce(max_of(kind.isin("published", LIVE)).over(earlier), lit(False)).alias("begun"),
        coalesce(max_of(kind.isin(*ENDS)).over(earlier), lit(False)).alias("over"),
        coalesce(last("opens", ignorenulls=True).over(earlier), lit(False)).alias("open"),
        coalesce(attempts, lit(0)).alias("attempts"),
    )
    is_known = col("begun") & ~col("over")
    # What is for one listener alone is done for pullers as it comes.
    at_once = (col("attempt") == 0) & (col("at") == col("published_at"))
    never = (col("attempt") > col("attempts")) | ((col("attempts") == 0) & ~at_once)
    again = col("open") | (col("attempt") <= col("attempts"))
    return steps.select(
        "*",
        (is_known & (kind == "leased") & again).alias("double_leases"),
        (is_known & (kind == "acked") & never).alias("unleased_acks"),
        (when(kind == "published", col("begun")).otherwise(~is_known)).alias("revived"),
    )


def _rows(parts: DataFrame, *, with_broker: bool) -> DataFrame:
    queues = parts.groupBy("queue_id").agg(
        max_of("named").alias("named"),
        max_of("before").alias("before"),
        *[count_if(col("kind") == kind).alias(name) for name, kind in TOTALS.items()],
        count_of("kind").alias("events"),
        coalesce(sum_of("live_lake"), lit(0)).alias("live_lake"),
        coalesce(sum_of("live_broker"), lit(0)).alias("live_broker"),
        *[coalesce(sum_of(name), lit(0)).alias(name) for name in FINDINGS],
    )
    totals = {name: col(name) + coalesce(col("before")[name], lit(0)) for name in TOTALS}
    queues = queues.withColumns(totals)
    left = col("accepted") - sum((col(kind) for kind in ENDS), lit(0))
    apart = size_of(left - col("live_lake"))
    if with_broker:
        apart = apart + size_of(col("live_lake") - col("live_broker"))
    made = {
        **{name: col(name) for name in ("queue_id", *TOTALS, "live_lake", *FINDINGS)},
        "live_broker": col("live_broker") if with_broker else lit(None),
        **{name: coalesce(col("named")[name], col("before")[name]) for name in ("tenant", "queue")},
        "difference": apart,
        "gaps": lit(0),
    }
    return queues.withColumns(made)


def _offsets(events: DataFrame, run: Run) -> DataFrame:
    """How many offsets are missing, or there more than once."""
    counted = events.agg(count_of("*").alias("all"), count_distinct("offset").alias("different"))
    missing = lit(run.upto - run.after) - col("different")
    return counted.select(
        lit("").alias("queue_id"),
        (missing + col("all") - col("different")).alias("gaps"),
        *[lit(0).alias(name) for name in ("difference", *FINDINGS)],
    )


def _shown(rows: DataFrame, run: Run) -> DataFrame:
    about = {
        "run_at": lit(run.at),
        "batch": lit(run.batch),
        "first_offset": lit(run.after + 1),
        "last_offset": lit(run.upto),
        "date": to_date(lit(run.at)),
    }
    columns = []
    for field in schema.AUDIT:
        known = col(field.name) if field.name in rows.columns else lit(None)
        columns.append(about.get(field.name, known).cast(field.dataType).alias(field.name))
    return rows.select(*columns)
