"""Series in, SVG out. Pure: colours and sizes are the style sheet's."""

from collections.abc import Iterator, Sequence

from markupsafe import Markup
from msgspec import Struct

from courier.drawing import Frame, ceiling, short_number
from courier.words import number

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


def _parts(values: Sequence[int], each: int) -> Iterator[Sequence[int]]:
    return (values[first : first + each] for first in range(0, len(values), each))


def _thinned(values: Sequence[int], points: int) -> list[int]:
    """As many as are drawn: of each group of neighbours the highest."""
    each = -(-len(values) // points) or 1
    return [max(part) for part in _parts(values, each)]


WIDTH = 1_000
HEIGHT = 240
TOP, BOTTOM, LEFT, RIGHT = 12, 22, 52, 52
# Of more buckets the highest of neighbours is drawn, so that a peak of one minute is seen.
COLUMNS_MAX = 360


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

    def rows(self, most: int) -> "Series":
        """The same in at most `most` buckets: sums, and of the backlog the highest."""
        each = -(-len(self.published) // most) or 1
        return Series(
            self.since_ms,
            self.bucket_ms * each,
            tuple(map(sum, _parts(self.published, each))),
            tuple(map(sum, _parts(self.acked, each))),
            tuple(map(sum, _parts(self.failures, each))),
            tuple(map(max, _parts(self.backlog, each))),
        )


class Mark(Struct, frozen=True):
    """Something that happened at one time; `plan` is the id of what did it, if that is a plan."""

    at_ms: int
    says: str
    plan: str = ""


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
    frame = _frame(series)
    parts = [_grid(frame, flows, held), _time_axis(frame)]
    if chosen:
        left, right = (frame.x(at_ms) for at_ms in chosen)
        shape = '<rect class="chosen" x="{:.1f}" y="{}" width="{:.1f}" height="{}"/>'
        width = max(1.0, right - left)
        parts.append(Markup(shape).format(left, TOP, width, HEIGHT - TOP - BOTTOM))
    path = Markup('<path class="{}" d="{}"/>')
    if any(series.backlog):
        parts.append(path.format("backlog", _path(frame, series.backlog, held, area=True)))
        parts.append(path.format("backlog-line", _path(frame, series.backlog, held)))
    if any(series.failures):
        parts.append(path.format("failures", _path(frame, series.failures, flows, area=True)))
    if against:
        parts.append(path.format("against", _path(frame, against, flows)))
    parts.append(path.format("published", _path(frame, series.published, flows)))
    parts.append(path.format("acked", _path(frame, series.acked, flows)))
    for mark in marks:
        x = frame.x(mark.at_ms)
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


def _frame(series: Series) -> Frame:
    return Frame(WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM, series.since_ms, series.until_ms)


def _path(frame: Frame, values: Sequence[int], top: int, *, area: bool = False) -> str:
    each = -(-len(values) // COLUMNS_MAX) or 1
    shares = [max(part) / top for part in _parts(values, each)]
    drawn = frame.steps(shares, area=area, count=len(values) / each)
    return drawn or f"M{LEFT},{frame.floor}H{WIDTH - RIGHT}"


def _grid(frame: Frame, flows: int, held: int) -> Markup:
    parts = []
    for share in (0, 0.5, 1):
        y = frame.y(share)
        line = '<line class="grid" x1="{}" x2="{}" y1="{:.1f}" y2="{:.1f}"/>'
        parts.append(Markup(line).format(LEFT, WIDTH - RIGHT, y, y))
        text = '<text x="{}" y="{:.1f}" text-anchor="{}">{}</text>'
        parts.append(Markup(text).format(LEFT - 6, y + 4, "end", short_number(flows * share)))
        parts.append(
            Markup(text).format(WIDTH - RIGHT + 6, y + 4, "start", short_number(held * share))
        )
    return Markup("").join(parts)


TICKS_MAX = 7


def _time_axis(frame: Frame) -> Markup:
    mark = Markup('<text x="{:.0f}" y="{}" text-anchor="middle">{}</text>')
    return Markup("").join(mark.format(x, HEIGHT - 6, text) for x, text in frame.ticks(TICKS_MAX))


# Classes of lines, told apart by more than their colour.
LINES = ("published", "acked", "against", "backlog-line")


def lines(times: Sequence[str], named: Sequence[tuple[str, Sequence[float]]]) -> Markup:
    """Lines over neighbouring times, at equal distances, each with its name at its end."""
    top = ceiling(max((value for _, values in named for value in values), default=0))
    low = min(0.0, *(value for _, values in named for value in values))
    step = (WIDTH - LEFT - RIGHT) / max(1, len(times) - 1)
    frame = Frame(WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM, 0, 0)
    drawn = Markup("")
    for (name, values), style in zip(named, LINES, strict=False):
        shares = [max(0.0, value - low) / max(1, top - int(low)) for value in values]
        points = " ".join(
            f"{LEFT + place * step:.0f},{frame.y(share):.0f}" for place, share in enumerate(shares)
        )
        drawn += Markup('<polyline class="{}" points="{}"><title>{}</title></polyline>').format(
            style, points, name
        )
    ends = Markup('<text x="{}" y="{}">{}</text><text x="{}" y="{}" text-anchor="end">{}</text>')
    foot = HEIGHT - 6
    return Markup('<svg viewBox="0 0 {} {}" role="img" aria-label="{}">{}{}{}</svg>').format(
        WIDTH,
        HEIGHT,
        f"{', '.join(name for name, _ in named)} from {times[0]} to {times[-1]}",
        Markup('<text x="4" y="{}">{}</text>').format(TOP + 8, short_number(top)),
        drawn,
        ends.format(LEFT, foot, times[0], WIDTH - RIGHT, foot, times[-1]),
    )
