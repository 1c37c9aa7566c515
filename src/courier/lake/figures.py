"""What a report tells, asked of the lake: numbers per span of time, per queue, per consumer.

Times are ms since 1970 here; a list with one entry per bucket has None where nothing was measured.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb

from courier.lake.catalog import Lake
from courier.lake.query import dataset

SECOND_MS = 1_000
MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
# Most buckets of a plot; longer spans get larger ones.
BUCKETS_MAX = 370
# Spans up to this are shown in seconds, from the events and messages themselves.
SHORT_MS_MAX = 15 * MINUTE_MS
_SHORT_STEPS = (SECOND_MS, 5 * SECOND_MS)
_STEPS = (
    *(MINUTE_MS, 5 * MINUTE_MS, 15 * MINUTE_MS, HOUR_MS, 6 * HOUR_MS, DAY_MS),
    *(7 * DAY_MS, 28 * DAY_MS, 364 * DAY_MS),
)
ROWS_MAX = 20
SLOWEST_MAX = 10
FAILURES = ("retried", "lease_expired", "buried", "push_failed")
LATENCIES = ("wait", "work", "total")
_LAST = ("accepted", "acked", "buried", "expired", "purged", "deleted")
_FINDINGS = ("gaps", "double_leases", "unleased_acks", "revived", "order_violations")

# Spark's word for a type where DuckDB has another.
_TYPES = {"timestamp": "timestamptz"}

Row = dict[str, Any]
Series = list[float | None]


@dataclass(frozen=True)
class MinuteSpan:
    """Whole minutes from `since_ms` to `until_ms`, and `count` buckets that show them.

    The first bucket begins at `first_ms`; those at the ends may reach beyond the minutes, or leave
    out seconds in which nothing happened.
    """

    since_ms: int
    until_ms: int
    first_ms: int
    step_ms: int
    count: int

    @property
    def unit(self) -> str:
        """What rates are given per."""
        return "second" if self.step_ms < MINUTE_MS else "minute"

    @property
    def units(self) -> float:
        """How many of them a bucket has."""
        return self.step_ms / (SECOND_MS if self.step_ms < MINUTE_MS else MINUTE_MS)

    @property
    def edges_ms(self) -> list[int]:
        return [self.first_ms + n * self.step_ms for n in range(self.count + 1)]


@dataclass(frozen=True)
class Figures:
    """Everything a report shows. `span` is None when nothing happened in the time asked for."""

    queue: str | None
    since_ms: int | None
    until_ms: int | None
    offset: int | None
    span: MinuteSpan | None
    series: dict[str, Series]
    percentiles: dict[str, tuple[float, float, float] | None]
    totals: Row
    queues: list[Row]
    queues_all: int
    consumers: list[Row]
    consumers_all: int
    slowest: list[Row]
    audit: Row | None


def connect(lake: Lake) -> duckdb.DuckDBPyConnection:
    """The lake's tables, by their names; those that are not there yet are empty."""
    connection = duckdb.connect()
    for table in lake.tables:
        if table.open() is not None:
            connection.register(table.name, dataset(table))
            continue
        columns = ", ".join(
            f'"{name}" {_TYPES.get(kind, kind)}' for name, kind in table.schema.kinds.items()
        )
        connection.execute(f"create table {table.name} ({columns})")
    return connection


def known_queue(lake: duckdb.DuckDBPyConnection, queue: str) -> bool:
    return bool(
        _rows(lake, "select 1 from queue_minutes where queue = $queue limit 1", queue=queue)
    )


def gather(
    lake: duckdb.DuckDBPyConnection,
    *,
    queue: str | None = None,
    since_ms: int | None = None,
    until_ms: int | None = None,
) -> Figures:
    """Of one queue or of all, of a range of time or of all that the lake holds."""
    [[offset]] = lake.execute('select max("offset") from events').fetchall()
    span = _span(lake, queue, since_ms, until_ms)
    asked = span or MinuteSpan(since_ms=0, until_ms=0, first_ms=0, step_ms=MINUTE_MS, count=0)
    where: Row = {
        "queue": queue,
        "since": asked.since_ms,
        "until": asked.until_ms,
        "first": asked.first_ms,
        "step": asked.step_ms,
        "count": asked.count,
    }
    percentiles, latency = _latency(lake, where)
    [totals] = _rows(lake, _TOTALS, **where)
    queues, queues_all = _top(_rows(lake, _QUEUES, **where))
    consumers, consumers_all = _top(_rows(lake, _CONSUMERS, **where))
    return Figures(
        queue=queue,
        since_ms=since_ms if since_ms is not None or span is None else span.since_ms,
        until_ms=until_ms if until_ms is not None or span is None else span.until_ms,
        offset=offset,
        span=span,
        series=_counts(lake, where) | latency | _levels(lake, where),
        percentiles=percentiles,
        totals=totals,
        queues=queues,
        queues_all=queues_all,
        consumers=consumers,
        consumers_all=consumers_all,
        slowest=_rows(lake, _SLOWEST, **where),
        audit=_audit(lake, queue),
    )


