"""What a page says when something was refused, and with which status."""

from msgspec import Struct

from courier import refusals
from courier.console.guard import ForeignForm
from courier.core.errors import (
    BrokerError,
    OutOfSpace,
    RateLimited,
    Rejected,
    RowsChanged,
    SchemaBroken,
)

RETRY_AFTER_S = 5


class PlanConflict(Rejected):
    """A plan cannot do this now, because of another one or of what it has done."""


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
        case SchemaBroken():
            return 400, "invalid_request"
        case ForeignForm():
            return 403, "forbidden"
        case RowsChanged() | PlanConflict():
            return 409, "conflict"
    return refusals.refusal(error)
