"""Who consumes a queue, and how long messages wait for it. Pulls note nothing for this: tallies
say in which minute something happened last, and the journal of that minute says by whom.
"""

from collections.abc import Callable
from itertools import islice
from typing import Any

from msgspec import Struct

from courier.console.events import name_of
from courier.console.lake import SHARES, LakePages
from courier.console.reading import read
from courier.core import journal
from courier.core.errors import InvalidRequest, RateLimited
from courier.core.store import StoreReads
from courier.core.types import HOUR_MS, MINUTE_MS, Queue

LOOKED_BACK_MS = 24 * HOUR_MS
# Of the journal, for the consumers of a minute; and for one of two spans that are compared.
EVENTS_MAX = 50_000
# Leases of that minute are followed for so long at most.
LEASE_MS_MAX = 10 * MINUTE_MS
REMEMBERED_MAX = 200
SHARES_MAX = 100
# Acks around an event of which half say how long work usually takes; fewer say nothing.
ACKS_MIN = 3
SHORT = "Shares are counted by the hour: select an hour or more."
BUSY = "The lake is busy with another question: ask again in a few seconds."
_DONE = ("leased", "acked", "retried")


class ConsumerRow(Struct):
    """What one key did in the last minute in which anybody leased from the queue.

    `expired` counts those of its leases of that minute that ended unanswered.
    """

    key: str
    name: str
    minute_ms: int
    leased: int = 0
    acked: int = 0
    retried: int = 0
    expired: int = 0
    dialect: str = ""

    @property
    def expired_share(self) -> float:
        return self.expired / self.leased if self.leased else 0.0


class ConsumerShare(Struct):
    """What one consumer leased of all that was, and what came of it."""

    key: str
    name: str
    leased: int
    acked: int
    returned: int
    share: float


class ConsumerShares(Struct):
    """Those of the hours between two times, as the lake has them; or why not."""

    since_ms: int
    until_ms: int
    rows: list[ConsumerShare] = []
    says: str = ""


class Work(Struct):
    """How a queue was consumed in a span: waits before first leases, and who leased most.

    `whole`: all of the span was looked at.
    """

    wait_p50_ms: int | None = None
    wait_p95_ms: int | None = None
    busiest: str = ""
    whole: bool = True


