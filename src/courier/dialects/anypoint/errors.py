"""What each error is in Anypoint's words: status and message."""

from typing import NamedTuple

from courier.core.errors import (
    AnswersFull,
    BrokerError,
    ClaimLost,
    Conflict,
    Forbidden,
    Frozen,
    InUse,
    InvalidRequest,
    NotFound,
    NotPullable,
    OutOfSpace,
    OverLimit,
    Paused,
    RateLimited,
    SchemaBroken,
    ShuttingDown,
    StoreUnavailable,
    Unauthenticated,
)
from courier.dialects import folding
from courier.web import BodiesFull, BodyLate, BodyTooLong, NoRoute, NotJson, WrongMethod

# Limits on what is sent; the others are on what may be kept.
TOO_LARGE = ("message bytes", "message headers", folding.REST)


class Refusal(NamedTuple):
    status: int
    message: str
    retry_after_s: int | None = None


def refusal(error: BrokerError) -> Refusal:
    match error:
        case InvalidRequest() | NotJson() | SchemaBroken():
            return Refusal(400, str(error))
        case BodyTooLong():
            return Refusal(413, str(error))
        case OverLimit(what="queue bytes"):
            return Refusal(429, str(error), 60)
        case OverLimit():
            return Refusal(413 if error.what in TOO_LARGE else 400, str(error))
        case Unauthenticated():
            return Refusal(401, "Unauthorized")
        case Forbidden():
            return Refusal(403, "Forbidden")
        case NotFound(kind="destination"):
            return Refusal(404, "Destination not found")
        case NotFound():
            return Refusal(404, f"{error.kind} not found")
        case Conflict() | InUse() | ClaimLost():
            return Refusal(400, str(error))
        case RateLimited():
            return Refusal(429, str(error), -(-error.retry_after_ms // 1000))
        case NoRoute():
            return Refusal(404, str(error))
        case WrongMethod():
            return Refusal(405, str(error))
        case Frozen() | Paused() | NotPullable():
            return Refusal(503, str(error), 60)
        case OutOfSpace():
            return Refusal(503, str(error), OutOfSpace.RETRY_AFTER_S)
        case BodyLate():
            return Refusal(408, str(error))
        case StoreUnavailable() | ShuttingDown() | AnswersFull() | BodiesFull():
            return Refusal(503, str(error), 1)
    raise TypeError(f"no refusal for {type(error).__name__}")
