"""Secrets of listeners and workers, as their records keep them: sealed."""

from typing import TypeVar

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from courier.core.sealed import Sealer, field_place, open_text, reseal_text, seal_text
from courier.core.types import Listener, Secret, Worker

Owner = TypeVar("Owner", Listener, Worker)


def sealed(
    secret: str, sealer: Sealer, owner: type[Listener | Worker], *, tenant: str, id: str
) -> Secret:
    """A secret of the record with this id."""
    place = field_place(owner, "secrets", tenant=tenant, id=id)
    return Secret(seal_text(secret.encode(), sealer, place))


def opened(owner: Listener | Worker, sealer: Sealer, *, now_ms: int) -> list[str]:
    """Those that are good now."""
    place = field_place(type(owner), "secrets", tenant=owner.tenant, id=owner.id)
    return [
        open_text(secret.sealed, sealer, place).decode()
        for secret in owner.secrets
        if secret.until_ms is None or secret.until_ms > now_ms
    ]


def resealed(owner: Owner, sealer: Sealer) -> Owner:
    """The record with its secrets under the key of today."""
    place = field_place(type(owner), "secrets", tenant=owner.tenant, id=owner.id)
    secrets = (
        replace(secret, sealed=reseal_text(secret.sealed, sealer, place))
        for secret in owner.secrets
    )
    return replace(owner, secrets=tuple(secrets))


class Private(Struct, frozen=True, omit_defaults=True):
    """What the requests to a listener carry that is nobody else's business."""

    headers: dict[str, str] = field(default_factory=dict)
    authorization: str = ""


def seal_private(private: Private, sealer: Sealer, *, tenant: str, id: str) -> str:
    """As the `private` of the listener with this id: "" when there is nothing to hide."""
    if private == Private():
        return ""
    place = field_place(Listener, "private", tenant=tenant, id=id)
    return seal_text(msgspec.json.encode(private), sealer, place)


def open_private(listener: Listener, sealer: Sealer) -> Private:
    if not listener.private:
        return Private()
    place = field_place(Listener, "private", tenant=listener.tenant, id=listener.id)
    return msgspec.json.decode(open_text(listener.private, sealer, place), type=Private)


def request_headers(listener: Listener, sealer: Sealer) -> dict[str, str]:
    """All that a listener's `private` adds to the headers of its requests."""
    private = open_private(listener, sealer)
    if not private.authorization:
        return private.headers
    return {**private.headers, "authorization": private.authorization}
