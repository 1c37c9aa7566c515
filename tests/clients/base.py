"""What the dialect scenarios ask of a client, whatever the dialect."""

from typing import Protocol

from msgspec import Struct


class Taken(Struct, frozen=True):
    """A message as its consumer sees it. `lease` is what settles it."""

    id: str
    body: str
    attempts: int
    lease: str


class Client(Protocol):
    """One tenant's client of one dialect, on one queue that it has made for itself."""

    def publish(self, body: str, *, delay_s: int | None = None) -> None: ...

    def publish_batch(self, bodies: list[str]) -> None: ...

    def pull(self, count: int, *, lease_ms: int = 30_000) -> list[Taken]: ...

    def ack(self, leases: list[str]) -> int:
        """How many of them counted."""
        ...

    def retry(self, lease: str) -> None: ...

    def backlog(self) -> int: ...

    def purge(self) -> None: ...

    def dead_letters(self) -> "Client":
        """A client on the queue that this one's messages are buried in after two attempts."""
        ...

    def delete(self) -> None: ...

    def exists(self) -> bool: ...
