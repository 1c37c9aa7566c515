"""Whoever waits for messages gets a hint when there may be some."""

import asyncio
from collections.abc import Callable

import pytest

from courier import ids
from courier.core.errors import Conflict, NotFound, OverLimit
from courier.core.types import DAY_MS, Ack, Draft, Listener, Queue
from tests.conformance.store.driver import CALLER, TENANT, Driver, bodies

pytestmark = pytest.mark.one_node

WAIT_SECONDS_MAX = 60


@pytest.fixture
def fifo(driver: Driver) -> Queue:
    return driver.queue("fifo", fifo=True, attempts_max=None)


@pytest.fixture(params=["pullers", "listener"])
def line(request: pytest.FixtureRequest, driver: Driver, queue: Queue) -> Queue | Listener:
    """What pullers of a queue share, and what one of its listeners has to itself."""
    return queue if request.param == "pullers" else driver.listener(queue)


def grouped(driver: Driver, queue: Queue, *names: str) -> None:
    """Publish messages whose group is the first letter of their body."""
    driver.publish(queue, *(Draft(name.encode(), group=name[0]) for name in names))


# --- what gives a hint ---


def test_nobody_gets_a_hint_while_nothing_happens(driver: Driver, queue: Queue) -> None:
    hint = driver.wait(queue)
    driver.advance(1_000)
    driver.sweep()
    driver.peek(queue)
    driver.lease(queue)
    driver.stats(queue)
    assert driver.hints(hint) == [False]


def test_a_publish_gives_as_many_hints_as_it_has_messages(
    driver: Driver, queue: Queue, line: Queue | Listener
) -> None:
    first, second, third = (driver.wait(line) for _ in range(3))
    driver.publish(queue, "a", "b")
    assert driver.hints(first, second, third) == [True, True, False]
    driver.publish(queue, "c")
    assert driver.hints(third) == [True]


def test_a_hint_is_for_one_queue(driver: Driver, queue: Queue) -> None:
    other = driver.queue("other")
    hint, elsewhere = driver.wait(queue), driver.wait(other)
    driver.publish(other, "a")
    assert driver.hints(hint, elsewhere) == [False, True]


def test_a_publish_on_several_queues_gives_hints_on_each(driver: Driver, queue: Queue) -> None:
    other = driver.queue("other")
    hints = [driver.wait(queue), driver.wait(other)]
    driver.publish_all((queue, ["a"]), (other, ["b"]))
    assert driver.hints(*hints) == [True, True]


@pytest.mark.parametrize("fifo", [False, True], ids=["standard", "fifo"])
def test_the_end_of_a_delay_gives_a_hint(driver: Driver, fifo: bool) -> None:
    queue = driver.queue(delay_ms=100, fifo=fifo)
    listener = driver.listener(queue)
    driver.publish(queue, "a")
    hints = [driver.wait(queue), driver.wait(listener)]
    driver.advance(99)
    driver.sweep()
    assert driver.hints(*hints) == [False, False]
    driver.advance(1)
    driver.sweep()
    assert driver.hints(*hints) == [True, True]


@pytest.mark.parametrize("fifo", [False, True], ids=["standard", "fifo"])
def test_a_retry_gives_a_hint(driver: Driver, fifo: bool) -> None:
    queue = driver.queue(fifo=fifo)
    driver.publish(queue, "a")
    message = driver.lease_one(queue)
    hint = driver.wait(queue)
    driver.retry(queue, message)
    assert driver.hints(hint) == [True]


def test_a_retry_with_a_delay_gives_a_hint_when_it_is_over(driver: Driver) -> None:
    queue = driver.queue(retry_delay_ms=100)
    driver.publish(queue, "a", "b")
    a, b = driver.lease(queue)
    hint = driver.wait(queue)
    driver.retry(queue, a, delay_ms=50)
    driver.retry(queue, b)
    driver.advance(49)
    driver.sweep()
    assert driver.hints(hint) == [False]
    driver.advance(1)
    driver.sweep()
    assert driver.hints(hint) == [True]
    hint = driver.wait(queue)
    driver.advance(50)
    driver.sweep()
    assert driver.hints(hint) == [True]


