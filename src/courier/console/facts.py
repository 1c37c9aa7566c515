"""What pages know, from verbs of Store, Broker and Admin. Nothing here changes anything."""

import asyncio
from collections.abc import Sequence

from msgspec import Struct

from courier.console import Services
from courier.console.recent import QUIET, History, Recent
from courier.console.rules import Listening, Look, QueueFacts, Reader, ServerFacts, looks_at
from courier.core.keys import Reach
from courier.core.slices import Slices
from courier.core.types import (
    MINUTE_MS,
    Binding,
    Consumer,
    Exchange,
    Level,
    Listener,
    Liveness,
    Pipeline,
    Queue,
    QueueStats,
    Tenant,
    Worker,
)

# Queues that are judged in one step of the event loop.
PART = 200
_NONE = QueueStats()


class Known(Struct):
    """One queue, and what is to be seen on it."""

    name: str
    queue: Queue
    held: QueueStats
    history: History
    looks: Sequence[Look] = ()
    listeners: tuple[Listening, ...] = ()

    @property
    def waiting(self) -> int:
        return self.held.count - self.held.leased - self.held.delayed


class KnownExchange(Struct):
    name: str
    exchange: Exchange
    bindings: int
    history: History


class Facts:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._store = services.store
        self.recent = Recent(services.store)

    async def tenants(self) -> list[Tenant]:
        return await self._store.scan(Tenant)

    async def of_tenant(self, tenant: str, reach: Reach, now_ms: int) -> list[Known]:
        """Every queue of the tenant within reach."""
        queues = [each for each in await self._store.scan(Queue, tenant=tenant) if each.id in reach]
        return await self._known(tenant, queues, now_ms)

    async def of_queue(self, queue: Queue, now_ms: int) -> Known:
        return (await self._known(queue.tenant, [queue], now_ms))[0]

    async def _known(self, tenant: str, queues: Sequence[Queue], now_ms: int) -> list[Known]:
        stats = await self._store.stats([queue.id for queue in queues], now_ms=now_ms)
        histories = await self.recent.of(tenant, now_ms)
        alone = queues[0].id if len(queues) == 1 else None
        listeners = await self._listeners(tenant, alone, now_ms)
        unplaced = await self._unplaced(tenant, alone)
        names: dict[str, str] = {}
        found = []
        for number, queue in enumerate(queues):
            if number % PART == PART - 1:
                await asyncio.sleep(0)
            id = queue.id
            held, history = stats.get(id, _NONE), histories.get(id, QUIET)
            known = Known(queue.name, queue, held, history)
            found.append(known)
            watched = id in listeners or id in unplaced or queue.paused or queue.frozen
            if held.count or history is not QUIET or watched or alone:
                facts = self._facts(queue, held, history)
                facts.listeners = listeners.get(id, ())
                facts.unplaced = unplaced.get(id, "")
                if queue.dead_letter and history.buried_hour:
                    facts.dead_letter = await self._name(queue.dead_letter, names)
                known.listeners = facts.listeners
                known.looks = looks_at(facts, now_ms)
        return found

    def _facts(self, queue: Queue, held: QueueStats, history: History) -> QueueFacts:
        return QueueFacts(
            queue.id,
            queue.name,
            held.count,
            held.leased,
            held.delayed,
            held.bytes,
            held.oldest_ms,
            queue.retention_ms,
            queue.lease_ms,
            queue.paused,
            queue.frozen,
            "",
            self._services.queue_bytes_max,
            history,
        )

    async def _name(self, queue: str, names: dict[str, str]) -> str:
        if queue not in names:
            found = await self._store.get(Queue, queue)
            names[queue] = found.name if found else ""
        return names[queue]

    async def _listeners(
        self, tenant: str, queue: str | None, now_ms: int
    ) -> dict[str, tuple[Listening, ...]]:
        """By queue."""
        if queue is None:
            listeners = await self._store.scan(Listener, tenant=tenant)
        else:
            listeners = await self._store.scan(Listener, parent=queue)
        stats = await self._store.push_stats([each.id for each in listeners], now_ms=now_ms)
        found: dict[str, tuple[Listening, ...]] = {}
        slices = Slices()
        for listener in listeners:
            await slices.turn()
            liveness = await self._store.get(Liveness, listener.id)
            held = stats.get(listener.id)
            if held is None:
                continue
            listening = Listening(
                listener.id,
                listener.title,
                listener.url,
                listener.disabled_by,
                liveness.state if liveness else "",
                liveness.last_failure if liveness else "",
                held.last_success_ms,
                held.last_failure_ms,
                held.open,
                held.missed,
            )
            found[listener.parent] = (*found.get(listener.parent, ()), listening)
        return found

    async def _unplaced(self, tenant: str, queue: str | None) -> dict[str, str]:
        """Queues whose worker has no URL, with the worker's name."""
        if queue is None:
            consumers = await self._store.scan(Consumer, tenant=tenant)
        else:
            consumers = await self._store.scan(Consumer, parent=queue)
        placed = {worker.name for worker in await self._store.scan(Worker, tenant=tenant)}
        placed |= set(await self._services.placed(tenant))
        return {
            each.parent: each.script
            for each in consumers
            if each.mode == "push" and each.script not in placed
        }

    async def exchanges(self, tenant: str, reach: Reach, now_ms: int) -> list[KnownExchange]:
        admin = self._services.admin
        exchanges = await self._store.scan(Exchange, tenant=tenant)
        histories = await self.recent.of(tenant, now_ms) if exchanges else {}
        found = []
        slices = Slices()
        for exchange in exchanges:
            await slices.turn()
            if await admin.reaches(reach, exchange):
                bindings = len(await self._store.scan(Binding, parent=exchange.id))
                history = histories.get(exchange.id, QUIET)
                found.append(KnownExchange(exchange.name, exchange, bindings, history))
        return found

    async def server(self) -> ServerFacts:
        head = await self._store.head()
        readers = tuple(
            Reader(each.name, each.seen_ms, max(0, head.last - each.offset))
            for each in await self._store.scan(Pipeline)
        )
        return ServerFacts(
            readers,
            head.bytes,
            self._services.journal_bytes_max,
            self._store.free_bytes(),
            self._services.disk_free_bytes_min,
        )

    async def backlog(self, queue: Queue, count: int, *, since_ms: int, until_ms: int) -> list[int]:
        """How many messages the queue held at the end of each minute."""
        levels = await self._store.levels(queue.id, since_ms=since_ms)
        return by_minute(levels, count, queue.created_ms, since_ms, until_ms)


def by_minute(
    levels: Sequence[Level], count: int, created_ms: int, since_ms: int, until_ms: int
) -> list[int]:
    """Levels, which are noted when they change, spread over minutes.

    After the last level the queue holds `count`, and before it was created it held nothing.
    """
    values = []
    place = 0
    for minute in range(since_ms // MINUTE_MS, until_ms // MINUTE_MS + 1):
        while place < len(levels) and levels[place].minute < minute:
            place += 1
        held = levels[place].count if place < len(levels) else count
        values.append(held if minute >= created_ms // MINUTE_MS else 0)
    return values
