"""Group commit: concurrent calls share a transaction, and nobody is answered before its fsync.

Statements run on the event loop's thread, one group after the other. Running them on another
would be slower: SQLite's driver lets go of the interpreter lock at every step, and a busy loop
is slow to give it back.

COMMIT waits for the disk. A slow disk is waited for on a thread of its own: the loop goes on
serving, and calls pile up into the next group. A fast one answers before a thread would have
been woken, so then the loop waits itself; the time of recent commits decides.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

import apsw

from courier.core.errors import Rejected, ShuttingDown, StoreUnavailable
from courier.store.sqlite.connection import DISK_ERRORS

T = TypeVar("T")

RECENT_COMMITS = 16
GATHER_S_MAX = 0.005
# The calls of a group hold the loop together; after so much work the rest is the next group's.
GROUP_S_MAX = 0.03


class Group(Protocol):
    """What the writer asks of the state that calls change."""

    def flush(self) -> bool:
        """Write what the group's calls left to be written once; False: nothing was changed."""
        ...

    def committed(self) -> None: ...

    def reload(self) -> None:
        """Forget what a rolled back group did in memory."""
        ...


class _Call:
    __slots__ = ("alone", "error", "future", "op", "then", "value")

    def __init__(
        self,
        op: Callable[[], Any],
        then: Callable[[], None] | None,
        alone: bool,
        future: asyncio.Future[Any],
    ) -> None:
        self.op = op
        self.then = then
        self.alone = alone
        self.future = future
        self.value: Any = None
        self.error: BaseException | None = None

    def answer(self) -> None:
        if self.error is None and self.then is not None:
            self.then()
        if self.future.done():
            return
        if self.error is None:
            self.future.set_result(self.value)
        else:
            self.future.set_exception(self.error)


class Writer:
    def __init__(
        self, db: apsw.Connection, group: Group, *, calls_max: int, inline_s: float
    ) -> None:
        self._cursor = db.cursor()
        self._group = group
        self._calls_max = calls_max
        self._loop = asyncio.get_running_loop()
        self._disk = ThreadPoolExecutor(1, thread_name_prefix="courier-commit")
        self._waiting: deque[_Call] = deque()
        self._busy = False
        self._stale = False
        self._closed = False
        self._inline_s = inline_s
        self._commit_s = inline_s
        self._gathered = 0
        self._gather_until_s = 0.0
        self.groups = 0
        self.calls = 0

    def submit(
        self, op: Callable[[], T], *, then: Callable[[], None] | None = None, alone: bool = False
    ) -> "asyncio.Future[T]":
        """Run `op` in a transaction. `then` runs once it is durable, before the answer.

        `alone`: no other call shares the transaction, and none runs before `then`.
        An op that raises Rejected must not have written anything.
        """
        future = self._loop.create_future()
        if self._closed:
            future.set_exception(ShuttingDown())
            return future
        self._waiting.append(_Call(op, then, alone, future))
        if not self._busy:
            self._busy = True
            self._begin()
        return future

    def _begin(self) -> None:
        self._gathered = 0
        self._gather_until_s = self._loop.time() + GATHER_S_MAX
        self._loop.call_soon(self._gather)

    def _gather(self) -> None:
        """Start the group once a round of the loop brings no further call, or time is up.

        Whoever calls alone waits for one empty round; in a crowd, one commit serves everybody
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
        while self._busy:
            await asyncio.sleep(0.001)
        self._disk.shutdown()

    def _take(self) -> list[_Call]:
        calls: list[_Call] = []
        while self._waiting and len(calls) < self._calls_max:
            if self._waiting[0].alone and calls:
                break
            call = self._waiting.popleft()
            if not call.future.cancelled():
                calls.append(call)
            if call.alone:
                break
        return calls

    def _turn(self) -> None:
        calls = self._take()
        if not calls:
            self._next()
            return
        try:
            changed = self._apply(calls)
            if not changed:
                self._cursor.execute("ROLLBACK")
        except BaseException as error:
            self._undo(calls, error)
            return
        if changed and self._commit_s < self._inline_s:
            self._finish(calls, self._commit())
        elif changed:
            commit = self._disk.submit(self._commit)
            commit.add_done_callback(
                lambda done: self._loop.call_soon_threadsafe(self._finish, calls, done.result())
            )
        else:
            self._answer(calls)
            self._next()

    def _next(self) -> None:
        if self._waiting:
            self._begin()
        else:
            self._busy = False

    def _apply(self, calls: list[_Call]) -> bool:
        self._cursor.execute("BEGIN IMMEDIATE")
        if self._stale:
            self._group.reload()
            self._stale = False
        began_s = time.perf_counter()
        worked_s = time.thread_time() if len(calls) > 1 else 0.0
        for place, call in enumerate(calls, 1):
            try:
                call.value = call.op()
            except Rejected as error:
                call.error = error
            # The second clock does not count what other processes took, but is slow to read.
            if (
                time.perf_counter() - began_s >= GROUP_S_MAX
                and time.thread_time() - worked_s >= GROUP_S_MAX
            ):
                self._waiting.extendleft(reversed(calls[place:]))
                del calls[place:]
                break
        return self._group.flush()

    def _commit(self) -> BaseException | None:
        began_s = time.perf_counter()
        try:
            self._cursor.execute("COMMIT")
        except BaseException as error:
            return error
        # A checkpoint now and then takes long; that alone does not make the disk slow.
        took_s = min(time.perf_counter() - began_s, 2 * self._inline_s)
        self._commit_s += (took_s - self._commit_s) / RECENT_COMMITS
        return None

    def _finish(self, calls: list[_Call], error: BaseException | None) -> None:
        if error is not None:
            self._undo(calls, error)
            return
        self.groups += 1
        self.calls += len(calls)
        self._group.committed()
        self._answer(calls)
        self._next()

    def _answer(self, calls: list[_Call]) -> None:
        for call in calls:
            try:
                call.answer()
            except BaseException as error:  # of its `then`: what is in memory is now in doubt
                self._stale = True
                call.error = error
                call.answer()

    def _undo(self, calls: list[_Call], error: BaseException) -> None:
        """Nothing of this group happened. One bad call must not fail its neighbours."""
        self._stale = True
        if not self._cursor.connection.get_autocommit():
            try:
                self._cursor.execute("ROLLBACK")
            except DISK_ERRORS as second:
                error = second
        if isinstance(error, DISK_ERRORS):
            unavailable = StoreUnavailable(str(error))
            unavailable.__cause__ = error
            error = unavailable
        elif len(calls) > 1:
            for call in reversed(calls):
                call.alone, call.error, call.value = True, None, None
                self._waiting.appendleft(call)
            calls = []
        for call in calls:
            call.error = call.error or error
        self._answer(calls)
        self._next()
