"""Pure: how many requests a listener gets at a time, from how the last ones went.

One at a time while it fails; whenever as many as it gets at a time have gone well, twice as many,
up to the limit. So one that is down costs the others next to nothing, and one that is back is not
overrun.
"""

IN_FLIGHT_MAX = 10
QUICK_MS = 100


class Pace:
    """`width` is how many. `quick`: it is going as well as can be."""

    def __init__(self) -> None:
        self.width = IN_FLIGHT_MAX
        self.quick = False
        self._good = 0

    def went_well(self, *, duration_ms: int) -> None:
        self.quick = self.width == IN_FLIGHT_MAX and duration_ms <= QUICK_MS
        self._good += 1
        if self._good >= self.width:
            self._good = 0
            self.width = min(IN_FLIGHT_MAX, self.width * 2)

    def failed(self) -> None:
        self.quick = False
        self._good = 0
        self.width = 1
