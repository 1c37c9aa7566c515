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
from courier.lake.latest import CHANGES, ENDS, LEASED, LIVE, RETURNS

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


# Live messages before the events: those that the events are about, and where they are ordered also
# those that were before them in their group.
_REMEMBERED = f"""
select /*+ broadcast(about) */
    queue_id, seq, attempts, `group`, last_leased_at, last_leased_by, {LEASED} as opens
from {{known}} semi join (
    select queue_id, seq from {{events}} where kind in {CHANGES} and not {{ordered}}
) as about using (queue_id, seq)
where not {{ordered}}
union all
select /*+ broadcast(tops) */
    queue_id, seq, attempts, `group`, last_leased_at, last_leased_by, {LEASED}
from {{known}} join (
    select queue_id, max(seq) as top from {{events}} where kind in {CHANGES} and {{ordered}}
    group by queue_id
) as tops using (queue_id)
where {{ordered}} and (seq <= top or {LEASED})
"""
_HAPPENED = f"""
select
    queue_id, seq, offset, kind, at, actor, attempt, `group`, tenant, queue, published_at, dialect,
    -- Extending a lease leaves it what it was.
    if(kind = 'extended', null, kind = 'leased') as opens
from {{events}}
where kind in {("published", *CHANGES)}
"""
_HAPPENED_BEFORE = f"""
union all
select
    queue_id, seq, 0, '{LIVE}', if(opens, last_leased_at, null), if(opens, last_leased_by, null),
    attempts, `group`, null, null, null, null, opens
from ({_REMEMBERED})
"""
_TOLD = f"""
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
from (
    select
        *,
        max(`group`) over message as in_group,
        min(if(kind in {ENDS}, offset, null)) over message as done,
        coalesce(max(kind in {("published", LIVE)}) over earlier, false) as begun,
        coalesce(max(kind in {ENDS}) over earlier, false) as is_over,
        coalesce(max_by(opens, if(opens is null, null, offset)) over earlier, false) as open,
        coalesce(max(if(kind in {("leased", LIVE)}, attempt, null)) over earlier, 0) as attempts
    from ({{happened}})
    window
        message as (partition by queue_id, seq),
        earlier as (
            partition by queue_id, seq order by offset
            rows between unbounded preceding and 1 preceding
        )
)
"""
# How many offsets are missing, or there more than once.
_OFFSETS = f"""
select
    null, '', null, {", ".join("null" for _ in TOTALS)}, null, null, 0,
    {{offsets}} - different + total - different, {", ".join("0" for _ in FINDINGS)}, null
from (
    select count(*) as total, count(distinct offset) as different
    from {{events}} where kind <> '{GAP}'
)
"""
# What is known of a queue besides its names and its totals.
_NUMBERS = ("live_lake", "live_broker", "erased", *FINDINGS)


def _told(ordered: str, *, with_known: bool) -> str:
    """SQL for events, and live messages before them, with what each should not have been."""
    happened = _HAPPENED + (_HAPPENED_BEFORE if with_known else "")
    return _TOLD.replace("{happened}", happened).replace("{ordered}", ordered)


def _part(source: str, **made: str) -> str:
    """SQL for rows that tell a part of what is known of queues."""
    values = [f"({made.get(name, 'null')})::bigint as {name}" for name in _NUMBERS]
    named, kind, before = (f"{made.get(n, 'null')} as {n}" for n in ("named", "kind", "before"))
    return f"select queue_id, {named}, {kind}, {', '.join(values)}, {before} from {source}"


def _queues(*, with_order: bool, with_broker: bool) -> str:
    """SQL for what is known of each queue.

    All of it meets in one aggregation, which is cheaper than joins.
    """
    each = {name: name for name in FINDINGS if name != "order_violations"}
    named = "struct(offset, tenant, queue)"
    last = f"struct(last_offset, tenant, queue, {', '.join(TOTALS)})"
    parts = [
        _part("{told} where offset > 0", named=named, kind="kind", **each),
        _part("{live} group by queue_id", live_lake="count(*)"),
        _part("{previous} where queue_id <> ''", before=last),
        _part("{held}", live_broker="count"),
        _part("{erased}", erased="count"),
    ]
    if with_order:
        parts.append(_part("{order}", order_violations="order_violations"))
    totals = ", ".join(
        # DuckDB counts nulls, and nothing else, as null.
        f"coalesce(count_if(kind = '{kind}'), 0) + coalesce((max(before)).{name}, 0) as {name}"
        for name, kind in TOTALS.items()
    )
    sums = ", ".join(
        f"coalesce(sum({name}), 0) as {name}"
        if with_broker or name != "live_broker"
        else f"null::bigint as {name}"
        for name in _NUMBERS
    )
    return f"""
select
    queue_id, max(named) as named, max(before) as before, count(kind) as events, {totals}, {sums}
from ({" union all ".join(parts)})
group by queue_id
"""


