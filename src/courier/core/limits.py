"""Limits on what a tenant may hold and how fast it may go."""

from msgspec import Struct

from courier.core.errors import RateLimited
from courier.core.types import MINUTE_MS, SECOND_MS

API_WINDOW_MS = 5 * MINUTE_MS
BINDINGS_MAX = 450
RULED_BINDINGS_MAX = 10


class Limits(Struct, frozen=True):
    """The operator's limits; a rate of 0 is no limit. Formats are the dialects' business."""

    queues_max: int = 10_000
    queue_bytes_max: int = 25_000_000_000
    queue_rate_max: int = 0
    purge_batch_max: int = 1_000


class Rate:
    """Allows `limit` units per `window_ms` for each name, refilled steadily."""

    NAMES_MAX = 100_000

    def __init__(self, what: str, *, limit: int, window_ms: int = SECOND_MS) -> None:
        self._what = what
        self._limit = limit
        self._window_ms = window_ms
        self._left: dict[str, tuple[float, int]] = {}

    def take(self, name: str, units: int, *, now_ms: int) -> None:
        """Raises RateLimited. A request larger than the whole limit passes when all is left."""
        if not self._limit:
            return
        left, at_ms = self._left.get(name, (float(self._limit), now_ms))
        left = min(self._limit, left + (now_ms - at_ms) * self._limit / self._window_ms)
        if left < min(units, self._limit):
            missing = min(units, self._limit) - left
            raise RateLimited(
                self._what, retry_after_ms=int(missing * self._window_ms / self._limit) + 1
            )
        if len(self._left) >= self.NAMES_MAX:
            self._left.clear()
        self._left[name] = (left - units, now_ms)

    def standing(self, name: str) -> tuple[int, int, int] | None:
        """The limit, what is left of it, and when all is left again; None without a limit."""
        if not self._limit:
            return None
        left, at_ms = self._left.get(name, (float(self._limit), 0))
        missing_ms = int((self._limit - left) * self._window_ms / self._limit)
        return self._limit, int(left), at_ms + missing_ms
