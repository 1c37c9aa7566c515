"""What becomes of a push, and what is counted of it."""

import pytest

from courier import ids
from courier.core.limits import Allowance
from courier.core.types import (
    DAY_MS,
    Draft,
    Listener,
    Origin,
    Push,
    Pushed,
    PushFailed,
    PushReturned,
    PushStats,
    Queue,
)
from tests.conformance.store.driver import (
    ARRIVED,
    REFUSED,
    Driver,
    bodies,
    sealed,
)

# --- what becomes of a push ---


def test_a_new_push_is_pending(driver: Driver, queue: Queue, listener: Listener) -> None:
    driver.publish(queue, "a", Draft(b"b", delay_ms=40))
    now_ms = driver.now_ms
    driver.advance(10)
    assert driver.pushes(queue, 1) == [Push(listener.id, 1, "pending", due_ms=now_ms)]
    assert driver.pushes(queue, 2) == [Push(listener.id, 2, "pending", due_ms=now_ms + 40)]


def test_a_push_that_is_taken_is_in_flight(
    driver: Driver, queue: Queue, listener: Listener
) -> None:
    driver.publish(queue, "a")
    driver.advance(10)
    taken = driver.take_one(listener)
    first_ms = driver.now_ms
    assert driver.pushes(queue, 1) == [
        Push(listener.id, 1, "in_flight", attempts=1, first_ms=first_ms, last_ms=first_ms)
    ]
    driver.miss(listener, taken, delay_ms=0)
    driver.advance(10)
    assert driver.take_one(listener).attempts == 2
    assert driver.pushes(queue, 1) == [
        Push(
            listener.id,
            1,
            "in_flight",
            attempts=2,
            first_ms=first_ms,
            last_ms=first_ms + 10,
            report=REFUSED,
        )
    ]


def test_a_push_that_arrived_is_acknowledged(
    driver: Driver, queue: Queue, listener: Listener
) -> None:
    driver.publish(queue, "a")
    taken = driver.take_one(listener)
    first_ms = driver.now_ms
    driver.advance(10)
    assert driver.arrive(listener, taken)
    wanted = Push(
        listener.id,
        1,
        "acknowledged",
        attempts=1,
        first_ms=first_ms,
        last_ms=first_ms,
        report=ARRIVED,
    )
    assert driver.pushes(queue, 1) == [wanted]
    driver.advance(DAY_MS)
    assert driver.take(listener) == []
    assert driver.pushes(queue, 1) == [wanted]


def test_a_push_that_failed_is_tried_again_when_its_delay_is_over(
    driver: Driver, queue: Queue, listener: Listener
) -> None:
    driver.publish(queue, "a")
    taken = driver.take_one(listener)
    first_ms = driver.now_ms
    driver.advance(10)
    assert driver.miss(listener, taken, delay_ms=100)
    assert driver.pushes(queue, 1) == [
        Push(
            listener.id,
            1,
            "retrying",
            attempts=1,
            first_ms=first_ms,
            last_ms=first_ms,
            due_ms=driver.now_ms + 100,
            report=REFUSED,
        )
    ]
    driver.advance(99)
    assert driver.take(listener) == []
    driver.advance(1)
    assert driver.push(listener, 1).status == "retrying"
    assert driver.take_one(listener).attempts == 2


def test_a_push_whose_last_attempt_failed_is_exhausted(
    driver: Driver, queue: Queue, listener: Listener
) -> None:
    driver.publish(queue, "a")
    driver.miss(listener, driver.take_one(listener), delay_ms=0)
    driver.advance(10)
    assert driver.miss(listener, driver.take_one(listener), delay_ms=None)
    wanted = Push(
        listener.id,
        1,
        "exhausted",
        attempts=2,
        first_ms=driver.now_ms - 10,
        last_ms=driver.now_ms,
        report=REFUSED,
    )
    assert driver.pushes(queue, 1) == [wanted]
    driver.advance(DAY_MS)
    assert driver.take(listener) == []
    assert driver.pushes(queue, 1) == [wanted]


