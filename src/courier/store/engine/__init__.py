"""The store: one engine that holds every rule, over a disk that only keeps rows."""

from collections.abc import Sequence
from functools import partial
from typing import Any, TypeVar

from msgspec.structs import replace

from courier.core.errors import StoreDamaged
from courier.core.limits import Allowance
from courier.core.records import Change, Decide, Records
from courier.core.store import RateVerbs
from courier.core.types import (
    BROKER,
    MINUTE_MS,
    Actor,
    Draft,
    Leased,
    Message,
    Outcome,
    QueueStats,
    Receipt,
    Settlement,
    Swept,
    Via,
)
from courier.core.waiters import Waiters
from courier.store.engine.calls import Calls, Writer
from courier.store.engine.disk import Disk, Room
from courier.store.engine.engine import Engine
from courier.store.engine.joins import Joined
from courier.store.engine.lines import QueueLine
from courier.store.engine.verbs import (
    EngineClaims,
    EngineHealth,
    EngineJournal,
    EngineMessages,
    EnginePast,
    EnginePushes,
    EngineRates,
    EngineRows,
)

T = TypeVar("T")


class EngineStore(Calls):
    """See `core/store.py` for what it promises, and `store/embedded.py` for how it is opened."""

    def __init__(
        self,
        disk: Disk,
        room: Room,
        engine: Engine,
        waiters: Waiters,
        writer: Writer,
        *,
        accepted: dict[str, Any],
    ) -> None:
        """`accepted`: what the start has accepted of damage, for the journal."""
        super().__init__(disk, room, engine, writer)
        parts = (disk, room, engine, writer)
        self.waiters = waiters
        self.messages = EngineMessages(*parts)
        self.rows = EngineRows(*parts)
        self.claims = EngineClaims(*parts)
        self.pushes = EnginePushes(*parts)
        self.journal = EngineJournal(*parts)
        self.past = EnginePast(*parts)
        self.rates: RateVerbs = EngineRates()
        self.health = EngineHealth(*parts, damage_accepted=bool(accepted))
        self._accepted = accepted

    @property
    def records(self) -> Records:
        return self.engine.settings.mirror

    @property
    def secret(self) -> bytes:
        return self.engine.book.secret

    @property
    def doubt_ms(self) -> int:
        return self.engine.book.doubt_ms

    @doubt_ms.setter
    def doubt_ms(self, ms: int) -> None:
        self.engine.book.doubt_ms = ms

    # --- settings ---

    async def change(self, decide: Decide[T], *, actor: Actor, now_ms: int) -> T:
        settings = self.engine.settings

        async def change() -> tuple[Change[T], Exception | None]:
            # What was due before the change happens by the rules that held until now.
            await self.engine.time.pass_time(now_ms)
            change: Change[T] = Change()
            try:
                change = decide(settings.pending)
                if any(settings.is_new(record) for record in change.puts):
                    self.room.require_space()
                settings.check(change)
            except Exception as error:  # concerns this call alone, and not its group
                return change, error
            await settings.change(change, actor, now_ms)
            return change, None

        decided, error = await self._run(change)
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
        self.room.require_space()
        if len(batches) == 1 and via is None:
            queue, drafts = batches[0]
            key = (self.engine.publish, (queue, actor, bytes_max), now_ms // MINUTE_MS)
            op = Joined(key, (drafts, now_ms))
            try:
                return [await self.writer.submit(op)]
            except StoreDamaged as error:
                self._note_damage(error)
                raise

        async def publish() -> list[Receipt]:
            await self.engine.time.pass_time(now_ms)
            return await self.engine.publishing.publish(
                batches, actor, now_ms, bytes_max=bytes_max, via=via
            )

        return await self._run(publish)

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
        if leased_max is None:
            apart = (now_ms // MINUTE_MS, allowance is None)
            key = (self.engine.lease, (queue, lease_ms, actor), apart)
            # Late, so that it finds what the same group publishes.
            op = Joined(key, (count, now_ms, allowance), late=True)
            try:
                leased: Leased = await self.writer.submit(op)
                return leased
            except StoreDamaged as error:
                self._note_damage(error)
                raise

        async def lease(line: QueueLine) -> Leased:
            return await self.engine.leases.lease(
                line, count, lease_ms, actor, now_ms, leased_max=leased_max, allowance=allowance
            )

        return await self._on(queue, now_ms, lease)

    async def settle(
        self, queue: str, items: Sequence[Settlement], *, actor: Actor, now_ms: int
    ) -> list[Outcome]:
        key = (self.engine.settle, (queue, actor), now_ms // MINUTE_MS)
        op = Joined(key, (items, now_ms))
        try:
            outcomes: list[Outcome] = await self.writer.submit(op)
            return outcomes
        except StoreDamaged as error:
            self._note_damage(error)
            raise

    async def rename(
        self, queue: str, seq: int, name: str, *, actor: Actor, now_ms: int
    ) -> Message | None:
        rename = self.engine.messages.rename
        return await self._on(queue, now_ms, lambda line: rename(line, seq, name, actor, now_ms))

    async def remove(
        self,
        queue: str,
        seqs: Sequence[int],
        *,
        actor: Actor,
        now_ms: int,
        leased: bool = True,
        dry_run: bool = False,
    ) -> list[bool]:
        remove = partial(self.engine.endings.remove, leased=leased, dry_run=dry_run)
        return await self._on(queue, now_ms, lambda line: remove(line, seqs, actor, now_ms))

    async def purge(
        self, queue: str, *, upto_seq: int, limit: int, actor: Actor, now_ms: int
    ) -> int:
        purge = self.engine.endings.purge
        return await self._on(
            queue, now_ms, lambda line: purge(line, upto_seq, limit, actor, now_ms)
        )

    async def redrive(
        self, queue: str, *, seqs: Sequence[int], actor: Actor, now_ms: int, dry_run: bool = False
    ) -> list[bool]:
        redrive = self.engine.endings.redrive
        return await self._on(
            queue, now_ms, lambda line: redrive(line, seqs, actor, now_ms, dry_run=dry_run)
        )

    async def stats(self, queues: Sequence[str], *, now_ms: int) -> dict[str, QueueStats]:
        async def part(ids: Sequence[str]) -> dict[str, QueueStats]:
            lines = self.engine.book.lines
            of = self.engine.stats.of
            return {
                id: await of(line) if line.count else line.stats()
                for id in ids
                if (line := lines.get(id))
            }

        return await self._in_parts(queues, now_ms, part)

    # --- time passing ---

    async def hold(
        self, duties: Sequence[str], *, now_ms: int, evenly: bool = False
    ) -> dict[str, int]:
        return await self.disk.hold(duties, evenly=evenly)

    async def sweep(self, *, limit: int, now_ms: int) -> Swept:
        async def sweep() -> Swept:
            self.room.look()
            if self._accepted:  # noted here because a store is opened before there is a clock
                self.engine.book.note(
                    "damage_accepted",
                    None,
                    actor=BROKER,
                    now_ms=now_ms,
                    columns={"detail": self._accepted},
                )
            return await self.engine.time.sweep(now_ms, limit)

        swept = await self._run(sweep)
        self._accepted = {}
        return replace(swept, short=True) if self.room.short else swept

    async def close(self) -> None:
        await self.writer.close()
        await self.disk.close()