def _findings(run: AuditRun, *, with_order: bool, with_broker: bool, whole: bool) -> str:
    """SQL for the rows of a run."""
    apart = "abs(live_lake - live_broker)" if with_broker else "0"
    compared = f"""
select *, abs(accepted - {" - ".join(ENDS)} - live_lake) + {apart} as difference
from ({_queues(with_order=with_order, with_broker=with_broker)})
"""
    return f"""
select
    {sql_time(run.at)} as run_at, {run.batch}::bigint as batch,
    {run.after + 1}::bigint as first_offset, {run.upto}::bigint as last_offset, *,
    to_date({sql_time(run.at)}) as date
from (
    select
        coalesce(named.tenant, before.tenant) as tenant,
        queue_id,
        coalesce(named.queue, before.queue) as queue,
        {", ".join(TOTALS)}, live_lake, live_broker, difference, 0 as gaps,
        {", ".join(FINDINGS)}, erased
    from ({compared})
    {"" if whole else "where events > 0 or difference <> 0"}
    union all
    {_OFFSETS.replace("{offsets}", str(run.upto - run.after))}
)
"""


if TYPE_CHECKING:
    from courier.lake.sql import Rows

# --- FIFO queues: of a group, nothing is leased before its turn ---
#
# A lease takes the messages of a group from its first on, and nothing of a group of which anything
# is leased. So when a message is leased, every earlier one of its group has ended or is leased by
# the same call, and so is whatever else is leased of the group. Events of one call have the same
# time and actor, and stand together. A run of the audit may begin in the midst of a call: then what
# the call leased before is known as live messages that were last leased at its time, by its actor.

_NEVER = (1 << 63) - 1
_PLACED = f"""
select
    queue_id, in_group, seq, offset, kind, at, actor, done,
    dense_rank() over by_seq as place,
    -- When the last of those before it ended.
    max(done) over (
        partition by queue_id, in_group order by seq
        range between unbounded preceding and 1 preceding
    ) as cleared,
    case
        when kind = '{LIVE}' and opens or kind = 'leased' and not open then 1
        when open and kind in {(*RETURNS, *ENDS)} then -1
        else 0
    end as change
from (
    select
        queue_id, in_group, seq, offset, kind, at, actor, opens, open,
        coalesce(done, {_NEVER}) as done
    from {{steps}}
)
where in_group is not null
window by_seq as (partition by queue_id, in_group order by seq)
"""
# The state of the group before each step.
_IN_LINE = f"""
select
    *,
    (sum(change) over by_offset) - change as leases,
    lag(struct(kind, at, actor, place)) over by_offset as before
from ({_PLACED})
-- Of the messages that were there before all events, those that are leased come last.
window by_offset as (partition by queue_id, in_group order by offset, change, seq)
"""
_CALLS = f"""
select
    *,
    kind = 'leased' and coalesce(
        before.kind in {("leased", LIVE)} and before.at = at and before.actor = actor, false
    ) as follows,
    place - before.place - 1 as skipped
from ({_IN_LINE})
"""
_GROUPS = f"""
select
    queue_id,
    coalesce(
        count_if(kind = 'leased' and not follows and (leases > 0 or cleared > offset)), 0
    ) as early,
    array_sort(
        collect_list(struct(place, done)) filter (where kind in {("published", LIVE)})
    ) as ends,
    collect_list(struct(before.place + 1 as start, skipped as length, offset))
        filter (where follows and skipped > 0) as skips
from ({_CALLS})
group by queue_id, in_group
"""
# Leases of a call behind which a message was left that had not ended then count, too. `ends` are
# those of the group's messages in their order.
_VIOLATIONS = f"""
select
    queue_id,
    early + coalesce(array_size(filter(
        skips, skip -> array_max(slice(ends, skip.start, skip.length)) > skip.offset
    )), 0) as order_violations
from (
    select queue_id, early, skips, transform(ends, message -> message.done) as ends
    from ({_GROUPS})
)
"""


def violations(steps: "Rows") -> Any:
    """How many leases came out of turn, in columns queue_id and order_violations.

    `steps` are events and live messages of FIFO queues, as `_TOLD` has them.
    """
    return sql.run(_VIOLATIONS, steps=steps)
