"""Verbs of the store by noun: claims, pushes, rows, messages, the past, the journal, health."""

import asyncio
from collections.abc import Mapping, Sequence

from courier.core.errors import StoreDamaged
from courier.core.limits import Allowance, Rate
from courier.core.types import (
    MINUTE_MS,
    Actor,
    Draft,
    Head,
    Level,
    Message,
    MessageState,
    Note,
    Numbering,
    Push,
    PushSettlement,
    PushStats,
    Run,
    Standing,
    Tally,
)
from courier.store.engine.calls import Calls, Writer
from courier.store.engine.disk import Disk, Room
from courier.store.engine.engine import Engine
from courier.store.engine.journal import headers_of, unfolded
from courier.store.engine.lines import QueueLine

# Longer packets of the journal are read on a thread.
INLINE_BYTES_MAX = 256 << 10


class EngineClaims(Calls):
    async def take(
        self, queue: str, name: str, *, count: int, lease_ms: int, actor: Actor, now_ms: int
    ) -> int:
        claim = self.engine.claims.claim
        return await self._on(
            queue, now_ms, lambda line: claim(line, name, count, lease_ms, actor, now_ms)
        )

    async def messages(
        self,
        queue: str,
        name: str,
        *,
        first: int,
        count: int,
        now_ms: int,
        allowance: Allowance | None = None,
    ) -> list[Message]:
        async def claimed(line: QueueLine) -> list[Message]:
            return await self.engine.claims.claimed(
                line, name, first=first, count=count, allowance=allowance, now_ms=now_ms
            )

        return await self._on(queue, now_ms, claimed)

    async def extend(
        self, queue: str, name: str, *, lease_ms: int, actor: Actor, now_ms: int
    ) -> None:
        extend = self.engine.claims.extend
        await self._on(queue, now_ms, lambda line: extend(line, name, lease_ms, actor, now_ms))

    async def ack(
        self, queue: str, name: str, *, actor: Actor, now_ms: int, after: str | None = None
    ) -> None:
        ack = self.engine.claims.ack
        await self._on(queue, now_ms, lambda line: ack(line, name, actor, now_ms, after=after))


class EnginePushes(Calls):
    async def take(
        self,
        listener: str,
        *,
        count: int,
        lease_ms: int,
        now_ms: int,
        allowance: Allowance | None = None,
    ) -> list[Message]:
        take = self.engine.pushes.take
        return await self._on_listener(
            listener,
            now_ms,
            lambda line, pushes: take(line, pushes, count, lease_ms, now_ms, allowance),
        )

    async def settle(
        self, listener: str, items: Sequence[PushSettlement], *, now_ms: int
    ) -> list[bool]:
        settle = self.engine.pushes.settle
        return await self._on_listener(
            listener, now_ms, lambda line, pushes: settle(line, pushes, items, now_ms)
        )

    async def of_message(self, queue: str, seq: int, *, now_ms: int) -> list[Push]:
        of_message = self.engine.pushes.of_message
        return await self._on(queue, now_ms, lambda line: of_message(line, seq))

    async def stats(self, listeners: Sequence[str], *, now_ms: int) -> dict[str, PushStats]:
        async def part(ids: Sequence[str]) -> dict[str, PushStats]:
            book = self.engine.book
            known = [book.pushes[id] for id in ids if id in book.pushes]
            return {each.id: each.stats() for each in known if each.listener.parent in book.lines}

        return await self._in_parts(listeners, now_ms, part)

    async def missed(
        self, listener: str, *, limit: int, now_ms: int, before_seq: int = 0
    ) -> list[str]:
        missed = self.engine.pushes.missed
        return await self._on_listener(
            listener, now_ms, lambda line, pushes: missed(line, pushes, limit, before_seq)
        )

    async def retry(self, listener: str, seq: int, *, now_ms: int) -> bool:
        retry = self.engine.pushes.retry
        return await self._on_listener(
            listener, now_ms, lambda line, pushes: retry(line, pushes, seq, now_ms)
        )

    async def backfill(
        self,
        listener: str,
        *,
        since_ms: int,
        until_ms: int,
        after_seq: int,
        limit: int,
        now_ms: int,
    ) -> tuple[int, int]:
        self.room.require_space()
        backfill = self.engine.pushes.backfill
        times = (since_ms, until_ms)
        return await self._on_listener(
            listener,
            now_ms,
            lambda line, pushes: backfill(line, pushes, times, after_seq, limit, now_ms),
        )


class EngineRows(Calls):
    async def publish(
        self,
        queue: str,
        drafts: Sequence[Draft],
        numbering: Numbering,
        *,
        actor: Actor,
        now_ms: int,
        bytes_max: int | None = None,
        listener: str | None = None,
    ) -> int:
        self.room.require_space()

        async def publish(line: QueueLine) -> int:
            return await self.engine.numbered.publish(
                line, drafts, numbering, actor, now_ms, bytes_max=bytes_max, listener=listener
            )

        return await self._on(queue, now_ms, publish)

    async def count(self, queue: str, *, key: str, now_ms: int, below: bool = False) -> int:
        stored = self.engine.numbered.stored
        return await self._on(queue, now_ms, lambda line: stored(line, key, now_ms, below=below))


