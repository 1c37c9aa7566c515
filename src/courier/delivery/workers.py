"""Push consumers: batches of a queue go to the URL where the operator runs its script."""

import asyncio
import logging

from courier.core.duties import Shares
from courier.core.errors import Unavailable
from courier.core.types import SECOND_MS, Consumer
from courier.delivery.feed import Feed, Services

LOOK_EVERY_S = 0.5

log = logging.getLogger("courier.workers")


class Workers:
    """One feed for each push consumer."""

    def __init__(self, services: Services, *, drain_wait_ms_max: int) -> None:
        self._services = services
        self._shares = Shares("workers", services.store, services.clock)
        self._drain_wait_s = drain_wait_ms_max / SECOND_MS
        self._feeds: dict[str, tuple[Feed, asyncio.Task[None]]] = {}
        self._drained_s: float | None = None

    async def run(self) -> None:
        """Feed consumers as they come and go, until cancelled; then let running calls end."""
        try:
            while True:
                try:
                    if self._drained_s is None:
                        await self._shares.ask()
                        self._look()
                except Unavailable as error:
                    log.warning("consumers_not_seen", extra={"reason": str(error)})
                await asyncio.sleep(LOOK_EVERY_S)
        finally:
            await self._stop()

    def _look(self) -> None:
        for id, (feed, task) in [*self._feeds.items()]:
            if task.done():
                del self._feeds[id]
            elif feed.fence != self._shares.of(id):
                feed.stop()
        for consumer in self._services.store.records.scan(Consumer):
            fence = self._shares.of(consumer.id)
            if fence and consumer.mode == "push" and consumer.id not in self._feeds:
                feed = Feed(consumer, self._services, fence)
                self._feeds[consumer.id] = feed, asyncio.create_task(feed.run())

    def drain(self) -> None:
        """No new batches from here on."""
        if self._drained_s is None:
            self._drained_s = asyncio.get_running_loop().time()
        for feed, _ in self._feeds.values():
            feed.stop()

    async def _stop(self) -> None:
        self.drain()
        assert self._drained_s is not None
        await asyncio.gather(*(task for _, task in self._feeds.values()), return_exceptions=True)
        left_s = self._drained_s + self._drain_wait_s - asyncio.get_running_loop().time()
        await self._services.calls.finish(wait_s=left_s)
