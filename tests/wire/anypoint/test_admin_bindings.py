"""Which queues are bound to which exchanges."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.wire.anypoint.answers import admin_fail, nothing, ok
from tests.wire.anypoint.destination import Exchange, Queue, new_name, rule, segment
from tests.wire.anypoint.environment import Environment
from tests.wire.anypoint.shapes import binding_object
from tests.wire.anypoint.timed import timed

RULE = rule("colour", "STRING", "EQ", "red")
BINDINGS_MAX = 450
RULED_BINDINGS_MAX = 10


def of_exchange(exchange: Exchange, query: str = "") -> list[dict[str, Any]]:
    path = f"/bindings/exchanges/{segment(exchange.name)}{query}"
    found: list[dict[str, Any]] = ok(exchange.env.admin("GET", path))
    return found


def of_queue(queue: Queue, query: str = "") -> list[dict[str, Any]]:
    path = f"/bindings/queues/{segment(queue.name)}{query}"
    found: list[dict[str, Any]] = ok(queue.env.admin("GET", path))
    return found


def get(exchange: Exchange, queue: Queue, query: str = "") -> Any:
    return exchange.env.admin("GET", exchange.binding_at(queue.name) + query)


# --- one binding ---


@pytest.mark.parametrize("content", [None, b"", b"{}", b'{"unheardOf":1}'])
def test_a_queue_is_bound(exchange: Exchange, queue: Queue, content: bytes | None) -> None:
    expected = binding_object(exchange.name, queue.name)
    path = exchange.binding_at(queue.name)
    assert ok(exchange.env.admin("PUT", path, content=content)) == expected
    assert ok(get(exchange, queue)) == expected


def test_binding_a_queue_again_changes_nothing(exchange: Exchange, queue: Queue) -> None:
    exchange.bind(queue, RULE)
    ok(exchange.env.admin("PUT", exchange.binding_at(queue.name)))
    assert of_exchange(exchange, "?inclusion=all") == [
        binding_object(exchange.name, queue.name, routingRules=[RULE])
    ]


def test_a_queue_is_unbound(exchange: Exchange, queue: Queue) -> None:
    exchange.bind(queue)
    nothing(exchange.env.admin("DELETE", exchange.binding_at(queue.name)))
    admin_fail(get(exchange, queue), 404)
    admin_fail(exchange.env.admin("DELETE", exchange.binding_at(queue.name)), 404)
    exchange.publish("nowhere to go")
    assert queue.get() == []


@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_a_queue_that_is_not_bound_has_no_binding(
    exchange: Exchange, queue: Queue, method: str
) -> None:
    admin_fail(exchange.env.admin(method, exchange.binding_at(queue.name)), 404)


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
def test_what_is_bound_must_exist(exchange: Exchange, queue: Queue, method: str) -> None:
    env = exchange.env
    unknown = Exchange(env, new_name("x"))
    response = env.admin(method, unknown.binding_at(queue.name))
    assert admin_fail(response, 404) == "exchange not found"
    response = env.admin(method, exchange.binding_at(new_name()))
    assert admin_fail(response, 404) == "queue not found"
    # Nor is either of them the other.
    response = env.admin(method, Exchange(env, queue.name).binding_at(queue.name))
    assert admin_fail(response, 404) == "exchange not found"
    response = env.admin(method, exchange.binding_at(exchange.name))
    assert admin_fail(response, 404) == "queue not found"


def test_a_fifo_queue_cannot_be_bound(exchange: Exchange, fifo_queue: Queue) -> None:
    admin_fail(exchange.env.admin("PUT", exchange.binding_at(fifo_queue.name)), 400)
    assert of_exchange(exchange) == []


def test_queues_of_another_region_are_not_in_reach(exchange: Exchange) -> None:
    other = Queue.create(exchange.env.in_region("eu-west-1"))
    response = exchange.env.admin("PUT", exchange.binding_at(other.name))
    assert admin_fail(response, 404) == "queue not found"


# --- inclusion ---


@pytest.mark.parametrize("word", ["all", "ALL", "All"])
def test_a_binding_shows_its_rule_when_asked(exchange: Exchange, queue: Queue, word: str) -> None:
    plain = Queue.create(exchange.env)
    exchange.bind(queue, RULE)
    exchange.bind(plain)
    whole = binding_object(exchange.name, queue.name, routingRules=[RULE])
    ruleless = binding_object(exchange.name, plain.name)
    query = f"?inclusion={word}"
    assert ok(get(exchange, queue, query)) == whole
    assert ok(get(exchange, plain, query)) == ruleless
    expected = sorted([whole, ruleless], key=lambda one: str(one["queueId"]))
    assert of_exchange(exchange, query) == expected
    assert of_queue(queue, query) == [whole]


@pytest.mark.parametrize("query", ["", "?inclusion=minimal", "?inclusion=MINIMAL"])
def test_a_binding_shows_no_rule_unless_asked(exchange: Exchange, queue: Queue, query: str) -> None:
    exchange.bind(queue, RULE)
    minimal = binding_object(exchange.name, queue.name)
    assert ok(get(exchange, queue, query)) == minimal
    assert of_exchange(exchange, query) == [minimal]
    assert of_queue(queue, query) == [minimal]


def test_another_inclusion_is_refused(exchange: Exchange, queue: Queue) -> None:
    exchange.bind(queue)
    assert "inclusion" in admin_fail(get(exchange, queue, "?inclusion=some"), 400)
    for path in (f"exchanges/{exchange.name}", f"queues/{queue.name}"):
        response = exchange.env.admin("GET", f"/bindings/{path}?inclusion=some")
        assert "inclusion" in admin_fail(response, 400)


# --- lists ---


@pytest.fixture(scope="module")
def wide(env: Environment) -> Exchange:
    """An exchange with 25 queues, a-00 to a-19 and b-20 to b-24, bound in another order."""
    exchange = Exchange.create(env)
    for number in sorted(range(25), key=lambda number: number * 7 % 25):
        prefix = "a" if number < 20 else "b"
        exchange.bind(Queue.create(env, f"{prefix}-{number:02}-{exchange.name}"))
    return exchange


def names(rows: list[dict[str, Any]]) -> list[str]:
    return [row["queueId"] for row in rows]


def test_bindings_come_by_queue(wide: Exchange) -> None:
    rows = of_exchange(wide)
    assert len(rows) == 25
    assert names(rows) == sorted(names(rows))
    assert rows[0] == binding_object(wide.name, f"a-00-{wide.name}")


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("limit=5", range(5)),
        ("offset=3", range(3, 23)),
        ("offset=0", range(20)),
        ("offset=3&limit=4", range(3, 7)),
        ("offset=24&limit=20", range(24, 25)),
        ("offset=25", range(0)),
        ("limit=1000", range(25)),
        ("startsWith=b-", range(20, 25)),
        ("startsWith=b-&offset=1&limit=2", range(21, 23)),
        ("startsWith=nothing", range(0)),
        ("startsWith=", range(25)),
        ("unheardOf=1", range(25)),
    ],
)
def test_part_of_the_bindings_can_be_asked_for(wide: Exchange, query: str, expected: range) -> None:
    everything = names(of_exchange(wide))
    assert names(of_exchange(wide, f"?{query}")) == [everything[number] for number in expected]


def test_a_queue_lists_the_exchanges_it_is_bound_to(queue: Queue) -> None:
    assert of_queue(queue) == []
    made = [Exchange.create(queue.env, new_name(prefix)) for prefix in ("y", "x", "x")]
    for exchange in made:
        exchange.bind(queue)
    by_name = sorted(exchange.name for exchange in made)
    assert of_queue(queue) == [binding_object(name, queue.name) for name in by_name]
    found = of_queue(queue, "?startsWith=x")
    assert [row["exchangeId"] for row in found] == by_name[:2]
    assert [row["exchangeId"] for row in of_queue(queue, "?offset=1&limit=1")] == [by_name[1]]


def test_an_exchange_without_bindings_lists_none(exchange: Exchange) -> None:
    assert of_exchange(exchange) == []


def test_unknown_things_have_no_list(env: Environment) -> None:
    response = env.admin("GET", f"/bindings/exchanges/{new_name()}")
    assert admin_fail(response, 404) == "exchange not found"
    response = env.admin("GET", f"/bindings/queues/{new_name()}")
    assert admin_fail(response, 404) == "queue not found"


# --- how many ---


@pytest.fixture
def roomy(tmp_path: Path) -> Iterator[Environment]:
    """An environment of its own, where nobody minds hundreds of queues."""
    with timed(tmp_path) as made:
        yield made.env


def put(exchange: Exchange, number: int) -> Any:
    queue = Queue.create(exchange.env, f"q-{number:03}")
    return exchange.env.admin("PUT", exchange.binding_at(queue.name))


@pytest.mark.slow
def test_an_exchange_has_up_to_450_bindings(roomy: Environment) -> None:
    exchange = Exchange.create(roomy)
    for number in range(BINDINGS_MAX):
        ok(put(exchange, number))
    assert "450" in admin_fail(put(exchange, BINDINGS_MAX), 400)
    assert len(of_exchange(exchange)) == BINDINGS_MAX
    # What is bound already may be bound again, and another takes the place of one that went.
    ok(put(exchange, 0))
    exchange.unbind(Queue(roomy, "q-000"))
    ok(put(exchange, BINDINGS_MAX))


def test_an_exchange_with_a_rule_has_up_to_10_bindings(exchange: Exchange) -> None:
    queues = [Queue.create(exchange.env) for _ in range(RULED_BINDINGS_MAX + 1)]
    for queue in queues[:RULED_BINDINGS_MAX]:
        exchange.bind(queue)
    one, last = queues[0], queues[-1]
    rule_at = exchange.binding_at(one.name, "/rules/routing")
    ok(exchange.env.admin("PUT", rule_at, {"routingRules": [RULE]}), 201)
    assert "10" in admin_fail(exchange.env.admin("PUT", exchange.binding_at(last.name)), 400)
    assert len(of_exchange(exchange)) == RULED_BINDINGS_MAX
    nothing(exchange.env.admin("DELETE", rule_at))
    exchange.bind(last)


def test_an_exchange_with_more_than_10_bindings_takes_no_rule(exchange: Exchange) -> None:
    queues = [Queue.create(exchange.env) for _ in range(RULED_BINDINGS_MAX + 1)]
    for queue in queues:
        exchange.bind(queue)
    rule_at = exchange.binding_at(queues[0].name, "/rules/routing")
    sent = {"routingRules": [RULE]}
    assert "10" in admin_fail(exchange.env.admin("PUT", rule_at, sent), 400)
    exchange.publish("to all")
    assert [queue.get_one().body for queue in queues] == ["to all"] * len(queues)
    exchange.unbind(queues[-1])
    ok(exchange.env.admin("PUT", rule_at, sent), 201)
