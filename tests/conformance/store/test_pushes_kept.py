"""Messages that pullers are done with are kept for their pushes."""

from collections.abc import Callable

import pytest

from courier.clock import ManualClock
from courier.core.types import (
    DAY_MS,
    MINUTE_MS,
    Draft,
    Listener,
    Message,
    Outcome,
    PushFailed,
    PushStats,
    Queue,
    QueueStats,
)
from tests.conformance.store.driver import REFUSED, Driver, bodies


def keep(driver: Driver, queue: Queue, *drafts: Draft | str) -> list[Message]:
    """Publish and ack; what the pullers got."""
    driver.publish(queue, *drafts)
    messages = driver.lease(queue)
    for message in messages:
        driver.ack(queue, message)
    return messages


def kept(driver: Driver, queue: Queue) -> list[str]:
    """Bodies of the messages that only pushes still need."""
    held = {message.seq for message in driver.browse(queue)}
    return bodies([m for m in driver.browse(queue, kept=True) if m.seq not in held])


def exhaust(driver: Driver, listener: Listener) -> None:
    """Let all that is ready fail for good."""
    for message in driver.take(listener):
        driver.miss(listener, message, delay_ms=None)


# --- what is kept, and how long ---


def test_an_acked_message_is_kept_until_it_has_arrived(
    driver: Driver, queue: Queue, listener: Listener
) -> None:
    [message] = keep(driver, queue, "a")
    assert kept(driver, queue) == ["a"]
    assert driver.find(queue, message.id) is not None
    assert driver.push(listener, 1).status == "pending"
    driver.arrive(listener, driver.take_one(listener))
    assert kept(driver, queue) == []
    assert driver.find(queue, message.id) is None
    assert driver.pushes(queue, 1) == []


@pytest.mark.parametrize("ending", ["retry", "expiry"])
def test_a_buried_message_is_kept_until_it_has_arrived(driver: Driver, ending: str) -> None:
    dead = driver.queue("dead")
    queue = driver.queue(attempts_max=1, dead_letter=dead.id)
    listener = driver.listener(queue)
    driver.publish(queue, "a")
    message = driver.lease_one(queue, lease_ms=10)
    if ending == "retry":
        driver.retry(queue, message)
    driver.advance(10)
    assert bodies(driver.peek(dead)) == ["a"]
    assert kept(driver, queue) == ["a"]
    driver.arrive(listener, driver.take_one(listener))
    assert kept(driver, queue) == []


def test_a_message_is_kept_when_it_was_acked_with_its_push_in_flight(
    driver: Driver, queue: Queue, listener: Listener
) -> None:
    driver.publish(queue, "a")
    taken = driver.take_one(listener)
    driver.ack(queue, driver.lease_one(queue))
    assert driver.arrive(listener, taken)
    assert kept(driver, queue) == []
    assert driver.push_stats(listener).acknowledged == 1


def test_a_message_that_has_arrived_everywhere_is_not_kept(
    driver: Driver, queue: Queue, listener: Listener
) -> None:
    driver.pull(queue)
    other = driver.listener(queue, "press")
    driver.publish(queue, "a")
    for each in (listener, other):
        driver.arrive(each, driver.take_one(each))
    assert [push.status for push in driver.pushes(queue, 1)] == ["acknowledged"] * 2
    driver.ack(queue, driver.lease_one(queue))
    assert kept(driver, queue) == []
    assert driver.pushes(queue, 1) == []
    assert driver.push_stats(listener).acknowledged == 1


def test_a_message_without_listeners_is_not_kept(driver: Driver, queue: Queue) -> None:
    [message] = keep(driver, queue, "a")
    assert kept(driver, queue) == []
    assert driver.find(queue, message.id) is None


