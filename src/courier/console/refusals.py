"""What a page says when something was refused, and with which status."""

from msgspec import Struct

from courier.console.guard import ForeignForm
from courier.core.errors import (
    BrokerError,
    Conflict,
    Forbidden,
    InUse,
    InvalidRequest,
    NotFound,
    OutOfSpace,
    OverLimit,
    RateLimited,
    RowsChanged,
    SchemaBroken,
    Unauthenticated,
    Unavailable,
)
from courier.web import BodyLate, NoRoute, NotJson, WrongMethod

RETRY_AFTER_S = 5


class Trouble(Struct):
    """What an error page says."""

    status: int
    code: str
    message: str
    retry_after_s: int = 0
    near: tuple[tuple[str, str], ...] = ()


def retry_after_s(error: BrokerError, status: int) -> int:
    if isinstance(error, OutOfSpace):
        return OutOfSpace.RETRY_AFTER_S
    if isinstance(error, RateLimited):
        return error.retry_after_ms // 1_000 + 1
    return RETRY_AFTER_S if status == 503 else 0


def refusal(error: BrokerError) -> tuple[int, str]:
    match error:
        case InvalidRequest() | NotJson() | SchemaBroken():
            return 400, "invalid_request"
        case Unauthenticated():
            return 401, "unauthenticated"
        case Forbidden() | ForeignForm():
            return 403, "forbidden"
        case NotFound() | NoRoute():
            return 404, "not_found"
        case WrongMethod():
            return 405, "method_not_allowed"
        case BodyLate():
            return 408, "timeout"
        case RowsChanged() | Conflict() | InUse():
            return 409, "conflict"
        case OverLimit():
            return 413, "too_large"
        case RateLimited():
            return 429, "rate_limited"
        case OutOfSpace():
            return 503, "out_of_space"
        case Unavailable():
            return 503, "unavailable"
    return 400, "refused"
