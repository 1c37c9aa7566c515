"""Delays, lives of messages, and how many may be in flight."""

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.server import Server
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


def test_a_life_applies_to_every_copy(env: Environment, exchange: Exchange) -> None:
    long, short = Queue.create(env), Queue.create(env, defaultTtl=60_000)
    for queue in (long, short):
        exchange.bind(queue)
    exchange.publish("own", headers={"ttl": "5000"})
    exchange.publish("queue's")
    assert [message.headers["ttl"] for message in long.get()] == ["5000", "604800000"]
    assert [message.headers["ttl"] for message in short.get()] == ["5000", "60000"]


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
