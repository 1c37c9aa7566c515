"""Every message of a queue is pushed to each of its listeners."""

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from courier import ids
from courier.core.errors import Conflict, NotFound
from courier.core.store import Store
from courier.core.types import (
    DAY_MS,
    Draft,
    Listener,
    Origin,
    Queue,
    Via,
)
from tests.conformance.store.driver import (
    TENANT,
    Driver,
    bodies,
    sealed,
)

# --- which messages are pushed ---


def test_a_published_message_is_pushed_to_every_listener_of_its_queue(
    driver: Driver, queue: Queue, listener: Listener
) -> None:
    other = driver.listener(queue, "press")
    driver.publish(queue, "a", "b")
    assert bodies(driver.take(listener)) == ["a", "b"]
    assert bodies(driver.take(other)) == ["a", "b"]


def test_a_listener_gets_the_whole_message(
    driver: Driver, queue: Queue, listener: Listener
) -> None:
    driver.publish(
        queue,
        Draft(b"[1]", "json", {"k": ["v"]}, id="order-1", group="g", ttl_ms=500),
        sealed(b"secret"),
    )
    wanted = driver.lease(queue)
    assert driver.take(listener) == wanted


def test_what_is_published_before_a_listener_is_there_is_not_for_it(
    driver: Driver, queue: Queue
) -> None:
    driver.publish(queue, "before")
    listener = driver.listener(queue)
    driver.publish(queue, "after")
    assert bodies(driver.take(listener)) == ["after"]
    assert driver.pushes(queue, 1) == []


def test_a_listener_hears_of_no_other_queue(
    driver: Driver, queue: Queue, listener: Listener
) -> None:
    other = driver.queue("other")
    driver.publish(other, "a")
    assert driver.take(listener) == []
    assert driver.pushes(other, 1) == []


def test_a_repeated_publish_is_pushed_once(
    driver: Driver, queue: Queue, listener: Listener
) -> None:
    draft = Draft(b"a", once_key="k")
    driver.publish(queue, draft)
    driver.publish(queue, draft)
    assert bodies(driver.take(listener)) == ["a"]


def test_what_comes_through_an_exchange_is_pushed_on_each_queue(
    driver: Driver, queue: Queue, listener: Listener
) -> None:
    other = driver.queue("other")
    elsewhere = driver.listener(other)
    via = Via(TENANT, ids.new_id(), 1, 1)
    driver.publish_all((queue, ["a"]), (other, ["b"]), via=via)
    assert bodies(driver.take(listener)) == ["a"]
    assert bodies(driver.take(elsewhere)) == ["b"]


@pytest.mark.parametrize("ending", ["retry", "expiry"])
def test_a_dead_letter_is_pushed_to_the_listeners_of_its_new_queue(
    driver: Driver, queue: Queue, listener: Listener, ending: str
) -> None:
    work = driver.queue("work", attempts_max=1, dead_letter=queue.id)
    driver.publish(work, "a")
    message = driver.lease_one(work, lease_ms=10)
    if ending == "retry":
        driver.retry(work, message)
    driver.advance(10)
    [letter] = driver.take(listener)
    assert letter.origin == Origin(work.id, message.id, attempts=1, reason="attempts")


def test_a_redriven_message_is_pushed_once_more(
    driver: Driver, queue: Queue, listener: Listener
) -> None:
    driver.pull(queue)
    dead = driver.queue("dead")
    driver.update(queue, attempts_max=1, dead_letter=dead.id)
    driver.publish(queue, "a")
    driver.arrive(listener, driver.take_one(listener))
    driver.retry(queue, driver.lease_one(queue))
    assert driver.take(listener) == []
    driver.redrive(dead, 1)
    message = driver.take_one(listener)
    assert (message.body, message.seq) == (b"a", 2)


def test_a_message_that_changed_hands_is_not_pushed_to_who_came_later(
    driver: Driver, queue: Queue, listener: Listener
) -> None:
    driver.publish(queue, "a")
    later = driver.listener(queue, "later")
    driver.retry(queue, driver.lease_one(queue))
    driver.update(later, ordered=True)
    assert driver.take(later) == []
    assert [push.listener for push in driver.pushes(queue, 1)] == [listener.id]


