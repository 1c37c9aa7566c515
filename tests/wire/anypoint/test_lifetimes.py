"""Delays, lives of messages, and how many may be in flight."""

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.server import Server
from tests.wire.anypoint.answers import fail
from tests.wire.anypoint.destination import Exchange, Queue, bodies
from tests.wire.anypoint.environment import Environment

LEASED_MAX = 120_000


# --- delays ---


def test_a_delayed_message_waits_while_others_pass(queue: Queue) -> None:
    queue.publish("late", headers={"deliveryDelay": "300"})
    queue.publish("early")
    assert bodies(queue.get()) == ["early"]
    late = queue.await_one()
    assert (late.body, late.headers["deliveryDelay"], late.count) == ("late", "300", 1)


def test_a_queues_delay_applies_to_messages_without_one(env: Environment) -> None:
    queue = Queue.create(env, defaultDeliveryDelay=300)
    queue.publish("as the queue says")
    queue.publish("at once", headers={"deliveryDelay": 0})
    now = queue.get_one()
    assert now.body == "at once"
    assert "deliveryDelay" not in now.headers
    late = queue.await_one()
    assert (late.body, late.headers["deliveryDelay"]) == ("as the queue says", "300")


def test_a_nacked_message_is_not_delayed_again(queue: Queue) -> None:
    queue.publish("a", headers={"deliveryDelay": 200})
    queue.nack(queue.await_one())
    assert queue.get_one().count == 2


def test_a_changed_delay_is_for_new_messages_only(env: Environment) -> None:
    queue = Queue.create(env, defaultDeliveryDelay=900_000)
    queue.publish("very late")
    queue.change(defaultDeliveryDelay=0)
    queue.publish("at once")
    assert bodies(queue.get()) == ["at once"]
    queue.change(defaultDeliveryDelay=900_000)
    queue.publish("very late too")
    assert queue.get() == []


def test_a_changed_delay_does_not_stop_what_was_published_without(queue: Queue) -> None:
    queue.publish("at once")
    queue.change(defaultDeliveryDelay=900_000)
    assert bodies(queue.get()) == ["at once"]


def test_a_changed_delay_is_for_all_waiting_messages_of_a_fifo_queue(env: Environment) -> None:
    queue = Queue.create(env, fifo=True, defaultDeliveryDelay=900_000)
    queue.publish("a")
    assert queue.get() == []
    queue.change(defaultDeliveryDelay=0)
    queue.publish("b")
    found = queue.get()
    assert bodies(found) == ["a", "b"]
    assert all("deliveryDelay" not in message.headers for message in found)
    queue.ack_batch([message.item for message in found])
    queue.publish("c")
    queue.change(defaultDeliveryDelay=900_000)
    assert queue.get() == []


def test_a_delay_applies_to_every_copy(env: Environment, exchange: Exchange) -> None:
    plain, slow = Queue.create(env), Queue.create(env, defaultDeliveryDelay=900_000)
    for queue in (plain, slow):
        exchange.bind(queue)
    exchange.publish("late", headers={"deliveryDelay": 900_000})
    exchange.publish("as each queue says")
    exchange.publish("at once", headers={"deliveryDelay": 0})
    assert bodies(plain.get()) == ["as each queue says", "at once"]
    assert bodies(slow.get()) == ["at once"]


# --- lives ---


def test_a_message_lives_as_long_as_it_says(queue: Queue) -> None:
    queue.publish("short", headers={"ttl": 250})
    queue.publish("long", headers={"ttl": 60_000})
    found = queue.get(lockTtl=0)
    assert [(message.body, message.headers["ttl"]) for message in found] == [
        ("short", "250"),
        ("long", "60000"),
    ]
    time.sleep(0.3)
    assert bodies(queue.get()) == ["long"]


def test_a_message_lives_as_long_as_its_queue_says(env: Environment) -> None:
    queue = Queue.create(env, defaultTtl=250)
    queue.publish("short")
    queue.publish("long", headers={"ttl": 60_000})
    found = queue.get(lockTtl=0)
    assert [(message.body, message.headers["ttl"]) for message in found] == [
        ("short", "250"),
        ("long", "60000"),
    ]
    time.sleep(0.3)
    assert bodies(queue.get()) == ["long"]


def test_a_message_in_flight_expires_too(queue: Queue) -> None:
    queue.publish("a", id="m", headers={"ttl": 250})
    message = queue.get_one()
    time.sleep(0.3)
    text = fail(queue.delete_message("m", {"lockId": message.lock}), 400, "m")
    assert text == f"LockId: {message.lock} provided is expired"
    assert queue.get() == []


def test_a_delayed_message_expires_too(queue: Queue) -> None:
    queue.publish("a", headers={"ttl": 200, "deliveryDelay": 300})
    queue.publish("b", headers={"deliveryDelay": 350})
    assert queue.await_one().body == "b"


