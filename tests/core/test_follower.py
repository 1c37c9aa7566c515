"""Following the journal: what is told of it, to whom, and how often."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from courier.core.errors import StoreUnavailable
from courier.core.follower import POLL_S
from courier.core.store import Store
from courier.core.types import Queue, Receipt, Run
from courier.store.embedded import EmbeddedStore
from tests.core.newsroom import CALLER, MESSAGES, QUEUES, TENANT, Newsroom
from tests.oracle.store import Oracle

OTHER = "c0" + "5" * 30
BURST = 100_000
# Usually it is a fiftieth of this.
STALL_S_MAX = 1.0


@pytest.fixture(params=["memory", "sqlite"])
def room(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Newsroom]:
    with asyncio.Runner() as runner:
        store: Store = Oracle()
        if request.param == "sqlite":
            store = runner.run(EmbeddedStore.open(tmp_path / "courier.db"))
        yield Newsroom(runner, store)
        runner.run(store.close())


def names(room: Newsroom) -> list[str]:
    """The names of the queues that queue `news` was told about."""
    news = room.run(room.store.named(Queue, tenant=TENANT, name="news"))
    assert news is not None
    return [event["payload"]["name"] for event in room.told(news)]


class Read(Oracle):
    """Which remembers from where it was read."""

    def __init__(self) -> None:
        super().__init__()
        self.read: list[int] = []

    async def read_journal(
        self, *, after: int, limit: int, bytes_max: int | None = None
    ) -> list[Run]:
        self.read.append(after)
        return await super().read_journal(after=after, limit=limit, bytes_max=bytes_max)


def test_nothing_is_read_that_nobody_subscribes_to() -> None:
    with asyncio.Runner() as runner:
        store = Read()
        room = Newsroom(runner, store)
        queue = room.queue("news")
        room.subscription(queue, {"type": "kv"}, "namespace.created")
        room.subscription(queue, QUEUES, "backlog.exceeded")
        room.disable(room.subscription(queue, QUEUES, "created"))
        room.follow()
        assert (store.read, room.position()) == ([], None)
        asked = room.last()
        room.subscription(queue, QUEUES, "created")
        room.follow()
        assert store.read == [asked]


def test_it_is_known_where_to_go_on_after_a_restart(room: Newsroom) -> None:
    room.queue("before")
    news = room.queue("news")
    room.subscription(news, QUEUES, "created")
    room.queue("a")
    room.follow()
    room.queue("b")  # while nobody looks
    room.restart()
    room.queue("c")
    room.follow()
    assert names(room) == ["a", "b", "c"]
    assert room.position() is not None


def test_what_was_told_before_a_crash_is_not_told_again(room: Newsroom) -> None:
    """The position was not written down since; the messages are done with, too."""
    news = room.queue("news")
    start = room.last()
    room.subscription(news, QUEUES, "created")
    room.follow()
    room.queue("a")
    room.queue("b")
    room.follow()
    seqs = [message.seq for message in room.messages(news)]
    room.run(room.store.remove(news.id, seqs[:1], actor=CALLER, now_ms=room.clock.now_ms()))
    assert room.position() == start
    room.restart()
    room.queue("c")
    room.follow()
    assert names(room) == ["b", "c"]


def test_what_was_told_before_a_change_is_not_told_again_after_a_crash(room: Newsroom) -> None:
    news, other = room.queue("news"), room.queue("other")
    made = room.subscription(news, QUEUES, "created")
    room.queue("a")
    room.follow()
    room.change(replace(made, parent=other.id, since=room.last()))
    room.restart()
    room.queue("b")
    room.follow()
    assert names(room) == ["a"]
    assert [event["payload"]["name"] for event in room.told(other)] == ["b"]


def test_events_between_asking_for_a_subscription_and_its_creation_are_not_its_own(
    room: Newsroom,
) -> None:
    news = room.queue("news")
    asked = room.last()
    room.queue("between")
    made = room.subscription(news, QUEUES, "created", since=asked)
    room.queue("after")
    room.follow()
    assert names(room) == ["after"]
    # The same holds when it is enabled again.
    room.disable(made)
    asked = room.last()
    room.queue("between again")
    room.change(replace(made, since=asked))
    room.queue("after again")
    room.follow()
    assert names(room) == ["after", "after again"]


def test_a_change_that_does_not_begin_it_loses_nothing(room: Newsroom) -> None:
    news = room.queue("news")
    made = room.subscription(news, QUEUES, "created")
    room.follow()
    asked = room.last()
    room.queue("between")
    room.change(replace(made, title="another", since=asked))
    room.follow()
    assert names(room) == ["between"]


def test_what_was_trimmed_is_missed_and_the_rest_is_told(
    room: Newsroom, caplog: pytest.LogCaptureFixture
) -> None:
    news = room.queue("news")
    room.subscription(news, QUEUES, "created")
    room.follow()
    room.queue("lost")
    trimmed = room.last()
    room.queue("kept")
    room.queue("newest")
    room.run(room.store.trim_journal(upto=trimmed))
    room.follow()
    assert names(room) == ["kept", "newest"]
    assert "events_missed" in caplog.messages
    caplog.clear()
    room.queue("later")
    room.follow()
    assert names(room)[-1] == "later"
    assert caplog.messages == []


def test_the_reader_is_gone_with_the_last_subscription(room: Newsroom) -> None:
    news = room.queue("news")
    one = room.subscription(news, QUEUES, "created")
    two = room.subscription(news, MESSAGES, "buried")
    room.follow()
    room.change(drops=(one,))
    room.follow()
    assert room.position() is not None
    room.disable(two)
    room.follow()
    assert room.position() is None
    # A crash may have left it behind.
    room.run(room.admin.commit_pipeline("courier.events", 1, actor=CALLER))
    room.restart()
    room.follow()
    assert room.position() is None


def test_news_that_cannot_be_written_are_told_later() -> None:
    class Failing(Oracle):
        failing = False

        async def publish(self, *args: Any, **named: Any) -> list[Receipt]:
            if self.failing:
                raise StoreUnavailable("as asked for")
            return await super().publish(*args, **named)

    with asyncio.Runner() as runner:
        store = Failing()
        room = Newsroom(runner, store)
        news = room.queue("news")
        room.subscription(news, QUEUES, "created")
        room.follow()
        room.queue("a")
        store.failing = True
        with pytest.raises(StoreUnavailable):
            room.follow()
        store.failing = False
        room.follow()
        assert names(room) == ["a"]


@pytest.mark.parametrize("room", ["sqlite"], indirect=True)
def test_a_burst_is_followed_while_others_have_their_turn(room: Newsroom) -> None:
    news, queue = room.queue("news"), room.queue("queue", attempts_max=1)
    room.subscription(news, QUEUES, "created")
    room.subscription(news, MESSAGES, "buried")
    room.follow()
    for _ in range(BURST // 1_000):
        room.publish(queue, 1_000)
    for _ in range(5):
        room.bury(queue, 1_000)
    room.queue("last")
    longest_s = 0.0

    async def others() -> None:
        nonlocal longest_s
        while True:
            # What this thread did meanwhile, whatever else the machine does.
            before_s = time.thread_time()
            await asyncio.sleep(0.001)
            longest_s = max(longest_s, time.thread_time() - before_s)

    async def follow() -> None:
        serving = asyncio.create_task(others())
        async with room.follower.settled():
            serving.cancel()

    room.run(follow())
    types = room.told_types(news)
    assert types == ["courier.message.buried"] * 5_000 + ["courier.queue.created"]
    assert longest_s < STALL_S_MAX


def test_many_burials_at_once_are_all_told_in_portions(room: Newsroom) -> None:
    news, other = room.queue("news"), room.queue("other")
    queue = room.queue("queue", attempts_max=1)
    for each in (news, other):
        room.subscription(each, MESSAGES, "buried")
    room.follow()
    room.publish(queue, 1_234)
    room.bury(queue, 1_234)
    room.follow()
    for each in (news, other):
        ids = [event["payload"]["messageId"] for event in room.told(each)]
        assert len(set(ids)) == len(ids) == 1_234
    room.follow()
    assert len(room.messages(news)) == 1_234


def test_a_tenant_hears_only_of_its_own(room: Newsroom) -> None:
    news = room.queue("news")
    foreign = replace(room.plain("foreign"), tenant=OTHER)
    room.change(foreign)
    room.subscription(news, QUEUES, "created")
    room.change(
        replace(room.made(foreign, QUEUES, "created", since=room.last()), tenant=OTHER),
    )
    room.queue("mine")
    room.change(replace(room.plain("theirs"), tenant=OTHER))
    room.follow()
    assert names(room) == ["mine"]
    assert [event["payload"]["name"] for event in room.told(foreign)] == ["theirs"]


def test_the_loop_announces_by_itself_and_soon(room: Newsroom) -> None:
    news = room.queue("news")

    async def live() -> None:
        running = asyncio.create_task(room.follower.run())
        async with room.follower.settled() as since:
            pass
        made = room.made(news, QUEUES, "created", since=since)
        now_ms = room.clock.now_ms()
        async with room.follower.settled():  # which wakes the loop
            await room.store.change(puts=[made], actor=CALLER, now_ms=now_ms)
        await room.store.change(puts=[room.plain("a")], actor=CALLER, now_ms=now_ms)
        async with asyncio.timeout(10):
            while not await room.store.browse(news.id, after_seq=0, limit=1, now_ms=now_ms):
                await asyncio.sleep(POLL_S / 10)
        running.cancel()

    room.run(live())
    assert names(room) == ["a"]
