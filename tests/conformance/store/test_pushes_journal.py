"""What the journal tells of pushes."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from courier.core.types import (
    BROKER,
    DAY_MS,
    Draft,
    Listener,
    Pushed,
    PushFailed,
    Queue,
    Report,
    Secret,
)
from tests.conformance.store.driver import ARRIVED, REFUSED, SILENCE, TENANT, Driver
from tests.conformance.store.test_journal import BY_BROKER, BY_CALLER, tail, who


def by(listener: Listener) -> tuple[str, str]:
    return listener.id, "push"


def told(events: list[dict[str, Any]]) -> list[tuple[str, int, str | None]]:
    """Kind and sequence of each event, and of which listener it is."""
    return [(e["kind"], e["seq"], e.get("detail", {}).get("listener")) for e in events]


def test_a_binding_and_a_hand_out_are_no_events(
    driver: Driver, queue: Queue, listener: Listener
) -> None:
    before = driver.last()
    driver.publish(queue, "a", "b")
    driver.take(listener)
    assert driver.kinds(after=before) == ["published", "published"]


def test_what_became_of_a_push_is_told_by_its_listener(
    driver: Driver, queue: Queue, listener: Listener
) -> None:
    driver.pull(queue)
    [id] = driver.publish(queue, "abc").ids
    common = {"message_id": id, "seq": 1, "published_ms": driver.now_ms, "size": 3}
    before = driver.last()
    driver.miss(listener, driver.take_one(listener), delay_ms=70)
    driver.advance(70)
    driver.miss(listener, driver.take_one(listener), delay_ms=0)
    driver.arrive(listener, driver.take_one(listener))
    events = driver.events(after=before)
    failed = {
        "listener": listener.id,
        "status": 503,
        "duration_ms": 40,
        "error": "answered 503",
        "answer": "busy",
    }
    arrived = {"listener": listener.id, "status": 204, "duration_ms": 12}
    assert [tail(event) for event in events] == [
        {"kind": "push_failed", "attempt": 1, "delay_ms": 70, "detail": failed, **common},
        {"kind": "push_failed", "attempt": 2, "delay_ms": 0, "detail": failed, **common},
        {"kind": "pushed", "attempt": 3, "detail": arrived, **common},
    ]
    for event in events:
        assert who(event) == by(listener)
        assert event["tenant"] == TENANT
        assert (event["queue"], event["queue_name"]) == (queue.id, queue.name)
    assert [event["at_ms"] for event in events] == [driver.now_ms - 70] + [driver.now_ms] * 2


def test_an_own_id_is_told_with_a_push(driver: Driver, queue: Queue, listener: Listener) -> None:
    driver.publish(queue, Draft(b"a", id="own"), "b", Draft(b"c", id="too"))
    driver.take(listener)
    driver.settle_pushes(listener, *(Pushed(seq, 1, ARRIVED) for seq in (1, 2, 3)))
    published, pushed = (
        [event["message_id"] for event in driver.events() if event["kind"] == kind]
        for kind in ("published", "pushed")
    )
    assert published == pushed


def test_each_push_of_a_batch_tells_its_own_story(
    driver: Driver, queue: Queue, listener: Listener
) -> None:
    driver.publish(queue, *"abcd")
    driver.take(listener)
    before = driver.last()
    driver.settle_pushes(
        listener,
        PushFailed(1, 1, Report(500, "answered 500", 1), 10),
        PushFailed(2, 1, Report(0, "timed out", 2), 20),
        PushFailed(3, 1, Report(410, "answered 410", 3), None),
        PushFailed(4, 1, Report(500, "answered 500", 1), 10),
    )
    events = driver.events(after=before)
    assert [(event["seq"], event.get("delay_ms")) for event in events] == [
        (1, 10),
        (2, 20),
        (3, None),
        (4, 10),
    ]
    assert [event["detail"]["status"] for event in events] == [500, 0, 410, 500]
    assert [event["detail"]["error"] for event in events] == [
        "answered 500",
        "timed out",
        "answered 410",
        "answered 500",
    ]
    assert [event["detail"]["duration_ms"] for event in events] == [1, 2, 3, 1]


ANSWERS = {
    "text": (b"no", "no"),
    "not UTF-8": (b"a\xffb\x00", "a\ufffdb\x00"),
    "cut in a character": (b"x" * 1_022 + "\u20ac".encode(), "x" * 1_022),
    "long": (b"x" * 2_000, "x" * 1_024),
}


@pytest.mark.parametrize("how", ANSWERS)
def test_how_the_answer_began_is_told(
    driver: Driver, queue: Queue, listener: Listener, how: str
) -> None:
    driver.pull(queue)
    answer, text = ANSWERS[how]
    report = Report(200, "", 1, answer[:1_024])
    driver.publish(queue, "a", "b")
    driver.take(listener)
    before = driver.last()
    driver.settle_pushes(listener, Pushed(1, 1, report), PushFailed(2, 1, report, 10))
    assert [event["detail"]["answer"] for event in driver.events(after=before)] == [text] * 2
    for seq in (1, 2):
        found = driver.push(listener, seq).report
        assert found == report
        assert found.text == text


def test_a_settlement_without_effect_is_no_event(
    driver: Driver, queue: Queue, listener: Listener
) -> None:
    driver.publish(queue, "a")
    driver.arrive(listener, driver.take_one(listener))
    before = driver.last()
    driver.settle_pushes(
        listener,
        Pushed(1, 1, ARRIVED),
        PushFailed(1, 1, REFUSED, None),
        Pushed(9, 1, ARRIVED),
    )
    assert driver.last() == before


def test_the_end_of_a_lease_is_told_as_a_failure(
    driver: Driver, queue: Queue, listener: Listener
) -> None:
    [id] = driver.publish(queue, Draft(b"abc", id="own")).ids
    driver.take(listener, lease_ms=100)
    before = driver.last()
    driver.advance(110)
    driver.sweep()
    [event] = driver.events(after=before)
    assert who(event) == by(listener)
    assert event["at_ms"] == driver.now_ms
    assert tail(event) == {
        "kind": "push_failed",
        "message_id": id,
        "seq": 1,
        "attempt": 1,
        "delay_ms": 0,
        "published_ms": driver.now_ms - 110,
        "size": 3,
        "detail": {
            "listener": listener.id,
            "status": 0,
            "duration_ms": 0,
            "error": SILENCE.error,
        },
    }


def test_a_last_failure_is_followed_by_its_dead_letter(driver: Driver) -> None:
    dead = driver.queue("dead")
    queue = driver.queue(dead_letter=dead.id)
    listener = driver.listener(queue)
    [id] = driver.publish(queue, "a").ids
    taken = driver.take_one(listener)
    before = driver.last()
    driver.miss(listener, taken, delay_ms=None)
    failed, published = driver.events(after=before)
    assert (failed["kind"], who(failed)) == ("push_failed", by(listener))
    assert "delay_ms" not in failed
    assert (published["kind"], published["queue"]) == ("published", dead.id)
    assert who(published) == BY_BROKER
    assert published["detail"] == {
        "queue": queue.id,
        "message": id,
        "attempts": 1,
        "reason": "push",
    }


def test_a_last_failure_without_dead_letters_tells_no_delay(
    driver: Driver, queue: Queue, listener: Listener
) -> None:
    driver.publish(queue, "a")
    driver.miss(listener, driver.take_one(listener), delay_ms=None)
    assert driver.events()[-1]["kind"] == "push_failed"
    assert "delay_ms" not in driver.events()[-1]


ENDS: dict[str, Callable[[Driver, Queue], object]] = {
    "deleted": lambda driver, queue: driver.remove(queue, 1),
    "purged": lambda driver, queue: driver.purge(queue, upto_seq=1),
    "expired": lambda driver, queue: driver.advance(500),
}


@pytest.mark.parametrize("kind", ENDS)
def test_the_end_of_a_message_is_followed_by_that_of_its_open_pushes(
    driver: Driver, kind: str
) -> None:
    queue = driver.queue()
    listeners = []
    for title in ("pending", "arrived", "in flight", "exhausted", "retrying"):
        listeners.append(driver.listener(queue, title))
        driver.advance(1)
    pending, arrived, in_flight, exhausted, retrying = listeners
    [id] = driver.publish(queue, Draft(b"abc", ttl_ms=500)).ids
    published_ms = driver.now_ms
    driver.arrive(arrived, driver.take_one(arrived))
    driver.take_one(in_flight, lease_ms=DAY_MS)
    driver.miss(exhausted, driver.take_one(exhausted), delay_ms=None)
    driver.miss(retrying, driver.take_one(retrying), delay_ms=0)
    driver.miss(retrying, driver.take_one(retrying), delay_ms=DAY_MS)
    before = driver.last()
    ENDS[kind](driver, queue)
    driver.sweep()
    end, *dropped = driver.events(after=before)
    assert end["kind"] == kind
    assert who(end) == (BY_BROKER if kind == "expired" else BY_CALLER)
    assert [tail(event) for event in dropped] == [
        {
            "kind": "push_dropped",
            "message_id": id,
            "seq": 1,
            "attempt": attempt,
            "published_ms": published_ms,
            "size": 3,
            "detail": {"listener": listener.id, "reason": kind},
        }
        for listener, attempt in ((pending, 0), (in_flight, 1), (retrying, 2))
    ]
    assert {who(event) for event in dropped} == {(BROKER.id, BROKER.dialect)}
    assert {event["queue"] for event in dropped} == {queue.id}


def test_pushes_that_arrived_or_failed_for_good_vanish_without_an_event(
    driver: Driver, queue: Queue, listener: Listener
) -> None:
    driver.pull(queue)
    driver.publish(queue, "a", "b", "c")
    a, b, c = driver.take(listener)
    driver.arrive(listener, a)
    driver.miss(listener, b, delay_ms=None)
    driver.miss(listener, c, delay_ms=None)
    driver.ack(queue, driver.lease(queue)[2])
    before = driver.last()
    driver.remove(queue, 1, 2, 3)
    assert driver.kinds(after=before) == ["deleted", "deleted"]
    driver.change(drops=[listener])
    driver.sweep_all()
    assert driver.kinds(after=before)[2:] == ["listener_deleted"]


def test_an_ack_and_what_it_keeps_are_one_event(
    driver: Driver, queue: Queue, listener: Listener
) -> None:
    driver.publish(queue, "a")
    before = driver.last()
    driver.ack(queue, driver.lease_one(queue))
    driver.arrive(listener, driver.take_one(listener))
    driver.sweep()
    assert driver.kinds(after=before) == ["leased", "acked", "pushed"]


def test_the_messages_of_a_dropped_queue_tell_of_their_pushes(
    driver: Driver, queue: Queue, listener: Listener
) -> None:
    driver.publish(queue, "a")
    driver.take(listener)
    before = driver.last()
    driver.change(drops=[queue])
    driver.sweep_all()
    _, *events = driver.events(after=before)
    assert told(events) == [("deleted", 1, None), ("push_dropped", 1, listener.id)]
    assert events[1]["detail"] == {"listener": listener.id, "reason": "deleted"}
    assert events[1]["attempt"] == 1
    assert (events[1]["queue"], events[1]["queue_name"]) == (queue.id, queue.name)


def test_a_redriven_dead_letter_is_not_pushed_any_more(driver: Driver) -> None:
    dead = driver.queue("dead")
    listener = driver.listener(dead)
    work = driver.queue("work", attempts_max=1, dead_letter=dead.id)
    driver.publish(work, "a")
    driver.retry(work, driver.lease_one(work))
    before = driver.last()
    driver.redrive(dead, 1)
    events = driver.events(after=before)
    assert [event["kind"] for event in events] == ["published", "deleted", "push_dropped"]
    assert events[2]["detail"] == {"listener": listener.id, "reason": "deleted"}


def test_the_sweep_tells_what_was_open_of_a_dropped_listener(
    driver: Driver, queue: Queue, listener: Listener
) -> None:
    [id] = driver.publish(queue, "abc").ids
    driver.miss(listener, driver.take_one(listener), delay_ms=DAY_MS)
    before = driver.last()
    driver.change(drops=[listener])
    driver.advance(10)
    driver.sweep_all()
    deleted, dropped = driver.events(after=before)
    assert deleted["kind"] == "listener_deleted"
    assert who(dropped) == BY_BROKER
    assert dropped["at_ms"] == driver.now_ms
    assert tail(dropped) == {
        "kind": "push_dropped",
        "message_id": id,
        "seq": 1,
        "attempt": 1,
        "published_ms": driver.now_ms - 10,
        "size": 3,
        "detail": {"listener": listener.id, "reason": "listener"},
    }


@pytest.mark.parametrize("leased", [False, True], ids=["waiting", "leased"])
@pytest.mark.parametrize(
    ("lease_ms", "kinds"),
    [(99, ["push_failed", "expired", "push_dropped"]), (100, ["expired", "push_dropped"])],
    ids=["before", "with"],
)
def test_a_lease_that_ended_before_its_message_is_told_first(
    driver: Driver, lease_ms: int, kinds: list[str], leased: bool
) -> None:
    queue = driver.queue()
    listener = driver.listener(queue)
    driver.publish(queue, Draft(b"a", ttl_ms=100))
    driver.take(listener, lease_ms=lease_ms)
    if leased:
        driver.lease(queue, lease_ms=150)
    before = driver.last()
    driver.advance(500)
    driver.sweep_all()
    events = driver.events(after=before)
    assert [event["kind"] for event in events] == kinds
    assert events[-1]["attempt"] == 1


def test_a_listener_is_told_under_its_queue_without_its_secrets(
    driver: Driver, queue: Queue
) -> None:
    before = driver.last()
    listener = driver.listener(queue, secrets=(Secret("sealed"),), private="sealed too")
    driver.update(listener, ordered=True, secrets=(), private="other")
    driver.change(drops=[listener])
    events = driver.events(after=before)
    assert [event["kind"] for event in events] == [
        "listener_created",
        "listener_updated",
        "listener_deleted",
    ]
    for event in events:
        assert (event["queue"], event["queue_name"]) == (queue.id, queue.name)
        assert not {"secrets", "private"} & set(event["detail"])
        assert "sealed" not in str(event)
    assert events[0]["detail"]["url"] == listener.url
    assert events[1]["detail"]["ordered"] is True
    # That a secret changed is no secret.
    assert events[1]["detail"]["changed"] == ["ordered", "private", "secrets"]


def test_events_of_pushes_are_tallied_under_their_queue(
    driver: Driver, queue: Queue, listener: Listener
) -> None:
    driver.pull(queue)
    driver.publish(queue, "ab", "c", "def")
    ab, c, _ = driver.take(listener)
    driver.arrive(listener, ab)
    driver.miss(listener, c, delay_ms=0)
    driver.arrive(listener, driver.take_one(listener))
    for message in driver.lease(queue):
        driver.ack(queue, message)
    driver.remove(queue, 3)
    found = {tally.kind: (tally.count, tally.bytes) for tally in driver.tallies(queue.id)}
    assert found == {
        "queue_created": (1, 0),
        "listener_created": (1, 0),
        "published": (3, 6),
        "pushed": (2, 3),
        "push_failed": (1, 1),
        "leased": (3, 6),
        "acked": (3, 6),
        "push_dropped": (1, 3),
    }


def test_a_record_keeps_what_its_event_does_not_tell(driver: Driver, queue: Queue) -> None:
    listener = driver.listener(queue, secrets=(Secret("s", until_ms=5),), private="p")
    assert driver.store.records.get(Listener, listener.id) == listener
    renamed = msgspec.structs.replace(listener, title="press", name=f"{queue.id}/press")
    driver.change(puts=[renamed])
    found = driver.store.records.named(Listener, tenant=TENANT, name=renamed.name)
    assert found == renamed
    assert driver.store.records.scan(Listener, parent=queue.id) == [renamed]


def test_a_deleted_listener_is_owed_nothing_that_is_published_later(
    driver: Driver, queue: Queue, listener: Listener
) -> None:
    driver.pull(queue)
    driver.publish(queue, "a")
    driver.change(drops=[listener])
    driver.publish(queue, "b", Draft(b"c", delay_ms=50))
    before = driver.last()
    driver.sweep_all()
    assert [(event["kind"], event["seq"]) for event in driver.events(after=before)] == [
        ("push_dropped", 1)
    ]
    driver.advance(50)
    for message in driver.lease(queue):
        driver.ack(queue, message)
    assert driver.browse(queue, kept=True) == []
