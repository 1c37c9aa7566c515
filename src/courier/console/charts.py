"""Series in, SVG out. Pure: colours and sizes are the style sheet's."""

from collections.abc import Sequence
from datetime import UTC, datetime

from markupsafe import Markup
from msgspec import Struct

from courier.console.words import number
from courier.core.types import DAY_MS, HOUR_MS, MINUTE_MS

SPARK_WIDTH = 96
SPARK_HEIGHT = 20
SPARK_POINTS = 30


def spark(values: Sequence[int], says: str) -> Markup:
    """A small picture of one series; `says` describes it to screen readers."""
    shown = _thinned(values, SPARK_POINTS)
    top = max(shown, default=0)
    if len(shown) < 2:
        return Markup("")
    step = SPARK_WIDTH / (len(shown) - 1)
    unit = (SPARK_HEIGHT - 3) / top if top else 0
    line, last = f"M0,{SPARK_HEIGHT}", -1
    for place, value in enumerate(shown):
        if value != last:
            across = f"H{place * step:.0f}" if place else ""
            line += f"{across}V{SPARK_HEIGHT - 1 - value * unit:.0f}"
            last = value
    line += f"H{SPARK_WIDTH}V{SPARK_HEIGHT}Z"
    return Markup(
        '<svg class="spark" viewBox="0 0 {w} {h}" width="{w}" height="{h}" role="img" '
        'aria-label="{says}"><path d="{line}"/></svg>'
    ).format(w=SPARK_WIDTH, h=SPARK_HEIGHT, says=says, line=line)


