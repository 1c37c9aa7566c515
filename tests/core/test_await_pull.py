"""Waiting for messages: nobody waits beside one, and nobody who has left keeps one."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from courier import ids
from courier.clock import ManualClock
from courier.core.broker import Broker, Pulled
from courier.core.errors import NotFound, StoreUnavailable
from courier.core.limits import ANSWER_BYTES_MAX, Allowance, Limits
from courier.core.records import decided
from courier.core.types import Ack, Actor, Draft, Leased, Queue, Retry
from courier.core.waiters import Waiters
from courier.sealing import KeySealer
from tests.oracle.store import Oracle

TENANT = "c0" + "7" * 30
CALLER = Actor("caller", "test")
LONG_MS = 60_000
# More turns of the event loop than anybody needs between a change and what follows from it.
TURNS = 20


class Someone:
    """A caller, as the connection of a client is one."""

    def __init__(self) -> None:
        self.gone = False
        self.on_gone: Callable[[], None] | None = None

    def leave(self) -> None:
        self.gone = True
        if self.on_gone is not None:
            self.on_gone()


class SlowStore(Oracle):
    """Whose answers to a lease may be held back, or fail, after or before it took effect."""

    def __init__(self, waiters: Waiters | None = None) -> None:
        super().__init__(waiters)
        self.held: asyncio.Event | None = None
        self.failing = 0

    async def lease(self, queue: str, **asked: Any) -> Leased:
        if self.failing:
            self.failing -= 1
            raise StoreUnavailable("as asked for")
        leased = await super().lease(queue, **asked)
        if self.held is not None:
            await self.held.wait()
        return leased


class Room:
    """A broker with one queue, and those who wait for its messages."""

    def __init__(self, store: SlowStore | None = None) -> None:
        self.store = store or SlowStore()
        self.clock = ManualClock()
        self.broker = Broker(self.store, self.clock, Limits(), KeySealer([b"k" * 32]))
        self.queue = Queue(
            id=ids.new_id(), tenant=TENANT, name="q", created_ms=0, modified_ms=0, attempts_max=None
        )

    async def furnish(self, **settings: Any) -> None:
        await self.change(replace(self.queue, **settings))

    async def change(self, queue: Queue) -> None:
        self.queue = queue
        await self.store.change(decided(puts=[queue]), actor=CALLER, now_ms=self.clock.now_ms())

    async def delete(self) -> None:
        await self.store.change(
            decided(drops=[self.queue]), actor=CALLER, now_ms=self.clock.now_ms()
        )

    async def publish(self, *texts: str, **fields: Any) -> None:
        drafts = [Draft(text.encode(), **fields) for text in texts]
        await self.broker.publish(self.queue, drafts, actor=CALLER)

    async def pull(self) -> Pulled:
        allowance = Allowance(ANSWER_BYTES_MAX)
        return await self.broker.pull(
            self.queue, count=1, lease_ms=1_000, actor=CALLER, allowance=allowance
        )

    def wait(
        self,
        someone: Someone | None = None,
        *,
        count: int = 1,
        wait_ms: int = LONG_MS,
        lease_ms: int = 1_000,
    ) -> "asyncio.Task[Pulled | None]":
        return asyncio.create_task(
            self.broker.await_pull(
                self.queue,
                count=count,
                lease_ms=lease_ms,
                wait_ms=wait_ms,
                caller=someone or Someone(),
                actor=CALLER,
                allowance=Allowance(ANSWER_BYTES_MAX),
            )
        )

    async def sweep(self) -> None:
        await self.store.sweep(limit=1_000, now_ms=self.clock.now_ms())

    async def ready(self) -> list[tuple[str, int]]:
        """What could be leased now, and how often it was leased before."""
        found = await self.store.messages.peek(self.queue.id, count=100, now_ms=self.clock.now_ms())
        return [(message.body.decode(), message.attempts) for message in found]


async def furnished(**settings: Any) -> Room:
    room = Room()
    await room.furnish(**settings)
    return room


async def turn() -> None:
    """Let everything happen that can happen by itself."""
    for _ in range(TURNS):
        await asyncio.sleep(0)


def got(task: "asyncio.Task[Pulled | None]") -> list[tuple[str, int]]:
    """Bodies and attempts that a finished wait has brought."""
    assert task.done()
    pulled = task.result()
    assert pulled is None or pulled.messages
    found = pulled.messages if pulled else []
    return [(message.body.decode(), message.attempts) for message, _ in found]


class DeafWaiters(Waiters):
    """Whose hints are all lost, as those of another process may be."""

    def wake(self, id: str, count: int = 1) -> None: ...


# --- what there is comes ---


async def test_what_is_there_comes_without_a_wait() -> None:
    room = await furnished()
    await room.publish("a", "b", "c")
    task = room.wait(count=2)
    await turn()
    assert got(task) == [("a", 1), ("b", 1)]


async def test_without_time_nobody_waits() -> None:
    room = await furnished()
    task = room.wait(wait_ms=0)
    await turn()
    assert got(task) == []


async def test_a_wait_ends_with_its_time() -> None:
    room = await furnished()
    started = asyncio.get_running_loop().time()
    task = room.wait(wait_ms=50)
    await turn()
    assert not task.done()
    assert await task is None
    assert asyncio.get_running_loop().time() - started >= 0.049


@pytest.mark.parametrize("how", ["publish", "retry", "lease ends", "delay ends", "resumed"])
async def test_what_brings_a_message_ends_the_wait(how: str) -> None:
    room = await furnished(paused=how == "resumed")
    expected = ("a", 1)
    if how == "delay ends":
        await room.publish("a", delay_ms=1_000)
    elif how == "resumed":
        await room.publish("a")
    elif how != "publish":
        await room.publish("a")
        pulled = await room.pull()
        [(message, _)] = pulled.messages
        expected = ("a", 2)
    task = room.wait()
    await turn()
    assert not task.done()
    if how == "publish":
        await room.publish("a")
    elif how == "retry":
        await room.broker.settle(room.queue, [Retry(message.seq, 1, delay_ms=0)], actor=CALLER)
    elif how == "resumed":
        await room.change(replace(room.queue, paused=False))
    else:
        room.clock.advance(1_000)
        await room.sweep()
    await turn()
    assert got(task) == [expected]


async def test_a_queue_that_goes_ends_every_wait() -> None:
    room = await furnished()
    tasks = [room.wait() for _ in range(3)]
    await turn()
    await room.delete()
    await turn()
    for task in tasks:
        with pytest.raises(NotFound):
            task.result()


async def test_a_queue_that_is_paused_meanwhile_has_nothing() -> None:
    room = await furnished()
    task = room.wait(wait_ms=60)
    await turn()
    await room.change(replace(room.queue, paused=True))
    await room.publish("a")
    await turn()
    assert await task is None
    await room.change(replace(room.queue, paused=False))
    assert await room.ready() == [("a", 0)]


async def test_what_concerns_another_queue_ends_no_wait() -> None:
    room = await furnished()
    task = room.wait()
    own = room.queue
    await room.change(replace(own, id=ids.new_id(), name="other"))
    await room.publish("elsewhere")
    await turn()
    assert not task.done()
    room.queue = own
    await room.publish("here")
    await turn()
    assert got(task) == [("here", 1)]


# --- many who wait ---


async def test_each_of_many_gets_another_message() -> None:
    room = await furnished()
    tasks = [room.wait() for _ in range(10)]
    await turn()
    await room.publish(*"abc")
    for text in "defghij":
        await room.publish(text)
    await turn()
    assert sorted(found for task in tasks for found in got(task)) == [
        (text, 1) for text in "abcdefghij"
    ]


async def test_who_waits_longest_comes_first() -> None:
    room = await furnished()
    tasks = []
    for _ in range(3):
        tasks.append(room.wait())
        await turn()
    await room.publish("a")
    await turn()
    assert [task.done() for task in tasks] == [True, False, False]
    for task in tasks[1:]:
        task.cancel()


async def test_what_a_large_batch_leaves_goes_to_the_others() -> None:
    room = await furnished()
    tasks = [room.wait(count=3) for _ in range(3)]
    await turn()
    await room.publish(*"abcdefg")
    await turn()
    assert sorted(found for task in tasks for found in got(task)) == [
        (text, 1) for text in "abcdefg"
    ]


async def test_a_hint_that_came_to_nothing_lets_its_owner_wait_on() -> None:
    room = await furnished()
    task = room.wait()
    await turn()
    # Somebody who did not wait is faster.
    await room.publish("a")
    pulled = await room.pull()
    await turn()
    if not task.done():
        assert len(pulled.messages) == 1
        await room.publish("b")
        await turn()
        assert got(task) == [("b", 1)]
    else:
        assert got(task) == [("a", 1)]


async def test_a_message_that_comes_while_the_store_looks_is_not_missed() -> None:
    room = await furnished()
    room.store.held = asyncio.Event()
    task = room.wait()
    await turn()
    # It has looked and found nothing, but does not know so yet.
    await room.publish("a")
    await turn()
    room.store.held.set()
    await turn()
    assert got(task) == [("a", 1)]


@pytest.mark.parametrize("turns", range(TURNS))
async def test_a_message_that_comes_at_any_moment_of_a_wait_is_not_missed(turns: int) -> None:
    room = await furnished()
    task = room.wait()
    for _ in range(turns):
        await asyncio.sleep(0)
    await room.publish("a")
    await turn()
    assert got(task) == [("a", 1)]


# --- those who leave ---


async def test_who_left_before_takes_nothing() -> None:
    room = await furnished()
    someone = Someone()
    task = room.wait(someone)
    await turn()
    someone.leave()
    await turn()
    assert got(task) == []
    await room.publish("a")
    await turn()
    assert await room.ready() == [("a", 0)]


@pytest.mark.parametrize("turns", range(TURNS))
async def test_whoever_leaves_at_any_moment_leaves_every_message(turns: int) -> None:
    room = await furnished()
    someone = Someone()
    task = room.wait(someone, count=2, lease_ms=10**9)
    await turn()
    publish = asyncio.create_task(room.publish("a", "b"))
    for _ in range(turns):
        await asyncio.sleep(0)
    was_done = task.done()
    someone.leave()
    await publish
    await turn()
    if not was_done:
        assert got(task) == []
        assert [text for text, _ in await room.ready()] == ["a", "b"]
        assert all(attempts <= 1 for _, attempts in await room.ready())
    else:
        assert got(task) == [("a", 1), ("b", 1)]


@pytest.mark.parametrize("turns", range(TURNS))
async def test_whoever_leaves_at_any_moment_passes_the_news_on(turns: int) -> None:
    room = await furnished()
    someone = Someone()
    first = room.wait(someone, lease_ms=10**9)
    await turn()
    second = room.wait(lease_ms=10**9)
    await turn()
    publish = asyncio.create_task(room.publish("a"))
    for _ in range(turns):
        await asyncio.sleep(0)
    was_done = first.done()
    someone.leave()
    await publish
    await turn()
    if was_done:
        assert got(first) == [("a", 1)]
        second.cancel()
    else:
        assert got(first) == []
        assert [text for text, _ in got(second)] == ["a"]


async def test_what_was_leased_for_somebody_who_left_goes_back() -> None:
    room = await furnished()
    await room.publish("a", "b")
    room.store.held = asyncio.Event()
    someone = Someone()
    task = room.wait(someone, count=2, lease_ms=10**9)
    await turn()
    someone.leave()
    assert await room.ready() == []
    room.store.held.set()
    await turn()
    assert got(task) == []
    assert await room.ready() == [("a", 1), ("b", 1)]


async def test_what_goes_back_wakes_those_who_wait() -> None:
    room = await furnished()
    await room.publish("a")
    room.store.held = asyncio.Event()
    someone = Someone()
    first = room.wait(someone, lease_ms=10**9)
    await turn()
    room.store.held.set()
    someone.leave()
    second = room.wait()
    await turn()
    assert got(first) == []
    assert got(second) == [("a", 2)]


@pytest.mark.parametrize("turns", range(TURNS))
async def test_a_wait_that_is_cancelled_passes_the_news_on(turns: int) -> None:
    room = await furnished()
    first, second = room.wait(), room.wait()
    await turn()
    publish = asyncio.create_task(room.publish("a"))
    for _ in range(turns):
        await asyncio.sleep(0)
    first.cancel()
    await publish
    await turn()
    if first.cancelled() and not second.done():
        # It had leased the message already: the lease ends like any other.
        assert await room.ready() == []
        room.clock.advance(1_000)
        await room.sweep()
        await turn()
    if first.cancelled():
        assert [text for text, _ in got(second)] == ["a"]
    else:
        assert got(first) == [("a", 1)]
        second.cancel()


async def test_a_wait_that_fails_passes_the_news_on() -> None:
    room = await furnished()
    first = room.wait()
    await turn()
    second = room.wait()
    await turn()
    room.store.failing = 1
    await room.publish("a")
    await turn()
    with pytest.raises(StoreUnavailable):
        first.result()
    assert got(second) == [("a", 1)]


# --- the end of the server ---


async def test_a_drain_lets_everyone_go() -> None:
    room = await furnished()
    tasks = [room.wait() for _ in range(3)]
    await turn()
    room.broker.drain()
    await turn()
    assert [got(task) for task in tasks] == [[], [], []]


async def test_after_a_drain_nobody_waits() -> None:
    room = await furnished()
    room.broker.drain()
    task = room.wait()
    await turn()
    assert got(task) == []
    await room.publish("a")
    there = room.wait()
    await turn()
    assert got(there) == [("a", 1)]


@pytest.mark.parametrize("end", ["message", "time", "leave", "drain", "cancel"])
async def test_nothing_is_left_of_a_wait(end: str) -> None:
    """What was told is not told again, and the caller may wait for something else."""

    room = await furnished()
    someone = Someone()
    task = room.wait(someone, wait_ms=20 if end == "time" else LONG_MS)
    await turn()
    assert someone.on_gone is not None
    if end == "message":
        await room.publish("a")
    elif end == "leave":
        someone.leave()
    elif end == "drain":
        room.broker.drain()
    elif end == "cancel":
        task.cancel()
    await asyncio.wait([task])
    assert someone.on_gone is None
    # A later message is there for the next caller.
    await room.publish("later")
    await turn()
    assert ("later", 0) in await room.ready()


async def test_messages_and_those_who_wait_always_meet() -> None:
    """Many come, wait, get, leave and give back at once; in the end all is acked, once each."""

    room = await furnished()
    acked: list[str] = []

    async def consume(number: int) -> None:
        while len(acked) < 200:
            someone = Someone()
            task = room.wait(someone, count=1 + number % 3, wait_ms=50, lease_ms=10**9)
            for _ in range(number % 5):
                await asyncio.sleep(0)
            if number % 4 == 0 and not task.done():
                someone.leave()
            pulled = await task
            for message, _ in pulled.messages if pulled else ():
                if message.attempts % 3 == 1 and number % 2:
                    back = Retry(message.seq, message.attempts, delay_ms=0)
                    await room.broker.settle(room.queue, [back], actor=CALLER)
                else:
                    done = Ack(message.seq, message.attempts)
                    await room.broker.settle(room.queue, [done], actor=CALLER)
                    acked.append(message.body.decode())

    async def publish() -> None:
        for number in range(200):
            await room.publish(str(number))
            if number % 3 == 0:
                await asyncio.sleep(0)

    async with asyncio.timeout(30):
        await asyncio.gather(publish(), *(consume(number) for number in range(12)))
    assert sorted(acked, key=int) == [str(number) for number in range(200)]


async def test_a_message_without_a_hint_is_found_all_the_same() -> None:
    room = Room(SlowStore(DeafWaiters(longest_s=0.02)))
    await room.furnish()
    waiting = room.wait(wait_ms=20_000)
    await turn()
    await room.publish("m1")
    await asyncio.wait_for(waiting, 10)
    assert got(waiting) == [("m1", 1)]


async def test_hints_for_nothing_end_no_wait() -> None:
    room = await furnished()
    waiting = room.wait(wait_ms=20_000)
    for _ in range(5):
        await turn()
        room.store.waiters.wake(room.queue.id, 3)
    await turn()
    assert not waiting.done()
    await room.publish("m1")
    await asyncio.wait_for(waiting, 10)
    assert got(waiting) == [("m1", 1)]
