"""The parts of the engine put together, and a group of calls from its beginning to its end."""

from collections.abc import Sequence

from courier.core.errors import Rejected
from courier.core.limits import SMALL_ANSWER_BYTES, Allowance
from courier.core.types import Actor, Draft, Leased, Outcome, PlainDrafts, Receipt, Settlement
from courier.core.waiters import Waiters
from courier.store.engine.book import Book
from courier.store.engine.calls import GroupRunner
from courier.store.engine.claims import Claims
from courier.store.engine.deliveries import Deliveries
from courier.store.engine.disk import Changed, Disk, DiskRoom
from courier.store.engine.endings import Endings
from courier.store.engine.facts import KnownFacts
from courier.store.engine.fifo import FifoGroups
from courier.store.engine.joins import LATER, Later
from courier.store.engine.leases import Leases
from courier.store.engine.messages import StoredMessages
from courier.store.engine.numbered import Numbered
from courier.store.engine.publishing import Publishing
from courier.store.engine.pushes import Pushes
from courier.store.engine.reading import Reading
from courier.store.engine.retention import Retention
from courier.store.engine.settings import SettingChanges
from courier.store.engine.sweep import Sweep
from courier.store.engine.trim import Trim

# A group that has published so much is written on a thread.
HEAVY_BYTES = 1 << 20


class Engine:
    """Computes what groups of calls do. `write`, `committed` and `restore` are for the writer."""

    def __init__(
        self,
        disk: Disk,
        room: DiskRoom,
        waiters: Waiters,
        *,
        cache_bytes: int,
        block_messages: int,
        block_bytes: int,
    ) -> None:
        self.book = book = Book(disk, waiters, cache_bytes=cache_bytes)
        self.calls = calls = GroupRunner(book, room)
        deliveries = Deliveries(book)
        fifo = FifoGroups(book, deliveries)
        self.facts = facts = KnownFacts(book)
        self.settings = SettingChanges(book, fifo)
        messages = StoredMessages(book, deliveries, facts)
        self.publishing = publishing = Publishing(
            book,
            deliveries,
            fifo,
            facts,
            block_messages=block_messages,
            block_bytes=block_bytes,
        )
        self.endings = endings = Endings(calls, book, deliveries, fifo, messages, publishing)
        self.numbered = Numbered(calls, facts, publishing)
        retention = Retention(book, deliveries, endings)
        self.leases = leases = Leases(
            book, deliveries, fifo, messages, publishing, endings, retention
        )
        self.reading = Reading(calls, book, deliveries, messages, facts, leases)
        self.claims = Claims(calls, book, deliveries, leases, endings, messages, facts)
        self.pushes = Pushes(calls, book, deliveries, messages, publishing, endings)
        self.time = calls.time = Sweep(book, deliveries, leases, endings, retention, self.pushes)
        self.trim = Trim(book, deliveries)

    async def load(self) -> None:
        await self.book.load()
        self.settings.load()

    # --- verbs that join: several calls at once, at the latest of their times ---

    async def publish(
        self,
        calls: Sequence[tuple[Sequence[Draft], int]],
        queue: str,
        actor: Actor,
        bytes_max: int | None,
    ) -> Sequence[Receipt | Rejected]:
        now_ms = max([now_ms for _, now_ms in calls])
        await self.time.pass_time(now_ms)
        if len(calls) == 1 or _once(calls):
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
        self,
        calls: Sequence[tuple[int, int, Allowance | None]],
        queue: str,
        lease_ms: int,
        actor: Actor,
        leased_max: int | None,
    ) -> Sequence[Leased | Later]:
        """Together they are handed out no more than the first of them may have."""
        now_ms = max([now_ms for _, now_ms, _ in calls])
        await self.time.pass_time(now_ms)
        line = self.book.line(queue)
        first = calls[0][2]
        counts = [max(0, count) for count, _, _ in calls]
        leased = await self.leases.lease(
            line, counts, lease_ms, actor, now_ms, leased_max=leased_max, allowance=first
        )
        if len(calls) == 1:
            return [leased]
        answers: list[Leased | Later] = []
        at = 0
        for count in counts:
            mine = leased.messages[at : at + count]
            answers.append(Leased(mine, leased.until_ms, leased.stats))
            at += count
        if first is not None and (first.cut or first.size > SMALL_ANSWER_BYTES):
            _shared(first, calls, answers)
        return answers

    async def settle(
        self, calls: Sequence[tuple[Sequence[Settlement], int]], queue: str, actor: Actor
    ) -> Sequence[list[Outcome] | Later]:
        now_ms = max([now_ms for _, now_ms in calls])
        await self.time.pass_time(now_ms)
        line = self.book.line(queue)
        items = [item for call, _ in calls for item in call]
        outcomes = await self.leases.settle(line, items, actor, now_ms)
        answers: list[list[Outcome] | Later] = []
        at = 0
        for call, _ in calls:
            mine = outcomes[at : at + len(call)]
            answers.append(mine if mine or not call else LATER)
            at += len(call)
        return answers

    # --- a group ---

    @property
    def heavy(self) -> bool:
        """So much was published that to write it would hold up the loop."""
        return self.book.blocks.new_bytes >= HEAVY_BYTES

    async def write(self) -> bool:
        """Hand what the group has changed to the disk; False: nothing."""
        await self.pushes.wake_ordered()
        return await self.book.flush()

    def committed(self) -> None:
        self.settings.pending.commit()
        self.book.committed()

    async def restore(self) -> None:
        """Forget what a rolled back group did in memory."""
        self.settings.pending.reset()
        await self.book.load()

    async def catch_up(self, changed: Changed | None) -> None:
        """Take in what other nodes have changed; None: anything may have."""
        if changed is None or not self.book.catch_up(changed):
            await self.restore()
            self.settings.follow(self.book.records)
            self.book.wake_all()
        else:
            self.settings.follow_some(changed.records)


def _shared(
    first: Allowance,
    calls: Sequence[tuple[int, int, Allowance | None]],
    answers: list[Leased | Later],
) -> None:
    """Each call holds what it is given; those that were given nothing are run once more."""
    for place in range(len(calls) - 1, 0, -1):
        allowance, answer = calls[place][2], answers[place]
        assert allowance is not None, "calls with and without a limit do not join"
        assert isinstance(answer, Leased), "every call was answered"
        if answer.messages:
            # Asking a message for its size costs a call, and most are not sealed.
            sizes = [len(m.body) if m.sealed is None else m.size for m in answer.messages]
            first.share(allowance, sizes)
        elif first.cut:
            answers[place] = LATER


def _once(calls: Sequence[tuple[Sequence[Draft], int]]) -> bool:
    singles = [drafts for drafts, _ in calls if type(drafts) is not PlainDrafts]
    return any([draft.once_key is not None for drafts in singles for draft in drafts])
