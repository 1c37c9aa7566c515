"""Status and code of an error, on our own routes and in the console."""

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
    Unauthenticated,
    Unavailable,
)
from courier.web import BodyLate, NoRoute, NotJson, WrongMethod

# The first that fits holds: a class stands before those that it is a kind of.
_REFUSALS: tuple[tuple[type[BrokerError], int, str], ...] = (
    (InvalidRequest, 400, "invalid_request"),
    (NotJson, 400, "invalid_request"),
    (Unauthenticated, 401, "unauthenticated"),
    (Forbidden, 403, "forbidden"),
    (NotFound, 404, "not_found"),
    (NoRoute, 404, "not_found"),
    (WrongMethod, 405, "method_not_allowed"),
    (BodyLate, 408, "timeout"),
    (Conflict, 409, "conflict"),
    (InUse, 409, "conflict"),
    (OverLimit, 413, "too_large"),
    (RateLimited, 429, "rate_limited"),
    (OutOfSpace, 503, "out_of_space"),
    (Unavailable, 503, "unavailable"),
)


def refusal(error: BrokerError) -> tuple[int, str]:
    for kind, status, code in _REFUSALS:
        if isinstance(error, kind):
            return status, code
    return 400, "refused"
