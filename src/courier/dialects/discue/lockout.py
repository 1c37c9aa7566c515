"""Addresses that showed too many bad keys, whose bad keys are refused for a while."""

from courier.core.errors import Rejected
from courier.core.types import MINUTE_MS

FAILURES_MAX = 10
WINDOW_MS = MINUTE_MS
LOCKED_MS = 5 * MINUTE_MS
# Guesses from more addresses than this cannot be stopped by remembering them.
ADDRESSES_MAX = 10_000


class LockedOut(Rejected):
    signin = "locked_out"

    def __init__(self, *, retry_after_ms: int) -> None:
        super().__init__("too many requests with bad keys came from this address")
        self.retry_after_ms = retry_after_ms


class Lockout:
    """Counts bad keys by address. Good keys always pass: many callers may share an address."""

    def __init__(self) -> None:
        self._failures: dict[str, list[int]] = {}
        self._until_ms: dict[str, int] = {}

    def failed(self, address: str, *, now_ms: int) -> None:
        """A request with a bad key came from there. Raises LockedOut if too many did before."""
        until_ms = self._until_ms.get(address, 0)
        if now_ms < until_ms:
            raise LockedOut(retry_after_ms=until_ms - now_ms)
        self._until_ms.pop(address, None)
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
