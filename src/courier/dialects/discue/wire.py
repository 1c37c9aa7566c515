"""What requests share: a name in two spellings, pages of lists, what headers say of answers."""

import re
from collections.abc import Sequence
from hashlib import blake2b
from typing import TypeVar

from msgspec import UNSET, Struct, UnsetType

from courier.core.errors import InvalidRequest
from courier.dialects.discue import names
from courier.dialects.discue.errors import NotAcceptable, WrongMedia
from courier.dialects.site import InvalidQuery, number
from courier.web import Parameter, Request

LIST_MAX = 1_000
PAGE_DEFAULT = 10
PAGE_MAX = 100
NUMBER_MAX = 10**9
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
    this = number(request, "page", default=0, low=1, high=NUMBER_MAX)
    per_page = number(request, "per_page", default=0, low=1, high=NUMBER_MAX)
    size = min(per_page or PAGE_DEFAULT, PAGE_MAX) if this or per_page else LIST_MAX
    this = this or 1
    end = this * size
    links = []
    if end < len(items):
        # Without parameters the rest is on pages of the usual kind.
        following = f"?page={end // PAGE_MAX + 1}&per_page={PAGE_MAX}"
        if size <= PAGE_MAX:
            following = f"?page={this + 1}&per_page={size}"
        links.append(("next", "next", path + following))
    return list(items[end - size : end]), links


_TRUE, _FALSE = ("", "1", "true"), ("0", "false")
_NO_WEIGHT = re.compile(r"q\s*=\s*0(\.0*)?")


def pretty(request: Request) -> bool:
    """Whether the answer is for a person to read. Raises InvalidQuery."""
    if not request.head.query_string:
        return False
    text = request.query.get("pretty", ["false"])[-1].lower()
    if text not in (*_TRUE, *_FALSE):
        raise InvalidQuery("pretty", "must be true or false")
    return text in _TRUE


def etag(body: bytes) -> str:
    """The version of an answer."""
    return f'"{blake2b(body, digest_size=12).hexdigest()}"'


def matches(header: str, etag: str) -> bool:
    """Whether `If-Match` or `If-None-Match` names this version."""
    wanted = [part.strip().removeprefix("W/") for part in header.split(",")]
    return bool(header) and ("*" in wanted or etag in wanted)


def check_accept(header: str) -> None:
    """JSON is all there is; a client that wants none of it is told so."""
    wanted: dict[str, bool] = {}
    for part in header.split(","):
        kind, *parameters = (word.strip().lower() for word in part.split(";"))
        wanted[kind] = not any(_NO_WEIGHT.fullmatch(each) for each in parameters)
    # Of several ranges the most exact one counts.
    others = [kind for kind in wanted if kind.endswith("+json")]
    ranges = ("application/json", "application/*", "*/*", *others)
    if not next((wanted[kind] for kind in ranges if kind in wanted), not header.strip()):
        raise NotAcceptable(header)


def check_media(header: str) -> None:
    """That a request's body is JSON, as far as its header says."""
    kind = header.partition(";")[0].strip().lower()
    if kind and kind != "application/json" and not kind.endswith("+json"):
        raise WrongMedia(kind)