def test_a_message_is_kept_for_the_last_of_its_listeners(
    driver: Driver, queue: Queue, listener: Listener
) -> None:
    other = driver.listener(queue, "press")
    keep(driver, queue, "a", "b")
    for message in driver.take(listener):
        driver.arrive(listener, message)
    assert kept(driver, queue) == ["a", "b"]
    assert [push.status for push in driver.pushes(queue, 1)] == ["acknowledged", "pending"]
    a, b = driver.take(other)
    driver.arrive(other, b)
    assert kept(driver, queue) == ["a"]
    driver.arrive(other, a)
    assert kept(driver, queue) == []


def test_a_message_is_kept_for_a_push_that_is_exhausted(
    driver: Driver, queue: Queue, listener: Listener
) -> None:
    keep(driver, queue, "a")
    driver.miss(listener, driver.take_one(listener), delay_ms=None)
    driver.publish(queue, "b")
    taken = driver.take_one(listener)
    driver.miss(listener, taken, delay_ms=None)
    driver.ack(queue, driver.lease_one(queue))
    assert kept(driver, queue) == ["a", "b"]
    for seq in (1, 2):
        assert driver.retry_push(listener, seq)
        driver.arrive(listener, driver.take_one(listener))
    assert kept(driver, queue) == []


def test_a_kept_message_is_pushed_as_it_was(
    driver: Driver, queue: Queue, listener: Listener
) -> None:
    draft = Draft(b"[1]", "json", {"k": ["v"]}, id="order-1", group="g", ttl_ms=500, delay_ms=20)
    driver.publish(queue, draft)
    driver.advance(20)
    message = driver.lease_one(queue)
    driver.ack(queue, message)
    assert driver.take(listener) == [message]


def test_a_kept_message_whose_last_push_failed_becomes_a_dead_letter(driver: Driver) -> None:
    dead = driver.queue("dead")
    queue = driver.queue(dead_letter=dead.id)
    listener = driver.listener(queue)
    keep(driver, queue, Draft(b"a", id="order-1", headers={"k": "v"}, group="g"))
    driver.miss(listener, driver.take_one(listener), delay_ms=None)
    [letter] = driver.peek(dead)
    assert (letter.body, letter.id, letter.group) == (b"a", "order-1", "g")
    assert letter.headers == {"k": "v"}
    assert letter.origin is not None
    assert (letter.origin.queue, letter.origin.reason) == (queue.id, "push")


# --- who knows it ---


def test_pullers_know_nothing_of_a_kept_message(
    driver: Driver, queue: Queue, listener: Listener
) -> None:
    driver.publish(queue, "a", "b")
    message, _ = driver.lease(queue, lease_ms=100)
    driver.ack(queue, message)
    driver.remove(queue, 2)
    assert driver.stats(queue) == QueueStats()
    assert driver.peek(queue) == []
    assert driver.browse(queue) == []
    driver.advance(100)
    assert driver.lease(queue) == []
    assert driver.ack(queue, message, late=True) is Outcome.GONE
    assert driver.retry(queue, message) is Outcome.GONE
    assert driver.extend(queue, message, lease_ms=5) is Outcome.GONE
    assert driver.redrive(queue, message.seq) == [False]
    assert driver.tail(queue) == 2
    assert kept(driver, queue) == ["a"]


def test_a_kept_dead_letter_is_not_redriven(driver: Driver) -> None:
    dead = driver.queue("dead")
    driver.listener(dead)
    work = driver.queue("work", attempts_max=1, dead_letter=dead.id)
    driver.publish(work, "a")
    driver.retry(work, driver.lease_one(work))
    driver.ack(dead, driver.lease_one(dead))
    assert kept(driver, dead) == ["a"]
    assert driver.redrive(dead, 1) == [False]
    assert driver.stats(work) == QueueStats()


def test_a_kept_message_takes_no_room_on_its_queue(
    driver: Driver, queue: Queue, listener: Listener
) -> None:
    keep(driver, queue, "12345")
    receipt = driver.publish(queue, "12345", bytes_max=5)
    assert receipt.stats == QueueStats(count=1, bytes=5, oldest_ms=driver.now_ms)


