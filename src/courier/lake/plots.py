"""Plots as SVG that lies in a page: text stays text, and colours are the page's own classes."""

import math
from collections.abc import Callable, Sequence
from html import escape

from courier.drawing import Frame, scale, short_number
from courier.lake.figures import MinuteSpan, Series

_WIDE = (450, 210)
_NARROW = (320, 210)
_LEFT, _RIGHT, _TOP, _BOTTOM = 44, 8, 24, 22
_STRIP_HEIGHT = 44
_TICKS_MAX = 5
_TICKS_NARROW_MAX = 3
_PARTS = 4
# Width of a letter of a legend, about.
_LETTER = 6
_UNITS = ((1, "ms"), (1_000, "s"), (60_000, "min"), (3_600_000, "h"), (86_400_000, "d"))
# Where a logarithmic axis of time has its lines.
_MOMENTS = (
    *(1, 10, 100, 1_000, 10_000, 60_000, 600_000, 3_600_000),
    *(86_400_000, 864_000_000, 8_640_000_000, 86_400_000_000),
)


def flow(span: MinuteSpan, published: Series, acked: Series) -> str:
    """Messages per minute, or per second: what came as an area, what was done as a line."""
    came = [(value or 0) / span.units for value in published]
    went = [(value or 0) / span.units for value in acked]
    frame = _frame(span, _WIDE)
    values = scale(max(came + went), parts=_PARTS)
    drawn = _area("s1", frame.steps(_shares(came, values), area=True))
    drawn += _line("s2", frame.steps(_shares(went, values)))
    legend = _legend([("area s1", "published"), ("line s2", "acked")])
    return _svg(frame, _grid(frame, values, short_number) + drawn + legend)


def level(span: MinuteSpan, values: Series) -> str:
    """How many were waiting at the end of each bucket."""
    return _filled(span, values, "s1", short_number, whole=True)


def age(span: MinuteSpan, values_ms: Series) -> str:
    """How old the oldest one was, in the unit that suits it; a gap where none waited."""
    size, unit = unit_of(max((value or 0 for value in values_ms), default=0))
    scaled = [None if value is None else value / size for value in values_ms]
    return _filled(span, scaled, "s3", lambda value: f"{value:g} {unit}")


