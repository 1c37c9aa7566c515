"""Getting messages: how many, for how long, in which form."""

import time
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

import httpx
import pytest

from tests.wire.anypoint.answers import fail, nothing, ok
from tests.wire.anypoint.destination import Exchange, Queue, check_message, new_name
from tests.wire.anypoint.timed import Timed

HIDDEN_BYTES = 1_048_576
LOCK_MS_MAX = 86_400_000


def test_a_message_is_an_element_of_an_array(queue: Queue) -> None:
    before = datetime.now(UTC).replace(microsecond=0)
    queue.publish("hello", id="m", headers={"own": "kept"}, properties={"n": 5})
    [element] = ok(queue.poll())
    message = check_message(element)
    assert element == {
        "headers": {
            "messageId": "m",
            "lockId": message.lock,
            "created": message.headers["created"],
            "deliveryCount": "1",
            "ttl": "604800000",
            "own": "kept",
        },
        "properties": {"n": 5},
        "body": "hello",
    }
    created = parsedate_to_datetime(message.headers["created"])
    assert before <= created <= before + timedelta(seconds=10)


def test_nothing_to_get_is_204_with_no_body(standing_queue: Queue) -> None:
    started = time.monotonic()
    response = standing_queue.poll(pollingTime=0)
    nothing(response)
    assert time.monotonic() - started < 1


@pytest.mark.parametrize(
    ("query", "count"), [({}, 1), *(({"batchSize": count}, count) for count in (1, 2, 9, 10))]
)
def test_as_many_come_as_are_asked_for(queue: Queue, query: dict[str, int], count: int) -> None:
    texts = [f"m{number}" for number in range(10)]
    queue.publish_batch(texts)
    queue.publish("one more")
    found = ok(queue.poll(**query))
    assert [element["body"] for element in found] == texts[:count]


@pytest.mark.parametrize(
    "query",
    [
        {"pollingTime": 0},
        {"pollingTime": 20_000},
        {"poolingTime": 0},
        {"poolingTime": 20_000},
        {"lockTtl": LOCK_MS_MAX},
        {"lockTtl": 1},
        {"payloadVisibility": "full"},
        {"ackMode": "IMMEDIATE"},
        {"unknown": ["a", "b"]},
        {"": ""},
        {"batchSize": "10"},
    ],
)
def test_a_query_within_its_limits_is_accepted(queue: Queue, query: dict[str, Any]) -> None:
    queue.publish("a")
    [element] = ok(queue.poll(**query))
    assert element["body"] == "a"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("pollingTime", "20001"),
        ("poolingTime", "20001"),
        ("batchSize", "0"),
        ("batchSize", "11"),
        ("lockTtl", str(LOCK_MS_MAX + 1)),
        ("payloadVisibility", "some"),
        ("payloadVisibility", ""),
        ("pollingTime", ""),
        ("poolingTime", "x"),
    ],
)
def test_a_query_beyond_its_limits_is_refused(queue: Queue, name: str, value: str) -> None:
    queue.publish("a")
    shown = "pollingTime" if name == "poolingTime" else name
    assert shown in fail(queue.poll(**{name: value}), 400)
    assert queue.get_one().count == 1


def test_the_old_spelling_of_the_polling_time_counts(standing_queue: Queue) -> None:
    started = time.monotonic()
    nothing(standing_queue.poll(poolingTime=0))
    assert time.monotonic() - started < 1


# --- hidden bodies ---


@pytest.mark.parametrize(
    ("visibility", "size", "hidden"),
    [
        ("full", 1, False),
        ("full", HIDDEN_BYTES + 1, False),
        ("none", 0, True),
        ("none", 1, True),
        ("conditional", 0, False),
        ("conditional", HIDDEN_BYTES, False),
        ("conditional", HIDDEN_BYTES + 1, True),
    ],
)
def test_a_body_is_hidden_when_asked_for(
    queue: Queue, visibility: str, size: int, hidden: bool
) -> None:
    queue.publish("x" * size, headers={"own": "kept"}, properties={"n": 1})
    message = queue.get_one(payloadVisibility=visibility)
    assert message.body == (None if hidden else "x" * size)
    assert message.headers.get("payloadHidden") == ("true" if hidden else None)
    assert (message.headers["own"], message.properties) == ("kept", {"n": 1})
    queue.nack(message)
    assert queue.get_one().body == "x" * size


def test_what_is_hidden_is_decided_by_bytes_and_for_each_message(queue: Queue) -> None:
    for text in ("é" * (HIDDEN_BYTES // 2), "é" * (HIDDEN_BYTES // 2) + "x", "small"):
        queue.publish(text)
    found = queue.get(payloadVisibility="conditional")
    assert [message.body is None for message in found] == [False, True, False]


# --- locks ---


def test_every_delivery_has_a_lock_of_its_own_and_is_counted(queue: Queue) -> None:
    queue.publish("a")
    locks = []
    for count in (1, 2, 3):
        message = queue.get_one()
        assert message.count == count
        locks.append(message.lock)
        queue.nack(message)
    assert len(set(locks)) == 3


def test_a_lock_id_needs_no_escaping_in_a_path(queue: Queue) -> None:
    queue.publish_batch([str(number) for number in range(10)])
    allowed = set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.~")
    assert all(set(message.lock) <= allowed for message in queue.get())


def test_a_lock_of_no_time_is_over_at_once(queue: Queue) -> None:
    queue.publish("a", id="m")
    for count in (1, 2, 3):
        message = queue.get_one(lockTtl=0)
        assert message.count == count
        text = fail(queue.delete_message("m", {"lockId": message.lock}), 400, "m")
        assert text == f"LockId: {message.lock} provided is expired"


def test_the_queues_lock_applies_when_none_is_asked_for(clocked: Timed) -> None:
    queue = Queue.create(clocked.env, defaultLockTtl=200)
    queue.publish("a")
    assert queue.get_one().count == 1
    clocked.advance(seconds=0.199)
    assert queue.get() == []
    clocked.advance(seconds=0.001)
    assert queue.get_one(lockTtl=60_000).count == 2
    clocked.advance(seconds=59)
    assert queue.get() == []


# --- what cannot be consumed from ---


def test_nothing_is_got_from_an_exchange(standing_exchange: Exchange) -> None:
    env = standing_exchange.env
    expected = {"status": "failure", "statusMessage": "The destination should be a queue."}
    for query in ("", "?pollingTime=0", "?batchSize=10"):
        assert ok(env.broker("GET", standing_exchange.at(query)), 400) == expected


def test_an_unknown_destination_is_not_found(http: httpx.Client, standing_queue: Queue) -> None:
    for name in (new_name(), standing_queue.name.upper(), standing_queue.name + ".", "_", "a_fb"):
        assert ok(Queue(standing_queue.env, name).poll(), 404) == {
            "status": "failure",
            "statusMessage": "Destination not found",
        }
