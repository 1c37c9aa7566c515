"""The tables of a lake, computed once more in DuckDB from the journal's lines of JSON.

Written from docs/lake.md alone: it shares no code and no intermediate step with the pipeline. Times
are ms since 1970. Events that a lake never had, and content that was erased, are told to it.
"""

import json
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb

from courier.lake import archive
from courier.lake.catalog import Lake
from tests.lake.lakes import rows

Row = dict[str, Any]
# Messages by queue and number.
Erased = Collection[tuple[Any, Any]]
_ENDS = "('acked', 'buried', 'expired', 'purged', 'deleted')"
_COUNTED = (
    *("published", "leased", "acked", "retried", "lease_expired", "buried", "expired"),
    *("purged", "deleted", "pushed", "push_failed"),
)
_EVENTS = """
create table event as select
    "offset" as n, at_ms, kind, tenant, queue as queue_id, queue_name as queue, message_id, seq,
    attempt::int as attempt, actor, dialect,
    size, content_type, headers::json as headers, "group" as message_group,
    coalesce(encode(body), from_base64(body_base64)) as body, sealed,
    published_ms, first_leased_ms as first_ms, last_leased_ms as last_ms
from line
"""
# A message is what its events say, in their order.
_MESSAGES = f"""
create table message as
with happened as (
    select * from event where seq is not null
    and kind in ('published', 'leased', 'retried', 'lease_expired', {_ENDS[1:-1]})
), told as (
    select queue_id, seq,
        first(tenant order by n) as tenant, first(queue order by n) as queue,
        first(message_id order by n) as message_id,
        first(coalesce(published_ms, at_ms) order by n) as published_ms,
        first(size order by n) as size,
        min(n) filter (kind = 'published') as published_offset,
        min(n) filter (kind in {_ENDS}) as done_offset,
        max(n) filter (kind = 'leased') as lease_offset,
        min(n) filter (kind = 'leased' and attempt = 1) as first_lease_offset,
        max(n) filter (kind in ('leased', 'retried', 'lease_expired')) as turn_offset,
        max(n) as heard
    from happened group by queue_id, seq
    having count(*) filter (kind in ('published', 'leased', {_ENDS[1:-1]})) > 0
)
select
    told.tenant, told.queue_id, told.queue, told.message_id, told.seq, told.published_ms,
    born.dialect, born.actor, born.content_type, born.headers, born.message_group, born.body,
    born.sealed, told.size, told.published_offset, told.done_offset, ended.at_ms as done_ms,
    coalesce(ended.kind, 'live') as outcome,
    coalesce(ended.attempt, lease.attempt, 0) as attempts,
    lease.actor as last_leased_by,
    case when ended.n is null then one.at_ms else ended.first_ms end as first_ms,
    case when ended.n is null then lease.at_ms else ended.last_ms end as last_ms,
    case when ended.kind = 'acked' and ended.last_ms is not null
         then greatest(ended.at_ms - ended.last_ms, 0)
         -- Of a lease that was lost in a gap only the end is known.
         when ended.n is null and lease.n is not null and turn.kind in ('retried', 'lease_expired')
         then greatest(turn.at_ms - lease.at_ms, 0) end as work_ms,
    case when ended.n is null then (select max(upto) from gap where upto > heard) end as gap
from told
left join event as born on born.n = published_offset
left join event as ended on ended.n = done_offset
left join event as lease on lease.n = lease_offset
left join event as one on one.n = first_lease_offset
left join event as turn on turn.n = turn_offset
"""
# Lost events happened between the last before them and the first after them.
_LOST = """
create table lost as
select upto, since_ms, coalesce(until_ms, since_ms) as until_ms
from (
    select upto,
        (select arg_max(at_ms, n) from event where n < gap.first) as since_ms,
        (select arg_min(at_ms, n) from event where n > gap.upto) as until_ms
    from gap
)
"""


def _lost_in(begin_ms: str, unit_ms: int) -> str:
    """SQL for the last offset of a gap that may have an event in a minute or an hour."""
    return (
        f"(select max(upto) from lost where {begin_ms} + {unit_ms} > since_ms "
        f"and {begin_ms} <= until_ms)"
    )


