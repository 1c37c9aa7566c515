"""Exchanges through the admin API."""

from typing import Any

import pytest

from tests.wire.anypoint.answers import admin_fail, nothing, ok
from tests.wire.anypoint.destination import Exchange, Queue, new_name, segment
from tests.wire.anypoint.environment import Environment
from tests.wire.anypoint.shapes import exchange_object


def at(name: str) -> str:
    return f"/destinations/exchanges/{segment(name)}"


@pytest.mark.parametrize(
    ("sent", "encrypted"),
    [
        ({}, False),
        ({"encrypted": False}, False),
        ({"encrypted": True}, True),
        ({"encrypted": None}, False),
        ({"type": "exchange", "exchangeId": "another", "unheardOf": 1}, False),
    ],
)
def test_an_exchange_is_as_it_was_made(
    env: Environment, sent: dict[str, Any], encrypted: bool
) -> None:
    name = new_name("x")
    expected = exchange_object(name, encrypted=encrypted)
    assert ok(env.admin("PUT", at(name), sent)) == expected
    assert ok(env.admin("GET", at(name))) == expected


@pytest.mark.parametrize("content", [None, b"", b" "])
def test_an_exchange_needs_no_body(env: Environment, content: bytes | None) -> None:
    name = new_name("x")
    assert ok(env.admin("PUT", at(name), content=content)) == exchange_object(name)


@pytest.mark.parametrize("name", ["a" * 128, "a_b", "a b", "a/b", "ä", "a@eu-west-1", "a,b"])
def test_a_bad_name_is_refused(env: Environment, name: str) -> None:
    assert "exchangeId" in admin_fail(env.admin("PUT", at(name), {}), 400)
    assert admin_fail(env.admin("GET", at(name)), 404) == "exchange not found"


def test_the_longest_name_is_good(env: Environment) -> None:
    name = new_name("x" * 100)[:117] + "." * 10
    assert len(name) == 127
    assert ok(env.admin("PUT", at(name), {})) == exchange_object(name)


def test_a_name_is_an_exchanges_or_a_queues(queue: Queue) -> None:
    assert queue.name in admin_fail(queue.env.admin("PUT", at(queue.name), {}), 400)
    response = queue.env.admin("GET", at(queue.name))
    assert admin_fail(response, 404) == "exchange not found"


def test_putting_an_exchange_again_replaces_its_settings(exchange: Exchange) -> None:
    env, name = exchange.env, exchange.name
    on, off = exchange_object(name, encrypted=True), exchange_object(name)
    assert ok(env.admin("PUT", at(name), {"encrypted": True})) == on
    assert ok(env.admin("PUT", at(name), {"encrypted": True})) == on
    assert ok(env.admin("PUT", at(name), {})) == off


def test_putting_an_exchange_again_keeps_its_bindings(exchange: Exchange, queue: Queue) -> None:
    exchange.bind(queue)
    ok(exchange.env.admin("PUT", at(exchange.name), {"encrypted": True}))
    exchange.publish("through")
    assert queue.get_one().body == "through"


def test_a_patch_changes_what_it_names(exchange: Exchange) -> None:
    env, name = exchange.env, exchange.name
    on, off = exchange_object(name, encrypted=True), exchange_object(name)
    assert ok(env.admin("PATCH", at(name), {"encrypted": True})) == on
    assert ok(env.admin("PATCH", at(name), {})) == on
    assert ok(env.admin("PATCH", at(name), {"encrypted": None})) == on
    assert ok(env.admin("GET", at(name))) == on
    assert ok(env.admin("PATCH", at(name), {"encrypted": False})) == off
    assert "encrypted" in admin_fail(env.admin("PATCH", at(name), {"encrypted": "no"}), 400)


@pytest.mark.parametrize("method", ["GET", "PATCH", "DELETE"])
def test_an_unknown_exchange_is_not_found(env: Environment, method: str) -> None:
    body = {"encrypted": True} if method == "PATCH" else None
    response = env.admin(method, at(new_name("x")), body)
    assert admin_fail(response, 404) == "exchange not found"
    assert response.json() == {"status": 404, "message": "exchange not found"}


def test_a_deleted_exchange_is_gone_with_its_bindings(exchange: Exchange, queue: Queue) -> None:
    env = exchange.env
    exchange.bind(queue)
    nothing(env.admin("DELETE", at(exchange.name)))
    assert admin_fail(env.admin("GET", at(exchange.name)), 404) == "exchange not found"
    assert admin_fail(env.admin("DELETE", at(exchange.name)), 404) == "exchange not found"
    assert ok(env.admin("GET", f"/bindings/queues/{queue.name}")) == []
    Exchange.create(env, exchange.name).publish("nowhere to go")
    assert queue.get() == []
