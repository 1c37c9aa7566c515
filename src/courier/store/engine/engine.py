"""The store: the parts of the engine put together, calls that join, and a group of calls from its
beginning to its end."""

from collections.abc import Sequence
from typing import Any, TypeVar

from msgspec.structs import replace

from courier.core.errors import Rejected, StoreDamaged
from courier.core.limits import SMALL_ANSWER_BYTES, Allowance
from courier.core.records import Change, Decide, Records
from courier.core.store import RateVerbs
from courier.core.types import (
    BROKER,
    MINUTE_MS,
    Actor,
    Draft,
    Leased,
    Outcome,
    PlainDrafts,
    Receipt,
    Settlement,
    Swept,
    Via,
)
from courier.core.waiters import Waiters
from courier.store.engine.book import Book
from courier.store.engine.calls import LATER, GroupRunner, GroupWriter, Joined, Later
from courier.store.engine.claims import Claims
from courier.store.engine.deliveries import Deliveries
from courier.store.engine.disk import Changed, Disk, DiskRoom
from courier.store.engine.endings import Endings
from courier.store.engine.facts import KnownFacts
from courier.store.engine.fifo import FifoGroups
from courier.store.engine.leases import Leases
from courier.store.engine.messages import StoredMessages
from courier.store.engine.numbered import Numbered
from courier.store.engine.publishing import Publishing
from courier.store.engine.pushes import Pushes
from courier.store.engine.reading import Reading
from courier.store.engine.settings import SettingChanges
from courier.store.engine.sweep import Sweep
from courier.store.engine.verbs import EngineHealth, EngineJournal, EnginePast, EngineRates

T = TypeVar("T")

# A group that has published so much is written on a thread.
HEAVY_BYTES = 1 << 20