_MINUTES = f"""
with counted as (
    select queue_id, at_ms // 60000 * 60000 as minute_ms, max(n) as last,
        {", ".join(f"count(*) filter (kind = '{kind}') as {kind}" for kind in _COUNTED)},
        coalesce(sum(size) filter (kind = 'published'), 0)::bigint as bytes,
        list(greatest(at_ms - published_ms, 0)) filter (kind = 'leased' and attempt = 1) as wait,
        list(greatest(at_ms - last_ms, 0)) filter (kind = 'acked' and last_ms is not null) as work,
        list(greatest(at_ms - published_ms, 0)) filter (kind = 'acked') as total
    from event where kind in {_COUNTED} group by all
)
select c.* exclude (wait, work, total, last), named.queue, named.tenant,
    {_lost_in("c.minute_ms", 60_000)} as gap,
    {
    ", ".join(
        f"list_aggregate({what}, 'quantile_disc', {percent / 100}) as {what}_p{percent}_ms"
        for what in ("wait", "work", "total")
        for percent in (50, 95, 99)
    )
},
    (select count(*) from message m where m.queue_id = c.queue_id
     and coalesce(m.published_offset, 0) <= c.last and coalesce(m.done_offset > c.last, true)
    ) as backlog,
    (select greatest(c.minute_ms + 60000 - arg_min(m.published_ms, m.seq), 0) from message m
     where m.queue_id = c.queue_id and coalesce(m.published_offset, 0) <= c.last
     and coalesce(m.done_offset > c.last, true)) as oldest_ms
from counted c join event named on named.n = c.last
"""
_HOURS = f"""
with step as (
    select *, lag(kind) over life as was, lag(at_ms) over life as was_ms,
        lag(actor) over life as held_by
    from event where kind in ('leased', 'retried', 'lease_expired', {_ENDS[1:-1]})
    window life as (partition by queue_id, seq order by n)
), told as (
    select *, kind = 'leased' as leases, kind <> 'leased' and was is not distinct from 'leased'
        as ends_lease, kind = 'acked' and attempt > 0 as acks from step
)
select queue_id, if(ends_lease, held_by, actor) as actor, at_ms // 3600000 * 3600000 as hour_ms,
    {_lost_in("hour_ms", 3_600_000)} as gap,
    arg_max(queue, n) as queue, arg_max(tenant, n) as tenant,
    count(*) filter (leases) as attempts, count(*) filter (acks) as acked,
    count(*) filter (kind in ('retried', 'lease_expired')) as wasted,
    coalesce(sum(greatest(at_ms - was_ms, 0)) filter (ends_lease), 0)::bigint as lease_ms,
    coalesce(sum(size) filter (leases), 0)::bigint as bytes
from told where leases or ends_lease or acks group by all
"""
_TOTALS = f"""
select queue_id,
    count(*) filter (kind = 'published') as accepted,
    {
    ", ".join(
        f"count(*) filter (kind = '{kind}') as {kind}"
        for kind in ("acked", "buried", "expired", "purged", "deleted")
    )
},
    (select count(*) from message m where m.queue_id = e.queue_id and outcome = 'live')
        as live_lake
from event e where kind in ('published', {_ENDS[1:-1]}) group by queue_id
"""


class Recomputed:
    """What the tables should hold, given the journal's lines and the gaps [first, last]."""

    def __init__(self, lines: Path, gaps: Iterable[Sequence[int]] = ()) -> None:
        self._connection = duckdb.connect()
        self._connection.execute(
            f"create table line as from read_json('{lines}', format = 'newline_delimited', "
            "columns = {" + ", ".join(f"{name}: '{kind}'" for name, kind in _LINE.items()) + "})"
        )
        self._connection.execute("create table gap (first bigint, upto bigint)")
        for first, last in gaps:
            self._connection.execute("insert into gap values (?, ?)", [first, last])
            self._connection.execute(f'delete from line where "offset" between {first} and {last}')
        self._connection.execute(_EVENTS)
        self._connection.execute(_LOST)
        self._connection.execute(_MESSAGES)

    def events(self) -> list[Row]:
        return self._rows("select * from event")

    def messages(self) -> list[Row]:
        return self._rows("select * from message")

    def queue_minutes(self) -> list[Row]:
        return self._rows(_MINUTES)

    def consumers_hours(self) -> list[Row]:
        return self._rows(_HOURS)

    def totals(self) -> list[Row]:
        return self._rows(_TOTALS)

    def _rows(self, sql: str) -> list[Row]:
        found = self._connection.execute(sql)
        names = [column[0] for column in found.description or ()]
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


_NUMBERS = (
    *('"offset"', "at_ms", "seq", "attempt", "size", "published_ms", "first_leased_ms"),
    "last_leased_ms",
)
_TEXTS = (
    *("kind", "tenant", "queue", "queue_name", "message_id", "actor", "dialect", "content_type"),
    *('"group"', "body", "body_base64", "sealed"),
)
_LINE = {**dict.fromkeys(_NUMBERS, "BIGINT"), **dict.fromkeys(_TEXTS, "VARCHAR"), "headers": "JSON"}


