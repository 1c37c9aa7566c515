"""The parts of the engine put together, and a group of calls from its beginning to its end."""

from collections.abc import Sequence

from courier.core.errors import Rejected
from courier.core.types import Actor, Draft, Leased, Outcome, Receipt, Settlement
from courier.store.engine.book import Book
from courier.store.engine.claims import Claims
from courier.store.engine.deliveries import Deliveries
from courier.store.engine.disk import Disk
from courier.store.engine.endings import Endings
from courier.store.engine.facts import Facts
from courier.store.engine.groups import Groups
from courier.store.engine.joins import driven
from courier.store.engine.leases import Leases
from courier.store.engine.lines import PushLine, QueueLine
from courier.store.engine.messages import Messages
from courier.store.engine.numbered import Numbered
from courier.store.engine.publishing import Publishing
from courier.store.engine.pushes import Pushes
from courier.store.engine.retention import Retention
from courier.store.engine.settings import Settings
from courier.store.engine.stats import Stats
from courier.store.engine.sweep import Sweep
from courier.store.engine.trim import Trim
from courier.store.waiting import Waiters


class Engine:
    """Computes what groups of calls do. `flush`, `committed` and `reload` are for the writer."""

    def __init__(
        self,
        disk: Disk,
        waiters: Waiters,
        *,
        cache_bytes: int,
        block_messages: int,
        block_bytes: int,
    ) -> None:
        self.book = book = Book(disk, waiters, cache_bytes=cache_bytes)
        deliveries = Deliveries(book)
        groups = Groups(book, deliveries)
        facts = Facts(book)
        self.settings = Settings(book, groups)
        self.stats = stats = Stats(book, deliveries)
        self.messages = messages = Messages(book, deliveries, facts)
        self.publishing = publishing = Publishing(
            book,
            deliveries,
            groups,
            facts,
            stats,
            block_messages=block_messages,
            block_bytes=block_bytes,
        )
        self.endings = endings = Endings(book, deliveries, groups, messages, publishing)
        self.numbered = Numbered(book, facts, publishing)
        retention = Retention(book, deliveries, endings)
        self.leases = leases = Leases(
            book, deliveries, groups, messages, publishing, endings, retention, stats
        )
        self.claims = Claims(book, deliveries, leases, endings, messages, facts)
        self.pushes = Pushes(book, deliveries, messages, publishing, endings)
        self.time = Sweep(book, deliveries, leases, endings, retention, self.pushes)
        self.trim = Trim(book, deliveries)

    async def load(self) -> None:
        await self.book.load()
        self.settings.load()

    async def enter(self, queue: str, now_ms: int) -> QueueLine:
        """What every verb on a queue does first: time passes, and the queue must be there."""
        await self.time.pass_time(now_ms)
        return self.book.line(queue)

    async def enter_pushes(self, listener: str, now_ms: int) -> tuple[QueueLine, PushLine]:
        """The same for a listener and its queue."""
        await self.time.pass_time(now_ms)
        return self.book.push_line(listener)

    # --- verbs that join: several calls at once, at the latest of their times ---

    async def publish(
        self,
        queue: str,
        calls: Sequence[tuple[Sequence[Draft], int]],
        *,
        actor: Actor,
        bytes_max: int | None,
    ) -> Sequence[Receipt | Rejected]:
        now_ms = max([now_ms for _, now_ms in calls])
        await self.enter(queue, now_ms)
        if len(calls) == 1 or any([_once(drafts) for drafts, _ in calls]):
            answers: list[Receipt | Rejected] = []
            for drafts, _ in calls:
                try:
                    answers += await self.publishing.publish(
                        [(queue, drafts)], actor, now_ms, bytes_max=bytes_max, via=None
                    )
                except Rejected as error:
                    answers.append(error)
            return answers
        return await self.publishing.publish_joined(
            queue, [drafts for drafts, _ in calls], actor, now_ms, bytes_max=bytes_max
        )

    async def lease(
        self, queue: str, calls: Sequence[tuple[int, int]], *, lease_ms: int, actor: Actor
    ) -> Sequence[Leased]:
        now_ms = max([now_ms for _, now_ms in calls])
        line = await self.enter(queue, now_ms)
        # What two callers get of a FIFO queue is of different groups.
        apart = line.queue.fifo
        if len(calls) == 1 or (apart and any([count != 1 for count, _ in calls])):
            return [
                await self.leases.lease(line, count, lease_ms, actor, now_ms) for count, _ in calls
            ]
        counts = [max(0, count) for count, _ in calls]
        leased = await self.leases.lease(line, sum(counts), lease_ms, actor, now_ms, apart=apart)
        answers: list[Leased] = []
        at = 0
        for count in counts:
            mine = leased.messages[at : at + count]
            answers.append(Leased(mine, leased.until_ms, leased.stats))
            at += count
        return answers

    async def settle(
        self, queue: str, calls: Sequence[tuple[Sequence[Settlement], int]], *, actor: Actor
    ) -> Sequence[list[Outcome]]:
        now_ms = max([now_ms for _, now_ms in calls])
        line = await self.enter(queue, now_ms)
        items = [item for call, _ in calls for item in call]
        outcomes = await self.leases.settle(line, items, actor, now_ms)
        answers: list[list[Outcome]] = []
        at = 0
        for call, _ in calls:
            answers.append(outcomes[at : at + len(call)])
            at += len(call)
        return answers

    # --- a group ---

    def flush(self) -> bool:
        """Write what the group has changed; False: nothing."""

        async def flush() -> bool:
            await self.pushes.wake_ordered()
            return await self.book.flush()

        return driven(flush())

    def committed(self) -> None:
        self.settings.committed()
        self.book.committed()

    def reload(self) -> None:
        """Forget what a rolled back group did in memory."""
        self.settings.reset()
        driven(self.book.load())


def _once(drafts: Sequence[Draft]) -> bool:
    return any([draft.once_key is not None for draft in drafts])
