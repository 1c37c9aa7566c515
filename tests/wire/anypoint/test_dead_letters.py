"""Dead letters: when a message becomes one, and what it keeps."""

import time
from typing import Any

import pytest

from tests.wire.anypoint.answers import ok
from tests.wire.anypoint.destination import Exchange, Message, Queue, bodies
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


@pytest.mark.parametrize("fifo", [False, True])
def test_locks_that_run_out_count_like_nacks(env: Environment, fifo: bool) -> None:
    queue, dead = pair(env, 2, fifo=fifo)
    queue.publish("poison")
    assert queue.get_one(lockTtl=0).count == 1
    assert queue.get_one(lockTtl=100).count == 2
    assert (queue.get(), dead.get()) == ([], [])
    assert dead.await_one().body == "poison"
    assert queue.get() == []


def test_ten_deliveries_are_the_default(env: Environment) -> None:
    queue, dead = pair(env, None)
    queue.publish("poison")
    for count in range(1, 11):
        assert queue.get_one(lockTtl=0).count == count
    assert queue.get() == []
    assert dead.get_one().body == "poison"


def test_without_a_place_for_dead_letters_deliveries_have_no_end(queue: Queue) -> None:
    queue.publish("tough")
    for count in range(1, 31):
        assert queue.get_one(lockTtl=0).count == count


def test_an_ack_of_the_last_delivery_is_an_ack(env: Environment) -> None:
    queue, dead = pair(env, 1)
    queue.publish("just in time")
    queue.ack(queue.get_one())
    assert (queue.get(), dead.get()) == ([], [])


def test_a_longer_lock_keeps_the_last_delivery_alive(env: Environment) -> None:
    queue, dead = pair(env, 1)
    queue.publish("slow")
    message = queue.get_one(lockTtl=200)
    queue.set_lock(message, ttl_s=60)
    time.sleep(0.25)
    assert dead.get() == []
    queue.ack(message)


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


def test_a_dead_letters_life_begins_anew(env: Environment) -> None:
    dead = Queue.create(env, defaultTtl=70_000)
    queue = Queue.create(env, deadLetterQueueId=dead.name, maxDeliveries=1, defaultTtl=300)
    queue.publish("own life", headers={"ttl": 300})
    queue.publish("queue's life")
    for message in queue.get():
        queue.nack(message)
    time.sleep(0.35)
    found = dead.get()
    assert bodies(found) == ["own life", "queue's life"]
    assert [message.headers["ttl"] for message in found] == ["70000", "70000"]


def test_a_dead_letter_is_not_delayed(env: Environment) -> None:
    dead = Queue.create(env, defaultDeliveryDelay=900_000)
    queue = Queue.create(env, deadLetterQueueId=dead.name, maxDeliveries=1)
    queue.publish("a", headers={"deliveryDelay": 100})
    queue.nack(queue.await_one())
    message = dead.get_one()
    assert message.body == "a"
    assert "deliveryDelay" not in message.headers


def test_a_place_for_dead_letters_is_a_queue_like_any(env: Environment) -> None:
    queue, dead = pair(env, 1)
    dead.publish("published here")
    queue.publish("buried here")
    queue.nack(queue.get_one())
    found = dead.get()
    assert bodies(found) == ["published here", "buried here"]
    dead.ack_batch([message.item for message in found])
    assert dead.get() == []


def test_dead_letters_may_die_again(env: Environment) -> None:
    last = Queue.create(env)
    middle = Queue.create(env, deadLetterQueueId=last.name, maxDeliveries=2)
    first = Queue.create(env, deadLetterQueueId=middle.name, maxDeliveries=1)
    first.publish("a", id="m")
    first.nack(first.get_one())
    for count in (1, 2):
        message = middle.get_one()
        assert message.count == count
        middle.nack(message)
    message = last.get_one()
    assert (message.id, message.count) == ("m", 1)


def test_one_queue_buries_for_many(env: Environment) -> None:
    dead = Queue.create(env)
    for number in range(3):
        queue = Queue.create(env, deadLetterQueueId=dead.name, maxDeliveries=1)
        queue.publish(str(number))
        queue.nack(queue.get_one())
    assert bodies(dead.get()) == ["0", "1", "2"]


def test_fewer_deliveries_hold_for_messages_that_are_there(env: Environment) -> None:
    queue, dead = pair(env, 10)
    queue.publish("a")
    for _ in range(3):
        queue.get_one(lockTtl=0)
    queue.change(maxDeliveries=2, deadLetterQueueId=dead.name)
    message = queue.get(batchSize=1)
    for each in message:
        queue.nack(each)
    assert queue.get() == []
    assert dead.get_one().body == "a"


def test_without_its_place_for_dead_letters_a_queue_goes_on(env: Environment) -> None:
    queue, dead = pair(env, 1)
    queue.publish("a")
    dead.delete()
    for count in (1, 2, 3):
        assert queue.get_one(lockTtl=0).count == count


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


def test_a_group_goes_on_after_a_dead_letter(env: Environment) -> None:
    queue, dead = pair(env, 2, fifo=True)
    for text in ("a1", "a2", "b1"):
        queue.publish(text, headers={"messageGroupId": text[0]})
    for _ in range(2):
        [message] = queue.get(batchSize=1)
        assert message.body == "a1"
        queue.nack(message)
    assert bodies(queue.get()) in (["a2", "b1"], ["b1", "a2"])
    message = dead.get_one()
    assert (message.body, message.group, message.count) == ("a1", "a", 1)


def test_dead_letters_of_a_group_stay_in_order(env: Environment) -> None:
    queue, dead = pair(env, 1, fifo=True)
    queue.publish_batch(["1", "2", "3"], messageGroupId="g")
    for message in queue.get():
        queue.nack(message)
    first = dead.get_one(batchSize=1)
    assert (first.body, dead.get()) == ("1", [])
    dead.ack(first)
    assert bodies(dead.get()) == ["2", "3"]


def test_a_dead_letter_is_no_repetition(env: Environment) -> None:
    """Its id may have been published to the other queue as well: both are kept."""
    queue, dead = pair(env, 1, fifo=True)
    dead.publish("published", id="same", headers={"messageGroupId": "p"})
    queue.publish("buried", id="same", headers={"messageGroupId": "b"})
    queue.nack(queue.get_one())
    assert sorted(message.body or "" for message in dead.get()) == ["buried", "published"]


def test_the_sources_of_dead_letters_are_shown(env: Environment) -> None:
    queue, dead = pair(env, 3)
    assert dead.settings()["deadLetterSources"] == [queue.name]
    shown = ok(env.admin("GET", queue.admin_at()))
    assert (shown["deadLetterQueueId"], shown["maxDeliveries"]) == (dead.name, 3)
