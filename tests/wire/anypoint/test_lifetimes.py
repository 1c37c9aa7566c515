"""Delays, lives of messages, and how many may be in flight."""

import pyarrow as pa
import pytest

from tests.server import Server
from tests.wire.anypoint.destination import Exchange, Queue, bodies
from tests.wire.anypoint.environment import Environment
from tests.wire.anypoint.timed import Timed

LEASED_MAX = 120_000
CLAIM_MAX = 20_000
ROWS_MAX = 100_000
ARROW = {"Content-Type": "application/vnd.apache.arrow.stream"}


# --- delays ---


def test_a_delayed_message_waits_while_others_pass(clocked: Timed) -> None:
    queue = Queue.create(clocked.env)
    queue.publish("late", headers={"deliveryDelay": "300"})
    queue.publish("early")
    assert bodies(queue.get()) == ["early"]
    clocked.advance(seconds=0.3)
    late = queue.get_one()
    assert (late.body, late.headers["deliveryDelay"], late.count) == ("late", "300", 1)


def test_a_queues_delay_applies_to_messages_without_one(clocked: Timed) -> None:
    queue = Queue.create(clocked.env, defaultDeliveryDelay=300)
    queue.publish("as the queue says")
    queue.publish("at once", headers={"deliveryDelay": 0})
    now = queue.get_one()
    assert now.body == "at once"
    assert "deliveryDelay" not in now.headers
    clocked.advance(seconds=0.3)
    late = queue.get_one()
    assert (late.body, late.headers["deliveryDelay"]) == ("as the queue says", "300")


# --- lives ---


@pytest.mark.parametrize("by_queue", [False, True])
def test_a_message_lives_as_long_as_it_or_its_queue_says(clocked: Timed, by_queue: bool) -> None:
    queue = Queue.create(clocked.env, defaultTtl=250 if by_queue else None)
    queue.publish("short", headers=None if by_queue else {"ttl": 250})
    queue.publish("long", headers={"ttl": 60_000})
    found = queue.get(lockTtl=0)
    assert [(message.body, message.headers["ttl"]) for message in found] == [
        ("short", "250"),
        ("long", "60000"),
    ]
    clocked.advance(seconds=0.25)
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


def test_no_more_than_the_cap_are_in_flight(server: Server, queue: Queue) -> None:
    """Filled by the operator, who publishes and claims thousands at a time."""
    at = f"/courier/v1/tenants/default/queues/{queue.name}"
    for rows in (ROWS_MAX, LEASED_MAX + 3 - ROWS_MAX):
        told = server.operate("POST", f"{at}/publish", content=arrow(rows), headers=ARROW)
        assert told.json()["published"] == rows
    for number in range(LEASED_MAX // CLAIM_MAX):
        asked = {"count": CLAIM_MAX - 2 * (number == 0), "lease_ms": 3_600_000}
        told = server.operate("PUT", f"{at}/claims/{number}", json=asked)
        assert told.json()["count"] == asked["count"]
    last = queue.get()
    assert len(last) == 2
    assert queue.get() == []
    queue.ack(last[0])
    assert len(queue.get()) == 1
    assert queue.get() == []
    queue.delete()


def arrow(rows: int) -> bytes:
    batch = pa.record_batch({"body": ["x"] * rows})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    whole: bytes = sink.getvalue().to_pybytes()
    return whole
