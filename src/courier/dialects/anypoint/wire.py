"""Messages as the broker API writes them, and the translation to and from the core's values.

A publisher's `properties` are the core's headers. Its own `headers` (those the broker does not
own) are among them too, together under the name OWN_HEADERS.
"""

from collections.abc import Callable, Mapping, Sequence
from email.utils import formatdate
from functools import lru_cache, partial
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from courier.core import lifecycle
from courier.core.broker import Routable
from courier.core.errors import InvalidRequest, OverLimit, Rejected
from courier.core.types import (
    DAY_MS,
    MINUTE_MS,
    SECOND_MS,
    Draft,
    Exchange,
    Message,
    PlainDrafts,
    Queue,
)
from courier.dialects import folding, json
from courier.dialects.site import given
from courier.long_texts import LongTexts

BATCH_MAX = 10
BODY_BYTES_MAX = 10_485_760
HIDDEN_BYTES = 1_048_576
# Of headers and properties together, as they are sent and as they are kept.
HEADERS_BYTES_MAX = 1 << 20
# A longer request is looked through before its values are made, so that those are not too many.
QUICK_BYTES_MAX = 64 << 10
# The long texts of a longer request are read in slices. Of ten messages, what is not long text
# has at most their headers and the ends of their bodies.
LONG_BYTES = 4 << 20
REST_BYTES_MAX = BATCH_MAX * (HEADERS_BYTES_MAX + 2 * folding.SLICE_BYTES)
# Texts of a request that are encoded without others having their turn between.
PLAIN_CHARACTERS_MAX = 256 << 10
MESSAGE_ID_CHARACTERS_MAX = 256
GROUP_CHARACTERS_MAX = 128
DELAY_MS_MAX = 15 * MINUTE_MS
TTL_MS_MAX = 14 * DAY_MS
ONCE_MS = 5 * MINUTE_MS
LOCK_S_MAX = 43_200
# Rules judge nothing by the headers of a message that has as many or as long ones as this.
RULED_HEADERS_MAX = 500
RULED_BYTES_MAX = 215 << 10

OWN_HEADERS = "anypoint.headers"
_BROKER_HEADERS = frozenset(
    (
        "messageId",
        "lockId",
        "created",
        "deliveryCount",
        "ttl",
        "messageGroupId",
        "deliveryDelay",
        "payloadHidden",
        "bodyEncoding",
    )
)
# Those that say nothing of how a message is kept.
_SILENT_HEADERS = _BROKER_HEADERS - {"ttl", "messageGroupId", "deliveryDelay"}
_NO_HEADERS: dict[str, Any] = {}

_encode = msgspec.json.Encoder().encode
_pack = msgspec.msgpack.Encoder().encode


def whole(value: Any, field: str, *, low: int, high: int) -> int:
    """An integer in its range; clients also send it as text."""
    number = value
    text = isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 15
    if text or (isinstance(value, float) and value.is_integer()):
        number = int(value)
    if not isinstance(number, int) or isinstance(number, bool) or not low <= number <= high:
        # Writing a large one out would take long, and tell nobody more.
        shown = type(value).__name__ if isinstance(value, dict | list) else str(value)[:80]
        raise InvalidRequest(field, f"must be an integer from {low} to {high}, not {shown}")
    return number


# --- requests --------------------------------------------------------------------------------


class MessageBody(Struct):
    """A message to publish."""

    headers: dict[str, Any] | UnsetType | None = UNSET
    properties: dict[str, Any] | UnsetType | None = UNSET
    body: str | UnsetType | None = UNSET


# Each item of a batch is read on its own, so that a bad one does not refuse the others.
_BATCH = Meta(min_length=1, max_length=BATCH_MAX)
MessageBatch = Annotated[
    list[Raw],
    _BATCH,
    Meta(
        extra_json_schema={"items": msgspec.json.schema_components([MessageBody])[1]["MessageBody"]}
    ),
]

_MessageBodies = Annotated[list[MessageBody], _BATCH]


class _Outline(Struct):
    """A message whose parts are still to be read."""

    headers: Raw | UnsetType = UNSET
    properties: Raw | UnsetType = UNSET
    body: Raw | UnsetType = UNSET


# An array that is read no further than to its first item too many.
_Outlines = msgspec.defstruct(
    "_Outlines",
    [(f"item_{number}", Raw | UnsetType, UNSET) for number in range(BATCH_MAX)],
    array_like=True,
    forbid_unknown_fields=True,
)


class _IdHeaders(Struct):
    messageId: str


class _Identified(Struct):
    headers: _IdHeaders


class BadItem(Struct, frozen=True):
    """An item of a batch that cannot be read, and what it calls itself."""

    error: Rejected
    id: str