def test_a_queue_and_its_listener_can_be_created_together(driver: Driver) -> None:
    queue = Queue(id=ids.new_id(), tenant=TENANT, name="orders", created_ms=1, modified_ms=1)
    listener = Listener(
        id=ids.new_id(),
        tenant=TENANT,
        parent=queue.id,
        name=f"{queue.id}/mill",
        title="mill",
        created_ms=1,
        modified_ms=1,
        url="https://mill.example/push",
        liveness_url="https://mill.example/live",
    )
    driver.change(puts=[listener, queue])
    driver.publish(queue, "a")
    assert bodies(driver.take(listener)) == ["a"]


def test_titles_are_unique_within_a_queue(driver: Driver, queue: Queue, listener: Listener) -> None:
    other = driver.queue("other")
    driver.listener(other, listener.title)
    with pytest.raises(Conflict) as refused:
        driver.listener(queue, listener.title)
    assert (refused.value.kind, refused.value.ref) == ("listener", f"{queue.id}/mill")
    driver.publish(queue, "a")
    assert len(driver.pushes(queue, 1)) == 1


# --- independence ---


def test_pullers_and_listeners_do_not_notice_each_other(
    driver: Driver, queue: Queue, listener: Listener
) -> None:
    driver.pull(queue)
    driver.publish(queue, "a", "b")
    before = driver.stats(queue)
    taken = driver.take(listener)
    driver.arrive(listener, taken[0])
    driver.miss(listener, taken[1], delay_ms=50)
    assert driver.stats(queue) == before
    messages = driver.lease(queue)
    assert [(m.body, m.attempts) for m in messages] == [(b"a", 1), (b"b", 1)]
    driver.retry(queue, messages[1], delay_ms=DAY_MS)
    driver.advance(50)
    again = driver.take_one(listener)
    assert (again.body, again.attempts) == (b"b", 2)


def test_listeners_do_not_notice_each_other(
    driver: Driver, queue: Queue, listener: Listener
) -> None:
    other = driver.listener(queue, "press")
    driver.publish(queue, "a")
    driver.miss(listener, driver.take_one(listener), delay_ms=None)
    assert driver.take_one(other).attempts == 1
    assert driver.push(listener, 1).status == "exhausted"
    assert driver.push(other, 1).status == "in_flight"


def test_pushes_do_not_follow_the_groups_of_a_fifo_queue(driver: Driver) -> None:
    queue = driver.queue(fifo=True)
    listener = driver.listener(queue)
    driver.publish(queue, *(Draft(b.encode(), group=b[0]) for b in ("a1", "b1", "a2")))
    driver.lease(queue, count=1)
    taken = driver.take(listener)
    assert bodies(taken) == ["a1", "b1", "a2"]
    assert [message.group for message in taken] == ["a", "b", "a"]


def test_it_is_not_the_store_that_heeds_a_disabled_listener(
    driver: Driver, queue: Queue, listener: Listener
) -> None:
    driver.update(listener, disabled_by="user")
    driver.publish(queue, "a")
    assert bodies(driver.take(listener)) == ["a"]


# --- taking ---


def test_pushes_are_taken_by_sequence_whatever_became_of_them(
    driver: Driver, queue: Queue, listener: Listener
) -> None:
    driver.publish(queue, *"abcd")
    a, b, c = driver.take(listener, count=3)
    driver.miss(listener, c, delay_ms=0)
    driver.give_back(listener, b)
    assert bodies(driver.take(listener)) == ["b", "c", "d"]
    driver.miss(listener, a, delay_ms=10)
    driver.publish(queue, "e")
    driver.advance(10)
    assert bodies(driver.take(listener, count=1)) == ["a"]
    assert bodies(driver.take(listener)) == ["e"]


def test_no_more_are_taken_than_asked_for(driver: Driver, queue: Queue, listener: Listener) -> None:
    driver.publish(queue, *"abc")
    assert bodies(driver.take(listener, count=2)) == ["a", "b"]
    assert bodies(driver.take(listener, count=2)) == ["c"]
    assert driver.take(listener, count=2) == []


def test_an_ordered_listener_takes_one_at_a_time(driver: Driver, queue: Queue) -> None:
    listener = driver.listener(queue, ordered=True)
    driver.publish(queue, *"abc")
    a = driver.take_one(listener)
    assert a.body == b"a"
    assert driver.take(listener) == []
    driver.arrive(listener, a)
    assert bodies(driver.take(listener)) == ["b"]


def test_a_failed_push_holds_up_an_ordered_listener(driver: Driver, queue: Queue) -> None:
    listener = driver.listener(queue, ordered=True)
    driver.publish(queue, "a", "b")
    driver.miss(listener, driver.take_one(listener), delay_ms=100)
    driver.advance(99)
    assert driver.take(listener) == []
    driver.advance(1)
    a = driver.take_one(listener)
    assert (a.body, a.attempts) == (b"a", 2)
    driver.give_back(listener, a)
    assert bodies(driver.take(listener)) == ["a"]


