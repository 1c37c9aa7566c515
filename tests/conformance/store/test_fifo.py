"""Queues that keep the order of their groups."""

import asyncio
from collections import defaultdict

import pytest

from courier.core.lifecycle import GROUP_DEFAULT
from courier.core.types import DAY_MS, Ack, Draft, Message, Outcome, Queue, QueueStats, Retry
from tests.conformance.store.driver import CALLER, Driver, bodies

BUSY_SECONDS_MAX = 60
# More than a store does of what is due before the verb itself.
MANY = 2_500


@pytest.fixture
def queue(driver: Driver) -> Queue:
    return driver.queue(fifo=True, attempts_max=None)


def grouped(*names: str, delay_ms: int | None = None, ttl_ms: int | None = None) -> list[Draft]:
    """Drafts whose group is the first letter of their body: a1, a2, b1."""
    return [Draft(name.encode(), group=name[0], delay_ms=delay_ms, ttl_ms=ttl_ms) for name in names]


# --- groups ---


def test_a_group_is_handed_out_in_the_order_of_publishing(driver: Driver, queue: Queue) -> None:
    for number in range(1, 6):
        driver.publish(queue, *grouped(f"a{number}"))
    handed = []
    while messages := driver.lease(queue, count=2):
        handed += bodies(messages)
        for message in messages:
            driver.ack(queue, message)
    assert handed == ["a1", "a2", "a3", "a4", "a5"]


def test_nothing_of_a_group_is_handed_out_while_anything_of_it_is_leased(
    driver: Driver, queue: Queue
) -> None:
    driver.publish(queue, *grouped("a1", "a2", "b1", "a3"))
    a1 = driver.lease_one(queue)
    assert bodies(driver.peek(queue)) == ["b1"]
    assert bodies(driver.lease(queue)) == ["b1"]
    assert driver.lease(queue) == []
    driver.publish(queue, *grouped("a4", "b2"))
    assert driver.peek(queue) == []
    driver.ack(queue, a1)
    assert bodies(driver.peek(queue)) == ["a2", "a3", "a4"]


def test_a_group_stays_blocked_until_all_of_it_is_settled(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, *grouped("a1", "a2", "a3", "a4"))
    a1, a2, a3 = driver.lease(queue, count=3)
    driver.ack(queue, a1)
    driver.ack(queue, a3)
    assert driver.lease(queue) == []
    driver.ack(queue, a2)
    assert bodies(driver.lease(queue)) == ["a4"]


def test_a_lease_takes_all_it_can_of_the_oldest_group_then_of_the_next(
    driver: Driver, queue: Queue
) -> None:
    driver.publish(queue, *grouped("b1", "a1", "c1", "a2", "b2", "c2", "b3"))
    for count in range(1, 8):
        wanted = ["b1", "b2", "b3", "a1", "a2", "c1", "c2"][:count]
        assert bodies(driver.peek(queue, count=count)) == wanted
    assert bodies(driver.lease(queue, count=4)) == ["b1", "b2", "b3", "a1"]
    assert bodies(driver.lease(queue, count=1)) == ["c1"]
    assert driver.lease(queue) == []


def test_the_group_with_the_oldest_message_that_is_left_comes_first(
    driver: Driver, queue: Queue
) -> None:
    driver.publish(queue, *grouped("a1", "b1", "a2", "b2"))
    driver.ack(queue, driver.lease_one(queue))
    assert bodies(driver.peek(queue)) == ["b1", "b2", "a2"]
    driver.remove(queue, 2)
    assert bodies(driver.peek(queue)) == ["a2", "b2"]


def test_a_peek_shows_what_a_lease_would_hand_out(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, *grouped("a1", "b1", "a2"), *grouped("b2", delay_ms=50), *grouped("c1"))
    driver.lease(queue, count=1, lease_ms=10)
    before = driver.last()
    peeked = driver.peek(queue, count=9)
    assert driver.last() == before
    assert bodies(peeked) == bodies(driver.lease(queue, count=9)) == ["b1", "c1"]