class LockBody(Struct):
    lockId: str


class LockItem(Struct):
    messageId: str | UnsetType | None = UNSET
    lockId: str | UnsetType | None = UNSET


_LockSeconds = Annotated[Any, Meta(extra_json_schema={"type": "integer", "maximum": LOCK_S_MAX})]


class LockTtlBody(Struct):
    ttl: _LockSeconds


class LockTtlItem(Struct):
    messageId: str | UnsetType | None = UNSET
    lockId: str | UnsetType | None = UNSET
    ttl: _LockSeconds | UnsetType = UNSET


LockBatch = Annotated[list[LockItem], _BATCH]
LockTtlBatch = Annotated[list[LockTtlItem], _BATCH]


# --- answers ---------------------------------------------------------------------------------


class Result(Struct, omit_defaults=True):
    messageId: str
    status: Literal["successful", "failure"]
    statusMessage: str
    lockId: str | UnsetType = UNSET


class Delivered(Struct, omit_defaults=True):
    headers: dict[str, Any]
    properties: dict[str, Any]
    body: str | UnsetType = UNSET


# --- publishing ------------------------------------------------------------------------------


def plain_drafts(
    bodies: Sequence[MessageBody | BadItem],
    destination: Queue | Exchange,
    ids: Sequence[str] = (),
) -> PlainDrafts | None:
    """Columns, if all are short messages of which nothing is said but the id; else None.

    `ids`: if not their headers say them.
    """
    if isinstance(destination, Exchange) or destination.fifo:
        return None
    texts: list[str] = []
    named = list(ids)
    for body in bodies:
        if type(body) is not MessageBody or body.properties:
            return None
        texts.append(body.body or "")
        headers = body.headers
        id = headers.get("messageId") if headers else None
        more = len(headers) - (id is not None) if headers else 0
        if headers and more and not headers.keys() <= _SILENT_HEADERS:
            return None
        if not ids:
            if type(id) is not str or not 0 < len(id) <= MESSAGE_ID_CHARACTERS_MAX:
                return None
            named.append(id)
    if sum(map(len, texts)) > PLAIN_CHARACTERS_MAX:
        return None
    try:
        "".join(named).encode()
        return PlainDrafts([*map(str.encode, texts)], ["text"] * len(texts), named)
    except UnicodeEncodeError:  # the other way says which of them
        return None


def checked_id(id: str) -> str:
    if not 1 <= len(id) <= MESSAGE_ID_CHARACTERS_MAX:
        raise InvalidRequest(
            "messageId", f"must have 1 to {MESSAGE_ID_CHARACTERS_MAX} characters, not {len(id)}"
        )
    if not id.isascii():
        _utf8(id, "messageId")
    return id


def item_id(body: MessageBody) -> str | None:
    """The id that an item of a batch gives itself."""
    id = body.headers.get("messageId") if body.headers else None
    if id is None:
        return None
    if not isinstance(id, str):
        raise InvalidRequest("headers.messageId", "must be a string")
    return checked_id(id)


def routable(id: str, body: MessageBody) -> Routable:
    """The message for an exchange, with what its rules may see of it."""
    draft = _draft(id, body)
    headers = {**given(body.headers, _NO_HEADERS), "messageId": id}
    properties = given(body.properties, _NO_HEADERS)
    many = len(headers) + len(properties) >= RULED_HEADERS_MAX
    if many or len(_encode(headers)) + len(_encode(properties)) > RULED_BYTES_MAX:
        return Routable(draft, ())
    return Routable(draft, (headers, properties))


def draft(id: str, body: MessageBody, queue: Queue) -> Draft:
    """The message for a queue."""
    made = _draft(id, body)
    if not queue.fifo:
        return made
    if made.delay_ms:
        raise InvalidRequest("headers.deliveryDelay", "a FIFO queue takes no delay of a message")
    return msgspec.structs.replace(made, delay_ms=None, once_key=f"id\n{id}", once_ms=ONCE_MS)


def _draft(id: str, body: MessageBody) -> Draft:
    text = _utf8(body.body or "", "body")
    headers = body.headers
    properties = body.properties or _NO_HEADERS
    if OWN_HEADERS in properties:
        raise InvalidRequest(f"properties.{OWN_HEADERS}", "this name is reserved")
    kept: dict[str, Any] | None = properties or None
    delay = ttl = group = None
    if headers:
        if (delay := headers.get("deliveryDelay")) is not None:
            delay = whole(delay, "headers.deliveryDelay", low=0, high=DELAY_MS_MAX)
        if (ttl := headers.get("ttl")) is not None:
            ttl = whole(ttl, "headers.ttl", low=1, high=TTL_MS_MAX)
        if (group := headers.get("messageGroupId")) is not None:
            group = _group(group)
        if not headers.keys() <= _BROKER_HEADERS:
            own = {name: value for name, value in headers.items() if name not in _BROKER_HEADERS}
            kept = {**properties, OWN_HEADERS: own}
    if kept:
        size = len(_encode_kept(kept))
        if size > HEADERS_BYTES_MAX:
            raise OverLimit("message headers", limit=HEADERS_BYTES_MAX, actual=size)
    return Draft(text, headers=kept, id=id, delay_ms=delay, ttl_ms=ttl, group=group)


