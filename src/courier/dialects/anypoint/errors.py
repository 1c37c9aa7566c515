"""What each error is in Anypoint's words: status and message."""

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
    SchemaBroken,
    Unauthenticated,
    Unavailable,
)
from courier.dialects import folding
from courier.refusals import Refusal, Refusals
from courier.web import BodyLate, BodyTooLong, NoRoute, NotJson, Route, WrongMethod

# Limits on what is sent; the others are on what may be kept.
TOO_LARGE = ("message bytes", "message headers", folding.REST)


def _over_limit(error: OverLimit, route: Route | None) -> int:
    if error.what == "queue bytes":
        return 429
    return 413 if error.what in TOO_LARGE else 400


def _not_found(error: NotFound, route: Route | None) -> Refusal:
    kind = "Destination" if error.kind == "destination" else error.kind
    return Refusal(404, message=f"{kind} not found")


REFUSALS = Refusals(
    {
        InvalidRequest: 400,
        NotJson: 400,
        SchemaBroken: 400,
        BodyTooLong: 413,
        OverLimit: _over_limit,
        Unauthenticated: Refusal(401, message="Unauthorized"),
        Forbidden: Refusal(403, message="Forbidden"),
        NotFound: _not_found,
        Conflict: 400,
        InUse: 400,
        ClaimLost: 400,
        RateLimited: 429,
        NoRoute: 404,
        WrongMethod: 405,
        Frozen: 503,
        Paused: 503,
        NotPullable: 503,
        BodyLate: 408,
        Unavailable: 503,
    }
)
