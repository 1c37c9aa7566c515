"""Following the journal: what is told of it, to whom, and how often."""

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from courier.core import duties
from courier.core.errors import StoreUnavailable
from courier.core.follower import POLL_S
from courier.core.records import decided
from courier.core.store import Store
from courier.core.types import Listener, Liveness, Queue, Receipt, Run
from courier.store.embedded import EmbeddedStore
from tests.core import tenants
from tests.core.newsroom import CALLER, MESSAGES, QUEUES, TENANT, Newsroom
from tests.oracle.parts import Events
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
    news = room.store.records.named(Queue, tenant=TENANT, name="news")
    assert news is not None
    return [event["payload"]["name"] for event in room.told(news)]


class Journal(Events):
    """Which remembers from where it was read."""

    def __init__(self, store: Oracle) -> None:
        super().__init__(store)
        self.asked: list[int] = []

    async def read(self, *, after: int, limit: int, bytes_max: int | None = None) -> list[Run]:
        self.asked.append(after)
        return await super().read(after=after, limit=limit, bytes_max=bytes_max)


def test_nothing_is_read_that_nobody_subscribes_to() -> None:
    with asyncio.Runner() as runner:
        store = Oracle()
        store.journal = journal = Journal(store)
        room = Newsroom(runner, store)
        queue = room.queue("news")
        room.subscription(queue, {"type": "kv"}, "namespace.created")
        room.subscription(queue, QUEUES, "backlog.exceeded")
        room.disable(room.subscription(queue, QUEUES, "created"))
        room.follow()
        assert (journal.asked, room.position()) == ([], None)
        asked = room.last()
        room.subscription(queue, QUEUES, "created")
        room.follow()
        assert journal.asked == [asked]


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
    room.run(room.store.journal.trim(upto=trimmed))
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
        running = asyncio.create_task(duties.run(room.follower.duty(), room.store, room.clock))
        async with room.follower.settled() as since:
            pass
        made = room.made(news, QUEUES, "created", since=since)
        now_ms = room.clock.now_ms()
        async with room.follower.settled():  # which wakes the loop
            await room.store.change(decided(puts=[made]), actor=CALLER, now_ms=now_ms)
        await room.store.change(decided(puts=[room.plain("a")]), actor=CALLER, now_ms=now_ms)
        async with asyncio.timeout(10):
            while not await room.store.messages.browse(
                news.id, after_seq=0, limit=1, now_ms=now_ms
            ):
                await asyncio.sleep(POLL_S / 10)
        running.cancel()

    room.run(live())
    assert names(room) == ["a"]


def test_what_becomes_of_a_listener_is_told(room: Newsroom) -> None:
    room.change(*tenants(TENANT))
    news, queue = room.queue("news"), room.queue("queue")
    events = ("inactive", "active", "disabled", "enabled", "exhausted")
    room.subscription(news, {"type": "courier.listener"}, *events)
    listeners = [room.listener(each) for each in (queue, news)]
    first = listeners[0]
    room.follow()
    for state in ("unstable", "inactive", "inactive", "unstable", "stable"):
        known = Liveness(
            id=first.id, tenant=TENANT, parent=first.id, created_ms=0, state=state
        )  # fmt: skip
        room.run(room.admin.listeners.note_liveness([known]))
    room.run(room.admin.listeners.disable(first.id, "gone", actor=CALLER))

    def enabled(listener: Listener) -> Listener:
        return replace(listener, disabled_by="", url="https://example.org/other")

    room.run(room.admin.listeners.update(queue.id, first.id, enabled, actor=CALLER))
    room.follow()
    # On the queue that is told of it, a message that is given up must not become news.
    for listener, delay_ms in ((first, 1_000), (first, None), (listeners[1], None)):
        room.publish(room.store.records.require(Queue, listener.parent), 1)
        room.fail_push(listener, delay_ms)
    room.follow()
    news_only = [json.loads(each.body) for each in room.messages(news) if each.body != b"x"]
    told = [(each["type"].rpartition(".")[2], each["payload"]) for each in news_only]
    assert [name for name, _ in told] == list(events)
    plain = {"id": first.id, "name": "hook", "queue": {"id": queue.id, "name": "queue"}}
    assert told[0][1] == told[1][1] == told[3][1] == plain
    assert told[2][1] == {**plain, "disabledBy": "gone"}
    exhausted = told[4][1]
    assert exhausted.items() >= {**plain, "attempts": 1, "status": 500, "error": None}.items()
    assert exhausted["messageId"]
