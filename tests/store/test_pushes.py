"""Whatever happens to pushes outlives a crash; what they cost queues without listeners."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from courier import ids
from courier.core.records import decided
from courier.core.types import (
    DAY_MS,
    Ack,
    Actor,
    Draft,
    Listener,
    Message,
    Pushed,
    PushFailed,
    PushReturned,
    PushSettlement,
    Queue,
    Report,
    Retry,
)
from courier.store.embedded import EmbeddedStore
from courier.store.engine.pushes import LOOKED_AT_MAX
from tests.model.accounts import audit

ACTOR = Actor("somebody", "test")
NOW_MS = 1_700_000_000_000
ARRIVED, REFUSED = Report(200, "", 5, b"ok"), Report(500, "answered 500", 7, b"no")


def new_queue(name: str = "work", **fields: Any) -> Queue:
    return Queue(id=ids.new_id(), tenant="t", name=name, created_ms=1, modified_ms=1, **fields)


def new_listener(queue: Queue, title: str = "mill", **fields: Any) -> Listener:
    return Listener(
        id=ids.new_id(),
        tenant="t",
        parent=queue.id,
        name=f"{queue.id}/{title}",
        title=title,
        created_ms=1,
        modified_ms=1,
        url="https://mill.example/push",
        liveness_url="https://mill.example/live",
        **fields,
    )


class Story:
    def __init__(self, store: EmbeddedStore, queue: Queue) -> None:
        self.store = store
        self.queue = queue
        self.listeners = [new_listener(queue, "a"), new_listener(queue, "b", ordered=True)]
        self.now_ms = NOW_MS

    async def publish(self, *drafts: Draft) -> None:
        await self.store.publish([(self.queue.id, drafts)], actor=ACTOR, now_ms=self.now_ms)

    async def take(self, listener: Listener, count: int, lease_ms: int = 100) -> list[Message]:
        return await self.store.pushes.take(
            listener.id, count=count, lease_ms=lease_ms, now_ms=self.now_ms
        )

    async def settle(self, listener: Listener, *items: PushSettlement) -> None:
        done = await self.store.pushes.settle(listener.id, items, now_ms=self.now_ms)
        assert done == [True] * len(items)

    async def done(self, *items: Ack | Retry) -> None:
        await self.store.settle(self.queue.id, items, actor=ACTOR, now_ms=self.now_ms)

    async def sweep(self, limit: int) -> bool:
        return (await self.store.sweep(limit=limit, now_ms=self.now_ms)).more

    async def steps(self) -> AsyncIterator[str]:
        """Everything that can happen to a push; each step is one or more commits."""
        store, (first, second) = self.store, self.listeners
        await self.publish(*(Draft(b"%d" % i, group="ab"[i % 2]) for i in range(6)))
        await self.publish(Draft(b"later", delay_ms=30), Draft(b"short", ttl_ms=400))
        yield "published"
        await self.take(first, 4)
        await self.take(second, 1)
        yield "took"
        await self.settle(
            first,
            Pushed(1, 1, ARRIVED),
            PushFailed(2, 1, REFUSED, 500),
            PushFailed(3, 1, REFUSED, None),
            PushReturned(4, 1),
        )
        yield "settled in every way"
        leased = await store.lease(
            self.queue.id, count=2, lease_ms=DAY_MS, actor=ACTOR, now_ms=self.now_ms
        )
        await self.done(*(Ack(message.seq, 1) for message in leased.messages))
        yield "acked what has still to be pushed"
        await self.settle(second, Pushed(1, 1, ARRIVED))
        yield "pushed what was kept"
        for _ in range(2):
            [taken] = await self.take(second, 1)
            await self.settle(second, Pushed(taken.seq, 1, ARRIVED))
        yield "pushed what is kept for another"
        await store.pushes.retry(first.id, 3, now_ms=self.now_ms)
        yield "made one ready that was exhausted"
        await self.take(first, 9, lease_ms=20)
        self.now_ms += 30
        await self.sweep(2)
        yield "swept some of the leases that ended"
        await self.sweep(99)
        yield "swept the rest, and a delay"
        third = new_listener(self.queue, "c")
        self.listeners.append(third)
        await store.change(decided(puts=[third]), actor=ACTOR, now_ms=self.now_ms)
        await store.pushes.backfill(
            third.id, since_ms=0, until_ms=2 * NOW_MS, after_seq=3, limit=3, now_ms=self.now_ms
        )
        yield "filled another"
        await store.rename(self.queue.id, 5, "name", actor=ACTOR, now_ms=self.now_ms)
        yield "renamed one"
        [buried] = (
            await store.lease(
                self.queue.id, count=1, lease_ms=DAY_MS, actor=ACTOR, now_ms=self.now_ms
            )
        ).messages
        await self.done(Retry(buried.seq, buried.attempts))
        yield "buried one"
        [last] = await self.take(third, 1)
        await self.settle(third, PushFailed(last.seq, 1, REFUSED, None))
        yield "gave one up, and copied it"
        await self.take(third, 1, lease_ms=DAY_MS)
        await self.take(first, 9, lease_ms=DAY_MS)
        await store.remove(self.queue.id, [buried.seq, 5], actor=ACTOR, now_ms=self.now_ms)
        yield "removed a kept one and another, both in flight"
        self.now_ms = NOW_MS + 400
        await self.sweep(99)
        yield "expired one"
        await store.change(decided(drops=[first]), actor=ACTOR, now_ms=self.now_ms)
        self.listeners.remove(first)
        yield "dropped a listener"
        await self.sweep(1)
        yield "swept a part of it"
        while await self.sweep(2):
            pass
        yield "swept all of it"
        await store.purge(self.queue.id, upto_seq=6, limit=9, actor=ACTOR, now_ms=self.now_ms)
        yield "purged a part"
        await self.publish(*(Draft(b"last", group="z") for _ in range(3)))
        leased = await store.lease(
            self.queue.id, count=9, lease_ms=DAY_MS, actor=ACTOR, now_ms=self.now_ms
        )
        await self.done(*(Ack(message.seq, message.attempts) for message in leased.messages[:3]))
        yield "kept some more"
        await store.change(decided(drops=[self.queue]), actor=ACTOR, now_ms=self.now_ms)
        self.listeners.clear()
        yield "dropped the queue"
        await self.sweep(1)
        yield "swept a part of the queue"


async def seen(store: EmbeddedStore, told: Story, dead: Queue) -> list[Any]:
    """Everything that a caller can see."""
    now_ms = told.now_ms
    found: list[Any] = [await store.journal.head()]
    for queue in (told.queue, dead) if told.listeners else (dead,):
        found += [
            await store.stats([queue.id], now_ms=now_ms),
            await store.messages.browse(queue.id, after_seq=0, limit=99, now_ms=now_ms, kept=True),
            [await store.pushes.of_message(queue.id, seq, now_ms=now_ms) for seq in range(1, 10)],
        ]
    for listener in told.listeners:
        found.append(await store.pushes.stats([listener.id], now_ms=now_ms))
        found.append(await store.pushes.missed(listener.id, limit=99, now_ms=now_ms))
    return found


@pytest.mark.parametrize("fifo", [False, True])
@pytest.mark.parametrize("inline_ms_max", [0, 60_000])
async def test_every_step_outlives_a_crash(tmp_path: Path, inline_ms_max: int, fifo: bool) -> None:
    path = tmp_path / "courier.db"
    store = await EmbeddedStore.open(path, commit_inline_ms_max=inline_ms_max)
    dead = new_queue("dead")
    work = new_queue(fifo=fifo, dead_letter=dead.id, attempts_max=1)
    told = Story(store, work)
    heir = new_listener(dead)
    await store.change(
        decided(puts=[dead, work, heir, *told.listeners]), actor=ACTOR, now_ms=NOW_MS
    )
    async for step in told.steps():
        audit(store)
        # What a process leaves behind that is killed now.
        after = tmp_path / step
        after.mkdir()
        for file in tmp_path.glob("courier.db*"):
            shutil.copy(file, after)
        again = await EmbeddedStore.open(after / "courier.db")
        assert await seen(store, told, dead) == await seen(again, told, dead), step
        await again.close()
    while await told.sweep(2):
        audit(store)
    audit(store)
    await store.close()


def test_a_queue_without_listeners_pays_nothing_for_those_of_others(tmp_path: Path) -> None:
    async def story() -> None:
        store = await EmbeddedStore.open(tmp_path / "courier.db")
        plain, pushed = new_queue("plain"), new_queue("pushed")
        listener = new_listener(pushed)
        await store.change(decided(puts=[plain, pushed, listener]), actor=ACTOR, now_ms=NOW_MS)
        statements: list[str] = []
        store.writer._cursor.connection.set_profile(lambda sql, _: statements.append(sql))

        async def cycle(queue: Queue) -> list[str]:
            """The statements of a cycle that speak of pushes."""
            statements.clear()
            drafts = [Draft(b"a")] * 3
            await store.publish([(queue.id, drafts)], actor=ACTOR, now_ms=NOW_MS)
            leased = await store.lease(queue.id, count=3, lease_ms=100, actor=ACTOR, now_ms=NOW_MS)
            acks = [Ack(message.seq, 1) for message in leased.messages]
            await store.settle(queue.id, acks, actor=ACTOR, now_ms=NOW_MS)
            return [sql for sql in statements if " push" in sql]

        await cycle(plain)
        assert await cycle(plain) == []
        await cycle(pushed)
        assert await cycle(plain) == []
        await store.close()

    asyncio.run(story())


def test_a_backfill_passes_over_a_limited_number_of_messages(tmp_path: Path) -> None:
    many = LOOKED_AT_MAX + LOOKED_AT_MAX // 2

    async def story() -> None:
        store = await EmbeddedStore.open(tmp_path / "courier.db")
        queue = new_queue()
        await store.change(decided(puts=[queue]), actor=ACTOR, now_ms=NOW_MS)
        old = [Draft(b"old"), Draft(b"old", delay_ms=DAY_MS)] * (many // 2)
        await store.publish([(queue.id, old)], actor=ACTOR, now_ms=NOW_MS)
        await store.publish([(queue.id, [Draft(b"new")] * 2)], actor=ACTOR, now_ms=NOW_MS + 1)
        listener = new_listener(queue)
        await store.change(decided(puts=[listener]), actor=ACTOR, now_ms=NOW_MS)

        async def backfill(after_seq: int, until_ms: int = NOW_MS + 2) -> tuple[int, int]:
            return await store.pushes.backfill(
                listener.id,
                since_ms=NOW_MS + 1,
                until_ms=until_ms,
                after_seq=after_seq,
                limit=10,
                now_ms=NOW_MS + 1,
            )

        assert await backfill(0, until_ms=NOW_MS + 1) == (0, LOOKED_AT_MAX)
        assert await backfill(0) == (0, LOOKED_AT_MAX)
        assert await backfill(LOOKED_AT_MAX) == (2, many + 2)
        assert await backfill(many + 2) == (0, 0)
        taken = await store.pushes.take(listener.id, count=9, lease_ms=9, now_ms=NOW_MS + 1)
        assert [message.body for message in taken] == [b"new"] * 2
        await store.close()

    asyncio.run(story())


async def test_pushes_share_a_commit_and_their_events_a_run(tmp_path: Path) -> None:
    store = await EmbeddedStore.open(tmp_path / "courier.db")
    queue = new_queue()
    listeners = [new_listener(queue, str(i)) for i in range(8)]
    await store.change(decided(puts=[queue, *listeners]), actor=ACTOR, now_ms=NOW_MS)
    await store.publish([(queue.id, [Draft(b"a")] * 50)], actor=ACTOR, now_ms=NOW_MS)
    commits = store.health.figures()["commits"]

    async def push(listener: Listener) -> None:
        taken = await store.pushes.take(listener.id, count=50, lease_ms=99, now_ms=NOW_MS)
        items = [Pushed(message.seq, 1, ARRIVED) for message in taken]
        await store.pushes.settle(listener.id, items, now_ms=NOW_MS)

    last = (await store.journal.head()).last
    await asyncio.gather(*(push(listener) for listener in listeners))
    assert store.health.figures()["commits"] == commits + 2
    runs = await store.journal.read(after=last, limit=1_000)
    # Nobody pulls from this queue, so what every listener has is done.
    assert [(run.kind, run.count) for run in runs] == [("pushed", 50)] * 8 + [("acked", 50)]
    await store.close()


def test_a_changed_title_changes_the_order_of_listeners_like_a_restart(tmp_path: Path) -> None:
    async def order(store: EmbeddedStore, queue: Queue) -> list[str]:
        return [push.listener for push in await store.pushes.of_message(queue.id, 1, now_ms=NOW_MS)]

    async def story() -> None:
        store = await EmbeddedStore.open(tmp_path / "courier.db")
        queue = new_queue()
        a, b = new_listener(queue, "a"), new_listener(queue, "b")
        await store.change(decided(puts=[queue, b, a]), actor=ACTOR, now_ms=NOW_MS)
        await store.publish([(queue.id, [Draft(b"x")])], actor=ACTOR, now_ms=NOW_MS)
        assert await order(store, queue) == [a.id, b.id]
        renamed = replace(a, title="c", name=f"{queue.id}/c")
        await store.change(decided(puts=[renamed]), actor=ACTOR, now_ms=NOW_MS)
        assert await order(store, queue) == [b.id, a.id]
        await store.close()
        store = await EmbeddedStore.open(tmp_path / "courier.db")
        assert await order(store, queue) == [b.id, a.id]
        await store.close()

    asyncio.run(story())


async def test_a_deleted_listener_is_emptied_in_small_steps(tmp_path: Path) -> None:
    """What it has still to do with is counted right between any two of them."""
    store = await EmbeddedStore.open(tmp_path / "courier.db", block_messages=3)
    queue = new_queue()
    listener = new_listener(queue)
    await store.change(decided(puts=[queue, listener]), actor=ACTOR, now_ms=NOW_MS)
    drafts = [Draft(b"a")] * 8
    await store.publish([(queue.id, drafts)], actor=ACTOR, now_ms=NOW_MS)
    # Of these the listener's line has rows, beyond its cursor.
    await store.remove(queue.id, [3, 5, 7], actor=ACTOR, now_ms=NOW_MS)
    await store.change(decided(drops=[listener]), actor=ACTOR, now_ms=NOW_MS)
    for _ in range(3 * len(drafts)):
        await store.sweep(limit=1, now_ms=NOW_MS)
        audit(store)
    assert not store.book.dropped_pushes
    await store.close()