class EngineMessages(Calls):
    async def peek(
        self,
        queue: str,
        *,
        count: int,
        now_ms: int,
        bodies: bool = True,
        allowance: Allowance | None = None,
    ) -> list[Message]:
        async def peek(line: QueueLine) -> list[Message]:
            return await self.engine.leases.peek(
                line, count, now_ms, bodies=bodies, allowance=allowance
            )

        return await self._on(queue, now_ms, peek)

    async def browse(
        self,
        queue: str,
        *,
        after_seq: int,
        limit: int,
        now_ms: int,
        kept: bool = False,
        bodies: bool = True,
        allowance: Allowance | None = None,
    ) -> list[Message]:
        async def browse(line: QueueLine) -> list[Message]:
            return await self.engine.messages.browse(
                line, after_seq, limit, kept=kept, bodies=bodies, allowance=allowance
            )

        return await self._on(queue, now_ms, browse)

    async def states(
        self,
        queue: str,
        *,
        after_seq: int,
        before_seq: int,
        limit: int,
        now_ms: int,
        state: MessageState | None = None,
    ) -> tuple[list[Standing], int]:
        async def states(line: QueueLine) -> tuple[list[Standing], int]:
            return await self.engine.messages.states(
                line, after_seq, before_seq, limit, state=state, now_ms=now_ms
            )

        return await self._on(queue, now_ms, states)

    async def find(self, queue: str, message: str, *, now_ms: int) -> Message | None:
        find = self.engine.messages.find
        return await self._on(queue, now_ms, lambda line: find(line, message))

    async def tail(self, queue: str) -> int:
        await self.writer.current()
        return self.engine.book.line(queue).tail


class EnginePast(Calls):
    async def tally(self, counts: Mapping[tuple[str, str], int], *, now_ms: int) -> None:
        def tally() -> None:
            for (tenant, kind), count in counts.items():
                self.engine.book.tally(kind, tenant, tenant, count=count, now_ms=now_ms)

        await self.writer.submit(tally)

    async def tallies(
        self, *, tenant: str, id: str | None = None, since_ms: int, until_ms: int
    ) -> list[Tally]:
        minutes = (since_ms // MINUTE_MS, -(-until_ms // MINUTE_MS))
        return await self.disk.tallies(tenant, id, *minutes)

    async def levels(self, queues: Sequence[str], *, since_ms: int) -> list[list[Level]]:
        await self.writer.current()
        for queue in queues:
            self.engine.book.line(queue)
        return await self.disk.levels(queues, since_ms // MINUTE_MS)


class EngineJournal(Calls):
    async def note(self, notes: Sequence[Note], *, now_ms: int) -> None:
        async def note() -> None:
            await self.engine.time.pass_time(now_ms)
            for each in notes:
                self.engine.book.note(
                    each.kind,
                    None,
                    tenant=each.tenant,
                    actor=each.actor,
                    now_ms=now_ms,
                    columns={"detail": each.detail},
                )

        await self._run(note)

    async def head(self) -> Head:
        book = self.engine.book
        await self.writer.current()
        size = book.journal_bytes - book.journal_start_bytes
        return Head(book.journal_first, book.journal_last, book.epoch, size, book.journal_ms)

    async def read(self, *, after: int, limit: int, bytes_max: int | None = None) -> list[Run]:
        runs: list[Run] = []
        try:
            for packet, blocks in await self.disk.packets(after, limit=limit, bytes_max=bytes_max):
                if sum([len(block.data or b"") for block in blocks]) > INLINE_BYTES_MAX:
                    runs += await asyncio.to_thread(unfolded, packet, blocks)
                else:
                    runs += unfolded(packet, blocks)
        except StoreDamaged as error:
            self._note_damage(error)
            raise
        return runs

    async def offset_at(self, at_ms: int) -> int:
        before, packet = await self.disk.packet_at(at_ms)
        try:
            runs = headers_of(packet) if packet else []
        except StoreDamaged as error:
            self._note_damage(error)
            raise
        return next((offset - 1 for offset, run_ms in runs if run_ms >= at_ms), before)

    async def trim(self, *, upto: int, before_ms: int | None = None) -> int:
        return await self._run(lambda: self.engine.trim.trim(upto, before_ms))

    async def backlogs(self, *, tenant: str | None = None) -> tuple[int, dict[str, int]]:
        return await self.writer.submit(lambda: self.engine.book.backlogs(tenant))


class EngineRates:
    """Of one process, in memory."""

    def __init__(self) -> None:
        self._rates: dict[tuple[str, int], Rate] = {}

    async def take(self, queue: str, what: str, units: int, *, limit: int, now_ms: int) -> None:
        rate = self._rates.get((what, limit))
        if rate is None:
            rate = self._rates[what, limit] = Rate(what, limit=limit)
        rate.take(queue, units, now_ms=now_ms)


class EngineHealth(Calls):
    def __init__(
        self, disk: Disk, room: Room, engine: Engine, writer: Writer, *, damage_accepted: bool
    ) -> None:
        super().__init__(disk, room, engine, writer)
        self._damage_accepted = int(damage_accepted)
        self.unseen = writer.unseen

    async def check(self) -> None:
        def check() -> None:
            self.room.look()
            self.room.touch()
            self.engine.book.changed = True

        self.room.require_health()
        self.writer.require_no_doubt()
        await self.writer.submit(check)
        self.room.require_space()

    def ahead_ns(self) -> int | None:
        return self.disk.ahead_ns()

    def free_bytes(self) -> int | None:
        return self.room.free_bytes

    def figures(self) -> dict[str, int]:
        return {
            "commits": self.writer.groups,
            "committed_calls": self.writer.calls,
            "commits_in_doubt": self.writer.doubts,
            "checkpoint_failures": self.room.checkpoint_failures,
            "refusals_for_space": self.room.refusals,
            "damage_accepted": self._damage_accepted,
            "damaged_reads": self.room.damaged_reads,
        }