def test_kept_messages_are_not_in_the_levels(
    driver: Driver, queue: Queue, listener: Listener
) -> None:
    driver.advance(-driver.now_ms % MINUTE_MS)
    keep(driver, queue, "a", "b")
    minute = driver.now_ms // MINUTE_MS
    driver.advance(MINUTE_MS)
    driver.publish(queue, "c")
    driver.arrive(listener, driver.take_one(listener))
    driver.advance(MINUTE_MS)
    assert driver.held(queue, minute=minute) == (0, 0, 0)
    assert driver.held(queue, minute=minute + 1) == (1, 0, 0)


def test_kept_messages_are_browsed_among_the_others_by_sequence(
    driver: Driver, queue: Queue, listener: Listener
) -> None:
    driver.publish(queue, *"ab", Draft(b"c", delay_ms=50), *"de")
    by_body = {message.body: message for message in driver.lease(queue)}
    driver.ack(queue, by_body[b"a"])
    driver.ack(queue, by_body[b"d"])
    assert bodies(driver.browse(queue)) == ["b", "c", "e"]
    everything = driver.browse(queue, kept=True)
    assert bodies(everything) == list("abcde")
    assert [message.seq for message in everything] == [1, 2, 3, 4, 5]
    assert bodies(driver.browse(queue, kept=True, limit=3)) == list("abc")
    assert bodies(driver.browse(queue, kept=True, after_seq=2, limit=2)) == list("cd")
    # What pullers did with a kept message, the journal tells.
    assert [message.attempts for message in everything] == [0, 1, 0, 0, 1]


def test_a_kept_message_is_found_as_it_was_published(
    driver: Driver, queue: Queue, listener: Listener
) -> None:
    draft = Draft(b"[1]", "json", {"k": ["v"]}, id="order-1", group="g", ttl_ms=500)
    driver.publish(queue, draft, "b")
    before = driver.browse(queue)
    for message in driver.lease(queue):
        driver.ack(queue, message)
    assert driver.browse(queue, kept=True) == before
    assert [driver.find(queue, message.id) for message in before] == before


def test_of_two_with_the_same_id_the_one_on_the_queue_is_found(
    driver: Driver, queue: Queue, listener: Listener
) -> None:
    keep(driver, queue, Draft(b"first", id="order-1"))
    driver.publish(queue, Draft(b"second", id="order-1"))
    found = driver.find(queue, "order-1")
    assert found is not None
    assert found.body == b"second"


def test_a_kept_message_blocks_no_group(driver: Driver) -> None:
    queue = driver.queue(fifo=True)
    listener = driver.listener(queue)
    driver.publish(queue, Draft(b"a1", group="a"), Draft(b"a2", group="a"))
    driver.ack(queue, driver.lease_one(queue))
    assert bodies(driver.lease(queue)) == ["a2"]
    assert bodies(driver.take(listener)) == ["a1", "a2"]
    assert kept(driver, queue) == ["a1"]


# --- how it goes ---


def test_a_kept_message_ends_at_its_own_expiry(
    driver: Driver, queue: Queue, listener: Listener
) -> None:
    keep(driver, queue, *(Draft(b.encode(), ttl_ms=100) for b in "abc"))
    a, b = driver.take(listener, count=2, lease_ms=DAY_MS)
    driver.miss(listener, a, delay_ms=None)
    failed_ms = driver.now_ms
    before = driver.last()
    driver.advance(99)
    assert kept(driver, queue) == list("abc")
    driver.advance(1)
    assert kept(driver, queue) == []
    assert driver.find(queue, a.id) is None
    assert not driver.arrive(listener, b)
    stats = driver.push_stats(listener)
    assert (stats.open, stats.missed, stats.last_failure_ms) == (0, 0, failed_ms)
    events = driver.events(after=before)
    assert sorted((e["kind"], e["seq"], e["detail"]["reason"]) for e in events) == [
        ("push_dropped", 2, "expired"),
        ("push_dropped", 3, "expired"),
    ]


