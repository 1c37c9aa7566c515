"""Numbers, times and texts as people read them. Pure; templates use them as filters."""

from collections.abc import Sequence
from datetime import UTC, datetime

from courier.words import duration as duration
from courier.words import number as number
from courier.words import printable as printable
from courier.words import rate as rate

# Text is cut here in lists; the message's own page has all of it.
PREVIEW_CHARACTERS = 120
# In place of the name of a queue that the key does not reach.
BEYOND = "another queue"


def preview(body: bytes, characters: int = PREVIEW_CHARACTERS) -> str:
    """The beginning of a body on one line; bytes that are no text as escapes."""
    text = body[: 4 * characters].decode("utf-8", "backslashreplace")
    text = " ".join(text.split())
    cut = len(text) > characters or len(body) > 4 * characters
    return printable(text[:characters]) + ("…" if cut else "")


def count(value: int, noun: str, nouns: str = "") -> str:
    return f"{value:,} {noun if value == 1 else nouns or noun + 's'}"


def size(value: float) -> str:
    units = iter(("KB", "MB", "GB", "TB", "PB"))
    if value < 1_000:
        return f"{value:.0f} B"
    unit = ""
    while value >= 1_000:
        value, unit = value / 1_000, next(units)
    return f"{value:.3g} {unit}"


def _moment(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1_000, UTC)


def clock(ms: int, now_ms: int) -> str:
    """The time of day, with the date unless it is today's."""
    at = _moment(ms)
    if at.date() == _moment(now_ms).date():
        return f"{at:%H:%M:%S}"
    return f"{at:%Y-%m-%d %H:%M:%S}"


def precise(ms: int, now_ms: int) -> str:
    """The same to the millisecond."""
    return f"{clock(ms, now_ms)}.{ms % 1_000:03d}"


def minute(ms: int, now_ms: int) -> str:
    at = _moment(ms)
    return f"{at:%H:%M}" if at.date() == _moment(now_ms).date() else f"{at:%Y-%m-%d %H:%M}"


def exact(ms: int) -> str:
    """To the millisecond, with the date."""
    return f"{_moment(ms):%Y-%m-%d %H:%M:%S}.{ms % 1_000:03d}"


def iso(ms: int) -> str:
    at = _moment(ms)
    fraction = f".{ms % 1_000:03d}" if ms % 1_000 else ""
    return f"{at:%Y-%m-%dT%H:%M:%S}{fraction}Z"


def short(id: str) -> str:
    """An id as lists show it."""
    return f"{id[:4]}…{id[-4:]}" if len(id) > 12 else id


def message_short(id: str) -> str:
    """A message's id as lists show it. The end of a generated one is the same on all of a queue."""
    generated = len(id) == 32 and id.startswith("c0")
    return f"{id[:4]}…{id[-13:-8]}" if generated else short(id)


def listing(items: Sequence[str], most: int = 5) -> str:
    """a, b and c; or a, b and 4 more."""
    shown = list(items[:most])
    if len(items) > most:
        return f"{', '.join(shown)} and {len(items) - most} more"
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


FILTERS = {
    "number": number,
    "rate": rate,
    "size": size,
    "duration": duration,
    "clock": clock,
    "precise": precise,
    "minute": minute,
    "exact": exact,
    "iso": iso,
    "short": short,
    "message_short": message_short,
    "preview": preview,
}
