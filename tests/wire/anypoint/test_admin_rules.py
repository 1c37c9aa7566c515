"""Routing rules: which are accepted, how they are shown, and which make no sense."""

import json
from typing import Any

import pytest

from tests.wire.anypoint.answers import admin_fail, nothing, ok
from tests.wire.anypoint.destination import Exchange, Queue, new_name, rule
from tests.wire.anypoint.environment import Environment
from tests.wire.anypoint.shapes import binding_object

VALUE_BYTES_MAX = 45 * 1_024
NUMBER_MAX = 10**9
ALLOWED = "azAZ09 \t()@!&|#$%-_:;,.'"
TEXTS_MAX = [f"v{number}" for number in range(150)]
NUMERIC = ("EQ", "LT", "LE", "GT", "GE")


@pytest.fixture(scope="module")
def bound(env: Environment) -> tuple[Exchange, Queue]:
    """An exchange with one queue, whose rule each test sets anew."""
    exchange, queue = Exchange.create(env), Queue.create(env)
    exchange.bind(queue)
    return exchange, queue


def put(bound: tuple[Exchange, Queue], *rules: Any) -> Any:
    exchange, queue = bound
    path = exchange.binding_at(queue.name, "/rules/routing")
    return exchange.env.admin("PUT", path, {"routingRules": list(rules)})


def shown(bound: tuple[Exchange, Queue]) -> Any:
    exchange, queue = bound
    return ok(exchange.env.admin("GET", exchange.binding_at(queue.name) + "?inclusion=all"))


def clear(bound: tuple[Exchange, Queue]) -> None:
    exchange, queue = bound
    nothing(exchange.env.admin("DELETE", exchange.binding_at(queue.name, "/rules/routing")))


GOOD: list[tuple[str, str, Any]] = [
    ("STRING", "EQ", "red"),
    ("STRING", "EQ", " "),
    ("STRING", "EQ", ALLOWED),
    ("STRING", "EQ", "x" * VALUE_BYTES_MAX),
    ("STRING", "PREFIX", "re"),
    ("STRING", "PREFIX", ALLOWED),
    ("STRING", "ANY_OF", ["red"]),
    ("STRING", "ANY_OF", ["red", "green", "red"]),
    ("STRING", "ANY_OF", TEXTS_MAX),
    ("STRING", "NONE_OF", ["red"]),
    ("STRING", "NONE_OF", TEXTS_MAX),
    ("STRING", "EXISTS", True),
    ("STRING", "EXISTS", False),
    *(
        ("NUMERIC", matcher, value)
        for matcher in NUMERIC
        for value in (0, -1, 1.5, NUMBER_MAX, -NUMBER_MAX)
    ),
    ("NUMERIC", "RANGE", [1, 2]),
    ("NUMERIC", "RANGE", [-NUMBER_MAX, NUMBER_MAX]),
    ("NUMERIC", "RANGE", [0.5, 0.75]),
    ("NUMERIC", "NONE_OF", [1]),
    ("NUMERIC", "NONE_OF", [1, 2.5, -3]),
    ("NUMERIC", "NONE_OF", list(range(150))),
    ("NUMERIC", "EXISTS", True),
    ("NUMERIC", "EXISTS", False),
]


def test_a_good_rule_is_shown_as_it_was_set(bound: tuple[Exchange, Queue]) -> None:
    exchange, queue = bound
    for kind, matcher, value in GOOD:
        wanted = rule("colour", kind, matcher, value)
        answer = ok(put(bound, wanted), 201)
        assert answer == {
            "queueId": queue.name,
            "exchangeId": exchange.name,
            "routingRules": [wanted],
        }
        assert shown(bound) == binding_object(exchange.name, queue.name, routingRules=[wanted])
        # To Python 1 equals 1.0 and True; to a client they differ.
        assert json.dumps(answer["routingRules"][0]["value"]) == json.dumps(value)


NO_TEXT: list[Any] = ["", 5, True, None, ["red"], {}, *(f"a{c}b" for c in '*"/\\=<?{^~'), "€"]
NO_TEXTS: list[Any] = ["red", None, [], [""], [5], [None], ["red", "a*b"], [["red"]]]
NO_NUMBER: list[Any] = ["5", True, None, [5], {}, NUMBER_MAX + 1, -NUMBER_MAX - 1, 1e10, 10**30]
NO_NUMBERS: list[Any] = [5, None, [], ["5"], [True], [None], [NUMBER_MAX + 1], [1, "2"]]
NO_RANGE: list[Any] = [5, None, "1,2", {"low": 1, "high": 2}, [], [1], [1, 2, 3], [2, 1], [1, 1]]
NO_RANGE += [["1", "2"], [1, True], [1, None], [0, NUMBER_MAX + 1]]
NO_FLAG: list[Any] = [1, 0, "true", None, [True], {}]