def test_messages_without_a_group_share_one(driver: Driver, queue: Queue) -> None:
    drafts = [Draft(b"1"), Draft(b"2", group="other"), Draft(b"3", group="")]
    driver.publish(queue, *drafts, Draft(b"4", group=GROUP_DEFAULT))
    for look in (driver.peek, driver.browse):
        groups = {message.body.decode(): message.group for message in look(queue)}
        assert groups == {"1": GROUP_DEFAULT, "2": "other", "3": GROUP_DEFAULT, "4": GROUP_DEFAULT}
    first = driver.lease_one(queue)
    assert (first.body, first.group) == (b"1", GROUP_DEFAULT)
    assert bodies(driver.lease(queue)) == ["2"]
    driver.ack(queue, first)
    assert bodies(driver.lease(queue)) == ["3", "4"]


def test_groups_of_two_queues_do_not_block_each_other(driver: Driver, queue: Queue) -> None:
    other = driver.queue("other", fifo=True)
    for each in (queue, other):
        driver.publish(each, *grouped("a1", "a2"))
    driver.lease(queue, count=1)
    assert bodies(driver.lease(other)) == ["a1", "a2"]


def test_a_group_means_nothing_on_a_queue_without_them(driver: Driver) -> None:
    plain = driver.queue("plain")
    driver.publish(plain, *grouped("a1", "b1", "a2"), "none")
    assert bodies(driver.lease(plain, count=1)) == ["a1"]
    assert bodies(driver.peek(plain)) == ["b1", "a2", "none"]
    assert [message.group for message in driver.peek(plain)] == ["b", "a", None]


@pytest.mark.parametrize("name", ["a'b", 'a"b', "%", "größe", "A", "x" * 128, "\N{OWL}"])
@pytest.mark.every_value
def test_a_group_may_have_any_name(driver: Driver, queue: Queue, name: str) -> None:
    driver.publish(queue, Draft(b"1", group=name), Draft(b"2", group="a"), Draft(b"3", group=name))
    assert [message.group for message in driver.lease(queue, count=2)] == [name, name]
    assert bodies(driver.lease(queue)) == ["2"]


def test_there_may_be_many_groups(driver: Driver, queue: Queue) -> None:
    names = [f"g{number}" for number in range(500)]
    drafts = [Draft(f"{name}-{part}".encode(), group=name) for part in range(2) for name in names]
    driver.publish(queue, *drafts)
    first = driver.lease(queue, count=300)
    assert bodies(first) == [f"{name}-{part}" for name in names[:150] for part in range(2)]
    rest = driver.lease(queue, count=2_000)
    assert bodies(rest) == [f"{name}-{part}" for name in names[150:] for part in range(2)]


def test_no_more_is_handed_out_than_may_be_leased(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, *grouped("a1", "b1", "a2", "b2"))
    assert bodies(driver.lease(queue, count=3, leased_max=1)) == ["a1"]
    assert driver.lease(queue, leased_max=1) == []
    assert bodies(driver.lease(queue, leased_max=2)) == ["b1"]


# --- what ends a lease, and so unblocks the group ---


def test_a_retried_message_comes_before_its_successors(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, *grouped("a1", "a2", "a3", "a4"))
    a1, a2, a3 = driver.lease(queue, count=3)
    driver.retry(queue, a3)
    driver.ack(queue, a2)
    assert driver.peek(queue) == []
    driver.retry(queue, a1)
    again = driver.lease(queue)
    assert bodies(again) == ["a1", "a3", "a4"]
    assert [message.attempts for message in again] == [2, 2, 1]


