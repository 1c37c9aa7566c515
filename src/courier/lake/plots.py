"""Plots as SVG that lies in a page: text stays text, and colours are the page's own.

What is drawn here has one of a few stand-in colours; the page says in its style what each means,
so that one drawing serves light, dark and paper.
"""

import io
import logging
import re
from collections.abc import Callable, Sequence
from datetime import UTC
from typing import Any

import matplotlib
import matplotlib.dates
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from courier.lake.figures import Series, Span

# Stand-in -> the name of the page's colour. `ink` is text, `line` what lies behind.
_COLOURS = {
    "#010101": "ink",
    "#020202": "line",
    "#030303": "one",
    "#040404": "two",
    "#050505": "three",
}
INK, LINE, ONE, TWO, THREE = _COLOURS
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "courier",
    "font.size": 11,
    "axes.titlesize": 12,
    "text.color": INK,
    "axes.labelcolor": INK,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.color": LINE,
    "ytick.color": LINE,
    "axes.edgecolor": LINE,
    "grid.color": LINE,
    "grid.linewidth": 0.6,
    "ytick.major.size": 0,
    "axes.spines.top": False,
    "axes.spines.left": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
}
_INCHES = (6.2, 2.9)
_INCHES_NARROW = (4.4, 2.9)
_UNITS = ((1, "ms"), (1_000, "s"), (60_000, "min"), (3_600_000, "h"), (86_400_000, "d"))
# Where a logarithmic axis of time has its lines.
_MOMENTS = (
    *(1, 10, 100, 1_000, 10_000, 60_000, 600_000, 3_600_000),
    *(86_400_000, 864_000_000, 8_640_000_000, 86_400_000_000),
)


def flow(span: Span, published: Series, acked: Series) -> str:
    """Messages per minute, or per second: what came as an area, what was done as a line."""

    def draw(axes: Axes) -> None:
        came = [(value or 0) / span.units for value in published]
        went = [(value or 0) / span.units for value in acked]
        _steps(axes, span, came, color=ONE, alpha=0.3, fill=True, linewidth=0, label="published")
        _steps(axes, span, went, color=TWO, linewidth=1.6, label="acked")
        _numbers(axes)
        _legend(axes)

    return _draw(span, draw)


def level(span: Span, values: Series) -> str:
    """How many were waiting at the end of each bucket."""

    def draw(axes: Axes) -> None:
        _steps(axes, span, values, color=ONE, alpha=0.3, fill=True, linewidth=0)
        _steps(axes, span, values, color=ONE, linewidth=1.6)
        _numbers(axes, whole=True)

    return _draw(span, draw)


def age(span: Span, values_ms: Series) -> str:
    """How old the oldest one was, in the unit that suits it; a gap where none waited."""
    size, unit = unit_of(max((value or 0 for value in values_ms), default=0))

    def draw(axes: Axes) -> None:
        scaled = [None if value is None else value / size for value in values_ms]
        _steps(axes, span, scaled, color=THREE, alpha=0.3, fill=True, linewidth=0)
        _steps(axes, span, scaled, color=THREE, linewidth=1.6)
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_locator(MaxNLocator(4))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g} {unit}"))

    return _draw(span, draw)


def percentiles(span: Span, p50: Series, p95: Series, p99: Series) -> str:
    """Three lines on a logarithmic axis; gaps where nothing was measured."""

    def draw(axes: Axes) -> None:
        for values, color, dashes, label in (
            (p99, THREE, (0, (1.5, 1.5)), "p99"),
            (p95, TWO, (0, (5, 1.5)), "p95"),
            (p50, ONE, "-", "p50"),
        ):
            shown = [None if value is None else max(1.0, value) for value in values]
            _steps(axes, span, shown, color=color, linewidth=1.6, linestyle=dashes, label=label)
        seen = [max(1.0, value) for values in (p50, p95, p99) for value in values if value]
        low, high = min(seen, default=1.0), max(seen, default=1.0)
        axes.set_yscale("log")
        axes.set_ylim(low / 1.6, high * 1.6)
        inside = [moment for moment in _MOMENTS if low / 1.6 <= moment <= high * 1.6]
        every = 1 + len(inside) // 7
        axes.yaxis.set_major_locator(FixedLocator(inside[::every] or [low]))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: duration(value)))
        _legend(axes, reverse=True)

    return _draw(span, draw, inches=_INCHES_NARROW)


