"""Charts over time as paths of SVG: the geometry that the console and the report share. Pure."""

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

_SECOND_MS = 1_000
_MINUTE_MS = 60 * _SECOND_MS
_HOUR_MS = 60 * _MINUTE_MS
_DAY_MS = 24 * _HOUR_MS
_TICKS_MS = (
    *(_SECOND_MS, 2 * _SECOND_MS, 5 * _SECOND_MS, 10 * _SECOND_MS, 20 * _SECOND_MS),
    *(_MINUTE_MS, 2 * _MINUTE_MS, 5 * _MINUTE_MS, 10 * _MINUTE_MS, 20 * _MINUTE_MS),
    *(_HOUR_MS, 2 * _HOUR_MS, 4 * _HOUR_MS, 8 * _HOUR_MS),
    *(_DAY_MS, 2 * _DAY_MS, 7 * _DAY_MS, 28 * _DAY_MS, 112 * _DAY_MS, 364 * _DAY_MS),
    *(2 * 364 * _DAY_MS, 10 * 364 * _DAY_MS, 100 * 364 * _DAY_MS),
)
_STEPS = (1, 2, 5)


class Frame(NamedTuple):
    """Where a chart lies: its size, the margins around it, and the time that it shows."""

    width: int
    height: int
    left: int
    right: int
    top: int
    bottom: int
    since_ms: int
    until_ms: int

    @property
    def floor(self) -> int:
        return self.height - self.bottom

    def x(self, at_ms: float) -> float:
        whole = max(1, self.until_ms - self.since_ms)
        place = min(1.0, max(0.0, (at_ms - self.since_ms) / whole))
        return self.left + place * (self.width - self.left - self.right)

    def y(self, share: float) -> float:
        """Of the height: 0 is the floor, 1 the top."""
        return self.floor - share * (self.floor - self.top)

    def steps(self, shares: Sequence[float | None], *, area: bool = False, count: float = 0) -> str:
        """The path of equal buckets of time, with as few steps as there are changes; None is a gap.

        `area`: down to the floor and back, to be filled. `count`: how many buckets there is time
        for, if the last is a part of one.
        """
        bucket = (self.width - self.left - self.right) / (count or max(1, len(shares)))
        ends = f"V{self.floor}Z" if area else ""
        path = ""
        last: float | None = None
        for place, share in enumerate(shares):
            if share == last:
                continue
            x = f"{self.left + place * bucket:.4g}"
            if share is None:
                path += f"H{x}{ends}"
            elif last is None:
                y = f"{self.y(share):.1f}"
                path += f"M{x},{self.floor}V{y}" if area else f"M{x},{y}"
            else:
                path += f"H{x}V{self.y(share):.1f}"
            last = share
        return path if last is None else f"{path}H{self.width - self.right}{ends}"

    def ticks(self, most: int) -> list[tuple[float, str]]:
        """Up to `most` + 1 places of the time axis, and the texts that stand there, in UTC."""
        span_ms = self.until_ms - self.since_ms
        tick_ms = next((each for each in _TICKS_MS if span_ms / each <= most), _TICKS_MS[-1])
        found: list[tuple[float, str]] = []
        at_ms = -(-self.since_ms // tick_ms) * tick_ms
        while at_ms <= self.until_ms and len(found) <= most:
            found.append((self.x(at_ms), _tick(at_ms, tick_ms)))
            at_ms += tick_ms
        return found


def _tick(at_ms: int, tick_ms: int) -> str:
    at = datetime.fromtimestamp(at_ms / 1_000, UTC)
    if tick_ms >= 112 * _DAY_MS:
        return f"{at:%b %Y}"
    if tick_ms >= _DAY_MS or not at_ms % _DAY_MS:
        return f"{at:%d %b}"
    return f"{at:%H:%M:%S}" if tick_ms < _MINUTE_MS else f"{at:%H:%M}"


def ceiling(value: float) -> int:
    """The least of 1, 2, 5, 10, 20, ... that is not below the value."""
    unit = 1
    while True:
        for step in _STEPS:
            if step * unit >= value:
                return step * unit
        unit *= 10


def scale(top: float, *, parts: int, whole: bool = False) -> list[float]:
    """Round numbers from 0 to the first that is not below `top`, at most `parts` + 1 of them."""
    if top <= 0:
        return [0, 1]
    unit = 10.0 ** math.floor(math.log10(top / parts))
    step = max(1 if whole else 0, unit * ceiling(top / parts / unit))
    count = max(1, math.ceil(top / step - 1e-9))
    return [step * each for each in range(count + 1)]


def short_number(value: float) -> str:
    """At most five characters: 0.5, 20, 1.5k, 2M."""
    for unit, name in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if value >= unit:
            return f"{value / unit:.3g}{name}"
    return f"{value:.3g}"
