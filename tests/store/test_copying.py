"""A store copied from a file into a database and back is the same store."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from courier.cli.main import main
from courier.core.errors import StoreUnavailable
from courier.core.records import Change, Records
from courier.core.store import Store
from courier.core.types import Ack, Draft, Listener, Numbering, Queue, Retry
from courier.store import copying
from courier.store.copying import copy
from courier.store.disk_postgres.copies import PostgresCopy
from courier.store.disk_sqlite.copies import SqliteCopy
from courier.store.embedded import EmbeddedStore
from courier.store.shared import SharedStore
from tests import postgres
from tests.conformance.store.driver import CALLER, SEALER

NOW_MS = 1_700_000_000_000
QUEUE = Queue(id="c0" + "1" * 30, tenant="t", name="q", created_ms=0, modified_ms=0)
FIFO = Queue(id="c0" + "2" * 30, tenant="t", name="f", created_ms=0, modified_ms=0, fifo=True)
LISTENER = Listener(
    id="c0" + "3" * 30,
    tenant="t",
    parent=QUEUE.id,
    name="l",
    title="l",
    url="http://a",
    liveness_url="http://a",
    created_ms=0,
    modified_ms=0,
)


def _put(records: Records) -> Change[None]:
    return Change(puts=[QUEUE, FIFO, LISTENER])


async def fill(store: Store) -> None:
    """Some of everything."""
    do: Callable[[], dict[str, Any]] = partial(dict, actor=CALLER, now_ms=NOW_MS)
    await store.change(_put, **do())
    drafts = [Draft(f"m{number}".encode()) for number in range(300)]
    await store.publish([(QUEUE.id, drafts)], **do())
    odd = Draft(b"odd", id="ä\x00b", delay_ms=5_000, once_key="k\x00ey", ttl_ms=9_000)
    await store.publish([(QUEUE.id, [odd])], **do())
    await store.publish([(FIFO.id, [Draft(b"g", group="gr\x00up"), Draft(b"h")])], **do())
    leased = await store.lease(QUEUE.id, count=50, lease_ms=60_000, **do())
    settled = [Ack(m.seq, m.attempts) for m in leased.messages[:20]]
    back = [Retry(m.seq, m.attempts, delay_ms=1_000) for m in leased.messages[20:30]]
    await store.settle(QUEUE.id, [*settled, *back], **do())
    await store.lease(FIFO.id, count=1, lease_ms=60_000, **do())
    await store.rows.publish(
        QUEUE.id, [Draft(b"r")], Numbering("rows", 0, NOW_MS + 60_000, None), **do()
    )
    await store.claims.take(QUEUE.id, "claim", count=5, lease_ms=60_000, **do())
    await store.pushes.take(LISTENER.id, count=3, lease_ms=60_000, now_ms=NOW_MS)


async def state(store: Store) -> list[Any]:
    """What callers can see of it."""
    head = await store.journal.head()
    runs = await store.journal.read(after=0, limit=10_000)
    stats = await store.stats([QUEUE.id, FIFO.id], now_ms=NOW_MS)
    pushes = await store.pushes.stats([LISTENER.id], now_ms=NOW_MS)
    records = [store.records.scan(kind) for kind in (Queue, Listener)]
    return [head, runs, stats, pushes, records, store.secret]


async def opened_file(path: Path) -> EmbeddedStore:
    return await EmbeddedStore.open(path, sealer=SEALER, block_messages=16)


async def opened_database(url: str) -> SharedStore:
    return await SharedStore.open(url, sealer=SEALER)


async def seen(store: Store) -> list[Any]:
    found = await state(store)
    await store.close()
    return found


def test_a_store_is_the_same_there_and_back(tmp_path: Path) -> None:
    url = postgres.url_of(tmp_path / "target")

    async def story() -> tuple[list[Any], list[list[bytes]]]:
        store = await opened_file(tmp_path / "courier.db")
        await fill(store)
        found = [await seen(store)]
        source = SqliteCopy.source(tmp_path / "courier.db")
        target = await PostgresCopy.target(url)
        there = await copy(source, target)
        await source.close()
        await target.close()
        found.append(await seen(await opened_database(url)))
        other = await PostgresCopy.source(url)
        back = SqliteCopy.target(tmp_path / "back" / "courier.db")
        again = await copy(other, back)
        await other.close()
        await back.close()
        assert there == again
        assert {name for name, each in there.tables.items() if not each.rows} <= {"level"}
        stores = [await opened_database(url), await opened_file(tmp_path / "back" / "courier.db")]
        found.append(await state(stores[1]))
        # Leases go on, what is free is handed out, and delays end when they would have.
        bodies: list[list[bytes]] = []
        for each in stores:
            for now_ms in (NOW_MS, NOW_MS + 6_000, NOW_MS + 61_000):
                leased = await each.lease(
                    QUEUE.id, count=400, lease_ms=1_000, actor=CALLER, now_ms=now_ms
                )
                bodies.append([message.body for message in leased.messages])
            await each.close()
        return found, bodies

    found, bodies = asyncio.run(story())
    assert found[0] == found[1] == found[2]
    assert bodies[:3] == bodies[3:]
    assert bodies[0][0] == b"m55" and b"odd" in bodies[1]


class Broken(Exception):
    pass


async def _copied(
    path: Path, url: str, *, fails_at: int | None = None, restart: bool = False
) -> copying.Copied:
    """`fails_at`: at the so manieth write."""
    source = SqliteCopy.source(path)
    target = await PostgresCopy.target(url)
    try:
        if fails_at is not None:
            _break(target, fails_at)
        return await copy(source, target, restart=restart)
    finally:
        await source.close()
        await target.close()


def _break(target: PostgresCopy | SqliteCopy, at: int) -> None:
    write: Callable[..., Any] = target.write
    left = at

    async def failing(table: Any, rows: Sequence[Any]) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise Broken
        await write(table, rows)

    target.write = failing  # type: ignore[method-assign]


def test_a_copy_that_was_broken_off_goes_on_and_no_server_opens_it(tmp_path: Path) -> None:
    url, path = postgres.url_of(tmp_path / "target"), tmp_path / "courier.db"

    async def story() -> None:
        store = await opened_file(path)
        await fill(store)
        before = await seen(store)
        for writes in (1, 2, 4):
            with pytest.raises(Broken):
                await _copied(path, url, fails_at=writes)
            with pytest.raises(StoreUnavailable, match="holds an unfinished copy"):
                await opened_database(url)
        # A server changed the source meanwhile: the copy would be neither before nor after.
        store = await opened_file(path)
        first = await store.lease(QUEUE.id, count=1, lease_ms=9, actor=CALLER, now_ms=NOW_MS)
        await store.close()
        assert first.messages
        with pytest.raises(StoreUnavailable, match="the copy differs in"):
            await _copied(path, url)
        await _copied(path, url, restart=True)
        after = await seen(await opened_database(url))
        assert after != before
        assert after == await seen(await opened_file(path))

    asyncio.run(story())


def test_a_copy_into_a_file_that_was_broken_off_goes_on_and_no_server_begins_another(
    tmp_path: Path,
) -> None:
    """A server that began with an empty store there would keep the copy from its place."""
    path, there = tmp_path / "courier.db", tmp_path / "there" / "courier.db"

    async def copied(fails_at: int = 0) -> None:
        source, target = SqliteCopy.source(path), SqliteCopy.target(there)
        try:
            if fails_at:
                _break(target, fails_at)
            await copy(source, target)
        finally:
            await source.close()
            await target.close()

    async def story() -> None:
        store = await opened_file(path)
        await fill(store)
        before = await seen(store)
        for fails_at in (1, 3):
            with pytest.raises(Broken):
                await copied(fails_at)
            with pytest.raises(StoreUnavailable, match="is an unfinished copy"):
                await opened_file(there)
        await copied()
        assert await seen(await opened_file(there)) == before

    asyncio.run(story())


def test_no_server_starts_while_a_store_is_copied(tmp_path: Path) -> None:
    """Neither on the source nor on the target; nor is there a second copy."""
    path, back = tmp_path / "courier.db", tmp_path / "back" / "courier.db"
    url, other = postgres.url_of(tmp_path / "target"), postgres.url_of(tmp_path / "other")
    refused: dict[str, str] = {}

    async def tried(**calls: Callable[[], Awaitable[Any]]) -> None:
        for name, call in calls.items():
            with pytest.raises(StoreUnavailable) as caught:
                await call()
            refused[name] = str(caught.value)

    async def story() -> None:
        store = await opened_file(path)
        await fill(store)
        await store.close()
        source, target = SqliteCopy.source(path), await PostgresCopy.target(url)
        await target.begin(await source.meta(), restart=False)
        await tried(
            file=lambda: opened_file(path),
            target=lambda: opened_database(url),
            copy=lambda: PostgresCopy.target(url),
        )
        # Another store of the same database is none of its business.
        await (await opened_database(other)).close()
        await copy(source, target)
        await source.close()
        await target.close()
        again, file = await PostgresCopy.source(url), SqliteCopy.target(back)
        await file.begin(await again.meta(), restart=False)
        await tried(database=lambda: opened_database(url), back=lambda: opened_file(back))
        await file.close()
        await again.close()
        await (await opened_database(url)).close()

    asyncio.run(story())
    assert "another courier process is using" in refused["file"] and refused["back"]
    assert "is being copied: start when that is done" in refused["target"]
    assert "is being copied: start when that is done" in refused["database"]
    assert "is being copied, or a server is just starting" in refused["copy"]


def test_what_is_in_use_or_a_store_already_is_refused(tmp_path: Path) -> None:
    url, path = postgres.url_of(tmp_path / "target"), tmp_path / "courier.db"

    async def refusals() -> list[str]:
        said: list[str] = []

        async def refused(call: Callable[[], Any]) -> None:
            with pytest.raises(StoreUnavailable) as caught:
                found = call()
                if asyncio.iscoroutine(found):
                    await found
            said.append(str(caught.value))

        await refused(lambda: SqliteCopy.source(tmp_path / "nothing.db"))
        await refused(lambda: PostgresCopy.source(url.replace("schema=", "schema=no_")))
        store = await opened_file(path)
        await refused(lambda: SqliteCopy.source(path))
        await store.close()
        await refused(lambda: SqliteCopy.target(path))
        shared = await opened_database(url)
        await asyncio.sleep(0.2)
        await refused(lambda: PostgresCopy.source(url))
        await shared.close()
        await refused(lambda: PostgresCopy.target(url))
        return said

    said = asyncio.run(refusals())
    expected = ["there is no store at", "there is no store at", "another courier process",
                "is a store already", "servers are running on", "is a store already"]  # fmt: skip
    assert [want in found for want, found in zip(expected, said, strict=True)] == [True] * 6, said


def test_the_command_copies_counts_and_says_what_it_would_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = postgres.url_of(tmp_path / "target")

    async def filled() -> None:
        store = await opened_file(tmp_path / "courier.db")
        await fill(store)
        await store.close()

    asyncio.run(filled())
    ask = ["store", "copy", "--from", f"sqlite:{tmp_path}", "--to", url, "--json"]
    assert main([*ask, "--dry-run"]) == 0
    planned = json.loads(capsys.readouterr().out)["tables"]
    assert main(ask) == 0
    done = json.loads(capsys.readouterr().out)["tables"]
    assert {name: each["rows"] for name, each in done.items()} == planned
    assert main(ask) == 1
    assert "is a store already" in capsys.readouterr().err
    assert main(["store", "copy", "--from", "elsewhere", "--to", url]) == 2
    assert main([*ask[:-1], "--from", "postgresql://u:secret@h/d"]) == 2
