"""Pure: how long a failed push waits for its next attempt."""

from datetime import UTC
from email.utils import parsedate_to_datetime

from courier.core.types import HOUR_MS, MINUTE_MS, SECOND_MS

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
