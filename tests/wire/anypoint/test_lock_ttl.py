"""Changing how long a lock lasts: in seconds, from now, under the same id."""

from dataclasses import replace
from typing import Any

import pytest

from tests.wire.anypoint.answers import fail
from tests.wire.anypoint.destination import Queue
from tests.wire.anypoint.timed import Timed

SECONDS_MAX = 43_200
BAD: list[Any] = [
    -1,
    SECONDS_MAX + 1,
    "-1",
    str(SECONDS_MAX + 1),
    "x",
    "",
    1.5,
    "1.5",
    True,
    [],
    {},
]


def test_a_lock_lasts_as_long_as_it_is_told(clocked: Timed) -> None:
    queue = Queue.create(clocked.env)
    for ttl, seconds in ((1, 1), (60, 60), (SECONDS_MAX, SECONDS_MAX), ("60", 60), (60.0, 60)):
        queue.publish("a", id="m")
        message = queue.get_one(lockTtl=250)
        answer = queue.patch_lock("m", message.lock, {"ttl": ttl})
        assert answer.status_code == 200, answer.text
        clocked.advance(seconds=seconds - 0.001)
        queue = replace(queue, env=clocked.log_in())  # a token lasts an hour
        assert queue.get() == []
        clocked.advance(seconds=0.001)
        queue.ack(queue.get_one())


@pytest.mark.parametrize("ttl", [0, "0"])
def test_a_lock_of_no_seconds_is_given_back(queue: Queue, ttl: Any) -> None:
    queue.publish_batch(["a", "b"])
    first, second = queue.get()
    assert queue.patch_lock(first.id, first.lock, {"ttl": ttl}).status_code == 200
    [answered] = queue.set_locks([{**second.item, "ttl": ttl}])
    assert answered["status"] == "successful"
    assert [(message.body, message.count) for message in queue.get()] == [("a", 2), ("b", 2)]


def test_the_seconds_are_required_and_have_limits(queue: Queue) -> None:
    queue.publish("a", id="m")
    message = queue.get_one()
    for content in (b"", b"{}", b'{"ttl":null}', b'{"TTL":5}'):
        fail(queue.patch_lock("m", message.lock, content=content), 400, "m")
    for ttl in BAD:
        assert "ttl" in fail(queue.patch_lock("m", message.lock, {"ttl": ttl}), 400, "m")
    queue.ack(message)


def test_a_batch_sets_each_lock_by_itself(queue: Queue) -> None:
    queue.publish_batch([str(number) for number in range(10)])
    found = queue.get()
    answered = queue.set_locks(
        [{**message.item, "ttl": number} for number, message in enumerate(found)]
    )
    assert [(each["messageId"], each["lockId"], each["status"]) for each in answered] == [
        (message.id, message.lock, "successful") for message in found
    ]
    again = queue.get_one()
    assert (again.body, again.count) == ("0", 2)


def test_a_bad_item_of_a_batch_fails_alone(clocked: Timed) -> None:
    queue = Queue.create(clocked.env)
    queue.publish_batch(["a", "b"])
    first, second = queue.get(lockTtl=250)
    bad: list[dict[str, Any]] = [
        first.item,
        {**first.item, "ttl": None},
        {**first.item, "ttl": -1},
        {**first.item, "ttl": SECONDS_MAX + 1},
        {**first.item, "ttl": "x"},
        {"messageId": first.id, "ttl": 5},
        {"lockId": first.lock, "ttl": 5},
        {"messageId": second.id, "lockId": first.lock, "ttl": 5},
    ]
    answered = queue.set_locks([*bad, {**second.item, "ttl": 60}, {**first.item, "ttl": "60"}])
    assert [each["status"] for each in answered] == ["failure"] * len(bad) + ["successful"] * 2
    clocked.advance(seconds=1)
    assert queue.get() == []