class Consumers:
    def __init__(self, store: StoreReads, lake: LakePages) -> None:
        self._store = store
        self._lake = lake
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
        until_ms = (minute + 1) * MINUTE_MS + min(queue.lease_ms, LEASE_MS_MAX)
        # What was leased in a minute does not change when its leases are over.
        if known and known[0] == minute and until_ms < now_ms - MINUTE_MS:
            return known[1]
        rows = await self._in_minute(queue, minute, until_ms)
        if len(self._known) >= REMEMBERED_MAX:
            self._known.clear()
        self._known[queue.id] = (minute, rows)
        return rows

    async def _in_minute(self, queue: Queue, minute: int, until_ms: int) -> list[ConsumerRow]:
        since_ms = minute * MINUTE_MS
        low, high = await self._offsets(since_ms, until_ms)
        rows: dict[tuple[str, str], ConsumerRow] = {}
        holders: dict[tuple[int, int], ConsumerRow] = {}  # by sequence and attempt
        async for run, start, stop in read(self._store, low, min(high, low + EVENTS_MAX)):
            if run.queue != queue.id:
                continue
            if run.kind == "lease_expired":
                seqs, attempts = journal.column(run, "seq"), journal.column(run, "attempt")
                for place in range(start, stop):
                    holder = holders.pop((seqs[place], attempts[place]), None)
                    if holder is not None:
                        holder.expired += 1
            elif run.kind in _DONE and run.actor and run.at_ms < since_ms + MINUTE_MS:
                fresh = ConsumerRow(
                    run.actor, name_of(self._store, run.actor), since_ms, dialect=run.dialect
                )
                row = rows.setdefault((run.actor, run.dialect), fresh)
                setattr(row, run.kind, getattr(row, run.kind) + stop - start)
                if run.kind == "leased":
                    seqs, attempts = journal.column(run, "seq"), journal.column(run, "attempt")
                    for place in range(start, stop):
                        holders[seqs[place], attempts[place]] = row
        return sorted(rows.values(), key=lambda row: -row.leased)

    async def shares(self, queue: Queue, since_ms: int, until_ms: int) -> ConsumerShares:
        """Who leased how much of it, in the hours that touch this time."""
        if until_ms - since_ms < HOUR_MS:
            return ConsumerShares(since_ms, until_ms, says=SHORT)
        first_ms, last_ms = since_ms // HOUR_MS * HOUR_MS, -(-until_ms // HOUR_MS) * HOUR_MS
        sql = SHARES.format(queue=queue.id, since_ms=first_ms, until_ms=last_ms)
        found = ConsumerShares(first_ms, last_ms)
        try:
            rows = await self._lake.rows(sql, SHARES_MAX)
        except InvalidRequest as error:
            found.says = error.reason
        except RateLimited:
            found.says = BUSY
        else:
            found.rows = shared(rows, lambda actor: name_of(self._store, actor))
        return found

    async def between(self, queue: Queue, since_ms: int, until_ms: int) -> Work:
        """How it was consumed between two times, as far as the journal has that."""
        low, high = await self._offsets(since_ms, until_ms)
        upto = min(high, low + EVENTS_MAX)
        waits: list[int] = []
        leased: dict[str, int] = {}
        async for run, start, stop in read(self._store, low, upto):
            if run.queue != queue.id or run.kind != "leased":
                continue
            leased[run.actor] = leased.get(run.actor, 0) + stop - start
            published, attempts = (journal.column(run, "published_ms"),
                                   journal.column(run, "attempt"))  # fmt: skip
            waits += [
                run.at_ms - published[place] for place in range(start, stop) if attempts[place] == 1
            ]
        waits.sort()
        busiest = max(leased, key=lambda actor: leased[actor], default="")
        return Work(
            _within(waits, 0.5),
            _within(waits, 0.95),
            name_of(self._store, busiest) or busiest,
            upto == high,
        )

    async def usual_work_ms(self, queue: str, offset: int) -> int | None:
        """The time from lease to ack that half of the acks around that event took at most.

        None where the journal no longer has the event, or few acks around it.
        """
        head = await self._store.journal.head()
        if offset < head.first:
            return None
        low = max(head.first - 1, offset - EVENTS_MAX // 2)
        began: dict[tuple[int, int], int] = {}
        took: list[int] = []
        async for run, start, stop in read(self._store, low, min(head.last, low + EVENTS_MAX)):
            if run.queue != queue or run.kind not in ("leased", "acked"):
                continue
            pairs = zip(journal.column(run, "seq"), journal.column(run, "attempt"), strict=True)
            for lease in islice(pairs, start, stop):
                if run.kind == "leased":
                    began[lease] = run.at_ms
                elif lease in began:
                    took.append(run.at_ms - began.pop(lease))
        took.sort()
        return _within(took, 0.5) if len(took) >= ACKS_MIN else None

    async def _offsets(self, since_ms: int, until_ms: int) -> tuple[int, int]:
        """The events of that time are those with offsets in (low, high]."""
        head = await self._store.journal.head()
        low = max(await self._store.journal.offset_at(since_ms), head.first - 1)
        return low, max(low, min(await self._store.journal.offset_at(until_ms), head.last))


def _within(values: list[int], share: float) -> int | None:
    """Of sorted values, the one that this share of them does not exceed; None of none."""
    return values[min(len(values) - 1, int(share * len(values)))] if values else None


def shared(rows: list[dict[str, Any]], named: Callable[[str], str]) -> list[ConsumerShare]:
    """Rows of the lake as shares of all that was leased. Pure."""
    whole = sum(row["leased"] for row in rows)
    return [
        ConsumerShare(
            row["actor"],
            named(row["actor"]),
            row["leased"],
            row["acked"],
            row["returned"],
            row["leased"] / whole,
        )
        for row in rows
    ]
