"""The embedded store: one SQLite file, written by one group-committing writer."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any, Self, TypeVar

import apsw

from courier.core.errors import StoreUnavailable
from courier.core.sealed import Sealer
from courier.core.store import R
from courier.core.types import (
    BROKER,
    Actor,
    AnyRecord,
    Draft,
    Head,
    Leased,
    Level,
    Message,
    Note,
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
from courier.files import sync_directory
from courier.store.disk_sqlite.connection import abandon, claim, close, connect, disk_errors
from courier.store.disk_sqlite.damage import check_database, settle_log
from courier.store.disk_sqlite.migrate import migrate
from courier.store.disk_sqlite.secret import load as load_secret
from courier.store.disk_sqlite.volume import Volume
from courier.store.disk_sqlite.writer import Writer
from courier.store.sqlite.book import Book
from courier.store.sqlite.claims import Claims
from courier.store.sqlite.endings import Endings
from courier.store.sqlite.groups import Groups
from courier.store.sqlite.history import History, trim
from courier.store.sqlite.kept import Kept
from courier.store.sqlite.leases import Leases
from courier.store.sqlite.line import Line, PushLine
from courier.store.sqlite.messages import Messages
from courier.store.sqlite.outcomes import Outcomes
from courier.store.sqlite.publishing import Publishing
from courier.store.sqlite.push_rows import PushRows
from courier.store.sqlite.push_sweep import PushSweep
from courier.store.sqlite.pushes import Pushes
from courier.store.sqlite.retention import Retention
from courier.store.sqlite.rows import Rows
from courier.store.sqlite.settings import Settings
from courier.store.sqlite.sweep import Sweep
from courier.store.waiting import Waiters

T = TypeVar("T")

READERS = 2
# How many numbers are asked for at a time; some cost a statement or two.
STATS_PART_MAX = 200
_EPOCH = "SELECT epoch FROM meta"


class SqliteStore:
    """See `core/store.py` for what it promises."""

    def __init__(
        self,
        path: Path,
        db: apsw.Connection,
        lock: IO[str],
        volume: Volume,
        *,
        secret: bytes,
        commit_calls_max: int,
        commit_inline_ms_max: int,
    ) -> None:
        self._db = db
        self._volume = volume
        self._lock = lock
        self._waiters = Waiters()
        self._book = book = Book(db, self._waiters)
        groups = Groups(book)
        self._settings = Settings(db, book, groups)
        self._settings.load()
        book.reload()
        self._messages = messages = Messages(book)
        push_rows = PushRows(book)
        kept = Kept(book, push_rows)
        self._publishing = publishing = Publishing(book, groups, push_rows)
        self._endings = endings = Endings(book, groups, messages, publishing, push_rows, kept)
        self._rows = Rows(book, publishing, endings)
        retention = Retention(book, endings, push_rows)
        self._leases = Leases(book, groups, messages, publishing, endings, retention)
        self._claims = Claims(book, self._leases, endings)
        outcomes = Outcomes(book, push_rows, kept, messages, publishing)
        self._pushes = Pushes(book, push_rows, messages, outcomes, retention)
        push_sweep = PushSweep(book, push_rows, kept, outcomes)
        self._sweep = Sweep(book, groups, self._leases, endings, retention, push_sweep)
        self._history = History(path)
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="courier-read")
        self.writer = Writer(
            db,
            self._book,
            volume,
            calls_max=commit_calls_max,
            inline_s=commit_inline_ms_max / 1000,
        )
        self._epoch: str = db.execute(_EPOCH).get
        self._secret = secret
        self._damage: dict[str, Any] = {}
        self._damage_accepted = 0

    @classmethod
    async def open(
        cls,
        path: Path,
        *,
        sealer: Sealer | None = None,
        cache_bytes: int = 32 << 20,
        commit_calls_max: int = 1_024,
        commit_inline_ms_max: int = 1,
        disk_free_bytes_min: int = 0,
        check_at_start: str = "off",
        accept_damage: bool = False,
    ) -> Self:
        """Open or create the file. Raises StoreUnavailable when that cannot be done.

        `check_at_start` is off, quick or full. With `accept_damage` a damaged store is opened with
        what can be read of it, and the first sweep writes a `damage_accepted` event.
        """
        with ExitStack() as failing:
            lock = failing.enter_context(claim(path))
            with disk_errors():
                db = connect(path, cache_bytes=cache_bytes)
                failing.callback(abandon, db)
                damage = _recover(db, path, check=check_at_start, accept=accept_damage)
                volume = Volume(path, db, free_bytes_min=disk_free_bytes_min)
                _prepare(db, path, volume)
                store = cls(
                    path,
                    db,
                    lock,
                    volume,
                    secret=load_secret(db, sealer),
                    commit_calls_max=commit_calls_max,
                    commit_inline_ms_max=commit_inline_ms_max,
                )
            store._damage = damage
            store._damage_accepted = int(bool(damage))
            failing.pop_all()
            return store

    @property
    def secret(self) -> bytes:
        return self._secret

    @property
    def doubt_ms(self) -> int:
        return self._book.doubt_ms

    @doubt_ms.setter
    def doubt_ms(self, ms: int) -> None:
        self._book.doubt_ms = ms

    # --- settings ---

    async def get(self, kind: type[R], id: str) -> R | None:
        return self._settings.get(kind, id)

    async def named(self, kind: type[R], *, tenant: str, name: str) -> R | None:
        return self._settings.named(kind, tenant, name)

    async def scan(
        self, kind: type[R], *, tenant: str | None = None, parent: str | None = None
    ) -> list[R]:
        return self._settings.scan(kind, tenant, parent)

    async def change(
        self,
        *,
        puts: Sequence[AnyRecord] = (),
        drops: Sequence[AnyRecord] = (),
        actor: Actor,
        now_ms: int,
    ) -> None:
        if any(self._settings.is_new(record) for record in puts):
            self._volume.require_space()

        def op() -> None:
            # What was due before the change happens by the rules that held until now.
            self._sweep.pass_time(now_ms)
            self._settings.write(puts, drops, actor, now_ms)

        await self.writer.submit(op, then=lambda: self._settings.apply(puts, drops), alone=True)

    # --- messages ---

    def _enter(self, queue: str, now_ms: int) -> Line:
        """What every verb on a queue does first: time passes, and the queue must be there."""
        self._sweep.pass_time(now_ms)
        return self._book.line(queue)

    async def publish(
        self,
        batches: Sequence[tuple[str, Sequence[Draft]]],
        *,
        actor: Actor,
        now_ms: int,
        bytes_max: int | None = None,
        via: Via | None = None,
    ) -> list[Receipt]:
        self._volume.require_space()

        def op() -> list[Receipt]:
            self._sweep.pass_time(now_ms)
            return self._publishing.publish(batches, actor, now_ms, bytes_max=bytes_max, via=via)

        return await self.writer.submit(op)

    async def publish_rows(
        self,
        queue: str,
        drafts: Sequence[Draft],
        *,
        key: str,
        first: int,
        until_ms: int,
        actor: Actor,
        now_ms: int,
        bytes_max: int | None = None,
        listener: str | None = None,
        marks: Sequence[bytes] | None = None,
    ) -> int:
        self._volume.require_space()

        def op() -> int:
            return self._rows.publish(
                self._enter(queue, now_ms),
                drafts,
                actor,
                now_ms,
                key=key,
                first=first,
                until_ms=until_ms,
                bytes_max=bytes_max,
                listener=listener,
                marks=marks,
            )

        return await self.writer.submit(op)

    async def rows(self, queue: str, *, key: str, now_ms: int, below: bool = False) -> int:
        count = self._rows.below if below else self._rows.stored
        return await self.writer.submit(lambda: count(self._enter(queue, now_ms), key, now_ms))

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
        def op() -> Leased:
            line = self._enter(queue, now_ms)
            return self._leases.lease(line, count, lease_ms, actor, now_ms, leased_max=leased_max)

        return await self.writer.submit(op)

    def wait(self, queue: str) -> "asyncio.Future[bool]":
        return self._waiters.wait(queue)

    def wake(self, queue: str) -> None:
        self._waiters.wake(queue, 1)

    async def settle(
        self, queue: str, items: Sequence[Settlement], *, actor: Actor, now_ms: int
    ) -> list[Outcome]:
        def op() -> list[Outcome]:
            return self._leases.settle(self._enter(queue, now_ms), items, actor, now_ms)

        return await self.writer.submit(op)

    async def claim(
        self, queue: str, name: str, *, count: int, lease_ms: int, actor: Actor, now_ms: int
    ) -> int:
        def op() -> int:
            line = self._enter(queue, now_ms)
            return self._claims.claim(line, name, count, lease_ms, actor, now_ms)

        return await self.writer.submit(op)

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
        line = self._book.line(queue)
        behind = self._claims.behind(line, now_ms)
        rows = await self._read(
            self._history.claimed, line, name, first, count, bytes_max, behind, now_ms
        )
        return self._messages.read(line, rows, plus=0)

    async def extend_claim(
        self, queue: str, name: str, *, lease_ms: int, actor: Actor, now_ms: int
    ) -> None:
        def op() -> None:
            self._claims.extend(self._enter(queue, now_ms), name, lease_ms, actor, now_ms)

        await self.writer.submit(op)

    async def ack_claim(
        self, queue: str, name: str, *, actor: Actor, now_ms: int, after: str | None = None
    ) -> None:
        def op() -> None:
            self._claims.ack(self._enter(queue, now_ms), name, actor, now_ms, after=after)

        await self.writer.submit(op)

    async def peek(self, queue: str, *, count: int, now_ms: int) -> list[Message]:
        def op() -> list[Message]:
            return self._leases.peek(self._enter(queue, now_ms), count, now_ms)

        return await self.writer.submit(op)

    async def browse(
        self, queue: str, *, after_seq: int, limit: int, now_ms: int, kept: bool = False
    ) -> list[Message]:
        def op() -> list[Message]:
            return self._messages.browse(self._enter(queue, now_ms), after_seq, limit, kept=kept)

        return await self.writer.submit(op)

    async def find(self, queue: str, message: str, *, now_ms: int) -> Message | None:
        def op() -> Message | None:
            return self._messages.find(self._enter(queue, now_ms), message)

        return await self.writer.submit(op)

    async def rename(
        self, queue: str, seq: int, name: str, *, actor: Actor, now_ms: int
    ) -> Message | None:
        def op() -> Message | None:
            return self._messages.rename(self._enter(queue, now_ms), seq, name, actor, now_ms)

        return await self.writer.submit(op)

    async def remove(
        self, queue: str, seqs: Sequence[int], *, actor: Actor, now_ms: int
    ) -> list[bool]:
        def op() -> list[bool]:
            return self._endings.remove(self._enter(queue, now_ms), seqs, actor, now_ms)

        return await self.writer.submit(op)

    async def purge(
        self, queue: str, *, upto_seq: int, limit: int, actor: Actor, now_ms: int
    ) -> int:
        def op() -> int:
            line = self._enter(queue, now_ms)
            return self._endings.purge(line, upto_seq, limit, actor, now_ms)

        return await self.writer.submit(op)

    async def tail(self, queue: str) -> int:
        return await self.writer.submit(lambda: self._book.line(queue).tail)

    async def redrive(
        self, queue: str, *, seqs: Sequence[int], actor: Actor, now_ms: int, dry_run: bool = False
    ) -> list[bool]:
        def op() -> list[bool]:
            line = self._enter(queue, now_ms)
            return self._endings.redrive(line, seqs, actor, now_ms, dry_run=dry_run)

        return await self.writer.submit(op)

    async def stats(self, queues: Sequence[str], *, now_ms: int) -> dict[str, QueueStats]:
        def part(ids: Sequence[str]) -> dict[str, QueueStats]:
            book = self._book
            return {id: book.stats(book.lines[id]) for id in ids if id in book.lines}

        return await self._in_parts(queues, now_ms, part)

    async def backlogs(self, *, tenant: str | None = None) -> tuple[int, dict[str, int]]:
        return await self.writer.submit(lambda: self._book.backlogs(tenant))

    # --- pushes ---

    def _on_listener(
        self, listener: str, now_ms: int, verb: Callable[[Line, PushLine], T]
    ) -> "asyncio.Future[T]":
        """A verb on a listener: time passes, and the listener and its queue must be there."""

        def op() -> T:
            self._sweep.pass_time(now_ms)
            return verb(*self._book.push_line(listener))

        return self.writer.submit(op)

    async def take_pushes(
        self, listener: str, *, count: int, lease_ms: int, now_ms: int
    ) -> list[Message]:
        def take(line: Line, pushes: PushLine) -> list[Message]:
            return self._pushes.take(line, pushes, count, lease_ms, now_ms)

        return await self._on_listener(listener, now_ms, take)

    async def settle_pushes(
        self, listener: str, items: Sequence[PushSettlement], *, now_ms: int
    ) -> list[bool]:
        def settle(line: Line, pushes: PushLine) -> list[bool]:
            return self._pushes.settle(line, pushes, items, now_ms)

        return await self._on_listener(listener, now_ms, settle)

    async def pushes(self, queue: str, seq: int, *, now_ms: int) -> list[Push]:
        def op() -> list[Push]:
            return self._pushes.of_message(self._enter(queue, now_ms), seq)

        return await self.writer.submit(op)

    async def push_stats(self, listeners: Sequence[str], *, now_ms: int) -> dict[str, PushStats]:
        def part(ids: Sequence[str]) -> dict[str, PushStats]:
            book, live = self._book, self._book.push_lines.live
            known = [live[id] for id in ids if id in live]
            return {each.id: each.stats for each in known if each.listener.parent in book.lines}

        return await self._in_parts(listeners, now_ms, part)

    async def _in_parts(
        self, ids: Sequence[str], now_ms: int, part: Callable[[Sequence[str]], dict[str, T]]
    ) -> dict[str, T]:
        """Ask for a few at a time, so that others have their turn between."""
        found: dict[str, T] = {}
        for first in range(0, len(ids), STATS_PART_MAX):
            those = ids[first : first + STATS_PART_MAX]

            def op(those: Sequence[str] = those) -> dict[str, T]:
                self._sweep.pass_time(now_ms)
                return part(those)

            found |= await self.writer.submit(op)
        return found

    async def missed(self, listener: str, *, limit: int, now_ms: int) -> list[str]:
        def missed(line: Line, pushes: PushLine) -> list[str]:
            return self._pushes.missed(line, pushes, limit)

        return await self._on_listener(listener, now_ms, missed)

    async def retry_push(self, listener: str, seq: int, *, now_ms: int) -> bool:
        def retry(line: Line, pushes: PushLine) -> bool:
            return self._pushes.retry(line, pushes, seq, now_ms)

        return await self._on_listener(listener, now_ms, retry)

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
        self._volume.require_space()

        def backfill(line: Line, pushes: PushLine) -> tuple[int, int]:
            times = (since_ms, until_ms)
            return self._pushes.backfill(line, pushes, times, after_seq, limit, now_ms)

        return await self._on_listener(listener, now_ms, backfill)

    # --- numbers of the past ---

    async def tally(self, counts: Mapping[tuple[str, str], int], *, now_ms: int) -> None:
        def op() -> None:
            for (tenant, kind), count in counts.items():
                self._book.tally(kind, tenant, tenant, count=count, now_ms=now_ms)

        await self.writer.submit(op)

    async def tallies(
        self, *, tenant: str, id: str | None = None, since_ms: int, until_ms: int
    ) -> list[Tally]:
        return await self._read(self._history.tallies, tenant, id, since_ms, until_ms)

    async def levels(self, queue: str, *, since_ms: int) -> list[Level]:
        self._book.line(queue)
        return await self._read(self._history.levels, queue, since_ms)

    async def _read(self, verb: Callable[..., T], *values: Any) -> T:
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._readers, verb, *values)
        except StoreUnavailable as error:
            if error.__cause__ is not None:
                self._volume.failed(error.__cause__)
            raise

    # --- time passing ---

    async def sweep(self, *, limit: int, now_ms: int) -> Swept:
        def op() -> Swept:
            self._volume.look()
            if self._damage:  # noted here because a store is opened before there is a clock
                columns = {"detail": self._damage}
                self._book.note(
                    "damage_accepted", None, actor=BROKER, now_ms=now_ms, columns=columns
                )
            return self._sweep.sweep(now_ms, limit)

        return await self.writer.submit(op, then=self._damage.clear if self._damage else None)

    async def check(self) -> None:
        def op() -> None:
            self._volume.look()
            self._volume.touch()
            self._book.changed = True

        self._volume.require_health()
        self.writer.require_no_doubt()
        await self.writer.submit(op)
        self._volume.require_space()

    def figures(self) -> dict[str, int]:
        volume = self._volume
        return {
            "commits": self.writer.groups,
            "committed_calls": self.writer.calls,
            "commits_in_doubt": self.writer.doubts,
            "checkpoint_failures": volume.checkpoint_failures,
            "refusals_for_space": volume.refusals,
            "damage_accepted": self._damage_accepted,
        }

    def free_bytes(self) -> int | None:
        return self._volume.free_bytes

    # --- journal ---

    async def note(self, notes: Sequence[Note], *, now_ms: int) -> None:
        def op() -> None:
            self._sweep.pass_time(now_ms)
            for each in notes:
                self._book.note(
                    each.kind,
                    None,
                    tenant=each.tenant,
                    actor=each.actor,
                    now_ms=now_ms,
                    columns={"detail": each.detail},
                )

        await self.writer.submit(op)

    async def head(self) -> Head:
        book = self._book
        size = book.journal_bytes - book.journal_start_bytes
        return Head(book.journal_first, book.journal_last, self._epoch, size, book.journal_ms)

    async def read_journal(
        self, *, after: int, limit: int, bytes_max: int | None = None
    ) -> list[Run]:
        return await self._read(self._history.runs, after, limit, bytes_max)

    async def offset_at(self, at_ms: int) -> int:
        return await self._read(self._history.offset_at, at_ms)

    async def trim_journal(self, *, upto: int, before_ms: int | None = None) -> int:
        return await self.writer.submit(
            lambda: trim(self._book, upto, before_ms),
            then=self._book.reload_journal,
            alone=True,
        )

    async def close(self) -> None:
        await self.writer.close()
        self._readers.shutdown()
        close(self._db)
        self._lock.close()


def _recover(db: apsw.Connection, path: Path, *, check: str, accept: bool) -> dict[str, Any]:
    """Judge what the last process left; what was accepted of damage."""
    db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    damage = settle_log(db, path, accept=accept)
    found = ""
    if check != "off":
        found = check_database(db, path, full=check == "full", accept=accept)
    db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)
    log = {"frame": damage.frame, "frames": damage.frames, "lost": damage.lost} if damage else {}
    return {**log, **({"database": found} if found else {})}


def _prepare(db: apsw.Connection, path: Path, volume: Volume) -> None:
    """Begin with an empty log, the newest tables, and names that a power loss cannot take."""
    # A start that failed may have left a log whose name is not durable. It must not go while only
    # some of its pages are copied.
    sync_directory(path.parent)
    volume.empty_log()
    migrate(db, "courier.store.sqlite")
    sync_directory(path.parent)
    volume.look()
