"""Waiting for messages: what wakes a poll, what ends it, and what a poll that is left leaves."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from tests.server import Server
from tests.wire.anypoint.answers import nothing
from tests.wire.anypoint.destination import Exchange, Queue
from tests.wire.anypoint.environment import Environment, root_client
from tests.wire.anypoint.waiter import Waiter

# Long enough for a request to have arrived and to be waiting.
SETTLED_S = 0.1
PROMPT_S = 2.0
LONG_MS = 20_000


@contextmanager
def prompt(*, at_least_s: float = 0.0) -> Iterator[None]:
    """What is done inside must not take much longer than it has to."""
    started = time.monotonic()
    yield
    taken = time.monotonic() - started
    assert at_least_s <= taken < at_least_s + PROMPT_S, taken


def waiting(queue: Queue, **query: int) -> Waiter:
    waiter = Waiter(queue, **{"pollingTime": LONG_MS, "batchSize": 10, **query})
    time.sleep(SETTLED_S)
    return waiter


# --- what wakes a poll ---


def test_a_publish_wakes_a_poll(queue: Queue) -> None:
    waiter = waiting(queue)
    with prompt():
        queue.publish("a")
        message = waiter.message()
    assert (message.body, message.count) == ("a", 1)


def test_a_batch_wakes_a_poll_which_gets_all_of_it(queue: Queue) -> None:
    waiter = waiting(queue)
    with prompt():
        queue.publish_batch(["a", "b", "c"])
        status, found = waiter.answer()
    assert status == 200
    assert [element["body"] for element in found] == ["a", "b", "c"]


def test_a_copy_from_an_exchange_wakes_a_poll(queue: Queue, exchange: Exchange) -> None:
    exchange.bind(queue)
    waiter = waiting(queue)
    with prompt():
        exchange.publish("a")
        assert waiter.message().body == "a"


# --- what ends it ---


def test_a_poll_of_no_time_answers_at_once(standing_queue: Queue) -> None:
    started = time.monotonic()
    nothing(standing_queue.poll(pollingTime=0))
    assert time.monotonic() - started < 0.5


@pytest.mark.parametrize("name", ["pollingTime", "poolingTime"])
def test_a_poll_ends_with_its_time(standing_queue: Queue, name: str) -> None:
    with prompt(at_least_s=0.28):
        nothing(standing_queue.poll(**{name: 300}))


@pytest.mark.slow
def test_a_poll_waits_ten_seconds_unless_told_otherwise(standing_queue: Queue) -> None:
    with prompt(at_least_s=9.9):
        nothing(standing_queue.poll())


@pytest.mark.slow
def test_a_poll_waits_as_long_as_it_may(standing_queue: Queue) -> None:
    with prompt(at_least_s=19.9):
        nothing(standing_queue.poll(pollingTime=LONG_MS))


def test_a_delete_ends_all_polls(queue: Queue) -> None:
    waiters = [waiting(queue) for _ in range(3)]
    with prompt():
        queue.delete()
        answers = [waiter.answer() for waiter in waiters]
    assert answers == [
        (404, {"status": "failure", "statusMessage": "Destination not found"})
    ] * len(waiters)


def test_a_stop_ends_all_polls_and_is_not_held_up_by_them(fresh_server: Server) -> None:
    with root_client(fresh_server.url) as http:
        queue = Queue.create(Environment.of(http, fresh_server.credentials))
        waiters = [waiting(queue) for _ in range(3)]
        started = time.monotonic()
        with ThreadPoolExecutor(1) as pool:
            stopped = pool.submit(fresh_server.stop)
            answers = [waiter.answer() for waiter in waiters]
            assert time.monotonic() - started < PROMPT_S
            stopped.result()
        assert time.monotonic() - started < PROMPT_S
        assert {status for status, _ in answers} <= {204, 503}


# --- polls that are left ---


def test_a_poll_that_was_left_takes_nothing(queue: Queue) -> None:
    left = [waiting(queue, lockTtl=86_400_000) for _ in range(3)]
    for waiter in left:
        waiter.leave()
    time.sleep(SETTLED_S)
    queue.publish_batch(["a", "b"])
    assert [(message.body, message.count) for message in queue.get()] == [("a", 1), ("b", 1)]