@pytest.mark.parametrize("fifo", [False, True], ids=["standard", "fifo"])
@pytest.mark.parametrize("verb", ["sweep", "stats", "publish", "refused"])
def test_the_end_of_a_lease_gives_a_hint(driver: Driver, verb: str, fifo: bool) -> None:
    """Whichever verb notices it, on whichever queue."""
    queue, other = driver.queue(fifo=fifo), driver.queue("other")
    driver.publish(queue, "a")
    driver.lease(queue, lease_ms=100)
    hint = driver.wait(queue)
    driver.advance(99)
    driver.sweep()
    assert driver.hints(hint) == [False]
    driver.advance(1)
    if verb == "sweep":
        driver.sweep()
    elif verb == "stats":
        driver.stats(other)
    elif verb == "publish":
        driver.publish(other, "b")
    else:
        with pytest.raises(OverLimit):
            driver.publish(other, "too long", bytes_max=5)
    assert driver.hints(hint) == [True]


def test_the_ends_of_several_leases_give_as_many_hints(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, *"abc")
    driver.lease(queue, lease_ms=100)
    hints = [driver.wait(queue) for _ in range(3)]
    driver.advance(100)
    driver.sweep()
    assert driver.hints(*hints) == [True, True, True]


def test_a_burial_gives_a_hint_on_the_dead_letter_queue(driver: Driver) -> None:
    dead = driver.queue("dead")
    work = driver.queue("work", attempts_max=1, dead_letter=dead.id)
    driver.publish(work, "a", "b")
    a, _ = driver.lease(work, lease_ms=100)
    hint = driver.wait(dead)
    driver.retry(work, a)
    assert driver.hints(hint) == [True]
    hint = driver.wait(dead)
    driver.advance(100)
    driver.sweep()
    assert driver.hints(hint) == [True]


def test_a_redrive_gives_a_hint_on_the_source(driver: Driver) -> None:
    dead = driver.queue("dead")
    work = driver.queue("work", attempts_max=1, dead_letter=dead.id)
    driver.publish(work, "a")
    driver.retry(work, driver.lease_one(work))
    hint = driver.wait(work)
    assert driver.redrive(dead, 1, dry_run=True) == [True]
    assert driver.hints(hint) == [False]
    driver.redrive(dead, 1)
    assert driver.hints(hint) == [True]


UNBLOCKING: dict[str, Callable[[Driver, Queue], object]] = {
    "ack": lambda driver, queue: driver.settle(queue, Ack(1, 1)),
    "late ack": lambda driver, queue: driver.settle(queue, Ack(1, 1, late=True)),
    "remove": lambda driver, queue: driver.remove(queue, 1),
    "purge": lambda driver, queue: driver.purge(queue, upto_seq=1),
}


@pytest.mark.parametrize("end", UNBLOCKING)
def test_a_group_that_is_free_again_gives_as_many_hints_as_it_has_messages(
    driver: Driver, fifo: Queue, end: str
) -> None:
    grouped(driver, fifo, "a1", "a2", "a3")
    driver.lease_one(fifo)
    hints = [driver.wait(fifo) for _ in range(2)]
    assert driver.hints(*hints) == [False, False]
    UNBLOCKING[end](driver, fifo)
    assert driver.hints(*hints) == [True, True]
    assert bodies(driver.lease(fifo)) == ["a2", "a3"]


def test_a_group_gives_no_hint_before_all_of_it_is_settled(driver: Driver, fifo: Queue) -> None:
    grouped(driver, fifo, "a1", "a2", "a3")
    a1, a2 = driver.lease(fifo, count=2)
    driver.ack(fifo, a1)
    hint = driver.wait(fifo)
    driver.ack(fifo, a2)
    assert driver.hints(hint) == [True]


def test_a_burial_gives_a_hint_to_who_waits_for_the_rest_of_the_group(driver: Driver) -> None:
    dead = driver.queue("dead", fifo=True)
    work = driver.queue("work", fifo=True, attempts_max=1, dead_letter=dead.id)
    grouped(driver, work, "a1", "a2", "a3")
    a1 = driver.lease_one(work)
    hints = [driver.wait(work), driver.wait(dead)]
    driver.retry(work, a1)
    assert driver.hints(*hints) == [True, True]
    driver.lease(work, count=1, lease_ms=100)
    hints = [driver.wait(work), driver.wait(dead)]
    driver.advance(100)
    driver.sweep()
    assert driver.hints(*hints) == [True, True]


