"""Event subscriptions at work: subscribe a queue, tell of an event, read what it was told."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx

from tests.wire.cloudflare import shapes
from tests.wire.cloudflare.envelope import ok
from tests.wire.cloudflare.queue import Queue

AT = "/event_subscriptions/subscriptions"


def subscribed(http: httpx.Client, source: dict[str, str], *events: str, **fields: Any) -> Queue:
    """A queue of its own for these events of a source, which can be pulled from."""
    queue = Queue.create(http)
    queue.consume(batch_size=100)
    subscribe(queue, source, *events, **fields)
    return queue


def subscribe(queue: Queue, source: dict[str, str], *events: str, **fields: Any) -> dict[str, Any]:
    body = {
        "source": source,
        "events": list(events),
        "destination": {"type": "queues.queue", "queue_id": queue.id},
        **fields,
    }
    subscription: dict[str, Any] = ok(queue.http.post(AT, json=body))
    shapes.check_subscription(subscription)
    return subscription


def change(queue: Queue, subscription: dict[str, Any], **fields: Any) -> None:
    ok(queue.http.patch(f"{AT}/{subscription['id']}", json=fields))


def send(
    operator: httpx.Client,
    source: dict[str, Any],
    event: str,
    payload: Any = None,
    *,
    tenant: str = "default",
    **fields: Any,
) -> dict[str, int]:
    """Tell of an event as the operator; to how many subscriptions it went."""
    body = {"source": source, "event": event, "payload": payload or {}, **fields}
    response = operator.post(f"/tenants/{tenant}/events", json=body)
    assert response.status_code == 200, response.text
    told: dict[str, int] = response.json()
    assert set(told) == {"delivered", "repeated", "refused"}
    return told


def told(queue: Queue) -> list[dict[str, Any]]:
    """What the queue has been told since the last time, as events."""
    messages = queue.pull(batch_size=100)
    queue.settle(acks=[message["lease_id"] for message in messages])
    return [_event(message) for message in messages]


def _event(message: dict[str, Any]) -> dict[str, Any]:
    assert message["metadata"]["CF-Content-Type"] == "text"
    event: dict[str, Any] = json.loads(message["body"])
    assert list(event) == ["type", "source", "payload", "metadata"]
    metadata = event["metadata"]
    assert list(metadata) == [
        "accountId",
        "eventSubscriptionId",
        "eventSchemaVersion",
        "eventTimestamp",
    ]
    assert metadata["eventSchemaVersion"] == 1
    # Milliseconds and Z, no more and no less.
    at = datetime.strptime(metadata["eventTimestamp"], "%Y-%m-%dT%H:%M:%S.%fZ")
    assert len(metadata["eventTimestamp"]) == len("2026-01-01T00:00:00.000Z")
    assert abs(datetime.now(UTC) - at.replace(tzinfo=UTC)) < timedelta(minutes=5)
    return event


def types(events: list[dict[str, Any]]) -> list[str]:
    return [event["type"] for event in events]
