"""What an organization and its environments use, by the hour, the day and the month."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.wire.anypoint.answers import admin_fail, nothing, ok
from tests.wire.anypoint.destination import Exchange, Queue, new_name, rule
from tests.wire.anypoint.environment import STATS, Environment
from tests.wire.anypoint.timed import Timed

UNIT = 102_400
ALWAYS = {"startDate": "2026-03-01T00:00Z", "endDate": "2026-05-01T00:00Z"}
MEMBERS = {
    "timestamp",
    "apiRequestCount",
    "messageReceiptCount",
    "billableUnitCount",
    "messageByteCount",
}


def ask(env: Environment, path: str, *, token: str | None = None, **query: str) -> httpx.Response:
    return env.call("GET", path, token=token or env.tokens.user, params=query)


def environment_path(env: Environment) -> str:
    return STATS + env.path


def organization_path(env: Environment) -> str:
    return f"{STATS}/organizations/{env.organization}"


def rows(response: httpx.Response) -> list[dict[str, Any]]:
    """What was used; shape, order and the agreement of the two counts are checked."""
    found: list[dict[str, Any]] = ok(response)
    for row in found:
        assert set(row) == MEMBERS
        assert all(type(row[name]) is int for name in MEMBERS - {"timestamp"})
        assert row["messageReceiptCount"] == row["billableUnitCount"]
    stamps = [row["timestamp"] for row in found]
    assert stamps == sorted(set(stamps))
    return found


def use(env: Environment) -> tuple[int, int, int]:
    """Requests, units and bytes of all time."""
    found = rows(ask(env, environment_path(env), period="1day", **ALWAYS))
    return (
        sum(row["apiRequestCount"] for row in found),
        sum(row["messageReceiptCount"] for row in found),
        sum(row["messageByteCount"] for row in found),
    )


def used_by(env: Environment, act: Callable[[], object]) -> tuple[int, int, int]:
    """Requests, units and bytes that this takes."""
    before = use(env)
    act()
    after = use(env)
    return after[0] - before[0], after[1] - before[1], after[2] - before[2]


# --- requests ---


def test_an_environment_where_nothing_happened_used_nothing(clocked: Timed) -> None:
    env = clocked.env
    past = {"startDate": "2025-01-01T00:00Z", "endDate": "2025-02-01T00:00Z"}
    for path in (environment_path(env), organization_path(env)):
        for period in ("1hour", "1day", "1month"):
            assert ok(ask(env, path, period=period, **past)) == []


def test_every_request_to_the_broker_counts_as_one(clocked: Timed) -> None:
    env = clocked.env
    queue = Queue.create(env)

    def act() -> None:
        queue.publish("a")
        queue.publish_batch(["b", "c"])
        first, second, third = queue.get()
        queue.set_lock(first, ttl_s=60)
        queue.ack(first)
        queue.nack_batch([second.item])
        queue.ack_batch([third.item])

    assert used_by(env, act)[0] == 7


def test_a_get_that_finds_nothing_counts_as_one(clocked: Timed) -> None:
    queue = Queue.create(clocked.env)

    def act() -> None:
        for _ in range(3):
            nothing(queue.poll(pollingTime=0))

    assert used_by(clocked.env, act) == (3, 0, 0)


def test_admin_operations_on_queues_and_exchanges_count(clocked: Timed) -> None:
    env = clocked.env

    def act() -> None:
        queue, exchange = Queue.create(env), Exchange.create(env)
        queue.settings()
        queue.change(defaultTtl=60_000)
        exchange.bind(queue, rule("a", "STRING", "EXISTS", True))
        ok(env.admin("GET", "/destinations"))
        queue.purge()
        exchange.delete()
        queue.delete()

    assert used_by(env, act)[0] == 10


def test_stats_and_accounts_do_not_count(clocked: Timed) -> None:
    env = clocked.env
    queue = Queue.create(env)

    def act() -> None:
        for _ in range(3):
            use(env)
            ok(ask(env, f"{env.stats_path}/queues", destinationIds=queue.name))
            ok(ask(env, f"{env.stats_path}/queues/{queue.name}", period="60"))
            ok(ask(env, "/accounts/api/me"))
            ok(env.http.post("/accounts/login", json=clocked.anypoint["user"]))

    assert used_by(env, act) == (0, 0, 0)


def test_clients_and_regions_do_not_count(clocked: Timed) -> None:
    env = clocked.env

    def act() -> None:
        ok(ask(env, env.admin_path + "/regions"))
        ok(ask(env, env.admin_path + "/clients"))

    assert used_by(env, act) == (0, 0, 0)


# --- units and bytes ---


@pytest.mark.parametrize(
    ("size", "units"), [(0, 1), (1, 1), (UNIT, 1), (UNIT + 1, 2), (2 * UNIT + 1, 3)]
)
def test_what_is_handed_out_counts_in_steps_of_100_kb(
    clocked: Timed, size: int, units: int
) -> None:
    queue = Queue.create(clocked.env)
    assert used_by(clocked.env, lambda: queue.publish("x" * size)) == (1, 0, size)
    assert used_by(clocked.env, queue.get) == (1, units, size)


def test_a_body_counts_as_it_was_sent_however_it_is_kept(clocked: Timed) -> None:
    queue = Queue.create(clocked.env, encrypted=True)
    assert used_by(clocked.env, lambda: queue.publish("x" * UNIT)) == (1, 0, UNIT)
    assert used_by(clocked.env, queue.get) == (1, 1, UNIT)


def test_every_delivery_counts(clocked: Timed) -> None:
    queue = Queue.create(clocked.env)
    queue.publish_batch(["12345", "67"])

    def act() -> None:
        for _ in range(3):
            for message in queue.get():
                queue.nack(message)

    assert used_by(clocked.env, act) == (9, 6, 21)


def test_bytes_are_those_of_utf8(clocked: Timed) -> None:
    queue = Queue.create(clocked.env)
    assert used_by(clocked.env, lambda: queue.publish("é€😀")) == (1, 0, 9)


# --- periods ---


def test_use_is_summed_by_hour_day_and_month(clocked: Timed) -> None:
    env = clocked.env
    queue = Queue.create(env)
    # Sunday the 15th, 10:00 and 11:30; the 16th, 11:30; the 1st of April, 11:30.
    for number, (minutes, days) in enumerate([(0, 0), (90, 0), (0, 1), (0, 16)]):
        clocked.advance(minutes=minutes, days=days)
        queue = Queue(clocked.log_in(), queue.name)
        for _ in range(number + 1):
            queue.publish("12345")

    def bytes_by(period: str) -> dict[str, int]:
        found = rows(ask(queue.env, environment_path(env), period=period, **ALWAYS))
        return {
            row["timestamp"]: row["messageByteCount"] for row in found if row["messageByteCount"]
        }

    assert bytes_by("1hour") == {
        "2026-03-15T10:00Z": 5,
        "2026-03-15T11:00Z": 10,
        "2026-03-16T11:00Z": 15,
        "2026-04-01T11:00Z": 20,
    }
    assert bytes_by("1day") == {
        "2026-03-15T00:00Z": 15,
        "2026-03-16T00:00Z": 15,
        "2026-04-01T00:00Z": 20,
    }
    assert bytes_by("1month") == {"2026-03-01T00:00Z": 30, "2026-04-01T00:00Z": 20}


def test_only_what_lies_between_the_dates_is_summed(clocked: Timed) -> None:
    env = clocked.env
    queue = Queue.create(env)
    for _ in range(4):
        queue.publish("12345")
        clocked.advance(hours=1)
        queue = Queue(clocked.log_in(), queue.name)
    between = {"startDate": "2026-03-15T11:00Z", "endDate": "2026-03-15T13:00Z"}
    env = queue.env
    found = rows(ask(env, environment_path(env), period="1hour", **between))
    assert [(row["timestamp"], row["messageByteCount"]) for row in found] == [
        ("2026-03-15T11:00Z", 5),
        ("2026-03-15T12:00Z", 5),
    ]
    (day,) = rows(ask(env, environment_path(env), period="1day", **between))
    assert day["messageByteCount"] == 10


def test_without_dates_the_last_period_is_meant(clocked: Timed) -> None:
    env = clocked.env
    queue = Queue.create(env)
    queue.publish("12345")
    clocked.advance(hours=2)
    queue = Queue(clocked.log_in(), queue.name)
    queue.publish("1234567")

    def total(period: str) -> int:
        found = rows(ask(queue.env, environment_path(env), period=period))
        return sum(row["messageByteCount"] for row in found)

    clocked.advance(minutes=1)
    assert (total("1hour"), total("1day"), total("1month")) == (7, 12, 12)


def test_another_period_is_refused(env: Environment) -> None:
    for path in (environment_path(env), organization_path(env)):
        for period in ("", "hour", "60", "1week", "2hours", "3600"):
            assert "period" in admin_fail(ask(env, path, period=period), 400)
        assert "period" in admin_fail(ask(env, path), 400)


# --- whose ---


def test_an_organization_uses_what_its_environments_use(clocked: Timed) -> None:
    env = clocked.env
    second = clocked.new_environment("second", beside="default")
    stranger = clocked.new_environment("stranger")
    for place, text in ((env, "1"), (second, "22"), (stranger, "4444")):
        Queue.create(place).publish(text)

    def spent(asker: Environment, path: str, token: str | None = None) -> int:
        found = rows(ask(asker, path, token=token, period="1day"))
        return sum(row["messageByteCount"] for row in found)

    clocked.advance(seconds=1)
    assert spent(env, environment_path(env)) == 1
    assert spent(env, environment_path(second)) == 2
    assert spent(env, organization_path(env)) == 3
    assert spent(second, organization_path(env)) == 3
    assert spent(stranger, organization_path(stranger)) == 4


def test_what_is_deleted_was_used_all_the_same(clocked: Timed) -> None:
    env = clocked.env
    queue = Queue.create(env, new_name())
    queue.publish("12345")
    queue.get()
    assert use(env)[1:] == (1, 10)
    queue.delete()
    assert use(env)[1:] == (1, 10)