def test_a_changed_retention_applies_to_kept_messages_at_once(
    driver: Driver, queue: Queue, listener: Listener
) -> None:
    keep(driver, queue, "old", Draft(b"own", ttl_ms=DAY_MS))
    exhaust(driver, listener)
    driver.advance(100)
    keep(driver, queue, "new")
    exhaust(driver, listener)
    driver.publish(queue, "held")
    queue = driver.update(queue, retention_ms=101)
    assert kept(driver, queue) == ["old", "own", "new"]
    queue = driver.update(queue, retention_ms=100)
    assert kept(driver, queue) == ["own", "new"]
    assert bodies(driver.take(listener)) == ["held"]


def test_a_sweep_counts_the_kept_messages_that_expired(driver: Driver) -> None:
    queue = driver.queue(retention_ms=100)
    listener = driver.listener(queue)
    keep(driver, queue, *"abc")
    driver.publish(queue, "d")
    exhaust(driver, listener)
    driver.advance(99)
    assert driver.sweep().next_ms == driver.now_ms + 1
    driver.advance(1)
    counts = [swept.expired for swept in driver.sweeps(limit=2)]
    assert max(counts) <= 2
    assert sum(counts) == 4
    assert driver.sweep().next_ms is None


# --- what retention leaves to listeners ---


@pytest.mark.parametrize("acked", [False, True], ids=["on the queue", "kept"])
@pytest.mark.parametrize("fifo", [False, True], ids=["standard", "fifo"])
def test_retention_ends_no_push_that_is_open(driver: Driver, fifo: bool, acked: bool) -> None:
    queue = driver.queue(retention_ms=100, fifo=fifo)
    listener = driver.listener(queue)
    driver.publish(queue, *"abc")
    if acked:
        for message in driver.lease(queue):
            driver.ack(queue, message)
    a, b = driver.take(listener, count=2, lease_ms=DAY_MS)
    driver.miss(listener, b, delay_ms=200)
    before = driver.last()
    driver.advance(100)
    assert driver.stats(queue) == QueueStats()
    assert driver.peek(queue) == driver.lease(queue) == driver.browse(queue) == []
    assert kept(driver, queue) == list("abc")
    assert driver.find(queue, a.id) is not None
    assert driver.push_stats(listener).open == 3
    assert driver.kinds(after=before) == ([] if acked else ["expired"] * 3)
    assert bodies(driver.take(listener)) == ["c"]
    driver.advance(100)
    assert driver.arrive(listener, a)
    assert kept(driver, queue) == list("bc")
    driver.arrive(listener, driver.take_one(listener))
    assert kept(driver, queue) == ["c"]
    assert "push_dropped" not in driver.kinds()
    assert driver.push_stats(listener).acknowledged == 2


def test_a_message_past_its_retention_goes_when_its_last_open_push_is_exhausted(
    driver: Driver,
) -> None:
    dead = driver.queue("dead")
    queue = driver.queue(retention_ms=100, dead_letter=dead.id)
    listener, other = driver.listener(queue), driver.listener(queue, "press")
    driver.publish(queue, "a")
    driver.advance(100)
    exhaust(driver, listener)
    assert kept(driver, queue) == ["a"]
    assert driver.push_stats(listener).missed == 1
    exhaust(driver, other)
    assert kept(driver, queue) == []
    assert driver.pushes(queue, 1) == []
    assert driver.push_stats(listener).missed == 0
    assert bodies(driver.peek(dead)) == ["a", "a"]
    assert "push_dropped" not in driver.kinds()


def test_a_message_past_its_retention_goes_with_its_listener(driver: Driver) -> None:
    queue = driver.queue(retention_ms=100)
    listener = driver.listener(queue)
    driver.publish(queue, "a")
    driver.advance(100)
    driver.change(drops=[listener])
    driver.sweep_all()
    assert kept(driver, queue) == []
    assert driver.kinds()[-2:] == ["listener_deleted", "push_dropped"] or driver.kinds()[-3:] == [
        "expired",
        "listener_deleted",
        "push_dropped",
    ]
    assert driver.sweep().next_ms is None