def _span(
    lake: duckdb.DuckDBPyConnection, queue: str | None, since_ms: int | None, until_ms: int | None
) -> MinuteSpan | None:
    """The range asked for, cut to what there is, in the smallest buckets that a plot has room for.

    Buckets begin where clocks on the wall do: at whole hours, days, and so on, in UTC.
    """
    [[first, last]] = lake.execute(
        """select epoch_ms(min(minute)), epoch_ms(max(minute)) from queue_minutes
           where ($queue is null or queue = $queue)
             and ($since is null or epoch_ms(minute) + 60000 > $since)
             and ($until is null or epoch_ms(minute) < $until)""",
        {"queue": queue, "since": since_ms, "until": until_ms},
    ).fetchall()
    if first is None:
        return None
    since, until = first, last + MINUTE_MS
    steps: Sequence[int] = _STEPS
    low, high = since, until
    if until - since <= SHORT_MS_MAX:
        where = {"queue": queue, "since": since, "until": until}
        [row] = _rows(lake, _ENDS, **where)
        if row["first"] is not None:
            steps, low, high = _SHORT_STEPS, row["first"], row["last"] + 1
    for step in steps:
        first, last = low - low % step, high + -high % step
        count = (last - first) // step
        if count <= BUCKETS_MAX:
            break
    return MinuteSpan(since_ms=since, until_ms=until, first_ms=first, step_ms=step, count=count)


_EVENTS = """events
where "at" >= to_timestamp($since / 1000) and "at" < to_timestamp($until / 1000)
  and queue is not null and ($queue is null or queue = $queue)"""
_ENDS = f'select epoch_ms(min("at")) as first, epoch_ms(max("at")) as last from {_EVENTS}'

# --- what was counted, bucket by bucket ---

_MINUTES = """queue_minutes
where minute >= to_timestamp($since / 1000) and minute < to_timestamp($until / 1000)
  and ($queue is null or queue = $queue)"""

_COUNTS = f"""
select (epoch_ms(minute) - $first) // $step as bucket, sum(published) as published,
       sum(acked) as acked, sum(retried) as retried, sum(lease_expired) as lease_expired,
       sum(buried) as buried, sum(push_failed) as push_failed
from {_MINUTES} group by bucket
"""

_COUNTED = ("published", "acked", *FAILURES)
_COUNTS_SHORT = f"""
select (epoch_ms("at") - $first) // $step as bucket,
       {", ".join(f"count(*) filter (kind = '{kind}') as {kind}" for kind in _COUNTED)}
from {_EVENTS} group by bucket
"""


def _counts(lake: duckdb.DuckDBPyConnection, where: Row) -> dict[str, Series]:
    """Nothing happened in a minute that has no row."""
    short = where["step"] < MINUTE_MS
    series: dict[str, Series] = {name: [0.0] * where["count"] for name in _COUNTED}
    for row in _rows(lake, _COUNTS_SHORT if short else _COUNTS, **where):
        for name, values in series.items():
            values[row["bucket"]] = float(row[name] or 0)
    return series


# --- how long it took: asked of the messages, because percentiles cannot be added up ---

_ACKED = """messages
where outcome = 'acked' and done_at >= to_timestamp($since / 1000)
  and done_at < to_timestamp($until / 1000) and ($queue is null or queue = $queue)"""

_QUANTILES = ", ".join(
    f"quantile_disc({name}_ms, [0.5, 0.95, 0.99]) as {name}" for name in LATENCIES
)
_LATENCY = f"""
select (epoch_ms(done_at) - $first) // $step as bucket, {_QUANTILES}
from {_ACKED} group by bucket
"""
_LATENCY_ALL = f"select {_QUANTILES} from {_ACKED}"


def _latency(
    lake: duckdb.DuckDBPyConnection, where: Row
) -> tuple[dict[str, tuple[float, float, float] | None], dict[str, Series]]:
    series: dict[str, Series] = {
        f"{name}_p{percent}": [None] * where["count"]
        for name in LATENCIES
        for percent in (50, 95, 99)
    }
    for row in _rows(lake, _LATENCY, **where):
        for name in LATENCIES:
            for percent, value in zip((50, 95, 99), row[name] or (), strict=False):
                series[f"{name}_p{percent}"][row["bucket"]] = value
    [overall] = _rows(lake, _LATENCY_ALL, **where)
    return {name: tuple(overall[name]) if overall[name] else None for name in LATENCIES}, series


# --- what was waiting at the end of each bucket ---

