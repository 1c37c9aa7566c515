"""Verbs of the store that are about no queue: the past, the journal, rates, health."""

import asyncio
from collections.abc import Mapping, Sequence

from courier.core.errors import StoreDamaged
from courier.core.limits import Rate
from courier.core.types import (
    MINUTE_MS,
    JournalHead,
    Level,
    Note,
    Run,
    Tally,
)
from courier.store.engine.calls import GroupRunner, Verbs
from courier.store.engine.disk import Disk
from courier.store.engine.journal import headers_of, packet_bytes, unfolded
from courier.store.engine.trim import Trim

# Longer pages of the journal are unfolded on a thread, and two are read at a time: each is in
# memory as a whole, and threads take turns with the event loop.
INLINE_BYTES_MAX = 256 << 10
PAGES_AT_ONCE = 2


class EnginePast(Verbs):
    def __init__(self, calls: GroupRunner, disk: Disk) -> None:
        super().__init__(calls)
        self._disk = disk

    async def tally(self, counts: Mapping[tuple[str, str], int], *, now_ms: int) -> None:
        def tally() -> None:
            for (tenant, kind), count in counts.items():
                self.calls.book.tally(kind, tenant, tenant, count=count, now_ms=now_ms)

        await self.calls.writer.submit(tally)

    async def tallies(
        self, *, tenant: str, id: str | None = None, since_ms: int, until_ms: int
    ) -> list[Tally]:
        minutes = (since_ms // MINUTE_MS, -(-until_ms // MINUTE_MS))
        return await self._disk.tallies(tenant, id, *minutes)

    async def levels(self, queues: Sequence[str], *, since_ms: int) -> list[list[Level]]:
        await self.calls.writer.current()
        for queue in queues:
            self.calls.book.line(queue)
        return await self._disk.levels(queues, since_ms // MINUTE_MS)


class EngineJournal(Verbs):
    def __init__(self, calls: GroupRunner, disk: Disk, trim: Trim) -> None:
        super().__init__(calls)
        self._disk = disk
        self._trim = trim
        self._pages = asyncio.Semaphore(PAGES_AT_ONCE)

    async def note(self, notes: Sequence[Note], *, now_ms: int) -> None:
        async def note() -> None:
            await self.calls.time.pass_time(now_ms)
            for each in notes:
                self.calls.book.note(
                    each.kind,
                    None,
                    tenant=each.tenant,
                    actor=each.actor,
                    now_ms=now_ms,
                    columns={"detail": each.detail},
                )

        await self.calls.run(note)

    async def head(self) -> JournalHead:
        book = self.calls.book
        await self.calls.writer.current()
        size = book.journal_bytes - book.journal_start_bytes
        return JournalHead(book.journal_first, book.journal_last, book.epoch, size, book.journal_ms)

    async def read(self, *, after: int, limit: int, bytes_max: int | None = None) -> list[Run]:
        try:
            async with self._pages:
                page = await self._disk.packets(after, limit=limit, bytes_max=bytes_max)
                if sum([packet_bytes(*each) for each in page]) > INLINE_BYTES_MAX:
                    return await asyncio.to_thread(unfolded, page)
                return unfolded(page)
        except StoreDamaged as error:
            self.calls.note_damage(error)
            raise

    async def offset_at(self, at_ms: int) -> int:
        before, packet = await self._disk.packet_at(at_ms)
        try:
            runs = headers_of(packet) if packet else []
        except StoreDamaged as error:
            self.calls.note_damage(error)
            raise
        return next((offset - 1 for offset, run_ms in runs if run_ms >= at_ms), before)

    async def trim(self, *, upto: int, before_ms: int | None = None) -> int:
        return await self.calls.run(lambda: self._trim.trim(upto, before_ms))

    async def backlogs(self, *, tenant: str | None = None) -> tuple[int, dict[str, int]]:
        return await self.calls.writer.submit(lambda: self.calls.book.backlogs(tenant))


class EngineRates:
    """Of one process, in memory."""

    def __init__(self) -> None:
        self._rates: dict[tuple[str, int], Rate] = {}

    async def take(self, queue: str, what: str, units: int, *, limit: int, now_ms: int) -> None:
        rate = self._rates.get((what, limit))
        if rate is None:
            rate = self._rates[what, limit] = Rate(what, limit=limit)
        rate.take(queue, units, now_ms=now_ms)


class EngineHealth(Verbs):
    def __init__(self, calls: GroupRunner, disk: Disk, *, damage_accepted: bool) -> None:
        super().__init__(calls)
        self._disk = disk
        self._damage_accepted = int(damage_accepted)
        self.unseen = calls.writer.unseen

    async def check(self) -> None:
        def check() -> None:
            self.calls.room.look()
            self.calls.room.touch()
            self.calls.book.changed = True

        self.calls.room.require_health()
        self.calls.writer.require_no_doubt()
        await self.calls.writer.submit(check)
        self.calls.room.require_space()

    def ahead_ns(self) -> int | None:
        return self._disk.ahead_ns()

    def free_bytes(self) -> int | None:
        return self.calls.room.free_bytes

    def figures(self) -> dict[str, int]:
        return {
            "commits": self.calls.writer.groups,
            "committed_calls": self.calls.writer.calls,
            "commits_in_doubt": self.calls.writer.doubts,
            "checkpoint_failures": self.calls.room.checkpoint_failures,
            "refusals_for_space": self.calls.room.refusals,
            "damage_accepted": self._damage_accepted,
            "damaged_reads": self.calls.room.damaged_reads,
        }
