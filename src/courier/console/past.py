"""The time machine: what queues held and how they were set at a past minute.

Numbers come from levels and tallies, settings from the last event about the queue before then.
"""

import time
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from courier.console import Services
from courier.console.facts import Known
from courier.console.reading import read
from courier.console.recent import QUIET, Recent
from courier.console.rules import QueueFacts, looks_at
from courier.console.spans import moment_ms
from courier.core import journal
from courier.core.errors import InvalidRequest, NotFound
from courier.core.keys import Reach
from courier.core.slices import Slices
from courier.core.types import (
    DAY_MS,
    HOUR_MS,
    MINUTE_MS,
    Key,
    Level,
    Queue,
    QueueStats,
    Tally,
    Tenant,
)
from courier.web import Call
from courier.words import exact

# As long as numbers are kept.
KEPT_MS = 460 * DAY_MS
# Queues of one page whose settings are looked up because they changed since.
LOOKED_UP_MAX = 200
# Queues whose levels are read in one step of a reader.
LEVELS_PART_MAX = 500
# How far back the last change of a queue is looked for, step by step.
_BACK_MS = (HOUR_MS, DAY_MS, 16 * DAY_MS, KEPT_MS)
# How long changes of settings are looked for.
LOOKED_S_MAX = 1.0
_TOLD = ("queue_created", "queue_updated", "queue_deleted")


class SetBy(Struct):
    """Who changed a setting last, when, and the offset of that event."""

    name: str
    at_ms: int
    offset: int


