"""What time does to pushes: delays and leases end, messages expire, dropped listeners go."""

import pytest

from courier.core.types import (
    DAY_MS,
    MINUTE_MS,
    Ack,
    Draft,
    Listener,
    Push,
    PushStats,
    Queue,
    QueueStats,
)
from tests.conformance.store.driver import SILENCE, Driver, bodies

# More than any verb but the sweep works off.
MANY = 1_500


# --- delays ---


@pytest.mark.parametrize("fifo", [False, True], ids=["standard", "fifo"])
@pytest.mark.parametrize("own", [False, True], ids=["queue's", "own"])
def test_a_delayed_message_is_pushed_exactly_when_its_delay_is_over(
    driver: Driver, fifo: bool, own: bool
) -> None:
    queue = driver.queue(delay_ms=5 if own else 100, fifo=fifo)
    listener = driver.listener(queue)
    driver.publish(queue, Draft(b"a", delay_ms=100 if own else None))
    driver.advance(99)
    assert driver.take(listener) == []
    driver.advance(1)
    assert bodies(driver.take(listener)) == ["a"]


@pytest.mark.parametrize("fifo", [False, True], ids=["standard", "fifo"])
def test_a_push_keeps_the_delay_that_its_message_was_published_with(
    driver: Driver, fifo: bool
) -> None:
    queue = driver.queue(delay_ms=100, fifo=fifo)
    listener = driver.listener(queue)
    driver.publish(queue, "a")
    queue = driver.update(queue, delay_ms=0)
    driver.publish(queue, "b")
    driver.update(queue, delay_ms=DAY_MS)
    assert bodies(driver.take(listener)) == ["b"]
    driver.advance(99)
    assert driver.take(listener) == []
    driver.advance(1)
    assert bodies(driver.take(listener)) == ["a"]


# --- leases ---


def test_a_push_in_flight_is_hidden_until_its_lease_ends(
    driver: Driver, queue: Queue, listener: Listener
) -> None:
    driver.publish(queue, "a")
    first = driver.take_one(listener, lease_ms=100)
    first_ms = driver.now_ms
    driver.advance(99)
    assert driver.take(listener) == []
    assert driver.push(listener, 1).status == "in_flight"
    driver.advance(51)
    assert driver.pushes(queue, 1) == [
        Push(
            listener.id,
            1,
            "retrying",
            attempts=1,
            first_ms=first_ms,
            last_ms=first_ms,
            due_ms=first_ms + 100,
            report=SILENCE,
        )
    ]
    assert driver.push_stats(listener) == PushStats(open=1, missed=1, last_failure_ms=driver.now_ms)
    assert not driver.arrive(listener, first)
    second = driver.take_one(listener, lease_ms=100)
    assert second.attempts == 2
    assert not driver.arrive(listener, first)
    assert driver.arrive(listener, second)


def test_a_push_can_be_settled_until_its_lease_ends(
    driver: Driver, queue: Queue, listener: Listener
) -> None:
    driver.publish(queue, "a", "b")
    a, b = driver.take(listener, lease_ms=100)
    driver.advance(99)
    assert driver.arrive(listener, a)
    driver.advance(1)
    assert not driver.arrive(listener, b)
    assert driver.take_one(listener).attempts == 2


def test_a_push_can_be_taken_for_no_time(driver: Driver, queue: Queue, listener: Listener) -> None:
    driver.publish(queue, "a")
    for attempt in (1, 2, 3):
        assert driver.take_one(listener, lease_ms=0).attempts == attempt
    assert driver.push_stats(listener).in_flight == 0


def test_the_end_of_a_lease_never_exhausts_a_push(driver: Driver) -> None:
    dead = driver.queue("dead")
    queue = driver.queue(dead_letter=dead.id)
    listener = driver.listener(queue, attempts_max=1)
    driver.publish(queue, "a")
    for _ in range(3):
        driver.take_one(listener, lease_ms=10)
        driver.advance(10)
    assert driver.push(listener, 1).status == "retrying"
    assert driver.stats(dead) == QueueStats()


def test_an_ordered_listener_waits_for_the_end_of_a_lease(driver: Driver, queue: Queue) -> None:
    listener = driver.listener(queue, ordered=True)
    driver.publish(queue, "a", "b")
    driver.take(listener, lease_ms=100)
    driver.advance(99)
    assert driver.take(listener) == []
    driver.advance(1)
    assert bodies(driver.take(listener)) == ["a"]