# A queue's row tells its state until its next row; the oldest message goes on ageing meanwhile.
_LEVELS = """
with level as (
  select queue_id, epoch_ms(minute) + 60000 as at_ms, backlog, oldest_ms from queue_minutes
  where minute < to_timestamp($until / 1000) and ($queue is null or queue = $queue)
), place as (
  select bucket, $first + (bucket + 1) * $step as at_ms, queue_id
  from range($count) as bucket(bucket), (select distinct queue_id from level)
)
select bucket, sum(backlog) as backlog,
       max(case when backlog > 0
           then oldest_ms + least(place.at_ms, $until) - level.at_ms end) as oldest
from place asof join level
  on place.queue_id = level.queue_id and place.at_ms >= level.at_ms
group by bucket
"""
_LEVELS_SHORT = """
with place as (
  select bucket, $first + (bucket + 1) * $step as at_ms from range($count) as bucket(bucket)
), life as (
  select epoch_ms(published_at) as from_ms, epoch_ms(done_at) as upto_ms from messages
  where published_at < to_timestamp($until / 1000)
    and (done_at is null or done_at >= to_timestamp($since / 1000))
    and ($queue is null or queue = $queue)
)
select bucket, count(from_ms) as backlog, max(at_ms - from_ms) as oldest
from place left join life on from_ms < at_ms and coalesce(upto_ms >= at_ms, true)
group by bucket
"""


def _levels(lake: duckdb.DuckDBPyConnection, where: Row) -> dict[str, Series]:
    backlog: Series = [None] * where["count"]
    oldest: Series = [None] * where["count"]
    short = where["step"] < MINUTE_MS
    for row in _rows(lake, _LEVELS_SHORT if short else _LEVELS, **where):
        backlog[row["bucket"]] = float(row["backlog"] or 0)
        oldest[row["bucket"]] = row["oldest"]
    return {"backlog": backlog, "oldest": oldest}


# --- totals and tables ---

_SUMS = """
       coalesce(sum(published), 0)::bigint as published, coalesce(sum(acked), 0)::bigint as acked,
       coalesce(sum(leased), 0)::bigint as leased, coalesce(sum(bytes), 0)::bigint as bytes,
       coalesce(sum(retried), 0)::bigint as retried,
       coalesce(sum(lease_expired), 0)::bigint as lease_expired,
       coalesce(sum(buried), 0)::bigint as buried, coalesce(sum(pushed), 0)::bigint as pushed,
       coalesce(sum(push_failed), 0)::bigint as push_failed"""
_TOTALS = f"select {_SUMS} from {_MINUTES}"
_QUEUES = f"""
with counted as (
  select tenant, queue_id, arg_max(queue, minute) as queue, {_SUMS},
         arg_max(backlog, minute) as backlog
  from {_MINUTES} group by tenant, queue_id
), timed as (
  select queue_id, quantile_disc(total_ms, [0.5, 0.95]) as total from {_ACKED} group by queue_id
)
select counted.*, timed.total from counted left join timed using (queue_id)
order by published + leased desc, queue
"""
_CONSUMERS = """
select queue, actor, sum(attempts)::bigint as attempts, sum(acked)::bigint as acked,
       sum(wasted)::bigint as wasted, sum(lease_seconds) as lease_seconds,
       sum(bytes)::bigint as bytes
from consumers_hours
where epoch_ms(hour) + 3600000 > $since and epoch_ms(hour) < $until
  and ($queue is null or queue = $queue)
group by queue, actor order by attempts desc, queue, actor
"""
_SLOWEST = f"""
select queue, message_id, epoch_ms(published_at) as published_at, outcome, attempts,
       wait_ms, work_ms, total_ms
from messages
where outcome in ('acked', 'buried', 'expired') and done_at >= to_timestamp($since / 1000)
  and done_at < to_timestamp($until / 1000) and ($queue is null or queue = $queue)
 
order by total_ms desc, message_id limit {SLOWEST_MAX}
"""
_AUDIT = f"""
with found as (
  select count(distinct batch) as runs, epoch_ms(max(run_at)) as run_at,
         {", ".join(f"coalesce(sum({name}), 0)::bigint as {name}" for name in _FINDINGS)}
  from audit where $queue is null or queue = $queue or coalesce(queue_id, '') = ''
), last as (
  select * from audit where coalesce(queue_id, '') <> '' and ($queue is null or queue = $queue)
  qualify row_number() over (partition by queue_id order by batch desc) = 1
), counted as (
  select {", ".join(f"coalesce(sum({name}), 0)::bigint as {name}" for name in _LAST)},
         coalesce(sum(live_lake), 0)::bigint as live,
         coalesce(sum(abs(difference)), 0)::bigint as difference
  from last
)
select * from found, counted
"""


def _audit(lake: duckdb.DuckDBPyConnection, queue: str | None) -> Row | None:
    """Counts are those of each queue's last run, findings those of all runs."""
    [row] = _rows(lake, _AUDIT, queue=queue)
    return row if row["runs"] else None


def findings(audit: Row) -> Iterator[tuple[str, int]]:
    """What should be zero and is not."""
    for name in ("difference", *_FINDINGS):
        if audit[name]:
            yield name.replace("_", " "), audit[name]


def _top(rows: Sequence[Row]) -> tuple[list[Row], int]:
    return list(rows[:ROWS_MAX]), len(rows)


def _rows(lake: duckdb.DuckDBPyConnection, sql: str, **values: Any) -> list[Row]:
    found = lake.execute(sql, {name: values[name] for name in values if f"${name}" in sql})
    names = [column[0] for column in found.description or ()]
    return [dict(zip(names, row, strict=True)) for row in found.fetchall()]
