"""Dates in the forms that clients write them."""

import re
from datetime import UTC, datetime, timedelta, timezone

from courier.core.errors import InvalidRequest

_ISO = re.compile(r"\d{4}-\d\d-\d\d")
# As RFC 1123 has it, and as clients make of it: any weekday or none, and a zone or none.
_HTTP = re.compile(
    r"(?:[A-Za-z]{3,9},\s*)?(\d{1,2} [A-Za-z]{3} \d{4} \d\d:\d\d:\d\d)"
    r"(?:\s*(?:GMT|UTC|Z))?\s*(?:([+-])(\d\d):?(\d\d))?",
    re.ASCII,
)
_YEARS = range(1970, 10_000)


def parse(text: str, field: str) -> int:
    """Milliseconds of a date in RFC 1123 or ISO 8601; without a zone it is UTC."""
    text = text.strip()
    try:
        at = _iso(text) if _ISO.match(text) else _http(text)
        at = at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
        if at.year not in _YEARS:
            raise ValueError
        return round(at.timestamp() * 1000)
    except (ValueError, OverflowError) as error:
        raise InvalidRequest(field, f"is not a date: '{text[:80]}'") from error


def _iso(text: str) -> datetime:
    # A plus that was not encoded in a query has become a blank.
    return datetime.fromisoformat(re.sub(r"(?<=\d) (?=\d\d:?\d\d$)", "+", text))


def _http(text: str) -> datetime:
    match = _HTTP.fullmatch(re.sub(r" (?=\d\d:?\d\d$)", "+", text))
    if match is None:
        raise ValueError
    day, sign, hours, minutes = match.groups()
    at = datetime.strptime(day, "%d %b %Y %H:%M:%S")
    if sign is None:
        return at
    offset = timedelta(hours=int(hours), minutes=int(minutes))
    return at.replace(tzinfo=timezone(offset if sign == "+" else -offset))
