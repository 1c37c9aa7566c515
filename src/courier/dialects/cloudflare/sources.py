"""Which events there are to subscribe to, and what identifies each source."""

from msgspec import UNSET

from courier.core import news
from courier.core.errors import InvalidRequest
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
