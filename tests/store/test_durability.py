"""An answer means that the disk has it: counted at SQLite's own door to the file system."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from courier import ids
from courier.core.records import decided
from courier.core.types import Ack, Actor, Draft, Queue
from courier.store.embedded import EmbeddedStore

ACTOR = Actor("somebody", "test")
NOW_MS = 1_700_000_000_000


class CountedFile(apsw.VFSFile):
    def __init__(
        self, base: str, name: str | apsw.URIFilename | None, flags: list[int], counts: list[int]
    ) -> None:
        super().__init__(base, name, flags)
        self._counts = counts
        self._is_wal = str(name.filename() if isinstance(name, apsw.URIFilename) else name)

    def xSync(self, flags: int) -> None:
        super().xSync(flags)
        if self._is_wal.endswith("-wal"):
            self._counts[0] += 1


class CountedFiles(apsw.VFS):
    """The default file system, with its syncs of write-ahead logs counted."""

    def __init__(self, counts: list[int]) -> None:
        self._base = apsw.vfs_names()[0]
        self._counts = counts
        super().__init__("counted", self._base, makedefault=True)

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        return CountedFile(self._base, name, flags, self._counts)


@pytest.fixture
def syncs() -> Iterator[list[int]]:
    counts = [0]
    files = CountedFiles(counts)
    yield counts
    files.unregister()


@pytest.mark.parametrize("inline_ms_max", [0, 1, 60_000])
async def test_no_verb_returns_before_the_log_was_synced(
    tmp_path: Path, syncs: list[int], inline_ms_max: int
) -> None:
    store = await EmbeddedStore.open(tmp_path / "courier.db", commit_inline_ms_max=inline_ms_max)
    queue = Queue(id=ids.new_id(), tenant="t", name="q", created_ms=1, modified_ms=1)
    before = syncs[0]
    await store.change(decided(puts=[queue]), actor=ACTOR, now_ms=NOW_MS)
    assert syncs[0] > before
    # More rounds than it takes the writer to learn whether the disk is fast.
    for _ in range(40):
        before = syncs[0]
        await store.publish([(queue.id, [Draft(b"a")])], actor=ACTOR, now_ms=NOW_MS)
        published = syncs[0]
        assert published > before
        leased = await store.lease(queue.id, count=1, lease_ms=1_000, actor=ACTOR, now_ms=NOW_MS)
        assert syncs[0] > published
        before = syncs[0]
        acks = [Ack(message.seq, message.attempts) for message in leased.messages]
        await store.settle(queue.id, acks, actor=ACTOR, now_ms=NOW_MS)
        assert syncs[0] > before
    await store.close()


async def test_callers_at_the_same_time_share_a_sync(tmp_path: Path, syncs: list[int]) -> None:
    store = await EmbeddedStore.open(tmp_path / "courier.db")
    queue = Queue(id=ids.new_id(), tenant="t", name="q", created_ms=1, modified_ms=1)
    await store.change(decided(puts=[queue]), actor=ACTOR, now_ms=NOW_MS)
    before = syncs[0]
    await asyncio.gather(
        *(
            store.publish([(queue.id, [Draft(b"a")])], actor=ACTOR, now_ms=NOW_MS)
            for _ in range(200)
        )
    )
    assert 1 <= syncs[0] - before <= 5
    assert (await store.stats([queue.id], now_ms=NOW_MS))[queue.id].count == 200
    await store.close()


async def test_reading_syncs_nothing(tmp_path: Path, syncs: list[int]) -> None:
    store = await EmbeddedStore.open(tmp_path / "courier.db")
    queue = Queue(id=ids.new_id(), tenant="t", name="q", created_ms=1, modified_ms=1)
    await store.change(decided(puts=[queue]), actor=ACTOR, now_ms=NOW_MS)
    # The first one is remembered: pullers use this queue.
    await store.messages.peek(queue.id, count=1, now_ms=NOW_MS)
    before = syncs[0]
    await store.messages.peek(queue.id, count=1, now_ms=NOW_MS)
    await store.stats([queue.id], now_ms=NOW_MS)
    await store.lease(queue.id, count=1, lease_ms=1, actor=ACTOR, now_ms=NOW_MS)
    assert syncs[0] == before
    await store.close()
