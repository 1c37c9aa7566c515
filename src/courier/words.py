"""Numbers, times and texts as people read them, in the console and in the terminal. Pure."""

import itertools
from collections.abc import Sequence
from datetime import UTC, datetime

# Text is cut here in lists; the message's own page has all of it.
PREVIEW_CHARACTERS = 120
_SECOND_MS = 1_000
_MINUTE_MS = 60 * _SECOND_MS
_UNITS = (
    (24 * 60 * _MINUTE_MS, "d"),
    (60 * _MINUTE_MS, "h"),
    (_MINUTE_MS, "min"),
    (_SECOND_MS, "s"),
)


def printable(text: str, keep: str = "") -> str:
    """The text with control and direction characters shown as escapes, except those to keep."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else ascii(c)[1:-1] for c in text)


def number(value: float) -> str:
    """With thousands; fractions only of small numbers."""
    if value == int(value) or abs(value) >= 10:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 0.1 else f"{value:.2g}"


def rate(per_s: float) -> str:
    if per_s == 0:
        return "0"
    return number(per_s) if per_s >= 0.1 else "<0.1"


def duration(ms: float) -> str:
    """In the one or two largest units: 0.4 s, 12 s, 3 min 5 s, 3 h 12 min, 2 d 4 h."""
    ms = max(0, ms)
    if ms < _SECOND_MS:
        return f"{ms:.0f} ms"
    if ms < 10 * _SECOND_MS:
        return f"{ms / _SECOND_MS:.1f}".removesuffix(".0") + " s"
    if ms < _MINUTE_MS:
        return f"{ms // _SECOND_MS:.0f} s"
    for (unit, name), (lesser, less) in itertools.pairwise(_UNITS):
        if ms >= unit:
            rest = int(ms % unit // lesser)
            return f"{int(ms // unit)} {name}" + (f" {rest} {less}" if rest else "")
    return f"{ms:.0f} ms"


def ago(ms: int, now_ms: int) -> str:
    """How long ago that was, or how far off it is, to the second."""
    apart = abs(now_ms - ms) // _SECOND_MS * _SECOND_MS
    if not apart:
        return "now"
    return f"in {duration(apart)}" if ms > now_ms else f"{duration(apart)} ago"


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
