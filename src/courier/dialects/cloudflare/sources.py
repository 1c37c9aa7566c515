"""Sources of events: what identifies each, its events, and the message that tells of one."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct

from courier.core import news
from courier.core.announcer import Announcement
from courier.core.errors import InvalidRequest
from courier.core.types import EventSubscription
from courier.dialects.cloudflare.wire import SourceBody


def _source(fields: str, events: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return tuple(fields.split()), tuple(events.split())


# source type -> (fields that identify it, its events)
SOURCES = {
    "kv": _source("", "namespace.created namespace.deleted"),
    "r2": _source("", "bucket.created bucket.deleted"),
    "superSlurper": _source(
        "",
        "job.started job.paused job.resumed job.completed job.aborted job.object.migrated",
    ),
    "vectorize": _source("", "index.created index.deleted"),
    "workersAi.model": _source("model_name", "batch.queued batch.succeeded batch.failed"),
    "workersBuilds.worker": _source(
        "worker_name",
        "build.started build.failed build.canceled build.succeeded",
    ),
    "workflows.workflow": _source(
        "workflow_name",
        "instance.queued instance.started instance.paused instance.errored"
        " instance.terminated instance.completed",
    ),
    "images": _source("", "image.*"),
    "workers.script": _source(
        "script_tag",
        "deployment.created deployment.deleted version.created version.deleted worker.created"
        " worker.updated worker.deleted",
    ),
    "artifacts": _source("", "repo.created repo.deleted repo.forked repo.imported"),
    "artifacts.repo": _source(
        "namespace repo_name",
        "pushed cloned fetched token.created token.revoked",
    ),
    "browserRun": _source("", "crawl.started crawl.updated crawl.finished"),
    "email.sending": _source(
        "zone_id domain",
        "message.delivered message.deferred message.bounced message.failed message.rejected"
        " message.complained",
    ),
    "access": _source("", "application.created application.deleted"),
    "stream": _source("", "video_state.ready video_state.updated"),
    "stream.liveInput": _source(
        "",
        "live_input.connected live_input.disconnected live_input.errored",
    ),
    # What Courier itself has to say.
    **{
        kind: (("threshold",) if kind == news.QUEUE else (), known)
        for kind, known in news.SOURCES.items()
    },
}
# These may be left out, and identify nothing.
OPTIONAL_FIELDS = ("threshold",)
FIELD_CHARACTERS_MAX = 255


def source(given: SourceBody) -> dict[str, str]:
    """The source as it is kept: its type and what identifies it."""
    kept: dict[str, str] = {"type": given.type}
    for name in SOURCES[given.type][0]:
        value = getattr(given, name)
        if value is UNSET and name in OPTIONAL_FIELDS:
            continue
        kept[name] = check_field(name, "" if value is UNSET else value)
    return kept


def check_field(name: str, value: str) -> str:
    if not 1 <= len(value) <= FIELD_CHARACTERS_MAX:
        raise InvalidRequest(
            f"source.{name}", f"a string of 1 to {FIELD_CHARACTERS_MAX} characters is required"
        )
    return value


def has(kind: str, event: str) -> bool:
    """The source has an event of that name."""
    known = SOURCES[kind][1]
    return event in known or ("image.*" in known and event.startswith("image."))


def events(kind: str, names: list[str]) -> tuple[str, ...]:
    """The events, each once, if the source has all of them."""
    unknown = [name for name in names if not has(kind, name)]
    if unknown:
        raise InvalidRequest("events", f"Unrecognized event types: {', '.join(unknown)[:200]}")
    return tuple(dict.fromkeys(names))


# The one event that comes from a part of its source, which has to be named besides.
_OF_A_JOB = "job.object.migrated"
_SHOWN_CHARACTERS = 80

_encode = msgspec.json.Encoder().encode


class Metadata(Struct):
    accountId: str
    eventSubscriptionId: str
    eventSchemaVersion: int
    eventTimestamp: str


class EventMessage(Struct):
    type: str
    source: dict[str, str]
    payload: Raw
    metadata: Metadata


class Events:
    """The catalogue of events that the announcer asks; see `core/announcer.py`."""

    def read(self, source: Mapping[str, Any], event: str) -> tuple[dict[str, str], dict[str, str]]:
        kind = source.get("type")
        if not isinstance(kind, str) or kind not in SOURCES:
            known = ", ".join(sorted(SOURCES))
            raise InvalidRequest("source.type", f"expected one of {known}")
        if kind in news.OURS:
            raise InvalidRequest("source.type", f"events of {kind} arise in Courier itself")
        if not has(kind, event) or event.endswith(".*"):
            shown = event[:_SHOWN_CHARACTERS]
            raise InvalidRequest("event", f"'{shown}' is not an event of {kind}")
        named = dict.fromkeys(("type", *SOURCES[kind][0]), "")
        extra = {"job_id": ""} if event == _OF_A_JOB else {}
        for name, value in source.items():
            field = f"source.{name[:_SHOWN_CHARACTERS]}"
            if name not in named and name not in extra:
                raise InvalidRequest(field, f"'{kind}' has no such field")
            if not isinstance(value, str):
                raise InvalidRequest(field, "expected a string")
            (named if name in named else extra)[name] = value
        for name, value in {**named, **extra}.items():
            check_field(name, value)
        return named, extra

    def render(self, announcement: Announcement, subscription: EventSubscription) -> bytes:
        kind = announcement.source["type"]
        prefix = "" if kind in news.SOURCES else "cf."
        shown = kind + ".job" if announcement.extra else kind
        fields = {**announcement.source, **announcement.extra, "type": shown}
        return _encode(
            EventMessage(
                type=f"{prefix}{kind}.{announcement.event}",
                source={_shown(name): value for name, value in fields.items()},
                payload=Raw(announcement.payload),
                metadata=Metadata(
                    accountId=announcement.tenant,
                    eventSubscriptionId=subscription.id,
                    eventSchemaVersion=1,
                    eventTimestamp=_time_text(announcement.at_ms),
                ),
            )
        )


def _shown(name: str) -> str:
    """A field's name as messages have it."""
    if name == "script_tag":
        return "id"
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


def _time_text(ms: int) -> str:
    whole, part = divmod(ms, 1_000)
    return f"{datetime.fromtimestamp(whole, UTC):%Y-%m-%dT%H:%M:%S}.{part:03}Z"
