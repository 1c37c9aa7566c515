"""Which messages a search finds: by text, or by a value at a path of JSON bodies."""

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct

from courier import ids
from courier.core.types import Message

BODY_PARSED_BYTES_MAX = 1 << 20
_encode = msgspec.json.encode


class Sought(Struct, frozen=True):
    """Text; with a `path`, such as customer.id, the value that a JSON body has there."""

    text: str
    path: str = ""


def matcher(queue: str, sought: Sought) -> Callable[[Message], bool]:
    """Whether a message of the queue has the text in its body, headers or own id, or as its id; or
    its JSON body has the value. A sealed body matches nothing.

    Parts of generated ids are not looked for: an order number would be found in many of them.
    """
    text, path = sought.text, sought.path
    needle = text.encode("utf-8", "surrogatepass")

    def has_text(message: Message) -> bool:
        if message.sealed is None and needle in message.body:
            return True
        if text in message.id and (text == message.id or _has_own_id(message, queue)):
            return True
        return any(
            text in name or text in (value if isinstance(value, str) else _encode(value).decode())
            for name, value in (message.headers or {}).items()
        )

    def has_value(message: Message) -> bool:
        return message.sealed is None and _value_at(message.body, path) == text

    return has_value if path else has_text


def _has_own_id(message: Message, queue: str) -> bool:
    made = ids.message_id(published_ms=message.published_ms, seq=message.seq, queue=queue)
    return message.id != made


def _value_at(body: bytes, path: str) -> str | None:
    """The value there as text; None when the body is not JSON, or has nothing there."""
    if len(body) > BODY_PARSED_BYTES_MAX:
        return None
    try:
        value: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    for step in path.split("."):
        if isinstance(value, dict) and step in value:
            value = value[step]
        elif isinstance(value, list) and step.isascii() and step.isdigit() and len(step) < 10:
            if int(step) >= len(value):
                return None
            value = value[int(step)]
        else:
            return None
    return value if isinstance(value, str) else _encode(value).decode()
