import pytest

from courier.core.types import Ack, Extend, Outcome, Queue, QueueStats, Retry, Settlement
from tests.conformance.store.driver import Driver, bodies

DONE, LATE, GONE = Outcome.DONE, Outcome.LATE, Outcome.GONE


def test_an_acked_message_is_gone_for_good(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, "a")
    message = driver.lease_one(queue)
    assert driver.ack(queue, message) is DONE
    assert driver.stats(queue) == QueueStats()
    driver.advance(10_000)
    assert driver.lease(queue) == []
    assert driver.find(queue, message.id) is None


def test_settling_what_was_acked_finds_it_gone(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, "a")
    message = driver.lease_one(queue)
    driver.ack(queue, message)
    assert driver.ack(queue, message) is GONE
    assert driver.ack(queue, message, late=True) is GONE
    assert driver.retry(queue, message) is GONE
    assert driver.extend(queue, message, lease_ms=10) is GONE


@pytest.mark.parametrize(("passed_ms", "outcome"), [(99, DONE), (100, LATE), (101, LATE)], ids=str)
def test_an_ack_is_late_from_the_very_end_of_the_lease(
    driver: Driver, queue: Queue, passed_ms: int, outcome: Outcome
) -> None:
    driver.publish(queue, "a")
    message = driver.lease_one(queue, lease_ms=100)
    driver.advance(passed_ms)
    assert driver.ack(queue, message) is outcome
    assert driver.stats(queue).count == (0 if outcome is DONE else 1)


def test_a_late_ack_that_may_be_late_removes_a_waiting_message(
    driver: Driver, queue: Queue
) -> None:
    driver.publish(queue, "a")
    message = driver.lease_one(queue, lease_ms=100)
    driver.advance(100)
    assert driver.ack(queue, message, late=True) is LATE
    assert driver.stats(queue) == QueueStats()
    assert driver.lease(queue) == []


def test_a_late_ack_that_may_be_late_removes_a_message_leased_by_another(
    driver: Driver, queue: Queue
) -> None:
    driver.publish(queue, "a")
    first = driver.lease_one(queue, lease_ms=100)
    driver.advance(100)
    second = driver.lease_one(queue)
    assert driver.ack(queue, first, late=True) is LATE
    assert driver.stats(queue) == QueueStats()
    assert driver.ack(queue, second) is GONE


def test_a_late_ack_that_may_be_late_removes_a_delayed_message(
    driver: Driver, queue: Queue
) -> None:
    driver.publish(queue, "a")
    message = driver.lease_one(queue)
    driver.retry(queue, message, delay_ms=5_000)
    assert driver.ack(queue, message, late=True) is LATE
    assert driver.stats(queue) == QueueStats()
    driver.advance(5_000)
    assert driver.lease(queue) == []


def test_an_old_lease_has_no_power_over_the_next_one(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, "a")
    first = driver.lease_one(queue, lease_ms=100)
    driver.advance(100)
    second = driver.lease_one(queue, lease_ms=100)
    assert driver.ack(queue, first) is LATE
    assert driver.retry(queue, first) is LATE
    assert driver.extend(queue, first, lease_ms=9_000) is LATE
    driver.advance(99)
    assert driver.ack(queue, second) is DONE


@pytest.mark.parametrize(
    "item",
    [
        Ack(1, 2, late=True),
        Ack(1, 0, late=True),
        Ack(1, -1, late=True),
        Ack(2, 1, late=True),
        Ack(0, 1, late=True),
        Ack(-1, 1, late=True),
        Ack(2**42 + 1, 1, late=True),
        Ack(2**62, 1, late=True),
        Retry(1, 2),
        Retry(2, 1),
        Extend(1, 2, 1_000),
        Extend(2, 1, 1_000),
    ],
    ids=str,
)
def test_a_lease_that_was_never_given_finds_nothing(driver: Driver, item: Settlement) -> None:
    queue, other = driver.queue(), driver.queue("other")
    driver.publish(queue, "a")
    driver.publish(other, "b", "c")
    held = driver.lease(other)
    message = driver.lease_one(queue)
    assert message.seq == 1
    assert driver.settle(queue, item) == [GONE]
    assert driver.ack(queue, message) is DONE
    assert [driver.ack(other, each) for each in held] == [DONE, DONE]


def test_a_message_that_was_never_handed_out_cannot_be_settled(
    driver: Driver, queue: Queue
) -> None:
    driver.publish(queue, "a")
    [message] = driver.peek(queue)
    for attempt in (0, 1):
        assert driver.settle(queue, Ack(message.seq, attempt, late=True)) == [GONE]
    assert driver.stats(queue).count == 1


def test_a_retry_makes_the_message_ready_at_once(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, "a")
    first = driver.lease_one(queue)
    assert driver.retry(queue, first) is DONE
    assert driver.stats(queue).leased == 0
    second = driver.lease_one(queue)
    assert (second.id, second.attempts) == (first.id, 2)


def test_a_retry_after_the_lease_has_no_effect(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, "a")
    message = driver.lease_one(queue, lease_ms=100)
    driver.advance(100)
    assert driver.retry(queue, message, delay_ms=60_000) is LATE
    assert bodies(driver.peek(queue)) == ["a"]