def _encode_kept(kept: dict[str, Any]) -> bytes:
    try:
        _pack(kept)
        return _encode(kept)
    except (UnicodeEncodeError, RecursionError) as error:
        raise InvalidRequest("properties", "cannot be written as JSON") from error
    except OverflowError as error:
        raise InvalidRequest("properties", "an integer has more than 64 bits") from error


def _utf8(text: str, field: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest(field, "holds half of a surrogate pair") from error


def _group(group: Any) -> str:
    fits = isinstance(group, str) and 1 <= len(group) <= GROUP_CHARACTERS_MAX
    if not fits or not all("!" <= character <= "~" for character in group):
        raise InvalidRequest(
            "headers.messageGroupId",
            f"must have 1 to {GROUP_CHARACTERS_MAX} printable characters without blanks",
        )
    checked: str = group
    return checked


def message(raw: bytes) -> MessageBody:
    """Raises NotJson, InvalidRequest, OverLimit; takes time in proportion to the request."""
    if len(raw) > LONG_BYTES:
        folded = folding.Folded(raw, rest_bytes_max=REST_BYTES_MAX)
        long = _folded_message(folded.rest, folded)
        folded.check()
        return long
    if len(raw) > QUICK_BYTES_MAX:
        _check_outline(json.decode(raw, _Outline))
    body: MessageBody = json.decode(raw, MessageBody)
    return body


def _folded_message(raw: bytes, folded: folding.Folded) -> MessageBody:
    outline: _Outline = json.decode(raw, _Outline)
    parts = {
        name: bytes(part)
        for name, part in msgspec.structs.asdict(outline).items()
        if part is not UNSET
    }
    text = parts.pop("body") if folded.holds(parts.get("body", b"")) else None
    size = sum(folded.length(part) for name, part in parts.items() if name != "body")
    if size > HEADERS_BYTES_MAX:
        raise OverLimit("message headers", limit=HEADERS_BYTES_MAX, actual=size)
    members = (b'"%s":%s' % (name.encode(), folded.whole(part)) for name, part in parts.items())
    body: MessageBody = json.decode(b"{%s}" % b",".join(members), MessageBody)
    if text is not None:
        if not text.startswith(b'"'):
            raise InvalidRequest("body", "must be a text")
        body.body = folded.text(text, bytes_max=BODY_BYTES_MAX)
    return body


def _check_outline(outline: _Outline) -> None:
    """Raises OverLimit for what is too long whatever it stands for."""
    parts = (outline.headers, outline.properties)
    size = sum(len(part) for part in parts if part is not UNSET)
    if size > HEADERS_BYTES_MAX:
        raise OverLimit("message headers", limit=HEADERS_BYTES_MAX, actual=size)


def batch(raw: bytes) -> Sequence[MessageBody | BadItem]:
    """The items of a batch, each read on its own when there is anything wrong with one."""
    if len(raw) <= QUICK_BYTES_MAX:
        try:
            bodies: list[MessageBody] = json.decode(raw, _MessageBodies)
            return bodies
        except Rejected:
            return [_item(item, message) for item in _items(json.decode(raw, MessageBatch))]
    if len(raw) <= LONG_BYTES:
        return [_item(item, message) for item in _outlined(raw)]
    folded = folding.Folded(raw, rest_bytes_max=REST_BYTES_MAX)
    read = partial(_folded_message, folded=folded)
    items = [_item(item, read) for item in _outlined(folded.rest)]
    folded.check()
    return items


def _outlined(raw: bytes) -> list[bytes]:
    items = [item for item in msgspec.structs.astuple(json.decode(raw, _Outlines)) if item]
    if not items:
        raise InvalidRequest("", f"must have 1 to {BATCH_MAX} items")
    return _items(items)


def _items(items: Sequence[Raw]) -> list[bytes]:
    raws = [bytes(item).strip() for item in items]
    for number, item in enumerate(raws):
        if not item.startswith(b"{"):
            raise InvalidRequest(f"[{number}]", "must be an object")
    return raws


def _item(raw: bytes, read: Callable[[bytes], MessageBody]) -> MessageBody | BadItem:
    try:
        return read(raw)
    except Rejected as error:
        return BadItem(error, _item_id(raw))


def bad_item_id(item: MessageBody | BadItem) -> str:
    """What an item that cannot be taken calls itself, if it says so."""
    if isinstance(item, BadItem):
        return item.id
    id = item.headers.get("messageId") if item.headers else None
    return id if isinstance(id, str) else ""


def _item_id(raw: bytes) -> str:
    try:
        return msgspec.json.decode(raw, type=_Identified).headers.messageId
    except (msgspec.DecodeError, RecursionError):
        return ""


def check_size(body: MessageBody) -> None:
    text = body.body or ""
    size = len(text)
    if size > BODY_BYTES_MAX // 4:  # below that not even four bytes each could be too many
        size = len(_utf8(text, "body"))
        if size > BODY_BYTES_MAX:
            raise OverLimit("message bytes", limit=BODY_BYTES_MAX, actual=size)


# --- consuming -------------------------------------------------------------------------------


@lru_cache(maxsize=1_000)
def _http_date(second: int) -> str:
    return formatdate(second, usegmt=True)


def delivered(
    pulled: Sequence[tuple[Message, str]], queue: Queue, texts: LongTexts, *, visibility: str
) -> list[Delivered]:
    """Messages with their lock ids. Most are short texts of which nothing else is said."""
    plain = texts.short and visibility == "full" and not queue.fifo
    made: list[Delivered] = []
    alike: tuple[int, int, int | None] | None = None
    common: dict[str, Any] = {}
    for m, lock in pulled:
        life = m.published_ms, m.attempts, m.expires_ms
        if life != alike:  # most were published together, and are delivered for the first time
            alike, common = life, _life(m, queue)
        headers = {"messageId": m.id, "lockId": lock, **common}
        if (
            plain
            and (m.content_type == "text" and m.headers is None)
            and (m.group is None and m.delay_ms is None)
        ):
            made.append(Delivered(headers, _NO_HEADERS, m.body.decode()))
        else:
            made.append(_delivered(m, headers, queue, texts, visibility))
    return made


def _life(message: Message, queue: Queue) -> dict[str, Any]:
    """The headers that tell of its life, which every message has."""
    published_ms, own_ms = message.published_ms, message.expires_ms
    ends_ms = lifecycle.expires_ms(queue, published_ms=published_ms, own_ms=own_ms)
    return {
        "created": _http_date(published_ms // SECOND_MS),
        "deliveryCount": str(message.attempts),
        "ttl": str(ends_ms - published_ms),
    }


def _delivered(
    message: Message, headers: dict[str, Any], queue: Queue, texts: LongTexts, visibility: str
) -> Delivered:
    properties: dict[str, Any] = message.headers or _NO_HEADERS
    if isinstance(own := properties.get(OWN_HEADERS), dict):
        headers = {**own, **headers}
        properties = {name: value for name, value in properties.items() if name != OWN_HEADERS}
    if message.content_type == "json" and "contentType" not in properties:
        properties = {**properties, "contentType": "application/json"}
    if message.group is not None:
        headers["messageGroupId"] = message.group
    delay_ms = message.delay_ms
    if queue.fifo and delay_ms is None:
        delay_ms = queue.delay_ms
    if delay_ms:
        headers["deliveryDelay"] = str(delay_ms)
    if _hidden(message, visibility):
        headers["payloadHidden"] = "true"
        return Delivered(headers, properties)
    base64 = message.content_type == "bytes"
    if base64:
        headers["bodyEncoding"] = "base64"
    return Delivered(headers, properties, texts.text(message.body, base64=base64))


def _hidden(message: Message, visibility: str) -> bool:
    if visibility == "conditional":
        return message.size > HIDDEN_BYTES
    return visibility == "none"


def polling(query: Mapping[str, list[str]], queue: Queue) -> tuple[int, int, int, str]:
    """Wait in ms, count, lease in ms and visibility of a GET."""
    wait = query.get("pollingTime") or query.get("poolingTime")
    wait_ms = whole(wait[0], "pollingTime", low=0, high=20_000) if wait else 10_000
    count, lease_ms, visibility = 1, queue.lease_ms, "full"
    if "batchSize" in query:
        count = whole(query["batchSize"][0], "batchSize", low=1, high=BATCH_MAX)
    if "lockTtl" in query:
        lease_ms = whole(query["lockTtl"][0], "lockTtl", low=0, high=DAY_MS)
    if "payloadVisibility" in query:
        visibility = query["payloadVisibility"][0]
        if visibility not in ("full", "none", "conditional"):
            raise InvalidRequest(
                "payloadVisibility", f"must be full, none or conditional, not '{visibility[:80]}'"
            )
    return wait_ms, count, lease_ms, visibility
