"""How long a time of events the journal's cap holds."""

import pytest

from courier.core.sweeper import Room, room
from courier.core.types import DAY_MS, HOUR_MS, MINUTE_MS

GIB = 1 << 30


def _room(*, bytes: int, span_ms: int, retention_ms: int = 7 * DAY_MS) -> Room | None:
    return room(
        bytes=bytes,
        bytes_max=20 * GIB,
        first_ms=1_000,
        now_ms=1_000 + span_ms,
        retention_ms=retention_ms,
    )


@pytest.mark.parametrize(
    ("bytes", "span_ms", "holds_days", "left_days", "is_short"),
    [
        (5 * GIB, DAY_MS, 4, 3, True),
        (GIB, DAY_MS, 20, 19, False),
        (20 * GIB, DAY_MS, 1, 0, True),
        (21 * GIB, 7 * DAY_MS, 6.67, 0, True),
        # Mostly full within minutes.
        (10 * GIB, MINUTE_MS, 0, 0, True),
        (GIB, HOUR_MS, 0.83, 0.79, True),
    ],
)
def test_it_is_what_fits_at_the_rate_so_far(
    bytes: int, span_ms: int, holds_days: float, left_days: float, is_short: bool
) -> None:
    found = _room(bytes=bytes, span_ms=span_ms)
    assert found is not None
    assert round(found.holds_ms / DAY_MS, 2) == holds_days
    assert round(found.left_ms / DAY_MS, 2) == left_days
    assert found.is_short == is_short


@pytest.mark.parametrize(
    ("bytes", "span_ms"), [(0, DAY_MS), (GIB, 0), (GIB, -5), (GIB, 9 * MINUTE_MS)]
)
def test_a_young_journal_says_nothing(bytes: int, span_ms: int) -> None:
    assert _room(bytes=bytes, span_ms=span_ms) is None
