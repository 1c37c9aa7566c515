"""Below the low-water mark what would grow the store is refused, and all else goes on."""

import asyncio
import os
from errno import ENOSPC
from pathlib import Path

import pytest
from msgspec.structs import replace

from courier import ids
from courier.clock import ManualClock
from courier.core.errors import OutOfSpace, StoreUnavailable
from courier.core.records import decided
from courier.core.sweeper import Sweeper
from courier.core.types import DAY_MS, Ack, Actor, Draft, Numbering, Pipeline, Queue, Session
from courier.store.embedded import EmbeddedStore
from tests.faults.disk_run import small_store
from tests.faults.lying import Fault, LyingDisk, lying_disk

ACTOR = Actor("somebody", "test")
NOW_MS = 1_700_000_000_000
MIB = 1 << 20


class Room:
    """What `os.statvfs` says of the disk."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.free = 10_000 * MIB
        self.gone = False
        patch.setattr(os, "statvfs", self._statvfs)

    def _statvfs(self, path: object) -> os.statvfs_result:
        if self.gone:
            raise FileNotFoundError(2, "No such file or directory", str(path))
        return os.statvfs_result((MIB, MIB, 10_000, self.free // MIB, self.free // MIB, *[0] * 5))


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch) -> Room:
    return Room(monkeypatch)


async def opened(tmp_path: Path) -> EmbeddedStore:
    return await EmbeddedStore.open(tmp_path / "courier.db", disk_free_bytes_min=256 * MIB)


def new_queue(name: str) -> Queue:
    return Queue(id=ids.new_id(), tenant="t", name=name, created_ms=1, modified_ms=1)


async def test_what_grows_the_store_is_refused_and_all_else_goes_on(
    tmp_path: Path, room: Room
) -> None:
    store = await opened(tmp_path)
    queue = new_queue("q")
    drafts = [Draft(b"a"), Draft(b"b"), Draft(b"c")]
    await store.change(decided(puts=[queue]), actor=ACTOR, now_ms=NOW_MS)
    await store.publish([(queue.id, drafts)], actor=ACTOR, now_ms=NOW_MS)
    room.free = 200 * MIB
    await store.sweep(limit=1, now_ms=NOW_MS)
    with pytest.raises(OutOfSpace):
        await store.publish([(queue.id, drafts)], actor=ACTOR, now_ms=NOW_MS)
    with pytest.raises(OutOfSpace):
        await store.rows.publish(
            queue.id, drafts, Numbering("k", 0, NOW_MS), actor=ACTOR, now_ms=NOW_MS
        )
    with pytest.raises(OutOfSpace):
        await store.change(decided(puts=[new_queue("more")]), actor=ACTOR, now_ms=NOW_MS)
    with pytest.raises(OutOfSpace):
        await store.health.check()
    assert store.health.figures()["refusals_for_space"] >= 4
    assert store.health.free_bytes() == 200 * MIB

    session = Session(id=ids.new_id(), tenant="t", created_ms=1, expires_ms=NOW_MS)
    await store.change(decided(puts=[session]), actor=ACTOR, now_ms=NOW_MS)
    await store.change(decided(puts=[replace(queue, paused=True)]), actor=ACTOR, now_ms=NOW_MS)
    leased = await store.lease(queue.id, count=1, lease_ms=9, actor=ACTOR, now_ms=NOW_MS)
    acks = [Ack(message.seq, 1) for message in leased.messages]
    await store.settle(queue.id, acks, actor=ACTOR, now_ms=NOW_MS)
    assert await store.remove(queue.id, [2], actor=ACTOR, now_ms=NOW_MS) == [True]
    assert await store.purge(queue.id, upto_seq=9, limit=9, actor=ACTOR, now_ms=NOW_MS) == 1
    assert await store.journal.trim(upto=3)
    await store.change(decided(drops=[queue]), actor=ACTOR, now_ms=NOW_MS)

    room.free = 300 * MIB
    await store.health.check()
    await store.change(decided(puts=[new_queue("more")]), actor=ACTOR, now_ms=NOW_MS)
    await store.close()


async def test_room_that_messages_and_their_events_have_left_counts(
    tmp_path: Path, room: Room
) -> None:
    store = await opened(tmp_path)
    queue = new_queue("q")
    await store.change(decided(puts=[queue]), actor=ACTOR, now_ms=NOW_MS)
    for _ in range(20):
        large = [Draft(b"x" * MIB)]
        await store.publish([(queue.id, large)], actor=ACTOR, now_ms=NOW_MS)
    room.free = 250 * MIB
    with pytest.raises(OutOfSpace):
        await store.health.check()
    while await store.purge(queue.id, upto_seq=99, limit=5, actor=ACTOR, now_ms=NOW_MS):
        pass
    assert (await store.sweep(limit=9, now_ms=NOW_MS)).short
    await store.journal.trim(upto=99)
    assert not (await store.sweep(limit=9, now_ms=NOW_MS)).short
    await store.health.check()
    await store.publish([(queue.id, [Draft(b"a")])], actor=ACTOR, now_ms=NOW_MS)
    await store.close()


async def test_the_mark_is_a_part_of_a_small_disk(tmp_path: Path, room: Room) -> None:
    mib = 10_000 // 16
    store = await EmbeddedStore.open(tmp_path / "courier.db", disk_free_bytes_min=1 << 40)
    room.free = (mib + 1) * MIB
    await store.health.check()
    room.free = (mib - 1) * MIB
    with pytest.raises(OutOfSpace):
        await store.health.check()
    await store.close()


async def test_without_a_mark_nothing_is_held_back(tmp_path: Path, room: Room) -> None:
    room.free = 0
    store = await EmbeddedStore.open(tmp_path / "courier.db")
    await store.health.check()
    assert not list(tmp_path.glob("*.reserve"))
    await store.close()


def test_below_the_mark_the_journal_gives_up_what_every_pipeline_has_read(
    tmp_path: Path, room: Room
) -> None:
    async def story() -> None:
        store = await opened(tmp_path)
        clock = ManualClock(NOW_MS)
        sweeper = Sweeper(
            store,
            clock,
            every_ms=1,
            batch_max=100,
            journal_retention_ms=DAY_MS,
            journal_bytes_max=1 << 40,
        )
        queue = new_queue("q")
        await store.change(decided(puts=[queue]), actor=ACTOR, now_ms=NOW_MS)
        for _ in range(9):
            await store.publish([(queue.id, [Draft(b"a")])], actor=ACTOR, now_ms=NOW_MS)
        await store.purge(queue.id, upto_seq=9, limit=9, actor=ACTOR, now_ms=NOW_MS)

        async def first_after(read: int, free: int) -> int:
            """Where the journal begins after a turn, when a pipeline has read so far."""
            lake = Pipeline(
                id="p" * 32, tenant="", created_ms=1, name="lake", offset=read, seen_ms=1
            )
            await store.change(decided(puts=[lake]), actor=ACTOR, now_ms=clock.now_ms())
            room.free = free
            clock.advance(10_000)
            await sweeper.turn()
            return (await store.journal.head()).first

        assert await first_after(5, free=300 * MIB) == 1
        assert await first_after(5, free=200 * MIB) == 6
        assert sweeper.forced_trims
        assert await first_after(9, free=300 * MIB) == 6
        assert await first_after(9, free=200 * MIB) == 10
        await store.close()

    asyncio.run(story())


def test_a_disk_that_is_gone_is_one_sentence(tmp_path: Path, room: Room) -> None:
    async def story() -> None:
        store = await opened(tmp_path)
        room.gone = True
        with pytest.raises(StoreUnavailable, match="No such file or directory"):
            await store.sweep(limit=1, now_ms=NOW_MS)
        with pytest.raises(StoreUnavailable, match="No such file or directory"):
            await store.health.check()
        room.gone = False
        await store.health.check()
        await store.close()

    asyncio.run(story())


@pytest.mark.parametrize("file", ["-wal", ".db"], ids=["commit", "checkpoint"])
def test_a_reserve_that_cannot_be_given_up_stops_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    """On a full disk that copies on write, making a file shorter can fail as well."""

    def truncate(path: object, _: int) -> None:
        raise OSError(ENOSPC, os.strerror(ENOSPC), str(path))

    async def story(disk: LyingDisk) -> None:
        store = await opened(tmp_path)
        queue, draft = new_queue("q"), Draft(b"x" * 9_000)
        await store.change(decided(puts=[queue]), actor=ACTOR, now_ms=NOW_MS)
        disk.fault = Fault(("write",), 1, "ENOSPC", file=file)
        refused = 0
        async with asyncio.timeout(20):
            for _ in range(200):
                try:
                    await store.publish([(queue.id, [draft])], actor=ACTOR, now_ms=NOW_MS)
                except (StoreUnavailable, OutOfSpace):
                    refused += 1
        assert disk.failed and refused == (file == "-wal")
        await store.close()

    monkeypatch.setattr(os, "truncate", truncate)
    with small_store(), lying_disk(tmp_path) as disk:
        asyncio.run(story(disk))
