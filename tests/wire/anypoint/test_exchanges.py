"""Publishing to an exchange: a copy for every bound queue whose rule holds, or for none."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.wire.anypoint.answers import fail, ok, result, results
from tests.wire.anypoint.destination import (
    Exchange,
    Queue,
    bodies,
    new_name,
    rule,
)
from tests.wire.anypoint.environment import Environment

ABSENT = object()


@pytest.fixture
def bound(env: Environment, exchange: Exchange) -> Callable[..., Queue]:
    """Makes a queue that is bound to the exchange."""

    def make(given: dict[str, Any] | None = None, **settings: Any) -> Queue:
        queue = Queue.create(env, **settings)
        exchange.bind(queue, given)
        return queue

    return make


# --- copies ---


def test_every_bound_queue_gets_a_copy_of_its_own(
    exchange: Exchange, bound: Callable[..., Queue]
) -> None:
    queues = [bound() for _ in range(3)]
    exchange.publish("hello", id="a/b", headers={"own": 1}, properties={"p": [True]})
    copies = [queue.get_one() for queue in queues]
    for copy in copies:
        assert (copy.id, copy.body, copy.properties) == ("a/b", "hello", {"p": [True]})
        assert (copy.headers["own"], copy.count) == (1, 1)
    assert len({copy.lock for copy in copies}) == 3
    first, second, third = queues
    first.ack(copies[0])
    second.nack(copies[1])
    assert first.get() == []
    assert second.get_one().count == 2
    assert third.get() == []


def test_without_a_binding_a_message_is_dropped_with_success(exchange: Exchange) -> None:
    result(exchange.put("m", {"body": "a"}), "m", 201)
    answered = results(exchange.put_batch([{"body": "a"}, {"body": "b"}]))
    assert [each["status"] for each in answered] == ["successful"] * 2


def test_without_a_match_a_message_is_dropped_with_success(
    exchange: Exchange, bound: Callable[..., Queue]
) -> None:
    queue = bound(rule("colour", "STRING", "EQ", "red"))
    exchange.publish("a", properties={"colour": "blue"})
    assert queue.get() == []


def test_a_batch_is_routed_message_by_message(
    exchange: Exchange, bound: Callable[..., Queue]
) -> None:
    everything = bound()
    red = bound(rule("colour", "STRING", "EQ", "red"))
    items: list[dict[str, Any]] = [
        {"headers": {"messageId": "1"}, "body": "1", "properties": {"colour": "red"}},
        {"headers": {"messageId": "2"}, "body": "2", "properties": {"colour": "blue"}},
        {"headers": {"messageId": "3"}, "body": 3, "properties": {"colour": "red"}},
        {"headers": {"messageId": "4", "colour": "red"}, "body": "4"},
    ]
    answered = results(exchange.put_batch(items))
    assert [(each["messageId"], each["status"]) for each in answered] == [
        ("1", "successful"),
        ("2", "successful"),
        ("3", "failure"),
        ("4", "successful"),
    ]
    assert bodies(everything.get()) == ["1", "2", "4"]
    assert bodies(red.get()) == ["1", "4"]


@pytest.mark.parametrize(
    "message",
    [{"body": 5}, {"headers": {"ttl": 0}}, {"headers": {"deliveryDelay": -1}}, {"properties": []}],
)
def test_a_bad_message_is_refused_like_on_a_queue(
    exchange: Exchange, bound: Callable[..., Queue], message: dict[str, Any]
) -> None:
    queue = bound()
    fail(exchange.put("m", message), 400, "m")
    assert queue.get() == []


def test_changes_of_bindings_and_rules_count_at_once(exchange: Exchange, queue: Queue) -> None:
    env = exchange.env
    exchange.publish("before")
    exchange.bind(queue)
    exchange.publish("bound")
    exchange.bind(queue, rule("colour", "STRING", "EQ", "red"))
    exchange.publish("blue", properties={"colour": "blue"})
    exchange.publish("red", properties={"colour": "red"})
    exchange.bind(queue, rule("colour", "STRING", "EQ", "blue"))
    exchange.publish("blue again", properties={"colour": "blue"})
    env.admin("DELETE", exchange.binding_at(queue.name, "/rules/routing"))
    exchange.publish("no rule")
    exchange.unbind(queue)
    exchange.publish("unbound")
    assert bodies(queue.get()) == ["bound", "red", "blue again", "no rule"]


def test_a_deleted_exchange_is_not_found(exchange: Exchange, queue: Queue) -> None:
    exchange.bind(queue)
    exchange.delete()
    assert fail(exchange.put("m", {"body": "a"}), 404, "m") == "Destination not found"
    assert queue.get() == []


def test_a_frozen_queue_keeps_the_message_from_all(
    operator: httpx.Client, exchange: Exchange, bound: Callable[..., Queue]
) -> None:
    first, frozen = bound(), bound()
    path = f"/tenants/default/queues/{frozen.name}/frozen"
    assert operator.put(path, json={"frozen": True}).is_success
    fail(exchange.put("m", {"body": "a"}), 503, "m")
    assert operator.put(path, json={"frozen": False}).is_success
    assert (first.get(), frozen.get()) == ([], [])
    exchange.publish("b")
    assert (bodies(first.get()), bodies(frozen.get())) == (["b"], ["b"])


# --- rules ---

# What a rule holds for is in tests/core/test_routing; here is each word for one.
# type, matcher, value: what it holds for, and what not
WORDS: list[tuple[str, str, Any, Any, Any]] = [
    ("STRING", "EQ", "(@!&|#$%-_:;,.')\t 9", "(@!&|#$%-_:;,.')\t 9", "(@!&|#$%-_:;,.')"),
    ("STRING", "PREFIX", "ord", "order", "or"),
    ("STRING", "ANY_OF", ["a", "b"], "b", "c"),
    ("STRING", "NONE_OF", ["a", "b"], "c", "b"),
    ("STRING", "EXISTS", True, 5, ABSENT),
    ("STRING", "EXISTS", False, ABSENT, "x"),
    ("NUMERIC", "EQ", 1, 1.0, True),
    ("NUMERIC", "LT", 5, 4.999, 5),
    ("NUMERIC", "LE", 5, 5, 5.001),
    ("NUMERIC", "GT", 5, 5.001, 5),
    ("NUMERIC", "GE", 5, 5, 4.999),
    ("NUMERIC", "RANGE", [1, 5], 5, 5.001),
    ("NUMERIC", "NONE_OF", [1, 2], 3, 2.0),
    ("NUMERIC", "EXISTS", True, 5, ABSENT),
    ("NUMERIC", "EXISTS", False, ABSENT, 0),
]


def test_every_word_of_a_rule_is_understood(exchange: Exchange, queue: Queue) -> None:
    exchange.bind(queue)
    for kind, matcher, wanted, good, bad in WORDS:
        exchange.bind(queue, rule("key", kind, matcher, wanted))
        for body, value in (("good", good), ("bad", bad)):
            properties = {"KEY": 5} if value is ABSENT else {"KEY": 5, "key": value}
            exchange.publish(body, headers={"other": "red"}, properties=properties)
        found = queue.get()
        assert bodies(found) == ["good"], (kind, matcher, wanted)
        queue.ack(found[0])


@pytest.mark.parametrize("place", ["headers", "properties"])
def test_a_name_in_either_place_exists(
    exchange: Exchange, bound: Callable[..., Queue], place: str
) -> None:
    there = bound(rule("key", "STRING", "EXISTS", True))
    absent = bound(rule("key", "STRING", "EXISTS", False))
    exchange.put("m", {place: {"key": "x"}, "body": "with"})
    exchange.put("n", {"body": "without"})
    assert (bodies(there.get()), bodies(absent.get())) == (["with"], ["without"])


def test_rules_see_the_headers_that_the_broker_reads(
    exchange: Exchange, bound: Callable[..., Queue]
) -> None:
    by_id = bound(rule("messageId", "STRING", "PREFIX", "order."))
    by_group = bound(rule("messageGroupId", "STRING", "EQ", "g"))
    by_ttl = bound(rule("ttl", "NUMERIC", "GE", 60_000))
    exchange.publish("1", id="order.1")
    exchange.publish("2", headers={"messageGroupId": "g", "ttl": 70_000})
    assert (bodies(by_id.get()), bodies(by_group.get()), bodies(by_ttl.get())) == (
        ["1"],
        ["2"],
        ["2"],
    )


@pytest.mark.parametrize(
    ("in_headers", "in_properties", "seen"),
    [
        (1, 498, True),
        (1, 499, False),
        (250, 249, True),
        (250, 250, False),
        (499, 0, True),
        (500, 0, False),
        (300, 700, False),
    ],
)
def test_rules_see_nothing_of_a_message_with_500_headers(
    exchange: Exchange,
    bound: Callable[..., Queue],
    in_headers: int,
    in_properties: int,
    seen: bool,
) -> None:
    """The id counts among the headers."""
    equal = bound(rule("key", "STRING", "EQ", "x"))
    absent = bound(rule("key", "STRING", "EXISTS", False))
    everything = bound()
    headers = {"messageId": "m", **{f"h{number}": number for number in range(in_headers - 1)}}
    properties = {f"p{number}": number for number in range(in_properties)}
    (properties if in_properties else headers).popitem()
    (properties if in_properties else headers)["key"] = "x"  # type: ignore[assignment]
    assert len(headers) + len(properties) == in_headers + in_properties
    item = {"headers": headers, "properties": properties, "body": "a"}
    [answered] = results(exchange.put_batch([item]))
    assert answered["status"] == "successful"
    copy = everything.get_one()
    assert copy.properties == properties
    assert bodies(equal.get()) == (["a"] if seen else [])
    assert bodies(absent.get()) == ([] if seen else ["a"])


@pytest.mark.parametrize(("size", "seen"), [(214_000, True), (221_000, False)])
@pytest.mark.parametrize("place", ["headers", "properties", "both"])
def test_rules_see_nothing_of_a_message_with_too_long_headers(
    exchange: Exchange, bound: Callable[..., Queue], place: str, size: int, seen: bool
) -> None:
    """215 KB are the limit, for headers and properties together."""
    equal = bound(rule("key", "STRING", "EQ", "x"))
    absent = bound(rule("key", "STRING", "EXISTS", False))
    everything = bound()
    headers: dict[str, Any] = {"key": "x"}
    properties: dict[str, Any] = {"other": "x"}
    if place == "both":
        headers["long"] = properties["long"] = "y" * (size // 2)
    else:
        (headers if place == "headers" else properties)["long"] = "y" * size
    exchange.publish("a", headers=headers, properties=properties)
    assert everything.get_one().properties == properties
    assert bodies(equal.get()) == (["a"] if seen else [])
    assert bodies(absent.get()) == ([] if seen else ["a"])


# --- what an exchange is not ---


def test_an_unknown_exchange_is_not_found(env: Environment) -> None:
    nowhere = Exchange(env, new_name("x"))
    assert ok(nowhere.put_batch([{"body": "a"}]), 404) == {
        "status": "failure",
        "statusMessage": "Destination not found",
    }
