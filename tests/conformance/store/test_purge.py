from courier.core.types import Draft, Outcome, Queue, QueueStats
from tests.conformance.store.driver import Driver, bodies


def test_a_purge_deletes_whatever_the_state(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, "leased", "retried", "waiting", Draft(b"delayed", delay_ms=500))
    leased, retried = driver.lease(queue, count=2)
    driver.retry(queue, retried, delay_ms=500)
    assert driver.purge(queue, upto_seq=driver.tail(queue)) == 4
    assert driver.stats(queue) == QueueStats()
    assert driver.ack(queue, leased, late=True) is Outcome.GONE
    driver.advance(5_000)
    assert driver.lease(queue) == []


def test_messages_published_behind_the_mark_survive(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, "a", Draft(b"b", delay_ms=10))
    mark = driver.tail(queue)
    driver.publish(queue, "c", Draft(b"d", delay_ms=10))
    assert driver.purge(queue, upto_seq=mark) == 2
    driver.advance(10)
    assert sorted(bodies(driver.lease(queue))) == ["c", "d"]


def test_a_purge_goes_on_until_nothing_is_left(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, *"abc", *(Draft(b"x", delay_ms=10) for _ in range(3)))
    mark = driver.tail(queue)
    counts = []
    while count := driver.purge(queue, upto_seq=mark, limit=4):
        counts.append(count)
    assert counts == [4, 2]
    assert driver.stats(queue) == QueueStats()


def test_a_purge_of_an_empty_queue_finds_nothing(driver: Driver, queue: Queue) -> None:
    before = driver.last()
    assert driver.purge(queue, upto_seq=driver.tail(queue)) == 0
    assert driver.last() == before


def test_the_queue_works_on_after_a_purge(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, "a", "b")
    driver.lease(queue, count=1)
    driver.purge(queue, upto_seq=driver.tail(queue))
    driver.publish(queue, "c")
    assert bodies(driver.lease(queue)) == ["c"]


def test_other_queues_are_left_alone(driver: Driver, queue: Queue) -> None:
    others = [driver.queue("before"), driver.queue("behind")]
    for each in (queue, *others):
        driver.publish(each, "a", Draft(b"b", delay_ms=10))
    driver.purge(queue, upto_seq=2**40)
    assert [driver.stats(other).count for other in others] == [2, 2]


def test_a_removal_deletes_the_named_messages_whatever_their_state(
    driver: Driver, queue: Queue
) -> None:
    driver.publish(queue, "leased", "kept", "waiting", Draft(b"delayed", delay_ms=500))
    leased = driver.lease_one(queue)
    assert driver.remove(queue, leased.seq, 3, 4, 4, 99, 0, -1) == [
        True,
        True,
        True,
        False,
        False,
        False,
        False,
    ]
    assert bodies(driver.peek(queue)) == ["kept"]
    assert driver.stats(queue) == QueueStats(1, 4, driver.now_ms)
    assert driver.ack(queue, leased) is Outcome.GONE
    driver.advance(5_000)
    assert bodies(driver.lease(queue)) == ["kept"]


def test_a_removal_can_leave_leased_messages_alone(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, "leased", "waiting", Draft(b"delayed", delay_ms=500))
    leased = driver.lease_one(queue)
    before = driver.last()
    for dry_run in (True, False):
        assert driver.remove(queue, 1, 2, 2, 3, 9, leased=False, dry_run=dry_run) == [
            False, True, False, True, False,
        ]  # fmt: skip
        assert (driver.last() == before) is dry_run
    assert driver.remove(queue, 1, dry_run=True) == [True]
    assert driver.stats(queue).count == 1
    assert driver.ack(queue, leased) is Outcome.DONE


def test_a_removal_of_nothing_writes_nothing(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, "a")
    before = driver.last()
    assert driver.remove(queue) == []
    assert driver.remove(queue, 99) == [False]
    assert driver.last() == before


def test_a_removal_reaches_no_other_queue(driver: Driver, queue: Queue) -> None:
    other = driver.queue("other")
    driver.publish(other, "a")
    assert driver.remove(queue, 1) == [False]
    assert driver.stats(other).count == 1
