"""Queues that only push: what every listener has acknowledged is no backlog, and stays readable."""

from typing import Any

import pytest

from courier import ids
from courier.core.errors import OverLimit
from courier.core.types import BROKER, DAY_MS, Consumer, Draft, Listener, PushStats, Queue
from tests.conformance.store.driver import ARRIVED, Driver, bodies


def arrive(driver: Driver, *listeners: Listener) -> None:
    """Everything that these listeners can take is acknowledged."""
    for listener in listeners:
        for message in driver.take(listener):
            assert driver.arrive(listener, message)


def kept(driver: Driver, queue: Queue) -> list[str]:
    return bodies(driver.browse(queue, kept=True))


def consumer(queue: Queue, mode: Any) -> Consumer:
    return Consumer(
        id=ids.new_id(),
        tenant=queue.tenant,
        parent=queue.id,
        name="",
        created_ms=1,
        mode=mode,
        batch_size=1,
    )


def test_a_delivered_message_is_acknowledged_by_the_broker(
    driver: Driver, queue: Queue, listener: Listener
) -> None:
    driver.publish(queue, "ab", "c")
    driver.advance(5)
    before = driver.last()
    driver.arrive(listener, driver.take_one(listener))
    pushed, acked = driver.events(after=before)
    assert (pushed["kind"], pushed["seq"]) == ("pushed", 1)
    assert (acked["actor"], acked["dialect"]) == (BROKER.id, BROKER.dialect)
    told = {key: acked[key] for key in ("kind", "seq", "size", "attempt", "published_ms")}
    assert told == {
        "kind": "acked",
        "seq": 1,
        "size": 2,
        "attempt": 0,
        "published_ms": driver.now_ms - 5,
    }
    assert "first_leased_ms" not in acked


def test_it_stays_readable_and_is_no_backlog(
    driver: Driver, queue: Queue, listener: Listener
) -> None:
    [a, _] = driver.publish(queue, "a", "b").ids
    driver.advance(5)
    driver.publish(queue, "c")
    [first, _, _] = driver.take(listener)
    driver.arrive(listener, first)
    stats = driver.stats(queue)
    assert (stats.count, stats.bytes, stats.oldest_ms) == (2, 2, driver.now_ms - 5)
    assert driver.backlogs()[1][queue.id] == 2
    assert bodies(driver.browse(queue)) == ["b", "c"]
    assert kept(driver, queue) == ["a", "b", "c"]
    found = driver.find(queue, a)
    assert found is not None and (found.body, found.attempts) == (b"a", 0)
    assert driver.push(listener, 1).report == ARRIVED
    assert driver.rename(queue, 1, "named") is not None


def test_the_last_listener_counts(driver: Driver, queue: Queue, listener: Listener) -> None:
    other = driver.listener(queue, "press")
    driver.publish(queue, "a")
    arrive(driver, listener)
    assert driver.stats(queue).count == 1
    arrive(driver, other)
    assert driver.stats(queue).count == 0
    assert [push.status for push in driver.pushes(queue, 1)] == ["acknowledged"] * 2


def test_a_listener_that_gave_up_leaves_a_backlog(
    driver: Driver, queue: Queue, listener: Listener
) -> None:
    other = driver.listener(queue, "press")
    driver.publish(queue, "a")
    driver.miss(other, driver.take_one(other), delay_ms=None)
    arrive(driver, listener)
    assert driver.stats(queue).count == 1
    driver.retry_push(other, 1)
    arrive(driver, other)
    assert driver.stats(queue).count == 0
    assert kept(driver, queue) == ["a"]


def test_a_deleted_listener_owes_nothing(driver: Driver, queue: Queue, listener: Listener) -> None:
    other = driver.listener(queue, "press")
    driver.publish(queue, "a")
    arrive(driver, listener)
    driver.publish(queue, "b")
    driver.change(drops=[other])
    driver.sweep_all()
    assert bodies(driver.browse(queue)) == ["b"]
    assert kept(driver, queue) == ["a", "b"]


def test_what_only_a_deleted_listener_was_owed_was_not_delivered(
    driver: Driver, queue: Queue, listener: Listener
) -> None:
    driver.publish(queue, "a")
    driver.listener(queue, "press")
    driver.change(drops=[listener])
    driver.sweep_all()
    assert bodies(driver.browse(queue)) == ["a"]


@pytest.mark.parametrize("how", ["lease", "empty lease", "peek", "claim", "pull", "push"])
def test_a_queue_that_is_pulled_from_keeps_its_messages_for_pullers(
    driver: Driver, queue: Queue, listener: Listener, how: str
) -> None:
    driver.publish(queue, "early")
    arrive(driver, listener)
    if how == "lease":
        driver.publish(queue, "mine")
        driver.ack(queue, driver.lease_one(queue))
    elif how == "empty lease":
        assert driver.lease(queue) == []
    elif how == "peek":
        assert driver.peek(queue) == []
    elif how == "claim":
        assert driver.claim(queue) == 0
    else:
        driver.change(puts=[consumer(queue, how)])
    driver.publish(queue, "late")
    arrive(driver, listener)
    assert driver.stats(queue).count == 1
    # What was delivered before is not handed out.
    assert bodies(driver.lease(queue)) == ["late"]
    assert kept(driver, queue)[0] == "early"


def test_who_only_looks_is_no_puller(driver: Driver, queue: Queue, listener: Listener) -> None:
    driver.publish(queue, "a")
    looked = driver.run(
        driver.store.messages.ready(queue.id, count=9, now_ms=driver.now_ms, bodies=True)
    )
    assert bodies(looked) == ["a"]
    arrive(driver, listener)
    assert driver.stats(queue).count == 0


