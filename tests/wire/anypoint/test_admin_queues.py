"""Queues through the admin API: their settings, their names, and their end."""

from typing import Any

import pytest

from tests.wire.anypoint.answers import admin_fail, nothing, ok
from tests.wire.anypoint.destination import Exchange, Queue, new_name, segment
from tests.wire.anypoint.environment import Environment
from tests.wire.anypoint.shapes import (
    DELAY_MAX,
    LOCK_TTL_MAX,
    TTL_MAX,
    queue_object,
)

CHANGED: dict[str, Any] = {
    "defaultTtl": 60_000,
    "defaultLockTtl": 5_000,
    "defaultDeliveryDelay": 1_000,
    "encrypted": True,
}
NUMBERS = {"defaultTtl": TTL_MAX, "defaultLockTtl": LOCK_TTL_MAX, "defaultDeliveryDelay": DELAY_MAX}
NO_NUMBER: list[Any] = [-1, 1.5, True, "x", "", "1.5", "-1", " 5", [], {}, 10**30, "9" * 40]


def at(name: str) -> str:
    return f"/destinations/queues/{segment(name)}"


def put(env: Environment, name: str, **settings: Any) -> dict[str, Any]:
    answer: dict[str, Any] = ok(env.admin("PUT", at(name), settings))
    return answer


# --- creating ---


def test_a_queue_without_settings_has_the_defaults(env: Environment) -> None:
    name = new_name()
    assert put(env, name) == queue_object(name)
    assert ok(env.admin("GET", at(name))) == queue_object(name)


@pytest.mark.parametrize("fifo", [False, True])
def test_a_queue_has_the_settings_it_was_made_with(env: Environment, fifo: bool) -> None:
    name = new_name()
    expected = queue_object(name, fifo=fifo, **CHANGED)
    assert put(env, name, fifo=fifo, **CHANGED) == expected
    assert ok(env.admin("GET", at(name))) == expected


def test_members_that_cannot_be_set_are_ignored(env: Environment) -> None:
    name = new_name()
    sent = {
        "queueId": "another",
        "type": "exchange",
        "isFallback": True,
        "deadLetterSources": ["another"],
        "fallbackConfig": {"enabled": True},
        "unheardOf": 1,
    }
    assert put(env, name, **sent) == queue_object(name)


def test_a_queue_can_be_put_as_it_was_got(env: Environment) -> None:
    name = new_name()
    got = put(env, name, **CHANGED)
    assert put(env, name, **got) == got


# --- names ---


def test_a_name_of_letters_digits_dots_and_dashes_is_good(env: Environment) -> None:
    for name in ("a", "A.b-9", ".a", "-", "a" * 127, "0", "locks", "queues"):
        assert put(env, name) == queue_object(name)
        nothing(env.admin("DELETE", at(name)))


def test_another_name_is_refused(env: Environment) -> None:
    for name in ("a" * 128, "a_b", "a b", "a/b", "ä", "a@eu-west-1", "a%b", "a\x00", "a\n", "a,b"):
        assert "queueId" in admin_fail(env.admin("PUT", at(name), {}), 400)
        assert admin_fail(env.admin("GET", at(name)), 404) == "queue not found"


def test_names_are_told_apart_by_case(env: Environment) -> None:
    name = new_name("CaSe")
    put(env, name, defaultTtl=1_000)
    assert admin_fail(env.admin("GET", at(name.lower())), 404) == "queue not found"


def test_a_name_is_a_queues_or_an_exchanges(env: Environment, exchange: Exchange) -> None:
    assert exchange.name in admin_fail(env.admin("PUT", at(exchange.name), {}), 400)
    assert admin_fail(env.admin("GET", at(exchange.name)), 404) == "queue not found"
    exchange.delete()
    put(env, exchange.name)


# --- numbers ---


@pytest.mark.parametrize(("setting", "high"), NUMBERS.items())
def test_a_number_has_its_limits(env: Environment, setting: str, high: int) -> None:
    name = new_name()
    for value in (high + 1, *NO_NUMBER):
        assert setting in admin_fail(env.admin("PUT", at(name), {setting: value}), 400), value
    admin_fail(env.admin("GET", at(name)), 404)
    for value in (1, high):
        assert put(env, name, **{setting: value}) == queue_object(name, **{setting: value})


@pytest.mark.parametrize("setting", NUMBERS)
def test_a_number_may_come_as_text(env: Environment, setting: str) -> None:
    name = new_name()
    assert put(env, name, **{setting: "5000"}) == queue_object(name, **{setting: 5_000})


