"""The only reader of clocks. Time inside Courier is integer milliseconds since 1970 UTC.

The broker's time is a `SteadyClock`: it advances with real time, follows the wall clock slowly,
and takes a step of the wall clock for real only after it has lasted. `SystemClock` is for the
processes beside the broker.
"""

import logging
import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Protocol

# A larger difference between Courier's time and the wall clock is a step.
STEP_MS = 60_000
# Courier's time is faster or slower than real time by at most this part.
SLEW_MAX = 0.1
# How often the wall clock is read.
FOLLOW_EVERY_MS = 100

_MS_NS = 1_000_000

log = logging.getLogger("courier.clock")

wall_ns = time.time_ns
# Time since boot, including time asleep; where there is no such clock, without it.
elapsed_ns = partial(time.clock_gettime_ns, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Clock(Protocol):
    def now_ms(self) -> int:
        """Courier's time, for all that is stored or falls due. It never runs backwards."""
        ...

    def wall_ms(self) -> int:
        """The wall clock, right or wrong, for what others compare with theirs."""
        ...


class SystemClock:
    """The wall clock, except that it never runs backwards within one process."""

    def __init__(self) -> None:
        self._last_ms = 0

    def now_ms(self) -> int:
        now_ms = time.time_ns() // _MS_NS
        if now_ms > self._last_ms:
            self._last_ms = now_ms
        return self._last_ms


class _Step(NamedTuple):
    """A step of the wall clock: when it came, and by how much it is ahead of elapsed time now."""

    since_ns: int
    ahead_ms: float
    lasted: bool = False


class SteadyClock:
    """Real time from `start_ms` on, drawn slowly towards the wall clock.

    A small difference is slewed. A step is a warning, and is ignored for `step_wait_ms`; then a
    step ahead is adopted in one jump, and one back is slewed, so that leases and delays go on
    ending. `doubted` is called with how far ahead a step is that has yet to last, and with 0 when
    that is decided.
    """

    def __init__(
        self,
        start_ms: float,
        *,
        step_wait_ms: int,
        doubted: Callable[[int], None] = lambda _: None,
        wall_ns: Callable[[], int] = wall_ns,
        elapsed_ns: Callable[[], int] = elapsed_ns,
    ) -> None:
        self._step_wait_ns = step_wait_ms * _MS_NS
        self._doubted = doubted
        self._wall_ns = wall_ns
        self._elapsed_ns = elapsed_ns
        self._step: _Step | None = None
        self.steps = 0
        # Since `_base_ns` of elapsed time, Courier's time is `_base_ms` and what passed at `_rate`.
        self._base_ms = float(start_ms)
        self._base_ns = elapsed_ns()
        self._slew = 0.0
        self._follow(self._base_ns)

    def now_ms(self) -> int:
        at_ns = self._elapsed_ns()
        if at_ns >= self._follow_ns:
            self._follow(at_ns)
        return int(self._base_ms + (at_ns - self._base_ns) * self._rate)

    def wall_ms(self) -> int:
        return self._wall_ns() // _MS_NS

    def _follow(self, at_ns: int) -> None:
        """Look at the wall clock, and choose the rate until the next look."""
        passed_ms = (at_ns - self._base_ns) / _MS_NS
        # A slew is meant for one interval; the rest of a longer pause has passed in real time.
        self._base_ms += passed_ms + min(passed_ms, FOLLOW_EVERY_MS) * self._slew
        self._base_ns = at_ns
        wall_ms = self._wall_ns() / _MS_NS
        behind_ms = wall_ms - self._base_ms
        if abs(behind_ms) > STEP_MS:
            behind_ms = self._stepped(at_ns, wall_ms, behind_ms)
        elif self._step is not None:
            self._step = None
            self._doubted(0)
            log.info("clock_step_over", extra={"offset_ms": round(behind_ms)})
        self._slew = max(-SLEW_MAX, min(SLEW_MAX, behind_ms / FOLLOW_EVERY_MS))
        self._rate = (1 + self._slew) / _MS_NS
        self._follow_ns = at_ns + FOLLOW_EVERY_MS * _MS_NS

    def _stepped(self, at_ns: int, wall_ms: float, behind_ms: float) -> float:
        """The wall clock is far away: how much of that to slew."""
        step, ahead_ms = self._step, wall_ms - at_ns / _MS_NS
        noted = {"offset_ms": round(behind_ms)}
        if step is None or abs(ahead_ms - step.ahead_ms) > STEP_MS:
            self._step = _Step(at_ns, ahead_ms)
            self.steps += 1
            self._doubted(max(0, round(behind_ms)))
            wait_ms = self._step_wait_ns // _MS_NS
            log.warning("clock_step", extra={**noted, "followed_after_ms": wait_ms})
            return 0.0
        lasted = at_ns - step.since_ns >= self._step_wait_ns
        self._step = _Step(step.since_ns, ahead_ms, lasted)
        if not lasted:
            return 0.0
        if behind_ms > 0:
            self._base_ms, self._step = wall_ms, None
            self._doubted(0)
            log.warning("clock_step_adopted", extra=noted)
            return 0.0
        if not step.lasted:
            log.warning("clock_slowed", extra={**noted, "slew": -SLEW_MAX})
        return behind_ms


def start_ms(*, wall_ms: int, journal_ms: int, record_ms: int | None) -> int:
    """Courier's time at a start: never before the journal's last event.

    `record_ms` is what `clock_record.py` says. Without it, a wall clock that is more than a minute
    ahead of the journal may be right, after a long stop, or wrong: time goes on where the journal
    ends, and the wall clock must last like after any other step. `journal_ms` is 0 for a store
    without events.
    """
    if not journal_ms:
        return wall_ms
    if record_ms is not None:
        return max(record_ms, journal_ms)
    return wall_ms if 0 <= wall_ms - journal_ms <= STEP_MS else journal_ms


class ManualClock:
    """A clock that moves when told to."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        return self._now_ms

    def wall_ms(self) -> int:
        return self._now_ms

    def advance(self, ms: int) -> None:
        self._now_ms += ms