def test_an_expired_message_is_no_dead_letter(env: Environment) -> None:
    dead = Queue.create(env)
    queue = Queue.create(env, deadLetterQueueId=dead.name, maxDeliveries=1)
    queue.publish("waiting", headers={"ttl": 200})
    queue.publish("locked", headers={"ttl": 200})
    queue.get_one(batchSize=1)
    time.sleep(0.25)
    assert (queue.get(), dead.get()) == ([], [])


@pytest.mark.parametrize("fifo", [False, True])
def test_a_changed_life_is_for_waiting_messages_too(env: Environment, fifo: bool) -> None:
    queue = Queue.create(env, fifo=fifo, defaultTtl=60_000)
    group = {"messageGroupId": "a"}
    queue.publish("as the queue says", headers=group)
    queue.publish("as it says itself", headers={"ttl": 50_000, "messageGroupId": "b"})
    queue.change(defaultTtl=120_000)
    found = queue.get()
    assert [message.headers["ttl"] for message in found] == ["120000", "50000"]
    queue.nack_batch([message.item for message in found])
    queue.change(defaultTtl=1)
    time.sleep(0.01)
    [left] = queue.get()
    assert (left.body, left.headers["ttl"]) == ("as it says itself", "50000")


def test_a_longer_life_comes_in_time(env: Environment) -> None:
    queue = Queue.create(env, defaultTtl=300)
    queue.publish("a")
    queue.change(defaultTtl=60_000)
    time.sleep(0.35)
    assert bodies(queue.get()) == ["a"]


def test_a_life_applies_to_every_copy(env: Environment, exchange: Exchange) -> None:
    long, short = Queue.create(env), Queue.create(env, defaultTtl=60_000)
    for queue in (long, short):
        exchange.bind(queue)
    exchange.publish("own", headers={"ttl": "5000"})
    exchange.publish("queue's")
    assert [message.headers["ttl"] for message in long.get()] == ["5000", "604800000"]
    assert [message.headers["ttl"] for message in short.get()] == ["5000", "60000"]


def test_a_purge_takes_what_is_locked_and_what_is_delayed(queue: Queue) -> None:
    queue.publish_batch(["a", "b"])
    queue.publish("c", headers={"deliveryDelay": 200})
    queue.get_one(batchSize=1)
    queue.purge()
    assert queue.get(pollingTime=300) == []
    queue.publish("new")
    assert bodies(queue.get()) == ["new"]


def test_a_queue_of_the_same_name_begins_empty(queue: Queue) -> None:
    queue.publish_batch(["a", "b"])
    old = queue.get_one(batchSize=1)
    queue.delete()
    again = Queue.create(queue.env, queue.name)
    assert again.get() == []
    again.publish("new", id=old.id)
    message = again.get_one()
    fail(again.delete_message(old.id, {"lockId": old.lock}), 400, old.id)
    again.ack(message)


# --- the cap on messages in flight ---


@pytest.mark.slow
def test_no_more_than_the_cap_are_in_flight(server: Server, queue: Queue) -> None:
    """Filled through another dialect on the same queue, which takes a hundred at a time."""
    with server.client() as account:
        [found] = account.get("/queues", params={"name": queue.name}).json()["result"]
        path = f"/queues/{found['queue_id']}"
        consumer = account.post(f"{path}/consumers", json={"type": "http_pull"})
        assert consumer.status_code == 200, consumer.text
        batch = {"messages": [{"body": "x", "content_type": "text"}] * 100}
        asked = {"batch_size": 100, "visibility_timeout_ms": 43_200_000}

        def fill(_: int) -> list[str]:
            assert _call(account, f"{path}/messages/batch", batch)
            pulled = _call(account, f"{path}/messages/pull", asked)["messages"]
            return [message["lease_id"] for message in pulled]

        with ThreadPoolExecutor(4) as pool:
            leases = [lease for part in pool.map(fill, range(LEASED_MAX // 100)) for lease in part]
        # Whoever pulled while another was about to publish got less than it published.
        while pulled := _call(account, f"{path}/messages/pull", asked)["messages"]:
            leases += [message["lease_id"] for message in pulled]
        assert len(leases) == LEASED_MAX
        queue.publish_batch(["beyond"] * 3)
        assert queue.get() == []
        acks = [{"lease_id": lease} for lease in leases[:2]]
        assert _call(account, f"{path}/messages/ack", {"acks": acks})["ackCount"] == 2
        assert bodies(queue.get()) == ["beyond", "beyond"]
        assert queue.get() == []
        queue.delete()


def _call(account: httpx.Client, path: str, body: dict[str, Any]) -> dict[str, Any]:
    answer = account.post(path, json=body)
    assert answer.status_code == 200, answer.text
    result: dict[str, Any] = answer.json()["result"]
    return result
