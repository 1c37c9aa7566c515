"""Events -> `queue_minutes`: what every queue did in every minute, and what it held after it."""

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from courier.lake import schema, sql
from courier.lake.archive import GapTime, gap_sql
from courier.lake.latest import ENDS, passed_ms

if TYPE_CHECKING:
    from courier.lake.sql import Rows

_COLUMNS = schema.QUEUE_MINUTES.names
# A minute in which none of these happened to a queue has no row.
COUNTED = tuple(_COLUMNS[_COLUMNS.index("minute") + 1 : _COLUMNS.index("bytes")])
PERCENTS = (50, 95, 99)
_TIMES = ("wait", "work", "total")
# Behind every offset.
_NOW = (1 << 63) - 1
_MINUTE = timedelta(minutes=1)

_COUNTS = ", ".join(f"count_if(kind = '{kind}') as {kind}" for kind in COUNTED)
_SHARES = ", ".join(str(percent / 100) for percent in PERCENTS)
# Percentiles: the least value that is not below this percentage of all values.
_PERCENTILES = ", ".join(
    f"percentile_disc(array({_SHARES})) within group (order by {what}) as {what}" for what in _TIMES
)
_PERCENTILE_COLUMNS = ", ".join(
    f"try_element_at({what}, {place})::bigint as {what}_p{percent}_ms"
    for what in _TIMES
    for place, percent in enumerate(PERCENTS, 1)
)
# What was held is counted back from what is live now, the last step of all: without the messages
# that came later, and with those that ended later. A mark stands behind the last event of its
# minute. So no join is needed.
_STEPS = f"""
select
    queue_id, offset, false as is_mark, null::timestamp as minute,
    if(kind = 'published', -1, 1)::bigint as held,
    if(kind = 'published', null, struct(seq, published_at)) as front
from {{batch}}
where kind in {("published", *ENDS)}
union all
select queue_id, max(offset), true, date_trunc('minute', at), null, null
from {{batch}}
where kind in {COUNTED}
group by queue_id, date_trunc('minute', at)
union all
select queue_id, {_NOW}, false, null, count(*), min(struct(seq, published_at))
from {{live}}
group by queue_id
"""
_HELD = f"""
select
    queue_id, minute,
    coalesce(held, 0) as backlog,
    -- The oldest is the first in the queue's order.
    front.published_at as oldest_at,
    minute + interval 1 minute as over_at
from (
    select queue_id, minute, is_mark, sum(held) over later as held, min(front) over later as front
    from ({_STEPS})
    window later as (partition by queue_id order by offset desc, is_mark desc)
)
where is_mark
"""
# What was held joins as one more row of its minute, which spares a join, and minutes without one
# are not of this batch.
_PARTS = f"""
select
    queue_id, date_trunc('minute', at) as minute,
    struct(offset, tenant, queue) as named,
    kind, size,
    if(kind = 'leased' and attempt = 1, {passed_ms("published_at", "at")}, null) as wait,
    if(kind = 'acked', {passed_ms("last_leased_at", "at")}, null) as work,
    if(kind = 'acked', {passed_ms("published_at", "at")}, null) as total,
    null as backlog, null as oldest_ms
from {{events}}
where kind in {COUNTED}
union all
select
    queue_id, minute, null, null, null, null, null, null, backlog,
    if(backlog > 0, {passed_ms("oldest_at", "over_at")}, null)
from ({_HELD})
"""
_MINUTES = f"""
select
    named.tenant, queue_id, named.queue, minute, {", ".join(COUNTED)}, bytes,
    {_PERCENTILE_COLUMNS}, backlog, oldest_ms, {{gap}} as gap, to_date(minute) as date
from (
    select
        queue_id, minute, max(named) as named, {_COUNTS},
        coalesce(sum(size) filter (where kind = 'published'), 0) as bytes,
        {_PERCENTILES},
        max(backlog) as backlog, max(oldest_ms) as oldest_ms
    from ({_PARTS})
    group by queue_id, minute
)
where backlog is not null
"""
# Without a join, which would make the new rows twice.
_KNOWN = ", ".join("{gap} as gap" if name == "gap" else name for name in _COLUMNS)
_CORRECTED = f"""
select row.* from (
    select max_by(row, is_new) as row
    from (
        select queue_id, minute, struct({_KNOWN}) as row, 0 as is_new from {{rows}}
        union all
        select queue_id, minute, struct({", ".join(_COLUMNS)}), 1 from {{new}}
    )
    group by queue_id, minute
)
"""


def queue_minutes(events: "Rows", batch: "Rows", live: "Rows", gaps: Sequence[GapTime] = ()) -> Any:
    """Rows of `queue_minutes`, of each queue and minute that an event of the batch is in.

    `events` are all events of those minutes up to the batch's last, whichever batch brought them;
    of other minutes there may be more. `live` are all live rows of `messages` after the batch.
    The batch may be all events there are.

    What a queue held at the end of a minute is what it held after the last event of that minute,
    in the journal's order. Where the clock was set back and a minute goes on later, only that
    minute's row changes.

    `gaps` are all those whose time shares a minute with the batch.
    """
    made = _MINUTES.replace("{gap}", gap_sql("minute", _MINUTE, gaps))
    return sql.run(made, events=events, batch=batch, live=live)


def corrected(rows: "Rows", new: "Rows", gaps: Sequence[GapTime] = ()) -> Any:
    """Rows of `queue_minutes` with those of a batch in place of the same queues' and minutes'."""
    marked = f"coalesce({gap_sql('minute', _MINUTE, gaps)}, gap)"
    return sql.run(_CORRECTED.replace("{gap}", marked), rows=rows, new=new)