def test_a_batch_may_settle_a_whole_group(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, *grouped("a1", "a2", "a3", "a4"))
    a1, a2, a3 = driver.lease(queue, count=3)
    outcomes = driver.settle(
        queue, Ack(a1.seq, 1), Retry(a2.seq, 1), Ack(a2.seq, 1), Ack(a3.seq, 1), Ack(a3.seq, 1)
    )
    assert outcomes == [Outcome.DONE, Outcome.DONE, Outcome.LATE, Outcome.DONE, Outcome.GONE]
    assert bodies(driver.lease(queue)) == ["a2", "a4"]


def test_a_group_goes_on_exactly_when_its_last_lease_ends(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, *grouped("a1", "a2", "b1"))
    driver.lease(queue, count=2, lease_ms=100)
    driver.advance(99)
    assert bodies(driver.peek(queue)) == ["b1"]
    driver.advance(1)
    assert bodies(driver.peek(queue)) == ["a1", "a2", "b1"]
    assert [message.attempts for message in driver.lease(queue)] == [2, 2, 1]


def test_an_extended_lease_goes_on_blocking(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, *grouped("a1", "a2", "a3"))
    a1, _ = driver.lease(queue, count=2, lease_ms=100)
    driver.extend(queue, a1, lease_ms=150)
    driver.advance(100)
    assert driver.lease(queue) == []
    driver.advance(49)
    assert driver.peek(queue) == []
    driver.advance(1)
    assert bodies(driver.lease(queue)) == ["a1", "a2", "a3"]


def test_a_lease_of_no_length_blocks_nothing(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, *grouped("a1", "a2"))
    assert bodies(driver.lease(queue, count=1, lease_ms=0)) == ["a1"]
    again = driver.lease(queue)
    assert [(m.body, m.attempts) for m in again] == [(b"a1", 2), (b"a2", 1)]


def test_a_late_ack_takes_the_message_out_of_its_group(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, *grouped("a1", "a2", "a3"))
    first = driver.lease_one(queue, lease_ms=10)
    driver.advance(10)
    second = driver.lease_one(queue)
    assert second.seq == first.seq
    assert driver.ack(queue, first, late=True) is Outcome.LATE
    assert bodies(driver.lease(queue, count=1)) == ["a2"]
    assert driver.ack(queue, second) is Outcome.GONE


def test_a_late_ack_does_not_free_a_group_that_is_leased(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, *grouped("a1", "a2", "a3"))
    a1, _ = driver.lease(queue, count=2, lease_ms=10)
    driver.advance(10)
    driver.lease(queue, count=2, lease_ms=10)
    driver.ack(queue, a1, late=True)
    assert driver.lease(queue) == []
    driver.advance(10)
    assert bodies(driver.lease(queue)) == ["a2", "a3"]


@pytest.mark.parametrize("end", ["remove", "purge", "ttl", "retention"])
def test_the_end_of_a_leased_message_unblocks_its_group(driver: Driver, end: str) -> None:
    queue = driver.queue(fifo=True, retention_ms=DAY_MS)
    driver.publish(queue, *grouped("a1", ttl_ms=100 if end == "ttl" else None))
    driver.advance(50)
    driver.publish(queue, *grouped("a2"))
    driver.lease(queue, count=1, lease_ms=DAY_MS)
    if end == "remove":
        driver.remove(queue, 1)
    elif end == "purge":
        driver.purge(queue, upto_seq=1)
    elif end == "retention":
        driver.update(queue, retention_ms=51)
        driver.advance(1)
    else:
        driver.advance(49)
        assert driver.lease(queue) == []
        driver.advance(1)
    assert bodies(driver.lease(queue)) == ["a2"]


def test_a_purge_ends_groups_and_what_comes_after_is_free(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, *grouped("a1", "a2", "b1"))
    driver.lease(queue, count=1)
    driver.purge(queue, upto_seq=driver.tail(queue))
    assert driver.stats(queue) == QueueStats()
    driver.publish(queue, *grouped("a3", "b2"))
    assert bodies(driver.lease(queue)) == ["a3", "b2"]


