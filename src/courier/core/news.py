"""News: what Courier itself has to announce, as it is found in the journal.

An event about a message on a queue that such news go to, or on the dead-letter queues behind it,
is no news: announcing it would put another message there, and so on without end.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from courier.core import journal
from courier.core.announcer import Announcement, Pair, hears
from courier.core.types import DAY_MS, EventSubscription, Listener, Queue, Run

QUEUE = "courier.queue"
MESSAGE = "courier.message"
PIPELINE = "courier.pipeline"
LISTENER = "courier.listener"
BACKLOG_EXCEEDED = "backlog.exceeded"

# Source -> its events that are found in the journal.
_FOLLOWED: dict[str, tuple[str, ...]] = {
    QUEUE: ("created", "updated", "deleted", "paused", "resumed", "purged"),
    MESSAGE: ("buried",),
    LISTENER: ("inactive", "active", "disabled", "enabled", "exhausted"),
}
# Source -> all of its events. Those of pipelines are sent by the process that runs them.
SOURCES: dict[str, tuple[str, ...]] = {
    QUEUE: (*_FOLLOWED[QUEUE], BACKLOG_EXCEEDED),
    MESSAGE: _FOLLOWED[MESSAGE],
    LISTENER: _FOLLOWED[LISTENER],
    PIPELINE: ("run.completed", "run.failed"),
}
# Nobody else can say what happened there.
OURS = (QUEUE, MESSAGE, LISTENER)
# A restart may find that some news have been told already. Servers are seldom down for longer.
ONCE_MS = 7 * DAY_MS

_KINDS = {
    "queue_created": QUEUE,
    "queue_updated": QUEUE,
    "queue_deleted": QUEUE,
    "buried": MESSAGE,
    "listener_updated": LISTENER,
    "push_failed": LISTENER,
}
# Kinds of news that are about a message -> the source whose subscribers they go to.
_CIRCLES = {"buried": MESSAGE, "push_failed": LISTENER}
# Changes of a queue that are no change of its settings, or have an event of their own.
_UNMENTIONED = {"modified_ms", "paused", "purge"}

_encode = msgspec.json.Encoder().encode


def follows(subscription: EventSubscription) -> bool:
    """It is to something that is found in the journal."""
    found = _FOLLOWED.get(subscription.source["type"], ())
    return subscription.enabled and not set(found).isdisjoint(subscription.events)


def pairs(
    runs: Sequence[Run],
    subscriptions: Sequence[EventSubscription],
    queues: Mapping[str, Queue],
    listeners: Mapping[str, Listener],
    *,
    after: int,
) -> Iterator[list[Pair]]:
    """Whom to tell of each of the events past `after`, in their order."""
    wanted = {(each.tenant, each.source["type"]) for each in subscriptions}
    begun = _begun(runs)
    quiet = {kind: _quiet(subscriptions, queues, of) for kind, of in _CIRCLES.items()}
    for run in runs:
        if run.kind not in _KINDS or (run.tenant, _KINDS[run.kind]) not in wanted:
            continue
        if run.queue in quiet.get(run.kind, ()):
            continue
        for announcement in _announcements(run, queues, listeners, after=after):
            yield [
                (each, announcement)
                for each in subscriptions
                if hears(each, announcement)
                and announcement.offset > max(each.since, begun.get(each.id, 0))
            ]


def has_any(runs: Iterable[Run]) -> bool:
    return any(run.kind in _KINDS for run in runs)


def _begun(runs: Iterable[Run]) -> dict[str, int]:
    """Where in these runs subscriptions begin, by their ids.

    `since` is from just before that, and others may have got in between.
    """
    begun: dict[str, int] = {}
    for run in runs:
        if run.kind not in ("subscription_created", "subscription_updated"):
            continue
        for number, detail in enumerate(journal.column(run, "detail")):
            if run.kind == "subscription_created" or "enabled" in detail.get("changed", ()):
                begun[detail["id"]] = run.offset + number
    return begun


def _quiet(
    subscriptions: Iterable[EventSubscription], queues: Mapping[str, Queue], source: str
) -> set[str]:
    """The queues on which a message with such news may itself become news."""
    found: set[str] = set()
    for subscription in subscriptions:
        id = subscription.parent if subscription.source["type"] == source else ""
        while id in queues and id not in found:
            found.add(id)
            id = queues[id].dead_letter or ""
    return found


def _announcements(
    run: Run, queues: Mapping[str, Queue], listeners: Mapping[str, Listener], *, after: int
) -> Iterator[Announcement]:
    for event in journal.events([run], after=after, limit=run.count):
        if run.kind == "buried":
            told = _buried(event, queues)
        elif run.kind == "push_failed":
            told = _exhausted(event, listeners)
        elif run.kind == "listener_updated":
            told = _listener(event, queues)
        else:
            told = _settings(event)
        for name, payload in told:
            yield Announcement(
                tenant=run.tenant,
                source={"type": _KINDS[run.kind]},
                event=name,
                payload=_encode(payload),
                at_ms=run.at_ms,
                id=f"{event['offset']} {name}",
                once_ms=ONCE_MS,
                queue=run.queue,
                offset=event["offset"],
            )


def _settings(event: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """What became of a queue, from the record that its event carries."""
    queue = event["detail"]
    payload = {"id": queue["id"], "name": queue["name"]}
    if event["kind"] != "queue_updated":
        yield event["kind"].removeprefix("queue_"), payload
        return
    changed: list[str] = queue.get("changed", [])
    if "paused" in changed:
        yield "paused" if queue["paused"] else "resumed", payload
    if "purge" in changed and queue["purge"] and queue["purge"]["completed"]:
        yield "purged", payload
    settings = [name for name in changed if name not in _UNMENTIONED]
    if settings:
        yield "updated", {**payload, "changed": settings}


def _buried(
    event: dict[str, Any], queues: Mapping[str, Queue]
) -> Iterator[tuple[str, dict[str, Any]]]:
    into = event.get("detail", {}).get("into")
    target = queues.get(into)
    yield (
        "buried",
        {
            "queue": {"id": event["queue"], "name": event["queue_name"]},
            "messageId": event["message_id"],
            "attempts": event["attempt"],
            "deadLetterQueue": into and {"id": into, "name": target.name if target else None},
        },
    )


def _listener(
    event: dict[str, Any], queues: Mapping[str, Queue]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Whether it is sent messages, from the record that its event carries."""
    listener = event["detail"]
    queue = queues.get(listener["parent"])
    payload = {
        "id": listener["id"],
        "name": listener["title"],
        "queue": {"id": listener["parent"], "name": queue.name if queue else None},
    }
    changed: list[str] = listener.get("changed", [])
    if "inactive_ms" in changed:
        yield "inactive" if listener["inactive_ms"] else "active", payload
    if "disabled_by" in changed and listener["disabled_by"]:
        yield "disabled", {**payload, "disabledBy": listener["disabled_by"]}
    elif "disabled_by" in changed:
        yield "enabled", payload


def _exhausted(
    event: dict[str, Any], listeners: Mapping[str, Listener]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """A failed push, if it was the last attempt."""
    if event.get("delay_ms") is not None:
        return
    detail = event["detail"]
    listener = listeners.get(detail["listener"])
    yield (
        "exhausted",
        {
            "id": detail["listener"],
            "name": listener.title if listener else None,
            "queue": {"id": event["queue"], "name": event["queue_name"]},
            "messageId": event["message_id"],
            "attempts": event["attempt"],
            "status": detail["status"] or None,
            "error": detail.get("error") or None,
        },
    )
