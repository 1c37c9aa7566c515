"""News: what Courier itself has to announce, as it is found in the journal.

An event about a message on a queue that such news go to, or on the dead-letter queues behind it,
is no news: announcing it would put another message there, and so on without end.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from courier.core import journal
from courier.core.announcer import Announcement, Pair, hears
from courier.core.types import DAY_MS, EventSubscription, Queue, Run

QUEUE = "courier.queue"
MESSAGE = "courier.message"
PIPELINE = "courier.pipeline"
BACKLOG_EXCEEDED = "backlog.exceeded"

# Source -> its events that are found in the journal.
_FOLLOWED: dict[str, tuple[str, ...]] = {
    QUEUE: ("created", "updated", "deleted", "paused", "resumed", "purged"),
    MESSAGE: ("buried",),
}
# Source -> all of its events. Those of pipelines are told by whoever runs them.
SOURCES: dict[str, tuple[str, ...]] = {
    QUEUE: (*_FOLLOWED[QUEUE], BACKLOG_EXCEEDED),
    MESSAGE: _FOLLOWED[MESSAGE],
    PIPELINE: ("run.completed", "run.failed"),
}
# Nobody else can say what happened there.
OURS = (QUEUE, MESSAGE)
# A restart may find that some news have been told already. Servers are seldom down for longer.
ONCE_MS = 7 * DAY_MS

_KINDS = {"queue_created": QUEUE, "queue_updated": QUEUE, "queue_deleted": QUEUE, "buried": MESSAGE}
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
    *,
    after: int,
) -> Iterator[list[Pair]]:
    """Whom to tell of each of the events past `after`, in their order."""
    tenants = {each.tenant for each in subscriptions}
    begun = _begun(runs)
    quiet = _quiet(subscriptions, queues)
    for run in runs:
        if run.kind not in _KINDS or run.tenant not in tenants:
            continue
        if run.kind == "buried" and run.queue in quiet:
            continue
        for announcement in _announcements(run, queues, after=after):
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


def _quiet(subscriptions: Iterable[EventSubscription], queues: Mapping[str, Queue]) -> set[str]:
    """The queues on which a message that tells of a burial may itself be buried."""
    found: set[str] = set()
    for subscription in subscriptions:
        id = subscription.parent if subscription.source["type"] == MESSAGE else ""
        while id in queues and id not in found:
            found.add(id)
            id = queues[id].dead_letter or ""
    return found


def _announcements(run: Run, queues: Mapping[str, Queue], *, after: int) -> Iterator[Announcement]:
    for event in journal.events([run], after=after, limit=run.count):
        told = _buried(event, queues) if run.kind == "buried" else _settings(event)
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
