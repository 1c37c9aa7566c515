"""A file of an older schema, or one that was never finished, opens and goes on."""

import asyncio
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import apsw
import msgspec
import pytest

from courier import ids
from courier.core.errors import RowsChanged
from courier.core.types import (
    MINUTE_MS,
    Ack,
    Actor,
    Draft,
    Level,
    Listener,
    Outcome,
    Pushed,
    Queue,
    QueueStats,
    Report,
)
from courier.store.sqlite import SqliteStore
from tests.conformance.store.driver import SEALER

ACTOR = Actor("somebody", "test")
NOW_MS = 1_700_000_000_000
MINUTE = NOW_MS // MINUTE_MS
LANE = 1 << 42
LINE = 1 << 43


def queue(name: str, tenant: str = "t") -> Queue:
    return Queue(id=ids.new_id(), tenant=tenant, name=name, created_ms=NOW_MS, modified_ms=NOW_MS)


LIVE, GONE = queue("live"), queue("gone", "u")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "courier.db"


@pytest.fixture
def old(path: Path) -> Iterator[apsw.Connection]:
    """The first schema, to be filled by hand."""
    db = apsw.Connection(str(path))
    script = files("courier.store.sqlite").joinpath("migrations", "0001_start.sql")
    db.execute(script.read_text())
    db.execute("PRAGMA user_version = 1")
    yield db
    db.close()


