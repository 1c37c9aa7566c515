"""One HTTP request, a push or a look at a page, and what came of it."""

from collections.abc import Mapping
from typing import Protocol

from msgspec import Struct

from courier import __version__

USER_AGENT = f"Courier/{__version__}"


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
