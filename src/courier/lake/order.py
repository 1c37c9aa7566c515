"""Whether FIFO queues kept their promise: of a group, nothing is leased before its turn.

A lease takes the messages of a group from its first on, and nothing of a group of which anything
is leased. So when a message is leased, every earlier one of its group has ended or is leased by
the same call, and so is whatever else is leased of the group. Events of one call have the same
time and actor, and stand together. A run of the audit may begin in the midst of a call: then what
the call leased before is known as live messages that were last leased at its time, by its actor.
"""

from typing import TYPE_CHECKING, Any

from courier.lake import sql
from courier.lake.latest import ENDS, LIVE, RETURNS

if TYPE_CHECKING:
    from courier.lake.sql import Rows

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

    `steps` are events and live messages of FIFO queues, as `audit` has them.
    """
    return sql.run(_VIOLATIONS, steps=steps)
