"""Attempts to push, as answers write them."""

from msgspec import Struct

from courier.core import attempts
from courier.core.records import Records
from courier.core.types import Listener
from courier.delivery.requests import delivery_id
from courier.dialects.discue import names
from courier.dialects.discue.message_wire import ListenerRef
from courier.dialects.discue.site import Success
from courier.dialects.site import number
from courier.web import Parameter, Request

LIMIT_DEFAULT = 100
OFFSET_MAX = 10**17
QUERY = (
    Parameter("limit", int, "How many: 100 if not given, 1,000 at most."),
    Parameter("before", int, "Only older ones; `_links.next` says it."),
)


class AttemptMember(Struct):
    delivery_id: str
    listener: ListenerRef
    message_id: str
    attempt: int
    ended_at: int
    duration_ms: int
    ok: bool
    status: int | None
    error: str | None
    answer: str | None
    next_attempt_at: int | None


class AttemptsAnswer(Struct):
    attempts: list[AttemptMember]


def asked(request: Request) -> tuple[int, int | None]:
    """How many, and before which offset. Raises InvalidQuery."""
    limit = number(request, "limit", default=LIMIT_DEFAULT, low=1, high=OFFSET_MAX)
    before = number(request, "before", default=0, low=1, high=OFFSET_MAX)
    return min(limit, attempts.LIMIT_MAX), before or None


def answer(found: attempts.Attempts, records: Records, path: str) -> Success:
    members = [_member(each, records) for each in found.attempts]
    links = [] if found.next is None else [("next", "next", f"{path}?before={found.next}")]
    return Success({"attempts": members}, path, links)


def _member(each: attempts.Attempt, records: Records) -> AttemptMember:
    listener = records.get(Listener, each.listener)
    return AttemptMember(
        delivery_id=names.shown(delivery_id(each.listener, each.message, each.attempt)),
        listener=ListenerRef(names.shown(each.listener), listener.title if listener else ""),
        message_id=names.shown(each.message),
        attempt=each.attempt,
        ended_at=each.at_ms,
        duration_ms=each.duration_ms,
        ok=each.ok,
        status=each.status or None,
        error=each.error or None,
        answer=each.answer or None,
        next_attempt_at=None if each.delay_ms is None else each.at_ms + each.delay_ms,
    )
