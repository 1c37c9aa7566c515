"""How requests are counted, and when the counts are in the store."""

import asyncio
from collections.abc import Mapping

import pytest

from courier.core.errors import StoreUnavailable
from courier.core.usage import Usage
from tests.oracle.parts import Past
from tests.oracle.store import Oracle

TENANT = "c0" + "7" * 30


class BusyPast(Past):
    """Takes its time to write, as one with a disk does."""

    def __init__(self, store: Oracle) -> None:
        super().__init__(store)
        self.writes = asyncio.Event()
        self.may_write = asyncio.Event()

    async def tally(self, counts: Mapping[tuple[str, str], int], *, now_ms: int) -> None:
        self.writes.set()
        await self.may_write.wait()
        await super().tally(counts, now_ms=now_ms)


async def test_what_somebody_else_is_writing_is_in_the_store_after_a_flush() -> None:
    store = Oracle()
    past = BusyPast(store)
    usage = Usage(past)
    usage.request(TENANT)
    sweep = asyncio.create_task(usage.flush(now_ms=0))
    await past.writes.wait()
    asked = asyncio.create_task(usage.flush(now_ms=0))
    await asyncio.sleep(0)
    past.may_write.set()
    await asked
    (tally,) = await store.past.tallies(tenant=TENANT, since_ms=0, until_ms=1)
    assert tally.count == 1
    await sweep


class FailingPast(Past):
    """Cannot write as long as `away`."""

    away = True

    async def tally(self, counts: Mapping[tuple[str, str], int], *, now_ms: int) -> None:
        if self.away:
            raise StoreUnavailable("away")
        await super().tally(counts, now_ms=now_ms)


async def test_what_could_not_be_written_is_written_by_the_next_flush() -> None:
    store = Oracle()
    past = FailingPast(store)
    usage = Usage(past)
    usage.request(TENANT)
    with pytest.raises(StoreUnavailable):
        await usage.flush(now_ms=0)
    usage.request(TENANT)
    past.away = False
    await usage.flush(now_ms=0)
    (tally,) = await store.past.tallies(tenant=TENANT, since_ms=0, until_ms=1)
    assert tally.count == 2
