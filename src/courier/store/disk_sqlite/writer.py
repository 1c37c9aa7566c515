"""Group commit: concurrent calls share a transaction, and nobody is answered before its fsync.

Statements run on the event loop's thread, one group after the other. Running them on another
would be slower: SQLite's driver lets go of the interpreter lock at every step, and a busy loop
is slow to give it back.

A group with long bodies is written on another thread all the same: what matters then is the time
that SQLite takes for them, without the interpreter lock.

COMMIT waits for the disk. A slow disk is waited for on a thread of its own: the loop goes on
serving, and calls pile up into the next group. A fast one answers before a thread would have
been woken, so then the loop waits itself; the time of recent commits decides. A database in memory
is never waited for elsewhere.

A COMMIT whose sync failed is in doubt: SQLite has rolled it back, but its frames may lie whole in
the log, and a start after a kill would find and accept them. The next commit overwrites them, so
nobody is answered and nothing else runs before one has succeeded; see `_settle_doubt`.
"""

import asyncio
import logging
import math
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import apsw

from courier.core.errors import (
    OutcomeUnknown,
    ShuttingDown,
    StoreDamaged,
    StoreUnavailable,
)
from courier.store.disk_sqlite.connection import DISK_ERRORS, SPOILT
from courier.store.disk_sqlite.volume import Unlimited, Volume
from courier.store.engine.calls import (
    DOUBT_RETRY_S,
    DOUBT_S_MAX,
    GATHER_S_MAX,
    GROUP_S_MAX,
    WAITING_MAX,
    GroupCall,
    Op,
    answer,
    driven,
    is_of_one_call,
    put_back,
    refuse,
    run_unit,
    take,
    units,
)
from courier.store.engine.engine import EngineStore

T = TypeVar("T")

RECENT_COMMITS = 16

log = logging.getLogger("courier.store")


class _Doubt:
    """Calls of a commit that may have reached the log, and when they are given up."""

    def __init__(self, calls: list[GroupCall], error: BaseException, until_s: float) -> None:
        self.calls = calls
        self.error = error
        self.until_s = until_s
        self.over = False