class EngineStore:
    """See `core/store.py` for what it promises, and `store/embedded.py` for how it is opened.

    Most verbs are those of its parts; here are the ones that join, and the rest. `write`,
    `committed`, `restore`, `catch_up` and `met_damage` are for the writer.
    """

    writer: GroupWriter
    health: EngineHealth
    rates: RateVerbs

    def __init__(
        self,
        disk: Disk,
        room: DiskRoom,
        waiters: Waiters,
        *,
        cache_bytes: int,
        block_messages: int,
        block_bytes: int,
        accepted: dict[str, Any] | None = None,
    ) -> None:
        """`accepted`: what the start has accepted of damage, for the journal."""
        self.disk = disk
        self.waiters = waiters
        self.book = book = Book(disk, waiters, cache_bytes=cache_bytes)
        self._room = room
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
        endings = Endings(calls, deliveries, fifo, messages, publishing)
        self._leases = leases = Leases(book, deliveries, fifo, messages, publishing, endings)
        self.messages = reading = Reading(calls, deliveries, messages, facts, leases)
        self.rows = Numbered(calls, facts, publishing)
        self.claims = Claims(calls, deliveries, leases, endings, messages, facts)
        self.pushes = Pushes(calls, deliveries, messages, publishing, endings)
        self.journal = EngineJournal(calls, deliveries)
        self.past = EnginePast(calls)
        self.rates = EngineRates()
        self.rename, self.stats = reading.rename, reading.stats
        self.remove, self.purge, self.redrive = endings.remove, endings.purge, endings.redrive
        self.time = Sweep(book, deliveries, leases, endings, self.pushes)
        calls.pass_time = self.time.pass_time
        # The same each time, so that it costs little to tell that calls ask for the same.
        self._joined = self._publish_together, self._lease_together, self._settle_together
        self._accepted = accepted

    def begin(self, writer: GroupWriter) -> None:
        self.writer = self.calls.writer = writer
        self.health = EngineHealth(self.calls, damage_accepted=bool(self._accepted))

    async def load(self) -> None:
        await self.book.load()
        self.settings.load()

    @property
    def records(self) -> Records:
        return self.settings.mirror

    @property
    def secret(self) -> bytes:
        return self.book.secret

    @property
    def doubt_ms(self) -> int:
        return self.book.doubt_ms

    @doubt_ms.setter
    def doubt_ms(self, ms: int) -> None:
        self.book.doubt_ms = ms

    # --- settings ---

    async def change(self, decide: Decide[T], *, actor: Actor, now_ms: int) -> T:
        settings = self.settings

        async def change() -> tuple[Change[T], Exception | None]:
            # What was due before the change happens by the rules that held until now.
            await self.time.pass_time(now_ms)
            change: Change[T] = Change()
            try:
                change = decide(settings.pending)
                if any(settings.is_new(record) for record in change.puts):
                    self._room.require_space()
                settings.check(change)
            except Exception as error:  # concerns this call alone, and not its group
                return change, error
            await settings.change(change, actor, now_ms)
            return change, None

        decided, error = await self.writer.submit(change)
        if error is not None:
            raise error
        await self.writer.spread()
        return decided.answer

    # --- messages ---

    async def publish(
        self,
        batches: Sequence[tuple[str, Sequence[Draft]]],
        *,
        actor: Actor,
        now_ms: int,
        bytes_max: int | None = None,
        via: Via | None = None,
    ) -> list[Receipt]:
        self._room.require_space()
        if len(batches) == 1 and via is None:
            queue, drafts = batches[0]
            key = (self._joined[0], (queue, actor, bytes_max), now_ms // MINUTE_MS)
            return [await self.writer.submit(Joined(key, (drafts, now_ms)))]

        async def publish() -> list[Receipt]:
            await self.time.pass_time(now_ms)
            return await self.publishing.publish(
                batches, actor, now_ms, bytes_max=bytes_max, via=via
            )

        return await self.writer.submit(publish)

    async def lease(
        self,
        queue: str,
        *,
        count: int,
        lease_ms: int,
        actor: Actor,
        now_ms: int,
        leased_max: int | None = None,
        allowance: Allowance | None = None,
    ) -> Leased:
        apart = (now_ms // MINUTE_MS, allowance is None)
        key = (self._joined[1], (queue, lease_ms, actor, leased_max), apart)
        # Late, so that it finds what the same group publishes.
        op = Joined(key, (count, now_ms, allowance), late=True)
        leased: Leased = await self.writer.submit(op)
        return leased

    async def settle(
        self, queue: str, items: Sequence[Settlement], *, actor: Actor, now_ms: int
    ) -> list[Outcome]:
        key = (self._joined[2], (queue, actor), now_ms // MINUTE_MS)
        outcomes: list[Outcome] = await self.writer.submit(Joined(key, (items, now_ms)))
        return outcomes

    # --- time passing ---

    async def hold(
        self, duties: Sequence[str], *, now_ms: int, evenly: bool = False
    ) -> dict[str, int]:
        """A disk of its own: all of them."""
        return dict.fromkeys(duties, 1)

    async def sweep(self, *, limit: int, now_ms: int) -> Swept:
        async def sweep() -> Swept:
            self._room.look()
            if self._accepted:  # noted here because a store is opened before there is a clock
                self.book.note(
                    "damage_accepted",
                    None,
                    actor=BROKER,
                    now_ms=now_ms,
                    columns={"detail": self._accepted},
                )
            return await self.time.sweep(now_ms, limit)

        swept = await self.writer.submit(sweep)
        self._accepted = None
        return replace(swept, short=True) if self._room.short else swept

    async def close(self) -> None:
        await self.writer.close()
        await self.disk.close()

    # --- calls that have joined, at the latest of their times ---

    async def _publish_together(
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

    async def _lease_together(
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
        leased = await self._leases.lease(
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

    async def _settle_together(
        self, calls: Sequence[tuple[Sequence[Settlement], int]], queue: str, actor: Actor
    ) -> Sequence[list[Outcome] | Later]:
        now_ms = max([now_ms for _, now_ms in calls])
        await self.time.pass_time(now_ms)
        line = self.book.line(queue)
        items = [item for call, _ in calls for item in call]
        outcomes = await self._leases.settle(line, items, actor, now_ms)
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
        if self.book.ordered:
            await self.pushes.wake_ordered()
        return await self.book.flush()

    def committed(self) -> None:
        if self.settings.pending.version:
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

    def met_damage(self, error: StoreDamaged) -> None:
        """Once damage was met the store says so until it is opened again."""
        self._room.met_damage(error.place)


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
