"""The list of queues and exchanges: which, in what order, how much of each, and in pages."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.wire.anypoint.answers import admin_fail, ok
from tests.wire.anypoint.destination import Exchange, Queue
from tests.wire.anypoint.environment import Environment
from tests.wire.anypoint.shapes import exchange_object, queue_object

QUEUES = [f"order.{number:02}" for number in range(12)] + ["Zebra", "apple", "apple.x", "b-q"]
EXCHANGES = [f"event.{number:02}" for number in range(8)] + ["B-x", "apple.w"]
EVERYTHING = sorted(QUEUES + EXCHANGES)


@pytest.fixture(scope="module")
def listed(new_environment: Callable[..., Environment]) -> Environment:
    """An environment that holds these and nothing else, made in another order."""
    env = new_environment()
    for name in sorted(QUEUES, key=lambda name: name[::-1]):
        Queue.create(env, name, fifo=name == "Zebra")
    for name in sorted(EXCHANGES, key=lambda name: name[::-1]):
        Exchange.create(env, name, encrypted=name == "B-x")
    return env


def rows(env: Environment, query: str = "") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = ok(env.admin("GET", f"/destinations{query}"))
    return found


def ids(env: Environment, query: str = "") -> list[str]:
    return [
        row["queueId"] if row["type"] == "queue" else row["exchangeId"] for row in rows(env, query)
    ]


def test_an_empty_environment_has_an_empty_list(
    new_environment: Callable[..., Environment],
) -> None:
    env = new_environment()
    assert rows(env) == []
    assert rows(env, "?offset=0&limit=20") == []


def test_queues_and_exchanges_are_listed_together_by_id(listed: Environment) -> None:
    assert ids(listed) == EVERYTHING
    assert ids(listed, "?destinationType=all") == EVERYTHING


def test_a_list_holds_whole_objects(listed: Environment) -> None:
    for query in ("", "?inclusion=all", "?inclusion=ALL", "?inclusion=All"):
        assert rows(listed, query) == [
            queue_object(name, fifo=name == "Zebra")
            if name in QUEUES
            else exchange_object(name, encrypted=name == "B-x")
            for name in EVERYTHING
        ]


@pytest.mark.parametrize("word", ["minimal", "MINIMAL"])
def test_a_minimal_list_holds_ids_types_and_fifo(listed: Environment, word: str) -> None:
    assert rows(listed, f"?inclusion={word}") == [
        {"type": "queue", "queueId": name, "fifo": name == "Zebra"}
        if name in QUEUES
        else {"type": "exchange", "exchangeId": name}
        for name in EVERYTHING
    ]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("destinationType=queue", sorted(QUEUES)),
        ("destinationType=exchange", sorted(EXCHANGES)),
        ("startsWith=apple", ["apple", "apple.w", "apple.x"]),
        ("startsWith=apple.", ["apple.w", "apple.x"]),
        ("startsWith=order", QUEUES[:12]),
        ("startsWith=Apple", []),
        ("startsWith=", EVERYTHING),
        ("startsWith=%25", []),
        ("startsWith=apple&destinationType=exchange", ["apple.w"]),
        ("destinationIds=apple", ["apple"]),
        ("destinationIds=order.03,apple.w,nothing", ["apple.w", "order.03"]),
        ("destinationIds=order.03&destinationIds=apple.w", ["apple.w", "order.03"]),
        ("destinationIds=apple,apple,apple", ["apple"]),
        ("destinationIds=apple,apple.w&destinationType=queue", ["apple"]),
        ("destinationIds=apple,b-q&startsWith=b", ["b-q"]),
        ("destinationIds=nothing", []),
        ("unheardOf=1&limit2=x", EVERYTHING),
    ],
)
def test_a_list_can_be_narrowed(listed: Environment, query: str, expected: list[str]) -> None:
    assert ids(listed, f"?{query}") == expected


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("offset=0", EVERYTHING[:20]),
        ("limit=20", EVERYTHING[:20]),
        ("offset=0&limit=20", EVERYTHING[:20]),
        ("offset=20", EVERYTHING[20:]),
        ("offset=5", EVERYTHING[5:25]),
        ("limit=3", EVERYTHING[:3]),
        ("limit=1000", EVERYTHING),
        ("offset=4&limit=3", EVERYTHING[4:7]),
        ("offset=25&limit=3", EVERYTHING[25:]),
        ("offset=26", []),
        ("offset=1000", []),
        ("offset=2&limit=5&destinationType=exchange", sorted(EXCHANGES)[2:7]),
        ("offset=1&limit=1&startsWith=apple", ["apple.w"]),
    ],
)
def test_a_list_comes_in_pages_when_asked(
    listed: Environment, query: str, expected: list[str]
) -> None:
    assert ids(listed, f"?{query}") == expected


def test_pages_add_up_to_the_list(listed: Environment) -> None:
    gathered: list[str] = []
    while page := ids(listed, f"?limit=7&offset={len(gathered)}"):
        gathered += page
    assert gathered == EVERYTHING


@pytest.mark.parametrize(
    "query",
    [
        *(f"offset={value}" for value in ("-1", "x", "1.5", "", "9" * 40)),
        *(f"limit={value}" for value in ("-1", "x", "1.5", "", "9" * 40)),
        "destinationType=topic",
        "destinationType=",
        "inclusion=some",
        "inclusion=",
    ],
)
def test_a_bad_query_is_refused(listed: Environment, query: str) -> None:
    message = admin_fail(listed.admin("GET", f"/destinations?{query}"), 400)
    assert query.partition("=")[0] in message