def test_a_queue_whose_consumer_went_unused_only_pushes_again(
    driver: Driver, queue: Queue, listener: Listener
) -> None:
    pull = consumer(queue, "pull")
    driver.change(puts=[pull])
    driver.change(drops=[pull])
    driver.publish(queue, "a")
    arrive(driver, listener)
    assert driver.stats(queue).count == 0


def test_a_queue_without_listeners_is_for_pullers(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, "a")
    driver.sweep_all()
    assert bodies(driver.lease(queue)) == ["a"]


def test_what_is_sent_to_one_listener_alone_goes_with_its_push(
    driver: Driver, queue: Queue, listener: Listener
) -> None:
    driver.publish_rows(queue, "a", listener=listener)
    arrive(driver, listener)
    assert kept(driver, queue) == []


@pytest.mark.parametrize("fifo", [False, True])
@pytest.mark.parametrize("own", [False, True], ids=["retention", "own expiry"])
def test_a_delivered_message_ends_with_its_time(driver: Driver, fifo: bool, own: bool) -> None:
    queue = driver.queue("old", fifo=fifo, retention_ms=DAY_MS if own else 100)
    listener = driver.listener(queue)
    driver.publish(queue, *(Draft(b.encode(), ttl_ms=100 if own else None) for b in "ab"))
    driver.advance(50)
    driver.publish(queue, "c")
    arrive(driver, listener)
    driver.advance(49)
    assert kept(driver, queue) == ["a", "b", "c"]
    before = driver.last()
    driver.advance(1)
    assert kept(driver, queue) == ["c"]
    assert driver.pushes(queue, 1) == []
    assert driver.kinds(after=before) == []


def test_remove_and_purge_end_delivered_messages(
    driver: Driver, queue: Queue, listener: Listener
) -> None:
    driver.publish(queue, "a", "b", "c")
    arrive(driver, listener)
    assert driver.remove(queue, 2, 2, 9) == [True, False, False]
    assert kept(driver, queue) == ["a", "c"]
    assert driver.purge(queue, upto_seq=1) == 1
    assert kept(driver, queue) == ["c"]
    assert driver.purge(queue, upto_seq=9) == 1
    assert driver.purge(queue, upto_seq=9) == 0


def test_delivered_messages_of_a_dropped_queue_go(
    driver: Driver, queue: Queue, listener: Listener
) -> None:
    driver.publish(queue, "a", "b")
    driver.arrive(listener, driver.take(listener)[0])
    before = driver.last()
    driver.change(drops=[queue, listener])
    driver.sweep_all()
    gone = [event["seq"] for event in driver.events(after=before) if event["kind"] == "deleted"]
    assert gone == [2]
    assert driver.backlogs()[1].get(queue.id, 0) == 0


def test_a_backfill_finds_delivered_messages(
    driver: Driver, queue: Queue, listener: Listener
) -> None:
    driver.publish(queue, "a", "b")
    arrive(driver, listener)
    later = driver.listener(queue, "later")
    assert driver.backfill(later) == (2, 2)
    a, b = driver.take(later)
    driver.arrive(later, a)
    driver.miss(later, b, delay_ms=None)
    before = driver.last()
    assert kept(driver, queue) == ["a", "b"]
    assert driver.stats(queue).count == 0
    # Still after its listeners are gone.
    driver.change(drops=[listener, later])
    driver.sweep_all()
    assert kept(driver, queue) == ["a", "b"]
    assert set(driver.kinds(after=before)) == {"listener_deleted"}


def test_retention_waits_for_an_open_push_of_a_delivered_message(driver: Driver) -> None:
    queue = driver.queue("old", retention_ms=100)
    listener = driver.listener(queue)
    driver.publish(queue, "a")
    arrive(driver, listener)
    later = driver.listener(queue, "later")
    driver.backfill(later)
    driver.advance(100)
    assert kept(driver, queue) == ["a"]
    arrive(driver, later)
    assert kept(driver, queue) == []


def test_delivered_messages_make_room_oldest_first(
    driver: Driver, queue: Queue, listener: Listener
) -> None:
    for body in ("aa", "bb", "cc"):
        driver.publish(queue, body, bytes_max=6)
        arrive(driver, listener)
    assert kept(driver, queue) == ["aa", "bb", "cc"]
    driver.publish(queue, "ddd", bytes_max=6)
    assert kept(driver, queue) == ["cc", "ddd"]
    driver.publish_rows(queue, "ee", bytes_max=6)
    assert kept(driver, queue) == ["ddd", "ee"]
    # What listeners are owed does not.
    with pytest.raises(OverLimit):
        driver.publish(queue, "ff", bytes_max=6)
    assert kept(driver, queue) == ["ddd", "ee"]
    driver.publish(queue, "f", bytes_max=6)
    assert driver.stats(queue).bytes == 6


def test_pushes_that_expire_are_counted(driver: Driver, queue: Queue, listener: Listener) -> None:
    driver.publish(queue, *(Draft(b.encode(), ttl_ms=100) for b in "abc"))
    a, b = driver.take(listener, count=2)
    driver.arrive(listener, a)
    driver.miss(listener, b, delay_ms=None)
    last_ms = driver.now_ms
    driver.advance(100)
    assert driver.push_stats(listener) == PushStats(
        acknowledged=1, last_success_ms=last_ms, last_failure_ms=last_ms, expired=2
    )
    driver.publish(queue, "removed")
    driver.remove(queue, 4)
    assert driver.push_stats(listener).expired == 2
