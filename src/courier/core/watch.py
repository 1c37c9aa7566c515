"""The loop that looks at the backlogs of queues and announces those that have grown too long."""

import asyncio
import logging

import msgspec

from courier.clock import Clock
from courier.core import news
from courier.core.announcer import Announcement, Announcer, Pair
from courier.core.duties import Duty
from courier.core.store import Store
from courier.core.types import EventSubscription, Queue

LOOK_EVERY_S = 2.0
LOOK_EVERY_S_MAX = 60.0
# With very many queues a look takes long; it is to take no more of the time than this.
LOOK_PERCENT = 5
THRESHOLD = 10_000
# A backlog that exceeded the threshold must fall below this part of it to be news again.
LOW_PERCENT = 80

log = logging.getLogger("courier.watch")


class Watch:
    """Which backlogs are known to be too long is kept in memory: a restart may repeat it once."""

    def __init__(self, store: Store, clock: Clock, announcer: Announcer) -> None:
        self._store = store
        self._records = store.records
        self._clock = clock
        self._announcer = announcer
        self._exceeded: set[tuple[str, str]] = set()  # ids of a subscription and a queue

    def duty(self) -> Duty:
        async def turn() -> float:
            time = asyncio.get_running_loop().time
            began_s = time()
            await self.look()
            rest_s = (time() - began_s) * 100 / LOOK_PERCENT
            return min(max(LOOK_EVERY_S, rest_s), LOOK_EVERY_S_MAX)

        def lost() -> None:
            self._exceeded = set()

        return Duty("watch", turn, "backlogs_not_seen", LOOK_EVERY_S, log, lost)

    async def look(self) -> None:
        """Announce what exceeds a threshold and did not when last looked at."""
        tenants: dict[str, list[EventSubscription]] = {}
        for each in self._records.scan(EventSubscription):
            if (
                each.enabled
                and each.source["type"] == news.QUEUE
                and news.BACKLOG_EXCEEDED in each.events
            ):
                tenants.setdefault(each.tenant, []).append(each)
        exceeded: set[tuple[str, str]] = set()
        told: list[Pair] = []
        for tenant, subscriptions in tenants.items():
            queues = self._records.scan(Queue, tenant=tenant)
            ids = [queue.id for queue in queues]
            stats = await self._store.stats(ids, now_ms=self._clock.now_ms())
            for queue in queues:
                count = stats[queue.id].count if queue.id in stats else 0
                for subscription in subscriptions:
                    place = (subscription.id, queue.id)
                    threshold = int(subscription.source.get("threshold", THRESHOLD))
                    # Its own queue is left out: the news would only make it longer.
                    if queue.id == subscription.parent or count * 100 < threshold * LOW_PERCENT:
                        continue
                    if place in self._exceeded:
                        exceeded.add(place)
                    elif count > threshold:
                        exceeded.add(place)
                        told.append((subscription, self._news(queue, count, threshold)))
        if told:
            await self._announcer.tell(told)
        self._exceeded = exceeded

    def _news(self, queue: Queue, count: int, threshold: int) -> Announcement:
        payload = {"id": queue.id, "name": queue.name, "backlog": count, "threshold": threshold}
        return Announcement(
            tenant=queue.tenant,
            source={"type": news.QUEUE},
            event=news.BACKLOG_EXCEEDED,
            payload=msgspec.json.encode(payload),
            at_ms=self._clock.now_ms(),
            queue=queue.id,
        )