def test_messages_published_after_a_group_ran_empty_are_handed_out(
    driver: Driver, queue: Queue
) -> None:
    for round in range(3):
        driver.publish(queue, *grouped(f"a{round}", f"b{round}"))
        messages = driver.lease(queue)
        assert bodies(messages) == [f"a{round}", f"b{round}"]
        for message in messages:
            driver.ack(queue, message)


# --- delays ---


def test_a_delayed_message_holds_back_those_behind_it(driver: Driver, queue: Queue) -> None:
    driver.publish(
        queue, *grouped("a1"), *grouped("a2", delay_ms=50), *grouped("a3", "b1"), *grouped("b2")
    )
    for count in (2, 3, 4, 100):
        assert bodies(driver.peek(queue, count=count)) == ["a1", "b1", "b2"][:count]
    assert driver.stats(queue).delayed == 1
    driver.ack(queue, driver.lease_one(queue))
    driver.advance(49)
    assert bodies(driver.peek(queue)) == ["b1", "b2"]
    driver.advance(1)
    assert bodies(driver.peek(queue)) == ["a2", "a3", "b1", "b2"]


def test_groups_that_wait_do_not_stand_in_the_way_of_others(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, *grouped("a1", "b1", "c1"), *grouped("d1", delay_ms=50), *grouped("e1"))
    a1, b1, _ = driver.lease(queue, count=3)
    driver.retry(queue, a1, delay_ms=50)
    driver.retry(queue, b1, delay_ms=50)
    driver.publish(queue, *grouped("a2", "b2", "c2", "d2"))
    assert bodies(driver.peek(queue, count=1)) == ["e1"]
    assert bodies(driver.lease(queue, count=1)) == ["e1"]


def test_a_longer_delay_ahead_counts_even_when_the_next_one_is_over(
    driver: Driver, queue: Queue
) -> None:
    driver.publish(queue, *grouped("a1", delay_ms=100), *grouped("a2", delay_ms=10))
    driver.advance(10)
    assert driver.peek(queue) == []
    assert driver.stats(queue).delayed == 1
    driver.advance(90)
    assert bodies(driver.lease(queue)) == ["a1", "a2"]


def test_a_delayed_message_does_not_jump_ahead_when_its_delay_ends(
    driver: Driver, queue: Queue
) -> None:
    driver.publish(queue, *grouped("a1", "a2"), *grouped("b1", delay_ms=10), *grouped("c1"))
    driver.advance(10)
    assert bodies(driver.lease(queue)) == ["a1", "a2", "b1", "c1"]


def test_a_retry_with_a_delay_holds_back_its_group_and_no_other(
    driver: Driver, queue: Queue
) -> None:
    driver.publish(queue, *grouped("a1", "a2", "b1"))
    driver.retry(queue, driver.lease_one(queue), delay_ms=50)
    assert bodies(driver.peek(queue)) == ["b1"]
    driver.advance(49)
    assert bodies(driver.peek(queue)) == ["b1"]
    driver.advance(1)
    assert bodies(driver.lease(queue)) == ["a1", "a2", "b1"]


def test_a_retry_further_back_in_the_group_holds_back_from_there(
    driver: Driver, queue: Queue
) -> None:
    driver.publish(queue, *grouped("a1", "a2", "a3"))
    a1, a2 = driver.lease(queue, count=2)
    driver.retry(queue, a1)
    driver.retry(queue, a2, delay_ms=50)
    assert bodies(driver.lease(queue)) == ["a1"]


@pytest.mark.parametrize("ending", ["retry", "expiry"])
def test_the_queues_retry_delay_holds_back_the_group(driver: Driver, ending: str) -> None:
    queue = driver.queue(fifo=True, retry_delay_ms=50)
    driver.publish(queue, *grouped("a1", "a2"))
    message = driver.lease_one(queue, lease_ms=100)
    if ending == "retry":
        driver.retry(queue, message)
    else:
        driver.advance(100)
    assert driver.stats(queue).delayed == 1
    driver.advance(49)
    assert driver.lease(queue) == []
    driver.advance(1)
    assert bodies(driver.lease(queue)) == ["a1", "a2"]