@pytest.mark.parametrize("head", ["leased", "delayed"])
def test_the_expiry_of_what_holds_back_a_group_gives_a_hint(
    driver: Driver, fifo: Queue, head: str
) -> None:
    delay_ms = DAY_MS if head == "delayed" else 0
    driver.publish(fifo, Draft(b"1", ttl_ms=100, delay_ms=delay_ms), "2")
    driver.lease(fifo, count=1, lease_ms=DAY_MS)
    hint = driver.wait(fifo)
    driver.advance(99)
    driver.sweep()
    assert driver.hints(hint) == [False]
    driver.advance(1)
    driver.sweep()
    assert driver.hints(hint) == [True]
    assert bodies(driver.lease(fifo)) == ["2"]


def test_the_removal_of_a_delayed_head_gives_a_hint(driver: Driver, fifo: Queue) -> None:
    driver.publish(fifo, Draft(b"1", delay_ms=DAY_MS), "2")
    hint = driver.wait(fifo)
    driver.remove(fifo, 1)
    assert driver.hints(hint) == [True]


def test_the_end_of_a_delay_gives_hints_for_all_that_it_held_back(
    driver: Driver, fifo: Queue
) -> None:
    driver.publish(fifo, Draft(b"1", delay_ms=100), "2", "3")
    hints = [driver.wait(fifo) for _ in range(3)]
    driver.advance(100)
    driver.sweep()
    assert driver.hints(*hints) == [True, True, True]


@pytest.mark.one_process
@pytest.mark.parametrize("end", ["ack", "retry", "remove", "expiry"])
def test_room_for_another_lease_gives_a_hint_to_who_found_none(
    driver: Driver, queue: Queue, end: str
) -> None:
    driver.publish(queue, "a", "b", Draft(b"c", ttl_ms=100))
    message = driver.lease_one(queue, lease_ms=DAY_MS)
    driver.lease(queue, lease_ms=DAY_MS)
    driver.publish(queue, "d")
    hint = driver.wait(queue)
    assert driver.lease(queue, leased_max=3) == []
    assert driver.hints(hint) == [False]
    if end == "ack":
        driver.ack(queue, message)
    elif end == "retry":
        driver.retry(queue, message, delay_ms=DAY_MS)
    elif end == "remove":
        driver.remove(queue, message.seq)
    else:
        driver.advance(100)
        driver.sweep()
    assert driver.hints(hint) == [True]
    assert bodies(driver.lease(queue, leased_max=3)) == ["d"]


def test_a_change_of_the_queue_gives_everyone_a_hint(driver: Driver, queue: Queue) -> None:
    other = driver.queue("other")
    hints = [driver.wait(queue) for _ in range(150)]
    elsewhere = driver.wait(other)
    driver.update(queue, paused=True)
    assert all(driver.hints(*hints))
    assert driver.hints(elsewhere) == [False]


def test_a_shorter_delay_gives_a_hint(driver: Driver) -> None:
    queue = driver.queue(fifo=True, delay_ms=DAY_MS)
    driver.publish(queue, "a")
    hint = driver.wait(queue)
    driver.update(queue, delay_ms=0)
    assert driver.hints(hint) == [True]


def test_who_waits_for_a_dropped_line_is_told(driver: Driver, line: Queue | Listener) -> None:
    other = driver.queue("other")
    hints = [driver.wait(line) for _ in range(150)]
    elsewhere = driver.wait(other)
    driver.change(drops=[line])
    assert all(driver.hints(*hints))
    assert driver.hints(elsewhere) == [False]


# --- what gives none ---


def test_a_delayed_message_gives_no_hint(
    driver: Driver, queue: Queue, line: Queue | Listener
) -> None:
    hint = driver.wait(line)
    driver.publish(queue, Draft(b"a", delay_ms=100))
    assert driver.hints(hint) == [False]


def test_a_repeated_publish_gives_no_hint(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, Draft(b"a", once_key="k"))
    driver.lease(queue)
    hint = driver.wait(queue)
    driver.publish(queue, Draft(b"a", once_key="k"))
    assert driver.hints(hint) == [False]


