"""Limits on what a tenant may hold, how fast it may go, and how much one answer may hold."""

from collections.abc import Sequence

from msgspec import Struct

from courier.core.errors import RateLimited
from courier.core.types import MINUTE_MS, SECOND_MS

API_WINDOW_MS = 5 * MINUTE_MS
BINDINGS_MAX = 450
RULED_BINDINGS_MAX = 10
# What hangs on a queue goes with it, in one change.
QUEUE_BINDINGS_MAX = 1_000
# To sources of one type: what happens there is published to all their queues in one transaction.
SUBSCRIPTIONS_MAX = 450
# Bodies of one answer; a longer one comes alone.
ANSWER_BYTES_MAX = 16 << 20
# Bodies of answers that are too short to be counted against the room for all of them.
SMALL_ANSWER_BYTES = 64 << 10


class Limits(Struct, frozen=True):
    """The operator's limits; a rate of 0 is no limit. Formats are the dialects' business."""

    queues_max: int = 10_000
    queue_bytes_max: int = 25_000_000_000
    queue_rate_max: int = 0
    purge_batch_max: int = 1_000


def spent(what: str, left: float, units: int, *, limit: int, window_ms: int) -> float:
    """What is left of a rate. Raises RateLimited.

    More than the whole limit passes when all is left.
    """
    left = min(limit, left)
    missing = min(units, limit) - left
    if missing > 0:
        raise RateLimited(what, retry_after_ms=int(missing * window_ms / limit) + 1)
    return left - units


class Rate:
    """Allows `limit` units per `window_ms` for each name, refilled steadily."""

    NAMES_MAX = 100_000

    def __init__(self, what: str, *, limit: int, window_ms: int = SECOND_MS) -> None:
        self._what = what
        self.limit = limit
        self._window_ms = window_ms
        self._left: dict[str, tuple[float, int]] = {}

    def take(self, name: str, units: int, *, now_ms: int) -> None:
        """Raises RateLimited. A request larger than the whole limit passes when all is left."""
        if not self.limit:
            return
        left, at_ms = self._left.get(name, (float(self.limit), now_ms))
        left += (now_ms - at_ms) * self.limit / self._window_ms
        left = spent(self._what, left, units, limit=self.limit, window_ms=self._window_ms)
        if len(self._left) >= self.NAMES_MAX:
            self._left.clear()
        self._left[name] = (left, now_ms)

    def standing(self, name: str) -> tuple[int, int, int] | None:
        """The limit, what is left of it, and when all is left again; None without a limit."""
        if not self.limit:
            return None
        left, at_ms = self._left.get(name, (float(self.limit), 0))
        missing_ms = int((self.limit - left) * self._window_ms / self.limit)
        return self.limit, int(left), at_ms + missing_ms


class AnswerRoom:
    """Bytes of bodies that may be on their way to clients at a time."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.held = 0


class Allowance:
    """How many bytes of bodies one answer may hold.

    Answers share a room: what one of them holds is counted there until it is released. `cut`: not
    everything was let in. `refused`: because the room is full.
    """

    __slots__ = ("_bytes_max", "_charged", "_count", "_room", "cut", "refused", "size")

    def __init__(self, bytes_max: int, room: AnswerRoom | None = None) -> None:
        self._bytes_max = bytes_max
        self._room = room
        self._count = self._charged = self.size = 0
        self.cut = self.refused = False

    def fitting(self, sizes: Sequence[int]) -> int:
        """Let in as many of the next bodies as fit; the first of all however long it is."""
        total = self.size + sum(sizes)
        if total > self._bytes_max or (total > SMALL_ANSWER_BYTES and not self._charge(total)):
            fitting = next((n for n, size in enumerate(sizes) if not self._add(size)), len(sizes))
            self.cut = self.cut or fitting < len(sizes)
            return fitting
        self.size = total
        self._count += len(sizes)
        return len(sizes)

    def _charge(self, total: int) -> bool:
        """Whether there is room for so much in all, which is then taken."""
        room = self._room
        if room is not None:
            more = total - self._charged
            if room.held + more > room.bytes_max:
                return False
            room.held += more
            self._charged = total
        return True

    def _add(self, size: int) -> bool:
        total = self.size + size
        if self._count and total > self._bytes_max:
            return False
        if total > SMALL_ANSWER_BYTES and self._room is not None:
            more, room = total - self._charged, self._room
            if room.held and room.held + more > room.bytes_max:
                self.refused = True
                return False
            room.held += more
            self._charged = total
        self.size = total
        self._count += 1
        return True

    def share(self, other: "Allowance", sizes: Sequence[int]) -> None:
        """Give the last bodies that were let in to another answer that shares the room."""
        size = sum(sizes)
        self.size -= size
        self._count -= len(sizes)
        other.size += size
        other._count += len(sizes)
        moved = min(self._charged, size)
        self._charged -= moved
        other._charged += moved

    def release(self) -> None:
        """The answer is sent, or nobody wants it any more."""
        if self._charged and self._room is not None:
            self._room.held -= self._charged
        self._charged = 0
