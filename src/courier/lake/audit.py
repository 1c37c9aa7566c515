"""Events and `messages` -> `audit`: whether all adds up, and what should not have happened."""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from courier.lake import sql
from courier.lake.archive import GAP, sql_time
from courier.lake.latest import CHANGES, ENDS, LEASED, LIVE
from courier.lake.order import violations

if TYPE_CHECKING:
    from courier.lake.sql import Rows

# Counts of all time, and the kinds of events they count.
TOTALS = {"accepted": "published", **{kind: kind for kind in ENDS}}
# Counts of one run.
FINDINGS = ("double_leases", "unleased_acks", "revived", "order_violations")
# Events that tell the settings of a queue.
_SETTINGS = pa.array(["queue_created", "queue_updated", "queue_deleted"])
# The dialect of events that nobody asked for.
BROKER = "broker"
# What `fifo_queues` looks at.
FIFO_COLUMNS = ("kind", "queue_id", "detail")


@dataclass(frozen=True)
class AuditRun:
    """One run of the audit: the offsets that it is about, and when it took place."""

    batch: int
    after: int
    upto: int
    at: datetime


def fifo_queues(events: pa.Table) -> set[str]:
    """Ids of the FIFO queues whose settings these events tell. A queue stays what it is."""
    told = events.filter(pc.is_in(events["kind"], value_set=_SETTINGS)).to_pylist()
    return {row["queue_id"] for row in told if json.loads(row["detail"] or "{}").get("fifo")}


def findings(
    known: "Rows | None",
    events: "Rows",
    live: "Rows",
    previous: "Rows",
    *,
    run: AuditRun,
    broker: Mapping[str, int] | None,
    fifo: Collection[str],
    erased: Mapping[str, int] | None = None,
    whole: bool = False,
) -> Any:
    """Rows of `audit` for a run, about the events that have its offsets.

    `known` are all live rows of `messages` before the events, None for none, and `live` those
    after. `previous` are rows of `audit`, among them the last of every queue. `broker` is how many
    messages each queue held at the broker after the last of the events; None if that is not known.
    `fifo` are the ids of FIFO queues, and `erased` is how many messages of each were erased.

    There is a row for every queue that an event is about or whose numbers differ (`whole`: for
    every queue), and one with an empty queue_id for the offsets. Nothing is wrong where
    `difference` and the findings are 0.
    """
    ordered = f"queue_id in ({', '.join(map(repr, sorted(fifo)))})" if fifo else "false"
    known_rows: dict[str, Any] = {} if known is None else {"known": known}
    steps = _told(ordered, with_known=known is not None)
    told = sql.run(steps, events=events, **known_rows)
    order: dict[str, Any] = {"order": violations(sql.where(told, ordered))} if fifo else {}
    return sql.run(
        _findings(run, with_order=bool(fifo), with_broker=broker is not None, whole=whole),
        told=told,
        events=events,
        live=live,
        previous=previous,
        held=_counts(events, broker or {}),
        erased=_counts(events, erased or {}),
        **order,
    )


def _counts(like: "Rows", counts: Mapping[str, int]) -> Any:
    """Rows of queue_id and count, made by the engine that these others are of."""
    if isinstance(like, pa.Table):
        columns = pa.array([*counts], pa.string()), pa.array([*counts.values()], pa.int64())
        return pa.table(columns, ["queue_id", "count"])
    # Of one partition, as the others are when they are small: then nothing is shuffled.
    made = "select /*+ coalesce(1) */ explode(from_json({text}, 'map<string, bigint>')) "
    text = json.dumps(dict(counts))
    return like.sparkSession.sql(made + "as (queue_id, count)", text=text)