def test_a_push_that_is_given_back_was_never_tried(
    driver: Driver, queue: Queue, listener: Listener
) -> None:
    driver.publish(queue, "a")
    driver.advance(10)
    before = driver.last()
    assert driver.give_back(listener, driver.take_one(listener))
    assert driver.last() == before
    assert driver.pushes(queue, 1) == [Push(listener.id, 1, "pending", due_ms=driver.now_ms)]
    assert driver.push_stats(listener) == PushStats(open=1)
    assert driver.take_one(listener).attempts == 1


def test_a_later_attempt_can_be_given_back_too(
    driver: Driver, queue: Queue, listener: Listener
) -> None:
    driver.publish(queue, "a")
    driver.miss(listener, driver.take_one(listener), delay_ms=0)
    failed_ms = driver.now_ms
    driver.advance(10)
    taken = driver.take_one(listener)
    driver.advance(10)
    assert driver.give_back(listener, taken)
    # When the attempt before was, is not known any more.
    assert driver.pushes(queue, 1) == [
        Push(
            listener.id,
            1,
            "retrying",
            attempts=1,
            first_ms=failed_ms,
            last_ms=failed_ms + 10,
            due_ms=driver.now_ms,
            report=REFUSED,
        )
    ]
    assert driver.push_stats(listener) == PushStats(open=1, missed=1, last_failure_ms=failed_ms)
    assert driver.take_one(listener).attempts == 2


def test_the_report_is_that_of_the_last_attempt(
    driver: Driver, queue: Queue, listener: Listener
) -> None:
    driver.publish(queue, "a")
    assert driver.push(listener, 1).report is None
    driver.miss(listener, driver.take_one(listener), delay_ms=0)
    assert driver.push(listener, 1).report == REFUSED
    driver.arrive(listener, driver.take_one(listener))
    assert driver.push(listener, 1).report == ARRIVED


def test_pushes_of_a_message_are_told_in_the_order_of_their_listeners_creation(
    driver: Driver, queue: Queue
) -> None:
    listeners = []
    for title in ("z", "m", "a"):
        listeners.append(driver.listener(queue, title))
        driver.advance(1)
    driver.publish(queue, "a")
    driver.update(listeners[0], ordered=True)
    driver.take(listeners[2])
    assert [push.listener for push in driver.pushes(queue, 1)] == [each.id for each in listeners]


def test_there_are_no_pushes_of_a_message_that_is_not_there(
    driver: Driver, queue: Queue, listener: Listener
) -> None:
    driver.publish(queue, "a")
    driver.remove(queue, 1)
    assert [driver.pushes(queue, seq) for seq in (-1, 0, 1, 2)] == [[]] * 4


# --- settling ---


def test_only_the_attempt_in_flight_can_be_settled(
    driver: Driver, queue: Queue, listener: Listener
) -> None:
    driver.publish(queue, "a")
    first = driver.take_one(listener)
    driver.miss(listener, first, delay_ms=0)
    assert not driver.arrive(listener, first)
    second = driver.take_one(listener)
    before = driver.last()
    for attempt in (0, 1, 3):
        assert (
            driver.settle_pushes(
                listener,
                Pushed(1, attempt, ARRIVED),
                PushFailed(1, attempt, REFUSED, None),
                PushReturned(1, attempt),
            )
            == [False] * 3
        )
    assert driver.last() == before
    assert driver.push(listener, 1).status == "in_flight"
    assert driver.arrive(listener, second)
    assert not driver.arrive(listener, second)
    assert not driver.miss(listener, second, delay_ms=0)
    assert not driver.give_back(listener, second)
    assert driver.push(listener, 1).status == "acknowledged"


def test_each_settlement_of_a_batch_has_its_own_fate(
    driver: Driver, queue: Queue, listener: Listener
) -> None:
    driver.publish(queue, *"abcd")
    driver.take(listener, count=3)
    fates = driver.settle_pushes(
        listener,
        Pushed(1, 1, ARRIVED),
        PushFailed(2, 1, REFUSED, 0),
        Pushed(4, 1, ARRIVED),
        PushReturned(3, 1),
        PushReturned(3, 1),
        Pushed(1, 1, ARRIVED),
        Pushed(99, 1, ARRIVED),
    )
    assert fates == [True, True, False, True, False, False, False]
    statuses = [driver.push(listener, seq).status for seq in (1, 2, 3, 4)]
    assert statuses == ["acknowledged", "retrying", "pending", "pending"]


