"""Rates of an open page: the running minute and the one before."""

import asyncio
from pathlib import Path
from typing import Any

from courier import ids
from courier.console.recent import QUIET, Recent
from courier.core.records import decided
from courier.core.types import MINUTE_MS, Actor, Draft, Queue
from courier.store.embedded import EmbeddedStore

CALLER = Actor(id="caller", dialect="test")
TENANT = "c0" + "7" * 30
NOW_MS = 1_794_950_040_000


class _Counted:
    """Past verbs that count how often tallies are asked for."""

    def __init__(self, past: Any) -> None:
        self.asked = 0
        self._past = past

    async def tallies(self, **asked: Any) -> Any:
        self.asked += 1
        return await self._past.tallies(**asked)


async def _story(directory: Path) -> None:
    store = await EmbeddedStore.open(directory / "courier.db")
    past: Any = _Counted(store.past)
    store.past = past
    queues = [
        Queue(id=ids.new_id(), tenant=TENANT, name=name, created_ms=NOW_MS, modified_ms=NOW_MS)
        for name in ("one", "two", "quiet")
    ]
    one, two, quiet = [queue.id for queue in queues]
    await store.change(decided(puts=queues), actor=CALLER, now_ms=NOW_MS)
    recent, whole = Recent(store), Recent(store)

    async def check(now_ms: int, **expected: float) -> None:
        latest = await recent.latest(TENANT, [one, two, quiet], now_ms)
        histories = await whole.of(TENANT, now_ms)
        for id, name in ((one, "one"), (two, "two"), (quiet, "quiet")):
            for kind in ("published", "acked"):
                rate = latest.get(id, QUIET).rate(kind, 15)
                assert rate == histories.get(id, QUIET).rate(kind, 15), (name, kind)
            assert latest.get(id, QUIET).rate("published", 15) == expected.get(name, 0) / 75

    await check(NOW_MS)
    for minute, (queue, count) in enumerate(((one, 3), (two, 5), (two, 7))):
        now_ms = NOW_MS + minute * MINUTE_MS
        await store.publish([(queue, [Draft(b"x")] * count)], actor=CALLER, now_ms=now_ms)
        expected = ({"one": 3}, {"one": 3, "two": 5}, {"two": 12})[minute]
        await check(now_ms, **expected)
    before = past.asked
    for _ in range(3):
        await recent.latest(TENANT, [one, two], now_ms)
    assert past.asked == before, "nothing happened, so nothing is asked for"
    await check(now_ms + 5 * MINUTE_MS)
    await store.close()


def test_an_open_page_has_the_rates_of_the_whole_list_and_asks_only_when_something_happened(
    tmp_path: Path,
) -> None:
    asyncio.run(_story(tmp_path))
