"""Listeners as requests and answers write them."""

import base64
import re
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import replace

from courier.core.errors import InvalidRequest
from courier.core.listeners import Retried
from courier.core.types import Listener, Liveness, PushStats
from courier.delivery import secrets
from courier.delivery.pace import IN_FLIGHT_MAX, PER_SECOND_MAX
from courier.delivery.secrets import Private
from courier.dialects.discue import names
from courier.dialects.discue.wire import Named

HEADERS_MAX = 20
BASIC_CHARACTERS_MAX = 1_000
HIDDEN = "***"
Status = Literal["enabled", "disabled"]
Form = Literal["raw", "envelope"]

_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}", re.ASCII)
_HEADER_VALUE = re.compile(r"[!-~](?:[ -~]{0,2046}[!-~])?|", re.ASCII)
_BEARER = re.compile(r"[!-~]{1,2000}", re.ASCII)
# Headers that say what a request is, how it travels, or what Courier itself says with them.
_OURS = (
    "accept-encoding",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "te",
    "traceparent",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
    "x-attempt",
    "x-delivery-id",
    "x-listener-id",
    "x-message-name",
)
_OURS_BEGIN = ("webhook-", "x-queue-", "proxy-", "sec-")


class Basic(Struct, tag_field="type", tag="basic"):
    username: str
    password: str


class Bearer(Struct, tag_field="type", tag="bearer"):
    token: str


class SecretBody(Struct):
    """`signing_secret` is one of the owner's: whsec_ and 24 to 64 bytes in base64."""

    signing_secret: str | UnsetType = UNSET


class ListenerBody(Named):
    """`headers` and `auth` are never shown again; `null` takes them away.

    `signing_secret` is for a new listener, which gets one if none is given. `max_in_flight` and
    `max_per_second` are limits of the listener's own; 0 takes them away.
    """

    notify_url: str | UnsetType = UNSET
    liveness_url: str | UnsetType = UNSET
    headers: dict[str, str] | UnsetType | None = UNSET
    auth: Basic | Bearer | UnsetType | None = UNSET
    timeout_ms: Annotated[int, Meta(ge=1_000, le=30_000)] | UnsetType = UNSET
    max_attempts: Annotated[int, Meta(ge=1, le=11)] | UnsetType = UNSET
    ordered: bool | UnsetType = UNSET
    body: Form | UnsetType = UNSET
    status: Status | UnsetType = UNSET
    signing_secret: str | UnsetType = UNSET
    max_in_flight: Annotated[int, Meta(ge=0, le=IN_FLIGHT_MAX)] | UnsetType = UNSET
    max_per_second: Annotated[int, Meta(ge=0, le=PER_SECOND_MAX)] | UnsetType = UNSET


class BackfillBody(Struct):
    """Times are in ms, from `since` up to but not including `until`; `after` goes on from there."""

    since: Annotated[int, Meta(ge=0, le=1 << 53)] | UnsetType = UNSET
    until: Annotated[int, Meta(ge=0, le=1 << 53)] | UnsetType = UNSET
    after: Annotated[int, Meta(ge=0, le=1 << 53)] | UnsetType = UNSET


class LivenessMember(Struct):
    state: str
    success_count: int
    failure_count: int
    last_success_at: int | None
    last_failure_at: int | None
    last_failure_msg: str


class MessagesMember(Struct):
    acknowledged_count: int
    missed: list[str]
    missed_count: int
    last_success_at: int | None
    last_failure_at: int | None


class ListenerMember(Struct):
    """`signing_secret` is there when it is new, `liveness` and `messages` when one is read."""

    id: str
    name: str
    alias: str
    queue_id: str
    status: Status
    notify_url: str
    liveness_url: str
    created_at: int
    updated_at: int
    headers: dict[str, str]
    timeout_ms: int
    max_attempts: int
    ordered: bool
    body: Form
    max_in_flight: int
    max_per_second: int
    auth: dict[str, str] | UnsetType = UNSET
    disabled_by: str | UnsetType = UNSET
    signing_secret: str | UnsetType = UNSET
    liveness: LivenessMember | UnsetType = UNSET
    messages: MessagesMember | UnsetType = UNSET


class ListenerAnswer(Struct):
    listener: ListenerMember


class ListenersAnswer(Struct):
    listeners: list[ListenerMember]


class Backfill(Struct):
    bound: int
    next: int | UnsetType = UNSET


class RetriedAnswer(Struct):
    retried: Retried


class BackfillAnswer(Struct):
    backfill: Backfill


def secret(body: ListenerBody | SecretBody) -> str:
    """The one that was given, or a new one. Raises InvalidRequest."""
    if body.signing_secret is UNSET:
        return secrets.new_secret()
    return secrets.checked(body.signing_secret, "signing_secret")


