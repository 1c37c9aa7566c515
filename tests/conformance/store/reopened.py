"""A store on disk whose process is gone before every verb: what it knew only in memory is lost."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from courier.core.waiters import Waiters
from courier.store.embedded import EmbeddedStore

Opener = Callable[[Path, Waiters], Coroutine[Any, Any, EmbeddedStore]]


class Reopened:
    """Closed and opened again whenever something is asked of it, but for calls of one moment.

    Hints and rates are of a process, so those who wait and what they may take are the same.
    """

    def __init__(self, path: Path, store: EmbeddedStore, opener: Opener) -> None:
        self._path = path
        self._store = store
        self._opener = opener
        self._rates = store.rates
        self._loop = asyncio.get_running_loop()

    def __getattr__(self, name: str) -> Any:
        if not self._loop.is_running():
            self._loop.run_until_complete(self._reopen())
        return self._rates if name == "rates" else getattr(self._store, name)

    async def _reopen(self) -> None:
        waiters, doubt_ms = self._store.waiters, self._store.doubt_ms
        await self._store.close()
        self._store = await self._opener(self._path, waiters)
        self._store.doubt_ms = doubt_ms

    @property
    def doubt_ms(self) -> int:
        return self._store.doubt_ms

    @doubt_ms.setter
    def doubt_ms(self, ms: int) -> None:
        self._store.doubt_ms = ms

    async def close(self) -> None:
        await self._store.close()
