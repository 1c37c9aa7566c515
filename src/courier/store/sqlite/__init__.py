"""The embedded store: one SQLite file, written by one group-committing writer."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Self, TypeVar

import apsw

from courier import ids
from courier.core.store import R
from courier.core.types import (
    Actor,
    AnyRecord,
    Draft,
    Head,
    Leased,
    Message,
    Outcome,
    QueueStats,
    Receipt,
    Run,
    Settlement,
    Swept,
)
from courier.store.migrate import migrate
from courier.store.sqlite.book import Book
from courier.store.sqlite.connection import claim, connect, disk_errors
from courier.store.sqlite.endings import Endings
from courier.store.sqlite.journal import JournalReader, trim
from courier.store.sqlite.leases import Leases
from courier.store.sqlite.messages import Messages
from courier.store.sqlite.publishing import Publishing
from courier.store.sqlite.settings import Settings
from courier.store.sqlite.sweep import Sweep
from courier.store.sqlite.writer import Writer

T = TypeVar("T")

READERS = 2
_CREATE = "INSERT INTO meta (one, epoch, secret) VALUES (1, ?, ?)"
_META = "SELECT epoch, secret FROM meta"
_CHECK = "UPDATE meta SET checked_ms = checked_ms + 1"


class SqliteStore:
    """See `core/store.py` for what it promises."""

    def __init__(
        self,
        path: Path,
        db: apsw.Connection,
        lock: IO[str],
        *,
        commit_calls_max: int,
        commit_inline_ms_max: int,
    ) -> None:
        self._db = db
        self._lock = lock
        self._book = Book(db)
        self._settings = Settings(db, self._book)
        self._settings.load()
        self._book.reload()
        self._messages = Messages(self._book)
        self._publishing = Publishing(self._book)
        self._endings = Endings(self._book, self._messages, self._publishing)
        self._leases = Leases(self._book, self._messages, self._publishing, self._endings)
        self._sweep = Sweep(self._book, self._leases, self._endings)
        self._reader = JournalReader(path)
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="courier-read")
        self.writer = Writer(
            db, self._book, calls_max=commit_calls_max, inline_s=commit_inline_ms_max / 1000
        )
        meta = self._book.row(_META)
        assert meta is not None, "the migrations leave a row"
        self._epoch: str = meta[0]
        self._secret: bytes = meta[1]

    @classmethod
    async def open(
        cls,
        path: Path,
        *,
        cache_bytes: int = 32 << 20,
        commit_calls_max: int = 1_024,
        commit_inline_ms_max: int = 1,
    ) -> Self:
        """Open or create the file. Raises StoreUnavailable when that cannot be done."""
        lock = claim(path)
        try:
            with disk_errors():
                db = connect(path, cache_bytes=cache_bytes)
                if migrate(db, "courier.store.sqlite"):
                    db.execute(_CREATE, (ids.new_id(), ids.new_bytes(32)))
                return cls(
                    path,
                    db,
                    lock,
                    commit_calls_max=commit_calls_max,
                    commit_inline_ms_max=commit_inline_ms_max,
                )
        except BaseException:
            lock.close()
            raise

    @property
    def secret(self) -> bytes:
        return self._secret

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
        def op() -> None:
            # What was due before the change happens by the rules that held until now.
            self._sweep.pass_time(now_ms)
            self._settings.write(puts, drops, actor, now_ms)

        await self.writer.submit(op, then=lambda: self._settings.apply(puts, drops), alone=True)

    # --- messages ---

    def _run(self, now_ms: int, op: Callable[[], T]) -> "asyncio.Future[T]":
        def timely() -> T:
            self._sweep.pass_time(now_ms)
            return op()

        return self.writer.submit(timely)

    async def publish(
        self,
        batches: Sequence[tuple[str, Sequence[Draft]]],
        *,
        actor: Actor,
        now_ms: int,
        bytes_max: int | None = None,
    ) -> list[Receipt]:
        def op() -> list[Receipt]:
            lines = [(self._book.line(queue), drafts) for queue, drafts in batches]
            if bytes_max is not None:
                for line, drafts in lines:
                    self._publishing.check_room(line, drafts, bytes_max)
            return [self._publishing.publish(line, drafts, actor, now_ms) for line, drafts in lines]

        return await self._run(now_ms, op)

    async def lease(
        self, queue: str, *, count: int, lease_ms: int, actor: Actor, now_ms: int
    ) -> Leased:
        return await self._run(
            now_ms,
            lambda: self._leases.lease(self._book.line(queue), count, lease_ms, actor, now_ms),
        )

    async def settle(
        self, queue: str, items: Sequence[Settlement], *, actor: Actor, now_ms: int
    ) -> list[Outcome]:
        return await self._run(
            now_ms, lambda: self._leases.settle(self._book.line(queue), items, actor, now_ms)
        )

    async def peek(self, queue: str, *, count: int, now_ms: int) -> list[Message]:
        return await self._run(
            now_ms, lambda: self._leases.peek(self._book.line(queue), count, now_ms)
        )

    async def browse(self, queue: str, *, after_seq: int, limit: int, now_ms: int) -> list[Message]:
        return await self._run(
            now_ms, lambda: self._messages.browse(self._book.line(queue), after_seq, limit)
        )

    async def find(self, queue: str, message: str, *, now_ms: int) -> Message | None:
        return await self._run(now_ms, lambda: self._messages.find(self._book.line(queue), message))

    async def remove(
        self, queue: str, seqs: Sequence[int], *, actor: Actor, now_ms: int
    ) -> list[bool]:
        return await self._run(
            now_ms, lambda: self._endings.remove(self._book.line(queue), seqs, actor, now_ms)
        )

    async def purge(
        self, queue: str, *, upto_seq: int, limit: int, actor: Actor, now_ms: int
    ) -> int:
        return await self._run(
            now_ms,
            lambda: self._endings.purge(self._book.line(queue), upto_seq, limit, actor, now_ms),
        )

    async def tail(self, queue: str) -> int:
        return self._book.line(queue).tail

    async def redrive(
        self, queue: str, *, seqs: Sequence[int], actor: Actor, now_ms: int, dry_run: bool = False
    ) -> list[bool]:
        def op() -> list[bool]:
            line = self._book.line(queue)
            return self._endings.redrive(line, seqs, actor, now_ms, dry_run=dry_run)

        return await self._run(now_ms, op)

    async def stats(self, queue: str, *, now_ms: int) -> QueueStats:
        return await self._run(now_ms, lambda: self._book.stats(self._book.line(queue)))

    # --- time passing ---

    async def sweep(self, *, limit: int, now_ms: int) -> Swept:
        return await self.writer.submit(lambda: self._sweep.sweep(now_ms, limit))

    async def check(self) -> None:
        def op() -> None:
            self._db.execute(_CHECK)
            self._book.changed = True

        await self.writer.submit(op)

    def figures(self) -> dict[str, int]:
        return {"commits": self.writer.groups, "committed_calls": self.writer.calls}

    # --- journal ---

    async def head(self) -> Head:
        book = self._book
        size = book.journal_bytes - book.journal_start_bytes
        return Head(book.journal_first, book.journal_last, self._epoch, size)

    async def read_journal(self, *, after: int, limit: int) -> list[Run]:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._readers, self._reader.read, after, limit)

    async def trim_journal(self, *, upto: int, before_ms: int | None = None) -> int:
        return await self.writer.submit(
            lambda: trim(self._book, upto, before_ms),
            then=self._book.reload_journal,
            alone=True,
        )

    async def close(self) -> None:
        await self.writer.close()
        self._readers.shutdown()
        self._db.close()
        self._lock.close()