class SqliteWriter:
    def __init__(
        self,
        db: apsw.Connection,
        engine: EngineStore,
        volume: Volume | Unlimited,
        *,
        calls_max: int,
        inline_s: float,
    ) -> None:
        self._cursor = db.cursor()
        self._engine = engine
        self._volume = volume
        self._calls_max = calls_max
        self._loop = asyncio.get_running_loop()
        self._disk = ThreadPoolExecutor(1, thread_name_prefix="courier-commit")
        self._beside = ThreadPoolExecutor(1, thread_name_prefix="courier-checkpoint")
        self._waiting: deque[GroupCall] = deque()
        self._busy = False
        self._stale = False
        self._closed = False
        self._inline_s = inline_s
        self._commit_s = 0.0 if math.isinf(inline_s) else inline_s
        self._gathered = 0
        self._gather_until_s = 0.0
        self._doubt: _Doubt | None = None
        self.groups = 0
        self.calls = 0
        self.doubts = 0

    def submit(self, op: Op[T]) -> "asyncio.Future[T]":
        """Run `op` in a transaction; the answer comes once it is durable."""
        future = self._loop.create_future()
        if self._closed:
            future.set_exception(ShuttingDown())
            return future
        if self._doubt is not None and (self._doubt.over or len(self._waiting) >= WAITING_MAX):
            future.set_exception(_unavailable(self._doubt.error))
            return future
        self._waiting.append(GroupCall(op, future))
        if not self._busy:
            self._busy = True
            self._begin()
        return future

    def require_no_doubt(self) -> None:
        """Raises StoreUnavailable while the last commit has failed and may yet be found."""
        if self._doubt is not None:
            raise self._doubt.error

    async def current(self) -> None:
        """There is one node."""

    async def kept(self, last: int) -> None:
        """Nothing shows that is not durable."""

    def unseen(self) -> "asyncio.Future[None] | None":
        """There is one node."""
        return None

    async def spread(self) -> None:
        """There is one node."""

    def _begin(self) -> None:
        self._gathered = 0
        self._gather_until_s = self._loop.time() + GATHER_S_MAX
        self._loop.call_soon(self._gather)

    def _gather(self) -> None:
        """Start the group once a round of the loop brings no further call, or time is up.

        A single caller waits for one empty round; in a crowd, one commit serves everybody
        whose request has arrived.
        """
        waiting = len(self._waiting)
        if waiting == self._gathered or self._loop.time() >= self._gather_until_s:
            self._turn()
        else:
            self._gathered = waiting
            self._loop.call_soon(self._gather)

    async def close(self) -> None:
        """Finish what was submitted; refuse what comes after."""
        self._closed = True
        while self._busy and not (self._doubt is not None and self._doubt.over):
            await asyncio.sleep(0.001)
        for thread in (self._beside, self._disk):
            await self._loop.run_in_executor(None, thread.shutdown)

    def _turn(self) -> None:
        calls = take(self._waiting, self._calls_max)
        if not calls:
            self._next()
            return
        try:
            self._apply(calls)
            if self._engine.heavy and not math.isinf(self._inline_s):
                self._on_disk(self._write, lambda done: self._written(calls, *done))
                return
            changed = driven(self._engine.write())
            if not changed:
                self._cursor.execute("ROLLBACK")
        except BaseException as error:
            self._undo(calls, error)
            return
        if changed and self._commit_s < self._inline_s:
            self._finish(calls, self._commit())
        elif changed:
            self._on_disk(self._commit, lambda error: self._finish(calls, error))
        else:
            answer(calls)
            self._next()

    def _write(self) -> tuple[bool, BaseException | None]:
        """Whether COMMIT was reached, and what went wrong."""
        try:
            driven(self._engine.write())
        except BaseException as error:
            return False, error
        return True, self._commit()

    def _written(self, calls: list[GroupCall], reached: bool, error: BaseException | None) -> None:
        if reached or error is None:
            self._finish(calls, error)
        else:
            self._undo(calls, error)

    def _on_disk(self, work: Callable[[], T], then: Callable[[T], None]) -> None:
        """Run `work` on the thread that waits for the disk, and `then` back on the loop."""
        self._disk.submit(work).add_done_callback(
            lambda done: self._loop.call_soon_threadsafe(then, done.result())
        )

    def _next(self) -> None:
        if self._waiting:
            self._begin()
        else:
            self._busy = False

    def _apply(self, calls: list[GroupCall]) -> None:
        """Run calls, up to those that are for the next group."""
        self._cursor.execute("BEGIN IMMEDIATE")
        if self._stale:
            driven(self._engine.restore())
            self._stale = False
        began_s = time.perf_counter()
        worked_s = time.thread_time() if len(calls) > 1 else 0.0
        parts = units(calls)
        for place, unit in enumerate(parts, 1):
            if later := driven(run_unit(unit)):
                calls[:] = [call for call in calls if call not in later]
                unit[:] = [call for call in unit if call not in later]
                self._waiting.extendleft(reversed(later))
            # The second clock does not count what other processes took, but is slow to read.
            if (
                time.perf_counter() - began_s >= GROUP_S_MAX
                and time.thread_time() - worked_s >= GROUP_S_MAX
            ):
                rest = [call for unit in parts[place:] for call in unit]
                self._waiting.extendleft(reversed(rest))
                calls[:] = [call for unit in parts[:place] for call in unit]
                break

    def _commit(self) -> BaseException | None:
        began_s = time.perf_counter()
        try:
            self._cursor.execute("COMMIT")
        except BaseException as error:
            return error
        took_s = min(time.perf_counter() - began_s, 2 * self._inline_s)
        self._commit_s += (took_s - self._commit_s) / RECENT_COMMITS
        return None

    def _finish(self, calls: list[GroupCall], error: BaseException | None) -> None:
        if error is not None:
            if isinstance(error, DISK_ERRORS) and not _unwritten(error):
                self._begin_doubt(calls, error)
            else:
                self._undo(calls, error)
            return
        self.groups += 1
        self.calls += len(calls)
        self._engine.committed()
        answer(calls)
        self._tidy()

    def _rollback(self, error: BaseException) -> tuple[BaseException, bool]:
        """The error that callers are given, once nothing is left of their transaction.

        And whether there is room again that was not there before.
        """
        self._stale = True
        if not self._cursor.connection.get_autocommit():
            try:
                self._cursor.execute("ROLLBACK")
            except DISK_ERRORS as second:
                error = second
        if isinstance(error, DISK_ERRORS):
            return _unavailable(error), self._volume.failed(error)
        if isinstance(error, SPOILT):
            damaged = StoreDamaged("value")
            damaged.__cause__ = error
            return damaged, False
        return error, False

    def _undo(self, calls: list[GroupCall], error: BaseException) -> None:
        """Nothing of this group happened. One bad call must not fail its neighbours.

        Where a full disk was given room they are run once more, and those that need less than
        others may then find it.
        """
        error, room = self._rollback(error)
        if room or (is_of_one_call(error) and len(calls) > 1):
            put_back(calls, self._waiting)
            calls = []
        elif isinstance(error, StoreDamaged):
            self._engine.met_damage(error)
        refuse(calls, error)
        self._tidy()

    def _tidy(self) -> None:
        """See to the log, then go on; a commit waits for that only when it must."""
        if self._volume.due:
            self._on_disk(self._volume.checkpoint, lambda _: self._next())
            return
        if self._volume.begin_copy():
            self._beside.submit(self._volume.copy)
        self._next()

    # --- a commit in doubt ---

    def _begin_doubt(self, calls: list[GroupCall], error: BaseException) -> None:
        refused, _ = self._rollback(error)
        log.error("commit_in_doubt", extra={"reason": str(error), "calls": len(calls)})
        self.doubts += 1
        self._doubt = _Doubt(calls, refused, self._loop.time() + DOUBT_S_MAX)
        self._settle_doubt()

    def _settle_doubt(self) -> None:
        """Overwrite what the failed COMMIT left in the log; then its callers can be refused.

        SQLite writes the next commit where the failed one began, and every frame's checksum
        includes those before it, so that whatever is left behind the new commit is not valid.
        """
        self._on_disk(self._overwrite, self._overwritten)

    def _overwrite(self) -> BaseException | None:
        try:
            self._cursor.execute("BEGIN IMMEDIATE")
            self._volume.touch()
            self._cursor.execute("COMMIT")
        except DISK_ERRORS as error:
            return error
        return None

    def _overwritten(self, error: BaseException | None) -> None:
        doubt = self._doubt
        assert doubt is not None
        if error is None:
            self._doubt = None
            refuse(doubt.calls, doubt.error)
            self._next()
            return
        self._rollback(error)
        if self._loop.time() >= doubt.until_s and not doubt.over:
            doubt.over = True
            refuse(doubt.calls, OutcomeUnknown(str(doubt.error)))
            refuse(list(self._waiting), doubt.error)
            doubt.calls = []
            self._waiting.clear()
        if not (self._closed and doubt.over):
            self._loop.call_later(DOUBT_RETRY_S, self._settle_doubt)


def _unwritten(error: BaseException) -> bool:
    """The error is one of writing: then the frame that ends the transaction is not in the log."""
    return isinstance(error, apsw.FullError) or (
        getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_WRITE
    )


def _unavailable(error: BaseException) -> StoreUnavailable:
    unavailable = StoreUnavailable(str(error))
    unavailable.__cause__ = error
    return unavailable