def fill(db: apsw.Connection) -> None:
    """One queue with a leased, a delayed and a new message, all of one group; one dropped."""
    db.execute("INSERT INTO meta (one, epoch, secret) VALUES (1, 'epoch', ?)", (bytes(32),))
    db.execute("INSERT INTO record VALUES ('Queue', ?, ?)", (LIVE.id, msgspec.json.encode(LIVE)))
    db.execute(
        "INSERT INTO subscription (no, queue, tail, cursor, count, bytes, leased, delayed, held)"
        " VALUES (1, ?, 3, 1, 3, 6, 1, 1, 1)",
        (LIVE.id,),
    )
    db.execute(
        "INSERT INTO subscription (no, queue, tail, count, bytes, dropped)"
        " VALUES (2, ?, 1, 1, 4, ?)",
        (GONE.id, msgspec.json.encode(GONE)),
    )
    for key, body in (
        (LINE | 1, b"a"),
        (LINE | LANE | 2, b"bb"),
        (LINE | 3, b"ccc"),
        (2 * LINE | 1, b"gone"),
    ):
        db.execute(
            "INSERT INTO message VALUES (?, ?, ?, 'text', NULL, NULL, 'g', NULL, NULL, ?)",
            (key, NOW_MS, len(body), body),
        )
    for row in (
        (LINE | 1, 1, 0, 1, NOW_MS + 1_000, NOW_MS, NOW_MS, NOW_MS, 1, None),
        (LINE | 2, 2, 1, 0, NOW_MS + 500, NOW_MS, None, None, 2, None),
    ):
        db.execute("INSERT INTO delivery VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
    for id, kind, count in ((LIVE.id, "published", 3), (GONE.id, "published", 1), ("", "key", 9)):
        db.execute("INSERT INTO minute VALUES (?, ?, ?, ?, ?)", (MINUTE, id, kind, count, 5))


def test_messages_leases_and_minutes_of_the_first_schema_go_on(
    path: Path, old: apsw.Connection
) -> None:
    fill(old)
    old.close()

    async def story() -> None:
        store = await SqliteStore.open(path, sealer=SEALER)
        stats = (await store.stats([LIVE.id], now_ms=NOW_MS))[LIVE.id]
        assert stats == QueueStats(3, 6, NOW_MS, leased=1, delayed=1)
        assert await store.settle(LIVE.id, [Ack(1, 1)], actor=ACTOR, now_ms=NOW_MS) == [
            Outcome.DONE
        ]
        later_ms = NOW_MS + MINUTE_MS
        leased = await store.lease(LIVE.id, count=9, lease_ms=1_000, actor=ACTOR, now_ms=later_ms)
        # A queue that is not FIFO keeps the group of its messages, and pays no attention to it.
        assert [(m.body, m.group, m.delay_ms) for m in leased.messages] == [
            (b"bb", "g", None),
            (b"ccc", "g", None),
        ]
        assert await store.levels(LIVE.id, since_ms=0) == [Level(MINUTE, 2, 0, 1)]
        while (await store.sweep(limit=10, now_ms=later_ms)).more:
            pass

        async def tallied(tenant: str) -> list[tuple[str, str, int]]:
            found = await store.tallies(tenant=tenant, since_ms=0, until_ms=2 * NOW_MS)
            return [(tally.id, tally.kind, tally.count) for tally in found]

        assert await tallied("t") == [
            (LIVE.id, "acked", 1),
            (LIVE.id, "published", 3),
            (LIVE.id, "leased", 2),
        ]
        assert await tallied("u") == [(GONE.id, "published", 1), (GONE.id, "deleted", 1)]
        assert await tallied("") == []
        await store.close()

    asyncio.run(story())


@pytest.mark.parametrize("version", [1, 2])
def test_queues_of_an_older_schema_can_have_listeners(
    path: Path, old: apsw.Connection, version: int
) -> None:
    fill(old)
    if version == 2:
        migrations = files("courier.store.sqlite").joinpath("migrations")
        old.execute(migrations.joinpath("0002_groups_and_levels.sql").read_text())
        old.execute("PRAGMA user_version = 2")
    old.close()
    listener = Listener(
        id=ids.new_id(),
        tenant="t",
        parent=LIVE.id,
        created_ms=NOW_MS,
        title="mill",
        modified_ms=NOW_MS,
        url="https://mill.example/push",
        liveness_url="https://mill.example/live",
    )

    async def story() -> None:
        store = await SqliteStore.open(path, sealer=SEALER)
        await store.change(puts=[listener], actor=ACTOR, now_ms=NOW_MS)
        await store.publish([(LIVE.id, [Draft(b"dddd")])], actor=ACTOR, now_ms=NOW_MS)
        bound = await store.backfill(
            listener.id, since_ms=0, until_ms=NOW_MS + 1, after_seq=0, limit=9, now_ms=NOW_MS
        )
        assert bound == (3, 4)
        # A lease of the older schema is acked, and its message is kept for the listener.
        await store.settle(LIVE.id, [Ack(1, 1)], actor=ACTOR, now_ms=NOW_MS)
        await store.close()

        store = await SqliteStore.open(path, sealer=SEALER)
        taken = await store.take_pushes(listener.id, count=9, lease_ms=9, now_ms=NOW_MS)
        assert [message.body for message in taken] == [b"a", b"bb", b"ccc", b"dddd"]
        pushed = [Pushed(message.seq, 1, Report(200)) for message in taken]
        assert await store.settle_pushes(listener.id, pushed, now_ms=NOW_MS) == [True] * 4
        left = await store.browse(LIVE.id, after_seq=0, limit=9, now_ms=NOW_MS, kept=True)
        assert [message.body for message in left] == [b"bb", b"ccc", b"dddd"]
        assert (await store.stats([LIVE.id], now_ms=NOW_MS))[LIVE.id].count == 3
        await store.close()

    asyncio.run(story())


def test_rows_of_an_older_schema_are_counted_and_not_compared(
    path: Path, old: apsw.Connection
) -> None:
    fill(old)
    migrations = files("courier.store.sqlite").joinpath("migrations")
    for number, name in enumerate(
        ("0002_groups_and_levels", "0003_pushes", "0004_rows", "0005_claims"), start=2
    ):
        old.execute(migrations.joinpath(f"{name}.sql").read_text())
        old.execute(f"PRAGMA user_version = {number}")
    until_ms = NOW_MS + MINUTE_MS
    old.execute("INSERT INTO rows_stored VALUES (1, 'k', 2, ?)", (until_ms,))
    old.close()

    async def story() -> None:
        nonlocal until_ms
        store = await SqliteStore.open(path, sealer=SEALER)

        async def send(marks: list[bytes], *, now_ms: int = NOW_MS) -> int:
            return await store.publish_rows(
                LIVE.id,
                [Draft(b"x")] * (len(marks) - 1),
                key="k",
                first=0,
                until_ms=until_ms,
                actor=ACTOR,
                now_ms=now_ms,
                marks=marks,
            )

        assert await send([b"", b"1", b"2", b"3"]) == 1
        assert await send([b"", b"4", b"5", b"6", b"7"]) == 1
        until_ms += MINUTE_MS
        assert await send([b"", b"1", b"2"], now_ms=until_ms - MINUTE_MS) == 2
        with pytest.raises(RowsChanged):
            await send([b"", b"1", b"3"], now_ms=until_ms - 1)
        await store.close()

    asyncio.run(story())


def test_a_file_that_was_left_while_it_was_made_is_finished(
    path: Path, old: apsw.Connection
) -> None:
    old.close()

    async def story() -> bytes:
        store = await SqliteStore.open(path, sealer=SEALER)
        one = queue("one")
        await store.change(puts=[one], actor=ACTOR, now_ms=NOW_MS)
        await store.publish([(one.id, [Draft(b"a")])], actor=ACTOR, now_ms=NOW_MS)
        assert (await store.stats([one.id], now_ms=NOW_MS))[one.id].count == 1
        await store.close()
        return store.secret

    secret = asyncio.run(story())
    assert len(secret) == 32

    async def reopened() -> bytes:
        store = await SqliteStore.open(path, sealer=SEALER)
        await store.close()
        return store.secret

    assert asyncio.run(reopened()) == secret
