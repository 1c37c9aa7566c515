"""What queues hold at the moment."""

import httpx
import pytest

from tests.wire.anypoint.answers import admin_fail, ok
from tests.wire.anypoint.destination import Exchange, Queue, new_name
from tests.wire.anypoint.environment import Environment


def current(env: Environment, query: str) -> httpx.Response:
    return env.call("GET", f"{env.stats_path}/queues{query}", token=env.tokens.user)


def of(queue: Queue) -> tuple[int, int]:
    """Waiting and locked messages; the shape is checked."""
    (row,) = ok(current(queue.env, f"?destinationIds={queue.name}"))
    assert set(row) == {"destination", "messages", "inflightMessages"}
    assert row["destination"] == queue.name
    assert type(row["messages"]) is int and type(row["inflightMessages"]) is int
    return row["messages"], row["inflightMessages"]


def test_every_change_is_seen_at_once(queue: Queue) -> None:
    assert of(queue) == (0, 0)
    queue.publish_batch(["a", "b", "c"])
    assert of(queue) == (3, 0)
    first, second = queue.get(batchSize=2)
    assert of(queue) == (1, 2)
    queue.ack(first)
    assert of(queue) == (1, 1)
    queue.nack(second)
    assert of(queue) == (2, 0)
    queue.purge()
    assert of(queue) == (0, 0)


def test_delayed_messages_are_waiting_messages(queue: Queue) -> None:
    queue.publish("later", headers={"deliveryDelay": 900_000})
    queue.publish("now")
    assert of(queue) == (2, 0)


def test_a_lock_that_ends_at_once_locks_nothing(queue: Queue) -> None:
    queue.publish("a")
    queue.get(lockTtl=0)
    assert of(queue) == (1, 0)


def test_queues_come_in_the_order_asked_for(env: Environment) -> None:
    names = [new_name(prefix) for prefix in ("b", "c", "a")]
    for count, name in enumerate(names):
        Queue.create(env, name).publish_batch(["x"] * (count + 1))
    expected = [
        {"destination": name, "messages": count + 1, "inflightMessages": 0}
        for count, name in enumerate(names)
    ]
    assert ok(current(env, f"?destinationIds={','.join(names)}")) == expected
    backwards = ",".join(reversed(names))
    assert ok(current(env, f"?destinationIds={backwards}")) == expected[::-1]
    several = "&".join(f"destinationIds={name}" for name in names)
    assert ok(current(env, f"?{several}")) == expected


def test_what_is_no_queue_is_left_out(queue: Queue, exchange: Exchange) -> None:
    asked = f"{new_name()},{queue.name},{exchange.name},,a_b"
    rows = ok(current(queue.env, f"?destinationIds={asked}"))
    assert [row["destination"] for row in rows] == [queue.name]
    assert ok(current(queue.env, f"?destinationIds={exchange.name}")) == []


def test_the_queues_must_be_named(env: Environment) -> None:
    assert "destinationIds" in admin_fail(current(env, ""), 400)
    assert "destinationIds" in admin_fail(current(env, "?period=60"), 400)


@pytest.mark.parametrize("kind", ["user", "connected_app"])
def test_a_connected_app_may_ask_as_well(queue: Queue, kind: str) -> None:
    env = queue.env
    path = f"{env.stats_path}/queues?destinationIds={queue.name}"
    assert len(ok(env.call("GET", path, token=getattr(env.tokens, kind)))) == 1
