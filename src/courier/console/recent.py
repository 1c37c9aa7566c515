"""What happened to each queue in the last two hours, by the minute, from the store's tallies.

Minutes that are over do not change, so they are asked for once and kept while somebody looks.
"""

from collections.abc import Iterable

from msgspec import Struct

from courier.core.slices import Slices
from courier.core.store import StoreReads
from courier.core.types import MINUTE_MS, Tally

# Minutes that rules look at one by one, the running one included; and those whose dead letters
# are counted.
MINUTES = 11
MINUTES_MAX = 121
# How many minutes are asked for at a time, and after how many tallies no older ones are.
PART_MINUTES = 10
TALLIES_MAX = 200_000
# Of all tenants; what is not kept is asked for again.
SUMS_KEPT_MAX = 25_000
TENANTS_KEPT_MAX = 50
_ENDING = ("acked", "buried", "expired", "purged", "deleted")
_COUNTED = frozenset((*_ENDING, "published", "leased", "lease_expired", "routed", "copied"))


class Sums(Struct, gc=False):
    """What happened to one queue in one minute."""

    published: int = 0
    published_bytes: int = 0
    leased: int = 0
    acked: int = 0
    lease_expired: int = 0
    buried: int = 0
    ended: int = 0
    routed: int = 0
    copied: int = 0

    @property
    def growth(self) -> int:
        return self.published - self.ended


NOTHING = Sums()


class History(Struct, frozen=True):
    """Of one queue: minutes with the running one last, and dead letters of two hours."""

    minutes: tuple[Sums, ...] = (NOTHING,) * MINUTES
    buried_hour: int = 0
    buried_before: int = 0

    def rate(self, kind: str, second: int) -> float:
        """Per second, over the running minute, of which `second` seconds are over, and the last."""
        both = getattr(self.minutes[-1], kind) + getattr(self.minutes[-2], kind)
        return float(both) / (60 + second)


QUIET = History()


class _Latest(Struct, frozen=True):
    """The running minute of a tenant and the one before, as they were at that offset."""

    minute: int
    offset: int
    sums: dict[int, dict[str, Sums]]


class Recent:
    def __init__(self, store: StoreReads) -> None:
        self._store = store
        self._kept: dict[str, dict[int, dict[str, Sums]]] = {}
        self._latest: dict[str, _Latest] = {}

    async def latest(self, tenant: str, ids: Iterable[str], now_ms: int) -> dict[str, History]:
        """Of these, the running minute and the one before: all that `rate` needs.

        While no event happens nothing is asked for again.
        """
        running = now_ms // MINUTE_MS
        offset = (await self._store.journal.head()).last
        known = self._latest.get(tenant)
        if known is None or (known.minute, known.offset) != (running, offset):
            # What happens meanwhile has a higher offset, so the next look asks again.
            known = _Latest(running, offset, await self._ask(tenant, running - 1, running))
            if len(self._latest) >= TENANTS_KEPT_MAX:
                self._latest.clear()
            self._latest[tenant] = known
        before, now = known.sums.get(running - 1, {}), known.sums.get(running, {})
        return {
            id: History((*QUIET.minutes[2:], before.get(id, NOTHING), now.get(id, NOTHING)))
            for id in ids
            if id in before or id in now
        }

    async def of(self, tenant: str, now_ms: int) -> dict[str, History]:
        """By id of a queue or exchange; what is not there was quiet."""
        running = now_ms // MINUTE_MS
        kept = self._kept.setdefault(tenant, {})
        for minute in [each for each in kept if not running - MINUTES_MAX < each < running - 1]:
            del kept[minute]
        # A minute may still change just after its end, while its last group is written.
        found = await self._ask(tenant, running - 1, running)
        oldest, tallies = running - 1, 0
        while oldest > running - MINUTES_MAX + 1 and tallies < TALLIES_MAX:
            if oldest - 1 in kept:
                oldest -= 1
                continue
            first = max(oldest - PART_MINUTES, running - MINUTES_MAX + 1)
            part = await self._ask(tenant, first, oldest - 1)
            tallies += sum(len(each) for each in part.values())
            for minute in range(first, oldest):
                kept[minute] = part.get(minute, {})
            oldest = first
        for minute, by_id in kept.items():
            if minute <= running - MINUTES and any(not each.buried for each in by_id.values()):
                kept[minute] = {id: each for id, each in by_id.items() if each.buried}
        histories = await _histories({**kept, **found}, running)
        if sum(len(each) for of in self._kept.values() for each in of.values()) > SUMS_KEPT_MAX:
            self._kept.clear()
        return histories

    async def _ask(self, tenant: str, first: int, last: int) -> dict[int, dict[str, Sums]]:
        tallies = await self._store.past.tallies(
            tenant=tenant, since_ms=first * MINUTE_MS, until_ms=(last + 1) * MINUTE_MS
        )
        return await summed(tallies)


async def summed(tallies: Iterable[Tally]) -> dict[int, dict[str, Sums]]:
    """Tallies by minute, then by id."""
    found: dict[int, dict[str, Sums]] = {}
    slices = Slices()
    for number, tally in enumerate(tallies):
        if number % 500 == 499:
            await slices.turn()
        if tally.kind in _COUNTED:
            sums = found.setdefault(tally.minute, {}).setdefault(tally.id, Sums())
            add(sums, tally)
    return found


def add(sums: Sums, tally: Tally) -> None:
    kind = tally.kind
    if kind == "published":
        sums.published += tally.count
        sums.published_bytes += tally.bytes
    elif kind in _ENDING:
        sums.ended += tally.count
        if kind == "acked":
            sums.acked += tally.count
        elif kind == "buried":
            sums.buried += tally.count
    elif kind in ("leased", "lease_expired", "routed", "copied"):
        setattr(sums, kind, getattr(sums, kind) + tally.count)


async def _histories(by_minute: dict[int, dict[str, Sums]], running: int) -> dict[str, History]:
    found: dict[str, list[Sums]] = {}
    buried: dict[str, list[int]] = {}
    slices = Slices()
    for minute, by_id in by_minute.items():
        place = minute - running + MINUTES - 1
        for number, (id, sums) in enumerate(by_id.items()):
            if number % 500 == 499:
                await slices.turn()
            if place >= 0:
                found.setdefault(id, [NOTHING] * MINUTES)[place] = sums
            if sums.buried:
                hours = buried.setdefault(id, [0, 0])
                hours[0 if minute > running - 60 else 1] += sums.buried
    return {
        id: History(tuple(found.get(id, QUIET.minutes)), *buried.get(id, (0, 0)))
        for id in {**found, **buried}
    }
