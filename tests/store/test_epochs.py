"""A database that has lost what was answered: the journal gets a new epoch, and servers go on."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from courier.cli.main import main
from courier.core.records import Change, Records
from courier.core.types import Draft, Queue
from courier.store.embedded import EmbeddedStore
from courier.store.shared import SharedStore
from tests import postgres
from tests.conformance.store.driver import CALLER, SEALER

QUEUE = Queue(id="c0" + "1" * 30, tenant="t", name="q", created_ms=0, modified_ms=0)


def _put(records: Records) -> Change[None]:
    return Change(puts=[QUEUE])


async def publish(store: SharedStore | EmbeddedStore, *bodies: str) -> None:
    drafts = [Draft(body.encode()) for body in bodies]
    await store.publish([(QUEUE.id, drafts)], actor=CALLER, now_ms=1)


async def epoch(store: SharedStore | EmbeddedStore) -> str:
    return (await store.journal.head()).epoch


def come_back_after(event: asyncio.Event, node: SharedStore) -> None:
    connect = node.writer._address.connect

    async def later(**how: bool) -> Any:
        await event.wait()
        return await connect(**how)

    node.writer._address.connect = later  # type: ignore[method-assign]


@pytest.fixture
def pair() -> Iterator[tuple[postgres.Database, postgres.Database]]:
    """A primary and a standby for which nobody waits."""
    primary = postgres.Database("fsync=off")
    standby = postgres.Database("fsync=off", of=primary)
    yield primary, standby
    primary.remove()
    standby.remove()


@pytest.mark.slow
@pytest.mark.parametrize("written_since", [0, 1])
def test_a_standby_that_lacks_commits_begins_a_new_epoch(
    pair: tuple[postgres.Database, postgres.Database], written_since: int
) -> None:
    """Whether those who lack nothing have written fewer, as many or more groups before those who
    know of the loss come back."""
    primary, standby = pair
    places = f"127.0.0.1:{primary.port},127.0.0.1:{standby.port}"
    url = f"postgresql://courier@{places}/postgres?schema=courier"

    def cut_off() -> None:
        standby.sql("ALTER SYSTEM SET primary_conninfo = ''", "SELECT pg_reload_conf()")
        while standby.sql("SELECT count(*) FROM pg_stat_wal_receiver").strip() != "0":
            pass

    async def story() -> tuple[list[str], list[str], list[bytes], list[int]]:
        one, two = [await SharedStore.open(url, sealer=SEALER) for _ in range(2)]
        await one.change(_put, actor=CALLER, now_ms=1)
        await publish(one, "kept")
        await two.writer.current()
        before = [await epoch(node) for node in (one, two)]
        caught_up = f"SELECT count(*) FROM courier.head WHERE grp >= {one.disk.seen}"
        while (await asyncio.to_thread(standby.sql, caught_up)).strip() != "1":
            await asyncio.sleep(0.05)
        await asyncio.to_thread(cut_off)
        await publish(one, "lost")
        back = asyncio.Event()
        for node in (one, two):
            come_back_after(back, node)
        await asyncio.to_thread(primary.crash)
        await asyncio.to_thread(standby.promote)
        # A server that knows of nothing that was lost writes first.
        three = await SharedStore.open(standby.url("courier"), sealer=SEALER)
        for number in range(written_since):
            await publish(three, f"since{number}")
        back.set()
        async with asyncio.timeout(20):
            await publish(one, "after")
            for node in (two, three):
                await node.writer.current()
        after = [await epoch(node) for node in (one, two, three)]
        leased = await two.lease(QUEUE.id, count=99, lease_ms=1_000, actor=CALLER, now_ms=1)
        runs = await three.journal.read(after=0, limit=1_000)
        offsets = [run.offset + n for run in runs for n in range(run.count)]
        for node in (one, two, three):
            await node.close()
        return before, after, [message.body for message in leased.messages], offsets

    before, after, bodies, offsets = asyncio.run(story())
    assert len({*before}) == len({*after}) == 1
    assert before[0] != after[0]
    since = [f"since{number}".encode() for number in range(written_since)]
    assert bodies == [b"kept", *since, b"after"]
    assert offsets == list(range(1, len(offsets) + 1))


def test_after_a_restore_the_operator_begins_a_new_epoch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = postgres.url_of(tmp_path / "restored")

    async def shared() -> str:
        store = await SharedStore.open(url, sealer=SEALER)
        found = await epoch(store)
        await store.close()
        return found

    async def embedded() -> str:
        store = await EmbeddedStore.open(tmp_path / "courier.db", sealer=SEALER)
        found = await epoch(store)
        await store.close()
        return found

    for place, opened in ((url, shared), (f"sqlite:{tmp_path}", embedded)):
        before = asyncio.run(opened())
        assert asyncio.run(opened()) == before
        main(["store", "restored", place, "--json"])
        told = json.loads(capsys.readouterr().out)
        assert told == {"epoch": asyncio.run(opened()), "before": before}
        assert told["epoch"] != before
