"""Whoever pushes for a listener gets a hint when there may be something to push."""

import asyncio
from collections.abc import Callable

import pytest

from courier.core.errors import OverLimit
from courier.core.types import DAY_MS, Draft, Listener, Pushed, PushFailed, Queue
from tests.conformance.store.driver import ARRIVED, CALLER, REFUSED, Driver, bodies

pytestmark = pytest.mark.one_node

WAIT_SECONDS_MAX = 60


# --- what gives a hint ---


def test_nobody_gets_a_hint_while_nothing_happens(
    driver: Driver, queue: Queue, listener: Listener
) -> None:
    driver.publish(queue, "a")
    driver.take(listener, lease_ms=DAY_MS)
    hint = driver.wait(listener)
    driver.advance(1_000)
    driver.sweep()
    driver.take(listener)
    driver.push_stats(listener)
    driver.ack(queue, driver.lease_one(queue))
    assert driver.hints(hint) == [False]


def test_a_publish_gives_a_hint_to_every_listener(
    driver: Driver, queue: Queue, listener: Listener
) -> None:
    other, elsewhere = driver.listener(queue, "press"), driver.listener(driver.queue("other"))
    hints = [driver.wait(on) for on in (queue, listener, other, elsewhere)]
    driver.publish(queue, "a")
    assert driver.hints(*hints) == [True, True, True, False]


@pytest.mark.parametrize("way", ["burial", "redrive", "last failure"])
def test_whatever_is_stored_gives_a_hint(driver: Driver, way: str) -> None:
    dead = driver.queue("dead")
    work = driver.queue("work", attempts_max=1, dead_letter=dead.id)
    at_work, at_dead = driver.listener(work), driver.listener(dead)
    driver.publish(work, "a")
    if way == "last failure":
        taken = driver.take_one(at_work)
        hint = driver.wait(at_dead)
        driver.miss(at_work, taken, delay_ms=None)
    elif way == "burial":
        message = driver.lease_one(work)
        hint = driver.wait(at_dead)
        driver.retry(work, message)
    else:
        driver.retry(work, driver.lease_one(work))
        driver.take(at_work)
        hint = driver.wait(at_work)
        driver.redrive(dead, 1)
    assert driver.hints(hint) == [True]


@pytest.mark.parametrize("cause", ["lease", "retry"])
def test_the_end_of_a_lease_or_a_wait_gives_a_hint(
    driver: Driver, queue: Queue, listener: Listener, cause: str
) -> None:
    driver.publish(queue, "a")
    taken = driver.take_one(listener, lease_ms=100)
    if cause == "retry":
        driver.miss(listener, taken, delay_ms=100)
    hint = driver.wait(listener)
    driver.advance(99)
    driver.sweep()
    assert driver.hints(hint) == [False]
    driver.advance(1)
    driver.sweep()
    assert driver.hints(hint) == [True]


def test_a_failure_without_a_delay_gives_a_hint(
    driver: Driver, queue: Queue, listener: Listener
) -> None:
    driver.publish(queue, "a", "b")
    a, b = driver.take(listener)
    hint = driver.wait(listener)
    driver.miss(listener, a, delay_ms=100)
    assert driver.hints(hint) == [False]
    driver.miss(listener, b, delay_ms=0)
    assert driver.hints(hint) == [True]


def test_a_push_that_is_given_back_gives_a_hint(
    driver: Driver, queue: Queue, listener: Listener
) -> None:
    driver.publish(queue, "a")
    taken = driver.take_one(listener)
    hint = driver.wait(listener)
    driver.give_back(listener, taken)
    assert driver.hints(hint) == [True]


@pytest.mark.parametrize("delay_ms", [DAY_MS, None], ids=["retrying", "exhausted"])
def test_a_push_that_is_made_ready_gives_a_hint(
    driver: Driver, queue: Queue, listener: Listener, delay_ms: int | None
) -> None:
    driver.publish(queue, "a")
    driver.miss(listener, driver.take_one(listener), delay_ms=delay_ms)
    hint = driver.wait(listener)
    driver.retry_push(listener, 2)
    assert driver.hints(hint) == [False]
    driver.retry_push(listener, 1)
    assert driver.hints(hint) == [True]


def test_a_backfill_gives_as_many_hints_as_it_binds(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, "a", "b")
    listener = driver.listener(queue)
    first, second, third = (driver.wait(listener) for _ in range(3))
    driver.backfill(listener)
    assert driver.hints(first, second, third) == [True, True, False]
    driver.backfill(listener)
    assert driver.hints(third) == [False]


# --- ordered listeners ---


@pytest.fixture
def ordered(driver: Driver, queue: Queue) -> Listener:
    return driver.listener(queue, "ordered", ordered=True)


