"""Pages of lists, as Cloudflare counts them."""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from courier.dialects.cloudflare.wire import ResultInfo
from courier.dialects.site import number
from courier.web import Request

_PAGE_MAX = 1_000_000_000


class Paged(Struct):
    rows: Sequence[Any]
    info: ResultInfo


def page(request: Request, rows: Sequence[Any], *, per_page: int, per_page_max: int) -> Paged:
    """One page of `rows`; past the end it is empty."""
    this = number(request, "page", default=1, low=1, high=_PAGE_MAX)
    size = number(request, "per_page", default=per_page, low=1, high=per_page_max)
    part = rows[(this - 1) * size : this * size]
    return Paged(part, info(this, size, len(part), len(rows)))


def info(page: int, per_page: int, count: int, total: int) -> ResultInfo:
    return ResultInfo(page, per_page, count, total, -(-total // per_page))
