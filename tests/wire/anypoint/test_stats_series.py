"""What happened on queues and exchanges: one point per period, with a clock that the test moves."""

from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from tests.wire.anypoint.answers import admin_fail, ok
from tests.wire.anypoint.destination import Exchange, Queue, new_name, rule
from tests.wire.anypoint.environment import Environment
from tests.wire.anypoint.timed import START_MS, Timed

METRICS = (
    "messages",
    "inflightMessages",
    "messagesVisible",
    "messagesSent",
    "messagesReceived",
    "messagesAcked",
)
EXCHANGE_METRICS = ("messagesPublished", "messagesDelivered")
START = datetime.fromtimestamp(START_MS / 1_000, UTC)
POINTS_MAX = 1_440


def iso(minute: float) -> str:
    """So many minutes from the start."""
    return (START + timedelta(minutes=minute)).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


def ask(env: Environment, path: str, query: dict[str, Any]) -> httpx.Response:
    return env.call("GET", f"{env.stats_path}/{path}", token=env.tokens.user, params=query)


def series(
    destination: Queue | Exchange, first: float, last: float, *, period: int = 60
) -> dict[str, list[int]]:
    """The values from minute to minute; shape and labels of all points are checked."""
    queue = isinstance(destination, Queue)
    path = f"{'queues' if queue else 'exchanges'}/{destination.name}"
    query = {"startDate": iso(first), "endDate": iso(last), "period": period}
    answer = ok(ask(destination.env, path, query))
    metrics = METRICS if queue else EXCHANGE_METRICS
    assert set(answer) == {"destination", *metrics}
    assert answer.pop("destination") == destination.name
    labels = []
    at = START + timedelta(minutes=first)
    while at < START + timedelta(minutes=last):
        labels.append(at.strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "+0000")
        at += timedelta(seconds=period)
    for points in answer.values():
        assert [set(point) for point in points] == [{"date", "value"}] * len(labels)
        assert [point["date"] for point in points] == labels
        assert all(type(point["value"]) is int for point in points)
    return {metric: [point["value"] for point in answer[metric]] for metric in metrics}


# --- queues ---


def test_a_new_queue_has_zeros_and_no_gaps(clocked: Timed) -> None:
    queue = Queue.create(clocked.env)
    clocked.pass_minutes(3)
    assert series(queue, -2, 3) == {metric: [0] * 5 for metric in METRICS}


def test_the_life_of_messages_from_minute_to_minute(clocked: Timed) -> None:
    queue = Queue.create(clocked.env)
    queue.publish_batch(["a", "b", "c"])
    clocked.pass_minutes(1)
    first, second = queue.get(batchSize=2)
    queue.publish("d")
    clocked.pass_minutes(1)
    queue.ack(first)
    queue.nack(second)
    clocked.pass_minutes(2)
    assert [message.body for message in queue.get()] == ["b", "c", "d"]
    clocked.advance(seconds=30)
    assert series(queue, 0, 5) == {
        "messages": [3, 2, 3, 3, 0],
        "inflightMessages": [0, 2, 0, 0, 3],
        "messagesVisible": [3, 2, 3, 3, 0],
        "messagesSent": [3, 1, 0, 0, 0],
        "messagesReceived": [0, 2, 0, 0, 3],
        "messagesAcked": [0, 0, 1, 0, 0],
    }


def test_before_its_first_message_a_queue_held_nothing(clocked: Timed) -> None:
    queue = Queue.create(clocked.env)
    queue.publish("in the minute of its making")
    clocked.pass_minutes(1)
    found = series(queue, -2, 1)
    assert found["messages"] == found["messagesVisible"] == [0, 0, 1]
    later = Queue.create(clocked.env)
    clocked.pass_minutes(2)
    later.publish("afterwards")
    clocked.pass_minutes(1)
    assert series(later, -1, 4)["messages"] == [0, 0, 0, 0, 1]


def test_longer_periods_sum_counters_and_end_with_the_last_gauge(clocked: Timed) -> None:
    queue = Queue.create(clocked.env)
    for count in (1, 2, 3, 4):
        queue.publish_batch(["x"] * count)
        clocked.pass_minutes(1)
    queue.get(batchSize=5)
    clocked.pass_minutes(1)
    two = series(queue, 0, 6, period=120)
    assert two["messagesSent"] == [3, 7, 0]
    assert two["messages"] == [3, 10, 5]
    assert two["inflightMessages"] == [0, 0, 5]
    five = series(queue, 0, 5, period=300)
    assert (five["messagesSent"], five["messages"]) == ([10], [5])
    day = series(queue, -60 * 24 + 5, 5, period=86_400)
    assert (day["messagesSent"], day["messagesReceived"], day["messages"]) == ([10], [5], [5])


def test_the_last_period_may_be_cut_short(clocked: Timed) -> None:
    queue = Queue.create(clocked.env)
    queue.publish("a")
    clocked.pass_minutes(1)
    queue.publish_batch(["b", "c"])
    clocked.advance(seconds=30)
    assert series(queue, 0, 1.5)["messagesSent"] == [1, 2]
    assert series(queue, 0, 1.5, period=80)["messagesSent"] == [3, 0]
    assert series(queue, 0, 0.5)["messagesSent"] == [1]