def test_a_lease_settled_once_is_over(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, "a")
    message = driver.lease_one(queue)
    assert driver.retry(queue, message) is DONE
    assert driver.retry(queue, message) is LATE
    assert driver.extend(queue, message, lease_ms=10_000) is LATE
    assert driver.ack(queue, message) is LATE
    assert bodies(driver.peek(queue)) == ["a"]


def test_an_extended_lease_ends_so_long_after_now(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, "a")
    message = driver.lease_one(queue, lease_ms=100)
    driver.advance(50)
    assert driver.extend(queue, message, lease_ms=100) is DONE
    driver.advance(99)
    assert driver.lease(queue) == []
    assert driver.extend(queue, message, lease_ms=100) is DONE
    driver.advance(99)
    assert driver.ack(queue, message) is DONE


def test_an_extension_can_shorten_a_lease(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, "a")
    message = driver.lease_one(queue, lease_ms=10_000)
    assert driver.extend(queue, message, lease_ms=5) is DONE
    driver.advance(4)
    assert driver.peek(queue) == []
    driver.advance(1)
    assert driver.lease_one(queue).attempts == 2


def test_an_extension_to_no_length_releases_the_message(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, "a")
    message = driver.lease_one(queue)
    assert driver.extend(queue, message, lease_ms=0) is DONE
    assert driver.ack(queue, message) is LATE
    assert driver.lease_one(queue).attempts == 2


@pytest.mark.parametrize(("passed_ms", "outcome"), [(99, DONE), (100, LATE)], ids=str)
def test_an_extension_is_late_from_the_very_end_of_the_lease(
    driver: Driver, queue: Queue, passed_ms: int, outcome: Outcome
) -> None:
    driver.publish(queue, "a")
    message = driver.lease_one(queue, lease_ms=100)
    driver.advance(passed_ms)
    assert driver.extend(queue, message, lease_ms=1_000) is outcome
    assert len(driver.peek(queue)) == (0 if outcome is DONE else 1)


def test_each_item_of_a_batch_has_its_own_fate(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, *"abcde")
    a, b, c, d, e = driver.lease(queue, lease_ms=100)
    driver.ack(queue, e)
    driver.extend(queue, d, lease_ms=0)
    outcomes = driver.settle(
        queue,
        Ack(a.seq, 1),
        Retry(b.seq, 1),
        Extend(c.seq, 1, lease_ms=500),
        Ack(d.seq, 1),
        Ack(e.seq, 1),
        Ack(99, 1),
    )
    assert outcomes == [DONE, DONE, DONE, LATE, GONE, GONE]
    assert bodies(driver.peek(queue)) == ["b", "d"]
    driver.advance(499)
    assert driver.ack(queue, c) is DONE


def test_items_of_one_batch_take_effect_one_after_the_other(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, "a", "b", "c")
    a, b, c = driver.lease(queue)
    assert driver.settle(queue, Ack(a.seq, 1), Ack(a.seq, 1), Retry(a.seq, 1)) == [
        DONE,
        GONE,
        GONE,
    ]
    assert driver.settle(queue, Retry(b.seq, 1), Ack(b.seq, 1), Ack(b.seq, 1, late=True)) == [
        DONE,
        LATE,
        LATE,
    ]
    assert driver.settle(queue, Extend(c.seq, 1, 50), Retry(c.seq, 1), Retry(c.seq, 1)) == [
        DONE,
        DONE,
        LATE,
    ]
    assert bodies(driver.lease(queue)) == ["c"]


def test_an_empty_batch_settles_nothing(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, "a")
    driver.lease(queue)
    before = driver.last()
    assert driver.settle(queue) == []
    assert driver.last() == before


def test_numbers_follow_every_settlement(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, "a", "bb", "ccc")
    a, b, c = driver.lease(queue, lease_ms=100)
    first_ms = driver.now_ms
    assert driver.stats(queue) == QueueStats(3, 6, first_ms, leased=3)
    driver.retry(queue, a)
    assert driver.stats(queue) == QueueStats(3, 6, first_ms, leased=2)
    driver.retry(queue, b, delay_ms=10)
    assert driver.stats(queue) == QueueStats(3, 6, first_ms, leased=1, delayed=1)
    driver.advance(10)
    assert driver.stats(queue) == QueueStats(3, 6, first_ms, leased=1)
    driver.ack(queue, c)
    assert driver.stats(queue) == QueueStats(2, 3, first_ms)
    driver.lease(queue, lease_ms=100)
    driver.advance(100)
    assert driver.stats(queue) == QueueStats(2, 3, first_ms)


def test_one_message_can_be_settled_while_others_expire(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, "a", "b")
    a, b = driver.lease(queue, lease_ms=100)
    driver.extend(queue, a, lease_ms=200)
    driver.advance(100)
    assert driver.settle(queue, Ack(a.seq, 1), Ack(b.seq, 1)) == [DONE, LATE]


def test_an_extension_to_no_length_ends_the_lease_for_the_rest_of_its_batch(
    driver: Driver, queue: Queue
) -> None:
    driver.publish(queue, "a")
    message = driver.lease_one(queue)
    items = Extend(message.seq, 1, lease_ms=0), Retry(message.seq, 1, 500), Ack(message.seq, 1)
    assert driver.settle(queue, *items) == [DONE, LATE, LATE]
    assert bodies(driver.peek(queue)) == ["a"]