# --- expiry ---


def test_a_push_goes_when_its_message_reaches_its_own_expiry(
    driver: Driver, queue: Queue, listener: Listener
) -> None:
    driver.publish(queue, *(Draft(b.encode(), ttl_ms=100) for b in "abcd"))
    a, b, c = driver.take(listener, count=3)
    driver.arrive(listener, a)
    driver.miss(listener, b, delay_ms=None)
    last_ms = driver.now_ms
    driver.advance(99)
    assert driver.push_stats(listener).open == 2
    driver.advance(1)
    assert not driver.arrive(listener, c)
    assert driver.take(listener) == []
    assert [driver.pushes(queue, seq) for seq in (1, 2, 3, 4)] == [[]] * 4
    stats = driver.push_stats(listener)
    assert (stats.open, stats.missed, stats.acknowledged) == (0, 0, 1)
    assert (stats.last_success_ms, stats.last_failure_ms) == (last_ms, last_ms)
    assert driver.missed(listener) == []


@pytest.mark.parametrize("acked", [False, True], ids=["on the queue", "kept"])
def test_however_much_has_expired_none_of_it_is_pushed(
    driver: Driver, queue: Queue, listener: Listener, acked: bool
) -> None:
    driver.publish(queue, *(Draft(b"old", ttl_ms=100) for _ in range(MANY)))
    if acked:
        driver.settle(queue, *(Ack(m.seq, 1) for m in driver.lease(queue, count=MANY)))
    driver.advance(50)
    driver.publish(queue, "new")
    driver.advance(50)
    assert bodies(driver.take(listener, count=10)) in ([], ["new"])
    driver.sweep_all()
    assert bodies(driver.take(listener)) in ([], ["new"])
    assert driver.push_stats(listener).open == 1


# --- the sweep ---


def test_a_sweep_returns_what_was_in_flight_too_long(
    driver: Driver, queue: Queue, listener: Listener
) -> None:
    driver.publish(queue, *"abcde")
    driver.take(listener, lease_ms=100)
    driver.advance(99)
    assert driver.sweep().returned == 0
    driver.advance(1)
    counts = [swept.returned for swept in driver.sweeps(limit=2)]
    assert max(counts) <= 2
    assert sum(counts) == 5
    assert driver.kinds().count("push_failed") == 5


def test_a_sweep_says_when_the_next_push_is_due(driver: Driver) -> None:
    queue = driver.queue(fifo=True, delay_ms=300)
    listener = driver.listener(queue)
    start_ms = driver.now_ms
    driver.publish(queue, "a")
    driver.update(queue, delay_ms=0)
    # Pullers need not wait any more, and are done with it before it is pushed.
    driver.ack(queue, driver.lease_one(queue))
    assert driver.sweep().next_ms == start_ms + 300
    driver.advance(300)
    taken = driver.take_one(listener, lease_ms=200)
    assert driver.sweep().next_ms == start_ms + 500
    driver.miss(listener, taken, delay_ms=100)
    assert driver.sweep().next_ms == start_ms + 400
    driver.advance(100)
    driver.miss(listener, driver.take_one(listener), delay_ms=None)
    assert driver.sweep().next_ms == start_ms + queue.retention_ms
    driver.advance(queue.retention_ms)
    assert driver.sweep().expired == 1
    assert driver.sweep().next_ms is None


# --- dropped listeners ---


def test_the_pushes_of_a_dropped_listener_are_not_told_of(
    driver: Driver, queue: Queue, listener: Listener
) -> None:
    other = driver.listener(queue, "press")
    driver.publish(queue, "a", "b")
    driver.change(drops=[listener])
    assert [push.listener for push in driver.pushes(queue, 1)] == [other.id]
    driver.sweep_all()
    assert [push.listener for push in driver.pushes(queue, 1)] == [other.id]
    assert bodies(driver.take(other)) == ["a", "b"]
    assert driver.stats(queue).count == 2


