"""Spans of time as addresses have them, and what happened to a queue in one."""

import re
from datetime import UTC, datetime

from msgspec import Struct

from courier.console.charts import Mark, Series
from courier.console.facts import by_minute
from courier.console.recent import Sums, add
from courier.core.errors import InvalidRequest, NotFound
from courier.core.store import StoreReads
from courier.core.types import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, Queue, Tally

LASTS = {"1h": HOUR_MS, "6h": 6 * HOUR_MS, "24h": DAY_MS, "7d": 7 * DAY_MS, "30d": 30 * DAY_MS}
# By the minute up to a day and by the hour beyond a week, as tallies are kept.
_BUCKETS_MS = {DAY_MS: MINUTE_MS, 7 * DAY_MS: 5 * MINUTE_MS}
# Rows of the table below a chart.
ROWS_MAX = 120
MARKS_MAX = 50
AGAINST = {"": "nothing", "before": "the span before", "day": "yesterday", "week": "last week",
           "other": "another time:"}  # fmt: skip
_DURATION = re.compile(r"(\d{1,12})\s*(ms|s|m|min|h|d)")
_UNITS = {"ms": 1, "s": SECOND_MS, "m": MINUTE_MS, "min": MINUTE_MS, "h": HOUR_MS, "d": DAY_MS}


class ChartSpan(Struct, frozen=True):
    """What the chart shows, bucket by bucket, and the part of it that is selected; `last` if it
    ends now."""

    since_ms: int
    until_ms: int
    bucket_ms: int
    last: str = ""
    chosen: tuple[int, int] | None = None


def duration_ms(text: str, field: str) -> int:
    """5s, 2m, 4d; raises InvalidRequest."""
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None:
        raise InvalidRequest(field, f"'{text[:40]}' is not a duration such as 30s, 5m, 2h or 4d")
    return int(match[1]) * _UNITS[match[2]]


def duration_text(ms: int) -> str:
    """As it is typed."""
    for unit, name in ((DAY_MS, "d"), (HOUR_MS, "h"), (MINUTE_MS, "m"), (SECOND_MS, "s")):
        if ms and ms % unit == 0:
            return f"{ms // unit}{name}"
    return f"{ms}ms" if ms else "0s"


def moment_ms(text: str, field: str) -> int:
    """2026-11-17T02:41Z, also without the Z, which is what it means; raises InvalidRequest."""
    try:
        at = datetime.fromisoformat(text.strip().replace("Z", "+00:00"))
        at = at if at.tzinfo else at.replace(tzinfo=UTC)
        found = int(at.timestamp() * 1_000)
    except (ValueError, OverflowError) as error:
        raise InvalidRequest(
            field, f"'{text[:40]}' is not a time such as 2026-11-17T02:41Z"
        ) from error
    if not 0 <= found < 1 << 46:
        raise InvalidRequest(field, f"'{text[:40]}' is not a time of ours")
    return found


