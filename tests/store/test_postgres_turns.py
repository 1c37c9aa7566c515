"""Servers that write at the same time take turns, and need not."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import pytest

from courier.core.records import Change, Records
from courier.core.types import Ack, Draft, Queue
from courier.store.disk_postgres import turns
from courier.store.shared import SharedStore
from tests import postgres
from tests.conformance.store.driver import CALLER, SEALER

QUEUE = Queue(id="c0" + "1" * 30, tenant="t", name="q", created_ms=0, modified_ms=0)
CALLERS = 24
ANSWER_SECONDS_MAX = 30.0
# Of the connections that write groups; the rest are notices and duties.
STATEMENTS = """
SELECT sum(calls) FROM pg_stat_statements
WHERE query NOT LIKE '%pg_stat%' AND query NOT LIKE '%node%' AND query NOT LIKE '%notify%'
"""


def _put(records: Records) -> Change[None]:
    return Change(puts=[QUEUE])


async def cycle(node: SharedStore, body: str) -> list[str]:
    await node.publish([(QUEUE.id, [Draft(body.encode())])], actor=CALLER, now_ms=1)
    leased = await node.lease(QUEUE.id, count=1, lease_ms=1_000, actor=CALLER, now_ms=1)
    acks = [Ack(message.seq, message.attempts) for message in leased.messages]
    await node.settle(QUEUE.id, acks, actor=CALLER, now_ms=1)
    return [message.body.decode() for message in leased.messages]


@asynccontextmanager
async def two(url: str) -> AsyncIterator[list[SharedStore]]:
    nodes = [await SharedStore.open(url, sealer=SEALER) for _ in range(2)]
    await nodes[0].change(_put, actor=CALLER, now_ms=1)
    yield nodes
    for node in nodes:
        await node.close()


async def _busy(nodes: list[SharedStore], name: str, times: int) -> Counter[str]:
    """What callers got who go from one server to the other."""
    found: Counter[str] = Counter()

    async def call(number: int) -> None:
        for turn in range(times):
            node = nodes[(number + turn) % len(nodes)]
            found.update(await cycle(node, f"{name}-{number}-{turn}"))

    await asyncio.gather(*(call(number) for number in range(CALLERS)))
    return found


@pytest.mark.slow
def test_servers_that_write_at_once_do_so_in_three_statements_a_group() -> None:
    """One at a time they took six: begin, lock, learn, look for messages, write, commit."""
    database = postgres.Database("shared_preload_libraries=pg_stat_statements", "fsync=off")

    async def story() -> tuple[float, Counter[str]]:
        async with two(database.url("courier")) as nodes:
            watch = await asyncpg.connect(database.url("courier").partition("?")[0])
            await watch.execute("CREATE EXTENSION pg_stat_statements")
            found = await _busy(nodes, "first", 10)
            await watch.execute("SELECT pg_stat_statements_reset()")
            before = sum(node.writer.groups for node in nodes)
            found += await _busy(nodes, "then", 20)
            groups = sum(node.writer.groups for node in nodes) - before
            statements = int(await watch.fetchval(STATEMENTS))
            await watch.close()
            return statements / groups, found

    try:
        statements, found = asyncio.run(story())
    finally:
        database.remove()
    assert set(found.values()) == {1} and len(found) == 30 * CALLERS
    assert statements < 3.5


def test_a_server_that_sleeps_in_its_turn_holds_nobody_up(tmp_path: Path) -> None:
    """Others wait for it once, and then lock."""
    url = postgres.url_of(tmp_path / "turns")

    async def story() -> tuple[list[float], Counter[str]]:
        schema = url.partition("schema=")[2]
        async with two(url) as nodes:
            sleeper = await asyncpg.connect(url.partition("?")[0])
            await sleeper.fetchval(turns._TAKE, turns.Turns(schema)._key, "1000")
            loop, waits = asyncio.get_running_loop(), []
            found: Counter[str] = Counter()
            for turn in range(10):
                began_s = loop.time()
                async with asyncio.timeout(ANSWER_SECONDS_MAX):
                    found.update(await cycle(nodes[turn % 2], str(turn)))
                waits.append(loop.time() - began_s)
            await sleeper.close()
            return waits, found

    waits, found = asyncio.run(story())
    assert set(found.values()) == {1} and len(found) == 10
    asked_s = turns.WAIT_MS_MAX / 1_000
    assert sum(wait >= asked_s for wait in waits) <= 2, waits


def test_who_slept_in_its_turn_writes_nothing_from_what_it_knew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It believes that nobody else has written, which is not so any more."""
    url = postgres.url_of(tmp_path / "slept")

    async def story() -> tuple[Counter[str], int]:
        async with two(url) as (slow, other):
            found = Counter(await cycle(slow, "before"))
            monkeypatch.setattr(slow.writer, "_look", lambda: asyncio.sleep(0.01))
            await other.publish([(QUEUE.id, [Draft(b"meanwhile")])], actor=CALLER, now_ms=1)
            slow.writer._turns._mine = True
            found.update(await cycle(slow, "after"))
            found.update(await cycle(slow, "at last"))
            left = (await other.stats([QUEUE.id], now_ms=1))[QUEUE.id].count
            return found, left

    found, left = asyncio.run(story())
    assert found == {"before": 1, "meanwhile": 1, "after": 1} and left == 1
