"""Tallies and levels: what shares a commit, what a restart finds, what is summed up in parts."""

import asyncio
from pathlib import Path

from courier import ids
from courier.core.records import decided
from courier.core.store import Store
from courier.core.types import DAY_MS, HOUR_MS, MINUTE_MS, Actor, Draft, Level, Queue, Tally
from courier.store.embedded import EmbeddedStore

ACTOR = Actor("somebody", "test")
HOUR_BEGAN_MS = 1_700_000_000_000 // HOUR_MS * HOUR_MS
NOW_MS = HOUR_BEGAN_MS + 5 * MINUTE_MS
MINUTE = NOW_MS // MINUTE_MS


def new_queue() -> Queue:
    return Queue(id=ids.new_id(), tenant="t", name="q", created_ms=NOW_MS, modified_ms=NOW_MS)


async def publish(store: Store, queue: Queue, now_ms: int) -> None:
    await store.publish([(queue.id, [Draft(b"a")])], actor=ACTOR, now_ms=now_ms)


async def test_calls_of_two_minutes_that_share_a_commit_are_told_apart(tmp_path: Path) -> None:
    store = await EmbeddedStore.open(tmp_path / "courier.db")
    queue = new_queue()
    await store.change(decided(puts=[queue]), actor=ACTOR, now_ms=NOW_MS)
    commits = store.health.figures()["commits"]
    minutes = [0, 0, 3, 4, 4, 4]
    times_ms = [NOW_MS + minute * MINUTE_MS for minute in minutes]
    await asyncio.gather(*(publish(store, queue, now_ms) for now_ms in times_ms))
    assert store.health.figures()["commits"] == commits + 1
    assert (await store.past.levels([queue.id], since_ms=0))[0] == [
        Level(MINUTE + 2, 2, 0, 0),
        Level(MINUTE + 3, 3, 0, 0),
    ]
    tallies = await store.past.tallies(
        tenant="t", id=queue.id, since_ms=NOW_MS + MINUTE_MS, until_ms=NOW_MS + HOUR_MS
    )
    assert [(tally.minute, tally.count) for tally in tallies] == [
        (MINUTE + 3, 1),
        (MINUTE + 4, 3),
    ]
    await store.close()


async def test_a_restart_within_a_minute_changes_no_level(tmp_path: Path) -> None:
    queue = new_queue()
    for minute in (0, 0, 2, 2, 3):
        store = await EmbeddedStore.open(tmp_path / "courier.db")
        if store.records.get(Queue, queue.id) is None:
            await store.change(decided(puts=[queue]), actor=ACTOR, now_ms=NOW_MS)
        await publish(store, queue, NOW_MS + minute * MINUTE_MS)
        levels = (await store.past.levels([queue.id], since_ms=0))[0]
        await store.close()
    assert levels == [Level(MINUTE + 1, 2, 0, 0), Level(MINUTE + 2, 4, 0, 0)]


def test_many_old_minutes_are_summed_up_in_parts(tmp_path: Path) -> None:
    minutes = range(130)
    late_ms = NOW_MS + 17 * DAY_MS

    async def tallies(store: Store) -> list[Tally]:
        return await store.past.tallies(tenant="u", since_ms=0, until_ms=late_ms)

    async def story() -> None:
        store = await EmbeddedStore.open(tmp_path / "courier.db")
        for minute in minutes:
            counts = {("u", "requested"): 1 + minute, ("v", "requested"): 1}
            await store.past.tally(counts, now_ms=NOW_MS + minute * MINUTE_MS)
        sizes = []
        for _ in range(3):
            swept = await store.sweep(limit=50, now_ms=late_ms)
            assert swept.more
            sizes.append(len(await tallies(store)))
        assert len(minutes) > sizes[0] > sizes[1] > sizes[2] > 3

        # Whoever comes next goes on from there.
        await store.close()
        store = await EmbeddedStore.open(tmp_path / "courier.db")
        while (await store.sweep(limit=50, now_ms=late_ms)).more:
            pass
        hour = HOUR_BEGAN_MS // MINUTE_MS
        assert [(tally.minute, tally.count) for tally in await tallies(store)] == [
            (hour, sum(range(1, 56))),
            (hour + 60, sum(range(56, 116))),
            (hour + 120, sum(range(116, 131))),
        ]

        # What ages later joins its hour.
        await store.past.tally({("u", "requested"): 1_000}, now_ms=NOW_MS + 130 * MINUTE_MS)
        late_again_ms = late_ms + MINUTE_MS
        assert not (await store.sweep(limit=50, now_ms=late_again_ms)).more
        assert (await tallies(store))[-1].minute == hour + 135
        await store.close()

    asyncio.run(story())


async def test_an_offset_is_found_where_the_clock_was_set_back(tmp_path: Path) -> None:
    store = await EmbeddedStore.open(tmp_path / "courier.db")
    queue = new_queue()
    await store.change(decided(puts=[queue]), actor=ACTOR, now_ms=NOW_MS)
    # Two share a commit, and the first of them is the later one.
    await asyncio.gather(*(publish(store, queue, NOW_MS + ms) for ms in (40, 10)))
    for ms in (20, 30):
        await publish(store, queue, NOW_MS + ms)
    await store.close()
    store = await EmbeddedStore.open(tmp_path / "courier.db")
    for ms in (35, 50):
        await publish(store, queue, NOW_MS + ms)
    wanted = {0: 0, 1: 1, 10: 1, 40: 1, 41: 6, 50: 6, 51: 7}
    found = {ms: await store.journal.offset_at(NOW_MS + ms) for ms in wanted}
    assert found == wanted
    await store.close()


async def test_an_offset_is_found_without_reading_the_whole_journal(tmp_path: Path) -> None:
    rows = 2_000
    store = await EmbeddedStore.open(tmp_path / "courier.db")
    queue = new_queue()
    await store.change(decided(puts=[queue]), actor=ACTOR, now_ms=NOW_MS)
    for i in range(rows):
        await publish(store, queue, NOW_MS + i)
    read: list[str] = []
    reader = store.disk._readers.submit(store.disk._reader)
    reader.result().set_profile(lambda sql, _: read.append(sql))
    for ms in (0, 1, 777, rows - 1, rows):
        read.clear()
        # One event for each commit, after that of the queue.
        assert await store.journal.offset_at(NOW_MS + ms) == (ms + 1 if ms else 0)
        # The last packet, those halved between, the one found, and its blocks.
        assert len([sql for sql in read if "SELECT" in sql]) <= 3 + rows.bit_length()
    await store.close()
