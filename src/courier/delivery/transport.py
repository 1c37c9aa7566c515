"""One HTTP request, a push or a look at a page, and what came of it."""

import asyncio
from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from courier import __version__
from courier.delivery.targets import Targets

if TYPE_CHECKING:
    from courier.delivery.http import HttpTransport

USER_AGENT = f"Courier/{__version__}"

# Loaded late, but that it is missing is told at the start.
if find_spec("aiohttp") is None:
    raise ModuleNotFoundError("No module named 'aiohttp'", name="aiohttp")


class Push(Struct, frozen=True):
    """`trusted`: the URL is the operator's own word, and may be anywhere."""

    url: str
    body: bytes
    headers: Mapping[str, str]
    trusted: bool = False


class PushResult(Struct, frozen=True):
    """What came of a push. Status 0: no whole answer came, and `error` says why."""

    status: int
    duration_ms: int
    error: str = ""
    body: bytes = b""
    retry_after: str = ""

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300


class Transport(Protocol):
    async def send(self, push: Push, *, timeout_ms: int) -> PushResult:
        """Never raises for what the other side does: a refusal is a result."""
        ...

    async def get(self, url: str, *, timeout_ms: int) -> PushResult:
        """Read what is there, from an address that may be called. Raises no more than `send`."""
        ...

    async def close(self) -> None: ...


class LateTransport:
    """The transport over HTTP, made for the first request.

    Its client takes a third of a server's start to load, and many a server never pushes.
    """

    def __init__(self, targets: Targets, *, connections_max: int) -> None:
        self._targets = targets
        self._connections_max = connections_max
        self._making: asyncio.Task[Transport] | None = None

    async def send(self, push: Push, *, timeout_ms: int) -> PushResult:
        return await (await self._made()).send(push, timeout_ms=timeout_ms)

    async def get(self, url: str, *, timeout_ms: int) -> PushResult:
        return await (await self._made()).get(url, timeout_ms=timeout_ms)

    async def close(self) -> None:
        if self._making is not None:
            await (await self._making).close()

    async def _made(self) -> Transport:
        if self._making is None:
            self._making = asyncio.create_task(self._make())
        # Who gives up waiting does not end it for the others.
        return await asyncio.shield(self._making)

    async def _make(self) -> Transport:
        # In a thread, so that the requests of others go on meanwhile.
        made = await asyncio.to_thread(_load)
        return made(self._targets, connections_max=self._connections_max)


def _load() -> "type[HttpTransport]":
    from courier.delivery.http import HttpTransport

    return HttpTransport
