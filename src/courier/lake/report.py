"""What happened in the queues, told in one HTML file: figures, plots with captions, tables."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from courier.clock import SystemClock
from courier.lake import page, plots
from courier.lake.catalog import Lake
from courier.lake.figures import (
    DAY_MS,
    FAILURES,
    HOUR_MS,
    LATENCIES,
    MINUTE_MS,
    SECOND_MS,
    Figures,
    MinuteSpan,
    Series,
    connect,
    findings,
    gather,
    known_queue,
)
from courier.lake.page import count, moment, share, words
from courier.lake.plots import duration
from courier.lake.replay import instant
from courier.lake.tables import BadRequest

_STEP_NAMES = {
    SECOND_MS: "second",
    MINUTE_MS: "minute",
    HOUR_MS: "hour",
    DAY_MS: "day",
    7 * DAY_MS: "week",
}
_LATENCY_MEANS = {
    "wait": "from publish to the first lease",
    "work": "from the last lease to the ack",
    "total": "from publish to the ack",
}
_FAILURE_MEANS = {
    "retried": "given back by a consumer",
    "lease_expired": "lease ended without an answer",
    "buried": "no attempts left",
    "push_failed": "a listener did not take it",
}


@dataclass(frozen=True)
class ReportPage:
    """A page, and how much it tells of."""

    page: str
    published: int
    acked: int


def make(
    lake: Lake, *, queue: str | None = None, since: str | None = None, until: str | None = None
) -> ReportPage:
    """Of one queue or all. Raises BadRequest for a time or a queue that is none."""
    now_ms = SystemClock().now_ms()
    since_ms = instant(since, now_ms=now_ms) if since else None
    until_ms = instant(until, now_ms=now_ms) if until else None
    if since_ms is not None and until_ms is not None and since_ms >= until_ms:
        raise BadRequest("the report would end before it begins: --since must be before --until")
    with connect(lake) as tables:
        if queue is not None and not known_queue(tables, queue):
            raise BadRequest(f"the lake at {lake.root} has no queue '{queue}'")
        figures = gather(tables, queue=queue, since_ms=since_ms, until_ms=until_ms)
    text = render(figures, made_ms=now_ms)
    return ReportPage(text, figures.totals["published"], figures.totals["acked"])


def render(figures: Figures, *, made_ms: int) -> str:
    """The whole file."""
    title = f"Queue {figures.queue}" if figures.queue is not None else "All queues"
    body = "".join(_nothing(figures) if figures.span is None else _sections(figures, figures.span))
    offset = f" up to journal offset {figures.offset:,}" if figures.offset is not None else ""
    made = f"Made {moment(made_ms)} from the lake{offset}. All times are UTC."
    return page.whole(title, _range(figures), body, made)


def _nothing(figures: Figures) -> Iterator[str]:
    if figures.offset is None:
        why = "The lake is empty: <code>courier pipeline run</code> fills it from the journal."
    else:
        why = "Nothing happened here in this time."
    yield f"<section><p class=lead>{why}</p></section>"
    yield _audit(figures)


def _sections(figures: Figures, span: MinuteSpan) -> Iterator[str]:
    yield _cards(figures)
    series = figures.series
    yield "<section><h2>Flow</h2><div class=two>"
    yield page.figure(
        f"Messages per {span.unit}{_averaged(span)}",
        plots.flow(span, series["published"], series["acked"]),
        _flow_says(figures, span),
    )
    yield page.figure(
        "Backlog: messages not yet done",
        plots.level(span, series["backlog"]),
        _backlog_says(figures, span),
    )
    yield page.figure(
        "Age of the oldest of them", plots.age(span, series["oldest"]), _oldest_says(figures, span)
    )
    yield _failures(figures, span)
    yield "</div></section><section><h2>How long it took</h2>"
    yield _percentile_table(figures)
    yield "<div class=three>"
    for name in LATENCIES:
        lines = [series[f"{name}_p{percent}"] for percent in (50, 95, 99)]
        if figures.percentiles[name] is not None:
            drawn = plots.percentiles(span, *lines)
            yield page.figure(
                f"{name.capitalize()}{_per(span)}", drawn, _latency_says(figures, name)
            )
    yield "</div></section>"
    yield _queues(figures)
    yield _consumers(figures)
    yield _slowest(figures)
    yield _audit(figures)


# --- headline ---


def _cards(figures: Figures) -> str:
    totals, total = figures.totals, figures.percentiles["total"]
    wasted = totals["retried"] + totals["lease_expired"]
    backlog = figures.series["backlog"][-1] or 0
    sound = figures.audit is not None and not any(findings(figures.audit))
    cards = [
        ("Published", f"{totals['published']:,}", page.size(totals["bytes"])),
        ("Acked", f"{totals['acked']:,}", f"in {count(totals['leased'], 'attempt')}"),
        ("Backlog", f"{backlog:,.0f}", "at the end"),
        (
            "Time to done",
            duration(total[0] if total else None),
            f"median; p95 {duration(total[1] if total else None)}",
        ),
        (
            "Wasted attempts",
            share(wasted, totals["leased"]),
            f"{totals['retried']:,} retried, {totals['lease_expired']:,} expired",
        ),
        ("Buried", f"{totals['buried']:,}", "no attempts left"),
        (
            "Audit",
            "none yet" if figures.audit is None else "adds up" if sound else "does not add up",
            "" if figures.audit is None else count(figures.audit["runs"], "run"),
        ),
    ]
    shown = "".join(
        f"<div><dt>{name}</dt><dd>{value}<small>{page.safe(more)}</small></dd></div>"
        for name, value, more in cards
    )
    return f"<dl class=cards>{shown}</dl>"


# --- what the plots say, in words ---


def _flow_says(figures: Figures, span: MinuteSpan) -> str:
    published, acked = figures.totals["published"], figures.totals["acked"]
    said = f"{count(published, 'message')} came in and {acked:,} were acked."
    if pushed := figures.totals["pushed"]:
        said += f" Listeners took {count(pushed, 'push', 'pushes')}."
    if published:
        at, most = _peak(figures.series["published"])
        rate = most / span.units
        said += f" The busiest {_step(span)} began {_at(span, at)}, with {rate:,.4g} a {span.unit}."
    return said


def _backlog_says(figures: Figures, span: MinuteSpan) -> str:
    values = figures.series["backlog"]
    at, most = _peak(values)
    if not most:
        return f"At the end of every {_step(span)} nothing was left waiting."
    return f"At most {most:,.0f}, at {_at(span, at + 1)}; {values[-1] or 0:,.0f} at the end."


def _oldest_says(figures: Figures, span: MinuteSpan) -> str:
    values = figures.series["oldest"]
    at, most = _peak(values)
    if not most:
        return "Nothing waited long enough to be seen here."
    last = values[-1]
    end = "nothing waited at the end" if last is None else f"{duration(last)} at the end"
    return f"At most {duration(most)}, at {_at(span, at + 1)}; {end}. Gaps: nothing was waiting."


def _latency_says(figures: Figures, name: str) -> str:
    found = figures.percentiles[name]
    if found is None:
        return ""
    return (
        f"{_LATENCY_MEANS[name].capitalize()}: half took {duration(found[0])} or less, one in "
        f"twenty more than {duration(found[1])}, one in a hundred more than {duration(found[2])}."
    )


def _failures(figures: Figures, span: MinuteSpan) -> str:
    rows = [(name, figures.series[name]) for name in FAILURES if any(figures.series[name])]
    title = f"Failures{_per(span)}"
    if not rows:
        return page.figure(
            title, "", "Nothing was retried, expired, buried or refused by a listener."
        )
    parts = [f"{figures.totals[name]:,} {words(name)} ({_FAILURE_MEANS[name]})" for name, _ in rows]
    drawn = plots.strips(span, [(words(name), values) for name, values in rows])
    return page.figure(title, drawn, "; ".join(parts) + ". The number beside a strip is its peak.")


# --- tables ---


def _percentile_table(figures: Figures) -> str:
    rows = []
    for name in LATENCIES:
        values = figures.percentiles[name] or (None, None, None)
        rows.append([name, _LATENCY_MEANS[name], *map(duration, values)])
    note = "" if figures.percentiles["total"] else "<p>No message was acked in this time.</p>"
    return note + page.table(["", "", "p50", "p95", "p99"], rows, numbers=3)


def _queues(figures: Figures) -> str:
    if figures.queue is not None:
        return ""
    many = len({row["tenant"] for row in figures.queues}) > 1
    rows = [
        [
            *([row["tenant"]] if many else []),
            row["queue"],
            f"{row['published']:,}",
            f"{row['acked']:,}",
            f"{row['retried'] + row['lease_expired']:,}",
            f"{row['buried']:,}",
            f"{row['backlog'] or 0:,}",
            *map(duration, row["total"] or (None, None)),
        ]
        for row in figures.queues
    ]
    columns = ["queue", "published", "acked", "wasted", "buried", "backlog", "p50", "p95"]
    shown = page.table([*(["tenant"] if many else []), *columns], rows, numbers=7)
    more = page.rest(figures.queues_all, len(rows), "queue")
    return f"<section><h2>Queues</h2>{shown}{more}</section>"


def _consumers(figures: Figures) -> str:
    rows = [
        [
            *_named(figures, row["queue"]),
            row["actor"],
            f"{row['attempts']:,}",
            f"{row['acked']:,}",
            share(row["wasted"], row["attempts"]),
            duration((row["lease_seconds"] or 0) * 1_000),
            page.size(row["bytes"]),
        ]
        for row in figures.consumers
    ]
    said = "<p>Whole hours. Wasted: attempts that ended in a retry or with their lease.</p>"
    if not rows:
        said = "<p>Nobody took a message in this time.</p>"
    columns = [
        *_named(figures, "queue"),
        "consumer",
        "attempts",
        "acked",
        "wasted",
        "leases held",
        "read",
    ]
    shown = page.table(columns, rows, numbers=5)
    more = page.rest(figures.consumers_all, len(rows), "consumer")
    return f"<section><h2>Consumers</h2>{said}{shown}{more}</section>"


def _slowest(figures: Figures) -> str:
    rows = [
        [
            *_named(figures, row["queue"]),
            row["message_id"],
            moment(row["published_at"]),
            row["outcome"],
            f"{row['attempts'] or 0:,}",
            *(duration(row[f"{name}_ms"]) for name in LATENCIES),
        ]
        for row in figures.slowest
    ]
    if not rows:
        return ""
    columns = [*_named(figures, "queue"), "message", "published", "outcome", "attempts", *LATENCIES]
    return f"<section><h2>Slowest messages</h2>{page.table(columns, rows, numbers=4)}</section>"


def _named(figures: Figures, text: str) -> list[str]:
    """The cell that names a queue, unless the report is of one."""
    return [text] if figures.queue is None else []


def _audit(figures: Figures) -> str:
    audit = figures.audit
    if audit is None:
        return "<section><h2>Audit</h2><p>The pipeline has not audited anything yet.</p></section>"
    wrong = [f"{page.safe(name)}: {number:,}" for name, number in findings(audit)]
    ends = ", ".join(
        f"{audit[name]:,} {name}"
        for name in ("acked", "buried", "expired", "purged", "deleted")
        if audit[name]
    )
    sums = (
        f"Of {count(audit['accepted'], 'message')} accepted since the journal began, "
        f"{ends + ' and ' if ends else ''}{audit['live']:,} still live. "
        f"{count(audit['runs'], 'run')}, the last at {moment(audit['run_at'])}."
    )
    if wrong:
        verdict = f"<p class=bad>✗ It does not add up: {'; '.join(wrong)}.</p>"
    else:
        verdict = (
            "<p class=good>✓ Everything adds up: no message is missing, none is there twice, no "
            "offset is skipped, and lake and broker agree.</p>"
        )
    return f"<section><h2>Audit</h2>{verdict}<p>{sums}</p></section>"


# --- times ---


def _range(figures: Figures) -> str:
    if figures.since_ms is None and figures.until_ms is None:
        return "of all time"
    since = "the beginning" if figures.since_ms is None else moment(figures.since_ms)
    until = "the end" if figures.until_ms is None else moment(figures.until_ms)
    return f"{since} to {until}"


def _peak(values: Series) -> tuple[int, float]:
    return max(enumerate(value or 0 for value in values), key=lambda item: item[1])


def _at(span: MinuteSpan, bucket: int) -> str:
    at = datetime.fromtimestamp((span.first_ms + bucket * span.step_ms) / 1_000, UTC)
    if span.step_ms >= DAY_MS:
        return f"{at:%Y-%m-%d}"
    one_day = span.first_ms // DAY_MS == (span.until_ms - 1) // DAY_MS
    clock = f"{at:%H:%M:%S}" if span.step_ms < MINUTE_MS else f"{at:%H:%M}"
    return clock if one_day else f"{at:%Y-%m-%d} {clock}"


def _step(span: MinuteSpan) -> str:
    name = _STEP_NAMES.get(span.step_ms)
    if name is not None:
        return name
    for size, unit in ((DAY_MS, "days"), (HOUR_MS, "hours"), (MINUTE_MS, "minutes")):
        if span.step_ms % size == 0:
            return f"{span.step_ms // size} {unit}"
    return f"{span.step_ms // SECOND_MS} seconds"


def _per(span: MinuteSpan) -> str:
    return f", per {_step(span)}"


def _averaged(span: MinuteSpan) -> str:
    return "" if span.units == 1 else f", averaged per {_step(span)}"