def test_a_push_in_flight_past_the_retention_is_made_again_when_its_lease_ends(
    driver: Driver,
) -> None:
    queue = driver.queue(retention_ms=100)
    listener = driver.listener(queue)
    driver.publish(queue, "a")
    driver.take(listener, lease_ms=100)
    driver.advance(100)
    assert driver.take_one(listener, lease_ms=100).attempts == 2
    driver.advance(100)
    last = driver.take_one(listener)
    assert last.attempts == 3
    assert driver.arrive(listener, last)
    assert kept(driver, queue) == []
    assert driver.kinds().count("expired") == 1


def test_however_much_is_past_its_retention_all_of_it_is_pushed(driver: Driver) -> None:
    queue = driver.queue(retention_ms=100)
    listener = driver.listener(queue)
    driver.publish(queue, *["old"] * 1_500)
    driver.advance(50)
    driver.publish(queue, "new")
    driver.advance(50)
    driver.sweep_all()
    assert driver.stats(queue).count == 1
    taken = []
    while some := driver.take(listener, count=500):
        taken += bodies(some)
    assert taken == ["old"] * 1_500 + ["new"]


def test_a_longer_retention_holds_for_what_it_kept_for_its_pushes(driver: Driver) -> None:
    """It was passed over while it was owed; now it is exhausted, and not old enough to go."""
    queue = driver.queue(retention_ms=100)
    listener = driver.listener(queue)
    driver.publish(queue, "a")
    driver.advance(100)
    driver.sweep_all()
    queue = driver.update(queue, retention_ms=300)
    exhaust(driver, listener)
    driver.advance(199)
    driver.sweep_all()
    assert kept(driver, queue) == ["a"]
    assert driver.retry_push(listener, 1)
    exhaust(driver, listener)
    driver.advance(1)
    driver.sweep_all()
    assert kept(driver, queue) == []
    assert driver.sweep().next_ms is None


def test_what_is_for_one_listener_outlives_its_retention(driver: Driver) -> None:
    queue = driver.queue(retention_ms=100)
    listener = driver.listener(queue)
    driver.publish_rows(queue, Draft(b"a"), key="k", first=0, for_ms=DAY_MS, listener=listener)
    driver.advance(100)
    driver.sweep_all()
    assert bodies(driver.take(listener)) == ["a"]


ENDS: dict[str, Callable[[Driver, Queue], object]] = {
    "deleted": lambda driver, queue: driver.remove(queue, 1, 2, 3),
    "purged": lambda driver, queue: driver.purge(queue, upto_seq=3),
}


@pytest.mark.parametrize("reason", ENDS)
def test_a_kept_message_can_be_removed_and_purged(
    driver: Driver, queue: Queue, listener: Listener, reason: str
) -> None:
    driver.publish(queue, *"abcd")
    for message in driver.lease(queue, count=2):
        driver.ack(queue, message)
    taken, _ = driver.take(listener, count=2)
    before = driver.last()
    answer = ENDS[reason](driver, queue)
    assert answer in (3, [True, True, True])
    assert bodies(driver.browse(queue, kept=True)) == ["d"]
    assert not driver.arrive(listener, taken)
    assert driver.push_stats(listener) == PushStats(open=1)
    events = driver.events(after=before)
    told = [(e["kind"], e["seq"], e.get("detail", {}).get("reason")) for e in events]
    assert sorted(told, key=str) == [
        (reason, 3, None),
        ("push_dropped", 1, reason),
        ("push_dropped", 2, reason),
        ("push_dropped", 3, reason),
    ]
    assert ENDS[reason](driver, queue) in (0, [False, False, False])


def test_a_purge_goes_on_until_no_kept_message_is_left(
    driver: Driver, queue: Queue, listener: Listener
) -> None:
    keep(driver, queue, *"abc")
    driver.publish(queue, *"de")
    counts = []
    while count := driver.purge(queue, upto_seq=driver.tail(queue), limit=2):
        counts.append(count)
    assert max(counts) <= 2
    assert sum(counts) == 5
    assert driver.browse(queue, kept=True) == []