def span(since: str, until: str, last: str, now_ms: int) -> ChartSpan:
    """The span that an address asks for: one that ends now, or two times. Raises InvalidRequest."""
    if since in LASTS and not until:
        last, since = since, ""
    last = last if last in LASTS else "1h"
    end_ms = (now_ms // MINUTE_MS + 1) * MINUTE_MS
    if not since and not until:
        return _span(end_ms - LASTS[last], end_ms, last)
    first = moment_ms(since, "since") if since else end_ms - LASTS[last]
    final = moment_ms(until, "until") if until else end_ms
    if first >= final:
        raise InvalidRequest("since", "must be before `until`")
    if final <= end_ms:
        for name, length_ms in LASTS.items():
            if first >= end_ms - length_ms and length_ms >= LASTS[last]:
                return _span(end_ms - length_ms, end_ms, name, (first, final))
    end_ms = -(-final // MINUTE_MS) * MINUTE_MS
    return _span(max(first, end_ms - LASTS["30d"]), end_ms, "", (first, final))


def _span(
    since_ms: int, until_ms: int, last: str, chosen: tuple[int, int] | None = None
) -> ChartSpan:
    """Beginning where a bucket does: what is summed by the hour is of whole hours."""
    length_ms = until_ms - since_ms
    bucket_ms = next((ms for longest, ms in _BUCKETS_MS.items() if length_ms <= longest), HOUR_MS)
    return ChartSpan(since_ms // bucket_ms * bucket_ms, until_ms, bucket_ms, last, chosen)


def shifted(
    chosen: ChartSpan, against: str, since: str = "", until: str = ""
) -> tuple[int, int] | None:
    """The span to compare with; two times for `other`. Raises InvalidRequest."""
    first, last = chosen.chosen or (chosen.since_ms, chosen.until_ms)
    if against == "other" and (since or until):
        other = moment_ms(since, "other_since"), moment_ms(until, "other_until")
        if other[0] >= other[1]:
            raise InvalidRequest("other_since", "must be before `other_until`")
        return other
    by_ms = {"before": last - first, "day": DAY_MS, "week": 7 * DAY_MS}.get(against)
    return None if by_ms is None else (first - by_ms, last - by_ms)


class Totals(Struct):
    """What happened in a span."""

    published: int = 0
    acked: int = 0
    retried: int = 0
    lease_expired: int = 0
    buried: int = 0
    expired: int = 0
    deleted: int = 0


def totals(tallies: list[Tally], since_ms: int, until_ms: int) -> Totals:
    found = Totals()
    for tally in tallies:
        if not since_ms - MINUTE_MS < tally.minute * MINUTE_MS < until_ms:
            continue
        kind = "deleted" if tally.kind == "purged" else tally.kind
        if kind in Totals.__struct_fields__:
            setattr(found, kind, getattr(found, kind) + tally.count)
    return found


def difference(now: Totals, then: Totals) -> str:
    """How two spans differ, in words; the greatest difference first."""
    words = {
        "acked": "acks", "published": "publishing", "retried": "retries",
        "lease_expired": "expired leases", "buried": "dead letters",
    }  # fmt: skip
    changed, usual = [], []
    for field, noun in words.items():
        here, there = getattr(now, field), getattr(then, field)
        if here == there == 0:
            continue
        if not here:
            changed.append((float("inf"), f"{noun} stopped"))
        elif not there:
            changed.append((float("inf"), f"{noun} began"))
        elif here / there >= 1.5 or there / here >= 1.5:
            more = here > there
            times = here / there if more else there / here
            changed.append((times, f"{noun} {times:.1f} times as {'many' if more else 'few'}"))
        else:
            usual.append(noun)
    said = [text for _, text in sorted(changed, key=lambda each: -each[0])]
    if usual:
        said.append(f"{' and '.join(usual)} as before")
    return "; ".join(said) if said else "nothing happened in either"


async def series(
    store: StoreReads, queue: Queue, chosen: ChartSpan, count: int
) -> tuple[Series, list[Tally]]:
    """What happened to the queue, by bucket; and the tallies that say so."""
    tallies = await store.past.tallies(
        tenant=queue.tenant, id=queue.id, since_ms=chosen.since_ms, until_ms=chosen.until_ms
    )
    bucket_ms = chosen.bucket_ms
    buckets = max(1, -(-(chosen.until_ms - chosen.since_ms) // bucket_ms))
    sums = [Sums() for _ in range(buckets)]
    for tally in tallies:
        place = (tally.minute * MINUTE_MS - chosen.since_ms) // bucket_ms
        add(sums[min(max(0, place), buckets - 1)], tally)
    try:
        [levels] = await store.past.levels([queue.id], since_ms=chosen.since_ms)
    except NotFound:  # it was deleted, and what it held is no longer known
        levels = []
    minutes = by_minute(levels, count, queue.created_ms, chosen.since_ms, chosen.until_ms - 1)
    each = bucket_ms // MINUTE_MS
    held = [max(minutes[n * each : (n + 1) * each], default=0) for n in range(buckets)]
    return (
        Series(
            chosen.since_ms,
            bucket_ms,
            tuple(each.published for each in sums),
            tuple(each.acked for each in sums),
            tuple(each.lease_expired + each.buried for each in sums),
            tuple(held),
        ),
        tallies,
    )


def marks(tallies: list[Tally]) -> list[Mark]:
    """Changes of settings, the newest that there is room for."""
    words = {"queue_updated": "settings changed", "queue_created": "created"}
    found = [
        Mark(tally.minute * MINUTE_MS, words[tally.kind])
        for tally in tallies
        if tally.kind in words
    ]
    return found[-MARKS_MAX:]
