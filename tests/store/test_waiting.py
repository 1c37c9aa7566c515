"""Who waits first is told first, and nobody is told twice."""

import asyncio
import gc
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

from courier.core.records import decided
from courier.core.types import Actor, Draft, Queue
from courier.core.waiters import Waiters
from courier.store.embedded import EmbeddedStore

QUEUE, OTHER = "c0" + "1" * 30, "c0" + "2" * 30
ACTOR = Actor("somebody", "test")
NOW_MS = 1_700_000_000_000


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


class Room:
    """Waiters, and those who wait, from plain functions."""

    def __init__(self, runner: asyncio.Runner) -> None:
        self.waiters = Waiters()
        self._runner = runner

    def wait(self, queue: str = QUEUE) -> "asyncio.Future[bool]":
        async def ask() -> "asyncio.Future[bool]":
            return self.waiters.wait(queue)

        return self._runner.run(ask())

    def turn(self) -> None:
        """Let those who were told, or gave up, be noticed."""
        self._runner.run(asyncio.sleep(0))


@pytest.fixture
def room(runner: asyncio.Runner) -> Room:
    return Room(runner)


def told(*futures: "asyncio.Future[bool]") -> list[bool]:
    return [future.done() and not future.cancelled() and future.result() for future in futures]


def test_those_who_came_first_are_told_first(room: Room) -> None:
    first, second, third = (room.wait() for _ in range(3))
    room.waiters.wake(QUEUE, 2)
    assert told(first, second, third) == [True, True, False]
    assert not third.done()


def test_nobody_is_told_twice(room: Room) -> None:
    first, second = room.wait(), room.wait()
    room.waiters.wake(QUEUE, 1)
    room.waiters.wake(QUEUE, 1)
    assert told(first, second) == [True, True]


@pytest.mark.parametrize("noticed", [False, True])
def test_who_was_told_does_not_take_from_the_next(room: Room, noticed: bool) -> None:
    first, second, third = (room.wait() for _ in range(3))
    room.waiters.wake(QUEUE, 1)
    if noticed:
        room.turn()
    room.waiters.wake(QUEUE, 1)
    assert told(first, second, third) == [True, True, False]


@pytest.mark.parametrize("noticed", [False, True])
def test_who_gave_up_does_not_take_from_the_next(room: Room, noticed: bool) -> None:
    first, second, third = (room.wait() for _ in range(3))
    first.set_result(False)
    second.cancel()
    if noticed:
        room.turn()
    room.waiters.wake(QUEUE, 1)
    assert told(first, second, third) == [False, False, True]


def test_everyone_can_be_told(room: Room) -> None:
    waiting = [room.wait() for _ in range(300)]
    room.waiters.wake(QUEUE, sys.maxsize)
    assert all(told(*waiting))


@pytest.mark.parametrize("count", [0, -1])
def test_no_count_tells_nobody(room: Room, count: int) -> None:
    hint = room.wait()
    room.waiters.wake(QUEUE, count)
    assert told(hint) == [False]


def test_queues_are_kept_apart(room: Room) -> None:
    here, there = room.wait(), room.wait(OTHER)
    room.waiters.wake(OTHER, 5)
    assert told(here, there) == [False, True]


def test_a_hint_for_nobody_is_not_kept(room: Room) -> None:
    room.waiters.wake(QUEUE, 5)
    room.wait().set_result(False)
    room.turn()
    room.waiters.wake(QUEUE, 5)
    assert told(room.wait()) == [False]


def test_who_comes_again_waits_behind_the_others(room: Room) -> None:
    first, second = room.wait(), room.wait()
    room.waiters.wake(QUEUE, 1)
    room.turn()
    again = room.wait()
    room.waiters.wake(QUEUE, 1)
    assert told(first, second, again) == [True, True, False]


def test_a_wait_without_a_hint_ends_with_one(runner: asyncio.Runner) -> None:
    async def story() -> None:
        waiters = Waiters(longest_s=0.01)
        assert await asyncio.wait_for(waiters.wait(QUEUE), 10)
        left = waiters.wait(QUEUE)
        left.set_result(False)
        await asyncio.sleep(0.05)

    runner.run(story())


@pytest.mark.parametrize("hinted", [False, True])
def test_who_has_left_is_forgotten(room: Room, hinted: bool) -> None:
    hint = room.wait()
    left = weakref.ref(hint)
    if hinted:
        room.waiters.wake(QUEUE, 1)
    else:
        hint.set_result(False)
    room.turn()
    del hint
    gc.collect()
    assert left() is None


class Bug(Exception):
    pass


async def fail() -> None:
    raise Bug


@pytest.mark.parametrize("inline_ms_max", [0, 60_000])
def test_a_group_that_was_rolled_back_tells_nobody(
    runner: asyncio.Runner, tmp_path: Path, inline_ms_max: int
) -> None:
    """What a bad neighbour undid is done again alone, and only then is it told: once."""

    async def story() -> None:
        store = await EmbeddedStore.open(
            tmp_path / "courier.db", commit_inline_ms_max=inline_ms_max
        )
        queue = Queue(id=QUEUE, tenant="t", name="q", created_ms=1, modified_ms=1)
        await store.change(decided(puts=[queue]), actor=ACTOR, now_ms=NOW_MS)
        waiting = [store.waiters.wait(QUEUE) for _ in range(3)]
        publish = asyncio.ensure_future(
            store.publish([(QUEUE, [Draft(b"a")])], actor=ACTOR, now_ms=NOW_MS)
        )
        await asyncio.sleep(0)
        bad = store.writer.submit(fail)
        answers = await asyncio.gather(publish, bad, return_exceptions=True)
        assert isinstance(answers[1], Bug)
        assert told(*waiting) == [True, False, False]
        await store.close()

    runner.run(story())
