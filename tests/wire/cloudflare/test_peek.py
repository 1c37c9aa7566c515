"""Looking at messages without taking them, and deleting those that were looked at."""

from typing import Any

import pytest

from tests.wire.cloudflare import shapes
from tests.wire.cloudflare.envelope import fail, ok
from tests.wire.cloudflare.queue import Queue, unfolded


def remove(queue: Queue, *refs: str) -> dict[str, Any]:
    """Purge by reference."""
    body = {"refs": [{"ref": ref} for ref in refs]}
    result: dict[str, Any] = ok(queue.post("/messages/purge", body))
    shapes.check_removed(result)
    return result


def test_a_peek_shows_how_often_a_message_was_handed_out(pull_queue: Queue) -> None:
    pull_queue.push("a")
    pull_queue.pull_one(visibility_timeout_ms=0)
    assert pull_queue.peek()[0]["attempts"] == 1
    pull_queue.pull_one(visibility_timeout_ms=0)
    assert pull_queue.peek()[0]["attempts"] == 2


def test_a_peek_shows_bodies_as_a_pull_does(pull_queue: Queue) -> None:
    pull_queue.push_json('{"b": 1.10}')
    assert unfolded(pull_queue.peek()[0]) == '{"b":1.10}'
    assert pull_queue.peek()[0]["body"] == pull_queue.pull_one()["body"]


def test_a_peek_shows_only_what_a_pull_would_get_now(pull_queue: Queue) -> None:
    pull_queue.push("leased")
    pull_queue.pull_one()
    pull_queue.push("delayed", delay_seconds=600)
    pull_queue.push("ready")
    assert [message["body"] for message in pull_queue.peek()] == ["ready"]


@pytest.mark.parametrize(("fields", "count"), [({}, 5), ({"batch_size": 1}, 1), (None, 5)])
def test_a_peek_shows_five_messages_unless_told_otherwise(
    queue: Queue, fields: dict[str, int] | None, count: int
) -> None:
    queue.push_texts(["x"] * 8)
    result = ok(queue.http.post(queue.at("/messages/peek"), json=fields))
    assert len(result["messages"]) == count


def test_a_peek_shows_a_hundred_messages_at_most(queue: Queue) -> None:
    queue.push_texts(["x"] * 100)
    queue.push("one more")
    assert len(queue.peek(batch_size=100)) == 100


@pytest.mark.parametrize("size", [0, 101])
def test_a_peek_beyond_its_limits_is_refused(standing_queue: Queue, size: Any) -> None:
    response = standing_queue.post("/messages/peek", {"batch_size": size})
    assert "batch_size" in fail(response, 400, 10026)


def test_a_peek_needs_neither_a_consumer_nor_delivery(queue: Queue) -> None:
    queue.push("a")
    queue.change(delivery_paused=True)
    assert queue.peek()[0]["body"] == "a"


def test_a_peeked_message_can_be_deleted(queue: Queue) -> None:
    queue.push_texts(["a", "b", "c"])
    first, _, third = (message["ref"] for message in queue.peek())
    assert remove(queue, first, third) == {"errors": [], "warnings": {}}
    (left,) = queue.peek()
    assert (left["body"], left["attempts"]) == ("b", 0)
    assert queue.backlog() == 1


def test_no_references_delete_nothing(queue: Queue) -> None:
    queue.push("a")
    assert remove(queue) == {"errors": [], "warnings": {}}
    assert queue.backlog() == 1


def test_a_reference_to_a_deleted_message_warns(queue: Queue) -> None:
    queue.push("a")
    ref = queue.peek()[0]["ref"]
    remove(queue, ref)
    assert set(remove(queue, ref)["warnings"]) == {ref}


def test_one_unknown_reference_does_not_spoil_the_others(queue: Queue) -> None:
    queue.push("a")
    ref = queue.peek()[0]["ref"]
    assert set(remove(queue, "nonsense", ref)["warnings"]) == {"nonsense"}
    assert queue.backlog() == 0


@pytest.mark.parametrize("body", [{}, {"ref": "x"}, {"references": []}])
def test_references_are_needed(standing_queue: Queue, body: Any) -> None:
    assert "refs" in fail(standing_queue.post("/messages/purge", body), 400, 10207)
