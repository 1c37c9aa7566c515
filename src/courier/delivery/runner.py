"""Runners: each takes the messages of one target, a listener or a push consumer, and sends them."""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Generic, TypeVar

from msgspec import Struct

from courier.clock import Clock
from courier.core.broker import Broker
from courier.core.duties import DutyLost, Fence, Shares, fenced
from courier.core.errors import Unavailable
from courier.core.store import DeliveryStore
from courier.core.types import Consumer, Listener, Message
from courier.delivery.room import PushAllowance, PushRoom
from courier.delivery.slots import Slots
from courier.delivery.transport import Transport

LOOK_EVERY_S = 0.2
# How long what came of the last requests may take to be noted when the server stops.
NOTE_WAIT_S = 5.0
log = logging.getLogger("courier.delivery")

R = TypeVar("R", bound=Listener | Consumer)


class RunnerServices(Struct, kw_only=True):
    """What runners of both kinds work with."""

    store: DeliveryStore
    broker: Broker
    clock: Clock
    transport: Transport
    slots: Slots
    room: PushRoom


class Runner(ABC):
    """Serves one target in one process at a time.

    What is ready is taken under `fence`. Outcomes are noted without: they count for the attempt
    that was taken, whichever process serves the target by then.
    """

    def __init__(
        self, services: RunnerServices, target: Listener | Consumer, fence: Fence, *, line: str
    ) -> None:
        """`line`: whose hints it waits for."""
        self.fence = fence
        self._id = target.id
        self._line = line
        self._waiters = services.store.waiters
        self._leaving = False
        self._wake = asyncio.Event()
        self._hint: asyncio.Future[bool] | None = None
        tenant, queue, wake = target.tenant, target.parent, self._wake.set
        self._seat = services.slots.seat(tenant=tenant, queue=queue, wake=wake)
        self._share = services.room.share(tenant=tenant, queue=queue, wake=wake)

    async def run(self) -> None:
        """Until it is left, and what is on its way has ended."""
        try:
            while await self._step():
                pass
        finally:
            self._pass_on()
            self._seat.close()
            self._share.close()

    async def _step(self) -> bool:
        self._wake.clear()
        try:
            if self._leaving:
                return await self._end()
            await self._turn()
        except DutyLost:
            self._leaving = True
        except Exception as error:
            await self._woken_within(self._failed(error))
        return True

    @abstractmethod
    async def _turn(self) -> None:
        """Take what is ready and can be sent, and wait; leave if the target is gone."""

    @abstractmethod
    async def _end(self) -> bool:
        """Wait for what is on its way. False: all of it has ended and is noted."""

    @abstractmethod
    def _failed(self, error: Exception) -> float:
        """A step failed; in how many seconds the next is tried."""

    @abstractmethod
    def give_up(self) -> None:
        """The server stops. What is on its way may have arrived, so the attempt counts."""

    def leave(self) -> None:
        """Take nothing more: the target is gone or served by another process, or this one stops."""
        self._leaving = True
        self._wake.set()

    # --- for both kinds ---

    def _wait_for_hint(self) -> None:
        """Before looking, or a message could slip between the two."""
        if self._hint is None or self._hint.done():
            self._hint = self._waiters.wait(self._line)
            self._hint.add_done_callback(self._hinted)

    def _hinted(self, hint: "asyncio.Future[bool]") -> None:
        if hint.result():
            self._wake.set()

    def _pass_on(self) -> None:
        """Wait for hints no more; one that has come already is for somebody else."""
        hint, self._hint = self._hint, None
        if hint is not None and not hint.done():
            hint.set_result(False)
        elif hint is not None and hint.result():
            self._waiters.wake(self._line)

    async def _woken_within(self, seconds: float | None) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()

    async def _take(
        self,
        taking: Coroutine[object, object, Sequence[Message]],
        allowance: PushAllowance,
    ) -> Sequence[Message]:
        """What is taken under the fence; as much room as it needs is kept."""
        taken: Sequence[Message] = ()
        try:
            with fenced(self.fence):
                taken = await taking
        finally:
            self._share.taken(allowance, [message.size for message in taken])
        return taken


class Runners(Generic[R]):
    """One runner for each target of a kind, as targets come and go and pass between processes."""

    def __init__(
        self,
        duty: str,
        services: RunnerServices,
        targets: Callable[[], list[R]],
        make: Callable[[R, Fence], Runner],
        *,
        stop_wait_s: float,
        last: Callable[[], Coroutine[object, object, None]] | None = None,
    ) -> None:
        """When the server stops, requests on their way may still take `stop_wait_s`; `last` is done
        after them."""
        self._duty = duty
        self._shares = Shares(duty, services.store, services.clock)
        self._targets = targets
        self._make = make
        self._stop_wait_s = stop_wait_s
        self._last = last
        self._running: dict[str, tuple[Runner, asyncio.Task[None]]] = {}
        self._drained_s: float | None = None

    async def run(self) -> None:
        """Until cancelled; then let requests on their way end."""
        try:
            while True:
                try:
                    if self._drained_s is None:
                        await self._shares.ask()
                        self._look()
                except Unavailable as error:
                    log.warning(f"{self._duty}_not_seen", extra={"reason": str(error)})
                await asyncio.sleep(LOOK_EVERY_S)
        finally:
            await self._stop()

    def _look(self) -> None:
        wanted: dict[str, tuple[R, Fence]] = {}
        for target in self._targets():
            if fence := self._shares.of(target.id):
                wanted[target.id] = target, fence
        for id, (target, fence) in wanted.items():
            if id not in self._running:
                runner = self._make(target, fence)
                self._running[id] = runner, asyncio.create_task(runner.run())
        for id, (runner, task) in [*self._running.items()]:
            if task.done():
                del self._running[id]
            elif id not in wanted or runner.fence != wanted[id][1]:
                runner.leave()

    def drain(self) -> None:
        """Take nothing more from here on."""
        if self._drained_s is None:
            self._drained_s = asyncio.get_running_loop().time()
        for runner, _ in self._running.values():
            runner.leave()

    async def _stop(self) -> None:
        self.drain()
        assert self._drained_s is not None
        left_s = self._drained_s + self._stop_wait_s - asyncio.get_running_loop().time()
        await self._ended_within(max(0.0, left_s))
        for runner, task in self._running.values():
            if not task.done():
                runner.give_up()
        await self._ended_within(NOTE_WAIT_S)
        for _, task in self._running.values():
            task.cancel()
        await asyncio.gather(*(task for _, task in self._running.values()), return_exceptions=True)
        if self._last is not None:
            await self._last()

    async def _ended_within(self, seconds: float) -> None:
        if tasks := [task for _, task in self._running.values()]:
            await asyncio.wait(tasks, timeout=seconds)