def test_a_listener_cannot_settle_for_another(
    driver: Driver, queue: Queue, listener: Listener
) -> None:
    other = driver.listener(queue, "press")
    driver.publish(queue, "a")
    taken = driver.take_one(listener)
    assert not driver.arrive(other, taken)
    assert driver.push(other, 1).status == "pending"
    assert driver.arrive(listener, taken)


def test_a_push_of_a_message_that_is_gone_cannot_be_settled(
    driver: Driver, queue: Queue, listener: Listener
) -> None:
    driver.publish(queue, "a")
    taken = driver.take_one(listener)
    driver.remove(queue, 1)
    assert not driver.arrive(listener, taken)
    assert driver.push_stats(listener) == PushStats()


# --- the last attempt ---


@pytest.fixture
def dead(driver: Driver) -> Queue:
    return driver.queue("dead", delay_ms=50)


@pytest.fixture
def work(driver: Driver, dead: Queue) -> Queue:
    return driver.queue("work", dead_letter=dead.id)


def test_a_message_whose_last_push_failed_is_also_among_the_dead_letters(
    driver: Driver, work: Queue, dead: Queue
) -> None:
    listener = driver.listener(work)
    draft = Draft(b"[1]", "json", {"k": ["v"]}, id="order-1", group="g", ttl_ms=DAY_MS)
    driver.publish(work, draft, sealed(b"secret"))
    driver.advance(5)
    driver.take(listener)
    driver.settle_pushes(listener, PushFailed(1, 1, REFUSED, None), PushFailed(2, 1, REFUSED, None))
    first, second = driver.peek(dead)
    assert (first.body, first.content_type, first.headers) == (b"[1]", "json", {"k": ["v"]})
    assert (first.id, first.group) == ("order-1", "g")
    assert (first.expires_ms, first.delay_ms) == (None, None)
    assert first.published_ms == driver.now_ms
    assert first.origin == Origin(work.id, "order-1", attempts=1, reason="push")
    assert second.sealed == "key-1"
    assert driver.stats(work).count == 2
    assert bodies(driver.lease(work)) == ["[1]", sealed(b"secret").body.decode()]


def test_every_listener_buries_for_itself(driver: Driver, work: Queue, dead: Queue) -> None:
    first, second = driver.listener(work, "first"), driver.listener(work, "second")
    driver.publish(work, "a")
    driver.miss(first, driver.take_one(first), delay_ms=None)
    driver.miss(second, driver.take_one(second), delay_ms=0)
    assert driver.stats(dead).count == 1
    driver.miss(second, driver.take_one(second), delay_ms=None)
    letters = driver.peek(dead)
    assert [letter.origin and letter.origin.attempts for letter in letters] == [1, 2]


def test_a_dead_letter_of_a_push_is_delayed_only_on_a_fifo_queue(driver: Driver) -> None:
    dead = driver.queue("dead", delay_ms=50, fifo=True)
    work = driver.queue("work", dead_letter=dead.id)
    listener = driver.listener(work)
    driver.publish(work, "a")
    driver.miss(listener, driver.take_one(listener), delay_ms=None)
    assert driver.stats(dead).delayed == 1
    driver.advance(50)
    assert bodies(driver.peek(dead)) == ["a"]


def test_a_dead_letter_of_a_push_is_pushed_where_it_goes(
    driver: Driver, work: Queue, dead: Queue
) -> None:
    listener, other = driver.listener(work), driver.listener(dead)
    driver.publish(work, "a")
    driver.miss(listener, driver.take_one(listener), delay_ms=None)
    assert bodies(driver.take(other)) == ["a"]


