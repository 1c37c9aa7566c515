"""What a queue held, minute by minute."""

import pytest

from courier.core.types import DAY_MS, MINUTE_MS, Draft, Level, Queue
from tests.conformance.store.driver import Driver


@pytest.fixture(autouse=True)
def on_the_minute(driver: Driver) -> None:
    driver.advance(-driver.now_ms % MINUTE_MS)


@pytest.fixture
def start(driver: Driver, queue: Queue) -> int:
    """The minute in which the queue is created."""
    return driver.now_ms // MINUTE_MS


def to_minute(driver: Driver, minute: int) -> None:
    driver.advance(minute * MINUTE_MS - driver.now_ms)


def history(driver: Driver, queue: Queue, start: int) -> list[tuple[int, int, int]]:
    """Count, leased and delayed at the end of every minute up to now."""
    now = driver.now_ms // MINUTE_MS
    return [driver.held(queue, minute=minute) for minute in range(start, now + 1)]


def test_a_queue_that_nothing_happened_to_has_no_level(
    driver: Driver, queue: Queue, start: int
) -> None:
    to_minute(driver, start + 5)
    driver.sweep()
    assert driver.levels(queue) == []
    assert history(driver, queue, start) == [(0, 0, 0)] * 6


def test_changes_within_the_minute_of_creation_leave_no_level(
    driver: Driver, queue: Queue, start: int
) -> None:
    driver.publish(queue, "a")
    driver.advance(MINUTE_MS - 1)
    driver.publish(queue, "b")
    assert driver.levels(queue) == []
    assert driver.held(queue, minute=start) == (2, 0, 0)


def test_the_first_change_in_a_minute_keeps_what_was_held_before(
    driver: Driver, queue: Queue, start: int
) -> None:
    driver.publish(queue, "a", "b")
    to_minute(driver, start + 3)
    driver.publish(queue, "c")
    assert driver.levels(queue) == [Level(start + 2, 2, 0, 0)]
    driver.publish(queue, "d")
    driver.lease(queue, count=1, lease_ms=DAY_MS)
    assert driver.levels(queue) == [Level(start + 2, 2, 0, 0)]
    to_minute(driver, start + 4)
    driver.publish(queue, Draft(b"e", delay_ms=DAY_MS))
    to_minute(driver, start + 9)
    driver.purge(queue, upto_seq=9)
    assert driver.levels(queue) == [
        Level(start + 2, 2, 0, 0),
        Level(start + 3, 4, 1, 0),
        Level(start + 8, 5, 1, 1),
    ]
    assert history(driver, queue, start) == [
        (2, 0, 0), (2, 0, 0), (2, 0, 0), (4, 1, 0), (5, 1, 1), (5, 1, 1), (5, 1, 1), (5, 1, 1),
        (5, 1, 1), (0, 0, 0),
    ]  # fmt: skip


def test_every_verb_that_changes_a_number_counts(driver: Driver, queue: Queue, start: int) -> None:
    driver.update(queue, attempts_max=None)
    driver.publish(queue, "a", "b", "c", Draft(b"d", delay_ms=DAY_MS))
    wanted = [(4, 0, 1)]
    for minute, verb in enumerate(["lease", "retry", "ack", "remove", "purge", "drop"], 1):
        to_minute(driver, start + minute)
        if verb == "lease":
            a, b, _ = driver.lease(queue, lease_ms=DAY_MS)
            wanted.append((4, 3, 1))
        elif verb == "retry":
            driver.retry(queue, a, delay_ms=DAY_MS)
            wanted.append((4, 2, 2))
        elif verb == "ack":
            driver.ack(queue, b)
            wanted.append((3, 1, 2))
        elif verb == "remove":
            driver.remove(queue, 4)
            wanted.append((2, 1, 1))
        elif verb == "purge":
            driver.purge(queue, upto_seq=1)
            wanted.append((1, 1, 0))
        else:
            driver.purge(queue, upto_seq=9)
            wanted.append((0, 0, 0))
        assert history(driver, queue, start) == wanted


