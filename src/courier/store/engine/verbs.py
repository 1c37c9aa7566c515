"""Verbs of the store that are about no queue: the past, the journal, rates, health.

To trim the journal is the one way for a body to go. A block goes when the journal is past it and no
line has to do with any of its messages; when few of them are left, the bodies of the others go.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence

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
from courier.store.engine.blocks import Block
from courier.store.engine.calls import GroupRunner, Verbs
from courier.store.engine.deliveries import Deliveries
from courier.store.engine.disk import Loose, Since
from courier.store.engine.journal import headers_of, packet_bytes, unfolded
from courier.store.engine.layout import SEQ_BITS, SEQ_MASK
from courier.store.engine.lines import QueueLine
from courier.store.engine.messages import name_key

# Packets forgotten, and blocks looked at, by one call.
PARTS_MAX = 1_000
# A block loses the bodies of its dead when fewer than one in this many of its messages are alive.
SPARSE = 4
# Longer pages of the journal are unfolded on a thread, and two are read at a time: each is in
# memory as a whole, and threads take turns with the event loop.
INLINE_BYTES_MAX = 256 << 10
PAGES_AT_ONCE = 2


class EnginePast(Verbs):
    async def tally(self, counts: Mapping[tuple[str, str], int], *, now_ms: int) -> None:
        async def tally() -> None:
            for (tenant, kind), count in counts.items():
                self._book.tally(kind, tenant, tenant, count=count, now_ms=now_ms)

        await self.calls.writer.submit(tally)

    async def tallies(
        self, *, tenant: str, id: str | None = None, since_ms: int, until_ms: int
    ) -> list[Tally]:
        minutes = (since_ms // MINUTE_MS, -(-until_ms // MINUTE_MS))
        return await self._book.disk.tallies(tenant, id, *minutes)

    async def levels(self, queues: Sequence[str], *, since_ms: int) -> list[list[Level]]:
        await self.calls.writer.current()
        for queue in queues:
            self._book.line(queue)
        return await self._book.disk.levels(queues, since_ms // MINUTE_MS)


class EngineJournal(Verbs):
    def __init__(self, calls: GroupRunner, deliveries: Deliveries) -> None:
        super().__init__(calls)
        self._deliveries = deliveries
        self._pages = asyncio.Semaphore(PAGES_AT_ONCE)
        # Where in the journal's past the last look at loose blocks ended.
        self._looked = 0

    async def note(self, notes: Sequence[Note], *, now_ms: int) -> None:
        async def note() -> None:
            await self.calls.pass_time(now_ms)
            for each in notes:
                self._book.note(
                    each.kind,
                    None,
                    tenant=each.tenant,
                    actor=each.actor,
                    now_ms=now_ms,
                    columns={"detail": each.detail},
                )

        await self.calls.writer.submit(note)

    async def head(self) -> JournalHead:
        book = self._book
        await self.calls.writer.current()
        size = book.journal_bytes - book.journal_start_bytes
        last = book.journal_last
        head = JournalHead(book.journal_first, last, book.epoch, size, book.journal_ms)
        await self.calls.writer.kept(last)
        return head

    async def read(self, *, after: int, limit: int, bytes_max: int | None = None) -> list[Run]:
        try:
            async with self._pages:
                page = await self._book.disk.packets(after, limit=limit, bytes_max=bytes_max)
                if sum([packet_bytes(*each) for each in page]) > INLINE_BYTES_MAX:
                    return await asyncio.to_thread(unfolded, page)
                return unfolded(page)
        except StoreDamaged as error:
            self.calls.room.met_damage(error.place)
            raise

    async def offset_at(self, at_ms: int) -> int:
        last = (await self.head()).last
        try:
            for packet, _ in await self._book.disk.packets(Since(at_ms), limit=1, bytes_max=None):
                runs = headers_of(packet)
                return next(offset - 1 for offset, run_ms in runs if run_ms >= at_ms)
        except StoreDamaged as error:
            self.calls.room.met_damage(error.place)
            raise
        return last

    async def trim(self, *, upto: int, before_ms: int | None = None) -> int:
        return await self.calls.writer.submit(lambda: self._trim(upto, before_ms))

    async def _trim(self, upto: int, before_ms: int | None) -> int:
        """Forget packets, never the newest one: it says where the journal ends."""
        book = self._book
        first, before_bytes, loose = await book.disk.trim(
            upto, before_ms=before_ms, loose_after=self._looked, limit=PARTS_MAX
        )
        forgotten = first - book.journal_first
        if forgotten:
            book.journal_first, book.journal_start_bytes = first, before_bytes
            book.changed = True
        await self._free(loose)
        return forgotten

    async def _free(self, found: Sequence[Loose]) -> None:
        """Look at some of the blocks that the journal is past, in turn."""
        book = self._book
        emptied: set[int] = set()
        for loose in found:
            line = book.by_no[loose.key >> SEQ_BITS]
            assert isinstance(line, QueueLine)
            alive = await self._alive(line, loose)
            if not alive:
                await self._free_block(line, loose)
                emptied.add(line.no)
            elif SPARSE * len(alive) < loose.length:
                await self._thin(line, loose, alive)
        self._looked = found[-1].last if len(found) == PARTS_MAX else 0
        for no in emptied & book.spent.keys():
            if not await book.blocks.are_left(no, but=book.changes.freed):
                book.forget_line(book.spent[no])

    async def _alive(self, line: QueueLine, loose: Loose) -> list[int]:
        """Sequences of the block's messages that some line has to do with."""
        first = loose.key & SEQ_MASK
        last = first + loose.length - 1
        if line.spent:
            return []
        alive: set[int] = set()
        for each in line.all_lines:
            standing = await self._deliveries.standing(
                each, after=first - 1, upto=last, limit=loose.length
            )
            alive |= {delivery.seq for delivery in standing}
            if len(alive) == loose.length:
                break
        return sorted(alive)

    async def _free_block(self, line: QueueLine, loose: Loose) -> None:
        changes = self._book.changes
        first = loose.key & SEQ_MASK
        end = first + loose.length
        changes.freed.append(loose.key)
        changes.expiries.pop(loose.key, None)
        if line.near is not None and line.near.key == loose.key:
            line.near = None
        self._book.blocks.forget(loose.key)
        self._book.changed = True
        if line.renamed:
            changes.forgotten.append((line.no, "name", name_key(first), name_key(end)))
        for each in line.all_lines:
            await self._deliveries.forget_gone(each, first, end)
        for pushes in line.pushes:
            changes.settled.append((pushes.base | first, pushes.base | end - 1))

    async def _thin(self, line: QueueLine, loose: Loose, alive: list[int]) -> None:
        """Take out the bodies of the dead, if there are any left."""
        block: Block = await self._book.blocks.at(line, loose.key & SEQ_MASK, bodies=True)
        places = {seq - block.first for seq in alive}
        assert block.bodies is not None
        if all(body is None or at in places for at, body in enumerate(block.bodies)):
            return
        block.only_bodies_at(sorted(places))
        self._book.changes.blocks.append(block.row())
        self._book.blocks.forget(block.key)
        line.near = None
        self._book.changed = True

    async def backlogs(self, *, tenant: str | None = None) -> tuple[int, dict[str, int]]:
        async def backlogs() -> tuple[int, dict[str, int]]:
            return self._book.backlogs(tenant)

        return await self.calls.writer.submit(backlogs)


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
    def __init__(self, calls: GroupRunner, *, damage_accepted: bool) -> None:
        super().__init__(calls)
        self._damage_accepted = int(damage_accepted)
        self.unseen = calls.writer.unseen
        self.ahead_ns: Callable[[], int | None] = lambda: None

    async def check(self) -> None:
        async def check() -> None:
            self.calls.room.look()
            self.calls.room.touch()
            self._book.changed = True

        self.calls.room.require_health()
        self.calls.writer.require_no_doubt()
        await self.calls.writer.submit(check)
        self.calls.room.require_space()

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