def changed(listener: Listener, body: ListenerBody) -> Listener:
    """The listener with whatever the body says, except what must be sealed."""
    fields: dict[str, Any] = {}
    name = body.chosen()
    if name is not None:
        fields["title"] = name
    for field, value in (
        ("url", body.notify_url),
        ("liveness_url", body.liveness_url),
        ("timeout_ms", body.timeout_ms),
        ("attempts_max", body.max_attempts),
        ("ordered", body.ordered),
        ("in_flight_max", body.max_in_flight),
        ("per_second_max", body.max_per_second),
    ):
        if value is not UNSET:
            fields[field] = value
    if body.body is not UNSET:
        fields["envelope"] = body.body == "envelope"
    if body.status == "enabled":
        fields["disabled_by"] = ""
    elif body.status == "disabled":
        fields["disabled_by"] = "user"
    return replace(listener, **fields)


def private(known: Private, body: ListenerBody) -> Private:
    """What is to be sealed, with whatever the body says; raises InvalidRequest."""
    headers, authorization = known.headers, known.authorization
    if body.headers is not UNSET:
        headers = _checked_headers(body.headers or {})
    if body.auth is not UNSET:
        authorization = _authorization(body.auth)
    if authorization and any(name.lower() == "authorization" for name in headers):
        raise InvalidRequest("headers", "Authorization is what auth is for; give one of them")
    return Private(headers, authorization)


def _checked_headers(headers: dict[str, str]) -> dict[str, str]:
    if len(headers) > HEADERS_MAX:
        raise InvalidRequest("headers", f"must be {HEADERS_MAX} at most, not {len(headers)}")
    seen: set[str] = set()
    for name, value in headers.items():
        lower = name.lower()
        if not _HEADER_NAME.fullmatch(name):
            raise InvalidRequest("headers", f"'{name[:40]}' is not the name of a header")
        if lower in _OURS or lower.startswith(_OURS_BEGIN):
            raise InvalidRequest(f"headers.{name}", "cannot be chosen")
        if lower in seen:
            raise InvalidRequest(f"headers.{name}", "is given twice")
        if not _HEADER_VALUE.fullmatch(value):
            # The value may be a secret, and is not repeated.
            raise InvalidRequest(f"headers.{name}", "must be up to 2048 printable ASCII characters")
        seen.add(lower)
    return headers


def _authorization(auth: Basic | Bearer | None) -> str:
    """The value of the header that proves who asks."""
    if auth is None:
        return ""
    if isinstance(auth, Bearer):
        if not _BEARER.fullmatch(auth.token):
            raise InvalidRequest("auth.token", "must be 1 to 2000 printable ASCII characters")
        return f"Bearer {auth.token}"
    both = f"{auth.username}:{auth.password}"
    if ":" in auth.username:
        raise InvalidRequest("auth.username", "must have no colon")
    if not both.isprintable() or len(both) > BASIC_CHARACTERS_MAX:
        limit = f"{BASIC_CHARACTERS_MAX - 1} printable characters together"
        raise InvalidRequest("auth", f"user name and password must be {limit} at most")
    return "Basic " + base64.b64encode(both.encode()).decode()


def member(listener: Listener, hidden: Private) -> ListenerMember:
    """Values of headers are hidden, and so is all of `auth` but its type."""
    auth: dict[str, str] | UnsetType = UNSET
    if hidden.authorization:
        auth = {"type": hidden.authorization.partition(" ")[0].lower()}
    return ListenerMember(
        id=names.shown(listener.id),
        name=listener.title,
        alias=listener.title,
        queue_id=names.shown(listener.parent),
        status="disabled" if listener.disabled_by else "enabled",
        notify_url=listener.url,
        liveness_url=listener.liveness_url,
        created_at=listener.created_ms,
        updated_at=listener.modified_ms,
        headers=dict.fromkeys(hidden.headers, HIDDEN),
        timeout_ms=listener.timeout_ms,
        max_attempts=listener.attempts_max,
        ordered=listener.ordered,
        body="envelope" if listener.envelope else "raw",
        max_in_flight=listener.in_flight_max,
        max_per_second=listener.per_second_max,
        auth=auth,
        disabled_by=listener.disabled_by or UNSET,
    )


def liveness_member(liveness: Liveness | None) -> LivenessMember:
    if liveness is None:
        return LivenessMember("pending", 0, 0, None, None, "")
    return LivenessMember(
        state=liveness.state,
        success_count=liveness.success_count,
        failure_count=liveness.failure_count,
        last_success_at=liveness.last_success_ms or None,
        last_failure_at=liveness.last_failure_ms or None,
        last_failure_msg=liveness.last_failure,
    )


def messages_member(stats: PushStats, missed: list[str]) -> MessagesMember:
    return MessagesMember(
        acknowledged_count=stats.acknowledged,
        missed=[names.shown(id) for id in missed],
        missed_count=stats.missed + stats.expired,
        last_success_at=stats.last_success_ms or None,
        last_failure_at=stats.last_failure_ms or None,
    )
