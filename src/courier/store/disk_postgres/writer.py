"""Group commit on PostgreSQL: concurrent calls of a node share a transaction, nodes take turns.

A group locks the head of the state, takes in what other nodes have changed, runs its calls against
the engine's memory and writes the rows that they changed. Nobody is answered before COMMIT was.
A node that may count on being the next (`turns.py`) does without the lock.

When the connection is lost after COMMIT was sent, nobody knows whether the group happened. Then
the writer connects again, to the next primary if there is one, and looks whether the group is
there. The look locks the head as well, so that it waits for what the lost connection may still do,
and it commits something of its own: once that is durable, so is all that was found.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from courier.clock import elapsed_ns
from courier.core.duties import FENCE, DutyLost, Fence
from courier.core.errors import (
    OutcomeUnknown,
    ShuttingDown,
    StoreDamaged,
    StoreUnavailable,
)
from courier.store.disk_postgres import PostgresDisk
from courier.store.disk_postgres.connection import (
    AGAIN,
    ERRORS,
    LOST,
    Address,
    InDoubt,
    Overtaken,
    confirmed,
    sentence,
)
from courier.store.disk_postgres.notices import Notices
from courier.store.disk_postgres.turns import Turns
from courier.store.engine.calls import (
    DOUBT_RETRY_S,
    DOUBT_S_MAX,
    GATHER_S_MAX,
    WAITING_MAX,
    GroupCall,
    Op,
    answer,
    is_of_one_call,
    put_back,
    refuse,
    run_unit,
    take,
    units,
)
from courier.store.engine.disk import Changed
from courier.store.engine.engine import EngineStore

T = TypeVar("T")

# How long callers wait for a database that is away; then they are told so.
AWAY_S_MAX = 5.0
# How often a node that writes nothing looks at what others wrote, if no notice comes.
LOOK_EVERY_S = 0.25
# A node that has not looked for so long may take a revoked key for a good one: it serves nobody
# before it has looked.
UNSEEN_S_MAX = 1.0
# How often a group that other transactions stood in the way of is tried.
TRIES_MAX = 5
# Rounds of the loop after which those who were answered have called again, if they do so at once.
ROUNDS_TO_RETURN = 2
# How often a group is added to by what early answers lead to.
EARLY_TIMES = 8
_LOOK = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"

log = logging.getLogger("courier.store")


class _FencedCall(GroupCall):
    """A call of a duty."""

    __slots__ = ("fence",)

    def __init__(self, op: Op[Any], future: "asyncio.Future[Any]", fence: Fence) -> None:
        super().__init__(op, future)
        self.fence = fence


class _EarlyCall(GroupCall):
    """One that is answered before its group is written, since what its caller asks for next belongs
    to the same group."""

    __slots__ = ()


class PostgresWriter:
    def __init__(
        self,
        address: Address,
        disk: PostgresDisk,
        engine: EngineStore,
        connection: Any,
        notices: Notices,
        *,
        calls_max: int,
    ) -> None:
        self._address = address
        self._disk = disk
        self._engine = engine
        self._connection = connection
        self._notices = notices
        self._calls_max = calls_max
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[GroupCall] = deque()
        self._arrived = asyncio.Event()
        # Those who wait for a look that has not begun yet.
        self._lookers: list[asyncio.Future[None]] = []
        self._closed = False
        # What is in memory is not what is in the database: read all of it.
        self._stale = False
        self._looked_s = self._loop.time()
        # Since when this node knows all that was written before; time asleep counts.
        self._known_ns = elapsed_ns()
        # Since when the database is away, and what it said last.
        self._away: tuple[float, StoreUnavailable] | None = None
        self._turns = Turns(address.schema)
        # The last group of this node that changed settings.
        self._settings_group = 0
        self.groups = self.calls = self.doubts = 0
        self._task = asyncio.create_task(self._serve())

    def submit(self, op: Op[T]) -> "asyncio.Future[T]":
        """Run `op` in a group; the answer comes once it is durable.

        An op that raises Rejected must not have changed anything.
        """
        fence = FENCE.get()
        return self._submit(op, GroupCall if fence is None else partial(_FencedCall, fence=fence))

    def submit_early(self, op: Op[T]) -> "asyncio.Future[T]":
        """The answer comes before it is durable. `op` may run again after that."""
        return self._submit(op, _EarlyCall)

    def _submit(self, op: Op[T], kind: Callable[..., GroupCall]) -> "asyncio.Future[T]":
        future = self._loop.create_future()
        if self._closed:
            future.set_exception(ShuttingDown())
            return future
        if self._away is not None and (self._gave_up or len(self._waiting) >= WAITING_MAX):
            future.set_exception(self._away[1])
            return future
        self._waiting.append(kind(op, future))
        self._arrived.set()
        return future

    @property
    def _gave_up(self) -> bool:
        return self._away is not None and self._loop.time() - self._away[0] > AWAY_S_MAX

    def require_no_doubt(self) -> None:
        """Raises StoreUnavailable while the database is away."""
        if self._away is not None:
            raise self._away[1]

    async def current(self) -> None:
        """Until this node knows all that others had written before."""
        await self._looker()

    async def kept(self, last: int) -> None:
        await self._disk.kept(last)

    def unseen(self) -> "asyncio.Future[None] | None":
        """None: this node knows what others have written, but for the last second at most.
        Otherwise what ends when it does, or raises StoreUnavailable."""
        if elapsed_ns() - self._known_ns <= UNSEEN_S_MAX * 1e9:
            return None
        return self._looker()

    def _looker(self) -> "asyncio.Future[None]":
        future = self._loop.create_future()
        if self._closed:
            future.set_exception(ShuttingDown())
        elif self._away is not None and self._gave_up:
            future.set_exception(self._away[1])
        else:
            self._lookers.append(future)
            self._arrived.set()
            # A database that hangs does not say that it is away.
            timer = self._loop.call_later(AWAY_S_MAX, self._give_up_look, future)
            future.add_done_callback(lambda _: timer.cancel())
        return future

    def _give_up_look(self, looker: "asyncio.Future[None]") -> None:
        if not looker.done():
            looker.set_exception(self._unavailable(TimeoutError("it does not answer")))

    async def spread(self) -> None:
        """Until every node knows the settings that this one has written."""
        # Requests run without a task of their own, which a wait with an end needs.
        await asyncio.ensure_future(self._notices.spread(self._settings_group))

    def look_soon(self) -> None:
        """Another node has written something."""
        self._looked_s = 0.0
        self._arrived.set()

    async def close(self) -> None:
        """Finish what was submitted; refuse what comes after."""
        self._closed = True
        self._arrived.set()
        await self._task
        with suppress(*ERRORS):
            await self._connection.close(timeout=1)

    # --- one group after the other ---

    async def _serve(self) -> None:
        while self._waiting or self._lookers or not self._closed:
            if self._turns.mine:
                await self._end_turn()
            if not self._waiting and not self._lookers:
                self._arrived.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_EVERY_S):
                        await self._arrived.wait()
            calls: list[GroupCall] = []
            try:
                if self._waiting:
                    await self._gather()
                    calls = take(self._waiting, self._calls_max)
                    await self._timed_group(calls)
                elif self._lookers or self._loop.time() - self._looked_s >= LOOK_EVERY_S:
                    await self._look()
            except Exception as error:
                log.exception("group_failed")
                self._stale = True
                refuse(calls, OutcomeUnknown(str(error)))

    async def _gather(self) -> None:
        """Until a round of the loop brings no further call, or time is up."""
        until_s = self._loop.time() + GATHER_S_MAX
        gathered = 0
        while len(self._waiting) != gathered and self._loop.time() < until_s:
            gathered = len(self._waiting)
            await asyncio.sleep(0)

    async def _timed_group(self, calls: list[GroupCall]) -> None:
        """A group; if it hangs, nobody else waits for it."""
        timer = self._loop.call_later(AWAY_S_MAX, self._hangs)
        try:
            await self._group(calls)
        finally:
            timer.cancel()
            self._away = None

    def _hangs(self) -> None:
        since_s = self._loop.time() - AWAY_S_MAX
        self._away = since_s, self._unavailable(TimeoutError("it does not answer"))
        self._refuse_waiting()

    def _refuse_waiting(self) -> None:
        """Those whose group has not begun."""
        assert self._away is not None
        refuse(self._waiting, self._away[1])
        self._waiting.clear()
        self._refuse_lookers(self._lookers, self._away[1])
        self._lookers = []

    def _refuse_lookers(
        self, lookers: "list[asyncio.Future[None]]", error: StoreUnavailable
    ) -> None:
        for looker in lookers:
            if not looker.done():
                looker.set_exception(error)

    async def _group(self, calls: list[GroupCall]) -> None:
        tries, since_s = 0, self._loop.time()
        while calls:
            try:
                await self._attempt(calls)
                return
            except InDoubt as doubt:
                if await self._happened(calls, doubt):
                    return
            except Overtaken:
                self._overtaken()
                await self._rollback()
            except AGAIN as error:
                self._stale = True
                await self._rollback()
                tries += 1
                late = self._loop.time() - since_s > AWAY_S_MAX
                if tries == TRIES_MAX or late or self._closed:
                    refuse(calls, self._unavailable(error))
                    return
            except LOST as error:
                self._stale = True
                if not await self._connect(error, calls):
                    return
            except BaseException as error:
                await self._rollback()
                self._undo(calls, error)
                return

    async def _attempt(self, calls: list[GroupCall]) -> None:
        for call in calls:
            call.forget()
        lookers, self._lookers = self._lookers, []
        begun_ns = elapsed_ns()
        try:
            locked = await self._begin_group(calls)
            await self._run_early(calls, locked=locked)
            for unit in units([call for call in calls if not isinstance(call, _EarlyCall)]):
                if later := await run_unit(unit):
                    calls[:] = [call for call in calls if call not in later]
                    self._waiting.extendleft(reversed(later))
            changed = await self._write(calls)
        except BaseException:
            self._lookers = [*lookers, *self._lookers]
            raise
        self._looked(lookers, begun_ns)
        if changed:
            self._committed(calls)
        else:
            answer(calls)

    async def _write(self, calls: list[GroupCall]) -> bool:
        """Write what the group has changed, and commit it; False: nothing."""
        connection = self._connection
        timer = self._give_up_later(calls) if self._disk.may_commit_at_once else None
        try:
            with confirmed(connection):
                if not await self._engine.write():
                    await self._disk.end_unchanged()
                    await self._rollback()
                    return False
                if not self._disk.is_committed:
                    timer = timer or self._give_up_later(calls)
                    await connection.execute("COMMIT")
        except LOST as error:
            if timer is None:
                raise
            raise InDoubt(str(error)) from error
        finally:
            if timer is not None:
                timer.cancel()
        return True

    async def _begin_group(self, calls: list[GroupCall]) -> bool:
        """From here on memory is what is in the database, or the group will do nothing. True: the
        head is locked."""
        fenced = any(isinstance(call, _FencedCall) for call in calls)
        if (self._turns.alone or self._turns.mine) and not self._stale and not fenced:
            self._disk.begin_unlocked(self._connection)
            return False
        locked = not await self._begin_turn(may_look=not self._stale and not fenced)
        if locked:
            await self._catch_up(await self._begin(self._connection), bodies=True)
        self._join_late(calls, locked=locked)
        if locked:
            await self._refuse_late(calls)
        return locked

    async def _begin_turn(self, *, may_look: bool) -> bool:
        """Wait until others are done. False: the head has to be locked."""
        sure = await self._turns.take(self._connection)
        if not sure or not may_look:
            return False
        same, changed = await self._disk.look_in_turn(self._connection, self._engine.book.is_fifo)
        if same:
            self._turns.saw(others=False)
        elif changed is not None:
            await self._take_in(changed)
        return same or changed is not None

    async def _end_turn(self) -> None:
        """If it is time, or nobody has anything for another group."""
        await self._let_return()
        if self._turns.is_over(idle=not self._waiting):
            await self._turns.end(self._connection)

    async def _let_return(self) -> None:
        for _ in range(ROUNDS_TO_RETURN):
            await asyncio.sleep(0)

    async def _run_early(self, calls: list[GroupCall], *, locked: bool) -> None:
        """And take what their callers ask for next, a few times over."""
        ran = 0
        for times_left in reversed(range(EARLY_TIMES)):
            early = [call for call in calls if isinstance(call, _EarlyCall)][ran:]
            if not early:
                return
            for call in early:
                await run_unit([call])
                call.answer()
            ran += len(early)
            await self._let_return()
            if times_left or not any(isinstance(call, _EarlyCall) for call in self._waiting):
                self._join_late(calls, locked=locked)

    def _join_late(self, calls: list[GroupCall], *, locked: bool) -> None:
        """Take those too that came while others were at work."""
        if any(call.alone for call in (*calls, *self._waiting)):
            return
        if locked or not any(isinstance(call, _FencedCall) for call in self._waiting):
            calls += take(self._waiting, self._calls_max - len(calls))

    def _overtaken(self) -> None:
        """Memory has to be read again, which must not happen often."""
        self._stale = True
        self._turns.overtaken()

    def _give_up_later(self, calls: list[GroupCall]) -> asyncio.TimerHandle:
        """COMMIT was sent: nobody waits for its outcome for longer than this."""
        unknown = OutcomeUnknown("it does not answer")
        return self._loop.call_later(DOUBT_S_MAX, refuse, calls, unknown)

    async def _begin(self, connection: Any) -> bool:
        """A group; False: other nodes have written since."""
        await connection.execute("BEGIN")
        same = await self._disk.lock(connection)
        if not self._disk.went_back:
            return same
        log.error("commits_lost", extra={"seen": self._disk.seen})
        await self._disk.begin_epoch()
        self._stale = True
        await connection.execute("COMMIT")
        await connection.execute("BEGIN")
        return await self._disk.lock(connection)

    async def _catch_up(self, same: bool, *, bodies: bool) -> None:
        if self._stale:
            await self._engine.catch_up(None)
            self._stale = False
            self._notices.saw(self._disk.seen, settings=True)
        elif same:
            self._turns.saw(others=False)
        else:
            book = self._engine.book
            await self._take_in(await self._disk.changed(book.is_fifo, bodies=bodies))

    async def _take_in(self, changed: Changed | None) -> None:
        self._turns.saw(others=True)
        await self._engine.catch_up(changed)
        settings = changed is None or bool(changed.records)
        self._notices.saw(self._disk.seen, settings=settings)

    async def _refuse_late(self, calls: list[GroupCall]) -> None:
        """Calls of duties that other nodes have by now."""
        fenced = [call for call in calls if isinstance(call, _FencedCall)]
        if not fenced:
            return
        held = await self._disk.held([call.fence.duty for call in fenced])
        late = [call for call in fenced if call.fence not in held]
        for call in late:
            refuse([call], DutyLost(call.fence.duty))
        calls[:] = [call for call in calls if call not in late]

    def _committed(self, calls: list[GroupCall]) -> None:
        self.groups += 1
        self.calls += len(calls)
        self._disk.committed()
        book = self._engine.book
        told = book.told
        if book.changes.records:
            self._settings_group = self._disk.seen
        self._engine.committed()
        answer(calls)
        if told:
            self._notices.tell()

    def _undo(self, calls: list[GroupCall], error: BaseException) -> None:
        """Nothing of this group happened."""
        self._stale = True
        if isinstance(error, ERRORS):
            error = self._unavailable(error)
        if is_of_one_call(error) and len(calls) > 1:
            put_back(calls, self._waiting)
            return
        if isinstance(error, StoreDamaged):
            self._engine.met_damage(error)
        refuse(calls, error)

    def _unavailable(self, error: BaseException) -> StoreUnavailable:
        found = StoreUnavailable(sentence(self._address, error))
        found.__cause__ = error
        return found

    async def _rollback(self) -> None:
        with suppress(*ERRORS):
            if self._connection.is_in_transaction():
                await self._connection.execute("ROLLBACK")

    async def _look(self) -> None:
        """Take in what other nodes have changed, without standing in their way."""
        lookers, self._lookers = self._lookers, []
        begun_ns = elapsed_ns()
        try:
            await self._connection.execute(_LOOK)
            same = await self._disk.look(self._connection)
            if self._disk.went_back:
                await self._connection.execute("COMMIT")
                same = await self._begin(self._connection)
            await self._catch_up(same, bodies=False)
            await self._connection.execute("COMMIT")
        except ERRORS as error:
            self._stale = True
            await self._rollback()
            if isinstance(error, (*LOST, *AGAIN)):
                self._lookers = [*lookers, *self._lookers]
            else:
                self._refuse_lookers(lookers, self._unavailable(error))
            if isinstance(error, LOST):
                await self._connect(error, [])
            return
        self._looked(lookers, begun_ns)

    def _looked(self, lookers: "list[asyncio.Future[None]]", begun_ns: int) -> None:
        self._looked_s = self._loop.time()
        self._known_ns = begun_ns
        for looker in lookers:
            if not looker.done():
                looker.set_result(None)

    # --- a database that is away ---

    async def _connect(
        self, error: BaseException, calls: list[GroupCall], *, in_doubt: bool = False
    ) -> bool:
        """Connect again. False: it took too long, and the calls have been refused; those that are
        `in_doubt` with what says so."""
        refused = False
        since_s = self._loop.time()
        log.warning("database_lost", extra={"reason": sentence(self._address, error)})
        while True:
            self._away = since_s, self._unavailable(error)
            if self._gave_up and not refused:
                refused = True
                refuse(calls, OutcomeUnknown(str(error)) if in_doubt else self._away[1])
                self._refuse_waiting()
            if self._closed and refused:
                return False
            self._connection.terminate()
            self._turns.lost()
            try:
                self._connection = await self._address.connect()
            except ERRORS as again:
                error = again
                await asyncio.sleep(DOUBT_RETRY_S)
                continue
            self._away = None
            log.info("database_back", extra={"away_ms": int((self._loop.time() - since_s) * 1000)})
            return not refused

    async def _happened(self, calls: list[GroupCall], doubt: InDoubt) -> bool:
        """Whether the group in doubt is over: it happened, or its callers were told that nobody
        knows. Otherwise it did not happen, and can run again."""
        self.doubts += 1
        log.error("commit_in_doubt", extra={"reason": str(doubt), "calls": len(calls)})
        since_s = self._loop.time()
        timer = self._give_up_later(calls)
        try:
            return await self._decided(calls, doubt, since_s)
        finally:
            timer.cancel()
            # Who was told that nobody knows is not served once more.
            calls[:] = [c for c in calls if isinstance(c, _EarlyCall) or not c.future.done()]

    async def _decided(self, calls: list[GroupCall], doubt: InDoubt, since_s: float) -> bool:
        while True:
            if self._closed and self._loop.time() - since_s > DOUBT_S_MAX:
                self._stale = True  # the next start finds out by itself
                return True
            connected = await self._connect(doubt.__cause__ or doubt, calls, in_doubt=True)
            if not connected and self._closed:
                self._stale = True
                return True
            try:
                connection = self._connection
                with confirmed(connection):
                    await connection.execute("BEGIN")
                    happened = await self._disk.happened(connection)
                    await connection.execute("COMMIT")
            except ERRORS as error:
                doubt.__cause__ = error
                await asyncio.sleep(DOUBT_RETRY_S)
                continue
            if happened:
                self._committed(calls)
                return True
            self._stale = True
            return False
