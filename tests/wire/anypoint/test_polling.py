"""Waiting for messages: what wakes a poll, what ends it, and what a poll that is left leaves."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.wire.anypoint.answers import nothing
from tests.wire.anypoint.destination import Queue
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


# --- what ends it ---


@pytest.mark.parametrize("name", ["pollingTime", "poolingTime"])
def test_a_poll_ends_with_its_time(standing_queue: Queue, name: str) -> None:
    with prompt(at_least_s=0.28):
        nothing(standing_queue.poll(**{name: 300}))


@pytest.mark.slow
def test_a_poll_waits_ten_seconds_unless_told_otherwise(standing_queue: Queue) -> None:
    with prompt(at_least_s=9.9):
        nothing(standing_queue.poll())