UNBLOCKING: dict[str, Callable[[Driver, Queue, Listener], object]] = {
    "arrived": lambda driver, _, on: driver.settle_pushes(on, Pushed(1, 1, ARRIVED)),
    "exhausted": lambda driver, _, on: driver.settle_pushes(on, PushFailed(1, 1, REFUSED, None)),
    "removed": lambda driver, queue, _: driver.remove(queue, 1),
    "purged": lambda driver, queue, _: driver.purge(queue, upto_seq=1),
    "expired": lambda driver, _, __: driver.advance(100),
}


@pytest.mark.parametrize("end", UNBLOCKING)
def test_the_end_of_what_holds_up_an_ordered_listener_gives_a_hint(
    driver: Driver, queue: Queue, ordered: Listener, end: str
) -> None:
    driver.publish(queue, Draft(b"a", ttl_ms=100), "b")
    driver.take(ordered, lease_ms=DAY_MS)
    hint = driver.wait(ordered)
    driver.sweep()
    assert driver.hints(hint) == [False]
    UNBLOCKING[end](driver, queue, ordered)
    driver.sweep()
    assert driver.hints(hint) == [True]
    assert bodies(driver.take(ordered)) == ["b"]


def test_a_kept_message_that_arrived_lets_the_next_one_go(
    driver: Driver, queue: Queue, ordered: Listener
) -> None:
    driver.publish(queue, "a", "b")
    driver.ack(queue, driver.lease_one(queue))
    taken = driver.take_one(ordered)
    hint = driver.wait(ordered)
    driver.arrive(ordered, taken)
    assert driver.hints(hint) == [True]


def test_a_push_that_is_due_again_gives_an_ordered_listener_a_hint(
    driver: Driver, queue: Queue, ordered: Listener
) -> None:
    driver.publish(queue, "a")
    taken = driver.take_one(ordered)
    driver.publish(queue, "b")
    driver.miss(ordered, taken, delay_ms=100)
    hint = driver.wait(ordered)
    driver.advance(99)
    driver.sweep()
    assert driver.hints(hint) == [False]
    assert driver.take(ordered) == []
    driver.advance(1)
    driver.sweep()
    assert driver.hints(hint) == [True]


# --- changes ---


def test_a_change_of_the_listener_gives_everyone_a_hint(
    driver: Driver, queue: Queue, listener: Listener
) -> None:
    other = driver.listener(queue, "press")
    hints = [driver.wait(listener) for _ in range(150)]
    elsewhere = [driver.wait(other), driver.wait(queue)]
    driver.update(listener, ordered=True)
    assert all(driver.hints(*hints))
    assert driver.hints(*elsewhere) == [False, False]


# --- what gives none ---


def test_what_is_published_elsewhere_gives_no_hint(
    driver: Driver, queue: Queue, listener: Listener
) -> None:
    hint = driver.wait(listener)
    driver.publish(driver.queue("other"), "a")
    with pytest.raises(OverLimit):
        driver.publish(queue, "too long", bytes_max=5)
    assert driver.hints(hint) == [False]


# --- no push is left lying ---


@pytest.mark.parametrize("is_ordered", [False, True], ids=["standard", "ordered"])
def test_no_hint_is_lost_among_busy_callers(driver: Driver, queue: Queue, is_ordered: bool) -> None:
    """Pushers look only when they get a hint, and yet everything is pushed, each message once.

    Each asks for its hint before it looks, and passes it on when it found something anyway.
    """
    listener = driver.listener(queue, ordered=is_ordered)
    store, now_ms = driver.store, driver.now_ms
    total = 100
    done: list[int] = []

    async def publish() -> None:
        for _ in range(total // 5):
            await store.publish([(queue.id, [Draft(b"x")])], actor=CALLER, now_ms=now_ms)
            await asyncio.sleep(0)

    async def push() -> None:
        while True:
            hint = store.waiters.wait(listener.id)
            taken = await store.pushes.take(listener.id, count=2, lease_ms=DAY_MS, now_ms=now_ms)
            if taken and hint.done():
                store.waiters.wake(listener.id)
            elif taken:
                hint.set_result(False)
            else:
                await hint
                continue
            for message in taken:
                report = Pushed(message.seq, message.attempts, ARRIVED)
                if await store.pushes.settle(listener.id, [report], now_ms=now_ms) == [True]:
                    done.append(message.seq)

    async def all_at_once() -> None:
        pushers = [asyncio.ensure_future(push()) for _ in range(8)]
        try:
            async with asyncio.timeout(WAIT_SECONDS_MAX):
                await asyncio.gather(*(publish() for _ in range(5)))
                while len(done) < total:
                    await asyncio.sleep(0)
        finally:
            for pusher in pushers:
                pusher.cancel()
            await asyncio.gather(*pushers, return_exceptions=True)

    driver.run(all_at_once())
    assert sorted(done) == list(range(1, total + 1))
    if is_ordered:
        assert done == sorted(done)
    stats = driver.push_stats(listener)
    assert (stats.open, stats.in_flight, stats.acknowledged) == (0, 0, total)
