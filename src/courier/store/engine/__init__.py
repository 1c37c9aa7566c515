"""The store: one engine that holds every rule, over a disk that only keeps rows."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

from msgspec.structs import replace

from courier.core.errors import StoreDamaged
from courier.core.store import R
from courier.core.types import (
    BROKER,
    MINUTE_MS,
    Actor,
    AnyRecord,
    Draft,
    Head,
    Leased,
    Level,
    Message,
    Note,
    Numbering,
    Outcome,
    Push,
    PushSettlement,
    PushStats,
    QueueStats,
    Receipt,
    Run,
    Settlement,
    Swept,
    Tally,
    Via,
)
from courier.store.engine.disk import Disk, Room
from courier.store.engine.engine import Engine
from courier.store.engine.joins import Joined, driven
from courier.store.engine.journal import headers_of, unfolded
from courier.store.engine.lines import PushLine, QueueLine
from courier.store.waiting import Waiters

T = TypeVar("T")

# How many numbers are asked for at a time; some cost a statement or two.
STATS_PART_MAX = 200


class Writer(Protocol):
    """Runs calls in groups, each in one transaction, and answers once it is durable."""

    groups: int
    calls: int
    doubts: int

    def submit(self, op: Callable[[], T]) -> "asyncio.Future[T]": ...

    def require_no_doubt(self) -> None:
        """Raises StoreUnavailable while the last commit has failed and may yet be found."""
        ...

    async def close(self) -> None: ...


class EngineStore:
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
        self.disk = disk
        self.room = room
        self.engine = engine
        self.writer = writer
        self._waiters = waiters
        self._accepted = accepted
        self._damage_accepted = int(bool(accepted))

    @property
    def secret(self) -> bytes:
        return self.engine.book.secret

    @property
    def doubt_ms(self) -> int:
        return self.engine.book.doubt_ms

    @doubt_ms.setter
    def doubt_ms(self, ms: int) -> None:
        self.engine.book.doubt_ms = ms

    async def _run(self, verb: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a verb in a group."""
        return await self._counted(self.writer.submit(lambda: driven(verb())))

    async def _counted(self, answer: "asyncio.Future[T]") -> T:
        try:
            return await answer
        except StoreDamaged as error:
            self._note_damage(error)
            raise

    def _note_damage(self, error: StoreDamaged) -> None:
        """Once damage was met the store says so until it is opened again."""
        self.room.met_damage(f"{error.what} {error.key}")

    async def _on(
        self, queue: str, now_ms: int, verb: Callable[[QueueLine], Coroutine[Any, Any, T]]
    ) -> T:
        """Run a verb on a queue: time passes, and the queue must be there."""

        async def run() -> T:
            return await verb(await self.engine.enter(queue, now_ms))

        return await self._run(run)

    # --- settings ---

    async def get(self, kind: type[R], id: str) -> R | None:
        return self.engine.settings.mirror.get(kind, id)  # type: ignore[return-value]

    async def named(self, kind: type[R], *, tenant: str, name: str) -> R | None:
        return self.engine.settings.mirror.named(kind, tenant, name)  # type: ignore[return-value]

    async def scan(
        self, kind: type[R], *, tenant: str | None = None, parent: str | None = None
    ) -> list[R]:
        return self.engine.settings.mirror.scan(kind, tenant, parent)

    async def change(
        self,
        *,
        puts: Sequence[AnyRecord] = (),
        drops: Sequence[AnyRecord] = (),
        actor: Actor,
        now_ms: int,
    ) -> None:
        if any(self.engine.settings.is_new(record) for record in puts):
            self.room.require_space()

        async def change() -> None:
            # What was due before the change happens by the rules that held until now.
            await self.engine.time.pass_time(now_ms)
            await self.engine.settings.change(puts, drops, actor, now_ms)

        await self._run(change)

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
            run = partial(self.engine.publish, queue, actor=actor, bytes_max=bytes_max)
            key = ("publish", queue, actor, bytes_max, now_ms // MINUTE_MS)
            op = Joined(key, (drafts, now_ms), run)
            return [await self._counted(self.writer.submit(op))]

        async def publish() -> list[Receipt]:
            await self.engine.time.pass_time(now_ms)
            return await self.engine.publishing.publish(
                batches, actor, now_ms, bytes_max=bytes_max, via=via
            )

        return await self._run(publish)

    async def publish_rows(
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

    async def rows(self, queue: str, *, key: str, now_ms: int, below: bool = False) -> int:
        stored = self.engine.numbered.stored
        return await self._on(queue, now_ms, lambda line: stored(line, key, now_ms, below=below))

    async def lease(
        self,
        queue: str,
        *,
        count: int,
        lease_ms: int,
        actor: Actor,
        now_ms: int,
        leased_max: int | None = None,
    ) -> Leased:
        if leased_max is None:
            run = partial(self.engine.lease, queue, lease_ms=lease_ms, actor=actor)
            key = ("lease", queue, actor, lease_ms, now_ms // MINUTE_MS)
            # Late, so that it finds what the same group publishes.
            op = Joined(key, (count, now_ms), run, late=True)
            return await self._counted(self.writer.submit(op))
        lease = self.engine.leases.lease
        return await self._on(
            queue,
            now_ms,
            lambda line: lease(line, count, lease_ms, actor, now_ms, leased_max=leased_max),
        )

    def wait(self, queue: str) -> "asyncio.Future[bool]":
        return self._waiters.wait(queue)

    def wake(self, queue: str) -> None:
        self._waiters.wake(queue, 1)

    async def settle(
        self, queue: str, items: Sequence[Settlement], *, actor: Actor, now_ms: int
    ) -> list[Outcome]:
        run = partial(self.engine.settle, queue, actor=actor)
        op = Joined(("settle", queue, actor, now_ms // MINUTE_MS), (items, now_ms), run)
        return await self._counted(self.writer.submit(op))

    async def claim(
        self, queue: str, name: str, *, count: int, lease_ms: int, actor: Actor, now_ms: int
    ) -> int:
        claim = self.engine.claims.claim
        return await self._on(
            queue, now_ms, lambda line: claim(line, name, count, lease_ms, actor, now_ms)
        )

    async def claimed(
        self,
        queue: str,
        name: str,
        *,
        first: int,
        count: int,
        now_ms: int,
        bytes_max: int | None = None,
    ) -> list[Message]:
        async def claimed(line: QueueLine) -> list[Message]:
            return await self.engine.claims.claimed(
                line, name, first=first, count=count, bytes_max=bytes_max, now_ms=now_ms
            )

        return await self._on(queue, now_ms, claimed)

    async def extend_claim(
        self, queue: str, name: str, *, lease_ms: int, actor: Actor, now_ms: int
    ) -> None:
        extend = self.engine.claims.extend
        await self._on(queue, now_ms, lambda line: extend(line, name, lease_ms, actor, now_ms))

    async def ack_claim(
        self, queue: str, name: str, *, actor: Actor, now_ms: int, after: str | None = None
    ) -> None:
        ack = self.engine.claims.ack
        await self._on(queue, now_ms, lambda line: ack(line, name, actor, now_ms, after=after))

    async def peek(self, queue: str, *, count: int, now_ms: int) -> list[Message]:
        peek = self.engine.leases.peek
        return await self._on(queue, now_ms, lambda line: peek(line, count, now_ms))

    async def browse(
        self, queue: str, *, after_seq: int, limit: int, now_ms: int, kept: bool = False
    ) -> list[Message]:
        browse = self.engine.messages.browse
        return await self._on(queue, now_ms, lambda line: browse(line, after_seq, limit, kept=kept))

    async def find(self, queue: str, message: str, *, now_ms: int) -> Message | None:
        find = self.engine.messages.find
        return await self._on(queue, now_ms, lambda line: find(line, message))

    async def rename(
        self, queue: str, seq: int, name: str, *, actor: Actor, now_ms: int
    ) -> Message | None:
        rename = self.engine.messages.rename
        return await self._on(queue, now_ms, lambda line: rename(line, seq, name, actor, now_ms))

    async def remove(
        self, queue: str, seqs: Sequence[int], *, actor: Actor, now_ms: int
    ) -> list[bool]:
        remove = self.engine.endings.remove
        return await self._on(queue, now_ms, lambda line: remove(line, seqs, actor, now_ms))

    async def purge(
        self, queue: str, *, upto_seq: int, limit: int, actor: Actor, now_ms: int
    ) -> int:
        purge = self.engine.endings.purge
        return await self._on(
            queue, now_ms, lambda line: purge(line, upto_seq, limit, actor, now_ms)
        )

    async def tail(self, queue: str) -> int:
        return self.engine.book.line(queue).tail

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
            return {id: await self.engine.stats.of(lines[id]) for id in ids if id in lines}

        return await self._in_parts(queues, now_ms, part)

    async def _in_parts(
        self,
        ids: Sequence[str],
        now_ms: int,
        part: Callable[[Sequence[str]], Coroutine[Any, Any, dict[str, T]]],
    ) -> dict[str, T]:
        """Ask for a few at a time, so that others have their turn between."""
        found: dict[str, T] = {}
        for first in range(0, len(ids), STATS_PART_MAX):
            those = ids[first : first + STATS_PART_MAX]

            async def run(those: Sequence[str] = those) -> dict[str, T]:
                await self.engine.time.pass_time(now_ms)
                return await part(those)

            found |= await self._run(run)
        return found

    async def backlogs(self, *, tenant: str | None = None) -> tuple[int, dict[str, int]]:
        return await self.writer.submit(lambda: self.engine.book.backlogs(tenant))

    # --- pushes ---

    async def _on_listener(
        self,
        listener: str,
        now_ms: int,
        verb: Callable[[QueueLine, PushLine], Coroutine[Any, Any, T]],
    ) -> T:
        """Run a verb on a listener: time passes, and the listener and its queue must be there."""

        async def run() -> T:
            return await verb(*await self.engine.enter_pushes(listener, now_ms))

        return await self._run(run)

    async def take_pushes(
        self, listener: str, *, count: int, lease_ms: int, now_ms: int
    ) -> list[Message]:
        take = self.engine.pushes.take
        return await self._on_listener(
            listener, now_ms, lambda line, pushes: take(line, pushes, count, lease_ms, now_ms)
        )

    async def settle_pushes(
        self, listener: str, items: Sequence[PushSettlement], *, now_ms: int
    ) -> list[bool]:
        settle = self.engine.pushes.settle
        return await self._on_listener(
            listener, now_ms, lambda line, pushes: settle(line, pushes, items, now_ms)
        )

    async def pushes(self, queue: str, seq: int, *, now_ms: int) -> list[Push]:
        of_message = self.engine.pushes.of_message
        return await self._on(queue, now_ms, lambda line: of_message(line, seq))

    async def push_stats(self, listeners: Sequence[str], *, now_ms: int) -> dict[str, PushStats]:
        async def part(ids: Sequence[str]) -> dict[str, PushStats]:
            book = self.engine.book
            known = [book.pushes[id] for id in ids if id in book.pushes]
            return {each.id: each.stats() for each in known if each.listener.parent in book.lines}

        return await self._in_parts(listeners, now_ms, part)

    async def missed(self, listener: str, *, limit: int, now_ms: int) -> list[str]:
        missed = self.engine.pushes.missed
        return await self._on_listener(
            listener, now_ms, lambda line, pushes: missed(line, pushes, limit)
        )

    async def retry_push(self, listener: str, seq: int, *, now_ms: int) -> bool:
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

    # --- numbers of the past ---

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

    async def levels(self, queue: str, *, since_ms: int) -> list[Level]:
        self.engine.book.line(queue)
        return await self.disk.levels(queue, since_ms // MINUTE_MS)

    # --- time passing ---

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

    async def check(self) -> None:
        def check() -> None:
            self.room.look()
            self.room.touch()
            self.engine.book.changed = True

        self.room.require_health()
        self.writer.require_no_doubt()
        await self.writer.submit(check)
        self.room.require_space()

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

    def free_bytes(self) -> int | None:
        return self.room.free_bytes

    # --- journal ---

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
        size = book.journal_bytes - book.journal_start_bytes
        return Head(book.journal_first, book.journal_last, book.epoch, size, book.journal_ms)

    async def read_journal(
        self, *, after: int, limit: int, bytes_max: int | None = None
    ) -> list[Run]:
        runs: list[Run] = []
        try:
            for packet, blocks in await self.disk.packets(after, limit=limit, bytes_max=bytes_max):
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

    async def trim_journal(self, *, upto: int, before_ms: int | None = None) -> int:
        return await self._run(lambda: self.engine.trim.trim(upto, before_ms))

    async def close(self) -> None:
        await self.writer.close()
        await self.disk.close()
