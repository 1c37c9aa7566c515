"""The store: one engine that holds every rule, over a disk that only keeps rows."""

from collections.abc import Sequence
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
    Outcome,
    Receipt,
    Settlement,
    Swept,
    Via,
)
from courier.core.waiters import Waiters
from courier.store.engine.calls import GroupWriter
from courier.store.engine.disk import Disk
from courier.store.engine.engine import Engine
from courier.store.engine.joins import Joined
from courier.store.engine.verbs import EngineHealth, EngineJournal, EnginePast, EngineRates

T = TypeVar("T")


class EngineStore:
    """See `core/store.py` for what it promises, and `store/embedded.py` for how it is opened.

    Most verbs are those of the engine's parts; here are the ones that join, and the rest.
    """

    def __init__(
        self,
        disk: Disk,
        engine: Engine,
        waiters: Waiters,
        writer: GroupWriter,
        accepted: dict[str, Any],
    ) -> None:
        """`accepted`: what the start has accepted of damage, for the journal."""
        self.disk = disk
        self.engine = engine
        # The same each time, so that it costs little to tell that calls ask for the same.
        self._publish, self._lease, self._settle = engine.publish, engine.lease, engine.settle
        self.writer = writer
        self.waiters = waiters
        self._calls = calls = engine.calls
        calls.writer = writer
        self.messages = engine.reading
        self.rows = engine.numbered
        self.claims = engine.claims
        self.pushes = engine.pushes
        self.journal = EngineJournal(calls, disk, engine.trim)
        self.past = EnginePast(calls, disk)
        self.rates: RateVerbs = EngineRates()
        self.health = EngineHealth(calls, disk, damage_accepted=bool(accepted))
        self.rename = engine.reading.rename
        self.remove = engine.endings.remove
        self.purge = engine.endings.purge
        self.redrive = engine.endings.redrive
        self.stats = engine.reading.stats
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
                    self._calls.room.require_space()
                settings.check(change)
            except Exception as error:  # concerns this call alone, and not its group
                return change, error
            await settings.change(change, actor, now_ms)
            return change, None

        decided, error = await self._calls.run(change)
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
        self._calls.room.require_space()
        if len(batches) == 1 and via is None:
            queue, drafts = batches[0]
            key = (self._publish, (queue, actor, bytes_max), now_ms // MINUTE_MS)
            op = Joined(key, (drafts, now_ms))
            try:
                return [await self.writer.submit(op)]
            except StoreDamaged as error:
                self._calls.note_damage(error)
                raise

        async def publish() -> list[Receipt]:
            await self.engine.time.pass_time(now_ms)
            return await self.engine.publishing.publish(
                batches, actor, now_ms, bytes_max=bytes_max, via=via
            )

        return await self._calls.run(publish)

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
        key = (self._lease, (queue, lease_ms, actor, leased_max), apart)
        # Late, so that it finds what the same group publishes.
        op = Joined(key, (count, now_ms, allowance), late=True)
        try:
            leased: Leased = await self.writer.submit(op)
            return leased
        except StoreDamaged as error:
            self._calls.note_damage(error)
            raise

    async def settle(
        self, queue: str, items: Sequence[Settlement], *, actor: Actor, now_ms: int
    ) -> list[Outcome]:
        key = (self._settle, (queue, actor), now_ms // MINUTE_MS)
        op = Joined(key, (items, now_ms))
        try:
            outcomes: list[Outcome] = await self.writer.submit(op)
            return outcomes
        except StoreDamaged as error:
            self._calls.note_damage(error)
            raise

    # --- time passing ---

    async def hold(
        self, duties: Sequence[str], *, now_ms: int, evenly: bool = False
    ) -> dict[str, int]:
        return await self.disk.hold(duties, evenly=evenly)

    async def sweep(self, *, limit: int, now_ms: int) -> Swept:
        async def sweep() -> Swept:
            self._calls.room.look()
            if self._accepted:  # noted here because a store is opened before there is a clock
                self.engine.book.note(
                    "damage_accepted",
                    None,
                    actor=BROKER,
                    now_ms=now_ms,
                    columns={"detail": self._accepted},
                )
            return await self.engine.time.sweep(now_ms, limit)

        swept = await self._calls.run(sweep)
        self._accepted = {}
        return replace(swept, short=True) if self._calls.room.short else swept

    async def close(self) -> None:
        await self.writer.close()
        await self.disk.close()