BAD: list[tuple[Any, Any, Any]] = [
    # not of the property's type, or not of any
    *(("STRING", matcher, "1") for matcher in ("LT", "LE", "GT", "GE", "RANGE", "eq", "", None)),
    *(("NUMERIC", matcher, 1) for matcher in ("PREFIX", "ANY_OF", "eq", "", None)),
    *((kind, "EQ", "x") for kind in ("string", "TEXT", "BOOLEAN", "", None, 5)),
    *(("STRING", matcher, value) for matcher in ("EQ", "PREFIX") for value in NO_TEXT),
    *(("STRING", matcher, "x" * (VALUE_BYTES_MAX + 1)) for matcher in ("EQ", "PREFIX")),
    *(("STRING", matcher, value) for matcher in ("ANY_OF", "NONE_OF") for value in NO_TEXTS),
    *(("STRING", matcher, [*TEXTS_MAX, "more"]) for matcher in ("ANY_OF", "NONE_OF")),
    *(("NUMERIC", matcher, value) for matcher in NUMERIC for value in NO_NUMBER),
    *(("NUMERIC", "RANGE", value) for value in NO_RANGE),
    *(("NUMERIC", "NONE_OF", value) for value in [*NO_NUMBERS, list(range(151))]),
    *((kind, "EXISTS", value) for kind in ("STRING", "NUMERIC") for value in NO_FLAG),
]


def test_a_rule_that_makes_no_sense_is_refused(bound: tuple[Exchange, Queue]) -> None:
    exchange, queue = bound
    before = rule("before", "STRING", "EQ", "before")
    ok(put(bound, before), 201)
    for kind, matcher, value in BAD:
        response = put(bound, rule("colour", kind, matcher, value))
        assert response.status_code == 400, (kind, matcher, value, response.text)
        assert "routingRules" in admin_fail(response, 400)
    assert shown(bound) == binding_object(exchange.name, queue.name, routingRules=[before])


def test_a_property_name_has_1_to_180_bytes(bound: tuple[Exchange, Queue]) -> None:
    for name in ("a", "a" * 180, "é" * 90, "with blank", "x.y-z_0", "*"):
        wanted = rule(name, "STRING", "EXISTS", True)
        assert ok(put(bound, wanted), 201)["routingRules"] == [wanted]
    for name in ("", "a" * 181, "é" * 91):
        response = put(bound, rule(name, "STRING", "EXISTS", True))
        assert "propertyName" in admin_fail(response, 400)


def test_a_rule_needs_all_its_members(bound: tuple[Exchange, Queue]) -> None:
    for member in ("propertyName", "propertyType", "matcherType", "value"):
        whole = rule("colour", "STRING", "EQ", "red")
        del whole[member]
        assert member in admin_fail(put(bound, whole), 400)


def test_there_is_exactly_one_rule(bound: tuple[Exchange, Queue]) -> None:
    exchange, queue = bound
    for count in (0, 2, 3):
        rules = [rule("colour", "STRING", "EQ", "red")] * count
        assert "routingRules" in admin_fail(put(bound, *rules), 400)
    for sent in ({}, {"routingRules": None}):
        path = exchange.binding_at(queue.name, "/rules/routing")
        admin_fail(exchange.env.admin("PUT", path, sent), 400)


def test_another_rule_takes_the_place_of_the_first(bound: tuple[Exchange, Queue]) -> None:
    ok(put(bound, rule("colour", "STRING", "EQ", "red")), 201)
    second = rule("size", "NUMERIC", "GT", 5)
    ok(put(bound, second), 201)
    assert shown(bound)["routingRules"] == [second]


def test_a_rule_is_deleted_whether_there_is_one_or_not(bound: tuple[Exchange, Queue]) -> None:
    exchange, queue = bound
    ok(put(bound, rule("colour", "STRING", "EQ", "red")), 201)
    clear(bound)
    assert shown(bound) == binding_object(exchange.name, queue.name)
    clear(bound)


@pytest.mark.parametrize("method", ["PUT", "DELETE"])
def test_a_rule_needs_a_binding(exchange: Exchange, queue: Queue, method: str) -> None:
    env = exchange.env
    body = {"routingRules": [rule("colour", "STRING", "EQ", "red")]} if method == "PUT" else None
    path = exchange.binding_at(queue.name, "/rules/routing")
    admin_fail(env.admin(method, path, body), 404)
    path = exchange.binding_at(new_name(), "/rules/routing")
    assert admin_fail(env.admin(method, path, body), 404) == "queue not found"
    path = Exchange(env, new_name("x")).binding_at(queue.name, "/rules/routing")
    assert admin_fail(env.admin(method, path, body), 404) == "exchange not found"
