"""A group whose commit fails has happened to nobody: not on disk, not in memory, not to waiters."""

import asyncio
from collections.abc import Awaitable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest
from msgspec.structs import replace

from courier import ids
from courier.core.errors import StoreUnavailable
from courier.core.records import decided
from courier.core.store import Store
from courier.core.types import (
    DAY_MS,
    MINUTE_MS,
    Ack,
    Actor,
    Draft,
    Level,
    Listener,
    Pushed,
    PushFailed,
    PushReturned,
    Queue,
    Report,
    Retry,
)
from courier.store.embedded import EmbeddedStore

ACTOR = Actor("somebody", "test")
NOW_MS = 1_700_000_000_000


class BrokenFile(apsw.VFSFile):
    def __init__(
        self, base: str, name: str | apsw.URIFilename | None, flags: list[int], disk: "Disk"
    ) -> None:
        super().__init__(base, name, flags)
        self._disk = disk
        file = name.filename() if isinstance(name, apsw.URIFilename) else name
        self._is_log = str(file).endswith("-wal")

    def xSync(self, flags: int) -> None:
        if self._is_log and self._disk.fails():
            raise apsw.IOError("the disk is gone")
        super().xSync(flags)


class Disk(apsw.VFS):
    """The default file system; while it is broken, every second sync of a log fails.

    The one between lets the store overwrite what the failed commit has left.
    """

    def __init__(self) -> None:
        self.broken = False
        self._failed = False
        self._base = apsw.vfs_names()[0]
        super().__init__("breakable", self._base, makedefault=True)

    def fails(self) -> bool:
        self._failed = self.broken and not self._failed
        return self._failed

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        return BrokenFile(self._base, name, flags, self)


@pytest.fixture
def disk() -> Iterator[Disk]:
    disk = Disk()
    yield disk
    disk.unregister()


