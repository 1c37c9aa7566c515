from courier.core.types import Draft, Queue
from tests.conformance.store.driver import Driver, bodies


def test_new_messages_are_handed_out_in_the_order_of_publishing(
    driver: Driver, queue: Queue
) -> None:
    for body in "abcdef":
        driver.publish(queue, body)
    assert bodies(driver.lease(queue, count=4) + driver.lease(queue)) == list("abcdef")


def test_retried_messages_go_ahead_of_new_ones(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, *"abcd")
    a, b = driver.lease(queue, count=2)
    driver.retry(queue, b)
    driver.retry(queue, a)
    assert bodies(driver.peek(queue)) == ["a", "b", "c", "d"]


def test_messages_whose_lease_ended_go_ahead_of_new_ones(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, *"abc")
    driver.lease(queue, count=2, lease_ms=10)
    driver.publish(queue, "d")
    driver.advance(10)
    assert bodies(driver.lease(queue)) == ["a", "b", "c", "d"]


def test_messages_whose_delay_ended_go_ahead_of_older_new_ones(
    driver: Driver, queue: Queue
) -> None:
    driver.publish(queue, "a", "b", Draft(b"c", delay_ms=10))
    driver.advance(10)
    assert bodies(driver.peek(queue)) == ["c", "a", "b"]


def test_returning_messages_are_ordered_by_sequence_whatever_brought_them_back(
    driver: Driver, queue: Queue
) -> None:
    driver.publish(queue, "a", Draft(b"b", delay_ms=30), "c", "d", "e")
    _, c, d = driver.lease(queue, count=3, lease_ms=20)
    driver.retry(queue, d)
    driver.retry(queue, c, delay_ms=25)
    driver.advance(30)
    assert bodies(driver.peek(queue, count=3)) == ["a", "b", "c"]
    assert bodies(driver.lease(queue)) == ["a", "b", "c", "d", "e"]


def test_a_settled_message_leaves_no_gap_in_the_order(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, *"abcde")
    a, b, c = driver.lease(queue, count=3)
    driver.ack(queue, b)
    driver.retry(queue, c)
    driver.retry(queue, a)
    driver.remove(queue, driver.peek(queue)[2].seq)
    assert bodies(driver.lease(queue)) == ["a", "c", "e"]


def test_messages_published_after_the_queue_ran_empty_are_handed_out(
    driver: Driver, queue: Queue
) -> None:
    for round in range(3):
        driver.publish(queue, f"{round}a", f"{round}b")
        for message in driver.lease(queue):
            driver.ack(queue, message)
        assert driver.lease(queue) == []
    assert driver.stats(queue).count == 0


def test_a_removed_new_message_does_not_hide_those_behind_it(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, *"abcd")
    first, _, third, _ = driver.peek(queue)
    driver.remove(queue, first.seq, third.seq)
    assert bodies(driver.lease(queue, count=1)) == ["b"]
    assert bodies(driver.lease(queue, count=1)) == ["d"]
