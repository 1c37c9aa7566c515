"""How Discue says what went wrong: the reason phrase, the status, and what would help."""

import http
from typing import Any

from msgspec import Struct

from courier import ids
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
    Rejected,
    SchemaBroken,
    ShuttingDown,
    StoreUnavailable,
    Unauthenticated,
)
from courier.dialects.discue.lockout import LockedOut
from courier.web import BodiesFull, BodyLate, BodyTooLong, NoRoute, NotJson, WrongMethod


class BadQuery(Rejected):
    """A query parameter has a value that it does not take."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"query parameter {name} {reason}")


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


class Refusal(Struct, frozen=True):
    status: int
    detail: str
    problems: list[tuple[str, str]] = []
    retry_after_s: int | None = None

    def body(self) -> dict[str, Any]:
        phrase = http.HTTPStatus(self.status).phrase
        # The reason phrase of 422 was renamed, and Python follows; clients know the old one.
        title = "Unprocessable Entity" if self.status == 422 else phrase
        body: dict[str, Any] = {"title": title, "status": self.status, "detail": self.detail}
        if self.problems:
            body["errors"] = [{"pointer": at, "message": what} for at, what in self.problems]
        return {**body, "request_id": ids.new_id()}


def refusal(error: BrokerError) -> Refusal:
    text = str(error)
    match error:
        case NotJson() | BadQuery() | InvalidRequest(field="" | "query"):
            return Refusal(400, text)
        case Unauthenticated():
            return Refusal(401, text)
        case OverLimit(what="queues" | "queue bytes" | "keys"):
            return Refusal(402, text)
        case Forbidden():
            where = " for this" if error.limited else ""
            return Refusal(403, f"the key lacks scope {error.scope}{where}")
        case LockedOut():
            return Refusal(403, text, retry_after_s=-(-error.retry_after_ms // 1000))
        case NotFound():
            return Refusal(404, f"there is no such {error.kind}")
        case NoRoute() | InvalidRequest(field="path"):
            return Refusal(404, text)
        case WrongMethod():
            return Refusal(405, text)
        case NotAcceptable():
            return Refusal(406, text)
        case BodyLate():
            return Refusal(408, text)
        case Stale() | KeyReused() | ClaimLost():
            return Refusal(409, text)
        case BodyTooLong():
            return Refusal(413, text)
        case WrongMedia():
            return Refusal(415, text)
        case InvalidRequest():
            pointer = "/" + error.field.replace(".", "/").replace("[", "/").replace("]", "")
            return Refusal(422, text, [(pointer, error.reason)])
        case SchemaBroken():
            return Refusal(422, text, [("/data" + at, what) for at, what in error.problems])
        case Malformed():
            return Refusal(422, text, error.problems)
        case Conflict():
            return Refusal(422, f"another {error.kind} has this name", [("/name", "is taken")])
        case InUse() | OverLimit() | NotRetryable():
            return Refusal(422, text)
        case Frozen() | Paused() | NotPullable():
            return Refusal(423, text, retry_after_s=60)
        case RateLimited():
            return Refusal(429, text, retry_after_s=-(-error.retry_after_ms // 1000))
        case Unsupported():
            return Refusal(501, text)
        case OutOfSpace():
            return Refusal(503, text, retry_after_s=OutOfSpace.RETRY_AFTER_S)
        case StoreUnavailable() | ShuttingDown() | AnswersFull() | BodiesFull():
            return Refusal(503, text, retry_after_s=1)
    raise TypeError(f"no refusal for {type(error).__name__}")
