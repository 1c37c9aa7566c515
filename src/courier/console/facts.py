"""What pages know, from verbs of Store, Broker and Admin. Nothing here changes anything."""

import asyncio
from collections.abc import Callable, Sequence

from msgspec import Struct

from courier import ids
from courier.console import Services
from courier.console.recent import QUIET, History, Recent
from courier.console.rules import Listening, Look, QueueFacts, ReaderFacts, ServerFacts, looks_at
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
    Report,
    Tenant,
    Worker,
)

# In place of the name of a queue that the key does not reach.
BEYOND = "another queue"
# Queues that are judged in one step of the event loop.
PART = 500
# Listeners that fail and are asked for an answer, and how much of it is shown.
ANSWERS_MAX = 20
ANSWER_CHARACTERS_MAX = 120
_NONE = QueueStats()


class Known(Struct, gc=False):
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
        self._records = services.store.records
        self.recent = Recent(services.store)
        self.audit: Callable[[], str] = str

    def tenants(self) -> list[Tenant]:
        return self._records.scan(Tenant)

    async def of_tenant(self, tenant: str, reach: Reach, now_ms: int) -> list[Known]:
        """Every queue of the tenant within reach."""
        queues = [each for each in self._records.scan(Queue, tenant=tenant) if each.id in reach]
        return await self._known(tenant, queues, reach, now_ms)

    async def of_queue(self, queue: Queue, reach: Reach, now_ms: int) -> Known:
        return (await self._known(queue.tenant, [queue], reach, now_ms))[0]

    async def _known(
        self, tenant: str, queues: Sequence[Queue], reach: Reach, now_ms: int
    ) -> list[Known]:
        stats = await self._store.stats([queue.id for queue in queues], now_ms=now_ms)
        histories = await self.recent.of(tenant, now_ms)
        alone = queues[0].id if len(queues) == 1 else None
        listeners = await self._listeners(tenant, alone, now_ms)
        scripts = self._scripts(tenant, alone)
        unplaced = self._unplaced(tenant, scripts)
        names: dict[str, str] = {}
        found = []
        watched = listeners.keys() | unplaced.keys()
        for number, queue in enumerate(queues):
            if number % PART == PART - 1:
                await asyncio.sleep(0)
            id = queue.id
            held, history = stats.get(id, _NONE), histories.get(id, QUIET)
            known = Known(queue.name, queue, held, history)
            found.append(known)
            stopped = queue.paused or queue.frozen
            if held.count or history is not QUIET or stopped or id in watched or alone:
                facts = self._facts(queue, held, history)
                facts.listeners = listeners.get(id, ())
                facts.unplaced = unplaced.get(id, "")
                facts.consumed = id in scripts or not facts.listeners
                if queue.dead_letter and history.buried_hour:
                    facts.dead_letter = self._name(queue.dead_letter, reach, names)
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

    def _name(self, queue: str, reach: Reach, names: dict[str, str]) -> str:
        if queue not in names:
            found = self._records.get(Queue, queue)
            names[queue] = (found.name if queue in reach else BEYOND) if found else ""
        return names[queue]

    async def _listeners(
        self, tenant: str, queue: str | None, now_ms: int
    ) -> dict[str, tuple[Listening, ...]]:
        """By queue."""
        if queue is None:
            listeners = self._records.scan(Listener, tenant=tenant)
        else:
            listeners = self._records.scan(Listener, parent=queue)
        stats = await self._store.pushes.stats([each.id for each in listeners], now_ms=now_ms)
        found: dict[str, tuple[Listening, ...]] = {}
        slices, asked = Slices(), 0
        for listener in listeners:
            await slices.turn()
            liveness = self._records.get(Liveness, listener.id)
            held = stats.get(listener.id)
            if held is None:
                continue
            fails = held.missed and held.last_failure_ms > held.last_success_ms
            asked += bool(fails)
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
                await self._answer(listener, now_ms) if fails and asked <= ANSWERS_MAX else "",
            )
            found[listener.parent] = (*found.get(listener.parent, ()), listening)
        return found

    async def _answer(self, listener: Listener, now_ms: int) -> str:
        """What came of the newest message that it has not taken."""
        for id in await self._store.pushes.missed(listener.id, limit=1, now_ms=now_ms):
            seq = ids.message_seq(id, queue=listener.parent) or 0
            for push in await self._store.pushes.of_message(listener.parent, seq, now_ms=now_ms):
                if push.listener == listener.id and push.report is not None:
                    return answered(push.report)
        return ""

    def _scripts(self, tenant: str, queue: str | None) -> dict[str, str]:
        """Queues that have a consumer, with the name of the worker if it is one."""
        if queue is None:
            consumers = self._records.scan(Consumer, tenant=tenant)
        else:
            consumers = self._records.scan(Consumer, parent=queue)
        return {each.parent: each.script if each.mode == "push" else "" for each in consumers}

    def _unplaced(self, tenant: str, scripts: dict[str, str]) -> dict[str, str]:
        """Queues whose worker has no URL, with the worker's name."""
        placed = {worker.name for worker in self._records.scan(Worker, tenant=tenant)}
        placed |= set(self._services.placed(tenant))
        return {
            queue: script for queue, script in scripts.items() if script and script not in placed
        }

    async def exchanges(
        self, tenant: str, reach: Reach, now_ms: int, *, past: bool = False
    ) -> list[KnownExchange]:
        """Those of then; how much went through them is said of now only."""
        admin = self._services.admin
        exchanges = self._records.scan(Exchange, tenant=tenant)
        exchanges = [each for each in exchanges if each.created_ms <= now_ms]
        histories = await self.recent.of(tenant, now_ms) if exchanges and not past else {}
        found = []
        slices = Slices()
        for exchange in exchanges:
            await slices.turn()
            if admin.reaches(reach, exchange):
                bindings = len(self._records.scan(Binding, parent=exchange.id))
                history = histories.get(exchange.id, QUIET)
                found.append(KnownExchange(exchange.name, exchange, bindings, history))
        return found

    async def server(self) -> ServerFacts:
        head = await self._store.journal.head()
        readers = tuple(
            ReaderFacts(each.name, each.seen_ms, max(0, head.last - each.offset))
            for each in self._records.scan(Pipeline)
        )
        return ServerFacts(
            readers,
            head.bytes,
            self._services.journal_bytes_max,
            self._store.health.free_bytes(),
            self._services.disk_free_bytes_min,
            self.audit(),
        )

    async def backlogs(
        self, known: Sequence[Known], *, since_ms: int, until_ms: int
    ) -> dict[str, list[int]]:
        """How many messages each queue held at the end of each minute, by queue."""
        ids = [each.queue.id for each in known]
        levels = await self._store.past.levels(ids, since_ms=since_ms)
        return {
            each.queue.id: by_minute(
                those, each.held.count, each.queue.created_ms, since_ms, until_ms
            )
            for each, those in zip(known, levels, strict=True)
        }


def answered(report: Report) -> str:
    """The status and how the answer began, in one line; or why there was none."""
    text = " ".join(report.text.split())[:ANSWER_CHARACTERS_MAX]
    if not report.status:
        return report.error
    return f'{report.status} "{text}"' if text else str(report.status)


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