def test_what_time_does_counts_when_it_is_noticed(driver: Driver, queue: Queue, start: int) -> None:
    driver.publish(queue, "a", Draft(b"b", delay_ms=MINUTE_MS), Draft(b"c", ttl_ms=2 * MINUTE_MS))
    driver.lease(queue, count=1, lease_ms=3 * MINUTE_MS)
    wanted = [(3, 1, 1), (3, 1, 0), (2, 1, 0), (2, 0, 0), (2, 0, 0)]
    for minute in range(1, 5):
        to_minute(driver, start + minute)
        driver.sweep()
        assert history(driver, queue, start) == wanted[: minute + 1]


def test_burials_and_redrives_count_on_both_queues(driver: Driver) -> None:
    start = driver.now_ms // MINUTE_MS
    dead = driver.queue("dead")
    work = driver.queue("work", attempts_max=1, dead_letter=dead.id)
    driver.publish(work, "a")
    driver.lease(work, lease_ms=MINUTE_MS)
    to_minute(driver, start + 1)
    driver.sweep()
    to_minute(driver, start + 2)
    driver.redrive(dead, 1)
    assert history(driver, work, start) == [(1, 1, 0), (0, 0, 0), (1, 0, 0)]
    assert history(driver, dead, start) == [(0, 0, 0), (1, 0, 0), (0, 0, 0)]


def test_a_changed_delay_of_a_fifo_queue_counts(driver: Driver) -> None:
    start = driver.now_ms // MINUTE_MS
    queue = driver.queue(fifo=True)
    driver.publish(queue, "a", "b")
    to_minute(driver, start + 1)
    queue = driver.update(queue, delay_ms=DAY_MS)
    to_minute(driver, start + 2)
    driver.update(queue, delay_ms=0)
    assert history(driver, queue, start) == [(2, 0, 0), (2, 0, 2), (2, 0, 0)]


def test_levels_are_told_from_a_minute_on(driver: Driver, queue: Queue, start: int) -> None:
    for minute in range(1, 6):
        to_minute(driver, start + minute)
        driver.publish(queue, "a")
    everything = driver.levels(queue)
    assert [level.minute - start for level in everything] == [0, 1, 2, 3, 4]
    for minute in range(7):
        since_ms = (start + minute) * MINUTE_MS
        assert driver.levels(queue, since_ms=since_ms) == everything[minute:]
        assert driver.levels(queue, since_ms=since_ms + MINUTE_MS - 1) == everything[minute:]


def test_queues_are_told_apart(driver: Driver, queue: Queue, start: int) -> None:
    other = driver.queue("other")
    driver.publish(queue, "a")
    to_minute(driver, start + 1)
    driver.publish(queue, "b")
    assert driver.levels(other) == []
    assert history(driver, other, start) == [(0, 0, 0), (0, 0, 0)]


def test_settings_alone_change_no_level(driver: Driver, queue: Queue, start: int) -> None:
    driver.publish(queue, "a")
    to_minute(driver, start + 2)
    driver.update(queue, labels={"paint": "red"})
    to_minute(driver, start + 4)
    driver.publish(queue, "b")
    assert history(driver, queue, start) == [(1, 0, 0)] * 4 + [(2, 0, 0)]


def test_refused_calls_change_no_level(driver: Driver, queue: Queue, start: int) -> None:
    driver.publish(queue, "a")
    to_minute(driver, start + 2)
    message = driver.lease_one(queue)
    driver.ack(queue, message)
    driver.ack(queue, message)
    assert history(driver, queue, start) == [(1, 0, 0), (1, 0, 0), (0, 0, 0)]


def test_old_levels_are_forgotten(driver: Driver, queue: Queue, start: int) -> None:
    for minute in (1, 2, 3):
        to_minute(driver, start + minute)
        driver.publish(queue, Draft(b"a", ttl_ms=DAY_MS * 30))
    to_minute(driver, start + 2)
    driver.advance(16 * DAY_MS - MINUTE_MS)
    driver.sweep()
    assert [level.minute - start for level in driver.levels(queue)][-2:] == [1, 2]
    driver.advance(DAY_MS)
    driver.sweep()
    assert driver.levels(queue) == []
    now = driver.now_ms // MINUTE_MS
    assert driver.held(queue, minute=now - 5) == (3, 0, 0)
