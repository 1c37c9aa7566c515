"""Duties of several servers: what one does for all is refused once another has the duty."""

import asyncio
from collections.abc import Coroutine
from contextvars import copy_context
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest

from courier.clock import ManualClock
from courier.core import duties
from courier.core.duties import FENCE, Duty, DutyLost, Fence
from courier.core.records import Change, Records
from courier.core.types import Draft, Queue
from courier.store.shared import SharedStore
from tests import postgres
from tests.conformance.store.driver import CALLER, SEALER
from tests.core.test_duties import LOG

QUEUE = Queue(id="c0" + "1" * 30, tenant="t", name="q", created_ms=0, modified_ms=0)
T = TypeVar("T")


def _put(records: Records) -> Change[None]:
    return Change(puts=[QUEUE])


async def hold(store: SharedStore) -> int | None:
    return (await store.hold(["test"], now_ms=1)).get("test")


def publish(store: SharedStore, body: bytes) -> Coroutine[Any, Any, Any]:
    return store.publish([(QUEUE.id, [Draft(body)])], actor=CALLER, now_ms=1)


async def under(fence: Fence, verb: Coroutine[Any, Any, T]) -> T:
    context = copy_context()
    context.run(FENCE.set, fence)
    return await asyncio.get_running_loop().create_task(verb, context=context)


async def two_stores(url: str) -> tuple[SharedStore, SharedStore]:
    one, two = [await SharedStore.open(url, sealer=SEALER) for _ in range(2)]
    await one.change(_put, actor=CALLER, now_ms=1)
    return one, two


def expire(url: str) -> None:
    """As if the holder of a duty had not asked for it again."""
    schema = url.rpartition("=")[2]
    postgres.server().sql(f"UPDATE {schema}.duty SET until = '-infinity'")


async def bodies(store: SharedStore) -> list[bytes]:
    leased = await store.lease(QUEUE.id, count=9, lease_ms=1_000, actor=CALLER, now_ms=1)
    return [message.body for message in leased.messages]


def test_what_is_written_under_an_old_fence_is_refused(tmp_path: Path) -> None:
    url = postgres.url_of(tmp_path / "fence")

    async def story() -> tuple[list[int | None], list[bytes]]:
        one, two = await two_stores(url)
        fences = [await hold(node) for node in (one, two, one)]
        await under(Fence("test", 1), publish(one, b"first"))
        await asyncio.to_thread(expire, url)
        fences.append(await hold(two))
        neighbour = asyncio.create_task(publish(one, b"of a caller"))
        with pytest.raises(DutyLost):
            await under(Fence("test", 1), publish(one, b"late"))
        await neighbour
        await under(Fence("test", 2), publish(two, b"second"))
        # Who gets it back gets another fence, and the old one stays refused.
        await asyncio.to_thread(expire, url)
        fences.append(await hold(one))
        with pytest.raises(DutyLost):
            await under(Fence("test", 1), publish(one, b"late again"))
        await under(Fence("test", 3), publish(one, b"third"))
        found = await bodies(two)
        await one.close()
        await two.close()
        return fences, found

    fences, found = asyncio.run(story())
    assert fences == [1, None, 1, 2, 3]
    assert found == [b"first", b"of a caller", b"second", b"third"]


def test_a_server_that_leaves_gives_its_duties_away(tmp_path: Path) -> None:
    url = postgres.url_of(tmp_path / "leave")

    async def story() -> list[int | None]:
        one, two = await two_stores(url)
        fences = [await hold(one)]
        await one.close()
        fences.append(await hold(two))
        await two.close()
        return fences

    assert asyncio.run(story()) == [1, 2]


def test_a_long_step_keeps_its_duty_and_one_that_lost_it_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(duties, "RENEW_EVERY_S", 0.01)
    url = postgres.url_of(tmp_path / "long")

    async def story() -> tuple[list[str], list[bytes]]:
        one, two = await two_stores(url)
        happened: list[str] = []
        asked = asyncio.Event()

        async def turn() -> float | None:
            happened.append("turn")
            if len(happened) > 1:
                return None
            await publish(one, b"first")
            await asked.wait()
            await publish(one, b"late")
            return 0.0

        lost = partial(happened.append, "lost")
        duty = Duty("test", turn, "test_failed", 0.0, LOG, lost)
        running = asyncio.create_task(duties.run(duty, one, ManualClock()))
        while not happened:
            await asyncio.sleep(0.01)
        renewed = 0
        schema = url.rpartition("=")[2]
        for _ in range(2):
            # Its right is renewed although the step is not over.
            await asyncio.to_thread(expire, url)
            found = "-infinity"
            while found == "-infinity":
                sql = f"SELECT until FROM {schema}.duty"
                found = (await asyncio.to_thread(postgres.server().sql, sql)).strip()
            renewed += 1
        assert renewed == 2
        sql = f"UPDATE {schema}.duty SET token = 7, fence = fence + 1, until = 'infinity'"
        await asyncio.to_thread(postgres.server().sql, sql)
        asked.set()
        while "lost" not in happened:
            await asyncio.sleep(0.01)
        await asyncio.to_thread(expire, url)
        await asyncio.wait_for(running, 30)
        found_bodies = await bodies(two)
        await one.close()
        await two.close()
        return happened, found_bodies

    happened, found = asyncio.run(story())
    assert happened == ["turn", "lost", "turn"]
    assert found == [b"first"]


def test_servers_share_evenly_and_take_over_from_those_who_left(tmp_path: Path) -> None:
    url = postgres.url_of(tmp_path / "shares")
    parts = [f"part/{number}" for number in range(8)]

    async def story() -> list[dict[str, int]]:
        one = await SharedStore.open(url, sealer=SEALER)

        async def share(node: SharedStore) -> dict[str, int]:
            return await node.hold(parts, now_ms=1, evenly=True)

        shares = [await share(one)]
        two = await SharedStore.open(url, sealer=SEALER)
        await asyncio.sleep(0.1)  # until it has said that it runs
        shares += [await share(node) for node in (one, two, one, two)]
        await one.close()
        shares.append(await share(two))
        await two.close()
        return shares

    alone, first, second, again, second_again, left = asyncio.run(story())
    assert alone == dict.fromkeys(parts, 1)
    assert first == again and second == second_again
    assert len(first) == len(second) == 4
    assert first.keys() | second.keys() == set(parts)
    # What changed hands has another fence.
    assert {*first.values()} == {1} and {*second.values()} == {2}
    assert left == dict.fromkeys(parts, 2)