@pytest.mark.parametrize("dead_letter", ["none", "gone"])
def test_without_a_dead_letter_queue_a_last_failure_changes_nothing_else(
    driver: Driver, work: Queue, dead: Queue, dead_letter: str
) -> None:
    listener = driver.listener(work)
    if dead_letter == "none":
        driver.update(work, dead_letter=None)
    else:
        driver.change(drops=[dead])
    driver.publish(work, "a")
    taken = driver.take_one(listener)
    before = driver.last()
    driver.miss(listener, taken, delay_ms=None)
    assert driver.kinds(after=before) == ["push_failed"]
    assert driver.push(listener, 1).status == "exhausted"


def test_a_dead_letter_of_a_push_is_not_redriven(driver: Driver, work: Queue, dead: Queue) -> None:
    listener = driver.listener(work)
    driver.publish(work, "a")
    driver.miss(listener, driver.take_one(listener), delay_ms=None)
    assert driver.redrive(dead, 1) == [False]
    assert driver.redrive(dead, 1, dry_run=True) == [False]
    assert driver.stats(dead).count == 1


# --- trying again ---


def test_a_failed_push_can_be_made_ready(driver: Driver, queue: Queue, listener: Listener) -> None:
    driver.publish(queue, "retrying", "exhausted")
    retrying, exhausted = driver.take(listener)
    driver.miss(listener, retrying, delay_ms=DAY_MS)
    driver.miss(listener, exhausted, delay_ms=None)
    driver.advance(10)
    before = driver.last()
    assert driver.retry_push(listener, 1)
    assert driver.retry_push(listener, 2)
    assert driver.last() == before
    for seq in (1, 2):
        push = driver.push(listener, seq)
        assert (push.status, push.attempts, push.due_ms) == ("retrying", 1, driver.now_ms)
        assert push.report == REFUSED
    assert driver.push_stats(listener).open == 2
    assert [message.attempts for message in driver.take(listener)] == [2, 2]


def test_only_a_failed_push_can_be_made_ready(
    driver: Driver, queue: Queue, listener: Listener
) -> None:
    driver.publish(queue, "in flight", "arrived", Draft(b"pending", delay_ms=DAY_MS))
    _, arrived = driver.take(listener)
    driver.arrive(listener, arrived)
    assert [driver.retry_push(listener, seq) for seq in (1, 2, 3, 4, 0, -1)] == [False] * 6
    statuses = [driver.push(listener, seq).status for seq in (1, 2, 3)]
    assert statuses == ["in_flight", "acknowledged", "pending"]
    assert driver.take(listener) == []


def test_a_push_can_be_exhausted_again_and_again(driver: Driver, work: Queue, dead: Queue) -> None:
    listener = driver.listener(work)
    driver.publish(work, "a")
    for attempt in (1, 2, 3):
        taken = driver.take_one(listener)
        assert taken.attempts == attempt
        driver.miss(listener, taken, delay_ms=None)
        assert driver.retry_push(listener, 1)
        # What is ready already can be made ready, to no effect.
        assert driver.retry_push(listener, 1)
    assert driver.stats(dead).count == 3


# --- numbers ---


def test_a_new_listener_has_no_numbers(driver: Driver, queue: Queue, listener: Listener) -> None:
    assert driver.push_stats(listener) == PushStats()
    assert driver.missed(listener) == []


def test_the_numbers_of_a_listener(driver: Driver, queue: Queue, listener: Listener) -> None:
    driver.publish(queue, *"abcdef", Draft(b"g", delay_ms=DAY_MS))
    assert driver.push_stats(listener) == PushStats(open=7)
    taken = driver.take(listener, count=5)
    assert driver.push_stats(listener) == PushStats(open=7, in_flight=5)
    driver.advance(10)
    driver.miss(listener, taken[0], delay_ms=0)
    driver.miss(listener, taken[1], delay_ms=DAY_MS)
    driver.miss(listener, taken[2], delay_ms=None)
    failed_ms = driver.now_ms
    driver.advance(10)
    driver.arrive(listener, taken[3])
    arrived_ms = driver.now_ms
    assert driver.push_stats(listener) == PushStats(
        open=5,
        in_flight=1,
        missed=3,
        acknowledged=1,
        last_success_ms=arrived_ms,
        last_failure_ms=failed_ms,
    )
    driver.advance(10)
    # In flight once more, it still has not arrived.
    again = driver.take(listener, count=1)[0]
    assert again.body == b"a"
    assert driver.push_stats(listener).missed == 3
    driver.arrive(listener, again)
    assert driver.push_stats(listener) == PushStats(
        open=4,
        in_flight=1,
        missed=2,
        acknowledged=2,
        last_success_ms=driver.now_ms,
        last_failure_ms=failed_ms,
    )