def test_the_queues_delay_applies_when_the_draft_names_none(driver: Driver) -> None:
    queue = driver.queue(fifo=True, delay_ms=50)
    driver.publish(queue, *grouped("a1"), *grouped("b1", delay_ms=20), *grouped("c1", delay_ms=0))
    assert bodies(driver.peek(queue)) == ["c1"]
    assert driver.stats(queue).delayed == 2
    driver.advance(20)
    assert bodies(driver.peek(queue)) == ["b1", "c1"]
    driver.advance(29)
    assert bodies(driver.peek(queue)) == ["b1", "c1"]
    driver.advance(1)
    assert bodies(driver.peek(queue)) == ["a1", "b1", "c1"]
    assert driver.stats(queue).delayed == 0


def test_a_shorter_delay_applies_to_waiting_messages_at_once(driver: Driver) -> None:
    queue = driver.queue(fifo=True, delay_ms=100)
    driver.publish(queue, *grouped("a1"))
    driver.advance(10)
    driver.publish(queue, *grouped("b1"))
    queue = driver.update(queue, delay_ms=10)
    assert bodies(driver.peek(queue)) == ["a1"]
    assert driver.stats(queue).delayed == 1
    assert driver.sweep().next_ms == driver.now_ms + 10
    driver.advance(9)
    assert bodies(driver.peek(queue)) == ["a1"]
    driver.advance(1)
    assert bodies(driver.peek(queue)) == ["a1", "b1"]


def test_a_longer_delay_takes_waiting_messages_back(driver: Driver) -> None:
    queue = driver.queue(fifo=True)
    driver.publish(queue, *grouped("a1", "a2", "b1"))
    driver.advance(10)
    driver.publish(queue, *grouped("c1"))
    queue = driver.update(queue, delay_ms=50)
    assert driver.peek(queue) == []
    assert driver.stats(queue).delayed == 4
    assert driver.sweep().next_ms == driver.now_ms + 40
    driver.advance(39)
    assert driver.lease(queue) == []
    driver.advance(1)
    assert bodies(driver.peek(queue)) == ["a1", "a2", "b1"]
    assert driver.stats(queue).delayed == 1
    driver.advance(10)
    assert bodies(driver.lease(queue)) == ["a1", "a2", "b1", "c1"]


def test_a_delay_may_change_again_and_again(driver: Driver) -> None:
    queue = driver.queue(fifo=True, delay_ms=100)
    driver.publish(queue, *grouped("a1", "a2"))
    for delay_ms, ready in [(0, 2), (50, 0), (0, 2), (101, 0), (1, 0)]:
        queue = driver.update(queue, delay_ms=delay_ms)
        assert len(driver.peek(queue)) == ready
        assert driver.stats(queue).delayed == 2 - ready
    driver.advance(1)
    assert bodies(driver.lease(queue)) == ["a1", "a2"]


def test_a_changed_delay_does_not_reach_what_has_been_attempted(driver: Driver) -> None:
    queue = driver.queue(fifo=True)
    driver.publish(queue, *grouped("a1", "b1", "c1", "c2"))
    a1, b1, c1, c2 = driver.lease(queue, count=4, lease_ms=100)
    driver.retry(queue, a1)
    driver.retry(queue, b1, delay_ms=20)
    driver.ack(queue, c1)
    queue = driver.update(queue, delay_ms=DAY_MS)
    assert bodies(driver.peek(queue)) == ["a1"]
    assert driver.stats(queue).delayed == 1
    driver.retry(queue, c2)
    assert bodies(driver.peek(queue)) == ["a1", "c2"]
    queue = driver.update(queue, delay_ms=0)
    assert bodies(driver.peek(queue)) == ["a1", "c2"]
    driver.advance(20)
    assert bodies(driver.peek(queue)) == ["a1", "b1", "c2"]


