"""Events -> `consumers_hours`: what every consumer took in every hour, and what came of it.

A consumer is what leases: a key that pulls, or a worker. Listeners lease nothing, and are in
`queue_minutes` only. What a lease came to counts for who held it, in the hour in which it ended;
an ack that came too late, when nobody held the message, counts for who sent it.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from courier.lake import sql
from courier.lake.archive import GapTime, gap_sql
from courier.lake.latest import ENDS, LEASED, RETURNS, passed_ms

if TYPE_CHECKING:
    from courier.lake.sql import Rows

_HOUR = timedelta(hours=1)
_STEPS = f"""
select queue_id, seq, offset, at, kind, actor, tenant, queue, size, attempt
from {{events}}
where kind in {("leased", *RETURNS, *ENDS)}
union all
select queue_id, seq, 0, last_leased_at, 'leased', last_leased_by, null, null, null, null
from {{known}}
where {LEASED}
"""
_TOLD = f"""
select
    *,
    kind = 'leased' as leases,
    kind <> 'leased' and coalesce(before.kind = 'leased', false) as ends_lease,
    kind = 'acked' and attempt > 0 as acks
from (
    select
        *,
        lag(struct(kind, at, actor)) over (partition by queue_id, seq order by offset) as before
    from ({_STEPS})
)
where offset > 0
"""
_HOURS = f"""
select
    named.tenant, queue_id, named.queue, actor, hour, attempts, acked, wasted,
    coalesce(lease_ms, 0) / 1000 as lease_seconds, coalesce(bytes, 0) as bytes, {{gap}} as gap,
    to_date(hour) as date
from (
    select
        queue_id,
        if(ends_lease, before.actor, actor) as actor,
        date_trunc('hour', at) as hour,
        max(struct(offset, tenant, queue)) as named,
        count_if(leases) as attempts,
        count_if(acks) as acked,
        count_if(kind in {RETURNS}) as wasted,
        sum({passed_ms("before.at", "at")}) filter (where ends_lease) as lease_ms,
        sum(size) filter (where leases) as bytes
    from ({_TOLD})
    where leases or ends_lease or acks
    group by all
)
"""
# Whole milliseconds add up to the same in any order; fractions of seconds do not.
_ADDED = """
select
    max_by(tenant, is_new) as tenant, queue_id, max_by(queue, is_new) as queue, actor, hour,
    sum(attempts) as attempts, sum(acked) as acked, sum(wasted) as wasted,
    sum(round(lease_seconds * 1000)::bigint) / 1000 as lease_seconds, sum(bytes) as bytes,
    coalesce({gap}, max(gap)) as gap, to_date(hour) as date
from (select *, 0 as is_new from {rows} union all select *, 1 from {new})
group by queue_id, actor, hour
"""


def consumers_hours(known: "Rows", events: "Rows", gaps: Sequence[GapTime] = ()) -> Any:
    """What these events add to `consumers_hours`; `added` adds it.

    `known` are live rows of `messages` as they were before the events, as for `latest.fold`, and
    `gaps` are all those whose time shares an hour with the events.
    """
    made = _HOURS.replace("{gap}", gap_sql("hour", _HOUR, gaps))
    return sql.run(made, known=known, events=events)


def added(rows: "Rows", new: "Rows", gaps: Sequence[GapTime] = ()) -> Any:
    """Rows of `consumers_hours`, and what a batch adds to them or to none of them."""
    return sql.run(_ADDED.replace("{gap}", gap_sql("hour", _HOUR, gaps)), rows=rows, new=new)