def _thinned(values: Sequence[int], points: int) -> list[int]:
    """As many as are drawn: of each group of neighbours the highest."""
    if len(values) <= points:
        return list(values)
    each = -(-len(values) // points)
    return [max(values[first : first + each]) for first in range(0, len(values), each)]


WIDTH = 1_000
HEIGHT = 240
TOP, BOTTOM, LEFT, RIGHT = 12, 22, 52, 52
_STEPS = (1, 2, 5)


class Series(Struct, frozen=True):
    """Numbers of equal buckets of time, the first of which begins at `since_ms`."""

    since_ms: int
    bucket_ms: int
    published: tuple[int, ...]
    acked: tuple[int, ...]
    failures: tuple[int, ...]
    backlog: tuple[int, ...]

    @property
    def until_ms(self) -> int:
        return self.since_ms + self.bucket_ms * len(self.published)


class Mark(Struct, frozen=True):
    """Something that happened at one time."""

    at_ms: int
    says: str


def flow(
    series: Series,
    *,
    marks: Sequence[Mark] = (),
    against: Sequence[int] = (),
    chosen: tuple[int, int] | None = None,
) -> Markup:
    """What came, what was done, what failed and what waited, over time.

    Flows are on the left scale and the backlog on the right one. `against` is what was published
    in another span, drawn thin over this one; `chosen` is the part of the span that is selected.
    """
    flows = ceiling(max((*series.published, *series.acked, *against, *series.failures), default=0))
    held = ceiling(max(series.backlog, default=0))
    parts = [_grid(flows, held), _time_axis(series)]
    if chosen:
        left, right = (_x(series, at_ms) for at_ms in chosen)
        shape = '<rect class="chosen" x="{:.1f}" y="{}" width="{:.1f}" height="{}"/>'
        width = max(1.0, right - left)
        parts.append(Markup(shape).format(left, TOP, width, HEIGHT - TOP - BOTTOM))
    if any(series.backlog):
        line = _line(series, series.backlog, held)
        floor = HEIGHT - BOTTOM
        area = f"M{LEFT},{floor} L{line[1:]} L{WIDTH - RIGHT},{floor} Z"
        parts.append(Markup('<path class="backlog" d="{}"/>').format(area))
        parts.append(Markup('<path class="backlog-line" d="{}"/>').format(line))
    parts.append(_bars(series, flows))
    if against:
        parts.append(Markup('<path class="against" d="{}"/>').format(_line(series, against, flows)))
    parts.append(
        Markup('<path class="published" d="{}"/>').format(_line(series, series.published, flows))
    )
    parts.append(Markup('<path class="acked" d="{}"/>').format(_line(series, series.acked, flows)))
    for mark in marks:
        x = _x(series, mark.at_ms)
        line = (
            '<line class="mark-line" x1="{0:.1f}" x2="{0:.1f}" y1="{1}" y2="{2}">'
            "<title>{3}</title></line>"
        )
        parts.append(Markup(line).format(x, TOP, HEIGHT - BOTTOM, mark.says))
    head = (
        '<svg id="chart" viewBox="0 0 {w} {h}" role="img" aria-label="{says}" data-since="{since}" '
        'data-until="{until}" data-left="{left}" data-right="{right}">'
    )
    opened = Markup(head).format(
        w=WIDTH, h=HEIGHT, says=summary(series), since=series.since_ms, until=series.until_ms,
        left=LEFT, right=WIDTH - RIGHT,
    )  # fmt: skip
    return opened + Markup("").join(parts) + Markup("</svg>")


def summary(series: Series) -> str:
    """The chart in words."""
    return (
        f"{number(sum(series.published))} published, {number(sum(series.acked))} acked, "
        f"{number(sum(series.failures))} failures, backlog up to "
        f"{number(max(series.backlog, default=0))}"
    )


def ceiling(value: float) -> int:
    """The least of 1, 2, 5, 10, 20, ... that is not below the value."""
    unit = 1
    while True:
        for step in _STEPS:
            if step * unit >= value:
                return step * unit
        unit *= 10


def _x(series: Series, at_ms: float) -> float:
    whole = max(1, series.until_ms - series.since_ms)
    place = min(1.0, max(0.0, (at_ms - series.since_ms) / whole))
    return LEFT + place * (WIDTH - LEFT - RIGHT)


def _y(value: float, top: int) -> float:
    return HEIGHT - BOTTOM - value / top * (HEIGHT - TOP - BOTTOM)


def _line(series: Series, values: Sequence[int], top: int) -> str:
    """A line with a step at each bucket's edge, with as few steps as there are changes."""
    text = ""
    last: int | None = None
    for place, value in enumerate(values):
        if value != last:
            x, y = _x(series, series.since_ms + place * series.bucket_ms), _y(value, top)
            text += f"M{x:.0f},{y:.1f}" if last is None else f"H{x:.0f}V{y:.1f}"
            last = value
    return f"{text}H{WIDTH - RIGHT}" if text else f"M{LEFT},{HEIGHT - BOTTOM}H{WIDTH - RIGHT}"


def _bars(series: Series, top: int) -> Markup:
    parts = []
    width = max(1.5, (WIDTH - LEFT - RIGHT) / max(1, len(series.failures)) - 0.5)
    for place, value in enumerate(series.failures):
        if value:
            x, y = _x(series, series.since_ms + place * series.bucket_ms), _y(value, top)
            bar = '<rect class="failures" x="{:.0f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"/>'
            parts.append(Markup(bar).format(x, y, width, HEIGHT - BOTTOM - y))
    return Markup("").join(parts)


def _grid(flows: int, held: int) -> Markup:
    parts = []
    for share in (0, 0.5, 1):
        y = _y(share, 1)
        line = '<line class="grid" x1="{}" x2="{}" y1="{:.1f}" y2="{:.1f}"/>'
        parts.append(Markup(line).format(LEFT, WIDTH - RIGHT, y, y))
        text = '<text x="{}" y="{:.1f}" text-anchor="{}">{}</text>'
        parts.append(Markup(text).format(LEFT - 6, y + 4, "end", short_number(flows * share)))
        parts.append(
            Markup(text).format(WIDTH - RIGHT + 6, y + 4, "start", short_number(held * share))
        )
    return Markup("").join(parts)


def short_number(value: float) -> str:
    """At most five characters: 0.5, 20, 1.5k, 2M."""
    for unit, name in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if value >= unit:
            return f"{value / unit:.3g}{name}"
    return f"{value:g}"


_TICKS_MS = (
    10 * MINUTE_MS, 20 * MINUTE_MS, HOUR_MS, 2 * HOUR_MS, 4 * HOUR_MS, 8 * HOUR_MS,
    DAY_MS, 2 * DAY_MS, 7 * DAY_MS, 28 * DAY_MS, 112 * DAY_MS,
)  # fmt: skip
TICKS_MAX = 7


def _time_axis(series: Series) -> Markup:
    span_ms = series.until_ms - series.since_ms
    tick_ms = next((each for each in _TICKS_MS if span_ms / each <= TICKS_MAX), _TICKS_MS[-1])
    parts: list[Markup] = []
    at_ms = -(-series.since_ms // tick_ms) * tick_ms
    while at_ms <= series.until_ms and len(parts) <= TICKS_MAX:
        at = datetime.fromtimestamp(at_ms / 1_000, UTC)
        text = f"{at:%d %b}" if tick_ms >= DAY_MS or not at_ms % DAY_MS else f"{at:%H:%M}"
        mark = '<text x="{:.0f}" y="{}" text-anchor="middle">{}</text>'
        parts.append(Markup(mark).format(_x(series, at_ms), HEIGHT - 6, text))
        at_ms += tick_ms
    return Markup("").join(parts)