def test_periods_of_a_second_add_up(clocked: Timed) -> None:
    queue = Queue.create(clocked.env)
    queue.publish_batch(["a", "b"])
    clocked.advance(seconds=10)
    queue.get(batchSize=1)
    clocked.advance(seconds=10)
    found = series(queue, 0, 20 / 60, period=1)
    assert len(found["messages"]) == 20
    assert (sum(found["messagesSent"]), sum(found["messagesReceived"])) == (2, 1)
    assert (found["messages"][-1], found["inflightMessages"][-1]) == (1, 1)


def test_what_happened_now_is_seen_now(clocked: Timed) -> None:
    queue = Queue.create(clocked.env)
    clocked.advance(seconds=59)
    queue.publish("a")
    # The end is not in the period, so it must be a moment later.
    found = series(queue, 0, 1)
    assert (found["messagesSent"], found["messages"], found["messagesVisible"]) == ([1], [1], [1])


def test_the_past_is_kept_for_a_fortnight_by_the_minute(clocked: Timed) -> None:
    queue = Queue.create(clocked.env)
    queue.publish_batch(["a", "b"])
    clocked.advance(minutes=1)
    queue.publish("c")
    queue.purge()
    for _ in range(14):
        clocked.advance(days=1)
    found = series(Queue(clocked.log_in(), queue.name), 0, 2)
    assert found["messagesSent"] == [2, 1]
    assert found["messages"] == [2, 0]


# --- exchanges ---


def test_an_exchange_counts_what_it_takes_and_what_it_gives(clocked: Timed) -> None:
    env = clocked.env
    exchange, plain, picky = Exchange.create(env), Queue.create(env), Queue.create(env)
    exchange.publish("nowhere to go")
    clocked.pass_minutes(1)
    exchange.bind(plain)
    exchange.bind(picky, rule("colour", "STRING", "EQ", "red"))
    exchange.publish("any")
    exchange.publish("red", properties={"colour": "red"})
    clocked.pass_minutes(1)
    exchange.publish_batch(["a", "b", "c"])
    clocked.pass_minutes(1)
    assert series(exchange, -1, 4) == {
        "messagesPublished": [0, 1, 2, 3, 0],
        "messagesDelivered": [0, 0, 3, 3, 0],
    }
    assert series(plain, 0, 3)["messagesSent"] == [0, 2, 3]
    assert series(picky, 0, 3)["messagesSent"] == [0, 1, 0]
    assert series(exchange, 0, 3, period=180) == {
        "messagesPublished": [6],
        "messagesDelivered": [6],
    }


# --- what may be asked ---


@pytest.fixture
def places(clocked: Timed) -> list[str]:
    return [
        f"queues/{Queue.create(clocked.env).name}",
        f"exchanges/{Exchange.create(clocked.env).name}",
    ]


def points(answer: dict[str, Any]) -> dict[str, list[str]]:
    return {
        metric: [point["date"] for point in found]
        for metric, found in answer.items()
        if metric != "destination"
    }


def test_without_dates_the_last_period_is_meant(clocked: Timed, places: list[str]) -> None:
    clocked.advance(minutes=10)
    for path in places:
        for found in points(ok(ask(clocked.env, path, {"period": 600}))).values():
            assert found == ["2026-03-15T10:00:00.000+0000"]


def test_without_an_end_now_is_the_end(clocked: Timed, places: list[str]) -> None:
    clocked.advance(minutes=2)
    query = {"startDate": iso(0), "period": 60}
    for path in places:
        for found in points(ok(ask(clocked.env, path, query))).values():
            assert found == ["2026-03-15T10:00:00.000+0000", "2026-03-15T10:01:00.000+0000"]


def test_without_a_start_it_is_one_period_before_the_end(clocked: Timed, places: list[str]) -> None:
    for path in places:
        for found in points(ok(ask(clocked.env, path, {"endDate": iso(5), "period": 60}))).values():
            assert found == ["2026-03-15T10:04:00.000+0000"]


def test_periods_begin_with_the_start_to_the_millisecond(clocked: Timed, places: list[str]) -> None:
    query = {
        "startDate": "2026-03-15T09:00:00.123Z",
        "endDate": "2026-03-15T09:00:03Z",
        "period": 2,
    }
    for path in places:
        for found in points(ok(ask(clocked.env, path, query))).values():
            assert found == ["2026-03-15T09:00:00.123+0000", "2026-03-15T09:00:02.123+0000"]


def test_there_must_be_a_period(clocked: Timed, places: list[str]) -> None:
    query = {"startDate": iso(0), "endDate": iso(1)}
    for path in places:
        assert "period" in admin_fail(ask(clocked.env, path, query), 400)


@pytest.mark.parametrize("period", [1, 60, 86_400])
def test_there_are_up_to_1440_points(clocked: Timed, places: list[str], period: int) -> None:
    seconds = POINTS_MAX * period
    query = {"startDate": iso(-seconds / 60), "endDate": iso(0), "period": period}
    over = {**query, "endDate": iso(1 / 60)}
    for path in places:
        for found in points(ok(ask(clocked.env, path, query))).values():
            assert len(found) == POINTS_MAX
        assert "1440" in admin_fail(ask(clocked.env, path, over), 400)


def test_an_unknown_queue_or_exchange_is_not_found(clocked: Timed) -> None:
    env = clocked.env
    queue, exchange = Queue.create(env), Exchange.create(env)
    for name in (new_name(), exchange.name):
        response = ask(env, f"queues/{name}", {"period": 60})
        assert admin_fail(response, 404) == "queue not found"
    for name in (new_name(), queue.name):
        response = ask(env, f"exchanges/{name}", {"period": 60})
        assert admin_fail(response, 404) == "exchange not found"
