"""Turns for changes of settings, which read what is there, decide, and write."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Turn:
    """`async with turn` is alone; `async with turn.shared()` may have others of its kind beside it.

    First come, first served: one who wants to be alone is not overtaken by those who would share.
    """

    def __init__(self) -> None:
        self._holders = 0  # -1: one that is alone
        self._queue: deque[tuple[bool, asyncio.Future[None]]] = deque()

    async def __aenter__(self) -> None:
        await self._enter(shared=False)

    async def __aexit__(self, *error: object) -> None:
        self._leave()

    @asynccontextmanager
    async def shared(self) -> AsyncIterator[None]:
        await self._enter(shared=True)
        try:
            yield
        finally:
            self._leave()

    def _free(self, shared: bool) -> bool:
        return self._holders == 0 or (shared and self._holders > 0)

    async def _enter(self, *, shared: bool) -> None:
        if not self._queue and self._free(shared):
            self._holders += 1 if shared else -1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append((shared, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                # Others may have waited for this one only.
                self._grant()
            else:
                self._leave()
            raise

    def _leave(self) -> None:
        self._holders -= 1 if self._holders > 0 else -1
        self._grant()

    def _grant(self) -> None:
        while self._queue:
            shared, turn = self._queue[0]
            if turn.cancelled():
                self._queue.popleft()
                continue
            if not self._free(shared):
                return
            self._queue.popleft()
            self._holders += 1 if shared else -1
            turn.set_result(None)