def test_the_kept_messages_of_a_dropped_queue_go_with_it(
    driver: Driver, queue: Queue, listener: Listener
) -> None:
    keep(driver, queue, *"ab")
    driver.publish(queue, "c")
    driver.miss(listener, driver.take_one(listener), delay_ms=None)
    before = driver.last()
    driver.change(drops=[queue])
    counts = [swept.dropped for swept in driver.sweeps(limit=1)]
    assert max(counts) <= 1
    assert sum(counts) == 3
    told = [(e["kind"], e.get("seq")) for e in driver.events(after=before)]
    assert sorted(told, key=str) == [
        ("deleted", 3),
        ("push_dropped", 2),
        ("push_dropped", 3),
        ("queue_deleted", None),
    ]
    assert driver.sweep().next_ms is None


def test_a_message_that_is_kept_for_a_dropped_listener_goes_with_the_sweep(
    driver: Driver, queue: Queue, listener: Listener
) -> None:
    other = driver.listener(queue, "press")
    keep(driver, queue, *"abc")
    a, b, c = driver.take(listener)
    driver.settle_pushes(listener, PushFailed(b.seq, 1, REFUSED, None))
    taken = driver.take(other)
    driver.arrive(other, taken[0])
    driver.arrive(other, taken[1])
    driver.change(drops=[listener])
    driver.sweep_all()
    assert kept(driver, queue) == ["c"]
    assert driver.find(queue, a.id) is None
    assert driver.find(queue, c.id) is not None
    assert driver.remove(queue, a.seq, b.seq) == [False, False]
    driver.arrive(other, taken[2])
    assert kept(driver, queue) == []


def test_a_message_on_its_queue_outlives_its_listener(
    driver: Driver, queue: Queue, listener: Listener
) -> None:
    driver.publish(queue, "a")
    driver.change(drops=[listener])
    driver.sweep_all()
    assert bodies(driver.lease(queue)) == ["a"]


def test_a_kept_message_that_expires_after_a_lease_ended_is_dropped_as_expired(
    driver: Driver, queue: Queue, listener: Listener, clock: ManualClock
) -> None:
    """Both are over when somebody looks; each happens once, in its order."""
    keep(driver, queue, Draft(b"a", ttl_ms=100))
    assert driver.take(listener, lease_ms=50)
    clock.advance(200)
    driver.sweep_all()
    assert kept(driver, queue) == []
    found = [event for event in driver.events() if event["kind"].startswith("push_")]
    assert [event["kind"] for event in found] == ["push_failed", "push_dropped"]
    assert found[-1]["detail"]["reason"] == "expired"


def test_a_push_given_up_under_a_longer_retention_ends_with_that(driver: Driver) -> None:
    queue = driver.queue(retention_ms=100)
    driver.pull(queue)
    listener = driver.listener(queue)
    driver.publish(queue, "a", "b")
    for message in driver.lease(queue):
        driver.ack(queue, message)
    a, b = driver.take(listener, lease_ms=DAY_MS)
    driver.miss(listener, b, delay_ms=None)
    driver.advance(100)
    driver.sweep_all()
    assert bodies(driver.browse(queue, kept=True)) == ["a"]
    driver.update(queue, retention_ms=1_000)
    driver.miss(listener, a, delay_ms=None)
    assert bodies(driver.browse(queue, kept=True)) == ["a"]
    driver.advance(900)
    driver.sweep_all()
    assert driver.browse(queue, kept=True) == []


def test_a_kept_message_outlives_its_events(
    driver: Driver, queue: Queue, listener: Listener
) -> None:
    driver.publish(queue, "a")
    driver.ack(queue, driver.lease_one(queue))
    driver.publish(queue, "b")
    last = driver.last()
    driver.run(driver.store.journal.trim(upto=last))
    assert bodies(driver.take(listener)) == ["a", "b"]
