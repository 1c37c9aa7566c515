"""The HTTP request that carries one message to one listener."""

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, Protocol
from urllib.parse import quote

import msgspec

from courier import ids
from courier.core.types import Listener, Message, Queue
from courier.delivery import secrets
from courier.delivery.transport import PushRequest, Target

JSON = "application/json; charset=utf-8"
TEXT = "text/plain; charset=utf-8"
BYTES = "application/octet-stream"
TRACE_HEADER = "traceparent"
# Headers that only Courier sets: its own words, and those that rule a connection.
RESERVED = frozenset(
    (
        *("content-type", "webhook-id", "webhook-timestamp", "webhook-signature"),
        *("x-queue-id", "x-queue-name", "x-listener-id", "x-message-name"),
        *("x-delivery-id", "x-attempt", TRACE_HEADER, "user-agent", "host", "accept-encoding"),
        *("content-length", "transfer-encoding", "connection", "keep-alive", "upgrade", "te"),
        *("trailer", "expect", "proxy-authorization", "proxy-connection"),
    )
)

_encode = msgspec.json.Encoder().encode


class Spelling(Protocol):
    """How listeners know things by id and by name."""

    def id(self, id: str) -> str: ...

    def name(self, queue: Queue, message: Message, id: str) -> str:
        """`id` is the message's, in this spelling."""
        ...


class Prepared(msgspec.Struct, frozen=True):
    """What all requests to a listener have in common: its secrets are in clear."""

    secrets: list[str]
    target: Target


def prepared(
    listener: Listener,
    queue: Queue,
    secrets: list[str],
    wanted: Mapping[str, str],
    spelling: Spelling,
) -> Prepared:
    """`wanted` are headers of the owner's wish; they never override ours."""
    headers = {name: value for name, value in wanted.items() if name.lower() not in RESERVED}
    headers["x-queue-id"] = spelling.id(queue.id)
    headers["x-queue-name"] = _ascii(queue.name)
    headers["x-listener-id"] = spelling.id(listener.id)
    return Prepared(secrets, Target(listener.url, headers))


def request(
    listener: Listener,
    queue: Queue,
    message: Message,
    prepared: Prepared,
    spelling: Spelling,
    *,
    wall_ms: int,
) -> PushRequest:
    """The message's body must be in clear."""
    core_id = message_id(queue, message)
    id = spelling.id(core_id)
    name = spelling.name(queue, message, id)
    if listener.envelope:
        body, content_type = _envelope(listener, queue, message, id, name, spelling), JSON
    else:
        body, content_type = message.body, _content_type(message)
    headers = {
        "content-type": content_type,
        "x-message-name": _ascii(name),
        "x-delivery-id": spelling.id(delivery_id(listener.id, core_id, message.attempts)),
        "x-attempt": str(message.attempts),
        **secrets.headers(prepared.secrets, id=id, at_ms=wall_ms, body=body),
    }
    trace = (message.headers or {}).get(TRACE_HEADER)
    if isinstance(trace, str) and trace and trace.isascii() and trace.isprintable():
        headers[TRACE_HEADER] = trace
    return PushRequest(prepared.target, body, headers)


def message_id(queue: Queue, message: Message) -> str:
    """The generated id, also of a message that has one of its publisher's choosing."""
    return ids.message_id(published_ms=message.published_ms, seq=message.seq, queue=queue.id)


def delivery_id(listener: str, message: str, attempt: int) -> str:
    """The id of one attempt. Made from what an event says of it, so the two can be matched."""
    made = blake2b(f"{listener} {message} {attempt}".encode(), digest_size=15)
    return f"c0{made.hexdigest()}"


def _content_type(message: Message) -> str:
    if message.content_type == "bytes":
        return BYTES
    return JSON if message.content_type == "json" or _is_json(message.body) else TEXT


def _is_json(body: bytes) -> bool:
    try:
        msgspec.json.decode(body, type=msgspec.Raw)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


def _ascii(text: str) -> str:
    """Names from other dialects may hold what a header cannot."""
    if text.isascii() and text.isprintable():
        return text
    return quote(text, safe="!#$&'()*+,/:;=?@[]^_`{|}~ .-")


def _envelope(
    listener: Listener, queue: Queue, message: Message, id: str, name: str, spelling: Spelling
) -> bytes:
    told: dict[str, Any] = {
        "id": id,
        "name": name,
        "created_at": message.published_ms,
        # Bytes become base64.
        "data": message.body if message.content_type == "bytes" else message.body.decode(),
    }
    if message.content_type == "bytes":
        told["encoding"] = "base64"
    return _encode(
        {
            "message": told,
            "queue": {"id": spelling.id(queue.id), "name": queue.name},
            "listener": {"id": spelling.id(listener.id), "name": listener.title},
            "attempt": message.attempts,
        }
    )
