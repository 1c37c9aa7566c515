"""Pages of lists: everything when nobody asks for a part."""

from collections.abc import Mapping
from typing import TypeVar

from courier.core.errors import InvalidRequest
from courier.dialects.anypoint.wire import whole
from courier.web import Parameter

PAGE_DEFAULT = 20
PAGE_MAX = 10_000_000

T = TypeVar("T")

PARAMETERS = (
    Parameter("offset", int, "First item of the page, from 0."),
    Parameter("limit", int, "Most items on the page; 20 when only an offset is given."),
    Parameter("startsWith", str, "Only ids that begin like this."),
    Parameter("inclusion", str, "`all` or `minimal`."),
)


def page(rows: list[T], query: Mapping[str, list[str]]) -> list[T]:
    if "offset" not in query and "limit" not in query:
        return rows
    offset = whole(query.get("offset", ["0"])[0], "offset", low=0, high=PAGE_MAX)
    limit = whole(query.get("limit", [str(PAGE_DEFAULT)])[0], "limit", low=0, high=PAGE_MAX)
    return rows[offset : offset + limit]


def choice(query: Mapping[str, list[str]], name: str, choices: tuple[str, ...]) -> str:
    """One of the choices, the first when nothing is said; clients do not mind the case."""
    value = query.get(name, [choices[0]])[0].lower()
    if value not in choices:
        raise InvalidRequest(name, f"must be one of {', '.join(choices)}, not '{value[:80]}'")
    return value


def starts_with(query: Mapping[str, list[str]]) -> str:
    return query.get("startsWith", [""])[0]