def test_null_is_the_same_as_nothing(env: Environment) -> None:
    name = new_name()
    for setting in (*NUMBERS, "encrypted", "fifo", "deadLetterQueueId"):
        assert put(env, name, **{setting: None}) == queue_object(name)


def test_zero_is_the_default(env: Environment) -> None:
    name = new_name()
    for setting in NUMBERS:
        for zero in (0, "0"):
            put(env, name, **{setting: 7_000})
            assert put(env, name, **{setting: zero}) == queue_object(name)


# --- putting again ---


def test_putting_a_queue_again_replaces_its_settings(env: Environment) -> None:
    name = new_name()
    put(env, name, **CHANGED)
    assert put(env, name, defaultTtl=9_000) == queue_object(name, defaultTtl=9_000)
    assert ok(env.admin("GET", at(name))) == queue_object(name, defaultTtl=9_000)


@pytest.mark.parametrize("fifo", [False, True])
def test_a_queue_stays_standard_or_fifo(env: Environment, fifo: bool) -> None:
    queue = Queue.create(env, fifo=fifo)
    path = env.region_path.replace("/v1/", "/v2/", 1) + at(queue.name)
    other = {"fifo": not fifo, "defaultTtl": 9_000}
    assert "fifo" in admin_fail(env.admin("PUT", at(queue.name), other), 400)
    assert "fifo" in admin_fail(env.admin("PATCH", at(queue.name), other), 400)
    assert "fifo" in admin_fail(env.call("PATCH", path, other, token=env.tokens.user), 400)
    assert queue.settings() == queue_object(queue.name, fifo=fifo)
    same = {"fifo": fifo, "defaultTtl": 9_000}
    changed = queue_object(queue.name, fifo=fifo, defaultTtl=9_000)
    assert ok(env.admin("PUT", at(queue.name), same)) == changed
    assert ok(env.admin("PATCH", at(queue.name), same)) == changed
    assert ok(env.call("PATCH", path, same, token=env.tokens.user)) == changed


# --- looking, deleting, purging ---


@pytest.mark.parametrize("method", ["GET", "PATCH", "DELETE"])
def test_an_unknown_queue_is_not_found(env: Environment, method: str) -> None:
    body: Any = {} if method == "PATCH" else None
    response = env.admin(method, at(new_name()), body)
    assert admin_fail(response, 404) == "queue not found"
    assert response.json() == {"status": 404, "message": "queue not found"}


def test_a_deleted_queue_is_gone(env: Environment, queue: Queue) -> None:
    nothing(env.admin("DELETE", at(queue.name)))
    assert admin_fail(env.admin("GET", at(queue.name)), 404) == "queue not found"
    assert admin_fail(env.admin("DELETE", at(queue.name)), 404) == "queue not found"


def test_a_queue_made_anew_has_nothing_of_the_old_one(env: Environment) -> None:
    queue = Queue.create(env, **CHANGED)
    queue.publish("old", headers={"deliveryDelay": 0})
    queue.delete()
    assert put(env, queue.name, fifo=True) == queue_object(queue.name, fifo=True)
    assert queue.get() == []


def test_a_purge_of_an_empty_queue_is_fine_and_of_an_unknown_one_not(queue: Queue) -> None:
    nothing(queue.env.admin("DELETE", at(queue.name) + "/messages"))
    response = queue.env.admin("DELETE", at(new_name()) + "/messages")
    assert admin_fail(response, 404) == "queue not found"


# --- failover ---


@pytest.mark.parametrize("enabled", [True, False])
def test_failover_is_not_offered(queue: Queue, enabled: bool) -> None:
    path = at(queue.name) + "/fallback"
    admin_fail(queue.env.admin("PUT", path, {"fallbackEnabled": enabled}), 501)
    assert queue.settings() == queue_object(queue.name)


def test_failover_of_a_fifo_queue_is_refused(fifo_queue: Queue) -> None:
    path = at(fifo_queue.name) + "/fallback"
    admin_fail(fifo_queue.env.admin("PUT", path, {"fallbackEnabled": True}), 400)


def test_failover_of_an_unknown_queue_is_not_found(env: Environment) -> None:
    response = env.admin("PUT", at(new_name()) + "/fallback", {"fallbackEnabled": True})
    assert admin_fail(response, 404) == "queue not found"
