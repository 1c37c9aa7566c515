"""What each error is in Cloudflare's words: status, code, message."""

from msgspec import Struct

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
from courier.dialects.json import REQUIRED
from courier.web import BodiesFull, BodyLate, NoRoute, NotJson, Route, WrongMethod


class Refusal(Struct, frozen=True):
    status: int
    code: int
    message: str
    retry_after_s: int | None = None


def refusal(error: BrokerError, route: Route | None) -> Refusal:
    family = route.family if route else ""
    operation = route.operation if route else ""
    match error:
        case InvalidRequest():
            return Refusal(400, _invalid(error, family, operation), _sentence(error))
        case NotJson():
            code = {"push": 10208, "push_batch": 10208}.get(operation, 10026)
            return Refusal(400, 0 if family == "subscriptions" else code, str(error))
        case SchemaBroken():
            return Refusal(400, 10207, str(error))
        case OverLimit():
            return _over_limit(error, operation)
        case Unauthenticated(why="missing"):
            message = "Missing X-Auth-Key, X-Auth-Email or Authorization headers"
            return Refusal(400, 9106, message)
        case Unauthenticated(why="malformed"):
            return Refusal(400, 6003, "Invalid request headers")
        case Unauthenticated() if operation == "verify_token":
            return Refusal(401, 1000, "Invalid API Token")
        case Unauthenticated():
            return Refusal(403, 9109, "Invalid access token")
        case Forbidden(limited=True) if family == "messages":
            return Refusal(403, 10106, "this token may not use that queue")
        case Forbidden():
            return Refusal(403, 10000, "Authentication error")
        case NotFound():
            return Refusal(404, _not_found(error, family), str(error))
        case Conflict(kind="queue" | "exchange"):
            return Refusal(
                409,
                11009,
                f"Queue name '{error.ref}' is already taken. "
                "Please use a different name and try again.",
            )
        case Conflict(kind="consumer"):
            return Refusal(400, 11004, f"Queue '{error.ref}' already has a consumer.")
        case Conflict():
            return Refusal(405, 0, f"subscription '{error.ref}' is on the same source and queue")
        case InUse():
            return Refusal(
                400, 11005, f"queue '{error.ref}' serves as dead letter queue for {error.by}"
            )
        case ClaimLost():
            return Refusal(409, 0, str(error))
        case Paused():
            return Refusal(409, 0, "queue_delivery_paused")
        case NotPullable():
            message = "messages cannot be pulled unless http_pull mode is enabled"
            return Refusal(405, 0, message)
        case Frozen():
            return Refusal(429, 10252, str(error), 60)
        case RateLimited():
            code = 971 if error.what == "the API" else 10250
            return Refusal(429, code, str(error), -(-error.retry_after_ms // 1000))
        case NoRoute():
            return Refusal(404, 7003, str(error))
        case WrongMethod():
            return Refusal(405, 7001, str(error))
        case OutOfSpace():
            return Refusal(503, 15000, str(error), OutOfSpace.RETRY_AFTER_S)
        case BodyLate():
            return Refusal(408, 10026, str(error))
        case StoreUnavailable() | ShuttingDown() | AnswersFull() | BodiesFull():
            return Refusal(503, 15000, str(error), 1)
    raise TypeError(f"no refusal for {type(error).__name__}")


def _invalid(error: InvalidRequest, family: str, operation: str) -> int:
    field = error.field
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


def _sentence(error: InvalidRequest) -> str:
    if error.reason == REQUIRED:
        return f'Required at "{error.field}"'
    return str(error) if not error.reason.startswith("Unrecognized") else error.reason


def _over_limit(error: OverLimit, operation: str) -> Refusal:
    match error.what:
        case "queue bytes":
            return Refusal(429, 10251, str(error), 60)
        case "queues":
            return Refusal(400, 10026, str(error))
        case "message bytes":
            return Refusal(413, 10204, str(error))
        case "batch bytes":
            return Refusal(413, 10205, str(error))
        case "batch messages":
            return Refusal(413, 10206, str(error))
    code = {"push": 10204, "push_batch": 10205}.get(operation, 10026)
    return Refusal(413, code, str(error))


def _not_found(error: NotFound, family: str) -> int:
    if family == "subscriptions":
        return 0
    if error.kind == "consumer":
        return 11002
    return 10104 if family == "messages" else 11000