def test_the_pushes_of_a_dropped_listener_go_in_chunks(
    driver: Driver, queue: Queue, listener: Listener
) -> None:
    driver.pull(queue)
    driver.publish(queue, *"abcde", Draft(b"f", delay_ms=DAY_MS))
    _, b, c, d = driver.take(listener, count=4)
    driver.arrive(listener, b)
    driver.miss(listener, c, delay_ms=None)
    driver.miss(listener, d, delay_ms=DAY_MS)
    before = driver.last()
    driver.change(drops=[listener])
    counts = [swept.dropped for swept in driver.sweeps(limit=2)]
    assert max(counts) <= 2
    assert sum(counts) == 6
    dropped = [event for event in driver.events(after=before) if event["kind"] == "push_dropped"]
    assert {event["seq"]: event["attempt"] for event in dropped} == {1: 1, 4: 1, 5: 0, 6: 0}
    assert driver.sweep().next_ms == driver.now_ms + DAY_MS
    assert driver.stats(queue).count == 6


def test_time_no_longer_passes_for_a_dropped_listener(
    driver: Driver, queue: Queue, listener: Listener
) -> None:
    driver.publish(queue, "a", "b")
    taken = driver.take_one(listener, lease_ms=100)
    driver.miss(listener, taken, delay_ms=50)
    driver.take(listener, lease_ms=100)
    before = driver.last()
    driver.change(drops=[listener])
    driver.advance(100)
    driver.stats(queue)
    driver.sweep_all()
    kinds = driver.kinds(after=before)
    assert kinds == ["listener_deleted", "push_dropped", "push_dropped"]
    assert driver.sweep().next_ms == driver.now_ms - 100 + queue.retention_ms


@pytest.mark.parametrize("end", ["remove", "purge", "expiry"])
def test_a_push_whose_listener_and_message_both_go_is_dropped_once(
    driver: Driver, end: str
) -> None:
    queue = driver.queue(retention_ms=100)
    listener = driver.listener(queue)
    driver.publish(queue, "a")
    driver.change(drops=[listener])
    if end == "remove":
        driver.remove(queue, 1)
    elif end == "purge":
        driver.purge(queue, upto_seq=1)
    else:
        driver.advance(100)
    driver.sweep_all()
    assert driver.kinds().count("push_dropped") == 1
    assert not driver.sweep().more


def test_pushes_go_before_the_messages_of_a_queue_that_is_dropped_with_its_listener(
    driver: Driver, queue: Queue, listener: Listener
) -> None:
    driver.publish(queue, "a", "b")
    driver.ack(queue, driver.lease_one(queue))
    before = driver.last()
    driver.change(drops=[queue, listener])
    counts = [swept.dropped for swept in driver.sweeps(limit=1)]
    assert max(counts) <= 1
    events = driver.events(after=before)[2:]
    told = [(e["kind"], e["seq"], e.get("detail", {}).get("reason")) for e in events]
    assert told == [
        ("push_dropped", 1, "listener"),
        ("push_dropped", 2, "listener"),
        ("deleted", 2, None),
    ]
    assert driver.sweep().next_ms is None


def test_a_listener_created_again_under_the_same_name_starts_anew(
    driver: Driver, queue: Queue, listener: Listener
) -> None:
    driver.publish(queue, "a", "b")
    driver.arrive(listener, driver.take_one(listener))
    driver.change(drops=[listener])
    again = driver.listener(queue, listener.title)
    assert driver.push_stats(again) == PushStats()
    driver.publish(queue, "c")
    assert bodies(driver.take(again)) == ["c"]
    driver.sweep_all()
    assert driver.push_stats(again) == PushStats(open=1, in_flight=1)


def test_dropping_several_listeners_ends_all_their_pushes(driver: Driver, queue: Queue) -> None:
    listeners = [driver.listener(queue, title) for title in "abc"]
    driver.publish(queue, "1", "2")
    driver.change(drops=listeners)
    driver.sweep_all()
    assert driver.kinds().count("push_dropped") == 6


def test_an_acknowledged_push_is_known_as_long_as_its_message_is_there(
    driver: Driver, queue: Queue, listener: Listener
) -> None:
    driver.pull(queue)
    driver.publish(queue, "a", "b")
    for message in driver.take(listener):
        driver.arrive(listener, message)
    driver.ack(queue, driver.lease_one(queue))
    for _ in range(2):
        driver.advance(2 * MINUTE_MS)
        driver.sweep_all()
    assert driver.pushes(queue, 1) == []
    assert driver.push(listener, 2).status == "acknowledged"
