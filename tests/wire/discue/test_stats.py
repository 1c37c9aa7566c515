"""Stats: how often each thing happened, in three stretches of time."""

import time
from collections.abc import Iterator

import pytest

from tests.clients.discue import DiscueClient, ok
from tests.delivery.receiver import OK, Receiver, status
from tests.wire.discue.receiving import NOWHERE, Host

URL = NOWHERE
BLOCKS = {"last_24_hours", "last_1_hours", "today_so_far"}
TYPES = [
    *("api_key_added", "api_key_updated", "api_key_deleted", "queue_added", "queue_updated"),
    *("queue_deleted", "listener_added", "listener_updated", "listener_deleted", "message_added"),
    *("message_published_ok", "message_published_not_ok"),
]
WAIT_S_MAX = 20.0


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Host() as receiver:
        yield receiver


def stats(client: DiscueClient) -> dict[str, int]:
    """The counters of the last 24 hours; the other blocks can have no other."""
    answer = ok(client.get("/stats/messages"))
    assert set(answer) == {"aggregated_api_usage_events", "_links"}
    path = f"{client.prefix}/stats/messages"
    assert answer["_links"]["self"]["href"].endswith(path)
    blocks: dict[str, dict[str, int]] = answer["aggregated_api_usage_events"]
    assert set(blocks) == BLOCKS
    for block in blocks.values():
        assert set(block) == set(TYPES)
        assert all(type(count) is int and count >= 0 for count in block.values())
    # Everything here happened within the last minutes.
    assert blocks["last_1_hours"] == blocks["last_24_hours"]
    for type_, count in blocks["today_so_far"].items():
        assert count <= blocks["last_24_hours"][type_]
    return blocks["last_24_hours"]


def difference(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    return {type: after[type] - before[type] for type in TYPES if after[type] != before[type]}


def test_every_counter_is_there_from_the_beginning(organization: DiscueClient) -> None:
    found = stats(organization)
    assert found["api_key_added"] >= 1
    assert {type: count for type, count in found.items() if count} == {
        "api_key_added": found["api_key_added"]
    }


def test_settings_are_counted_at_once(organization: DiscueClient) -> None:
    before = stats(organization)
    for _ in range(3):
        queue = organization.new_queue()
    listeners = [organization.new_listener(queue, URL, status="disabled") for _ in range(2)]
    path = f"/queues/{queue}/listeners/{listeners[0]['id']}"
    ok(organization.put(path, {"timeout_ms": 2_000}))
    ok(organization.delete(path))
    ok(organization.put(f"/queues/{queue}", {"name": "another-name"}))
    key = ok(organization.post("/api_keys", {}))["id"]
    ok(organization.put(f"/api_keys/{key}", {"status": "disabled"}))
    ok(organization.delete(f"/api_keys/{key}"))
    assert difference(before, stats(organization)) == {
        "api_key_added": 1,
        "api_key_updated": 1,
        "api_key_deleted": 1,
        "queue_added": 3,
        "queue_updated": 1,
        "listener_added": 2,
        "listener_updated": 1,
        "listener_deleted": 1,
    }
    before = stats(organization)
    ok(organization.delete(f"/queues/{queue}"))
    assert difference(before, stats(organization)) == {"queue_deleted": 1, "listener_deleted": 1}


def test_messages_and_attempts_are_counted(organization: DiscueClient, receiver: Receiver) -> None:
    queue = organization.new_queue()
    receiver.on("/hook", status(500), OK)
    url, live = receiver.url("/hook"), receiver.url("/live")
    organization.new_listener(queue, url, liveness_url=live)
    before = stats(organization)
    organization.add(queue, "fails at first")
    receiver.wait("/hook", 1)
    for _ in range(4):
        organization.add(queue, "arrives")
    end = time.monotonic() + WAIT_S_MAX
    expected = {"message_added": 5, "message_published_ok": 4, "message_published_not_ok": 1}
    while (found := difference(before, stats(organization))) != expected:
        # The one that failed is tried again after some seconds.
        if found.get("message_published_ok") == 5:
            break
        assert time.monotonic() < end, found
        time.sleep(0.02)
    assert found["message_added"] == 5 and found["message_published_not_ok"] == 1


def test_stats_and_events_agree(organization: DiscueClient, receiver: Receiver) -> None:
    queue = organization.new_queue()
    organization.new_listener(queue, receiver.url("/hook"))
    for number in range(20):
        organization.add(queue, str(number))
    receiver.wait("/hook", 20)
    end = time.monotonic() + WAIT_S_MAX
    while stats(organization)["message_published_ok"] < 20:
        assert time.monotonic() < end
        time.sleep(0.02)
    counts = dict.fromkeys(TYPES, 0)
    for event in ok(organization.get("/events?limit=1000"))["events"]:
        counts[event["type"]] += 1
    assert counts == stats(organization)