def strips(span: Span, rows: Sequence[tuple[str, Series]]) -> str:
    """One low strip for each name, under each other, each with its own scale."""
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(_INCHES[0], 0.75 + 0.62 * len(rows)), layout="constrained")
        every = figure.subplots(len(rows), sharex=True, squeeze=False)[:, 0]
        for axes, (name, values) in zip(every, rows, strict=True):
            peak = max(value or 0 for value in values)
            _steps(axes, span, values, color=TWO, fill=True, linewidth=0.8)
            axes.set_ylim(0, peak or 1)
            axes.yaxis.set_major_locator(FixedLocator([peak]))
            axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
            axes.set_title(name, loc="left", fontsize=11, pad=2)
        _time_axis(every[-1], span)
        for axes in every[:-1]:
            axes.tick_params(bottom=False)
        return _svg(figure)


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


def _draw(
    span: Span, draw: Callable[[Axes], None], *, inches: tuple[float, float] = _INCHES
) -> str:
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=inches, layout="constrained")
        axes = figure.subplots()
        draw(axes)
        _time_axis(axes, span)
        return _svg(figure)


def _steps(axes: Axes, span: Span, values: Sequence[float | None], **look: Any) -> None:
    """A line with a step at each bucket's edge, as few steps as there are changes."""
    edges = _edges(span)
    kept = [0, *(n for n in range(1, len(values)) if values[n] != values[n - 1])]
    heights = [float("nan") if values[n] is None else float(values[n] or 0) for n in kept]
    baseline = 0 if look.get("fill") else None
    axes.stairs(heights, [edges[n] for n in kept] + [edges[-1]], baseline=baseline, **look)


def _edges(span: Span) -> list[float]:
    """Days since 1970, which is how matplotlib counts time."""
    return [ms / 86_400_000 for ms in span.edges_ms]


def _time_axis(axes: Axes, span: Span) -> None:
    edges = _edges(span)
    axes.set_xlim(edges[0], edges[-1])
    dates: Any = matplotlib.dates  # has no types
    locator = dates.AutoDateLocator(tz=UTC, minticks=3, maxticks=6)
    # Its own steps leave some spans with a single tick.
    locator.intervald[dates.SECONDLY] = locator.intervald[dates.MINUTELY] = [1, 2, 5, 10, 20, 30]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator, tz=UTC))


def _numbers(axes: Axes, *, whole: bool = False) -> None:
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_locator(MaxNLocator(4, integer=whole))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.5g}"))


def _legend(axes: Axes, *, reverse: bool = False) -> None:
    axes.legend(
        loc="lower left", bbox_to_anchor=(0, 1), ncols=3, frameon=False, borderpad=0,
        handlelength=1.6, columnspacing=1.4, reverse=reverse,
    )  # fmt: skip


def _svg(figure: Figure) -> str:
    # It says at WARNING that it looks for fonts; none is needed, the page has its own.
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    sink = io.StringIO()
    figure.savefig(sink, format="svg", metadata={"Date": None, "Creator": None})
    text = sink.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->|<style.*?</style>", "", text, flags=re.S)
    # Groups are named alike in every plot of a page; nothing refers to them.
    text = re.sub(r'<g id="[^"]*"', "<g", text)
    text = re.sub(r' width="[^"]*pt" height="[^"]*pt"', "", text, count=1)
    text = re.sub(r"-?\d+\.\d+(?=[ \n\"',;)])", lambda found: f"{float(found[0]):.1f}", text)
    text = re.sub(r"font-family: [^;]*; | transform=\"rotate\(-0 [^)]*\)\"", "", text)
    text = text.replace("xlink:href", "href")
    for stand_in, name in _COLOURS.items():
        text = text.replace(stand_in, f"var(--{name})")
    return re.sub(r"\s+", " ", re.sub(r">\s+<", "><", text))
