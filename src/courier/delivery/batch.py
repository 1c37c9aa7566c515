"""Pure: a batch of messages as a worker is sent it.

    {"queue": "orders", "messages": [{"id": "...", "timestamp_ms": 1763251200000, "attempts": 1,
     "content_type": "json", "body": {"order": 1}}, ...]}

A text is a string, JSON is the value itself, digit for digit as it was published, and bytes are
base64. A message that has headers carries them as `metadata`.
"""

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

import msgspec

from courier.core.types import Message, Queue
from courier.delivery import signing

_encode = msgspec.json.Encoder().encode


def body(queue: Queue, messages: Sequence[Message]) -> bytes:
    return _encode({"queue": queue.name, "messages": [_message(each) for each in messages]})


def headers(
    queue: Queue, secrets: Sequence[str], *, id: str, at_ms: int, body: bytes
) -> dict[str, str]:
    return {
        "content-type": "application/json",
        # A queue's name may hold what no header can.
        "x-courier-queue": quote(queue.name, safe="/@"),
        **signing.headers(secrets, id=id, at_ms=at_ms, body=body),
    }


def _message(message: Message) -> dict[str, Any]:
    shown = {
        "id": message.id,
        "timestamp_ms": message.published_ms,
        "attempts": message.attempts,
        "content_type": message.content_type,
        "body": _content(message),
    }
    if message.headers:
        shown["metadata"] = message.headers
    return shown


def _content(message: Message) -> Any:
    if message.content_type == "json":
        return msgspec.Raw(message.body)
    if message.content_type == "text":
        return message.body.decode()
    return message.body  # encoded as base64