def test_a_changed_delay_does_not_reach_a_delay_of_its_own(driver: Driver) -> None:
    queue = driver.queue(fifo=True)
    driver.publish(queue, *grouped("a1", delay_ms=20), *grouped("b1", delay_ms=0))
    queue = driver.update(queue, delay_ms=DAY_MS)
    assert bodies(driver.peek(queue)) == ["b1"]
    driver.advance(20)
    assert bodies(driver.peek(queue)) == ["a1", "b1"]


def test_a_message_held_back_by_a_changed_delay_holds_back_its_group(driver: Driver) -> None:
    queue = driver.queue(fifo=True)
    driver.publish(queue, *grouped("a1"), *grouped("a2", delay_ms=0), *grouped("b1", delay_ms=0))
    driver.update(queue, delay_ms=50)
    assert bodies(driver.peek(queue)) == ["b1"]


def test_a_changed_delay_leaves_other_queues_alone(driver: Driver) -> None:
    queue = driver.queue(fifo=True, delay_ms=50)
    other = driver.queue("other", fifo=True, delay_ms=50)
    for each in (queue, other):
        driver.publish(each, *grouped("a1"))
    driver.update(queue, delay_ms=0)
    assert (driver.stats(queue).delayed, driver.stats(other).delayed) == (0, 1)


def test_other_settings_move_no_delay(driver: Driver) -> None:
    queue = driver.queue(fifo=True, delay_ms=50)
    driver.publish(queue, *grouped("a1", "b1"))
    driver.advance(50)
    driver.retry(queue, driver.lease_one(queue), delay_ms=30)
    before = driver.stats(queue)
    queue = driver.update(queue, attempts_max=9, labels={"paint": "red"})
    assert driver.stats(queue) == before
    assert bodies(driver.peek(queue)) == ["b1"]


# --- dead letters ---


def test_after_a_burial_the_group_goes_on_with_the_next(driver: Driver) -> None:
    dead = driver.queue("dead", fifo=True)
    work = driver.queue("work", fifo=True, attempts_max=2, dead_letter=dead.id)
    driver.publish(work, *grouped("a1", "a2", "b1"))
    driver.lease(work, count=1, lease_ms=0)
    driver.lease(work, count=1, lease_ms=100)
    assert bodies(driver.peek(work)) == ["b1"]
    driver.advance(100)
    assert bodies(driver.lease(work)) == ["a2", "b1"]
    assert bodies(driver.peek(dead)) == ["a1"]


def test_dead_letters_keep_their_group_and_its_order(driver: Driver) -> None:
    dead = driver.queue("dead", fifo=True)
    work = driver.queue("work", fifo=True, attempts_max=1, dead_letter=dead.id)
    driver.publish(work, *grouped("a1", "b1", "a2"), "none")
    for message in driver.lease(work):
        driver.retry(work, message)
    letters = driver.peek(dead)
    assert bodies(letters) == ["a1", "a2", "b1", "none"]
    assert [letter.group for letter in letters] == ["a", "a", "b", GROUP_DEFAULT]
    driver.lease(dead, count=1)
    assert bodies(driver.peek(dead)) == ["b1", "none"]


def test_the_delay_of_a_fifo_queue_applies_to_its_dead_letters(driver: Driver) -> None:
    dead = driver.queue("dead", fifo=True, delay_ms=50)
    work = driver.queue("work", fifo=True, attempts_max=1, dead_letter=dead.id)
    driver.publish(work, *grouped("a1", "b1", delay_ms=0))
    for message in driver.lease(work):
        driver.retry(work, message)
    assert driver.stats(dead).delayed == 2
    assert [letter.delay_ms for letter in driver.browse(dead)] == [None, None]
    driver.advance(20)
    dead = driver.update(dead, delay_ms=30)
    driver.advance(9)
    assert driver.lease(dead) == []
    driver.advance(1)
    assert bodies(driver.lease(dead)) == ["a1", "b1"]


