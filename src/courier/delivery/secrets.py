"""Secrets of listeners and workers: made, kept sealed in their records, and used to sign.

Signatures follow the Standard Webhooks convention: a receiver that knows the secret can tell who
sent a push, that nothing in it was changed, and (by its timestamp) that it is not an old one.
"""

import base64
import binascii
import hmac
from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from courier import ids
from courier.clock import Clock
from courier.core.errors import InvalidRequest
from courier.core.listeners import check_title, record_name
from courier.core.sealed import Sealer, field_place, open_text, reseal_text, seal_text
from courier.core.types import Listener, Queue, Secret, Worker
from courier.delivery.targets import Rules

Owner = TypeVar("Owner", Listener, Worker)

SECRET_BYTES = 32
SECRET_BYTES_MIN, SECRET_BYTES_MAX = 24, 64
_PREFIX = "whsec_"


def new_secret() -> str:
    return _PREFIX + base64.b64encode(ids.new_bytes(SECRET_BYTES)).decode()


def checked(secret: str, field: str = "secret") -> str:
    """A secret of the owner's choice. Raises InvalidRequest, and does not repeat it."""
    try:
        raw = base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    fits = SECRET_BYTES_MIN <= len(raw) <= SECRET_BYTES_MAX
    if not (fits and secret.startswith(_PREFIX)):
        size = f"{SECRET_BYTES_MIN} to {SECRET_BYTES_MAX} bytes in base64"
        raise InvalidRequest(field, f"must be {_PREFIX} and {size}")
    return secret


def headers(secrets: Sequence[str], *, id: str, at_ms: int, body: bytes) -> dict[str, str]:
    """The three headers of a signed push; with several secrets, one signature for each."""
    seconds = at_ms // 1000
    signed = b"%s.%d.%s" % (id.encode(), seconds, body)
    return {
        "webhook-id": id,
        "webhook-timestamp": str(seconds),
        "webhook-signature": " ".join(_signature(secret, signed) for secret in secrets),
    }


def _signature(secret: str, signed: bytes) -> str:
    key = base64.b64decode(secret.removeprefix(_PREFIX))
    return "v1," + base64.b64encode(hmac.digest(key, signed, "sha256")).decode()


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


# --- new listeners and workers ---


def new_listener(
    queue: Queue,
    title: str,
    url: str,
    sealer: Sealer,
    *,
    now_ms: int,
    secret: str,
    liveness_url: str = "",
    **settings: Any,
) -> Listener:
    """A listener of the queue, its secret sealed. Its URLs were judged before."""
    id = ids.new_id()
    return Listener(
        id=id,
        tenant=queue.tenant,
        parent=queue.id,
        name=record_name(queue.id, title),
        created_ms=now_ms,
        modified_ms=now_ms,
        title=title,
        url=url,
        liveness_url=liveness_url or url,
        secrets=(sealed(secret, sealer, Listener, tenant=queue.tenant, id=id),),
        **settings,
    )


def new_worker(
    tenant: str, name: str, url: str, sealer: Sealer, *, now_ms: int, secret: str
) -> Worker:
    id = ids.new_id()
    secrets = (sealed(secret, sealer, Worker, tenant=tenant, id=id),)
    return Worker(id=id, tenant=tenant, name=name, created_ms=now_ms, url=url, secrets=secrets)


class Newcomers:
    """The same for the console, which shows each secret once."""

    def __init__(self, sealer: Sealer, urls: Rules, clock: Clock) -> None:
        self._sealer = sealer
        self._urls = urls
        self._clock = clock

    def listener(self, queue: Queue, title: str, url: str) -> tuple[Listener, str]:
        """A listener of the queue and its secret; raises InvalidRequest."""
        check_title(title)
        self._urls.check(url, queue.tenant, field="url")
        now_ms, secret = self._clock.now_ms(), new_secret()
        return new_listener(queue, title, url, self._sealer, now_ms=now_ms, secret=secret), secret

    def worker(self, tenant: str, name: str, url: str, known: Worker | None) -> Worker:
        """A worker of that name, or the known one at another URL."""
        if known is not None:
            return replace(known, url=url, secrets=resealed(known, self._sealer).secrets)
        now_ms, secret = self._clock.now_ms(), new_secret()
        return new_worker(tenant, name, url, self._sealer, now_ms=now_ms, secret=secret)

    def secret(self, worker: Worker) -> str:
        """What calls to it are signed with."""
        return opened(worker, self._sealer, now_ms=self._clock.now_ms())[0]