def percentiles(span: MinuteSpan, p50: Series, p95: Series, p99: Series) -> str:
    """Three lines on a logarithmic axis; gaps where nothing was measured."""
    frame = _frame(span, _NARROW)
    seen = [max(1.0, value) for values in (p50, p95, p99) for value in values if value]
    low, high = math.log(min(seen, default=1.0) / 1.6), math.log(max(seen, default=1.0) * 1.6)

    def share(ms: float) -> float:
        return (math.log(max(1.0, ms)) - low) / (high - low)

    inside = [float(moment) for moment in _MOMENTS if low <= math.log(moment) <= high]
    marks = inside[:: 1 + len(inside) // 7] or [min(seen, default=1.0)]
    drawn = "".join(_mark(frame, share(moment), duration(moment)) for moment in marks)
    for values, look in ((p99, "s3 dotted"), (p95, "s2 dashed"), (p50, "s1")):
        shares = [None if value is None else share(value) for value in values]
        drawn += _line(look, frame.steps(shares))
    legend = _legend([("line s1", "p50"), ("line s2 dashed", "p95"), ("line s3 dotted", "p99")])
    return _svg(frame, drawn + legend, ticks=_TICKS_NARROW_MAX)


def strips(span: MinuteSpan, rows: Sequence[tuple[str, Series]]) -> str:
    """One low strip for each name, under each other, each with its own scale."""
    drawn = ""
    height = _STRIP_HEIGHT * len(rows) + _BOTTOM
    for place, (name, values) in enumerate(rows):
        top = _STRIP_HEIGHT * place + 16
        bottom = height - _STRIP_HEIGHT * (place + 1)
        strip = _frame(span, (_WIDE[0], height), top=top, bottom=bottom)
        peak = max(value or 0 for value in values) or 1
        shares = [(value or 0) / peak for value in values]
        drawn += f'<text class="name" x="{_LEFT}" y="{top - 5}">{escape(name)}</text>'
        drawn += _rule(strip, 0) + _mark(strip, 1, f"{peak:,.0f}")
        drawn += _area("s2", strip.steps(shares, area=True), solid=True)
    return _svg(_frame(span, (_WIDE[0], height)), drawn)


# --- numbers as people read them ---


def unit_of(ms: float) -> tuple[int, str]:
    """The largest unit of which `ms` has at least two."""
    return max(((size, unit) for size, unit in _UNITS if ms >= 2 * size), default=_UNITS[0])


def duration(ms: float | None) -> str:
    """A duration in one unit, with two or three digits; a dash for none."""
    if ms is None:
        return "-"
    size, unit = max(((size, unit) for size, unit in _UNITS if ms >= size), default=_UNITS[0])
    value = ms / size
    return f"{value:.0f} {unit}" if value >= 10 or size == 1 else f"{value:.2g} {unit}"


# --- the drawing itself ---


def _frame(
    span: MinuteSpan, size: tuple[int, int], *, top: int = _TOP, bottom: int = _BOTTOM
) -> Frame:
    edges_ms = span.edges_ms
    return Frame(*size, _LEFT, _RIGHT, top, bottom, edges_ms[0], edges_ms[-1])


def _filled(
    span: MinuteSpan,
    values: Series,
    look: str,
    says: Callable[[float], str],
    *,
    whole: bool = False,
) -> str:
    """One series without a legend."""
    frame = _frame(span, _WIDE, top=10)
    marks = scale(max((value or 0 for value in values), default=0), parts=_PARTS, whole=whole)
    shares = _shares(values, marks)
    drawn = _area(look, frame.steps(shares, area=True)) + _line(look, frame.steps(shares))
    return _svg(frame, _grid(frame, marks, says) + drawn)


def _shares(values: Sequence[float | None], marks: Sequence[float]) -> list[float | None]:
    return [None if value is None else value / marks[-1] for value in values]


def _grid(frame: Frame, marks: Sequence[float], says: Callable[[float], str]) -> str:
    return "".join(_mark(frame, mark / marks[-1], says(mark)) for mark in marks)


def _mark(frame: Frame, share: float, text: str) -> str:
    """A line across, and what it stands for."""
    y = frame.y(share) + 4
    said = f'<text x="{frame.left - 6}" y="{y:.1f}" text-anchor="end">{escape(text)}</text>'
    return _rule(frame, share) + said


def _rule(frame: Frame, share: float) -> str:
    right = frame.width - frame.right
    return f'<path class="rule" d="M{frame.left},{frame.y(share):.1f}H{right}"/>'


def _line(look: str, path: str) -> str:
    return f'<path class="line {look}" d="{path}"/>'


def _area(look: str, path: str, *, solid: bool = False) -> str:
    return f'<path class="area{" solid" if solid else ""} {look}" d="{path}"/>'


def _legend(entries: Sequence[tuple[str, str]]) -> str:
    drawn, x = "", _LEFT
    for look, text in entries:
        shape = f"M{x},4h16v8h-16z" if look.startswith("area") else f"M{x},8h16"
        drawn += f'<path class="{look}" d="{shape}"/><text x="{x + 21}" y="12">{text}</text>'
        x += 36 + _LETTER * len(text)
    return drawn


def _svg(frame: Frame, drawn: str, *, ticks: int = _TICKS_MAX) -> str:
    times = "".join(
        f'<text x="{x:.1f}" y="{frame.height - 6}" text-anchor="middle">{text}</text>'
        for x, text in frame.ticks(ticks)
    )
    return f'<svg viewBox="0 0 {frame.width} {frame.height}">{drawn}{times}</svg>'
