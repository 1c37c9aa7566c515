"""A listener can be bound to messages that were there before it."""

from courier.core.types import DAY_MS, Draft, Listener, Push, PushStats, Queue
from tests.conformance.store.driver import Driver, bodies


def test_what_was_there_before_a_listener_can_be_pushed_to_it(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, "a", Draft(b"b", id="own"))
    driver.advance(10)
    listener = driver.listener(queue)
    before = driver.last()
    assert driver.backfill(listener) == (2, 2)
    assert driver.last() == before
    assert driver.pushes(queue, 1) == [Push(listener.id, 1, "pending", due_ms=driver.now_ms)]
    assert driver.push_stats(listener) == PushStats(open=2)
    assert driver.take(listener) == driver.lease(queue)


def test_nothing_is_bound_twice(driver: Driver, queue: Queue, listener: Listener) -> None:
    driver.publish(queue, *"abcd")
    a, b, _ = driver.take(listener, count=3)
    driver.arrive(listener, a)
    driver.miss(listener, b, delay_ms=None)
    assert driver.backfill(listener) == (0, 4)
    statuses = [driver.push(listener, seq).status for seq in (1, 2, 3, 4)]
    assert statuses == ["acknowledged", "exhausted", "in_flight", "pending"]
    assert driver.push_stats(listener).open == 2


def test_only_what_was_published_in_that_time_is_bound(driver: Driver, queue: Queue) -> None:
    start_ms = driver.now_ms
    for body in "abcde":
        driver.publish(queue, body)
        driver.advance(10)
    listener = driver.listener(queue)
    assert driver.backfill(listener, since_ms=start_ms + 10, until_ms=start_ms + 30) == (2, 3)
    assert bodies(driver.take(listener)) == ["b", "c"]
    assert driver.backfill(listener, since_ms=start_ms + 11, until_ms=start_ms + 20) == (0, 0)
    assert driver.backfill(listener, since_ms=start_ms + 31, until_ms=start_ms + 41) == (1, 5)
    assert bodies(driver.take(listener)) == ["e"]


def test_a_backfill_goes_on_until_nothing_is_left(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, *"abc")
    start_ms = driver.now_ms
    driver.advance(10)
    driver.publish(queue, *"def")
    listener = driver.listener(queue)
    # One that it has a push of is looked at as well.
    driver.publish(queue, "g")
    answers = []
    after_seq = 0
    while True:
        bound, after_seq = driver.backfill(
            listener, since_ms=start_ms + 1, after_seq=after_seq, limit=2
        )
        answers.append((bound, after_seq))
        if not after_seq:
            break
    assert answers == [(2, 5), (1, 7), (0, 0)]
    assert bodies(driver.take(listener)) == list("defg")


def test_messages_that_are_gone_are_not_bound(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, "a", "b", Draft(b"c", ttl_ms=50), "d")
    driver.remove(queue, 1)
    driver.ack(queue, driver.lease_one(queue))
    driver.advance(50)
    listener = driver.listener(queue)
    assert driver.backfill(listener) == (1, 4)
    assert bodies(driver.take(listener)) == ["d"]


def test_a_message_is_bound_whatever_its_state(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, "leased", "retried", Draft(b"delayed", delay_ms=DAY_MS), "new")
    _, retried = driver.lease(queue, count=2, lease_ms=DAY_MS)
    driver.retry(queue, retried, delay_ms=DAY_MS)
    listener = driver.listener(queue)
    assert driver.backfill(listener) == (4, 4)
    assert bodies(driver.take(listener)) == ["leased", "retried", "delayed", "new"]


def test_a_kept_message_can_be_bound_to_another_listener(
    driver: Driver, queue: Queue, listener: Listener
) -> None:
    driver.publish(queue, "a", "b")
    driver.ack(queue, driver.lease_one(queue))
    other = driver.listener(queue, "press")
    assert driver.backfill(other) == (2, 2)
    driver.arrive(listener, driver.take_one(listener))
    assert bodies(driver.browse(queue, kept=True)) == ["a", "b"]
    driver.arrive(other, driver.take_one(other))
    assert bodies(driver.browse(queue, kept=True)) == ["b"]


def test_a_message_is_kept_for_a_listener_that_it_was_bound_to_later(
    driver: Driver, queue: Queue
) -> None:
    driver.publish(queue, "a")
    listener = driver.listener(queue)
    driver.backfill(listener)
    driver.ack(queue, driver.lease_one(queue))
    assert bodies(driver.browse(queue, kept=True)) == ["a"]
    assert bodies(driver.take(listener)) == ["a"]


def test_an_ordered_listener_takes_what_was_bound_later_in_its_place(
    driver: Driver, queue: Queue
) -> None:
    driver.publish(queue, "a")
    listener = driver.listener(queue, ordered=True)
    driver.publish(queue, "b")
    driver.backfill(listener)
    driver.arrive(listener, driver.take_one(listener))
    assert bodies(driver.take(listener)) == ["b"]


def test_an_empty_queue_has_nothing_to_bind(
    driver: Driver, queue: Queue, listener: Listener
) -> None:
    assert driver.backfill(listener) == (0, 0)
    driver.publish(queue, "a")
    assert driver.backfill(listener, after_seq=1) == (0, 0)
