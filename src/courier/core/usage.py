"""How many requests each tenant makes; kept with the store's other tallies."""

import asyncio

from courier.core.store import PastVerbs


class Usage:
    """Counts in memory. The sweep writes the counts down, so a kill may cost the newest."""

    def __init__(self, past: PastVerbs) -> None:
        self._past = past
        self._requests: dict[str, int] = {}
        self._flushing = asyncio.Lock()

    def request(self, tenant: str) -> None:
        self._requests[tenant] = self._requests.get(tenant, 0) + 1

    async def flush(self, *, now_ms: int) -> None:
        """Whatever was counted before is in the store after it, whichever call writes it."""
        async with self._flushing:
            if not self._requests:
                return
            counts, self._requests = self._requests, {}
            try:
                await self._past.tally(
                    {(tenant, "requested"): count for tenant, count in counts.items()},
                    now_ms=now_ms,
                )
            except BaseException:
                for tenant, count in counts.items():
                    self._requests[tenant] = self._requests.get(tenant, 0) + count
                raise
