"""How Discue says what went wrong: the reason phrase, the status, and what would help."""

from courier.core.errors import (
    ClaimLost,
    Conflict,
    Forbidden,
    Frozen,
    InUse,
    InvalidRequest,
    NotFound,
    NotPullable,
    OverLimit,
    Paused,
    RateLimited,
    Rejected,
    SchemaBroken,
    Unauthenticated,
    Unavailable,
)
from courier.dialects.discue.lockout import LockedOut
from courier.dialects.site import InvalidQuery
from courier.refusals import Refusal, Refusals
from courier.web import BodyLate, BodyTooLong, NoRoute, NotJson, Route, WrongMethod

# Limits on what may be kept; the others are on what is sent.
_KEPT = ("queues", "queue bytes", "keys")


class NotAcceptable(Rejected):
    def __init__(self, accept: str) -> None:
        super().__init__(f"answers are JSON, which '{accept[:80]}' excludes")


class WrongMedia(Rejected):
    def __init__(self, kind: str) -> None:
        super().__init__(f"a request's body must be application/json, not '{kind[:80]}'")


class Stale(Rejected):
    def __init__(self) -> None:
        super().__init__("it has changed since, and is not what If-Match names any more")


class KeyReused(Rejected):
    """An idempotency key came with another message than before."""

    def __init__(self) -> None:
        super().__init__("this Idempotency-Key was used for another message")


class Unsupported(Rejected):
    def __init__(self, what: str) -> None:
        super().__init__(f"there are no {what} here")


class NotRetryable(Rejected):
    """A delivery that needs no retry."""

    def __init__(self, state: str) -> None:
        super().__init__(f"the delivery is {state}, which leaves nothing to retry")


class Malformed(Rejected):
    """Rules that a request breaks, each with the place where it does."""

    def __init__(self, problems: list[tuple[str, str]]) -> None:
        super().__init__(f"{problems[0][0]}: {problems[0][1]}")
        self.problems = problems


def _invalid(error: InvalidRequest, route: Route | None) -> int | Refusal:
    if error.field in ("", "query"):
        return 400
    if error.field == "path":
        return 404
    pointer = "/" + error.field.replace(".", "/").replace("[", "/").replace("]", "")
    return Refusal(422, problems=[(pointer, error.reason)])


def _forbidden(error: Forbidden, route: Route | None) -> Refusal:
    where = " for this" if error.limited else ""
    return Refusal(403, message=f"the key lacks scope {error.scope}{where}")


def _schema_broken(error: SchemaBroken, route: Route | None) -> Refusal:
    return Refusal(422, problems=[("/data" + at, what) for at, what in error.problems])


def _conflict(error: Conflict, route: Route | None) -> Refusal:
    taken = f"another {error.kind} has this name"
    return Refusal(422, message=taken, problems=[("/name", "is taken")])


REFUSALS = Refusals(
    {
        NotJson: 400,
        InvalidQuery: 400,
        InvalidRequest: _invalid,
        Unauthenticated: 401,
        OverLimit: lambda error, _: 402 if error.what in _KEPT else 422,
        Forbidden: _forbidden,
        LockedOut: 403,
        NotFound: lambda error, _: Refusal(404, message=f"there is no such {error.kind}"),
        NoRoute: 404,
        WrongMethod: 405,
        NotAcceptable: 406,
        BodyLate: 408,
        Stale: 409,
        KeyReused: 409,
        ClaimLost: 409,
        BodyTooLong: 413,
        WrongMedia: 415,
        SchemaBroken: _schema_broken,
        Malformed: lambda error, _: Refusal(422, problems=error.problems),
        Conflict: _conflict,
        InUse: 422,
        NotRetryable: 422,
        Frozen: 423,
        Paused: 423,
        NotPullable: 423,
        RateLimited: 429,
        Unsupported: 501,
        Unavailable: 503,
    }
)
