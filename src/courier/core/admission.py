"""What a queue takes, how fast, and how it is stored."""

import asyncio
from collections.abc import Sequence

from courier.core import schemas
from courier.core.errors import Frozen, NotFound, OverLimit, SchemaBroken
from courier.core.limits import Limits
from courier.core.sealed import Sealer, seal_bodies
from courier.core.store import Store
from courier.core.types import Draft, Queue, Schema

# Schemas of many drafts are checked in parts of this size; others have their turn between.
PART_CHECKED_MAX = 500


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


class Admission:
    """One rule for all that is published: by callers, exchanges, announcements and in bulk."""

    def __init__(self, store: Store, limits: Limits, sealer: Sealer) -> None:
        self._store = store
        self._records = store.records
        self._bytes_max = limits.queue_bytes_max
        self._rate = QueueRate(store, "publishing", limit=limits.queue_rate_max)
        self._sealer = sealer

    def takes_all(self, queue: Queue) -> bool:
        """Whether it takes whatever is published, as it is."""
        return not (queue.schema or queue.frozen or queue.encrypted or self._rate.limit)

    async def admit(
        self, queue: Queue, drafts: Sequence[Draft], *, now_ms: int, encrypted: bool = False
    ) -> Sequence[Draft]:
        """The drafts as they are to be stored. `encrypted`: sealed even if the queue is not.

        Raises SchemaBroken, Frozen and RateLimited. Whether there is room is the store's to say.
        """
        if queue.schema:
            await self.check(queue, drafts)
        self._enter(queue)
        await self._rate.take(queue.id, len(drafts), now_ms=now_ms)
        return self.sealed(queue, drafts, encrypted=encrypted)

    async def admit_many(
        self, queue: Queue, drafts: Sequence[Draft], *, now_ms: int, rated: bool = True
    ) -> None:
        """The same for drafts that are stored later, or with those of other queues.

        So there must be room for all of them too, and they are not `sealed` yet.
        """
        if queue.schema:
            await self.check(queue, drafts)
        self._enter(queue)
        if rated:
            await self._rate.take(queue.id, len(drafts), now_ms=now_ms)
        stats = (await self._store.stats([queue.id], now_ms=now_ms)).get(queue.id)
        if stats is None:
            raise NotFound("queue", queue.name)
        size = stats.bytes + sum([draft.size for draft in drafts])
        if drafts and size > self._bytes_max:
            raise OverLimit("queue bytes", limit=self._bytes_max, actual=size)

    async def fitting(self, queue: Queue, drafts: Sequence[Draft]) -> list[Draft]:
        """Those of the drafts that do not break the queue's schema."""
        found: list[Draft] = []
        while queue.schema:
            try:
                await self.check(queue, drafts)
                break
            except SchemaBroken as error:
                found += drafts[: error.place]
                drafts = drafts[error.place + 1 :]
        return [*found, *drafts]

    def sealed(
        self, queue: Queue, drafts: Sequence[Draft], *, encrypted: bool = False
    ) -> Sequence[Draft]:
        if queue.encrypted or encrypted:
            return seal_bodies(drafts, self._sealer, tenant=queue.tenant)
        return drafts

    def _enter(self, queue: Queue) -> None:
        if queue.frozen:
            raise Frozen(queue.name)

    async def check(self, queue: Queue, drafts: Sequence[Draft]) -> None:
        """Raises SchemaBroken with the place of the first that breaks the queue's schema."""
        schema = self._records.get(Schema, queue.schema)
        if schema is None:
            return
        for place, draft in enumerate(drafts):
            if place and place % PART_CHECKED_MAX == 0:
                await asyncio.sleep(0)
            if len(draft.body) <= schemas.QUICK_BYTES_MAX:
                problems = schemas.problems_of_body(draft.body, schema.properties)
            else:  # others have their turn meanwhile
                problems = await asyncio.to_thread(
                    schemas.problems_of_body, draft.body, schema.properties
                )
            if problems:
                raise SchemaBroken([*problems], place)
