"""Queues that are created at the same time share commits, and keep every limit all the same."""

import asyncio
from pathlib import Path

from courier import ids
from courier.clock import ManualClock
from courier.core.admin import Admin
from courier.core.errors import Conflict, OverLimit
from courier.core.keys import Reach
from courier.core.limits import Limits
from courier.core.records import decided
from courier.core.types import Actor, Queue
from courier.store.embedded import EmbeddedStore
from tests.core import tenants

ACTOR = Actor("somebody", "test")
TENANT = "c0" + "7" * 30
CALLERS = 20


def new(name: str) -> Queue:
    return Queue(id=ids.new_id(), tenant=TENANT, name=name, created_ms=1, modified_ms=1)


async def opened(directory: Path) -> EmbeddedStore:
    store = await EmbeddedStore.open(directory / "courier.db")
    await store.change(decided(puts=tenants(TENANT)), actor=ACTOR, now_ms=1)
    return store


async def created(store: EmbeddedStore, names: list[str], limits: Limits) -> list[object]:
    admin = Admin(store, ManualClock(), limits)
    calls = [admin.create_queue(new(name), actor=ACTOR) for name in names]
    return await asyncio.gather(*calls, return_exceptions=True)


async def test_as_many_are_created_as_may_be(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    names = [f"q{number}" for number in range(CALLERS)]
    answers = await created(store, names, Limits(queues_max=12))
    refused = [each for each in answers if isinstance(each, OverLimit)]
    assert len(refused) == CALLERS - 12
    assert len(store.records.scan(Queue)) == 12
    await store.close()


async def test_one_of_those_that_have_the_same_name_is_created(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    answers = await created(store, ["same"] * CALLERS, Limits())
    assert sum(isinstance(each, Conflict) for each in answers) == CALLERS - 1
    assert len(store.records.scan(Queue)) == 1
    await store.close()


def test_of_those_who_put_the_same_queue_one_creates_it_and_the_others_change_it(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        store = await opened(tmp_path)
        admin = Admin(store, ManualClock(), Limits())
        reach = Reach("queues:write")

        def edit(current: Queue | None, _: Queue | None) -> Queue:
            return current or new("same")

        puts = [
            admin.put_queue(TENANT, "same", edit, reach=reach, actor=ACTOR) for _ in range(CALLERS)
        ]
        queues = await asyncio.gather(*puts)
        assert len({queue.id for queue in queues}) == 1
        assert [queue.id for queue in store.records.scan(Queue)] == [queues[0].id]
        await store.close()

    asyncio.run(story())


async def test_they_share_commits(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    names = [f"q{number}" for number in range(200)]
    await created(store, names, Limits())
    packets: int = store.disk.db.execute("SELECT count(*) FROM packet").get
    assert packets <= 20
    await store.close()
