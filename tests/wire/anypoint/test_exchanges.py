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

CASES: list[tuple[str, str, Any, list[Any], list[Any]]] = [
    # type, matcher, value: what it holds for, and what not
    ("STRING", "EQ", "red", ["red"], ["Red", "redd", " red", "", 5, True, ["red"], ABSENT]),
    ("STRING", "EQ", "5", ["5"], [5, 5.0, "5.0", "05"]),
    ("STRING", "EQ", "(@!&|#$%-_:;,.')\t 9", ["(@!&|#$%-_:;,.')\t 9"], ["(@!&|#$%-_:;,.')"]),
    ("STRING", "EQ", "true", ["true"], [True, "True"]),
    ("STRING", "PREFIX", "ord", ["ord", "order", "ord 7"], ["or", "Ord", " ord", "", 5, ABSENT]),
    ("STRING", "PREFIX", "4", ["4", "42"], [4, 42, "04"]),
    ("STRING", "ANY_OF", ["a", "b"], ["a", "b"], ["c", "A", "ab", "", 1, True, ["a"], ABSENT]),
    ("STRING", "ANY_OF", ["1"], ["1"], [1]),
    ("STRING", "NONE_OF", ["a", "b"], ["c", "A", ""], ["a", "b", 1, True, {}, ABSENT]),
    ("STRING", "EXISTS", True, ["x", "", 5, True, False, [], {}], [ABSENT]),
    ("STRING", "EXISTS", False, [ABSENT], ["x", "", True, {}]),
    ("NUMERIC", "EQ", 5, [5, 5.0], [6, 5.1, -5, "5", [5], ABSENT]),
    ("NUMERIC", "EQ", 1, [1, 1.0], [True, "1"]),
    ("NUMERIC", "EQ", 0, [0, -0.0], [False, ""]),
    ("NUMERIC", "EQ", -2.5, [-2.5], [2.5, -2]),
    ("NUMERIC", "LT", 5, [4, 4.999, -10, -(10**12)], [5, 5.0, 6, "4", ABSENT]),
    ("NUMERIC", "LE", 5, [5, 5.0, 4], [5.001, 6, "5", ABSENT]),
    ("NUMERIC", "GT", 5, [5.001, 6, 10**12], [5, 4, -6, "6", ABSENT]),
    ("NUMERIC", "GE", 5, [5, 5.0, 6], [4.999, 4, "6", True, ABSENT]),
    ("NUMERIC", "RANGE", [1, 5], [1, 5, 3.3, 1.0], [0.999, 5.001, -3, "3", [3], ABSENT]),
    ("NUMERIC", "RANGE", [-1.5, -0.5], [-1.5, -1, -0.5], [0, -2]),
    ("NUMERIC", "NONE_OF", [1, 2], [3, 0, -1, 1.5], [1, 2, 2.0, "3", True, ABSENT]),
    ("NUMERIC", "EXISTS", True, [5, 0, "x", True, {}], [ABSENT]),
    ("NUMERIC", "EXISTS", False, [ABSENT], [5, 0]),
]


@pytest.mark.parametrize(("kind", "matcher", "wanted", "good", "bad"), CASES)
def test_a_rule_decides_by_type_and_value(
    exchange: Exchange,
    bound: Callable[..., Queue],
    kind: str,
    matcher: str,
    wanted: Any,
    good: list[Any],
    bad: list[Any],
) -> None:
    queue = bound(rule("key", kind, matcher, wanted))
    values = [*good, *bad]
    for start in range(0, len(values), 10):
        items = []
        for number, value in enumerate(values[start : start + 10], start):
            item: dict[str, Any] = {
                "headers": {"messageId": str(number), "other": "red"},
                "properties": {"KEY": 5},
                "body": str(number),
            }
            if value is not ABSENT:
                item["properties"]["key"] = value
            items.append(item)
        assert all(each["status"] == "successful" for each in results(exchange.put_batch(items)))
    assert [message.id for message in queue.get()] == [str(number) for number in range(len(good))]


@pytest.mark.parametrize(
    ("given", "header", "prop", "holds"),
    [
        (rule("key", "STRING", "EQ", "a"), "a", "b", True),
        (rule("key", "STRING", "EQ", "a"), "b", "a", True),
        (rule("key", "STRING", "EQ", "a"), "b", "c", False),
        (rule("key", "STRING", "EQ", "a"), 5, "a", True),
        (rule("key", "STRING", "NONE_OF", ["a"]), "a", "b", True),
        (rule("key", "STRING", "NONE_OF", ["a"]), "a", 5, False),
        (rule("key", "NUMERIC", "GT", 5), 1, 9, True),
        (rule("key", "NUMERIC", "GT", 5), "9", 9, True),
        (rule("key", "NUMERIC", "GT", 5), 1, 2, False),
    ],
)
def test_a_rule_holds_if_header_or_property_satisfies_it(
    exchange: Exchange,
    bound: Callable[..., Queue],
    given: dict[str, Any],
    header: Any,
    prop: Any,
    holds: bool,
) -> None:
    queue = bound(given)
    exchange.publish("a", headers={"key": header}, properties={"key": prop})
    assert bodies(queue.get()) == (["a"] if holds else [])


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


def test_each_binding_has_its_own_rule(exchange: Exchange, bound: Callable[..., Queue]) -> None:
    cheap = bound(rule("price", "NUMERIC", "LT", 10))
    dear = bound(rule("price", "NUMERIC", "GE", 10))
    named = bound(rule("price", "STRING", "EXISTS", True))
    for price in (5, 10, "ask"):
        exchange.publish(str(price), properties={"price": price})
    assert bodies(cheap.get()) == ["5"]
    assert bodies(dear.get()) == ["10"]
    assert bodies(named.get()) == ["5", "10", "ask"]


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