def _told(ordered: str, *, with_known: bool) -> str:
    """SQL for events, and live messages before them, with what each should not have been.

    The live messages are those that the events are about; where they are `ordered`, also those
    that were before them in their group.
    """
    remembered = f"""
select /*+ broadcast(about) */
    queue_id, seq, attempts, `group`, last_leased_at, last_leased_by, {LEASED} as opens
from {{known}} semi join (
    select queue_id, seq from {{events}} where kind in {CHANGES} and not {ordered}
) as about using (queue_id, seq)
where not {ordered}
union all
select /*+ broadcast(tops) */
    queue_id, seq, attempts, `group`, last_leased_at, last_leased_by, {LEASED}
from {{known}} join (
    select queue_id, max(seq) as top from {{events}} where kind in {CHANGES} and {ordered}
    group by queue_id
) as tops using (queue_id)
where {ordered} and (seq <= top or {LEASED})
"""
    happened = f"""
select
    queue_id, seq, offset, kind, at, actor, attempt, `group`, tenant, queue, published_at, dialect,
    -- Extending a lease leaves it what it was.
    if(kind = 'extended', null, kind = 'leased') as opens
from {{events}}
where kind in {("published", *CHANGES)}
"""
    if with_known:
        happened += f"""
union all
select
    queue_id, seq, 0, '{LIVE}', if(opens, last_leased_at, null), if(opens, last_leased_by, null),
    attempts, `group`, null, null, null, null, opens
from ({remembered})
"""
    steps = f"""
select
    *,
    max(`group`) over message as in_group,
    min(if(kind in {ENDS}, offset, null)) over message as done,
    coalesce(max(kind in {("published", LIVE)}) over earlier, false) as begun,
    coalesce(max(kind in {ENDS}) over earlier, false) as is_over,
    coalesce(max_by(opens, if(opens is null, null, offset)) over earlier, false) as open,
    coalesce(max(if(kind in {("leased", LIVE)}, attempt, null)) over earlier, 0) as attempts
from ({happened})
window
    message as (partition by queue_id, seq),
    earlier as (
        partition by queue_id, seq order by offset
        rows between unbounded preceding and 1 preceding
    )
"""
    return f"""
select
    *,
    begun and not is_over and kind = 'leased' and (open or attempt <= attempts) as double_leases,
    -- What is for one listener alone is done for pullers as it comes, and what a queue without
    -- pullers has delivered is acknowledged by the broker.
    begun and not is_over and kind = 'acked' and (
        attempt > attempts or attempts = 0 and not (
            attempt = 0 and (at = published_at or dialect = '{BROKER}')
        )
    ) as unleased_acks,
    if(kind = 'published', begun, is_over or not begun) as revived
from ({steps})
"""


def _findings(run: AuditRun, *, with_order: bool, with_broker: bool, whole: bool) -> str:
    """SQL for the rows of a run.

    All that is known of a queue meets in one aggregation, which is cheaper than joins.
    """
    order = "union all select queue_id, null, null, null, null, null, order_violations, "
    order += "null, null, null, null from {order}"
    parts = f"""
select
    queue_id, struct(offset, tenant, queue) as named, kind,
    double_leases::bigint as double_leases, unleased_acks::bigint as unleased_acks,
    revived::bigint as revived,
    null::bigint as order_violations, null::bigint as live_lake, null::bigint as live_broker,
    null::bigint as erased, null as before
from {{told}}
where offset > 0
union all
select queue_id, null, null, null, null, null, null, count(*), null, null, null from {{live}}
group by queue_id
union all
select
    queue_id, null, null, null, null, null, null, null, null, null,
    struct(last_offset, tenant, queue, {", ".join(TOTALS)})
from {{previous}}
where queue_id <> ''
union all
select queue_id, null, null, null, null, null, null, null, count, null, null from {{held}}
union all
select queue_id, null, null, null, null, null, null, null, null, count, null from {{erased}}
{order if with_order else ""}
"""
    totals = ", ".join(
        # DuckDB counts nulls, and nothing else, as null.
        f"coalesce(count_if(kind = '{kind}'), 0) + coalesce((max(before)).{name}, 0) as {name}"
        for name, kind in TOTALS.items()
    )
    sums = ", ".join(f"coalesce(sum({name}), 0) as {name}" for name in FINDINGS)
    queues = f"""
select
    queue_id, max(named) as named, max(before) as before, {totals},
    count(kind) as events,
    coalesce(sum(live_lake), 0) as live_lake,
    {"coalesce(sum(live_broker), 0)" if with_broker else "null::bigint"} as live_broker,
    coalesce(sum(erased), 0) as erased,
    {sums}
from ({parts})
group by queue_id
"""
    apart = "abs(live_lake - live_broker)" if with_broker else "0"
    compared = f"""
select *, abs(accepted - {" - ".join(ENDS)} - live_lake) + {apart} as difference from ({queues})
"""
    found = f"""
select
    coalesce(named.tenant, before.tenant) as tenant,
    queue_id,
    coalesce(named.queue, before.queue) as queue,
    {", ".join(TOTALS)}, live_lake, live_broker, difference, 0 as gaps, {", ".join(FINDINGS)},
    erased
from ({compared})
{"" if whole else "where events > 0 or difference <> 0"}
union all
-- How many offsets are missing, or there more than once.
select
    null, '', null, {", ".join("null" for _ in TOTALS)}, null, null, 0,
    {run.upto} - {run.after} - different + total - different,
    {", ".join("0" for _ in FINDINGS)}, null
from (
    select count(*) as total, count(distinct offset) as different
    from {{events}} where kind <> '{GAP}'
)
"""
    return f"""
select
    {sql_time(run.at)} as run_at, {run.batch}::bigint as batch,
    {run.after + 1}::bigint as first_offset, {run.upto}::bigint as last_offset, *,
    to_date({sql_time(run.at)}) as date
from ({found})
"""
