"""What a store on disk still knows after its process is gone."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from courier.clock import ManualClock
from courier.core.errors import StoreUnavailable
from courier.core.types import DAY_MS, Draft, Key, Outcome, Queue, QueueStats
from courier.store.sqlite import SqliteStore
from tests.conformance.store.driver import TENANT, Driver, bodies
from tests.conformance.store.test_records import RECORDS


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "courier.db"


@pytest.fixture
def driver(path: Path, clock: ManualClock, runner: asyncio.Runner) -> Iterator[Driver]:
    driver = Driver(runner.run(SqliteStore.open(path)), clock, runner)
    yield driver
    runner.run(driver.store.close())


@pytest.fixture
def restart(driver: Driver, path: Path) -> Callable[[], None]:
    def restart() -> None:
        driver.run(driver.store.close())
        driver.store = driver.run(SqliteStore.open(path))

    return restart


Restart = Callable[[], None]


def test_records_survive(driver: Driver, restart: Restart) -> None:
    driver.change(puts=RECORDS)
    restart()
    for record in RECORDS:
        assert driver.run(driver.store.get(type(record), record.id)) == record
        name = record.name
        found = driver.run(driver.store.named(type(record), tenant=record.tenant, name=name))
        assert found == (record if name else None)


def test_a_dropped_record_stays_dropped(driver: Driver, restart: Restart) -> None:
    driver.change(puts=RECORDS)
    driver.change(drops=RECORDS)
    restart()
    assert driver.run(driver.store.scan(Key)) == []
    assert driver.run(driver.store.scan(Queue)) == []


def test_the_secret_and_the_epoch_survive(driver: Driver, restart: Restart) -> None:
    secret, head = driver.store.secret, driver.run(driver.store.head())
    assert len(secret) == 32
    restart()
    assert driver.store.secret == secret
    assert driver.run(driver.store.head()).epoch == head.epoch


def test_another_store_has_another_secret_and_epoch(
    driver: Driver, runner: asyncio.Runner, tmp_path: Path
) -> None:
    other = runner.run(SqliteStore.open(tmp_path / "other.db"))
    try:
        assert other.secret != driver.store.secret
        assert runner.run(other.head()).epoch != driver.run(driver.store.head()).epoch
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


def test_the_journal_survives_and_goes_on(driver: Driver, queue: Queue, restart: Restart) -> None:
    driver.publish(queue, Draft(b"a", headers={"k": ["v"]}), "b")
    driver.ack(queue, driver.lease_one(queue))
    events, head = driver.events(), driver.run(driver.store.head())
    restart()
    assert driver.run(driver.store.head()) == head
    assert driver.events() == events
    driver.publish(queue, "c")
    assert driver.events()[:-1] == events
    assert driver.events()[-1]["offset"] == head.last + 1


def test_a_trimmed_journal_goes_on_where_it_was(
    driver: Driver, queue: Queue, restart: Restart
) -> None:
    driver.publish(queue, "a")
    driver.publish(queue, "b")
    driver.run(driver.store.trim_journal(upto=driver.last()))
    head = driver.run(driver.store.head())
    restart()
    assert driver.run(driver.store.head()) == head
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


def test_one_file_is_opened_by_one_store_at_a_time(driver: Driver, path: Path) -> None:
    with pytest.raises(StoreUnavailable):
        driver.run(SqliteStore.open(path))
    queue = driver.queue()
    driver.publish(queue, "a")
    assert driver.stats(queue).count == 1
    assert queue.tenant == TENANT
