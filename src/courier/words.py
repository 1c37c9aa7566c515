"""Numbers and texts as people read them, in the console and in the terminal. Pure."""

import itertools

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
