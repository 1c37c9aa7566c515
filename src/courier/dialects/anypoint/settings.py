"""Queues and exchanges as the admin API writes them."""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import replace

from courier import ids
from courier.core.errors import InvalidRequest
from courier.core.types import DAY_MS, HOUR_MS, MINUTE_MS, Exchange, Queue
from courier.dialects.anypoint.wire import DELAY_MS_MAX, TTL_MS_MAX, whole
from courier.dialects.site import given

TTL_MS_DEFAULT = 7 * DAY_MS
LOCK_MS_DEFAULT = 2 * MINUTE_MS
LOCK_MS_MAX = 12 * HOUR_MS
DELIVERIES_MAX = 1_000
DELIVERIES_DEFAULT = 10


def _integer(high: int, low: int = 0) -> Meta:
    """Clients also send integers as text, or null; `whole` reads them."""
    return Meta(
        extra_json_schema={"type": ["integer", "string", "null"], "minimum": low, "maximum": high}
    )


TtlMs = Annotated[Any, _integer(TTL_MS_MAX)]
LockMs = Annotated[Any, _integer(LOCK_MS_MAX)]
DelayMs = Annotated[Any, _integer(DELAY_MS_MAX)]
Deliveries = Annotated[Any, _integer(DELIVERIES_MAX, 1)]


class AnypointQueueBody(Struct):
    type: Any = UNSET
    defaultTtl: TtlMs | UnsetType = UNSET
    defaultLockTtl: LockMs | UnsetType = UNSET
    defaultDeliveryDelay: DelayMs | UnsetType = UNSET
    encrypted: bool | UnsetType | None = UNSET
    fifo: bool | UnsetType | None = UNSET
    deadLetterQueueId: str | UnsetType | None = UNSET
    maxDeliveries: Deliveries | UnsetType = UNSET


class FallbackBody(Struct):
    fallbackEnabled: bool


class ExchangeBody(Struct):
    encrypted: bool | UnsetType | None = UNSET


class AnypointQueueResult(Struct, omit_defaults=True, tag_field="type", tag="queue"):
    queueId: str
    fifo: bool
    defaultTtl: int | UnsetType = UNSET
    defaultLockTtl: int | UnsetType = UNSET
    defaultDeliveryDelay: int | UnsetType = UNSET
    encrypted: bool | UnsetType = UNSET
    deadLetterQueueId: str | UnsetType = UNSET
    maxDeliveries: int | UnsetType = UNSET
    deadLetterSources: list[str] | UnsetType = UNSET
    isFallback: bool | UnsetType = UNSET


class ExchangeResult(Struct, omit_defaults=True, tag_field="type", tag="exchange"):
    exchangeId: str
    encrypted: bool | UnsetType = UNSET


DestinationResult = AnypointQueueResult | ExchangeResult
Mode = Literal["replace", "merge", "merge_all"]


def _fields(body: AnypointQueueBody, mode: Mode) -> dict[str, Any]:
    """The given settings as fields of the core's Queue; replacing, the others as defaults."""
    fields: dict[str, Any] = {}
    for name, value, field, high, default in (
        ("retention_ms", body.defaultTtl, "defaultTtl", TTL_MS_MAX, TTL_MS_DEFAULT),
        ("lease_ms", body.defaultLockTtl, "defaultLockTtl", LOCK_MS_MAX, LOCK_MS_DEFAULT),
        ("delay_ms", body.defaultDeliveryDelay, "defaultDeliveryDelay", DELAY_MS_MAX, 0),
    ):
        if value is not UNSET and value is not None:
            # A client writes 0 for what its user has not set.
            fields[name] = whole(value, field, low=0, high=high) or default
        elif mode == "replace":
            fields[name] = default
    if given(body.encrypted, None) is not None or mode == "replace":
        fields["encrypted"] = bool(given(body.encrypted, False))
    return fields


def edited(
    body: AnypointQueueBody,
    current: Queue | None,
    dead_letter: Queue | None,
    *,
    mode: Mode,
    tenant: str,
    name: str,
    now_ms: int,
) -> Queue:
    """The queue as it is to be. `merge` drops dead letters that the body does not name."""
    queue = current or Queue(
        id=ids.new_id(),
        tenant=tenant,
        name=name,
        created_ms=now_ms,
        modified_ms=now_ms,
        attempts_max=None,
        fifo=given(body.fifo, False),
    )
    fifo = given(body.fifo, queue.fifo if mode != "replace" else False)
    if fifo != queue.fifo:
        raise InvalidRequest("fifo", f"it is {str(queue.fifo).lower()} for good")
    fields = _fields(body, mode)
    named = given(body.deadLetterQueueId, "")
    deliveries = given(body.maxDeliveries, None)
    if deliveries is not None and (named or mode == "merge_all"):
        deliveries = whole(deliveries, "maxDeliveries", low=1, high=DELIVERIES_MAX)
    if named:
        _check_dead_letter(queue, dead_letter, named)
        assert dead_letter is not None
        kept = queue.attempts_max if mode == "merge_all" and queue.dead_letter else None
        fields["dead_letter"] = dead_letter.id
        fields["attempts_max"] = deliveries or kept or DELIVERIES_DEFAULT
    elif mode != "merge_all" or body.deadLetterQueueId == "":
        if mode == "merge_all" and deliveries:
            raise InvalidRequest("maxDeliveries", "needs a deadLetterQueueId")
        fields["dead_letter"] = None
        # Without a place for dead letters, Anypoint tries for as long as the message lives.
        fields["attempts_max"] = None
    elif deliveries:
        if not queue.dead_letter:
            raise InvalidRequest("maxDeliveries", "needs a deadLetterQueueId")
        fields["attempts_max"] = deliveries
    return replace(queue, modified_ms=now_ms, **fields)


def _check_dead_letter(queue: Queue, dead_letter: Queue | None, named: str) -> None:
    field = "deadLetterQueueId"
    if dead_letter is None:
        raise InvalidRequest(field, f"queue '{named[:200]}' does not exist")
    if dead_letter.name == queue.name:
        raise InvalidRequest(field, f"queue '{named}' cannot be its own dead letter queue")
    if dead_letter.fifo != queue.fifo:
        kind = "FIFO" if queue.fifo else "standard"
        raise InvalidRequest(field, f"queue '{named}' must be a {kind} queue too")


def queue_result(
    queue: Queue, id: str, dead_letter: str, sources: list[str], *, minimal: bool = False
) -> AnypointQueueResult:
    result = AnypointQueueResult(id, queue.fifo)
    if minimal:
        return result
    result.defaultTtl = queue.retention_ms
    result.defaultLockTtl = queue.lease_ms
    result.defaultDeliveryDelay = queue.delay_ms
    result.encrypted = queue.encrypted
    result.isFallback = False
    if dead_letter:
        result.deadLetterQueueId = dead_letter
        result.maxDeliveries = queue.attempts_max or DELIVERIES_MAX
    if sources:
        result.deadLetterSources = sources
    return result


def exchange_result(exchange: Exchange, id: str, *, minimal: bool = False) -> ExchangeResult:
    return ExchangeResult(id, UNSET if minimal else exchange.encrypted)
