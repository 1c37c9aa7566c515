"""What each error is in Cloudflare's words: status, code, message."""

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
from courier.dialects.json import REQUIRED
from courier.refusals import Refusal, Refusals
from courier.web import BodyLate, NoRoute, NotJson, Route, WrongMethod

_OVER_LIMIT = {
    "queue bytes": Refusal(429, 10251),
    "queues": Refusal(400, 10026),
    "message bytes": Refusal(413, 10204),
    "batch bytes": Refusal(413, 10205),
    "batch messages": Refusal(413, 10206),
}


def _of(route: Route | None) -> tuple[str, str]:
    """Family and operation."""
    return (route.family, route.operation) if route else ("", "")


def _invalid(error: InvalidRequest, route: Route | None) -> Refusal:
    message = str(error)
    if error.reason == REQUIRED:
        message = f'Required at "{error.field}"'
    elif error.reason.startswith("Unrecognized"):
        message = error.reason
    return Refusal(400, _invalid_code(error.field, *_of(route)), message)


def _invalid_code(field: str, family: str, operation: str) -> int:
    top, _, _ = field.partition(".")
    match family:
        case "subscriptions":
            return 0
        case "messages" if field == "queue_id":
            return 10107
        case "messages" if operation in ("push", "push_batch"):
            if operation == "push_batch" and field == "delay_seconds":
                return 10202
            last = field.rpartition(".")[2]
            return 10203 if last in ("content_type", "delay_seconds") else 10207
        case "messages" if operation == "purge_refs":
            return 10207
        case "queues" if top == "settings":
            return 100128
        case "queues" if top == "queue_name":
            return 11003
        case "queues" if field == "jurisdiction" and operation != "create_queue":
            return 100128
        case "consumers" if top in ("settings", "dead_letter", "dead_letter_queue"):
            return 100127
    return 10026


def _not_json(error: NotJson, route: Route | None) -> Refusal:
    family, operation = _of(route)
    code = 10208 if operation in ("push", "push_batch") else 10026
    return Refusal(400, 0 if family == "subscriptions" else code)


def _over_limit(error: OverLimit, route: Route | None) -> Refusal:
    if error.what in _OVER_LIMIT:
        return _OVER_LIMIT[error.what]
    return Refusal(413, {"push": 10204, "push_batch": 10205}.get(_of(route)[1], 10026))


def _unauthenticated(error: Unauthenticated, route: Route | None) -> Refusal:
    if error.why == "missing":
        return Refusal(400, 9106, "Missing X-Auth-Key, X-Auth-Email or Authorization headers")
    if error.why == "malformed":
        return Refusal(400, 6003, "Invalid request headers")
    if _of(route)[1] == "verify_token":
        return Refusal(401, 1000, "Invalid API Token")
    return Refusal(403, 9109, "Invalid access token")


def _forbidden(error: Forbidden, route: Route | None) -> Refusal:
    if error.limited and _of(route)[0] == "messages":
        return Refusal(403, 10106, "this token may not use that queue")
    return Refusal(403, 10000, "Authentication error")


def _not_found(error: NotFound, route: Route | None) -> Refusal:
    family = _of(route)[0]
    codes = {"subscriptions": 0, "messages": 10104}
    return Refusal(404, 11002 if error.kind == "consumer" else codes.get(family, 11000))


def _conflict(error: Conflict, route: Route | None) -> Refusal:
    if error.kind in ("queue", "exchange"):
        taken = f"Queue name '{error.ref}' is already taken."
        return Refusal(409, 11009, f"{taken} Please use a different name and try again.")
    if error.kind == "consumer":
        return Refusal(400, 11004, f"Queue '{error.ref}' already has a consumer.")
    return Refusal(405, 0, f"subscription '{error.ref}' is on the same source and queue")


def _in_use(error: InUse, route: Route | None) -> Refusal:
    return Refusal(400, 11005, f"queue '{error.ref}' serves as dead letter queue for {error.by}")


REFUSALS = Refusals(
    {
        InvalidRequest: _invalid,
        NotJson: _not_json,
        SchemaBroken: Refusal(400, 10207),
        OverLimit: _over_limit,
        Unauthenticated: _unauthenticated,
        Forbidden: _forbidden,
        NotFound: _not_found,
        Conflict: _conflict,
        InUse: _in_use,
        ClaimLost: Refusal(409, 0),
        Paused: Refusal(409, 0, "queue_delivery_paused"),
        NotPullable: Refusal(405, 0, "messages cannot be pulled unless http_pull mode is enabled"),
        Frozen: Refusal(429, 10252),
        RateLimited: lambda error, _: Refusal(429, 971 if error.what == "the API" else 10250),
        NoRoute: Refusal(404, 7003),
        WrongMethod: Refusal(405, 7001),
        BodyLate: Refusal(408, 10026),
        Unavailable: Refusal(503, 15000),
    }
)
