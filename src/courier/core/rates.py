"""How fast a queue may go, whichever process a request comes to."""

from courier.core.store import Store


class QueueRate:
    """Most units a second for each queue; a limit of 0 is none."""

    def __init__(self, store: Store, what: str, *, limit: int) -> None:
        self._store = store
        self._what = what
        self.limit = limit

    async def take(self, queue: str, units: int, *, now_ms: int) -> None:
        """Raises RateLimited."""
        if self.limit:
            rates = self._store.rates
            await rates.take(queue, self._what, units, limit=self.limit, now_ms=now_ms)