# --- the lake's own tables beside these ---


def _ms(at: datetime | None) -> int | None:
    return None if at is None else round(at.timestamp() * 1000)


def _passed(since: int | None, until: int | None) -> int | None:
    return None if since is None or until is None else max(0, until - since)


def _by(found: Iterable[Row], *key: str) -> dict[tuple[Any, ...], Row]:
    named = {tuple(row[name] for name in key): row for row in found}
    assert len(named) == len(list(found))
    return named


def _empty(row: Row, key: str, erased: Erased) -> Row:
    """What is left of a row if its message was erased."""
    if (row["queue_id"], row["seq"]) not in erased:
        return row
    return {**row, **dict.fromkeys(("message_id", "body", "headers", key))}


def same_events(lake: Lake, again: Recomputed, erased: Erased = frozenset()) -> list[Row]:
    expected = [_empty(row, "message_group", erased) for row in again.events()]
    found = [
        {
            "n": row["offset"],
            "at_ms": _ms(row["at"]),
            "message_group": row["group"],
            "published_ms": _ms(row["published_at"]),
            "first_ms": _ms(row["first_leased_at"]),
            "last_ms": _ms(row["last_leased_at"]),
            **{name: row[name] for name in ("kind", "tenant", "queue_id", "queue", "message_id")},
            **{name: row[name] for name in ("seq", "attempt", "actor", "dialect", "size")},
            **{name: row[name] for name in ("content_type", "body", "sealed")},
            "headers": row["headers"],
        }
        for row in rows(lake.events)
        if row["kind"] != archive.GAP
    ]
    _same(found, expected, "n")
    return expected


def same_messages(lake: Lake, again: Recomputed, erased: Erased = frozenset()) -> list[Row]:
    expected = [
        {
            **_empty(row, "message_group", erased),
            "wait_ms": _passed(row["published_ms"], row["first_ms"]),
            "total_ms": _passed(row["published_ms"], row["done_ms"]),
        }
        for row in again.messages()
    ]
    found = [
        {
            **{name: row[name] for name in expected[0] if name in row},
            "message_group": row["group"],
            "published_ms": _ms(row["published_at"]),
            "done_ms": _ms(row["done_at"]),
            "first_ms": _ms(row["first_leased_at"]),
            "last_ms": _ms(row["last_leased_at"]),
        }
        for row in rows(lake.messages)
    ]
    _same(found, expected, "queue_id", "seq")
    return expected


def same_queue_minutes(lake: Lake, again: Recomputed, but: Collection[str] = ()) -> list[Row]:
    """`but`: columns that are not compared."""
    expected = [
        {**row, "oldest_ms": row["oldest_ms"] if row["backlog"] else None}
        for row in again.queue_minutes()
    ]
    compared = [name for name in expected[0] if name not in but]
    found = [{**row, "minute_ms": _ms(row["minute"])} for row in rows(lake.queue_minutes)]
    wanted = [{name: row[name] for name in compared} for row in expected]
    _same(
        [{name: row[name] for name in compared} for row in found], wanted, "queue_id", "minute_ms"
    )
    return expected


def same_consumers_hours(lake: Lake, again: Recomputed) -> list[Row]:
    expected = again.consumers_hours()
    found = [
        {
            **{name: row[name] for name in expected[0] if name in row},
            "hour_ms": _ms(row["hour"]),
            "lease_ms": round(row["lease_seconds"] * 1000),
        }
        for row in rows(lake.consumers_hours)
    ]
    _same(found, expected, "queue_id", "actor", "hour_ms")
    return expected


def same_totals(lake: Lake, again: Recomputed, unseen: Collection[str] = ()) -> dict[str, Row]:
    """The last row of every queue in the audit, without those that the lake knows nothing of."""
    expected = again.totals()
    last = {
        row["queue_id"]: row
        for row in sorted(rows(lake.audit), key=lambda row: row["last_offset"])
        if row["queue_id"] and row["queue_id"] not in unseen
    }
    _same(
        [{name: row[name] for name in expected[0]} for row in last.values()], expected, "queue_id"
    )
    return last


def _same(found: list[Row], expected: list[Row], *key: str) -> None:
    assert expected
    ours, theirs = _by(found, *key), _by(expected, *key)
    assert ours.keys() == theirs.keys()
    for name, row in theirs.items():
        if isinstance(row.get("headers"), str):
            ours[name]["headers"] = json.loads(ours[name]["headers"])
            row["headers"] = json.loads(row["headers"])
        differing = {each: (ours[name].get(each), row[each]) for each in row}
        assert ours[name] == row, (name, {k: v for k, v in differing.items() if v[0] != v[1]})