def test_an_exhausted_push_holds_up_nobody(driver: Driver, queue: Queue) -> None:
    listener = driver.listener(queue, ordered=True)
    driver.publish(queue, "a", "b")
    driver.miss(listener, driver.take_one(listener), delay_ms=None)
    b = driver.take_one(listener)
    assert b.body == b"b"
    driver.retry_push(listener, 1)
    driver.arrive(listener, b)
    assert bodies(driver.take(listener)) == ["a"]


def test_a_delayed_message_holds_up_an_ordered_listener(driver: Driver, queue: Queue) -> None:
    listener = driver.listener(queue, ordered=True)
    driver.publish(queue, Draft(b"a", delay_ms=100), "b")
    assert driver.take(listener) == []
    driver.advance(100)
    driver.arrive(listener, driver.take_one(listener))
    assert bodies(driver.take(listener)) == ["b"]


def test_a_message_that_is_gone_holds_up_nobody(driver: Driver, queue: Queue) -> None:
    listener = driver.listener(queue, ordered=True)
    driver.publish(queue, "a", Draft(b"b", ttl_ms=50), "c")
    driver.take(listener)
    driver.remove(queue, 1)
    assert bodies(driver.take(listener)) == ["b"]
    driver.advance(50)
    assert bodies(driver.take(listener)) == ["c"]


def test_a_listener_can_become_ordered_and_cease_to_be(
    driver: Driver, queue: Queue, listener: Listener
) -> None:
    driver.publish(queue, *"abcd")
    a, b = driver.take(listener, count=2)
    listener = driver.update(listener, ordered=True)
    assert driver.take(listener) == []
    driver.arrive(listener, a)
    assert driver.take(listener) == []
    driver.arrive(listener, b)
    assert bodies(driver.take(listener)) == ["c"]
    listener = driver.update(listener, ordered=False)
    assert bodies(driver.take(listener)) == ["d"]


# --- listeners that are not there ---

VERBS: dict[str, Callable[[Store, str], Coroutine[Any, Any, Any]]] = {
    "take": lambda s, id: s.pushes.take(id, count=1, lease_ms=1, now_ms=9),
    "settle": lambda s, id: s.pushes.settle(id, [], now_ms=9),
    "missed": lambda s, id: s.pushes.missed(id, limit=1, now_ms=9),
    "retry": lambda s, id: s.pushes.retry(id, 1, now_ms=9),
    "backfill": lambda s, id: s.pushes.backfill(
        id, since_ms=0, until_ms=9, after_seq=0, limit=1, now_ms=9
    ),
}


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_on_an_unknown_listener_is_refused(driver: Driver, queue: Queue, verb: str) -> None:
    for unknown in (ids.new_id(), queue.id):
        with pytest.raises(NotFound) as refused:
            driver.run(VERBS[verb](driver.store, unknown))
        assert (refused.value.kind, refused.value.ref) == ("listener", unknown)


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_on_a_dropped_listener_is_refused_before_and_after_its_sweep(
    driver: Driver, queue: Queue, listener: Listener, verb: str
) -> None:
    driver.publish(queue, "a", "b")
    driver.take_one(listener)
    driver.change(drops=[listener])
    for _ in range(2):
        with pytest.raises(NotFound) as refused:
            driver.run(VERBS[verb](driver.store, listener.id))
        assert (refused.value.kind, refused.value.ref) == ("listener", listener.id)
        driver.sweep_all()


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_on_a_listener_whose_queue_is_gone_is_refused(
    driver: Driver, queue: Queue, listener: Listener, verb: str
) -> None:
    driver.publish(queue, "a", "b")
    driver.take_one(listener)
    driver.change(drops=[queue])
    for _ in range(2):
        with pytest.raises(NotFound) as refused:
            driver.run(VERBS[verb](driver.store, listener.id))
        assert (refused.value.kind, refused.value.ref) == ("queue", queue.id)
        driver.sweep_all()


def test_what_was_delayed_is_taken_after_what_was_published_before_it(
    driver: Driver, queue: Queue, listener: Listener
) -> None:
    driver.publish(queue, "a", Draft(b"b", delay_ms=50), "c")
    driver.advance(50)
    assert bodies(driver.take(listener, count=1)) == ["a"]
    assert bodies(driver.take(listener, count=2)) == ["b", "c"]
