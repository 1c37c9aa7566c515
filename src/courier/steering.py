"""Time of servers that share a database: that of the database, so that all of them agree."""

import logging
from collections.abc import Callable

from courier.clock import elapsed_ns, wall_ns

# A machine's own clock that is off by more is worth a look.
OFF_MS_MAX = 500
_MS_NS = 1_000_000

log = logging.getLogger("courier.clock")


class Steering:
    """The database's clock as this process knows it, in place of the wall clock.

    `ahead_ns` says by how much the database's clock is ahead of time since boot.
    """

    def __init__(
        self,
        ahead_ns: Callable[[], int],
        *,
        wall_ns: Callable[[], int] = wall_ns,
        elapsed_ns: Callable[[], int] = elapsed_ns,
    ) -> None:
        self._ahead_ns = ahead_ns
        self._wall_ns = wall_ns
        self._elapsed_ns = elapsed_ns
        self._off = False

    def now_ns(self) -> int:
        return self._elapsed_ns() + self._ahead_ns()

    def off_ms(self) -> int:
        """By how much this machine's clock is ahead of the database's."""
        return (self._wall_ns() - self.now_ns()) // _MS_NS

    def look(self) -> None:
        """Log when the two begin to differ by much, and when they agree again."""
        off_ms = self.off_ms()
        off = abs(off_ms) > OFF_MS_MAX
        if off and not self._off:
            log.warning("clock_differs_from_database", extra={"ahead_ms": off_ms})
        if self._off and not off:
            log.info("clock_agrees_with_database", extra={"ahead_ms": off_ms})
        self._off = off
