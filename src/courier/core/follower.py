"""The loop that follows the journal and announces what is news in it.

It is a registered reader of the journal as long as anybody subscribes to such news. How far it
has come is written down now and then only: what it announces again after a crash is recognised,
and not stored twice.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

from courier.clock import Clock
from courier.core import news
from courier.core.admin import Admin
from courier.core.announcer import Announcer, Pair
from courier.core.duties import Duty
from courier.core.errors import StoreUnavailable
from courier.core.store import Store
from courier.core.types import (
    BROKER,
    OPERATOR,
    SECOND_MS,
    EventSubscription,
    Listener,
    Pipeline,
    Queue,
)

READER = "courier.events"
PAGE = 1_000
PAGE_BYTES_MAX = 4 << 20
# About how many messages are published in one transaction; those of one event are not parted.
PORTION = 250
POLL_S = 0.1
IDLE_S = 5.0
SETTLE_S_MAX = 30.0
COMMIT_EVERY_MS = SECOND_MS

log = logging.getLogger("courier.follower")


class Follower:
    def __init__(self, store: Store, admin: Admin, clock: Clock, announcer: Announcer) -> None:
        self._store = store
        self._records = store.records
        self._admin = admin
        self._clock = clock
        self._announcer = announcer
        self._turn = asyncio.Lock()
        self._woken = asyncio.Event()
        # What happened up to here is announced. None: nobody subscribes, nothing is followed.
        self._position: int | None = None
        self._committed: int | None = None
        self._committed_ms = 0

    def duty(self) -> Duty:
        """To follow. What cannot be read or written now is tried again."""

        async def turn() -> float:
            async with self._turn:
                return await self._step()

        def lost() -> None:
            self._position = self._committed = None

        return Duty("follower", turn, "events_not_followed", IDLE_S, log, lost, self._woken)

    @asynccontextmanager
    async def settled(self) -> AsyncIterator[int]:
        """Inside, all that happened up to the given offset is announced, and nothing after it.

        So a subscription that is changed in here is changed for what comes after alone.
        """
        async with self._turn:
            last = (await self._store.journal.head()).last
            try:
                async with asyncio.timeout(SETTLE_S_MAX):
                    if self._position is None:
                        await self._begin()
                    while self._position is not None and self._position < last:
                        await self._page()
            except TimeoutError:
                raise StoreUnavailable("earlier events are still being announced") from None
            try:
                yield max(last, self._position or 0)
            finally:
                self._woken.set()

    async def _step(self) -> float:
        """Follow one page; returns after how many seconds to come again."""
        if self._position is None and not await self._begin():
            return IDLE_S
        more = await self._page()
        if self._clock.now_ms() - self._committed_ms >= COMMIT_EVERY_MS:
            await self._commit()
        return 0 if more else POLL_S

    async def _begin(self) -> bool:
        """Find out whether there is anything to follow, and from where."""
        subscriptions = self._subscriptions()
        if not subscriptions:
            await self._leave()
            return False
        known = self._records.named(Pipeline, tenant=OPERATOR, name=READER)
        self._committed = known.offset if known else None
        self._position = known.offset if known else min(each.since for each in subscriptions)
        await self._commit()
        return True

    async def _leave(self) -> None:
        """Let go of the journal."""
        self._position = self._committed = None
        if self._records.named(Pipeline, tenant=OPERATOR, name=READER):
            await self._admin.delete_pipeline(READER, actor=BROKER)

    async def _commit(self) -> None:
        if self._position is not None and self._position != self._committed:
            await self._admin.commit_pipeline(READER, self._position, actor=BROKER)
            self._committed = self._position
            self._committed_ms = self._clock.now_ms()

    def _subscriptions(self) -> list[EventSubscription]:
        return [each for each in self._records.scan(EventSubscription) if news.follows(each)]

    async def _page(self) -> bool:
        """Announce what is news in the next events; False: there are none."""
        position = self._position
        last = (await self._store.journal.head()).last
        if position is None or position >= last:
            return False
        runs = await self._store.journal.read(after=position, limit=PAGE, bytes_max=PAGE_BYTES_MAX)
        # Asked for after reading, so that all that existed at the time of an event are there.
        subscriptions = self._subscriptions()
        if not subscriptions:
            await self._leave()
            return False
        if runs and runs[0].offset > position + 1:
            log.warning("events_missed", extra={"after": position, "first": runs[0].offset})
        if news.has_any(runs):
            queues = {queue.id: queue for queue in self._records.scan(Queue)}
            listeners = {each.id: each for each in self._records.scan(Listener)}
            told = news.pairs(runs, subscriptions, queues, listeners, after=position)
            # A run may hold very many events, and the server has others to serve meanwhile.
            while portion := await asyncio.to_thread(_portion, told):
                await self._announcer.tell(portion)
        # Runs come whole, and what is past the page has been looked at too.
        self._position = runs[-1].offset + runs[-1].count - 1 if runs else last
        return True


def _portion(told: Iterator[list[Pair]]) -> list[Pair]:
    portion: list[Pair] = []
    for pairs in told:
        portion += pairs
        if len(portion) >= PORTION:
            break
    return portion