@pytest.mark.parametrize("fifo", [False, True])
@pytest.mark.parametrize("inline_ms_max", [0, 60_000])
def test_a_group_that_cannot_be_committed_leaves_everything_as_it_was(
    tmp_path: Path, disk: Disk, inline_ms_max: int, fifo: bool
) -> None:
    async def seen(store: Store, queue: Queue, now_ms: int) -> list[Any]:
        return [
            (await store.stats([queue.id], now_ms=now_ms))[queue.id],
            await store.messages.tail(queue.id),
            await store.messages.peek(queue.id, count=99, now_ms=now_ms),
            await store.messages.browse(queue.id, after_seq=0, limit=99, now_ms=now_ms),
            (await store.past.levels([queue.id], since_ms=0))[0],
            await store.past.tallies(tenant="t", since_ms=0, until_ms=2 * now_ms),
            await store.journal.head(),
        ]

    async def story() -> None:
        store = await EmbeddedStore.open(
            tmp_path / "courier.db", commit_inline_ms_max=inline_ms_max
        )
        queue = Queue(id=ids.new_id(), tenant="t", name="q", created_ms=1, modified_ms=1, fifo=fifo)
        await store.change(decided(puts=[queue]), actor=ACTOR, now_ms=NOW_MS)

        def publish(*bodies: bytes, now_ms: int, ttl_ms: int | None = None) -> Awaitable[Any]:
            drafts = [Draft(body, group=body[:1].decode(), ttl_ms=ttl_ms) for body in bodies]
            return store.publish([(queue.id, drafts)], actor=ACTOR, now_ms=now_ms)

        def lease(count: int, now_ms: int) -> Awaitable[Any]:
            return store.lease(queue.id, count=count, lease_ms=DAY_MS, actor=ACTOR, now_ms=now_ms)

        def settle(*items: Ack | Retry, now_ms: int) -> Awaitable[Any]:
            return store.settle(queue.id, items, actor=ACTOR, now_ms=now_ms)

        await publish(b"a1", b"a2", b"b1", b"c1", now_ms=NOW_MS)
        first, second = (await lease(2, NOW_MS)).messages
        later_ms = NOW_MS + 2 * MINUTE_MS
        before = await seen(store, queue, later_ms)

        hints = [store.waiters.wait(queue.id) for _ in range(9)]
        disk.broken = True
        answers = await asyncio.gather(
            publish(b"d1", b"a3", now_ms=later_ms),
            publish(b"e1", now_ms=later_ms, ttl_ms=1),
            settle(Ack(first.seq, 1), Retry(second.seq, 1, delay_ms=0), now_ms=later_ms),
            lease(1, later_ms),
            store.remove(queue.id, [4], actor=ACTOR, now_ms=later_ms),
            return_exceptions=True,
        )
        assert [type(answer) for answer in answers] == [StoreUnavailable] * 5
        with pytest.raises(StoreUnavailable):
            await store.change(
                decided(puts=[replace(queue, delay_ms=9)]), actor=ACTOR, now_ms=later_ms
            )
        assert [hint.done() for hint in hints] == [False] * 9
        disk.broken = False
        assert await seen(store, queue, later_ms) == before
        await store.health.check()
        assert [hint.done() for hint in hints] == [False] * 9

        # The same happens when the disk is back, and counts from where it really was.
        await settle(Ack(first.seq, 1), Retry(second.seq, 1, delay_ms=0), now_ms=later_ms)
        assert any(hint.done() for hint in hints)
        await publish(b"a3", now_ms=later_ms)
        peeked = await store.messages.peek(queue.id, count=9, now_ms=later_ms)
        assert [message.body for message in peeked] == (
            [b"a2", b"a3", b"b1", b"c1"] if fifo else [b"a2", b"b1", b"c1", b"a3"]
        )
        assert [message.seq for message in peeked if message.body == b"a3"] == [5]
        levels = (await store.past.levels([queue.id], since_ms=0))[0]
        assert levels == [Level(later_ms // MINUTE_MS - 1, 4, 2, 0)]
        await store.close()

    asyncio.run(story())


def new_listener(queue: Queue, title: str, **fields: Any) -> Listener:
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


@pytest.mark.parametrize("inline_ms_max", [0, 60_000])
def test_pushes_of_a_group_that_cannot_be_committed_are_as_they_were(
    tmp_path: Path, disk: Disk, inline_ms_max: int
) -> None:
    report = Report(200, "", 5, b"answer")

    async def story() -> None:
        store = await EmbeddedStore.open(
            tmp_path / "courier.db", commit_inline_ms_max=inline_ms_max
        )
        dead = Queue(id=ids.new_id(), tenant="t", name="dead", created_ms=1, modified_ms=1)
        queue = replace(dead, id=ids.new_id(), name="work", dead_letter=dead.id)
        first, second = new_listener(queue, "first"), new_listener(queue, "second", ordered=True)
        await store.change(decided(puts=[dead, queue, first, second]), actor=ACTOR, now_ms=NOW_MS)
        later_ms = NOW_MS + 2 * MINUTE_MS

        async def seen(now_ms: int) -> list[Any]:
            return [
                await store.journal.head(),
                (await store.stats([queue.id], now_ms=now_ms))[queue.id],
                (await store.stats([dead.id], now_ms=now_ms))[dead.id],
                await store.messages.browse(
                    queue.id, after_seq=0, limit=99, now_ms=now_ms, kept=True
                ),
                [
                    await store.pushes.of_message(queue.id, seq, now_ms=now_ms)
                    for seq in range(1, 9)
                ],
                await store.pushes.stats([first.id, second.id], now_ms=now_ms),
                [
                    await store.pushes.missed(each.id, limit=9, now_ms=now_ms)
                    for each in (first, second)
                ],
                store.records.scan(Listener),
            ]

        def publish(*bodies: bytes) -> Awaitable[Any]:
            batch = (queue.id, [Draft(body) for body in bodies])
            return store.publish([batch], actor=ACTOR, now_ms=NOW_MS)

        def take(listener: Listener, count: int) -> Awaitable[Any]:
            return store.pushes.take(listener.id, count=count, lease_ms=DAY_MS, now_ms=NOW_MS)

        def settle(*items: Pushed | PushFailed | PushReturned) -> Awaitable[Any]:
            return store.pushes.settle(first.id, items, now_ms=later_ms)

        def ack(*seqs: int) -> Awaitable[Any]:
            acks = [Ack(seq, 1) for seq in seqs]
            return store.settle(queue.id, acks, actor=ACTOR, now_ms=later_ms)

        await publish(b"a", b"b", b"c", b"d", b"e")
        await store.lease(queue.id, count=3, lease_ms=DAY_MS, actor=ACTOR, now_ms=NOW_MS)
        await ack(1)
        await take(first, 4)
        await take(second, 1)
        await store.pushes.settle(first.id, [PushFailed(4, 1, report, None)], now_ms=NOW_MS)
        before = await seen(later_ms)

        hints = [store.waiters.wait(id) for id in (first.id, second.id, dead.id)]
        disk.broken = True
        answers = await asyncio.gather(
            publish(b"f"),
            ack(2),
            settle(Pushed(1, 1, report), PushFailed(2, 1, report, None), PushReturned(3, 1)),
            store.pushes.settle(second.id, [Pushed(1, 1, report)], now_ms=later_ms),
            take(second, 1),
            store.pushes.retry(first.id, 4, now_ms=later_ms),
            store.rename(queue.id, 1, "name", actor=ACTOR, now_ms=later_ms),
            store.remove(queue.id, [1, 5], actor=ACTOR, now_ms=later_ms),
            return_exceptions=True,
        )
        assert [type(answer) for answer in answers] == [StoreUnavailable] * 8
        for puts, drops in (([], [first]), ([replace(first, ordered=True)], []), ([], [queue])):
            with pytest.raises(StoreUnavailable):
                await store.change(decided(puts=puts, drops=drops), actor=ACTOR, now_ms=later_ms)
        disk.broken = False
        assert await seen(later_ms) == before
        assert [hint.done() for hint in hints] == [False] * 3

        # The same happens when the disk is back, and counts from where it really was.
        assert await ack(2)
        done = await settle(Pushed(1, 1, report), PushFailed(2, 1, report, None))
        assert done == [True, True]
        await store.pushes.settle(second.id, [Pushed(1, 1, report)], now_ms=later_ms)
        assert [hint.done() for hint in hints] == [False, True, True]
        stats = (await store.pushes.stats([first.id], now_ms=later_ms))[first.id]
        assert (stats.open, stats.in_flight, stats.missed, stats.acknowledged) == (2, 1, 2, 1)
        kept = await store.messages.browse(
            queue.id, after_seq=0, limit=9, now_ms=later_ms, kept=True
        )
        assert [message.seq for message in kept] == [2, 3, 4, 5]

        # A sweep that is undone half-way through a dropped listener goes on from there.
        await store.change(decided(drops=[first]), actor=ACTOR, now_ms=later_ms)
        disk.broken = True
        for _ in range(3):
            with pytest.raises(StoreUnavailable):
                await store.sweep(limit=2, now_ms=later_ms)
        disk.broken = False
        counts = []
        while (swept := await store.sweep(limit=2, now_ms=later_ms)).dropped:
            counts.append(swept.dropped)
        assert counts == [2, 2]
        await store.close()

    asyncio.run(story())


async def test_who_waits_is_told_after_the_commit(tmp_path: Path) -> None:
    store = await EmbeddedStore.open(tmp_path / "courier.db", commit_inline_ms_max=0)
    queue = Queue(id=ids.new_id(), tenant="t", name="q", created_ms=1, modified_ms=1)
    await store.change(decided(puts=[queue]), actor=ACTOR, now_ms=NOW_MS)
    hint = store.waiters.wait(queue.id)
    commits = store.health.figures()["commits"]
    told_at: list[int] = []
    hint.add_done_callback(lambda _: told_at.append(store.health.figures()["commits"]))
    await store.publish([(queue.id, [Draft(b"a")])], actor=ACTOR, now_ms=NOW_MS)
    await asyncio.sleep(0)
    assert told_at == [commits + 1]
    await store.close()
