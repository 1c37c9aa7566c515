"""Moments: what need not happen at once happens together, some times a second, and shares a commit.

Receivers that hang cost others as often as something happens because of them: a request begins, it
is given up, its outcome is noted. All of that waits for the next moment, and a thousand of them
then cost little more than one.
"""

import asyncio
import math
from collections.abc import Callable
from typing import Protocol

MOMENT_MS = 50
MOMENT_S = MOMENT_MS / 1000
# Timers may come a little early; what they call must not find itself before its moment.
_EARLY_S = 0.002


def next_moment_s(after_s: float) -> float:
    """The first moment after this time of the event loop: the same for all who ask meanwhile."""
    return math.ceil((after_s + _EARLY_S) / MOMENT_S) * MOMENT_S


class Expiring(Protocol):
    def expired(self) -> None:
        """It was not taken away in time."""
        ...


class Deadlines:
    """Gives up what takes too long, at the first moment after its time: with one timer for all."""

    def __init__(self) -> None:
        # By how long they may take; so each has the next to be given up first.
        self._until_s: dict[int, dict[Expiring, float]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._looks_s = math.inf

    def add(self, each: Expiring, timeout_ms: int) -> None:
        loop = asyncio.get_running_loop()
        until_s = loop.time() + timeout_ms / 1000
        waiting = self._until_s.get(timeout_ms)
        if waiting is None:
            waiting = self._until_s[timeout_ms] = {}
        waiting[each] = until_s
        if until_s < self._looks_s:
            self._look_at(loop, until_s)

    def take_away(self, each: Expiring, timeout_ms: int) -> None:
        """It is over. Nothing happens if it was given up."""
        if timeout_ms in self._until_s:
            self._until_s[timeout_ms].pop(each, None)

    def _look_at(self, loop: asyncio.AbstractEventLoop, until_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._looks_s = next_moment_s(until_s)
        self._timer = loop.call_at(self._looks_s, self._look)

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer, self._looks_s = None, math.inf
        now_s = loop.time()
        over: list[Expiring] = []
        for waiting in self._until_s.values():
            while waiting and waiting[each := next(iter(waiting))] <= now_s:
                del waiting[each]
                over.append(each)
        for each in over:
            each.expired()
        self._until_s = {ms: waiting for ms, waiting in self._until_s.items() if waiting}
        firsts = [next(iter(waiting.values())) for waiting in self._until_s.values()]
        if firsts and (first_s := min(firsts)) < self._looks_s:
            self._look_at(loop, first_s)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


class Soon:
    """Calls at the next moment whatever was added until then, each once."""

    def __init__(self) -> None:
        self._calls: dict[Callable[[], None], None] = {}

    def add(self, call: Callable[[], None]) -> None:
        if not self._calls:
            loop = asyncio.get_running_loop()
            loop.call_at(next_moment_s(loop.time()), self._call)
        self._calls[call] = None

    def _call(self) -> None:
        calls, self._calls = self._calls, {}
        for call in calls:
            call()
