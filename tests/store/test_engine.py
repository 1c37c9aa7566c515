"""What the engine promises of its layout: checksums, numbers used again, space, one file format."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from courier import ids
from courier.core.errors import NotFound, OverLimit, StoreDamaged, StoreUnavailable
from courier.core.records import decided
from courier.core.types import Ack, Actor, Draft, Queue
from courier.store.embedded import EmbeddedStore
from courier.store.engine import layout
from courier.store.engine.layout import LineNumbers

ACTOR = Actor("somebody", "test")
NOW_MS = 1_700_000_000_000


def new_queue(name: str = "q") -> Queue:
    return Queue(id=ids.new_id(), tenant="t", name=name, created_ms=1, modified_ms=1)


def told(path: Path, story: Callable[[EmbeddedStore], Awaitable[None]], **options: Any) -> None:
    async def run() -> None:
        store = await EmbeddedStore.open(path, **options)
        try:
            await story(store)
        finally:
            await store.close()

    asyncio.run(run())


async def published(store: EmbeddedStore, queue: Queue, *bodies: bytes) -> None:
    drafts = [Draft(body) for body in bodies]
    await store.publish([(queue.id, drafts)], actor=ACTOR, now_ms=NOW_MS)


async def taken(store: EmbeddedStore, queue: Queue, count: int) -> list[bytes]:
    """Lease and acknowledge."""
    leased = await store.lease(queue.id, count=count, lease_ms=9, actor=ACTOR, now_ms=NOW_MS)
    acks = [Ack(message.seq, 1) for message in leased.messages]
    await store.settle(queue.id, acks, actor=ACTOR, now_ms=NOW_MS)
    return [message.body for message in leased.messages]


@pytest.mark.parametrize("column", ["data", "meta"])
def test_a_damaged_block_is_an_error_and_never_a_wrong_body(tmp_path: Path, column: str) -> None:
    path = tmp_path / "courier.db"
    queue, other = new_queue(), new_queue("other")

    async def fill(store: EmbeddedStore) -> None:
        await store.change(decided(puts=[queue, other]), actor=ACTOR, now_ms=NOW_MS)
        await published(store, queue, b"good body")
        await published(store, other, b"other")

    async def read(store: EmbeddedStore) -> None:
        for verb in (
            store.messages.peek(queue.id, count=1, now_ms=NOW_MS),
            store.lease(queue.id, count=1, lease_ms=9, actor=ACTOR, now_ms=NOW_MS),
            store.journal.read(after=0, limit=9),
        ):
            with pytest.raises(StoreDamaged):
                await verb
        assert store.health.figures()["damaged_reads"] == 3
        # Others are not affected.
        assert await taken(store, other, 1) == [b"other"]

    told(path, fill)
    db = apsw.Connection(str(path))
    found: bytes = db.execute(f"SELECT {column} FROM block ORDER BY id LIMIT 1").get
    bad = found[:-1] + bytes([found[-1] ^ 1])
    db.execute(f"UPDATE block SET {column} = ? WHERE id = (SELECT min(id) FROM block)", (bad,))
    db.close()
    told(path, read)


def test_damage_fails_no_other_call_of_its_group_and_the_store_is_not_ready(tmp_path: Path) -> None:
    path = tmp_path / "courier.db"
    queue, other = new_queue(), new_queue("other")

    async def fill(store: EmbeddedStore) -> None:
        await store.change(decided(puts=[queue, other]), actor=ACTOR, now_ms=NOW_MS)
        await published(store, queue, b"bad")
        await store.health.check()

    async def read(store: EmbeddedStore) -> None:
        for _ in range(2):
            damaged, *others = await asyncio.gather(
                store.lease(queue.id, count=1, lease_ms=9, actor=ACTOR, now_ms=NOW_MS),
                published(store, other, b"one"),
                store.messages.peek(other.id, count=1, now_ms=NOW_MS),
                return_exceptions=True,
            )
            assert isinstance(damaged, StoreDamaged)
            assert not [each for each in others if isinstance(each, BaseException)]
        with pytest.raises(StoreUnavailable, match="damaged"):
            await store.health.check()
        assert await taken(store, other, 9) == [b"one"] * 2

    told(path, fill)
    db = apsw.Connection(str(path))
    db.execute("DELETE FROM block")
    db.close()
    told(path, read)


@pytest.mark.parametrize("table", ["record", "line"])
def test_settings_that_cannot_be_read_are_one_sentence_at_the_start(
    tmp_path: Path, table: str
) -> None:
    path = tmp_path / "courier.db"
    queue = new_queue()

    async def fill(store: EmbeddedStore) -> None:
        await store.change(decided(puts=[queue]), actor=ACTOR, now_ms=NOW_MS)
        await published(store, queue, b"a")
        await store.lease(queue.id, count=1, lease_ms=9, actor=ACTOR, now_ms=NOW_MS)

    told(path, fill)
    db = apsw.Connection(str(path))
    db.execute("UPDATE record SET body = x'7b'" if table == "record" else "DELETE FROM line")
    db.close()
    with pytest.raises(StoreUnavailable, match=r"damaged .*restore a backup"):
        told(path, fill)


def test_a_file_of_a_newer_courier_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "courier.db"

    async def nothing(store: EmbeddedStore) -> None: ...

    told(path, nothing)
    db = apsw.Connection(str(path))
    db.execute("PRAGMA user_version = 999999")
    db.close()
    with pytest.raises(StoreUnavailable, match="newer Courier"):
        told(path, nothing)


def test_a_block_in_anothers_place_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "courier.db"
    queue = new_queue()

    async def fill(store: EmbeddedStore) -> None:
        await store.change(decided(puts=[queue]), actor=ACTOR, now_ms=NOW_MS)
        await published(store, queue, b"a")
        await published(store, queue, b"b")

    async def read(store: EmbeddedStore) -> None:
        with pytest.raises(StoreDamaged):
            await store.messages.peek(queue.id, count=1, now_ms=NOW_MS)

    told(path, fill)
    db = apsw.Connection(str(path))
    db.execute(
        "UPDATE block SET (data, data_sum) = (SELECT data, data_sum FROM block"
        " ORDER BY id DESC LIMIT 1) WHERE id = (SELECT min(id) FROM block)"
    )
    db.close()
    told(path, read)


def test_a_damaged_packet_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "courier.db"
    queue = new_queue()

    async def fill(store: EmbeddedStore) -> None:
        await store.change(decided(puts=[queue]), actor=ACTOR, now_ms=NOW_MS)
        await published(store, queue, b"a")

    async def read(store: EmbeddedStore) -> None:
        with pytest.raises(StoreDamaged):
            await store.journal.read(after=0, limit=9)
        assert await taken(store, queue, 1) == [b"a"]

    told(path, fill)
    db = apsw.Connection(str(path))
    db.execute("UPDATE packet SET data = CAST(data || x'00' AS BLOB) WHERE last = 1")
    db.close()
    told(path, read)


def test_a_line_number_is_used_again_once_the_journal_is_past_its_messages(tmp_path: Path) -> None:
    async def story(store: EmbeddedStore) -> None:
        kept, gone = new_queue("kept"), new_queue("gone")
        await store.change(decided(puts=[kept, gone]), actor=ACTOR, now_ms=NOW_MS)
        number = store.book.lines[gone.id].no
        await published(store, gone, b"a")
        await store.change(decided(drops=[gone]), actor=ACTOR, now_ms=NOW_MS)
        while (await store.sweep(limit=9, now_ms=NOW_MS)).more:
            pass
        early = new_queue("early")
        await store.change(decided(puts=[early]), actor=ACTOR, now_ms=NOW_MS)
        assert store.book.lines[early.id].no != number
        bodies = [run.columns.get("body") for run in await store.journal.read(after=0, limit=99)]
        assert [b"a"] in bodies
        last = (await store.journal.head()).last
        await store.journal.trim(upto=last)
        late = new_queue("late")
        await store.change(decided(puts=[late]), actor=ACTOR, now_ms=NOW_MS)
        assert store.book.lines[late.id].no == number
        await published(store, late, b"b")
        assert await taken(store, late, 9) == [b"b"]

    told(tmp_path / "courier.db", story)


def test_numbers_run_out_with_an_error_and_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(store: EmbeddedStore) -> None:
        monkeypatch.setattr(layout, "LINES_MAX", 4)
        queues = [new_queue(str(number)) for number in range(4)]
        await store.change(decided(puts=queues[:2]), actor=ACTOR, now_ms=NOW_MS)
        with pytest.raises(OverLimit, match="number of queues and listeners"):
            await store.change(decided(puts=queues[2:]), actor=ACTOR, now_ms=NOW_MS)
        assert store.records.scan(Queue) == queues[:2]
        await store.change(decided(puts=queues[2:3]), actor=ACTOR, now_ms=NOW_MS)

    told(tmp_path / "courier.db", story)


def test_the_log_says_that_numbers_run_out_before_they_do(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(layout, "LINES_MAX", 20)
    numbers = LineNumbers(())
    for _ in range(17):
        numbers.take()
    assert caplog.messages == []
    numbers.take()
    assert caplog.messages == ["line_numbers_low"]
    [record] = caplog.records
    assert vars(record)["limit"] == 19


def test_numbers_cover_four_million_lines_and_each_is_given_once() -> None:
    assert layout.LINES_MAX == 4_194_304
    numbers = LineNumbers(())
    taken = {numbers.take() for _ in range(layout.LINES_MAX - 1)}
    assert len(taken) == layout.LINES_MAX - 1
    assert all(-(1 << 63) <= no << layout.SEQ_BITS < 1 << 63 for no in (min(taken), max(taken)))
    with pytest.raises(OverLimit):
        numbers.take()
    numbers.free(7)
    assert numbers.take() == 7


def test_many_changes_of_settings_share_a_commit(tmp_path: Path) -> None:
    async def story(store: EmbeddedStore) -> None:
        commits = store.health.figures()["commits"]
        queues = [new_queue(str(number)) for number in range(50)]
        await asyncio.gather(
            *(store.change(decided(puts=[queue]), actor=ACTOR, now_ms=NOW_MS) for queue in queues)
        )
        assert store.health.figures()["commits"] - commits <= 3
        assert len(store.records.scan(Queue)) == 50

    told(tmp_path / "courier.db", story)


def test_of_calls_that_run_as_one_only_the_one_too_many_is_refused(tmp_path: Path) -> None:
    async def story(store: EmbeddedStore) -> None:
        queue = new_queue()
        await store.change(decided(puts=[queue]), actor=ACTOR, now_ms=NOW_MS)

        def publish(size: int) -> Awaitable[Any]:
            batch = (queue.id, [Draft(b"x" * size)])
            return store.publish([batch], actor=ACTOR, now_ms=NOW_MS, bytes_max=10)

        calls = [publish(size) for size in (4, 7, 5, 2, 1)]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        assert [isinstance(answer, OverLimit) for answer in answers] == [0, 1, 0, 1, 0]
        missing = [store.lease("c0", count=1, lease_ms=9, actor=ACTOR, now_ms=NOW_MS)] * 1
        with pytest.raises(NotFound):
            await missing[0]

    told(tmp_path / "courier.db", story)


def test_the_dead_of_an_old_block_take_no_space(tmp_path: Path) -> None:
    """One live message in every block, and the journal past them: the others' bodies go."""

    async def story(store: EmbeddedStore) -> None:
        queue = new_queue()
        await store.change(decided(puts=[queue]), actor=ACTOR, now_ms=NOW_MS)
        for _ in range(20):
            drafts = [
                Draft(b"x" * 1_000, headers={"k": "v" * 500}, id=f"own-{n}") for n in range(100)
            ]
            await store.publish([(queue.id, drafts)], actor=ACTOR, now_ms=NOW_MS)
        leased = await store.lease(queue.id, count=2_000, lease_ms=9, actor=ACTOR, now_ms=NOW_MS)
        acks = [Ack(each.seq, 1) for each in leased.messages if each.seq % 100]
        await store.settle(queue.id, acks, actor=ACTOR, now_ms=NOW_MS)

        def stored() -> int:
            sizes = "SELECT sum(length(data) + length(meta)) FROM block"
            size: int = store.disk.db.execute(sizes).get
            return size

        assert stored() > 3_000_000
        await store.journal.trim(upto=(await store.journal.head()).last)
        assert stored() < 50_000
        left = await store.messages.browse(queue.id, after_seq=0, limit=99, now_ms=NOW_MS)
        assert [message.body for message in left] == [b"x" * 1_000] * 20
        assert {str(message.headers) for message in left} == {str({"k": "v" * 500})}

    told(tmp_path / "courier.db", story, block_cache_bytes=0)


def test_what_was_cycled_and_trimmed_is_gone(tmp_path: Path) -> None:
    async def story(store: EmbeddedStore) -> None:
        queue = new_queue()
        await store.change(decided(puts=[queue]), actor=ACTOR, now_ms=NOW_MS)
        for _ in range(30):
            await published(store, queue, *[b"x" * 500] * 100)
            assert len(await taken(store, queue, 100)) == 100
            await store.journal.trim(upto=(await store.journal.head()).last)
        tables = ("block", "range", "delivery", "expiry", "packet")
        counts = [store.disk.db.execute(f"SELECT count(*) FROM {table}").get for table in tables]
        assert max(counts) <= 1

    told(tmp_path / "courier.db", story)
