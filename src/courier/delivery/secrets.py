"""Secrets of listeners and workers, as their records keep them: sealed."""

import base64

import msgspec
from msgspec import Struct, field

from courier.core.broker import Sealer
from courier.core.types import Secret


def sealed(secret: str, sealer: Sealer) -> Secret:
    return Secret(_seal(secret.encode(), sealer))


def opened(secrets: tuple[Secret, ...], sealer: Sealer, *, now_ms: int) -> list[str]:
    """Those that are good now."""
    return [
        _open(secret.sealed, sealer).decode()
        for secret in secrets
        if secret.until_ms is None or secret.until_ms > now_ms
    ]


class Private(Struct, frozen=True, omit_defaults=True):
    """What the requests to a listener carry that is nobody else's business."""

    headers: dict[str, str] = field(default_factory=dict)
    authorization: str = ""


def seal_private(private: Private, sealer: Sealer) -> str:
    """As a listener's `private`: "" when there is nothing to hide."""
    if private == Private():
        return ""
    return _seal(msgspec.json.encode(private), sealer)


def open_private(text: str, sealer: Sealer) -> Private:
    return msgspec.json.decode(_open(text, sealer), type=Private) if text else Private()


def request_headers(text: str, sealer: Sealer) -> dict[str, str]:
    """All that a listener's `private` adds to the headers of its requests."""
    private = open_private(text, sealer)
    if not private.authorization:
        return private.headers
    return {**private.headers, "authorization": private.authorization}


def _seal(clear: bytes, sealer: Sealer) -> str:
    body, name = sealer.seal(clear)
    return f"{name}:{base64.b64encode(body).decode()}"


def _open(text: str, sealer: Sealer) -> bytes:
    name, _, body = text.partition(":")
    return sealer.open(base64.b64decode(body), name)
