"""What requests of several kinds share: a name in two spellings, and pages of lists."""

from collections.abc import Sequence
from typing import TypeVar

from msgspec import UNSET, Struct, UnsetType

from courier.core.errors import InvalidRequest
from courier.dialects.discue import names
from courier.dialects.discue.errors import BadQuery
from courier.web import Parameter, Request

LIST_MAX = 1_000
PAGE_DEFAULT = 10
PAGE_MAX = 100
PAGING = (
    Parameter("page", int, "Which page, from 1."),
    Parameter("per_page", int, "Items on a page: 10 unless told, 100 at most."),
)

T = TypeVar("T")
Link = tuple[str, str, str]


class Named(Struct):
    """`name` and `alias` are the same thing; if both are given they must be equal."""

    name: str | UnsetType = UNSET
    alias: str | UnsetType = UNSET

    def chosen(self) -> str | None:
        """The name that was given, if any; raises InvalidRequest."""
        if self.name is not UNSET and self.alias is not UNSET and self.name != self.alias:
            raise InvalidRequest("alias", "must be the same as name")
        if self.name is not UNSET:
            return names.checked(self.name)
        return None if self.alias is UNSET else names.checked(self.alias, "alias")

    def required(self) -> str:
        name = self.chosen()
        if name is None:
            raise InvalidRequest("name", "is required")
        return name


def page(items: Sequence[T], request: Request, path: str) -> tuple[list[T], list[Link]]:
    """The items that were asked for, and a link to the next of them if there are more."""
    size, number = LIST_MAX, _number(request, "page")
    per_page = _number(request, "per_page")
    if per_page is not None or number is not None:
        size = min(PAGE_DEFAULT if per_page is None else per_page, PAGE_MAX)
    end = (number or 1) * size
    links = []
    if end < len(items):
        # Without parameters the rest is on pages of the usual kind.
        following = f"?page={end // PAGE_MAX + 1}&per_page={PAGE_MAX}"
        if size <= PAGE_MAX:
            following = f"?page={(number or 1) + 1}&per_page={size}"
        links.append(("next", "next", path + following))
    return list(items[end - size : end]), links


def _number(request: Request, name: str) -> int | None:
    if name not in request.query:
        return None
    text = request.query[name][-1]
    if not (text.isascii() and text.isdigit() and len(text) <= 9 and int(text) >= 1):
        raise BadQuery(name, "must be a whole number from 1 on")
    return int(text)
