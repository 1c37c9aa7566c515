"""What Discue says and reads about messages and their way to listeners."""

import re
from collections.abc import Sequence
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from courier.core.errors import InvalidRequest
from courier.core.lifecycle import NAME_HEADER
from courier.core.types import Draft, Listener, Message, PlainDrafts, Push, PushStatus, Queue
from courier.delivery.requests import TRACE_HEADER, message_id
from courier.dialects.discue import names
from courier.dialects.discue.queues import Item
from courier.dialects.discue.wire import Named
from courier.long_texts import LongTexts
from courier.web import Request

DATA_BYTES_MAX = 256 << 10
ONCE_CHARACTERS_MAX = 128
_TRACE_HEADER = TRACE_HEADER.encode()
_TRACE = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}[0-9a-f-]{0,64}")

Data = Annotated[str, Meta(extra_json_schema={"minLength": 1, "maxLength": DATA_BYTES_MAX})]
State = Literal["stored", "delivering", "delivered", "failed"]


class DiscueMessageBody(Named, kw_only=True):
    data: Data


class ListenerRef(Struct):
    id: str
    name: str


class PushMember(Struct):
    """Times are null until there was, or will be, such an attempt."""

    listener: ListenerRef
    state: PushStatus
    attempts: int
    first_attempt_at: int | None
    last_attempt_at: int | None
    next_attempt_at: int | None
    last_status: int | None
    last_error: str | None
    last_answer: str | None
    duration_ms: int | None


class MessageMember(Item):
    """`data` is text, except where `encoding` says how it is written."""

    data: str
    created_at: int
    size: int
    state: State
    deliveries: list[PushMember]
    encoding: Literal["base64"] | UnsetType = UNSET


class AddedAnswer(Struct):
    message: Item


class MessageAnswer(Struct):
    message: MessageMember


class MessagesAnswer(Struct):
    messages: list[Item]


class DeliveryAnswer(Struct):
    delivery: PushMember


def drafts(body: DiscueMessageBody, name: str | None, request: Request) -> Sequence[Draft]:
    """The one, with the name that was chosen for it. Raises InvalidRequest."""
    headers = {}
    if name is not None:
        headers[NAME_HEADER] = name
    if _TRACE_HEADER in request.headers:
        trace = request.header(_TRACE_HEADER)
        if _TRACE.fullmatch(trace):
            headers[TRACE_HEADER] = trace
    data = body.data.encode()
    if not 1 <= len(data) <= DATA_BYTES_MAX:
        limit = f"must have 1 to {DATA_BYTES_MAX} bytes of UTF-8, not {len(data)}"
        raise InvalidRequest("data", limit)
    once_key = _once_key(request)
    if once_key is None and not headers:
        return PlainDrafts([data], ["text"])
    return [Draft(data, headers=headers or None, once_key=once_key)]


def _once_key(request: Request) -> str | None:
    """Keys of the one dialect are none of another's."""
    if b"idempotency-key" not in request.headers:
        return None
    key = request.header(b"idempotency-key")
    if not 1 <= len(key) <= ONCE_CHARACTERS_MAX:
        reason = f"an Idempotency-Key must have 1 to {ONCE_CHARACTERS_MAX} characters"
        raise InvalidRequest("", reason)
    return f"{key} message"


def item(queue: Queue, message: Message) -> Item:
    name = names.message_name(queue, message)
    return Item(names.shown(message_id(queue, message)), name, name)


def member(
    queue: Queue, message: Message, pushes: Sequence[tuple[Push, Listener]], texts: LongTexts
) -> MessageMember:
    """The message's body must be in clear."""
    short = item(queue, message)
    base64 = message.content_type == "bytes"
    return MessageMember(
        id=short.id,
        name=short.name,
        alias=short.alias,
        data=texts.text(message.body, base64=base64),
        created_at=message.published_ms,
        size=message.size,
        state=_state([push.status for push, _ in pushes]),
        deliveries=[delivery(push, listener) for push, listener in pushes],
        encoding="base64" if base64 else UNSET,
    )


def _state(pushes: Sequence[PushStatus]) -> State:
    if not pushes:
        return "stored"
    if "exhausted" in pushes:
        return "failed"
    return "delivered" if set(pushes) == {"acknowledged"} else "delivering"


def delivery(push: Push, listener: Listener) -> PushMember:
    report = push.report
    return PushMember(
        listener=ListenerRef(names.shown(listener.id), listener.title),
        state=push.status,
        attempts=push.attempts,
        first_attempt_at=push.first_ms,
        last_attempt_at=push.last_ms,
        next_attempt_at=push.due_ms,
        last_status=report.status or None if report else None,
        last_error=report.error or None if report else None,
        last_answer=report.text or None if report else None,
        duration_ms=report.duration_ms if report else None,
    )