def test_the_numbers_count_what_is_there_but_for_what_arrived(
    driver: Driver, queue: Queue, listener: Listener
) -> None:
    driver.publish(queue, *"abcd")
    a, b, c, _ = driver.take(listener)
    driver.arrive(listener, a)
    driver.miss(listener, b, delay_ms=None)
    driver.miss(listener, c, delay_ms=0)
    last_ms = driver.now_ms
    driver.advance(10)
    driver.purge(queue, upto_seq=4)
    assert driver.push_stats(listener) == PushStats(
        acknowledged=1, last_success_ms=last_ms, last_failure_ms=last_ms
    )
    assert driver.missed(listener) == []


def test_a_take_is_cut_by_bytes(driver: Driver, queue: Queue, listener: Listener) -> None:
    driver.publish(queue, *("abcde"[n] * 40_000 for n in range(5)))

    def taken(bytes_max: int) -> str:
        found = driver.take(listener, allowance=Allowance(bytes_max), lease_ms=60_000)
        return "".join(message.body.decode()[0] for message in found)

    first = driver.take(listener, count=2)
    for message in first:
        driver.miss(listener, message, delay_ms=0)
    # Those that failed come first, then fresh ones; the first of all however long it is.
    assert taken(1) == "a"
    assert taken(90_000) == "bc"
    assert taken(39_999) == "d"
    assert taken(1 << 20) == "e"
    assert taken(1 << 20) == ""


def test_missed_messages_are_told_newest_first(
    driver: Driver, queue: Queue, listener: Listener
) -> None:
    driver.publish(queue, "a", Draft(b"b", id="own"), "c", "d", "e")
    taken = driver.take(listener, count=4)
    for message in reversed(taken):
        driver.miss(listener, message, delay_ms=None if message.body == b"a" else 0)
    driver.give_back(listener, driver.take_one(listener))
    made = [
        ids.message_id(published_ms=driver.now_ms, seq=seq, queue=queue.id) for seq in (4, 3, 2, 1)
    ]
    assert driver.missed(listener) == made
    assert driver.missed(listener, limit=2) == made[:2]
    seqs = [ids.message_seq(id, queue=listener.parent) or 0 for id in made]
    assert driver.missed(listener, before_seq=seqs[1]) == made[2:]
    assert driver.missed(listener, limit=1, before_seq=seqs[0]) == made[1:2]
    assert driver.missed(listener, before_seq=seqs[-1]) == []
    again = {message.seq: message for message in driver.take(listener)}
    driver.arrive(listener, again[3])
    assert driver.missed(listener) == [made[0], made[2], made[3]]
    driver.remove(queue, 4)
    assert driver.missed(listener) == made[2:]


def test_a_push_that_failed_twice_is_missed_once(
    driver: Driver, queue: Queue, listener: Listener
) -> None:
    driver.publish(queue, "a")
    for _ in range(2):
        driver.miss(listener, driver.take_one(listener), delay_ms=0)
        assert driver.push_stats(listener).missed == 1
        assert len(driver.missed(listener)) == 1


def test_a_push_that_is_on_its_way_again_cannot_be_retried(
    driver: Driver, queue: Queue, listener: Listener
) -> None:
    driver.publish(queue, "a")
    driver.miss(listener, driver.take_one(listener), delay_ms=0)
    again = driver.take_one(listener)
    assert not driver.retry_push(listener, again.seq)
    assert driver.take(listener) == []
    assert driver.arrive(listener, again)
