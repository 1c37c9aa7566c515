"""Events -> `messages`: what is known of every message, folded from what happened to it."""

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from courier.lake import sql

if TYPE_CHECKING:
    from courier.lake.sql import Rows

# Events that end a message on its queue, and say what its life was.
ENDS = ("acked", "buried", "expired", "purged", "deleted")
# Events that end an attempt and leave the message there.
RETURNS = ("retried", "lease_expired")
# All that happens to a message between `published` and its end. Pushes are not of its queue's line
# and go on after it; a message's name is its header as it was published.
CHANGES = ("leased", "extended", *RETURNS, *ENDS)

KEY = ("queue_id", "seq")
LIVE = "live"
# Of live rows: somebody holds the message.
LEASED = "(attempts > 0 and work_ms is null)"
# What `concerned` looks at.
CONCERNED_COLUMNS = ("kind", "queue_id", "seq", "published_at")
Range = tuple[datetime, datetime]


def passed_ms(begin: str, end: str) -> str:
    """SQL for the milliseconds between two times; none passed if the clock was set back."""
    return f"if({end} < {begin}, 0L, unix_millis({end}) - unix_millis({begin}))"


_IDENTITY = "struct(tenant, queue, message_id, published_at, size)"
_BIRTH = "dialect, actor, content_type, headers, `group`, body, sealed, detail"
# Queries are put together of their parts: named `with` in SQL, parts take Spark twice as long.
#
# Events are steps of a fold: each has the parts that it tells of, the others are null. Live rows
# are steps that come before every event.
_STEPS = f"""
select
    queue_id, seq, offset,
    {_IDENTITY} as identity,
    if(kind = 'published', struct({_BIRTH}, offset as published_offset), null) as birth,
    if(kind = 'leased' and attempt = 1, at, null) as first_at,
    if(kind = 'leased', struct(at, actor, attempt), null) as lease,
    if(kind in {("leased", *RETURNS)}, struct(kind, at, null::bigint as work_ms), null) as turn,
    if(
        kind in {ENDS},
        struct(kind, at, attempt, first_leased_at, last_leased_at, offset),
        null
    ) as death,
    null::bigint as gap
from {{events}}
where kind in {("published", "leased", *RETURNS, *ENDS)}
union all
select
    queue_id, seq, 0,
    {_IDENTITY},
    struct({_BIRTH}, published_offset),
    first_leased_at,
    if(
        attempts > 0,
        struct(last_leased_at as at, last_leased_by as actor, attempts as attempt),
        null
    ),
    if(attempts > 0, struct('{LIVE}' as kind, last_leased_at as at, work_ms), null),
    null,
    gap
from {{known}}
"""
_LIVES = f"""
select
    queue_id, seq,
    min_by(identity, offset) as identity,
    min_by(birth, offset) filter (where birth is not null) as birth,
    min_by(first_at, offset) filter (where first_at is not null) as first_at,
    max_by(lease, offset) filter (where lease is not null) as lease,
    max_by(turn, offset) filter (where turn is not null) as turn,
    min_by(death, offset) filter (where death is not null) as death,
    max_by(gap, offset) as gap,
    max(offset) as heard
from ({_STEPS})
group by queue_id, seq
"""
_TOLD = f"""
select
    *,
    identity.published_at,
    death.at as done_at,
    if(death is null, first_at, death.first_leased_at) as first_leased_at,
    if(death is null, lease.at, death.last_leased_at) as last_leased_at
from ({_LIVES})
-- That an attempt came back tells nothing of a message that nothing else is known of.
where birth is not null or lease is not null or death is not null
"""
_FOLD = f"""
select
    identity.tenant, queue_id, identity.queue, identity.message_id, seq,
    birth.dialect, birth.actor,
    published_at, first_leased_at, last_leased_at, lease.actor as last_leased_by, done_at,
    coalesce(death.kind, '{LIVE}') as outcome,
    coalesce(death.attempt, lease.attempt, 0) as attempts,
    {passed_ms("published_at", "first_leased_at")} as wait_ms,
    case
        when death.kind = 'acked' then {passed_ms("last_leased_at", "done_at")}
        when death is not null then null
        -- How long the last attempt of a live message lasted; null while it is leased.
        when turn.kind = '{LIVE}' then turn.work_ms
        when turn.kind in {RETURNS} then {passed_ms("lease.at", "turn.at")}
    end as work_ms,
    {passed_ms("published_at", "done_at")} as total_ms,
    identity.size,
    birth.content_type, birth.headers, birth.`group`, birth.body, birth.sealed, birth.detail,
    birth.published_offset, death.offset as done_offset,
    if(death is null, {{silence}}, null) as gap,
    if(death is null, '{LIVE}', date_format(done_at, 'yyyy-MM-dd')) as ended
from ({_TOLD})
"""


def fold(known: "Rows", events: "Rows", gaps: Sequence[int] = ()) -> Any:
    """Rows of `messages`, live or ended, after `events` happened to `known`.

    `known` are live rows: all those that the events are about (`concerned` tells where they are),
    and any others, which come out as they went in. What happened before a message was known, in
    a lake that begins in the middle of a journal, is filled in as far as later events tell it.

    Times are as the broker's clock told them. Where it was set back between two of them, no time
    passed.

    `gaps` are the last offsets of gaps among the events: what is live, and was not heard of since
    then, may have ended in the gap.
    """
    last = max(gaps, default=0)
    silence = f"if(heard < {last}, {last}L, gap)" if gaps else "gap"
    return sql.run(_FOLD.replace("{silence}", silence), known=known, events=events)


def concerned(events: pa.Table) -> list[Range]:
    """When the messages were published that these events are about, and not begun by them.

    One range for each hour in which there are some, for choosing the files that hold their rows.
    """
    begun = events.filter(pc.equal(events["kind"], "published"))
    begun = begun.group_by("queue_id").aggregate([("seq", "min")])
    changes = events.filter(pc.is_in(events["kind"], value_set=pa.array(CHANGES)))
    # A queue's sequence goes up with the offsets: what is not below the first one that was
    # published in these events was published in them, too.
    place = pc.index_in(changes["queue_id"], value_set=begun["queue_id"])
    is_older = pc.less(changes["seq"], begun["seq_min"].take(place))
    at = changes["published_at"].filter(pc.fill_null(is_older, True))
    hours = pa.table({"hour": pc.floor_temporal(at, unit="hour"), "at": at})
    hours = hours.group_by("hour").aggregate([("at", "min"), ("at", "max")])
    return sorted((row["at_min"], row["at_max"]) for row in hours.to_pylist())
