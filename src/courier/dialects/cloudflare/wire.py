"""Cloudflare's JSON shapes, and the translation between them and the core's values.

Optional request fields default to UNSET (see `dialects/json.py`). Numbers are read as floats,
because clients send `2.0` where an integer is meant; `whole` takes them apart.
"""

from base64 import b64encode
from collections.abc import Sequence
from datetime import UTC, datetime
from operator import attrgetter, itemgetter
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from courier.core.errors import InvalidRequest, OverLimit
from courier.core.types import (
    SECOND_MS,
    Consumer,
    ContentType,
    Draft,
    EventSubscription,
    Message,
    PlainDrafts,
    Queue,
    QueueStats,
)
from courier.dialects.site import given
from courier.long_texts import LongTexts

MESSAGE_BYTES_MAX = 128_000
BATCH_BYTES_MAX = 256_000
BATCH_MESSAGES_MAX = 100
LEASE_MS_MAX = 43_200_000
PULL_COUNT_DEFAULT = 5

_INTEGER = {"type": "integer"}
Delay = Annotated[float, Meta(ge=0, le=86_400, extra_json_schema=_INTEGER)]
Count = Annotated[float, Meta(ge=1, le=100, extra_json_schema=_INTEGER)]
LeaseMs = Annotated[float, Meta(ge=0, le=LEASE_MS_MAX, extra_json_schema=_INTEGER)]
# The look-ahead is for Python, whose `$` also matches before a last line feed.
NAME = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$(?!\n)"
_NAMED = "1 to 63 lower-case letters, digits and hyphens, and no hyphen at either end"
Name = Annotated[str, Meta(pattern=NAME, description=_NAMED)]
Jurisdiction = Literal["eu", "us", "fedramp"]


def whole(value: float, field: str) -> int:
    """An integer that may have been written with a zero fraction."""
    if value != int(value):
        raise InvalidRequest(field, f"expected an integer, not {value}")
    return int(value)