class Past:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._store = services.store

    def at(self, call: Call) -> int:
        """The minute that the address asks for, 0 for now. Raises InvalidRequest."""
        text = call.request.query.get("at", [""])[-1].strip()
        if not text:
            return 0
        at_ms = moment_ms(text, "at") // MINUTE_MS * MINUTE_MS
        now_ms = self._services.clock.now_ms()
        if at_ms > now_ms:
            raise InvalidRequest("at", f"'{text[:40]}' is in the future")
        tenant = self._store.records.get(Tenant, call.tenant)
        first_ms = max(now_ms - KEPT_MS, tenant.created_ms if tenant else 0)
        if at_ms < first_ms // MINUTE_MS * MINUTE_MS:
            raise InvalidRequest(
                "at", f"Nothing is known before {exact(first_ms)[:16]}; the journal began then."
            )
        return at_ms

    async def of_tenant(self, tenant: str, reach: Reach, at_ms: int) -> list[Known]:
        """The tenant's queues of then that are still there, as they were."""
        queues = [
            each
            for each in self._store.records.scan(Queue, tenant=tenant)
            if each.id in reach and each.created_ms < at_ms
        ]
        changed = {each.id for each in queues if each.modified_ms >= at_ms}
        histories = await Recent(self._store).of(tenant, at_ms - 1)
        held_then = await self.held([each.id for each in queues], at_ms)
        found, slices = [], Slices()
        for queue in queues:
            await slices.turn()
            then = queue
            if queue.id in changed and len(changed) <= LOOKED_UP_MAX:
                then = await self.settings(tenant, queue.id, at_ms) or queue
            held = held_then[queue.id]
            history = histories.get(queue.id, QUIET)
            facts = QueueFacts(
                then.id, then.name, held.count, held.leased, held.delayed, 0, 0,
                then.retention_ms, then.lease_ms, then.paused, then.frozen, "",
                self._services.queue_bytes_max, history,
            )  # fmt: skip
            looks = looks_at(facts, at_ms - 1) if held.count or history is not QUIET else ()
            found.append(Known(then.name, then, held, history, looks))
        return found

    async def of_queue(self, queue: Queue, at_ms: int) -> Known:
        if queue.created_ms >= at_ms:
            at = exact(queue.created_ms)[:16]
            raise InvalidRequest("at", f"{queue.name} was created at {at}, after that.")
        [known] = await self.of_tenant(queue.tenant, Reach("", frozenset((queue.id,))), at_ms)
        then = await self.settings(queue.tenant, queue.id, at_ms)
        return msgspec.structs.replace(known, queue=then, name=then.name) if then else known

    async def held(self, queues: Sequence[str], at_ms: int) -> dict[str, QueueStats]:
        """What each queue held when the minute before `at_ms` ended."""
        # First what they hold now, which passes time: what changes by that or later has a level.
        stats = await self._store.stats(queues, now_ms=self._services.clock.now_ms())
        levels: list[list[Level]] = []
        for first in range(0, len(queues), LEVELS_PART_MAX):
            part = queues[first : first + LEVELS_PART_MAX]
            levels += await self._store.past.levels(part, since_ms=at_ms - MINUTE_MS)
        found: dict[str, QueueStats] = {}
        for queue, those in zip(queues, levels, strict=True):
            # What has not changed since is what it holds now.
            then = those[0] if those else stats.get(queue, QueueStats())
            found[queue] = QueueStats(then.count, leased=then.leased, delayed=then.delayed)
        return found

    async def settings(self, tenant: str, queue: str, at_ms: int) -> Queue | None:
        """As the last event about the queue before then says; None where that is not known."""
        until_ms = at_ms
        for back_ms in _BACK_MS:
            since_ms = max(0, at_ms - back_ms)
            tallies = await self._store.past.tallies(
                tenant=tenant, id=queue, since_ms=since_ms, until_ms=until_ms
            )
            told = [each for each in tallies if each.kind in _TOLD]
            if told:
                return await self._told(queue, told[-1], at_ms)
            until_ms = since_ms
        return None

    async def changes(self, queue: Queue) -> dict[str, SetBy]:
        """Who set each setting last, and when, as far back as the journal and a second reach."""
        tallies = await self._store.past.tallies(
            tenant=queue.tenant,
            id=queue.id,
            since_ms=max(queue.created_ms, self._services.clock.now_ms() - KEPT_MS),
            until_ms=queue.modified_ms + MINUTE_MS,
        )
        minutes = {each.minute for each in tallies if each.kind == "queue_updated"}
        found: dict[str, SetBy] = {}
        until_s = time.perf_counter() + LOOKED_S_MAX
        for minute in sorted(minutes, reverse=True):
            low = await self._store.journal.offset_at(minute * MINUTE_MS)
            high = await self._store.journal.offset_at((minute + 1) * MINUTE_MS)
            told: dict[str, SetBy] = {}
            async for run, start, stop in read(self._store, low, high):
                if run.queue == queue.id and run.kind == "queue_updated":
                    key = self._store.records.get(Key, run.actor)
                    details = journal.column(run, "detail")
                    for place in range(start, stop):
                        by = SetBy(key.name if key else run.actor, run.at_ms, run.offset + place)
                        told |= dict.fromkeys(details[place].get("changed", ()), by)
                if time.perf_counter() > until_s:
                    break
            found = told | found
            if time.perf_counter() > until_s:
                break
        return found

    async def settings_before(self, queue: Queue, offset: int) -> Queue:
        """As they were before an event that changed them. Raises NotFound."""
        at_ms, before = 0, None
        async for run, start, stop in read(self._store, offset - 1, offset):
            if start < stop and run.queue == queue.id and run.kind == "queue_updated":
                at_ms = run.at_ms
        if at_ms:
            minute_ms = at_ms // MINUTE_MS * MINUTE_MS
            low = await self._store.journal.offset_at(minute_ms)
            before = await self._last_told(queue.id, low, offset - 1)
            before = before or await self.settings(queue.tenant, queue.id, minute_ms)
        if before is None:
            raise NotFound("change of settings", str(offset))
        return before

    async def _told(self, queue: str, tally: Tally, at_ms: int) -> Queue | None:
        low = await self._store.journal.offset_at(tally.minute * MINUTE_MS)
        high = await self._store.journal.offset_at(min(at_ms, (tally.minute + 1) * MINUTE_MS))
        return await self._last_told(queue, low, high)

    async def _last_told(self, queue: str, low: int, high: int) -> Queue | None:
        """As the last event about the queue with an offset in (low, high] says."""
        detail: dict[str, Any] | None = None
        async for run, start, stop in read(self._store, low, high):
            if run.queue == queue and run.kind in _TOLD:
                detail = journal.column(run, "detail")[stop - 1] if start < stop else detail
        if detail is None:
            return None
        try:
            return msgspec.convert({**detail, "type": "Queue"}, Queue)
        except msgspec.ValidationError:
            return None
