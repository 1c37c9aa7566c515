"""Pulling messages: how many, for how long, in which form."""

import base64
import time
from typing import Any

import pytest

from tests.wire.cloudflare import shapes
from tests.wire.cloudflare.envelope import fail, ok
from tests.wire.cloudflare.queue import Queue

LEASE_MS_MAX = 43_200_000


def bodies(messages: list[dict[str, Any]]) -> list[str]:
    return [message["body"] for message in messages]


def test_a_pull_shows_the_messages_and_the_backlog(pull_queue: Queue) -> None:
    pull_queue.push_texts(["a", "bb", "ccc"])
    result = ok(pull_queue.post("/messages/pull", {"batch_size": 2}))
    shapes.check_pull(result)
    first, second = result["messages"]
    assert bodies([first, second]) == ["a", "bb"]
    # Leased messages are still unacknowledged, so they count.
    assert result["message_backlog_count"] == 3
    assert result["metadata"]["metrics"] == {
        "backlog_count": 3,
        "backlog_bytes": 6,
        "oldest_message_timestamp_ms": first["timestamp_ms"],
    }
    assert first["attempts"] == second["attempts"] == 1
    assert first["id"] != second["id"]
    assert first["lease_id"] != second["lease_id"]


def test_a_pull_from_an_empty_queue_answers_at_once(pull_queue: Queue) -> None:
    started = time.monotonic()
    result = ok(pull_queue.post("/messages/pull", {}))
    assert time.monotonic() - started < 1
    shapes.check_pull(result)
    assert (result["messages"], result["message_backlog_count"]) == ([], 0)
    assert result["metadata"]["metrics"]["oldest_message_timestamp_ms"] == 0


@pytest.mark.parametrize(
    ("settings", "fields", "count"),
    [
        ({}, {}, 5),
        ({"batch_size": 2}, {}, 2),
        ({"batch_size": 2}, {"batch_size": 7}, 7),
        ({}, {"batch_size": 1}, 1),
    ],
)
def test_five_messages_come_unless_the_consumer_or_the_pull_says_otherwise(
    queue: Queue, settings: dict[str, Any], fields: dict[str, Any], count: int
) -> None:
    queue.consume(**settings)
    queue.push_texts(["x"] * 8)
    assert len(queue.pull(**fields)) == count


def test_a_json_body_comes_as_padded_base64(pull_queue: Queue) -> None:
    for text in ("1", "12", "123", "1234"):
        pull_queue.push_json(text)
        body = pull_queue.pull_one()["body"]
        assert body == base64.b64encode(text.encode()).decode()


@pytest.mark.parametrize("count", [1, 100])
def test_a_batch_size_within_its_limits_is_accepted(pull_queue: Queue, count: int) -> None:
    pull_queue.push_texts(["x"] * 100)
    pull_queue.push("one more")
    assert len(pull_queue.pull(batch_size=count)) == count


@pytest.mark.parametrize("name", ["visibility_timeout_ms", "visibility_timeout"])
@pytest.mark.parametrize("lease_ms", [0, 1, LEASE_MS_MAX])
def test_a_lease_within_its_limits_is_accepted(pull_queue: Queue, name: str, lease_ms: int) -> None:
    pull_queue.push("a")
    pull_queue.pull_one(**{name: lease_ms})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("batch_size", 0),
        ("batch_size", 101),
        ("batch_size", 1.5),
        ("visibility_timeout_ms", LEASE_MS_MAX + 1),
        ("visibility_timeout", LEASE_MS_MAX + 1),
    ],
)
def test_a_pull_beyond_its_limits_is_refused(standing_queue: Queue, name: str, value: Any) -> None:
    assert name in fail(standing_queue.post("/messages/pull", {name: value}), 400, 10026)


def test_a_consumers_lease_applies_when_the_pull_names_none(queue: Queue) -> None:
    queue.consume(visibility_timeout_ms=0)
    queue.push("a")
    assert queue.pull_one()["attempts"] == 1
    assert queue.pull_one(visibility_timeout_ms=60_000)["attempts"] == 2
    assert queue.pull() == []


def test_the_lease_may_go_by_its_other_name(pull_queue: Queue) -> None:
    pull_queue.push("a")
    pull_queue.pull_one(visibility_timeout=0)
    assert pull_queue.pull_one(visibility_timeout=60_000)["attempts"] == 2
    assert pull_queue.pull() == []


def test_of_two_names_for_the_lease_the_published_one_wins(pull_queue: Queue) -> None:
    pull_queue.push("a")
    pull_queue.pull_one(visibility_timeout=LEASE_MS_MAX, visibility_timeout_ms=0)
    pull_queue.pull_one(visibility_timeout=0, visibility_timeout_ms=60_000)
    assert pull_queue.pull() == []


MESSAGE = "messages cannot be pulled unless http_pull mode is enabled"


def test_a_queue_without_a_consumer_cannot_be_pulled(queue: Queue) -> None:
    queue.push("a")
    assert fail(queue.post("/messages/pull", {}), 405, 0) == MESSAGE


def test_a_queue_with_a_worker_cannot_be_pulled(queue: Queue) -> None:
    ok(queue.post("/consumers", {"type": "worker", "script_name": "s"}))
    assert fail(queue.post("/messages/pull", {}), 405, 0) == MESSAGE


def test_a_paused_queue_cannot_be_pulled_until_it_resumes(pull_queue: Queue) -> None:
    pull_queue.push("waits")
    pull_queue.change(delivery_paused=True)
    response = pull_queue.post("/messages/pull", {})
    assert fail(response, 409, 0) == "queue_delivery_paused"
    assert response.headers["x-should-retry"] == "false"
    pull_queue.change(delivery_paused=False)
    assert pull_queue.pull_one()["attempts"] == 1


def test_writes_acks_peeks_and_purges_go_on_while_paused(pull_queue: Queue) -> None:
    pull_queue.push("leased before")
    lease = pull_queue.pull_one()["lease_id"]
    pull_queue.change(delivery_paused=True)
    assert pull_queue.settle(acks=[lease])["ackCount"] == 1
    assert pull_queue.push("a")["backlog_count"] == 1
    assert bodies(pull_queue.peek()) == ["a"]
    ok(pull_queue.post("/purge", {}))
    assert pull_queue.backlog() == 0