def time_text(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


# --- queues ----------------------------------------------------------------------------------


class QueueSettingsBody(Struct):
    delivery_delay: Delay | UnsetType = UNSET
    delivery_paused: bool | UnsetType = UNSET
    message_retention_period: (
        Annotated[float, Meta(ge=60, le=1_209_600, extra_json_schema=_INTEGER)] | UnsetType
    ) = UNSET


class NewQueueBody(Struct):
    queue_name: Name
    jurisdiction: Jurisdiction | UnsetType = UNSET
    settings: QueueSettingsBody | UnsetType = UNSET


class CloudflareQueueBody(Struct):
    queue_name: Name | UnsetType = UNSET
    jurisdiction: Jurisdiction | UnsetType = UNSET
    settings: QueueSettingsBody | UnsetType = UNSET


class QueueSettings(Struct):
    delivery_delay: int
    delivery_paused: bool
    message_retention_period: int


class ConsumerResult(Struct):
    consumer_id: str
    type: Literal["worker", "http_pull"]
    created_on: str
    queue_name: str
    queue_id: str
    dead_letter_queue: str
    settings: dict[str, int | None]
    script_name: str | UnsetType = UNSET
    script: str | UnsetType = UNSET


class CloudflareQueueResult(Struct):
    queue_id: str
    queue_name: str
    created_on: str
    modified_on: str
    producers: list[dict[str, str]]
    producers_total_count: int
    consumers: list[ConsumerResult]
    consumers_total_count: int
    settings: QueueSettings
    jurisdiction: Jurisdiction | UnsetType = UNSET


def queue_settings(body: QueueSettingsBody | UnsetType) -> dict[str, Any]:
    """The given settings as fields of the core's Queue."""
    fields: dict[str, Any] = {}
    if body is UNSET:
        return fields
    if body.delivery_delay is not UNSET:
        seconds = whole(body.delivery_delay, "settings.delivery_delay")
        fields["delay_ms"] = seconds * SECOND_MS
    if body.delivery_paused is not UNSET:
        fields["paused"] = body.delivery_paused
    if body.message_retention_period is not UNSET:
        seconds = whole(body.message_retention_period, "settings.message_retention_period")
        fields["retention_ms"] = seconds * SECOND_MS
    return fields


def queue_result(
    queue: Queue, consumer: Consumer | None, dead_letter: str
) -> CloudflareQueueResult:
    consumers = [] if consumer is None else [consumer_result(queue, consumer, dead_letter)]
    return CloudflareQueueResult(
        queue_id=queue.id,
        queue_name=queue.name,
        created_on=time_text(queue.created_ms),
        modified_on=time_text(queue.modified_ms),
        producers=[],
        producers_total_count=0,
        consumers=consumers,
        consumers_total_count=len(consumers),
        settings=QueueSettings(
            queue.delay_ms // SECOND_MS, queue.paused, queue.retention_ms // SECOND_MS
        ),
        jurisdiction=queue.labels.get("jurisdiction", UNSET),  # type: ignore[arg-type]
    )


# --- consumers -------------------------------------------------------------------------------


Retries = Annotated[float, Meta(ge=0, le=100, extra_json_schema=_INTEGER)]
WaitMs = Annotated[float, Meta(ge=0, le=60_000, extra_json_schema=_INTEGER)]
Concurrency = Annotated[float, Meta(ge=1, le=250, extra_json_schema=_INTEGER)]


class ConsumerSettingsBody(Struct):
    batch_size: Count | UnsetType | None = UNSET
    max_retries: Retries | UnsetType | None = UNSET
    retry_delay: Delay | UnsetType | None = UNSET


class PullSettingsBody(ConsumerSettingsBody):
    visibility_timeout_ms: LeaseMs | UnsetType | None = UNSET


class WorkerSettingsBody(ConsumerSettingsBody):
    max_wait_time_ms: WaitMs | UnsetType | None = UNSET
    max_concurrency: Concurrency | UnsetType | None = UNSET


class PullConsumerBody(Struct, tag_field="type", tag="http_pull"):
    dead_letter_queue: str | UnsetType | None = UNSET
    settings: PullSettingsBody | UnsetType | None = UNSET


class WorkerConsumerBody(Struct, tag_field="type", tag="worker"):
    script_name: Annotated[str, Meta(min_length=1, max_length=255)]
    dead_letter_queue: str | UnsetType | None = UNSET
    settings: WorkerSettingsBody | UnsetType | None = UNSET


ConsumerBody = PullConsumerBody | WorkerConsumerBody

RETRIES_DEFAULT = 3


def consumer_numbers(body: ConsumerBody) -> dict[str, int | None]:
    """Every setting of the consumer's type, defaults filled in."""
    worker = isinstance(body, WorkerConsumerBody)
    numbers: dict[str, int | None] = {
        "batch_size": 10 if worker else PULL_COUNT_DEFAULT,
        "max_retries": RETRIES_DEFAULT,
        "retry_delay": 0,
        **(
            {"max_wait_time_ms": 5_000, "max_concurrency": None}
            if worker
            else {"visibility_timeout_ms": 30_000}
        ),
    }
    settings = given(body.settings, None)
    if settings is not None:
        for name in numbers:
            value = getattr(settings, name)
            if value is not UNSET and value is not None:
                numbers[name] = whole(value, f"settings.{name}")
    return numbers


def consumer_result(queue: Queue, consumer: Consumer, dead_letter: str) -> ConsumerResult:
    retries = 100 if queue.attempts_max is None else queue.attempts_max - 1
    worker = consumer.mode == "push"
    return ConsumerResult(
        consumer_id=consumer.id,
        type="worker" if worker else "http_pull",
        created_on=time_text(consumer.created_ms),
        queue_name=queue.name,
        queue_id=queue.id,
        dead_letter_queue=dead_letter,
        settings={
            "batch_size": consumer.batch_size,
            "max_retries": retries,
            "retry_delay": queue.retry_delay_ms // SECOND_MS,
            **(
                {
                    "max_wait_time_ms": consumer.wait_ms_max,
                    "max_concurrency": consumer.concurrency_max,
                }
                if worker
                else {"visibility_timeout_ms": queue.lease_ms}
            ),
        },
        script_name=consumer.script if worker else UNSET,
        script=consumer.script if worker else UNSET,
    )


# --- messages --------------------------------------------------------------------------------


class PushBody(Struct):
    body: Raw
    content_type: Literal["text", "json"] | UnsetType = UNSET
    delay_seconds: Delay | UnsetType = UNSET


class BatchBody(Struct):
    # The bounds are for the API's description; breaking them has a code of its own, see `drafts`.
    messages: Annotated[
        list[PushBody],
        Meta(extra_json_schema={"minItems": 1, "maxItems": BATCH_MESSAGES_MAX}),
    ]
    delay_seconds: Delay | UnsetType = UNSET


class Metrics(Struct):
    backlog_count: int
    backlog_bytes: int
    oldest_message_timestamp_ms: int


class MetricsMetadata(Struct):
    metrics: Metrics


class PublishResult(Struct):
    metadata: MetricsMetadata


class PullBody(Struct):
    batch_size: Count | UnsetType = UNSET
    visibility_timeout_ms: LeaseMs | UnsetType = UNSET
    visibility_timeout: LeaseMs | UnsetType = UNSET


class PulledMessage(Struct):
    id: str
    body: str
    timestamp_ms: int
    attempts: int
    metadata: dict[str, str]
    lease_id: str


class PullResult(Struct):
    message_backlog_count: int
    messages: list[PulledMessage]
    metadata: MetricsMetadata


class AckItem(Struct):
    lease_id: str


class RetryItem(Struct):
    lease_id: str
    delay_seconds: Delay | UnsetType = UNSET


class AckBody(Struct):
    acks: list[AckItem] | UnsetType = UNSET
    retries: list[RetryItem] | UnsetType = UNSET


class AckResult(Struct):
    ackCount: int
    retryCount: int
    warnings: dict[str, str]


class PeekBody(Struct):
    batch_size: Count | UnsetType = UNSET


class PeekedMessage(Struct):
    id: str
    body: str
    timestamp_ms: int
    attempts: int
    metadata: dict[str, str]
    ref: str


class PeekResult(Struct):
    messages: list[PeekedMessage]


class RefItem(Struct):
    ref: str


class PurgeRefsBody(Struct):
    refs: list[RefItem]


class PurgeRefsResult(Struct):
    errors: list[dict[str, str]]
    warnings: dict[str, str]


class PurgeBody(Struct):
    delete_messages_permanently: bool | UnsetType = UNSET


class PurgeStatusResult(Struct):
    completed: str
    started_at: str


_text = msgspec.json.Decoder(str).decode
# A byte is looked for much faster as a number.
_BACKSLASH = ord("\\")
_compact = msgspec.json.format
_body, _content_type, _delay = map(attrgetter, ("body", "content_type", "delay_seconds"))
_first = itemgetter(0)
# All of a string but its quotes. One that is made once costs less than one for each string.
_INNER = slice(1, -1)


def draft(push: PushBody, delay_ms: int | None = None) -> Draft:
    """One push as a draft; `delay_ms` is what holds when it names no delay."""
    content_type: ContentType = "json"
    stored = bytes(push.body)
    if push.content_type == "text":
        content_type = "text"
        stored = _text_of(stored)
    else:
        stored = _compact(stored, indent=-1)
    if len(stored) > MESSAGE_BYTES_MAX:
        raise OverLimit("message bytes", limit=MESSAGE_BYTES_MAX, actual=len(stored))
    if push.delay_seconds is not UNSET:
        delay_ms = whole(push.delay_seconds, "delay_seconds") * SECOND_MS
    return Draft(stored, content_type, None, None, delay_ms)


def _text_of(raw: bytes) -> bytes:
    """The text that a string of a body stands for, which is valid JSON and UTF-8."""
    if raw.startswith(b'"') and _BACKSLASH not in raw:
        return raw[1:-1]
    try:
        return _text(raw).encode()
    except msgspec.ValidationError:
        raise InvalidRequest("body", "expected a string for type text") from None


def pushed(push: PushBody) -> Sequence[Draft]:
    """One push as drafts."""
    if push.delay_seconds is not UNSET:
        return [draft(push)]
    raw = bytes(push.body)
    if len(raw) > MESSAGE_BYTES_MAX:
        return [draft(push)]  # it may be shorter when stored
    if push.content_type == "text":
        return PlainDrafts([_text_of(raw)], ["text"])
    return PlainDrafts([_compact(raw, indent=-1)], ["json"])


def drafts(body: BatchBody) -> Sequence[Draft]:
    count = len(body.messages)
    if not 1 <= count <= BATCH_MESSAGES_MAX:
        raise OverLimit("batch messages", limit=BATCH_MESSAGES_MAX, actual=count)
    delay_ms = None
    if body.delay_seconds is not UNSET:
        delay_ms = whole(body.delay_seconds, "delay_seconds") * SECOND_MS
    plain = _plain_drafts(body.messages) if delay_ms is None else None
    if plain is not None:
        return plain
    made: list[Draft] = []
    try:
        for push in body.messages:
            made.append(draft(push, delay_ms))
    except InvalidRequest as error:
        field = f"messages[{len(made)}].{error.field}"
        raise InvalidRequest(field, error.reason) from None
    _refuse_long([each.body for each in made])
    return made


def _plain_drafts(pushes: list[PushBody]) -> PlainDrafts | None:
    """Columns, if all of them are short texts without escapes and without a delay."""
    count = len(pushes)
    if [*map(_content_type, pushes)].count("text") < count or [*map(_delay, pushes)].count(
        UNSET
    ) < count:
        return None
    raws = [*map(bytes, map(_body, pushes))]
    if (
        bytes(map(_first, raws)).count(b'"') < count
        or max(map(len, raws)) > MESSAGE_BYTES_MAX
        or _BACKSLASH in b"".join(raws)
    ):
        return None
    bodies = [raw[_INNER] for raw in raws]
    _refuse_long(bodies)
    return PlainDrafts(bodies, ["text"] * count)


def _refuse_long(bodies: list[bytes]) -> None:
    size = sum(map(len, bodies))
    if size > BATCH_BYTES_MAX:
        raise OverLimit("batch bytes", limit=BATCH_BYTES_MAX, actual=size)


def metrics(stats: QueueStats) -> Metrics:
    return Metrics(stats.count, stats.bytes, stats.oldest_ms)


_METADATA: dict[str, dict[str, str]] = {
    kind: {"CF-Content-Type": kind, "CF-sourceMessageSource": "http"}
    for kind in ("text", "json", "bytes")
}


class Bodies:
    """How stored bodies are written into answers: text as it is, the rest as base64."""

    def __init__(self, json_encoding: str) -> None:
        self._plain = {"text", "json"} if json_encoding == "plain" else {"text"}

    def text(self, message: Message, texts: LongTexts) -> str:
        return texts.text(message.body, base64=message.content_type not in self._plain)

    def all_pulled(
        self, pulled: list[tuple[Message, str]], texts: LongTexts
    ) -> list[PulledMessage]:
        if not texts.short:
            return [self.pulled(message, token, texts) for message, token in pulled]
        plain = self._plain
        return [
            PulledMessage(
                m.id,
                m.body.decode() if m.content_type in plain else b64encode(m.body).decode(),
                m.published_ms,
                m.attempts,
                _METADATA[m.content_type],
                token,
            )
            for m, token in pulled
        ]

    def pulled(self, message: Message, lease_id: str, texts: LongTexts) -> PulledMessage:
        return PulledMessage(
            message.id,
            self.text(message, texts),
            message.published_ms,
            message.attempts,
            _METADATA[message.content_type],
            lease_id,
        )

    def peeked(self, message: Message, ref: str, texts: LongTexts) -> PeekedMessage:
        return PeekedMessage(
            message.id,
            self.text(message, texts),
            message.published_ms,
            message.attempts,
            _METADATA[message.content_type],
            ref,
        )


# --- event subscriptions ---------------------------------------------------------------------


SourceType = Literal[
    "access",
    "artifacts",
    "artifacts.repo",
    "browserRun",
    "courier.listener",
    "courier.message",
    "courier.pipeline",
    "courier.queue",
    "email.sending",
    "images",
    "kv",
    "r2",
    "stream",
    "stream.liveInput",
    "superSlurper",
    "vectorize",
    "workers.script",
    "workersAi.model",
    "workersBuilds.worker",
    "workflows.workflow",
]


# A whole number from 1 to 10^9; text, as everything that is said of a source.
Threshold = Annotated[
    str,
    Meta(
        pattern=r"^([1-9][0-9]{0,8}|1000000000)$(?!\n)",
        description="the digits of a whole number from 1 to 1000000000",
    ),
]


class Destination(Struct):
    queue_id: str
    type: Literal["queues.queue"]


class SourceBody(Struct):
    """`type` says which of the others must be there; see `sources.py`."""

    type: SourceType
    model_name: str | UnsetType = UNSET
    worker_name: str | UnsetType = UNSET
    workflow_name: str | UnsetType = UNSET
    script_tag: str | UnsetType = UNSET
    namespace: str | UnsetType = UNSET
    repo_name: str | UnsetType = UNSET
    zone_id: str | UnsetType = UNSET
    domain: str | UnsetType = UNSET
    threshold: Threshold | UnsetType = UNSET


class SubscriptionBody(Struct):
    events: Annotated[list[str], Meta(min_length=1, max_length=100)]
    source: SourceBody
    destination: Destination
    name: Annotated[str, Meta(max_length=255)] | UnsetType = UNSET
    enabled: bool | UnsetType = UNSET


class SubscriptionEdit(Struct):
    name: Annotated[str, Meta(max_length=255)] | UnsetType = UNSET
    enabled: bool | UnsetType = UNSET
    events: Annotated[list[str], Meta(min_length=1, max_length=100)] | UnsetType = UNSET
    destination: Destination | UnsetType = UNSET


class SubscriptionResult(Struct):
    id: str
    created_at: str
    modified_at: str
    name: str
    enabled: bool
    source: dict[str, str]
    destination: Destination
    events: tuple[str, ...]


def subscription_result(subscription: EventSubscription) -> SubscriptionResult:
    return SubscriptionResult(
        id=subscription.id,
        created_at=time_text(subscription.created_ms),
        modified_at=time_text(subscription.modified_ms),
        name=subscription.title,
        enabled=subscription.enabled,
        source=subscription.source,
        destination=Destination(subscription.parent, "queues.queue"),
        events=subscription.events,
    )


# --- identity --------------------------------------------------------------------------------


class TokenResult(Struct):
    id: str
    status: str


class CloudflareUserResult(Struct):
    id: str
    email: str


class AccountResult(Struct):
    id: str
    name: str
    type: str = "standard"


class MembershipResult(Struct):
    id: str
    status: str
    account: AccountResult


class ServiceResult(Struct):
    default_environment: dict[str, str]


class ResultInfo(Struct):
    page: int
    per_page: int
    count: int
    total_count: int
    total_pages: int
