"""Dead letters: when a message becomes one, and what it keeps."""

from typing import Any

import pytest

from tests.wire.anypoint.answers import ok
from tests.wire.anypoint.destination import Exchange, Message, Queue
from tests.wire.anypoint.environment import Environment


def pair(env: Environment, deliveries: int | None, **settings: Any) -> tuple[Queue, Queue]:
    """A queue and the one that its dead letters go to."""
    dead = Queue.create(env, fifo=settings.get("fifo", False))
    asked = {"deadLetterQueueId": dead.name, "maxDeliveries": deliveries, **settings}
    return Queue.create(env, **asked), dead


def nack(queue: Queue, message: Message) -> None:
    queue.nack(message)


def nack_in_a_batch(queue: Queue, message: Message) -> None:
    [answered] = queue.nack_batch([message.item])
    assert answered["status"] == "successful"


def release(queue: Queue, message: Message) -> None:
    queue.set_lock(message, ttl_s=0)


@pytest.mark.parametrize("fail", [nack, nack_in_a_batch, release])
@pytest.mark.parametrize("deliveries", [1, 2, 5])
@pytest.mark.parametrize("fifo", [False, True])
def test_a_message_is_delivered_as_often_as_allowed_and_then_moves(
    env: Environment, fail: Any, deliveries: int, fifo: bool
) -> None:
    queue, dead = pair(env, deliveries, fifo=fifo)
    queue.publish("poison")
    for count in range(1, deliveries + 1):
        assert dead.get() == []
        message = queue.get_one()
        assert message.count == count
        fail(queue, message)
    assert queue.get() == []
    assert (dead.get_one().body, queue.get()) == ("poison", [])


def test_without_a_place_for_dead_letters_deliveries_have_no_end(queue: Queue) -> None:
    queue.publish("tough")
    for count in range(1, 31):
        assert queue.get_one(lockTtl=0).count == count


def test_a_dead_letter_keeps_what_its_publisher_said(env: Environment) -> None:
    queue, dead = pair(env, 2)
    headers = {"own": "kept", "messageGroupId": "g", "n": 5}
    properties = {"contentType": "text/plain", "flag": True, "deep": {"a": [1]}}
    queue.publish("poison", id="a/b", headers=headers, properties=properties)
    queue.nack(queue.get_one())
    last = queue.get_one()
    queue.nack(last)
    message = dead.get_one()
    assert (message.id, message.body, message.properties) == ("a/b", "poison", properties)
    assert (message.headers["own"], message.headers["n"], message.group) == ("kept", 5, "g")
    assert message.lock != last.lock
    # Counted anew.
    assert message.count == 1
    dead.nack(message)
    assert dead.get_one().count == 2


def test_copies_die_one_by_one(env: Environment, exchange: Exchange) -> None:
    queue, dead = pair(env, 1)
    other = Queue.create(env)
    for each in (queue, other):
        exchange.bind(each)
    exchange.publish("a", id="m")
    queue.nack(queue.get_one())
    assert dead.get_one().id == "m"
    message = other.get_one()
    other.nack(message)
    assert other.get_one().count == 2


# --- FIFO ---


def test_the_sources_of_dead_letters_are_shown(env: Environment) -> None:
    queue, dead = pair(env, 3)
    assert dead.settings()["deadLetterSources"] == [queue.name]
    shown = ok(env.admin("GET", queue.admin_at()))
    assert (shown["deadLetterQueueId"], shown["maxDeliveries"]) == (dead.name, 3)
