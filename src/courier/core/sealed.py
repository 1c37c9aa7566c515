"""Values that must not lie in clear on disk, and the place that each is bound to.

A sealed value opens only in the place it was sealed for: copied to another row, field or tenant
it is unreadable. Bodies are bound to their tenant alone, because they legally move between its
queues: by burial, redrive and replay.
"""

import base64
from collections.abc import Sequence
from typing import Protocol

from msgspec.structs import replace

from courier.core.errors import StoreUnavailable
from courier.core.types import Draft, Record


class Sealer(Protocol):
    """Encrypts. `name` is that of the key it seals with now."""

    name: str
    digest_key: bytes

    def seal(self, clear: bytes, place: bytes) -> tuple[bytes, str]: ...

    def open(self, sealed: bytes, name: str, place: bytes) -> bytes: ...


def body_place(tenant: str) -> bytes:
    """Where bodies of a tenant's messages belong."""
    return _place("body", tenant)


def seal_bodies(drafts: Sequence[Draft], sealer: Sealer, *, tenant: str) -> list[Draft]:
    """Drafts as they are stored on an encrypted queue of the tenant."""
    place = body_place(tenant)
    sealed = []
    for draft in drafts:
        body, name = sealer.seal(draft.body, place)
        sealed.append(replace(draft, body=body, sealed=name))
    return sealed


def field_place(kind: type[Record], field: str, *, tenant: str, id: str) -> bytes:
    """Where a field of a record belongs."""
    return _place("record", kind.__name__, field, tenant, id)


def store_place(name: str) -> bytes:
    """Where something belongs of which a store has one."""
    return _place("store", name)


def _place(*parts: str) -> bytes:
    return "\0".join(parts).encode()


def seal_text(clear: bytes, sealer: Sealer, place: bytes) -> str:
    """Sealed, with the name of its key, as text."""
    body, name = sealer.seal(clear, place)
    return f"{name}:{base64.b64encode(body).decode()}"


def open_text(text: str, sealer: Sealer, place: bytes) -> bytes:
    """What `seal_text` sealed. Raises StoreUnavailable."""
    name, _, body = text.partition(":")
    try:
        sealed = base64.b64decode(body)
    except ValueError:
        raise StoreUnavailable("a sealed value was cut off") from None
    return sealer.open(sealed, name, place)


def reseal_text(text: str, sealer: Sealer, place: bytes) -> str:
    """The same under the key of today and bound to its place, if it was not already."""
    if text.partition(":")[0] == sealer.name:
        return text
    return seal_text(open_text(text, sealer, place), sealer, place)
