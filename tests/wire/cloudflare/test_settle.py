"""Ending leases: acks and retries, in time, too late, twice, or for nothing at all."""

from typing import Any

import pytest

from tests.wire.cloudflare import shapes
from tests.wire.cloudflare.envelope import fail, ok
from tests.wire.cloudflare.patience import eventually
from tests.wire.cloudflare.queue import Queue

NOTHING = {"ackCount": 0, "retryCount": 0, "warnings": {}}


def lease(queue: Queue, body: str = "a", **fields: Any) -> str:
    """Push a message and pull it; the lease."""
    queue.push(body)
    token: str = queue.pull_one(**fields)["lease_id"]
    return token


def expired_lease(queue: Queue) -> str:
    """A lease that has ended, on a message that waits again."""
    token = lease(queue, visibility_timeout_ms=0)
    eventually(queue.peek)
    return token


def test_acks_and_retries_go_together(pull_queue: Queue) -> None:
    pull_queue.push_texts([str(number) for number in range(5)])
    leases = [message["lease_id"] for message in pull_queue.pull()]
    result = pull_queue.settle(acks=leases[:2], retries=leases[2:])
    assert result == {"ackCount": 2, "retryCount": 3, "warnings": {}}
    assert [message["body"] for message in pull_queue.pull()] == ["2", "3", "4"]


@pytest.mark.parametrize("body", [{}, {"acks": []}, {"retries": []}, {"acks": [], "retries": []}])
def test_nothing_to_settle_does_nothing(standing_queue: Queue, body: Any) -> None:
    result = ok(standing_queue.post("/messages/ack", body))
    shapes.check_settled(result)
    assert result == NOTHING


def test_a_late_ack_deletes_a_message_that_waits_again(pull_queue: Queue) -> None:
    token = expired_lease(pull_queue)
    assert pull_queue.settle(acks=[token]) == {**NOTHING, "ackCount": 1}
    assert pull_queue.backlog() == 0


def test_an_ack_after_a_retry_deletes_the_message(pull_queue: Queue) -> None:
    token = lease(pull_queue)
    pull_queue.settle(retries=[token], delay_seconds=600)
    assert pull_queue.settle(acks=[token])["ackCount"] == 1
    assert pull_queue.backlog() == 0


def test_an_ack_of_an_acked_message_warns(pull_queue: Queue) -> None:
    token = lease(pull_queue)
    pull_queue.settle(acks=[token])
    result = pull_queue.settle(acks=[token])
    assert (result["ackCount"], set(result["warnings"])) == (0, {token})


def test_a_retry_of_an_acked_message_warns(pull_queue: Queue) -> None:
    token = lease(pull_queue)
    pull_queue.settle(acks=[token])
    result = pull_queue.settle(retries=[token])
    assert (result["retryCount"], set(result["warnings"])) == (0, {token})
    assert pull_queue.backlog() == 0


def test_a_retry_of_an_expired_lease_warns_and_does_nothing(pull_queue: Queue) -> None:
    token = expired_lease(pull_queue)
    result = pull_queue.settle(retries=[token], delay_seconds=600)
    assert (result["retryCount"], set(result["warnings"])) == (0, {token})
    assert pull_queue.pull_one()["attempts"] == 2


def test_an_ack_wins_over_a_retry_of_the_same_lease(pull_queue: Queue) -> None:
    token = lease(pull_queue)
    assert pull_queue.settle(acks=[token], retries=[token]) == {**NOTHING, "ackCount": 1}
    assert pull_queue.backlog() == 0


def test_a_lease_named_twice_counts_once(pull_queue: Queue) -> None:
    token = lease(pull_queue)
    assert pull_queue.settle(acks=[token, token])["ackCount"] == 1
    token = lease(pull_queue)
    assert pull_queue.settle(retries=[token, token])["retryCount"] == 1
    assert pull_queue.pull_one()["attempts"] == 2


BAD: list[Any] = [
    {"acks": {}},
    {"acks": ["x"]},
    {"acks": [{"leaseId": "x"}]},
    {"retries": "x"},
    {"retries": [{"delay_seconds": 5}]},
    {"retries": [{"lease_id": "x", "delay_seconds": -1}]},
    {"retries": [{"lease_id": "x", "delay_seconds": 86_401}]},
]


@pytest.mark.parametrize("body", BAD, ids=repr)
def test_a_malformed_settlement_is_refused_and_nothing_of_it_applies(
    pull_queue: Queue, body: Any
) -> None:
    token = {"lease_id": lease(pull_queue)}
    other = "retries" if "acks" in body else "acks"
    fail(pull_queue.post("/messages/ack", {**body, other: [token]}), 400, 10026)
    kind = "acks" if "acks" in body else "retries"
    if isinstance(body[kind], list):
        fail(pull_queue.post("/messages/ack", {kind: [token, *body[kind]]}), 400, 10026)
    assert pull_queue.backlog() == 1
    assert pull_queue.pull() == []
    assert pull_queue.settle(acks=[token["lease_id"]])["ackCount"] == 1


@pytest.mark.parametrize("delay", [0, 86_400])
def test_a_retry_delay_within_its_limits_is_accepted(pull_queue: Queue, delay: int) -> None:
    token = lease(pull_queue)
    assert pull_queue.settle(retries=[token], delay_seconds=delay)["retryCount"] == 1
    assert len(pull_queue.pull()) == (1 if delay == 0 else 0)
    assert pull_queue.backlog() == 1


@pytest.mark.parametrize("successor", [None, {"type": "worker", "script_name": "s"}])
def test_leases_are_settled_without_a_pull_consumer(
    pull_queue: Queue, successor: dict[str, str] | None
) -> None:
    pull_queue.push_texts(["a", "b"])
    first, second = (message["lease_id"] for message in pull_queue.pull())
    (consumer,) = pull_queue.get()["consumers"]
    path = pull_queue.at(f"/consumers/{consumer['consumer_id']}")
    if successor is None:
        ok(pull_queue.http.delete(path))
    else:
        ok(pull_queue.http.put(path, json=successor))
    result = pull_queue.settle(acks=[first], retries=[second])
    assert result == {"ackCount": 1, "retryCount": 1, "warnings": {}}