def test_a_redrive_is_not_delayed_and_joins_the_end_of_its_group(driver: Driver) -> None:
    dead = driver.queue("dead", fifo=True)
    work = driver.queue("work", fifo=True, attempts_max=1, dead_letter=dead.id)
    driver.publish(work, *grouped("a1"))
    driver.retry(work, driver.lease_one(work))
    driver.publish(work, *grouped("a2"))
    driver.update(work, delay_ms=50)
    assert driver.redrive(dead, 1) == [True]
    assert driver.peek(work) == []
    assert driver.stats(work).delayed == 1
    driver.advance(50)
    messages = driver.lease(work)
    assert bodies(messages) == ["a2", "a1"]
    assert [message.delay_ms for message in messages] == [None, 0]


def test_a_leased_dead_letter_blocks_its_group_but_not_a_redrive_of_others(
    driver: Driver,
) -> None:
    dead = driver.queue("dead", fifo=True)
    work = driver.queue("work", fifo=True, attempts_max=1, dead_letter=dead.id)
    driver.publish(work, *grouped("a1", "a2"))
    for message in driver.lease(work):
        driver.retry(work, message)
    driver.lease(dead, count=1)
    assert driver.redrive(dead, 1, 2) == [False, True]
    assert bodies(driver.lease(work)) == ["a2"]


# --- expiry, order under load ---


def test_an_expired_head_lets_its_group_go_on(driver: Driver, queue: Queue) -> None:
    driver.publish(
        queue,
        *grouped("a1", delay_ms=DAY_MS, ttl_ms=50),
        *grouped("a2", "b1"),
        *grouped("b2", ttl_ms=50),
    )
    assert bodies(driver.peek(queue)) == ["b1", "b2"]
    driver.advance(49)
    assert bodies(driver.peek(queue)) == ["b1", "b2"]
    driver.advance(1)
    assert bodies(driver.lease(queue)) == ["a2", "b1"]


@pytest.mark.parametrize("ending", ["lease", "delay"])
def test_however_many_come_back_at_once_they_keep_their_order(
    driver: Driver, queue: Queue, ending: str
) -> None:
    names = [f"g{number}" for number in range(30)]
    delay_ms = 100 if ending == "delay" else None
    driver.publish(
        queue,
        *(Draft(b"%d" % i, group=names[i % 30], delay_ms=delay_ms) for i in range(MANY)),
    )
    if ending == "lease":
        assert len(driver.lease(queue, count=MANY, lease_ms=100)) == MANY
    driver.advance(100)
    driver.lease(queue, count=3, lease_ms=0)
    driver.sweep_all()
    found = driver.lease(queue, count=MANY)
    assert [m.seq for m in found] == [
        seq for first in range(1, 31) for seq in range(first, MANY + 1, 30)
    ]


def test_the_messages_of_a_dropped_queue_are_removed(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, *grouped("a1", "a2", "b1"), *grouped("c1", delay_ms=500))
    driver.retry(queue, driver.lease(queue)[2], delay_ms=500)
    before = driver.last()
    driver.change(drops=[queue])
    again = driver.queue(queue.name, fifo=True)
    driver.publish(again, *grouped("a3"))
    driver.advance(1_000)
    driver.sweep_all()
    assert driver.kinds(after=before).count("deleted") == 4
    assert bodies(driver.lease(again)) == ["a3"]


def test_numbers_count_what_is_held_back_as_ready(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, *grouped("a1", "a2"), *grouped("b1", delay_ms=50), *grouped("b2"))
    driver.lease(queue, count=1)
    assert driver.stats(queue) == QueueStats(4, 8, driver.now_ms, leased=1, delayed=1)


