"""How long a time of events fits into the journal, at the rate at which they come."""

from msgspec import Struct

from courier.core.store import Store
from courier.core.types import MINUTE_MS

# A journal that is younger, and mostly empty, says nothing about a day.
SPAN_MS_MIN = 10 * MINUTE_MS
FULL_PART = 0.1


class Room(Struct, frozen=True):
    """The journal's cap holds the events of `holds_ms`, and is reached in `left_ms`."""

    holds_ms: int
    left_ms: int
    retention_ms: int
    bytes_max: int

    @property
    def is_short(self) -> bool:
        """Whether events go before their retention is over, read or not."""
        return self.holds_ms < self.retention_ms


def room(
    *, bytes: int, bytes_max: int, first_ms: int, now_ms: int, retention_ms: int
) -> Room | None:
    """None as long as the rate is not known. `first_ms` is when the first kept event happened."""
    span_ms = now_ms - first_ms
    if bytes <= 0 or span_ms <= 0:
        return None
    if span_ms < SPAN_MS_MIN and bytes < FULL_PART * bytes_max:
        return None
    return Room(
        holds_ms=bytes_max * span_ms // bytes,
        left_ms=max(0, bytes_max - bytes) * span_ms // bytes,
        retention_ms=retention_ms,
        bytes_max=bytes_max,
    )


async def journal_room(
    store: Store, *, now_ms: int, bytes_max: int, retention_ms: int
) -> Room | None:
    """The room that the journal of a store has now."""
    head = await store.journal.head()
    runs = await store.journal.read(after=head.first - 1, limit=1)
    if not runs:
        return None
    return room(
        bytes=head.bytes,
        bytes_max=bytes_max,
        first_ms=runs[0].at_ms,
        now_ms=now_ms,
        retention_ms=retention_ms,
    )
