"""Loops that must run once, however many processes share a store."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar, copy_context
from typing import Any, NamedTuple
from zlib import crc32

from msgspec import Struct

from courier.clock import Clock
from courier.core.errors import Unavailable
from courier.core.store import DeliveryStore

# How often a process that does not have a duty asks for it.
ASK_AGAIN_S = 1.0
# How often a process asks for it again while a step lasts.
RENEW_EVERY_S = 1.0
# Into how many parts work is cut that processes share.
PARTS = 16


class Fence(NamedTuple):
    """The right to a duty: `number` grows whenever another process gets it."""

    duty: str
    number: int


# The right by which a step writes. It is no argument, because a step uses verbs that callers use.
FENCE: ContextVar[Fence | None] = ContextVar("FENCE", default=None)


@contextmanager
def fenced(fence: Fence) -> Iterator[None]:
    """What is written meanwhile is refused with DutyLost once another process has the duty."""
    token = FENCE.set(fence)
    try:
        yield
    finally:
        FENCE.reset(token)


class DutyLost(Exception):
    """Another process has the duty by now, so what this one was about to write is refused."""


class Duty(Struct, frozen=True):
    """A loop, and what it does while this process has the duty.

    `turn` is one step, which returns in how many seconds the next is due; None: there is nothing
    left to do. `failed` is logged when a step fails, and the next one is tried after `rest_s`.
    `lost` forgets what is in memory, because another process goes on; `woken` ends a rest early.
    What a step does must be harmless when it is done twice; what it writes is refused once another
    process has the duty.
    """

    name: str
    turn: Callable[[], Coroutine[Any, Any, float | None]]
    failed: str
    rest_s: float
    log: logging.Logger
    lost: Callable[[], None] = lambda: None
    woken: asyncio.Event | None = None


async def run(duty: Duty, store: DeliveryStore, clock: Clock) -> None:
    """Do the duty whenever the store grants it; until cancelled, or until nothing is left."""
    held: Fence | None = None
    while True:
        wait_s: float | None = duty.rest_s
        try:
            number = (await store.hold([duty.name], now_ms=clock.now_ms())).get(duty.name)
            if held is not None and number != held.number:
                duty.lost()
            held = None if number is None else Fence(duty.name, number)
            wait_s = ASK_AGAIN_S if held is None else await _step(duty, held, store, clock)
        except DutyLost:
            duty.log.warning("duty_lost", extra={"duty": duty.name})
            duty.lost()
            held = None
        except Unavailable as error:
            duty.log.warning(duty.failed, extra={"reason": str(error)})
        except Exception:
            duty.log.exception(duty.failed)
        if wait_s is None:
            return
        while not await _rest(min(wait_s, RENEW_EVERY_S), duty.woken):
            wait_s -= RENEW_EVERY_S
            if wait_s <= 0 or held is None or not await _renewed(held, store, clock):
                break


async def _renewed(fence: Fence, store: DeliveryStore, clock: Clock) -> bool:
    """Ask for the duty again. False: another process had it, so that it is lost even if it is
    granted."""
    with suppress(Unavailable):
        held = await store.hold([fence.duty], now_ms=clock.now_ms())
        return held.get(fence.duty) == fence.number
    return True


async def _step(duty: Duty, fence: Fence, store: DeliveryStore, clock: Clock) -> float | None:
    """One step under this right, which is renewed for as long as the step lasts."""
    context = copy_context()
    context.run(FENCE.set, fence)
    turn = asyncio.get_running_loop().create_task(duty.turn(), context=context)
    renewed = True
    try:
        while not (await asyncio.wait([turn], timeout=RENEW_EVERY_S))[0]:
            renewed = renewed and await _renewed(fence, store, clock)
        return turn.result()
    except asyncio.CancelledError:
        turn.cancel()
        await asyncio.wait([turn])
        raise


async def _rest(seconds: float, woken: asyncio.Event | None) -> bool:
    """Whether it was ended early."""
    if woken is None:
        await asyncio.sleep(seconds)
        return False
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await woken.wait()
    early = woken.is_set()
    woken.clear()
    return early


class Shares:
    """Work of many items (listeners, say), each of which is done by one process at a time.

    Items are cut into parts, each of them a duty; processes that run have about as many each.
    """

    def __init__(self, name: str, store: DeliveryStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._duties = [f"{name}/{number}" for number in range(PARTS)]
        self._fences: list[Fence | None] = [None] * PARTS
        self._asked_s = float("-inf")

    async def ask(self) -> None:
        """Ask for this process's parts, unless that was done just now. Raises Unavailable; what was
        granted before is kept then, because the store refuses what is not granted any more."""
        now_s = asyncio.get_running_loop().time()
        if now_s - self._asked_s < RENEW_EVERY_S:
            return
        self._asked_s = now_s
        held = await self._store.hold(self._duties, now_ms=self._clock.now_ms(), evenly=True)
        self._fences = [Fence(duty, held[duty]) if duty in held else None for duty in self._duties]

    def of(self, id: str) -> Fence | None:
        """By what right this process does the item; None: another process does it."""
        return self._fences[crc32(id.encode()) % PARTS]
