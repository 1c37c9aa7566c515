"""The loop that lets time pass: due things happen, and the journal is trimmed."""

import logging

from msgspec import Struct

from courier.clock import Clock
from courier.core.duties import Duty
from courier.core.store import Store
from courier.core.types import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, JournalHead, Pipeline

# A journal that is younger, and mostly empty, says nothing about a day.
SPAN_MS_MIN = 10 * MINUTE_MS
FULL_PART = 0.1
# A journal may be over its size for as long.
TRIM_EVERY_MS = SECOND_MS
# How often it is looked whether the journal's cap is too low, and how often that is logged.
LOOK_EVERY_MS = MINUTE_MS
WARN_EVERY_MS = 6 * HOUR_MS
# A journal over its size gives up this part of its events at a time.
FORCED_PART = 64
# Name of the duty.
SWEEP = "sweep"

log = logging.getLogger("courier.sweeper")


class Room(Struct, frozen=True):
    """At the rate at which events come, the journal's cap holds those of `holds_ms`, and is reached
    in `left_ms`."""

    holds_ms: int
    left_ms: int
    retention_ms: int
    bytes_max: int

    @property
    def is_short(self) -> bool:
        """Whether events go before their retention is over, read or not."""
        return self.holds_ms < self.retention_ms


def room(
    *, bytes: int, bytes_max: int, first_ms: int, now_ms: int, retention_ms: int
) -> Room | None:
    """None as long as the rate is not known. `first_ms` is when the first kept event happened."""
    span_ms = now_ms - first_ms
    if bytes <= 0 or span_ms <= 0:
        return None
    if span_ms < SPAN_MS_MIN and bytes < FULL_PART * bytes_max:
        return None
    return Room(
        holds_ms=bytes_max * span_ms // bytes,
        left_ms=max(0, bytes_max - bytes) * span_ms // bytes,
        retention_ms=retention_ms,
        bytes_max=bytes_max,
    )


async def journal_room(
    store: Store, *, now_ms: int, bytes_max: int, retention_ms: int
) -> Room | None:
    """The room that the journal of a store has now."""
    head = await store.journal.head()
    runs = await store.journal.read(after=head.first - 1, limit=1)
    if not runs:
        return None
    return room(
        bytes=head.bytes,
        bytes_max=bytes_max,
        first_ms=runs[0].at_ms,
        now_ms=now_ms,
        retention_ms=retention_ms,
    )


class Sweeper:
    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        every_ms: int,
        batch_max: int,
        journal_retention_ms: int,
        journal_bytes_max: int,
    ) -> None:
        self._store = store
        self._records = store.records
        self._clock = clock
        self.forced_trims = 0
        self._every_ms = every_ms
        self._batch_max = batch_max
        self._journal_retention_ms = journal_retention_ms
        self._journal_bytes_max = journal_bytes_max
        self._trimmed_ms = 0
        self._looked_ms = 0
        self._warned_ms = 0

    def duty(self) -> Duty:
        """To sweep. A store that cannot be written is tried again next time."""

        async def turn() -> float:
            return await self.turn() / SECOND_MS

        return Duty(SWEEP, turn, "sweep_failed", self._every_ms / SECOND_MS, log)

    async def is_ours(self) -> bool:
        """Whether this process, of several, is the one that sweeps."""
        return SWEEP in await self._store.hold([SWEEP], now_ms=self._clock.now_ms())

    async def turn(self) -> int:
        """One step; returns in how many ms the next is due."""
        now_ms = self._clock.now_ms()
        swept = await self._store.sweep(limit=self._batch_max, now_ms=now_ms)
        if now_ms - self._trimmed_ms >= TRIM_EVERY_MS:
            self._trimmed_ms = now_ms
            await self._trim(now_ms, short=swept.short)
        if now_ms - self._looked_ms >= LOOK_EVERY_MS:
            self._looked_ms = now_ms
            await self._warn(now_ms)
        if swept.more:
            return 0
        if swept.next_ms is None:
            return self._every_ms
        # Callers that wait for a lease or a delay to end should not wait for the next round too.
        return min(self._every_ms, max(1, swept.next_ms - self._clock.now_ms()))

    async def room(self) -> Room | None:
        """How long a time of events the journal holds; None if that cannot be said yet."""
        return await journal_room(
            self._store,
            now_ms=self._clock.now_ms(),
            bytes_max=self._journal_bytes_max,
            retention_ms=self._journal_retention_ms,
        )

    async def _warn(self, now_ms: int) -> None:
        """Say in time that events will go before their retention is over."""
        if now_ms - self._warned_ms < WARN_EVERY_MS:
            return
        room = await self.room()
        if room is not None and room.is_short:
            self._warned_ms = now_ms
            log.warning(
                "journal_too_small_for_retention",
                extra={
                    "bytes_max": room.bytes_max,
                    "holds_days": round(room.holds_ms / DAY_MS, 2),
                    "retention_days": round(room.retention_ms / DAY_MS, 2),
                    "full_in_days": round(room.left_ms / DAY_MS, 2),
                },
            )

    async def _trim(self, now_ms: int, *, short: bool) -> None:
        """Forget what is old and read by every pipeline; with too much of it, the oldest.

        A full disk does not wait for what is read to become old: bodies of messages that are done
        stay in the store for as long as the journal tells of them.
        """
        head = await self._store.journal.head()
        pipelines = self._records.scan(Pipeline)
        read = min((pipeline.offset for pipeline in pipelines), default=head.last)
        before_ms = now_ms - self._journal_retention_ms
        while await self._store.journal.trim(upto=read, before_ms=before_ms):
            pass
        while (head := await self._store.journal.head()).bytes > self._journal_bytes_max:
            if not await self._cut(head, upto=head.last, read=read):
                break
        while short and await self._cut(await self._store.journal.head(), upto=read, read=read):
            swept = await self._store.sweep(limit=self._batch_max, now_ms=self._clock.now_ms())
            short = swept.short

    async def _cut(self, head: JournalHead, *, upto: int, read: int) -> bool:
        """Forget a part of the journal, at least one row of it; False: there is none."""
        part = max(1, (head.last - head.first + 1) // FORCED_PART)
        while not (forgotten := await self._store.journal.trim(upto=min(upto, head.first + part))):
            if head.first + part >= upto:
                return False
            part *= 2
        self.forced_trims += 1
        log.warning(
            "journal_trimmed_for_space",
            extra={
                "bytes": head.bytes,
                "bytes_max": self._journal_bytes_max,
                "free_bytes": self._store.health.free_bytes(),
                "first": head.first,
                "forgotten": forgotten,
                "slowest_pipeline_offset": read,
            },
        )
        return True
