"""What a store on disk still knows after its process is gone."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from courier.clock import ManualClock
from courier.core.errors import StoreUnavailable
from courier.core.types import (
    DAY_MS,
    MINUTE_MS,
    Draft,
    Key,
    Outcome,
    Queue,
    QueueStats,
    Via,
)
from tests.conformance.store.conftest import Opener
from tests.conformance.store.driver import TENANT, Driver, bodies, sealed
from tests.conformance.store.test_records import RECORDS


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "courier.db"


@pytest.fixture
def driver(
    path: Path, clock: ManualClock, runner: asyncio.Runner, opener: Opener
) -> Iterator[Driver]:
    driver = Driver(runner.run(opener(path)), clock, runner)
    yield driver
    runner.run(driver.store.close())


@pytest.fixture
def restart(driver: Driver, path: Path, opener: Opener) -> Callable[[], None]:
    def restart() -> None:
        driver.run(driver.store.close())
        driver.store = driver.run(opener(path))

    return restart


Restart = Callable[[], None]


def test_records_survive(driver: Driver, restart: Restart) -> None:
    driver.change(puts=RECORDS)
    restart()
    for record in RECORDS:
        assert driver.store.records.get(type(record), record.id) == record
        name = record.name
        found = driver.store.records.named(type(record), tenant=record.tenant, name=name)
        assert found == (record if name else None)


def test_a_dropped_record_stays_dropped(driver: Driver, restart: Restart) -> None:
    driver.change(puts=RECORDS)
    driver.change(drops=RECORDS)
    restart()
    assert driver.store.records.scan(Key) == []
    assert driver.store.records.scan(Queue) == []


def test_the_secret_and_the_epoch_survive(driver: Driver, restart: Restart) -> None:
    secret, head = driver.store.secret, driver.run(driver.store.journal.head())
    assert len(secret) == 32
    restart()
    assert driver.store.secret == secret
    assert driver.run(driver.store.journal.head()).epoch == head.epoch


def test_another_store_has_another_secret_and_epoch(
    driver: Driver, runner: asyncio.Runner, tmp_path: Path, opener: Opener
) -> None:
    other = runner.run(opener(tmp_path / "other.db"))
    try:
        assert other.secret != driver.store.secret
        assert (
            runner.run(other.journal.head()).epoch != driver.run(driver.store.journal.head()).epoch
        )
    finally:
        runner.run(other.close())


def test_a_lease_goes_on_until_its_end(driver: Driver, queue: Queue, restart: Restart) -> None:
    driver.publish(queue, "a", "b")
    a, b = driver.lease(queue, lease_ms=100)
    driver.advance(99)
    restart()
    assert driver.lease(queue) == []
    assert driver.ack(queue, a) is Outcome.DONE
    driver.advance(1)
    restart()
    assert driver.ack(queue, b) is Outcome.LATE
    assert driver.lease_one(queue).attempts == 2


def test_a_lease_that_ended_while_the_store_was_down_has_ended(
    driver: Driver, queue: Queue, restart: Restart
) -> None:
    driver.publish(queue, "a")
    message = driver.lease_one(queue, lease_ms=100)
    driver.advance(100)
    restart()
    assert driver.ack(queue, message) is Outcome.LATE
    assert bodies(driver.peek(queue)) == ["a"]


def test_attempts_are_still_counted(driver: Driver, restart: Restart) -> None:
    dead = driver.queue("dead")
    work = driver.queue("work", attempts_max=2, dead_letter=dead.id)
    driver.publish(work, "a")
    driver.retry(work, driver.lease_one(work))
    restart()
    message = driver.lease_one(work)
    assert message.attempts == 2
    restart()
    driver.retry(work, message)
    assert driver.stats(work).count == 0
    assert bodies(driver.lease(dead)) == ["a"]


def test_a_delay_goes_on_until_its_end(driver: Driver, queue: Queue, restart: Restart) -> None:
    driver.publish(queue, Draft(b"a", delay_ms=100), "b")
    driver.retry(queue, driver.lease_one(queue), delay_ms=100)
    driver.advance(99)
    restart()
    assert driver.lease(queue) == []
    assert driver.stats(queue).delayed == 2
    driver.advance(1)
    restart()
    assert bodies(driver.lease(queue)) == ["a", "b"]


def test_the_order_goes_on_where_it_was(driver: Driver, queue: Queue, restart: Restart) -> None:
    driver.publish(queue, *"abcdef")
    a, b, c = driver.lease(queue, count=3)
    driver.ack(queue, b)
    driver.retry(queue, c)
    restart()
    assert bodies(driver.lease(queue, count=2)) == ["c", "d"]
    restart()
    driver.publish(queue, "g")
    assert bodies(driver.lease(queue)) == ["e", "f", "g"]
    assert driver.ack(queue, a) is Outcome.DONE


def test_numbers_survive(driver: Driver, queue: Queue, restart: Restart) -> None:
    driver.publish(queue, "a", "bb", "ccc", Draft(b"dddd", delay_ms=DAY_MS))
    driver.advance(5)
    driver.publish(queue, "e")
    a, _ = driver.lease(queue, count=2, lease_ms=DAY_MS)
    driver.ack(queue, a)
    before = driver.stats(queue)
    assert before == QueueStats(4, 10, driver.now_ms - 5, leased=1, delayed=1)
    restart()
    assert driver.stats(queue) == before


def test_an_empty_queue_does_not_give_out_its_sequences_again(
    driver: Driver, queue: Queue, restart: Restart
) -> None:
    first = driver.publish(queue, "a", "b")
    for message in driver.lease(queue):
        driver.ack(queue, message)
    tail = driver.tail(queue)
    restart()
    assert driver.tail(queue) == tail
    second = driver.publish(queue, "c")
    assert not set(first.ids) & set(second.ids)
    assert driver.lease_one(queue).seq > tail


def test_keys_of_repeated_publishes_survive(driver: Driver, queue: Queue, restart: Restart) -> None:
    draft = Draft(b"a", once_key="k", once_ms=100)
    first = driver.publish(queue, draft)
    driver.ack(queue, driver.lease_one(queue))
    driver.advance(99)
    restart()
    second = driver.publish(queue, draft)
    assert (second.ids, second.repeated) == (first.ids, [True])
    driver.advance(1)
    restart()
    assert driver.publish(queue, draft).repeated == [False]


def test_a_fifo_queue_still_refuses_what_was_acked_before(driver: Driver, restart: Restart) -> None:
    queue = driver.queue(fifo=True)
    draft = Draft(b"a", id="order-1", group="g", once_key="order-1", once_ms=5 * MINUTE_MS)
    driver.publish(queue, draft)
    driver.ack(queue, driver.lease_one(queue))
    driver.advance(5 * MINUTE_MS - 1)
    driver.sweep_all()
    restart()
    receipt = driver.publish(queue, draft)
    assert (receipt.ids, receipt.repeated) == (["order-1"], [True])
    assert driver.lease(queue) == []
    driver.advance(1)
    restart()
    assert driver.publish(queue, draft).repeated == [False]
    assert bodies(driver.lease(queue)) == ["a"]


def test_a_leased_group_stays_blocked(driver: Driver, restart: Restart) -> None:
    queue = driver.queue(fifo=True)
    driver.publish(queue, *(Draft(b.encode(), group=b[0]) for b in ("a1", "b1", "a2", "a3")))
    a1, a2 = driver.lease(queue, count=2, lease_ms=100)
    restart()
    assert bodies(driver.peek(queue)) == ["b1"]
    driver.ack(queue, a1)
    restart()
    assert bodies(driver.peek(queue)) == ["b1"]
    driver.retry(queue, a2)
    restart()
    messages = driver.lease(queue, lease_ms=100)
    assert bodies(messages) == ["b1", "a2", "a3"]
    assert [message.attempts for message in messages] == [1, 2, 1]
    restart()
    driver.advance(99)
    assert driver.lease(queue) == []
    driver.advance(1)
    assert bodies(driver.lease(queue)) == ["b1", "a2", "a3"]


def test_a_group_still_waits_for_its_delayed_head(driver: Driver, restart: Restart) -> None:
    queue = driver.queue(fifo=True, delay_ms=50, attempts_max=None)
    driver.publish(queue, "queue's", Draft(b"behind", delay_ms=0), Draft(b"b", group="b"))
    driver.publish(queue, Draft(b"own", group="c", delay_ms=200))
    restart()
    assert driver.peek(queue) == []
    assert driver.stats(queue).delayed == 3
    queue = driver.update(queue, delay_ms=20)
    restart()
    driver.advance(19)
    assert driver.peek(queue) == []
    driver.advance(1)
    assert bodies(driver.peek(queue)) == ["queue's", "behind", "b"]
    driver.retry(queue, driver.lease_one(queue), delay_ms=100)
    restart()
    queue = driver.update(queue, delay_ms=0)
    assert bodies(driver.peek(queue)) == ["b"]
    driver.advance(100)
    restart()
    messages = driver.lease(queue)
    assert bodies(messages) == ["queue's", "behind", "b"]
    assert [message.delay_ms for message in messages] == [None, 0, None]
    driver.advance(80)
    assert bodies(driver.lease(queue)) == ["own"]


def test_what_a_message_was_published_with_survives(
    driver: Driver, queue: Queue, restart: Restart
) -> None:
    driver.publish(queue, sealed(b"a", delay_ms=20), "b")
    before = driver.browse(queue)
    restart()
    assert driver.browse(queue) == before
    assert [(message.sealed, message.delay_ms) for message in before] == [
        ("key-1", 20),
        (None, None),
    ]


def test_a_long_life_is_not_cut_short(driver: Driver, restart: Restart) -> None:
    queue = driver.queue(retention_ms=100)
    driver.publish(queue, Draft(b"long", ttl_ms=500), "plain")
    driver.advance(100)
    restart()
    assert bodies(driver.peek(queue)) == ["long"]
    swept = driver.sweep()
    assert not swept.more
    assert swept.next_ms is not None
    assert swept.next_ms > driver.now_ms
    driver.advance(399)
    restart()
    assert bodies(driver.peek(queue)) == ["long"]
    driver.advance(1)
    restart()
    assert driver.peek(queue) == []


def test_tallies_survive_and_go_on(driver: Driver, queue: Queue, restart: Restart) -> None:
    exchange = "c0" + "e" * 30
    driver.tally({(TENANT, "requested"): 3})
    driver.publish_all((queue, ["abc"]), via=Via(TENANT, exchange, 2, 5))
    before = driver.tallies()
    restart()
    assert driver.tallies() == before
    driver.tally({(TENANT, "requested"): 4})
    driver.publish_all((queue, ["d"]), via=Via(TENANT, exchange, 1, 1))
    found = {(tally.id, tally.kind): (tally.count, tally.bytes) for tally in driver.tallies()}
    assert found == {
        (TENANT, "requested"): (7, 0),
        (exchange, "routed"): (3, 6),
        (exchange, "copied"): (2, 4),
        (queue.id, "queue_created"): (1, 0),
        (queue.id, "published"): (2, 4),
    }


def test_levels_survive_and_go_on(driver: Driver, restart: Restart) -> None:
    driver.advance(-driver.now_ms % MINUTE_MS)
    start = driver.now_ms // MINUTE_MS
    queue = driver.queue()
    for _ in range(4):
        driver.publish(queue, "a")
        restart()
        driver.publish(queue, "b")
        driver.advance(MINUTE_MS)
        restart()
    assert [driver.held(queue, minute=start + minute)[0] for minute in range(4)] == [2, 4, 6, 8]
    driver.advance(5 * MINUTE_MS)
    driver.lease(queue, count=1)
    restart()
    driver.lease(queue, count=2)
    held = [driver.held(queue, minute=start + minute) for minute in (3, 4, 8, 9)]
    assert held == [(8, 0, 0), (8, 0, 0), (8, 0, 0), (8, 3, 0)]


def test_the_journal_survives_and_goes_on(driver: Driver, queue: Queue, restart: Restart) -> None:
    driver.publish(queue, Draft(b"a", headers={"k": ["v"]}), "b")
    driver.ack(queue, driver.lease_one(queue))
    events, head = driver.events(), driver.run(driver.store.journal.head())
    restart()
    assert driver.run(driver.store.journal.head()) == head
    assert driver.events() == events
    driver.publish(queue, "c")
    assert driver.events()[:-1] == events
    assert driver.events()[-1]["offset"] == head.last + 1


def test_a_trimmed_journal_goes_on_where_it_was(
    driver: Driver, queue: Queue, restart: Restart
) -> None:
    driver.publish(queue, "a")
    driver.publish(queue, "b")
    driver.run(driver.store.journal.trim(upto=driver.last()))
    head = driver.run(driver.store.journal.head())
    restart()
    assert driver.run(driver.store.journal.head()) == head
    driver.publish(queue, "c")
    assert driver.last() == head.last + 1


def test_a_dropped_queue_is_still_swept(driver: Driver, queue: Queue, restart: Restart) -> None:
    driver.publish(queue, *"abc")
    driver.lease(queue, count=1)
    before = driver.last()
    driver.change(drops=[queue])
    driver.sweep(limit=1)
    restart()
    driver.sweep_all()
    deleted = [event for event in driver.events(after=before) if event["kind"] == "deleted"]
    assert [event["queue_name"] for event in deleted] == [queue.name] * 3


def test_expiry_is_not_forgotten(driver: Driver, restart: Restart) -> None:
    queue = driver.queue(retention_ms=100)
    driver.publish(queue, "a", Draft(b"b", ttl_ms=50))
    driver.advance(50)
    restart()
    assert bodies(driver.peek(queue)) == ["a"]
    driver.advance(50)
    restart()
    assert driver.stats(queue) == QueueStats()


def test_the_next_due_time_is_known_after_a_restart(
    driver: Driver, queue: Queue, restart: Restart
) -> None:
    driver.publish(queue, "a")
    driver.lease(queue, lease_ms=100)
    restart()
    assert driver.sweep().next_ms == driver.now_ms + 100


def test_a_dead_letter_still_knows_its_origin(driver: Driver, restart: Restart) -> None:
    dead = driver.queue("dead")
    work = driver.queue("work", attempts_max=1, dead_letter=dead.id)
    driver.publish(work, Draft(b"a", id="own"))
    driver.retry(work, driver.lease_one(work))
    restart()
    [letter] = driver.peek(dead)
    assert driver.redrive(dead, letter.seq) == [True]
    assert driver.lease_one(work).id == "own"


# --- pushes ---


def test_pushes_go_on_where_they_were(driver: Driver, queue: Queue, restart: Restart) -> None:
    listener, other = driver.listener(queue), driver.listener(queue, "press")
    driver.publish(queue, *"abcd", Draft(b"e", delay_ms=DAY_MS))
    in_flight, arrived, exhausted = driver.take(listener, count=3, lease_ms=100)
    driver.arrive(listener, arrived)
    driver.advance(10)
    driver.miss(listener, exhausted, delay_ms=None)
    driver.miss(listener, driver.take_one(listener), delay_ms=50)

    def seen() -> list[object]:
        return [
            [driver.pushes(queue, seq) for seq in range(1, 6)],
            [driver.push_stats(each) for each in (listener, other)],
            driver.missed(listener),
            driver.sweep().next_ms,
        ]

    before = seen()
    restart()
    assert seen() == before
    assert bodies(driver.take(other, count=2)) == ["a", "b"]
    assert driver.take(listener) == []
    assert driver.arrive(listener, in_flight)
    driver.advance(50)
    restart()
    again = driver.take_one(listener)
    assert (again.body, again.attempts) == (b"d", 2)


def test_a_push_whose_lease_ended_while_the_store_was_down_is_ready(
    driver: Driver, queue: Queue, restart: Restart
) -> None:
    listener = driver.listener(queue)
    driver.publish(queue, "a")
    taken = driver.take_one(listener, lease_ms=100)
    restart()
    assert driver.take(listener) == []
    driver.advance(100)
    restart()
    assert not driver.arrive(listener, taken)
    assert driver.take_one(listener).attempts == 2


def test_kept_messages_survive(driver: Driver, restart: Restart) -> None:
    queue = driver.queue(retention_ms=1_000)
    listener = driver.listener(queue)
    driver.publish(queue, "a", Draft(b"b", ttl_ms=100), Draft(b"c", id="own", headers={"k": "v"}))
    messages = driver.lease(queue)
    for message in messages:
        driver.ack(queue, message)
    before = driver.browse(queue, kept=True)
    assert len(before) == 3
    restart()
    assert driver.browse(queue, kept=True) == before
    assert driver.stats(queue) == QueueStats()
    assert driver.find(queue, "own") == before[2]
    driver.advance(100)
    restart()
    a, c = driver.take(listener)
    assert (a.body, c.body) == (b"a", b"c")
    driver.arrive(listener, a)
    restart()
    assert driver.browse(queue, kept=True) == before[2:]
    driver.advance(900)
    restart()
    assert driver.browse(queue, kept=True) == before[2:], "it is still owed"
    driver.miss(listener, c, delay_ms=None)
    restart()
    assert driver.browse(queue, kept=True) == []
    assert driver.sweep().next_ms is None


def test_a_message_is_still_kept_for_its_pushes(
    driver: Driver, queue: Queue, restart: Restart
) -> None:
    driver.pull(queue)
    listener = driver.listener(queue)
    driver.publish(queue, "a", "b")
    driver.arrive(listener, driver.take_one(listener))
    restart()
    for message in driver.lease(queue):
        driver.ack(queue, message)
    assert bodies(driver.browse(queue, kept=True)) == ["b"]


def test_a_message_that_a_listener_gave_up_still_ends_with_its_retention(
    driver: Driver, restart: Restart
) -> None:
    queue = driver.queue(retention_ms=1_000)
    listener = driver.listener(queue)
    driver.publish(queue, "a")
    driver.ack(queue, driver.lease_one(queue))
    driver.miss(listener, driver.take_one(listener), delay_ms=None)
    restart()
    driver.advance(999)
    assert bodies(driver.browse(queue, kept=True)) == ["a"]
    driver.advance(1)
    assert driver.browse(queue, kept=True) == []


def test_a_queue_that_was_pulled_from_is_still_for_pullers(
    driver: Driver, queue: Queue, restart: Restart
) -> None:
    driver.pull(queue)
    listener = driver.listener(queue)
    restart()
    driver.publish(queue, "a")
    driver.arrive(listener, driver.take_one(listener))
    assert driver.stats(queue).count == 1


def test_a_restarted_store_binds_to_the_listeners_that_are_there(
    driver: Driver, queue: Queue, restart: Restart
) -> None:
    gone = driver.listener(queue, "gone")
    listener = driver.listener(queue, ordered=True)
    driver.change(drops=[gone])
    restart()
    driver.publish(queue, "a", "b")
    assert [push.listener for push in driver.pushes(queue, 1)] == [listener.id]
    assert bodies(driver.take(listener)) == ["a"]


def test_a_dropped_listener_is_still_swept(driver: Driver, queue: Queue, restart: Restart) -> None:
    listener = driver.listener(queue)
    driver.publish(queue, *"abc")
    driver.ack(queue, driver.lease_one(queue))
    before = driver.last()
    driver.change(drops=[listener])
    driver.sweep(limit=1)
    restart()
    assert driver.pushes(queue, 2) == []
    driver.sweep_all()
    dropped = [event for event in driver.events(after=before) if event["kind"] == "push_dropped"]
    assert sorted(event["seq"] for event in dropped) == [1, 2, 3]
    assert {event["detail"]["reason"] for event in dropped} == {"listener"}
    assert bodies(driver.browse(queue, kept=True)) == ["b", "c"]
    again = driver.listener(queue, listener.title)
    assert driver.backfill(again) == (2, 3)


def test_a_new_name_survives(driver: Driver, queue: Queue, restart: Restart) -> None:
    driver.publish(queue, Draft(b"a", headers={"k": "v"}))
    driver.rename(queue, 1, "new")
    restart()
    assert driver.peek(queue)[0].headers == {"k": "v", "name": "new"}


def test_one_file_is_opened_by_one_store_at_a_time(
    driver: Driver, path: Path, opener: Opener
) -> None:
    with pytest.raises(StoreUnavailable):
        driver.run(opener(path))
    queue = driver.queue()
    driver.publish(queue, "a")
    assert driver.stats(queue).count == 1
    assert queue.tenant == TENANT
