"""A message can be given a name after it was published."""

import pytest

from courier.core.lifecycle import NAME_HEADER
from courier.core.types import Draft, Listener, Queue
from tests.conformance.store.driver import Driver
from tests.conformance.store.test_journal import BY_CALLER, tail, who


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, {NAME_HEADER: "new"}),
        ({}, {NAME_HEADER: "new"}),
        ({"k": ["v"]}, {"k": ["v"], NAME_HEADER: "new"}),
        ({NAME_HEADER: "old", "k": 1}, {NAME_HEADER: "new", "k": 1}),
    ],
    ids=["none", "empty", "other", "old"],
)
def test_a_name_is_one_of_the_headers(
    driver: Driver, queue: Queue, before: dict[str, object] | None, after: dict[str, object]
) -> None:
    driver.publish(queue, Draft(b"a", headers=before), "other")
    [unnamed, other] = driver.browse(queue)
    renamed = driver.rename(queue, 1, "new")
    assert renamed is not None
    assert renamed.headers == after
    assert (renamed.seq, renamed.id, renamed.body) == (1, unnamed.id, b"a")
    assert driver.find(queue, unnamed.id) == renamed
    assert driver.browse(queue) == driver.peek(queue) == [renamed, other]


@pytest.mark.parametrize("fifo", [False, True], ids=["standard", "fifo"])
def test_a_message_is_renamed_whatever_its_state(driver: Driver, fifo: bool) -> None:
    queue = driver.queue(fifo=fifo, attempts_max=None)
    driver.publish(queue, Draft(b"leased", group="a"), Draft(b"retried", group="b"))
    driver.publish(queue, Draft(b"delayed", group="c", delay_ms=50), Draft(b"new", group="d"))
    _, retried = driver.lease(queue, count=2, lease_ms=100)
    driver.retry(queue, retried)
    for seq in (1, 2, 3, 4):
        renamed = driver.rename(queue, seq, f"name-{seq}")
        assert renamed is not None
        assert renamed.attempts == (1 if seq < 3 else 0)
    driver.advance(100)
    named = {message.seq: message.headers for message in driver.lease(queue)}
    assert named == {seq: {NAME_HEADER: f"name-{seq}"} for seq in (1, 2, 3, 4)}


def test_only_what_is_there_can_be_renamed(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, "a", Draft(b"b", ttl_ms=10), "c")
    driver.ack(queue, driver.lease_one(queue))
    driver.advance(10)
    before = driver.last()
    driver.sweep_all()
    noted = driver.last()
    assert noted == before + 1
    assert [driver.rename(queue, seq, "x") for seq in (1, 2, 4, 0, -1)] == [None] * 5
    assert driver.last() == noted
    assert [message.headers for message in driver.browse(queue)] == [None]


def test_the_journal_tells_of_a_new_name(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, "first", Draft(b"abc", id="own"))
    driver.lease(queue)
    before = driver.last()
    driver.advance(5)
    driver.rename(queue, 2, "größe")
    [event] = driver.events(after=before)
    assert who(event) == BY_CALLER
    assert (event["queue"], event["queue_name"]) == (queue.id, queue.name)
    assert event["at_ms"] == driver.now_ms
    assert tail(event) == {
        "kind": "renamed",
        "message_id": "own",
        "seq": 2,
        "published_ms": driver.now_ms - 5,
        "size": 3,
        "detail": {"name": "größe"},
    }
    [published] = [event for event in driver.events() if event.get("seq") == 1][:1]
    assert "headers" not in published


def test_a_push_carries_the_new_name(driver: Driver, queue: Queue, listener: Listener) -> None:
    driver.publish(queue, Draft(b"a", headers={"k": "v"}))
    driver.rename(queue, 1, "new")
    assert driver.take_one(listener).headers == {"k": "v", NAME_HEADER: "new"}


def test_a_kept_message_can_be_renamed(driver: Driver, queue: Queue, listener: Listener) -> None:
    driver.publish(queue, "abc")
    driver.ack(queue, driver.lease_one(queue))
    renamed = driver.rename(queue, 1, "new")
    assert renamed is not None
    assert (renamed.headers, renamed.attempts) == ({NAME_HEADER: "new"}, 0)
    assert driver.kinds()[-1] == "renamed"
    assert driver.find(queue, renamed.id) == renamed
    assert driver.take_one(listener).headers == {NAME_HEADER: "new"}


def test_a_dead_letter_keeps_the_name(driver: Driver) -> None:
    dead = driver.queue("dead")
    work = driver.queue("work", attempts_max=1, dead_letter=dead.id)
    listener = driver.listener(work)
    driver.publish(work, "a")
    driver.rename(work, 1, "new")
    driver.miss(listener, driver.take_one(listener), delay_ms=None)
    driver.retry(work, driver.lease_one(work))
    assert [letter.headers for letter in driver.peek(dead)] == [{NAME_HEADER: "new"}] * 2


def test_what_a_caller_does_to_an_answer_changes_nothing(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, Draft(b"a", headers={"k": ["v"]}))
    renamed = driver.rename(queue, 1, "new")
    assert renamed is not None
    assert renamed.headers is not None
    renamed.headers.clear()
    assert driver.peek(queue)[0].headers == {"k": ["v"], NAME_HEADER: "new"}
