"""More messages in the way of others, or ending at once, than a verb looks at."""

import asyncio
from pathlib import Path

import pytest

from courier import ids
from courier.core.records import decided
from courier.core.types import (
    DAY_MS,
    Ack,
    Actor,
    Draft,
    Listener,
    PushFailed,
    PushReturned,
    PushSettlement,
    Queue,
    Report,
)
from courier.store.embedded import EmbeddedStore
from courier.store.engine.endings import INLINE_MAX

ACTOR = Actor("somebody", "test")
NOW_MS = 1_700_000_000_000
LONG = [Draft(b"long", ttl_ms=DAY_MS)] * (5 * INLINE_MAX // 2)


@pytest.mark.parametrize("fifo", [False, True])
async def test_what_lies_behind_long_lives_ends_on_time(tmp_path: Path, fifo: bool) -> None:
    store = await EmbeddedStore.open(tmp_path / "courier.db")
    queue = Queue(
        id=ids.new_id(),
        tenant="t",
        name="q",
        created_ms=NOW_MS,
        modified_ms=NOW_MS,
        retention_ms=100,
        fifo=fifo,
    )
    await store.change(decided(puts=[queue]), actor=ACTOR, now_ms=NOW_MS)
    await store.publish([(queue.id, LONG)], actor=ACTOR, now_ms=NOW_MS)

    async def passed(bodies: list[bytes], now_ms: int) -> None:
        """Publish, and see the messages end by retention, not earlier and not later."""
        drafts = [Draft(body) for body in bodies]
        await store.publish([(queue.id, drafts)], actor=ACTOR, now_ms=now_ms)
        swept = await store.sweep(limit=9, now_ms=now_ms)
        assert not swept.more and swept.next_ms == now_ms + 100
        stats = (await store.stats([queue.id], now_ms=now_ms + 99))[queue.id]
        assert stats.count == len(LONG) + len(bodies)
        # Whatever a verb leaves to the sweep, it does not hand out.
        peeked = await store.messages.peek(queue.id, count=2 * len(LONG), now_ms=now_ms + 100)
        assert not {message.body for message in peeked} & set(bodies)
        while (await store.sweep(limit=INLINE_MAX, now_ms=now_ms + 100)).more:
            pass
        assert (await store.stats([queue.id], now_ms=now_ms + 100))[queue.id].count == len(LONG)

    await passed([b"a", b"b"], NOW_MS)
    old_ms = NOW_MS + 200
    await store.publish([(queue.id, [Draft(b"c")])], actor=ACTOR, now_ms=old_ms)
    assert (await store.stats([queue.id], now_ms=old_ms + 100))[queue.id].count == len(LONG)
    await store.close()

    # A restart knows nothing of that, and is right all the same.
    store = await EmbeddedStore.open(tmp_path / "courier.db")
    peeked = await store.messages.peek(queue.id, count=9, now_ms=old_ms + 100)
    assert {message.body for message in peeked} <= {b"long"}
    while (await store.sweep(limit=INLINE_MAX, now_ms=old_ms + 100)).more:
        pass
    peeked = await store.messages.peek(queue.id, count=9, now_ms=old_ms + 100)
    assert [message.body for message in peeked] == [b"long"] * 9
    await store.close()


async def test_a_lease_that_ended_in_time_is_not_overtaken_by_retention(tmp_path: Path) -> None:
    """Also when so many leases ended at once that a verb leaves most of them to the sweep."""
    many = INLINE_MAX + 500
    store = await EmbeddedStore.open(tmp_path / "courier.db")
    dead = Queue(id=ids.new_id(), tenant="t", name="dead", created_ms=1, modified_ms=1)
    work = Queue(
        id=ids.new_id(),
        tenant="t",
        name="work",
        created_ms=1,
        modified_ms=1,
        dead_letter=dead.id,
        attempts_max=1,
        retention_ms=100,
    )
    await store.change(decided(puts=[dead, work]), actor=ACTOR, now_ms=NOW_MS)
    await store.publish([(work.id, [Draft(b"a")] * many)], actor=ACTOR, now_ms=NOW_MS)
    await store.lease(work.id, count=many, lease_ms=50, actor=ACTOR, now_ms=NOW_MS)
    late_ms = NOW_MS + 100
    assert await store.messages.peek(work.id, count=9, now_ms=late_ms) == []
    while (await store.sweep(limit=INLINE_MAX, now_ms=late_ms)).more:
        pass
    assert (await store.stats([dead.id], now_ms=late_ms))[dead.id].count == many
    assert (await store.stats([work.id], now_ms=late_ms))[work.id].count == 0
    await store.close()


def test_what_lies_behind_many_that_have_expired_is_not_lost(tmp_path: Path) -> None:
    async def story() -> None:
        store = await EmbeddedStore.open(tmp_path / "courier.db")
        queue = Queue(id=ids.new_id(), tenant="t", name="q", created_ms=1, modified_ms=1)
        await store.change(decided(puts=[queue]), actor=ACTOR, now_ms=NOW_MS)
        short = [Draft(b"short", ttl_ms=10)] * (INLINE_MAX + 500)
        drafts = [Draft(b"first"), *short, Draft(b"last")]
        await store.publish([(queue.id, drafts)], actor=ACTOR, now_ms=NOW_MS)

        async def leased() -> list[bytes]:
            leased = await store.lease(
                queue.id, count=9_999, lease_ms=DAY_MS, actor=ACTOR, now_ms=NOW_MS + 10
            )
            return [message.body for message in leased.messages]

        assert await leased() == [b"first"]
        assert await leased() == [b"last"]
        await store.close()

    asyncio.run(story())


def test_kept_messages_behind_long_lives_end_on_time(tmp_path: Path) -> None:
    async def story() -> None:
        store = await EmbeddedStore.open(tmp_path / "courier.db")
        queue = Queue(
            id=ids.new_id(), tenant="t", name="q", created_ms=1, modified_ms=1, retention_ms=100
        )
        listener = Listener(
            id=ids.new_id(),
            tenant="t",
            parent=queue.id,
            created_ms=1,
            title="mill",
            modified_ms=1,
            url="https://mill.example/push",
            liveness_url="https://mill.example/live",
        )
        await store.change(decided(puts=[queue]), actor=ACTOR, now_ms=NOW_MS)

        async def ack(*seqs: int, now_ms: int) -> None:
            acks = [Ack(seq, 1) for seq in seqs]
            await store.settle(queue.id, acks, actor=ACTOR, now_ms=now_ms)

        async def publish(*drafts: Draft, now_ms: int) -> None:
            await store.publish([(queue.id, drafts)], actor=ACTOR, now_ms=now_ms)
            await store.lease(queue.id, count=9_999, lease_ms=DAY_MS, actor=ACTOR, now_ms=now_ms)

        async def held(now_ms: int) -> list[bytes]:
            found = await store.messages.browse(
                queue.id, after_seq=0, limit=9_999, now_ms=now_ms, kept=True
            )
            return [message.body for message in found if message.body != b"long"]

        async def exhaust(now_ms: int) -> None:
            """The listener is owed no more than what has a long life of its own."""
            taken = await store.pushes.take(
                listener.id, count=9_999, lease_ms=DAY_MS, now_ms=now_ms
            )
            settled: list[PushSettlement] = [
                PushReturned(message.seq, 1)
                if message.body == b"long"
                else PushFailed(message.seq, 1, Report(500), None)
                for message in taken
            ]
            await store.pushes.settle(listener.id, settled, now_ms=now_ms)

        await publish(Draft(b"gone"), now_ms=NOW_MS)
        await store.change(decided(puts=[listener]), actor=ACTOR, now_ms=NOW_MS)
        later_ms = NOW_MS + 50
        await publish(Draft(b"a"), *LONG, Draft(b"b"), now_ms=later_ms)
        await ack(1, *range(3, len(LONG) + 4), now_ms=later_ms)
        # By now the first might have expired, were it not gone; so all that is kept is looked at.
        while (await store.sweep(limit=INLINE_MAX, now_ms=NOW_MS + 100)).more:
            pass
        # It is kept behind many that have been passed over, and ends on time all the same.
        await ack(2, now_ms=NOW_MS + 101)
        await exhaust(NOW_MS + 101)
        assert await held(later_ms + 99) == [b"a", b"b"]
        await store.stats([queue.id], now_ms=later_ms + 100)
        while (await store.sweep(limit=INLINE_MAX, now_ms=later_ms + 100)).more:
            pass
        assert await held(later_ms + 100) == []
        await publish(Draft(b"c"), now_ms=later_ms + 100)
        await ack(len(LONG) + 4, now_ms=later_ms + 100)
        await exhaust(later_ms + 100)
        assert await held(later_ms + 200) == []
        pushes = await store.pushes.stats([listener.id], now_ms=later_ms + 200)
        assert pushes[listener.id].open == len(LONG)
        await store.close()

    asyncio.run(story())
