"""One HTTP request, a push or a look at a page, and what came of it."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from msgspec import Struct

from courier import __version__

USER_AGENT = f"Courier/{__version__}"


class Target:
    """Where requests go, and the headers that are the same in all of them.

    `trusted`: the URL is the operator's own word, and may be anywhere. `route` is what a transport
    has made of the others, once.
    """

    __slots__ = ("headers", "route", "trusted", "url")

    def __init__(self, url: str, headers: Mapping[str, str], *, trusted: bool = False) -> None:
        self.url = url
        self.headers = headers
        self.trusted = trusted
        self.route: Any = None


class PushRequest(Struct, frozen=True):
    """One of many requests to a target, with headers of its own."""

    target: Target
    body: bytes
    headers: Mapping[str, str]


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


class OnItsWay(Protocol):
    """A push that was begun and has not ended."""

    def give_up(self) -> None:
        """Nobody hears what comes of it."""
        ...


class Transport(Protocol):
    """Nothing raises for what the other side does: a refusal is a result."""

    def begin(
        self, push: PushRequest, *, timeout_ms: int, ended: Callable[[PushResult], None]
    ) -> OnItsWay:
        """`ended` is called once, and never before this returns."""
        ...

    async def send(self, push: PushRequest, *, timeout_ms: int, trial: bool = False) -> PushResult:
        """`trial`: with the connections of probes, so that it takes none from pushes."""
        ...

    async def get(self, url: str, *, timeout_ms: int) -> PushResult:
        """Read what is there, from an address that may be called."""
        ...

    async def close(self) -> None: ...
