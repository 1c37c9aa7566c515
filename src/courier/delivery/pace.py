"""Pure: how many requests a listener gets at a time, and how long a failed one waits for its next.

Outcomes are judged in groups of `width`. If every request of the group reached the listener, the
width doubles, up to the limit; otherwise it shrinks by half the share of those that did not. Any
answer counts as reached, whatever it says about the message; no answer, or one that asks for time,
does not. A listener that is new, failed last or was away starts with one.
"""

from datetime import UTC
from email.utils import parsedate_to_datetime

from courier.core.types import HOUR_MS, MINUTE_MS, SECOND_MS

IN_FLIGHT_MAX = 10
PER_SECOND_MAX = 1_000
QUICK_MS = 100
# What a quick listener gets in so long is taken ahead: a commit then notes and takes many.
AHEAD_FOR_S = 0.03
AHEAD_MIN, AHEAD_MAX = 20, 200
# After attempt 1, 2, ...; together about 27.7 hours, which outlasts a night.
DELAYS_MS = (
    5 * SECOND_MS,
    30 * SECOND_MS,
    2 * MINUTE_MS,
    10 * MINUTE_MS,
    30 * MINUTE_MS,
    1 * HOUR_MS,
    2 * HOUR_MS,
    4 * HOUR_MS,
    8 * HOUR_MS,
    12 * HOUR_MS,
)
ATTEMPTS_MAX = len(DELAYS_MS) + 1
ASKED_MS_MAX = HOUR_MS
JITTER = 0.2


class PushPace:
    """`width` is how many. `quick`: it is going as well as can be, and `ahead` may follow."""

    def __init__(self) -> None:
        self.width = IN_FLIGHT_MAX
        self.quick = False
        self._ahead = AHEAD_MIN
        self._seen = self._unreached = 0

    @property
    def ahead(self) -> int:
        """How many are taken ahead, so that a request which ends is followed by another without a
        wait for the store."""
        return self._ahead if self.quick else 0

    def began(self, count: int, *, in_s: float) -> None:
        """`count` requests began in this time. What is taken ahead becomes less only slowly."""
        soon = int(count * AHEAD_FOR_S / in_s) if in_s > 0 else 0
        self._ahead = max(AHEAD_MIN, min(AHEAD_MAX, soon), self._ahead - self._ahead // 8)

    def reached(self, *, duration_ms: int) -> None:
        self.quick = self.width == IN_FLIGHT_MAX and duration_ms <= QUICK_MS
        self._count(unreached=0)

    def unreached(self) -> None:
        self.quick = False
        self._count(unreached=1)

    def restart(self) -> None:
        self.quick = False
        self.width = 1
        self._seen = self._unreached = 0

    def _count(self, *, unreached: int) -> None:
        self._seen += 1
        self._unreached += unreached
        if self._seen < self.width:
            return
        if self._unreached:
            left = self.width - round(self.width * self._unreached / self._seen / 2)
            self.width = max(1, min(self.width - 1, left))
        else:
            self.width = min(IN_FLIGHT_MAX, self.width * 2)
        self._seen = self._unreached = 0


class Bursts:
    """How many requests may begin now, at `per_second` (0: any number), in bursts of one second."""

    def __init__(self) -> None:
        self._left = 0.0
        self._per_second = 0
        self._at_ms = 0

    def left(self, per_second: int, now_ms: int) -> int:
        if not per_second:
            self._per_second = 0
            return IN_FLIGHT_MAX
        if per_second != self._per_second:
            self._left, self._per_second = 1.0, per_second
        else:
            passed = self._left + (now_ms - self._at_ms) * per_second / SECOND_MS
            self._left = min(per_second, passed)
        self._at_ms = now_ms
        return int(self._left)

    def take(self, count: int) -> None:
        self._left -= count if self._per_second else 0

    @property
    def wait_s(self) -> float:
        """Until one more may begin."""
        return max(0.0, 1 - self._left) / self._per_second if self._per_second else 0.0


def asked_ms(header: str, *, wall_ms: int) -> int:
    """What a Retry-After header asks for: seconds from now, or a date; 0 if it says neither."""
    text = header.strip()
    if text.isascii() and text.isdigit():
        return min(int(text[:9]) * SECOND_MS, ASKED_MS_MAX)
    try:
        at = parsedate_to_datetime(text)
        # An old form of dates has no zone, and is in universal time all the same.
        at_ms = (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * SECOND_MS
    except (ValueError, TypeError, OverflowError):
        return 0
    return max(0, min(round(at_ms) - wall_ms, ASKED_MS_MAX))


def delay_ms(
    *, attempt: int, attempts_max: int, luck: float, asked_ms: int = 0, percent: int = 100
) -> int | None:
    """The wait after a failed attempt, None when it was the last.

    `luck` from 0 to 1 spreads the wait, so that what failed together is not tried together.
    `asked_ms` is what the receiver asked for; it waits at least that long, within reason.
    `percent` of the usual wait, for tests of a receiver.
    """
    if attempt >= attempts_max:
        return None
    usual_ms = DELAYS_MS[min(attempt, len(DELAYS_MS)) - 1]
    spread_ms = round(usual_ms * (1 - JITTER + 2 * JITTER * luck) * percent / 100)
    return max(spread_ms, min(asked_ms, ASKED_MS_MAX))
