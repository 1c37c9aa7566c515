"""What an error is to those who asked: a row of a site's table, and when they may come again."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

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
    Rejected,
    Unauthenticated,
    Unavailable,
)
from courier.web import BodyLate, NoRoute, NotJson, Route, WrongMethod

# What is refused may be as long as a path.
MESSAGE_CHARACTERS_MAX = 1_000
# When a queue may take or give messages again is up to its owner.
OWNER_WAIT_S = 60
_WAITED_FOR = (423, 429, 503)


class Refusal(Struct, frozen=True):
    """`message` "" is the error's own. `problems` are places of a request, and what is wrong."""

    status: int
    code: int | str = 0
    message: str = ""
    problems: Sequence[tuple[str, str]] = ()
    retry_after_s: int | None = None


# A status alone, all of it, or a function that looks at the error and the route.
Row = int | Refusal | Callable[[Any, Route | None], int | Refusal]


class Refusals:
    """A table of errors. Of several classes that an error is of, the closest one's row holds."""

    def __init__(self, rows: Mapping[type[BrokerError], Row]) -> None:
        self._rows = rows

    def of(self, error: BrokerError, route: Route | None = None) -> Refusal:
        for kind in type(error).__mro__:
            if kind in self._rows:
                row = self._rows[kind]
                found = row(error, route) if callable(row) else row
                return _whole(error, Refusal(found) if isinstance(found, int) else found)
        raise TypeError(f"no refusal for {type(error).__name__}")


def _whole(error: BrokerError, row: Refusal) -> Refusal:
    message = (row.message or str(error))[:MESSAGE_CHARACTERS_MAX]
    wait_s = _retry_after_s(error, row.status)
    return Refusal(row.status, row.code, message, row.problems, wait_s)


def _retry_after_s(error: BrokerError, status: int) -> int | None:
    wait_ms: int | None = getattr(error, "retry_after_ms", None)
    if wait_ms is not None:
        return -(-wait_ms // 1000)
    if isinstance(error, OutOfSpace):
        return OutOfSpace.RETRY_AFTER_S
    if isinstance(error, Unavailable):
        return 1
    return OWNER_WAIT_S if status in _WAITED_FOR else None


# Of our own routes and the console.
OURS: Mapping[type[BrokerError], Row] = {
    InvalidRequest: Refusal(400, "invalid_request"),
    NotJson: Refusal(400, "invalid_request"),
    Unauthenticated: Refusal(401, "unauthenticated"),
    Forbidden: Refusal(403, "forbidden"),
    NotFound: Refusal(404, "not_found"),
    NoRoute: Refusal(404, "not_found"),
    WrongMethod: Refusal(405, "method_not_allowed"),
    BodyLate: Refusal(408, "timeout"),
    Conflict: Refusal(409, "conflict"),
    InUse: Refusal(409, "conflict"),
    OverLimit: Refusal(413, "too_large"),
    RateLimited: Refusal(429, "rate_limited"),
    OutOfSpace: Refusal(503, "out_of_space"),
    Unavailable: Refusal(503, "unavailable"),
    Rejected: Refusal(400, "refused"),
}
