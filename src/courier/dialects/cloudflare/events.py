"""Events as they are told: what a source may have to say, and the message that says it."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Raw, Struct

from courier.core import news
from courier.core.announcer import Announcement
from courier.core.errors import InvalidRequest
from courier.core.types import EventSubscription
from courier.dialects.cloudflare import sources

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
        if not isinstance(kind, str) or kind not in sources.SOURCES:
            known = ", ".join(sorted(sources.SOURCES))
            raise InvalidRequest("source.type", f"expected one of {known}")
        if kind in news.OURS:
            raise InvalidRequest("source.type", f"events of {kind} arise in Courier itself")
        if not sources.has(kind, event) or event.endswith(".*"):
            shown = event[:_SHOWN_CHARACTERS]
            raise InvalidRequest("event", f"'{shown}' is not an event of {kind}")
        named = dict.fromkeys(("type", *sources.SOURCES[kind][0]), "")
        extra = {"job_id": ""} if event == _OF_A_JOB else {}
        for name, value in source.items():
            field = f"source.{name[:_SHOWN_CHARACTERS]}"
            if name not in named and name not in extra:
                raise InvalidRequest(field, f"'{kind}' has no such field")
            if not isinstance(value, str):
                raise InvalidRequest(field, "expected a string")
            (named if name in named else extra)[name] = value
        for name, value in {**named, **extra}.items():
            sources.check_field(name, value)
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
