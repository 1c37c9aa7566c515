"""What happened how often: the oracle's counts of every minute."""

from courier.core.types import DAY_MS, HOUR_MS, MINUTE_MS, Tally

MINUTES_KEPT_MS = 16 * DAY_MS
HOURS_KEPT_MS = 460 * DAY_MS


class Tallies:
    """Counts and bytes by minute, tenant, id and kind."""

    def __init__(self) -> None:
        self._totals: dict[tuple[int, str, str, str], tuple[int, int]] = {}

    def add(
        self, kind: str, tenant: str, id: str, *, count: int = 1, size: int = 0, now_ms: int
    ) -> None:
        key = (now_ms // MINUTE_MS, tenant, id, kind)
        before = self._totals.get(key, (0, 0))
        self._totals[key] = before[0] + count, before[1] + size

    def age(self, now_ms: int) -> None:
        """Sum up old minutes by the hour, and forget old hours."""
        totals, self._totals = self._totals, {}
        for (minute, tenant, id, kind), (count, size) in totals.items():
            at_ms = minute * MINUTE_MS
            if minute < (now_ms - MINUTES_KEPT_MS) // MINUTE_MS:
                at_ms -= at_ms % HOUR_MS
            if minute >= (now_ms - HOURS_KEPT_MS) // MINUTE_MS:
                self.add(kind, tenant, id, count=count, size=size, now_ms=at_ms)

    def read(self, tenant: str, id: str | None, *, since_ms: int, until_ms: int) -> list[Tally]:
        return [
            Tally(minute, owner, kind, count, size)
            for (minute, whose, owner, kind), (count, size) in sorted(self._totals.items())
            if whose == tenant
            and id in (None, owner)
            and since_ms < (minute + 1) * MINUTE_MS
            and minute * MINUTE_MS < until_ms
        ]