def test_a_refused_publish_gives_no_hint(driver: Driver, queue: Queue) -> None:
    full = driver.queue("full")
    hints = [driver.wait(queue), driver.wait(full)]
    gone = Queue(id=ids.new_id(), tenant=TENANT, name="gone", created_ms=1, modified_ms=1)
    with pytest.raises(OverLimit):
        driver.publish_all((queue, ["a"]), (full, ["too long"]), bytes_max=5)
    with pytest.raises(NotFound):
        driver.publish_all((queue, ["a"]), (gone, ["b"]))
    assert driver.hints(*hints) == [False, False]
    driver.publish_all((queue, ["a"]), (full, ["b"]), bytes_max=5)
    assert driver.hints(*hints) == [True, True]


def test_a_refused_change_gives_no_hint(driver: Driver, queue: Queue) -> None:
    other = driver.queue("other")
    hints = [driver.wait(queue), driver.wait(other)]
    with pytest.raises(Conflict):
        driver.update(other, name=queue.name)
    assert driver.hints(*hints) == [False, False]


# --- giving up, and passing on ---


def test_who_has_given_up_takes_no_hint_from_the_next(driver: Driver, queue: Queue) -> None:
    first, second, third = (driver.wait(queue) for _ in range(3))
    first.set_result(False)
    second.cancel()
    driver.publish(queue, "a")
    assert driver.hints(third) == [True]
    assert driver.hints(first) == [False]


def test_a_hint_can_be_passed_on(driver: Driver, queue: Queue) -> None:
    first, second, third = (driver.wait(queue) for _ in range(3))
    driver.publish(queue, "a")
    assert driver.hints(first, second, third) == [True, False, False]
    driver.store.waiters.wake(queue.id)
    assert driver.hints(second, third) == [True, False]


def test_a_hint_for_nobody_is_lost(driver: Driver, queue: Queue) -> None:
    driver.store.waiters.wake(queue.id)
    driver.publish(queue, "a")
    driver.store.waiters.wake(ids.new_id())
    assert driver.hints(driver.wait(queue)) == [False]


# --- no message is left lying ---


def test_a_hint_is_not_given_before_the_change_is_there_for_all(
    driver: Driver, queue: Queue
) -> None:
    store, now_ms, before = driver.store, driver.now_ms, driver.last()

    async def publish_and_look() -> None:
        for number in range(20):
            hint = store.waiters.wait(queue.id)
            publish = asyncio.ensure_future(
                store.publish([(queue.id, [Draft(b"a")])], actor=CALLER, now_ms=now_ms)
            )
            await hint
            assert (await store.journal.head()).last == before + number + 1
            assert len(await store.journal.read(after=before + number, limit=9)) == 1
            await publish

    driver.run(publish_and_look())


@pytest.mark.parametrize("is_fifo", [False, True], ids=["standard", "fifo"])
def test_no_hint_is_lost_among_busy_callers(driver: Driver, is_fifo: bool) -> None:
    """Consumers look only when they get a hint, and yet everything is worked off.

    Each asks for its hint before it looks, and passes it on when it found something anyway.
    """
    queue = driver.queue(fifo=is_fifo, attempts_max=None)
    store, now_ms = driver.store, driver.now_ms
    total = 150
    done: set[int] = set()

    async def publish(number: int) -> None:
        for i in range(total // 5):
            draft = Draft(b"x", group=f"g{(number + i) % 4}")
            await store.publish([(queue.id, [draft])], actor=CALLER, now_ms=now_ms)
            await asyncio.sleep(0)

    async def consume() -> None:
        while True:
            hint = store.waiters.wait(queue.id)
            leased = await store.lease(
                queue.id, count=2, lease_ms=DAY_MS, actor=CALLER, now_ms=now_ms
            )
            if leased.messages and hint.done():
                store.waiters.wake(queue.id)
            elif leased.messages:
                hint.set_result(False)
            else:
                await hint
                continue
            for message in leased.messages:
                await store.settle(
                    queue.id,
                    [Ack(message.seq, message.attempts)],
                    actor=CALLER,
                    now_ms=now_ms,
                )
                done.add(message.seq)

    async def all_at_once() -> None:
        consumers = [asyncio.ensure_future(consume()) for _ in range(8)]
        try:
            async with asyncio.timeout(WAIT_SECONDS_MAX):
                await asyncio.gather(*(publish(number) for number in range(5)))
                while len(done) < total:
                    await asyncio.sleep(0)
        finally:
            for consumer in consumers:
                consumer.cancel()
            await asyncio.gather(*consumers, return_exceptions=True)

    driver.run(all_at_once())
    assert len(done) == total
    assert driver.stats(queue).count == 0
