import pytest

from courier.core.types import Draft, Outcome, Queue
from tests.conformance.store.driver import Driver, bodies


def test_a_delayed_message_is_ready_exactly_when_its_delay_ends(
    driver: Driver, queue: Queue
) -> None:
    driver.publish(queue, Draft(b"a", delay_ms=100))
    assert driver.stats(queue).delayed == 1
    driver.advance(99)
    assert driver.lease(queue) == []
    assert driver.peek(queue) == []
    assert driver.stats(queue).delayed == 1
    driver.advance(1)
    assert driver.stats(queue).delayed == 0
    assert bodies(driver.peek(queue)) == ["a"]
    message = driver.lease_one(queue)
    assert message.attempts == 1
    assert driver.ack(queue, message) is Outcome.DONE


def test_the_queues_delay_applies_when_the_draft_names_none(driver: Driver) -> None:
    queue = driver.queue(delay_ms=100)
    driver.publish(queue, "slow", Draft(b"own", delay_ms=50), Draft(b"now", delay_ms=0))
    assert bodies(driver.peek(queue)) == ["now"]
    driver.advance(50)
    assert sorted(bodies(driver.peek(queue))) == ["now", "own"]
    driver.advance(49)
    assert sorted(bodies(driver.peek(queue))) == ["now", "own"]
    driver.advance(1)
    assert sorted(bodies(driver.peek(queue))) == ["now", "own", "slow"]


def test_a_changed_delay_leaves_stored_messages_alone(driver: Driver) -> None:
    queue = driver.queue(delay_ms=100)
    driver.publish(queue, "before")
    queue = driver.update(queue, delay_ms=0)
    driver.publish(queue, "after")
    assert bodies(driver.peek(queue)) == ["after"]
    driver.update(queue, delay_ms=10_000)
    driver.advance(100)
    assert sorted(bodies(driver.peek(queue))) == ["after", "before"]


def test_a_delayed_message_is_found_before_it_is_ready(driver: Driver, queue: Queue) -> None:
    generated, own = driver.publish(
        queue, Draft(b"a", delay_ms=100), Draft(b"b", id="own", delay_ms=100)
    ).ids
    for id in (generated, own):
        message = driver.find(queue, id)
        assert message is not None
        assert (message.id, message.attempts) == (id, 0)


def test_a_retry_waits_for_its_own_delay(driver: Driver) -> None:
    queue = driver.queue(retry_delay_ms=1_000)
    driver.publish(queue, "a")
    driver.retry(queue, driver.lease_one(queue), delay_ms=100)
    driver.advance(99)
    assert driver.peek(queue) == []
    assert driver.stats(queue).delayed == 1
    driver.advance(1)
    assert driver.lease_one(queue).attempts == 2


def test_a_retry_without_a_delay_waits_as_the_queue_says(driver: Driver) -> None:
    queue = driver.queue(retry_delay_ms=100)
    driver.publish(queue, "a")
    driver.retry(queue, driver.lease_one(queue))
    driver.advance(99)
    assert driver.peek(queue) == []
    driver.advance(1)
    assert bodies(driver.peek(queue)) == ["a"]


def test_a_retry_with_no_delay_overrides_the_queues(driver: Driver) -> None:
    queue = driver.queue(retry_delay_ms=100)
    driver.publish(queue, "a")
    driver.retry(queue, driver.lease_one(queue), delay_ms=0)
    assert driver.stats(queue).delayed == 0
    assert bodies(driver.peek(queue)) == ["a"]


@pytest.mark.parametrize("look_ms", [100, 130, 150], ids=str)
def test_after_an_expiry_the_delay_counts_from_the_end_of_the_lease(
    driver: Driver, look_ms: int
) -> None:
    queue = driver.queue(retry_delay_ms=50)
    driver.publish(queue, "a")
    driver.lease(queue, lease_ms=100)
    driver.advance(look_ms)
    stats = driver.stats(queue)
    assert (stats.leased, stats.delayed) == (0, 1 if look_ms < 150 else 0)
    driver.advance(149 - look_ms if look_ms < 149 else 0)
    if look_ms < 149:
        assert driver.peek(queue) == []
        driver.advance(1)
    assert driver.lease_one(queue).attempts == 2


def test_a_message_may_be_delayed_and_leased_in_turn(driver: Driver) -> None:
    queue = driver.queue(attempts_max=None)
    driver.publish(queue, Draft(b"a", delay_ms=10))
    for attempt in range(1, 6):
        driver.advance(10)
        message = driver.lease_one(queue)
        assert message.attempts == attempt
        driver.retry(queue, message, delay_ms=10)
        assert driver.lease(queue) == []


def test_a_delayed_message_can_be_published_among_others(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, "a", Draft(b"b", delay_ms=5), "c", Draft(b"d", delay_ms=0))
    assert bodies(driver.lease(queue)) == ["a", "c", "d"]
    driver.advance(5)
    assert bodies(driver.lease(queue)) == ["b"]
