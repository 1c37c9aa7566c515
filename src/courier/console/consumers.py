"""Who consumes a queue. Pulls note nothing for this: the tallies say in which minute something
happened last, and the journal of that minute says by whom.
"""

from msgspec import Struct

from courier.core import journal
from courier.core.store import Store
from courier.core.types import HOUR_MS, MINUTE_MS, Key, Queue

LOOKED_BACK_MS = 24 * HOUR_MS
# Of the journal of one minute.
EVENTS_MAX = 50_000
PAGE_EVENTS = 2_000
PAGE_BYTES_MAX = 256 << 10
_KINDS = ("leased", "acked", "retried", "lease_expired")
REMEMBERED_MAX = 200


class ConsumerRow(Struct):
    """What one key did in the last minute in which anybody leased from the queue."""

    key: str
    name: str
    minute_ms: int
    leased: int = 0
    acked: int = 0
    retried: int = 0
    dialect: str = ""


class Consumers:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._records = store.records
        self._known: dict[str, tuple[int, list[ConsumerRow]]] = {}

    async def of(self, queue: Queue, now_ms: int) -> list[ConsumerRow]:
        """Those of the last minute with a lease, within a day; the busiest first."""
        tallies = await self._store.past.tallies(
            tenant=queue.tenant, id=queue.id, since_ms=now_ms - LOOKED_BACK_MS, until_ms=now_ms + 1
        )
        minutes = [tally.minute for tally in tallies if tally.kind == "leased"]
        if not minutes:
            return []
        minute = max(minutes)
        known = self._known.get(queue.id)
        # A minute that is over by more than one does not change.
        if known and known[0] == minute and minute < now_ms // MINUTE_MS - 1:
            return known[1]
        rows = await self._in_minute(queue, minute)
        if len(self._known) >= REMEMBERED_MAX:
            self._known.clear()
        self._known[queue.id] = (minute, rows)
        return rows

    async def _in_minute(self, queue: Queue, minute: int) -> list[ConsumerRow]:
        since_ms = minute * MINUTE_MS
        head = await self._store.journal.head()
        after = max(await self._store.journal.offset_at(since_ms), head.first - 1)
        rows: dict[tuple[str, str], ConsumerRow] = {}
        looked, over = 0, False
        while looked < EVENTS_MAX and after < head.last and not over:
            limit = min(PAGE_EVENTS, head.last - after)
            runs = await self._store.journal.read(
                after=after, limit=limit, bytes_max=PAGE_BYTES_MAX
            )
            cut = list(journal.cut(runs, after=after, limit=limit))
            if not cut:
                break
            for run, start, stop in cut:
                after += stop - start
                looked += stop - start
                over = run.at_ms >= since_ms + MINUTE_MS
                if over or run.queue != queue.id or run.kind not in _KINDS or not run.actor:
                    continue
                fresh = ConsumerRow(run.actor, "", since_ms, dialect=run.dialect)
                row = rows.setdefault((run.actor, run.dialect), fresh)
                if run.kind != "lease_expired":
                    setattr(row, run.kind, getattr(row, run.kind) + stop - start)
        for row in rows.values():
            key = self._records.get(Key, row.key)
            row.name = key.name if key else ""
        return sorted(rows.values(), key=lambda row: -row.leased)