@pytest.mark.one_node
def test_busy_consumers_keep_every_groups_order(driver: Driver, queue: Queue) -> None:
    """Consumers ack, retry or forget; each group is still worked off one by one, in order."""
    groups, length = 7, 12
    store, clock = driver.store, driver.clock
    done: dict[str, list[int]] = defaultdict(list)
    held: dict[str, set[int]] = defaultdict(set)

    def is_done() -> bool:
        return sum(len(seqs) for seqs in done.values()) == groups * length

    async def publish(group: str) -> None:
        for _ in range(length):
            await store.publish(
                [(queue.id, [Draft(b"x", group=group)])], actor=CALLER, now_ms=clock.now_ms()
            )

    async def work(message: Message) -> None:
        assert message.group is not None
        fate = (message.seq + message.attempts) % 3
        if fate == 0 and message.attempts == 1:
            item: Ack | Retry = Retry(message.seq, message.attempts)
        else:
            item = Ack(message.seq, message.attempts)
        [outcome] = await store.settle(queue.id, [item], actor=CALLER, now_ms=clock.now_ms())
        assert outcome is Outcome.DONE
        held[message.group].discard(message.seq)
        if isinstance(item, Ack):
            done[message.group].append(message.seq)

    async def consume() -> None:
        while not is_done():
            leased = await store.lease(
                queue.id, count=3, lease_ms=DAY_MS, actor=CALLER, now_ms=clock.now_ms()
            )
            for message in leased.messages:
                assert message.group is not None
                holders = held[message.group]
                others = {m.seq for m in leased.messages if m.group == message.group}
                assert holders <= others, "two consumers hold the same group"
                holders.add(message.seq)
            for message in leased.messages:
                await work(message)
            await asyncio.sleep(0)

    async def all_at_once() -> None:
        async with asyncio.timeout(BUSY_SECONDS_MAX):
            publishers = [publish(f"g{number}") for number in range(groups)]
            await asyncio.gather(*publishers, *(consume() for _ in range(6)))

    driver.run(all_at_once())
    assert len(done) == groups
    events = [event for event in driver.events() if event["kind"] == "leased"]
    first_attempts = [event["seq"] for event in events if event["attempt"] == 1]
    by_group = {name: sorted(seqs) for name, seqs in done.items()}
    for seqs in by_group.values():
        assert [seq for seq in first_attempts if seq in seqs] == seqs


@pytest.mark.parametrize(
    ("counts", "leased"),
    [
        pytest.param((1, 1, 1, 1), [[], ["a1"], ["b1"], ["c1"]], id="one of each"),
        pytest.param((2, 2, 2), [["a1", "a2"], ["b1", "b2"], ["c1"]], id="several of each"),
        pytest.param((4, 4), [["a1", "a2", "a3", "b1"], ["c1"]], id="of several groups"),
        pytest.param((3, 0, 3), [[], ["a1", "a2", "a3"], ["b1", "b2", "c1"]], id="whole groups"),
    ],
)
def test_callers_of_one_moment_get_messages_of_different_groups(
    driver: Driver, queue: Queue, counts: tuple[int, ...], leased: list[list[str]]
) -> None:
    driver.publish(queue, *grouped("a1", "a2", "a3", "b1", "b2", "c1"))
    store, now_ms = driver.store, driver.now_ms

    async def lease(count: int) -> list[str]:
        asked = store.lease(queue.id, count=count, lease_ms=1_000, actor=CALLER, now_ms=now_ms)
        return bodies((await asked).messages)

    async def all_at_once() -> list[list[str]]:
        return await asyncio.gather(*(lease(count) for count in counts))

    assert sorted(driver.run(all_at_once())) == leased


def test_a_retried_message_waits_for_those_of_its_group_that_are_still_leased(
    driver: Driver, queue: Queue
) -> None:
    driver.publish(queue, *grouped("a1", "a2", "a3"))
    a1, a2 = driver.lease(queue, count=2)
    driver.retry(queue, a1)
    assert driver.peek(queue) == []
    assert driver.lease(queue) == []
    driver.ack(queue, a2)
    assert bodies(driver.lease(queue)) == ["a1", "a3"]
