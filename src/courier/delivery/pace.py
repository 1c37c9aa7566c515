"""Pure: how many requests a listener gets at a time, from how the last ones went.

Outcomes are judged in groups of `width`. If every request of the group reached the listener, the
width doubles, up to the limit; otherwise it shrinks by half the share of those that did not. Any
answer counts as reached, whatever it says about the message; no answer, or one that asks for time,
does not. A listener that is new, failed last or was away starts with one.
"""

from courier.core.types import SECOND_MS

IN_FLIGHT_MAX = 10
PER_SECOND_MAX = 1_000
QUICK_MS = 100
# What a quick listener gets in so long is taken ahead: a commit then notes and takes many.
AHEAD_FOR_S = 0.03
AHEAD_MIN, AHEAD_MAX = 20, 200


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
