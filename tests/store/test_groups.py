"""Whatever happens to the groups of a FIFO queue outlives a crash."""

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from courier import ids
from courier.core.records import decided
from courier.core.types import Ack, Actor, Draft, Message, Queue, Retry
from courier.store.embedded import EmbeddedStore
from tests.model.accounts import audit

ACTOR = Actor("somebody", "test")
NOW_MS = 1_700_000_000_000


class Story:
    def __init__(self, store: EmbeddedStore, queue: Queue) -> None:
        self.store = store
        self.queue = queue
        self.now_ms = NOW_MS

    async def publish(self, *drafts: Draft) -> None:
        batch = [(self.queue.id, drafts)]
        await self.store.publish(batch, actor=ACTOR, now_ms=self.now_ms)

    async def lease(self, count: int, lease_ms: int = 100) -> list[Message]:
        leased = await self.store.lease(
            self.queue.id, count=count, lease_ms=lease_ms, actor=ACTOR, now_ms=self.now_ms
        )
        return leased.messages

    async def settle(self, *items: Ack | Retry) -> None:
        await self.store.settle(self.queue.id, items, actor=ACTOR, now_ms=self.now_ms)

    async def steps(self) -> AsyncIterator[str]:
        """Everything that can happen to a group; each step is one or more commits."""
        store, queue, of = self.store, self.queue, Draft
        await self.publish(*(of(b"%d" % i, group="abc"[i % 3]) for i in range(12)))
        yield "published"
        a = await self.lease(3)
        yield "leased"
        await self.settle(Ack(a[0].seq, 1), Retry(a[1].seq, 1, delay_ms=200))
        yield "acked one and retried one with a delay"
        await self.settle(Retry(a[2].seq, 1, delay_ms=0))
        yield "retried the last one"
        b = await self.lease(9, lease_ms=50)
        self.now_ms += 50
        await self.store.sweep(limit=3, now_ms=self.now_ms)
        yield "swept some of the leases that ended"
        await self.store.sweep(limit=1_000, now_ms=self.now_ms)
        yield "swept the rest"
        await store.remove(queue.id, [b[0].seq, 9], actor=ACTOR, now_ms=self.now_ms)
        yield "removed a head and another"
        self.queue = replace(queue, delay_ms=70)
        await store.change(decided(puts=[self.queue]), actor=ACTOR, now_ms=self.now_ms)
        yield "delayed what was never attempted"
        self.now_ms += 30
        await self.publish(of(b"ttl", group="d", ttl_ms=10, delay_ms=0), of(b"d", group="d"))
        yield "published one that is ready before one that is not"
        self.now_ms += 10
        await store.sweep(limit=1_000, now_ms=self.now_ms)
        yield "expired a head"
        self.queue = replace(queue, delay_ms=0)
        await store.change(decided(puts=[self.queue]), actor=ACTOR, now_ms=self.now_ms)
        yield "undelayed them"
        await self.lease(4)
        yield "leased across groups"
        await store.purge(queue.id, upto_seq=8, limit=3, actor=ACTOR, now_ms=self.now_ms)
        yield "purged a part"
        self.queue = replace(self.queue, attempts_max=1)
        await store.change(decided(puts=[self.queue]), actor=ACTOR, now_ms=self.now_ms)
        self.now_ms += 100
        await store.sweep(limit=1_000, now_ms=self.now_ms)
        yield "buried what was leased"
        await store.change(decided(drops=[self.queue]), actor=ACTOR, now_ms=self.now_ms)
        yield "dropped the queue"


@pytest.mark.parametrize("inline_ms_max", [0, 60_000])
async def test_every_step_outlives_a_crash(tmp_path: Path, inline_ms_max: int) -> None:
    path = tmp_path / "courier.db"
    store = await EmbeddedStore.open(path, commit_inline_ms_max=inline_ms_max)
    dead = Queue(id=ids.new_id(), tenant="t", name="dead", created_ms=1, modified_ms=1, fifo=True)
    work = replace(dead, id=ids.new_id(), name="work", dead_letter=dead.id, attempts_max=9)
    await store.change(decided(puts=[dead, work]), actor=ACTOR, now_ms=NOW_MS)
    told = Story(store, work)
    async for step in told.steps():
        audit(store)
        # What a process leaves behind that is killed now.
        after = tmp_path / step
        after.mkdir()
        for file in tmp_path.glob("courier.db*"):
            shutil.copy(file, after)
        again = await EmbeddedStore.open(after / "courier.db")
        for queue in (work, dead) if step != "dropped the queue" else (dead,):
            here, there = [
                (
                    await each.stats([queue.id], now_ms=told.now_ms),
                    await each.messages.peek(queue.id, count=99, now_ms=told.now_ms),
                )
                for each in (store, again)
            ]
            assert here == there, step
        await again.close()
    while (await store.sweep(limit=2, now_ms=told.now_ms)).more:
        pass
    audit(store)
    await store.close()
