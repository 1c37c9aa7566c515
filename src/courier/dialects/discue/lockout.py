"""Addresses that showed too many bad keys, and are not listened to for a while."""

from courier.core.errors import Rejected
from courier.core.types import MINUTE_MS

FAILURES_MAX = 10
WINDOW_MS = MINUTE_MS
LOCKED_MS = 5 * MINUTE_MS
# Whoever guesses from more addresses than this cannot be stopped by remembering them.
ADDRESSES_MAX = 10_000


class LockedOut(Rejected):
    signin = "locked_out"

    def __init__(self) -> None:
        super().__init__("too many requests with bad keys came from this address")


class Lockout:
    """Locks an address, never an organization: a stranger could lock that out."""

    def __init__(self) -> None:
        self._failures: dict[str, list[int]] = {}
        self._until_ms: dict[str, int] = {}

    def check(self, address: str, *, now_ms: int) -> None:
        """Raises LockedOut."""
        until_ms = self._until_ms.get(address)
        if until_ms is None:
            return
        if now_ms < until_ms:
            raise LockedOut
        del self._until_ms[address]

    def failed(self, address: str, *, now_ms: int) -> None:
        """A request with a bad key came from there."""
        if len(self._failures) >= ADDRESSES_MAX:
            self._failures.clear()
        recent = [at for at in self._failures.get(address, ()) if at > now_ms - WINDOW_MS]
        recent.append(now_ms)
        self._failures[address] = recent
        if len(recent) >= FAILURES_MAX:
            del self._failures[address]
            if len(self._until_ms) >= ADDRESSES_MAX:
                self._until_ms.clear()
            self._until_ms[address] = now_ms + LOCKED_MS
