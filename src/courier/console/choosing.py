"""Which messages a plan is about: settled when it is made, and read without leasing."""

import asyncio
from base64 import b64decode
from collections.abc import AsyncIterator, Sequence
from typing import Any

from courier import ids
from courier.console import Services
from courier.console.browsing import Wanted, at, first_from, pages
from courier.console.lake import LakePages
from courier.console.plans import PAGE, Plan, PlanFiles, PlannedMessage, Ranges, Selection, on_disk
from courier.console.reading import Part, read
from courier.core import journal
from courier.core.errors import NotFound
from courier.core.keys import Reach
from courier.core.limits import Allowance
from courier.core.listeners import missed
from courier.core.store import StoreReads
from courier.core.types import BROKER, Listener, Message, Origin, Queue

# Bodies of one page.
PAGE_BYTES_MAX = 8 << 20
# Pushes of one listener that are retried by one plan.
RETRIED_MAX = 100_000
# Messages of the lake that are replayed by one plan.
REPLAYED_MAX = 100_000


class _Full(Exception):
    """There is no room for all bodies."""


class Choosing:
    def __init__(self, services: Services, plans: PlanFiles, lake: LakePages) -> None:
        self._services = services
        self._store = services.store
        self._plans = plans
        self._lake = lake

    async def choose(self, plan: Plan, reach: Reach) -> None:
        """Write down the messages of a plan, with their bodies if there is room for them."""
        for queue, _ in plan.queues:
            plan.selection.upto_seq[queue] = await self._store.messages.tail(queue)
        plan.state, plan.count, plan.bytes, plan.apart = "choosing", 0, 0, 0
        await self._plans.make_room(self._now_ms())
        await self._plans.save(plan)
        try:
            try:
                await self._write(plan, reach)
            except _Full:
                plan.kept, plan.count, plan.bytes, plan.apart = False, 0, 0, 0
                await self._write(plan, reach)
        except BaseException:
            await self._plans.forget(plan)
            raise
        plan.state = "planned"
        await self._plans.save(plan)

    def _now_ms(self) -> int:
        return self._services.clock.now_ms()

    async def _write(self, plan: Plan, reach: Reach) -> None:
        """Raises _Full."""
        writer = await self._plans.writer(plan)
        try:
            async for page in self._pages(plan, reach):
                plan.touch(*(each.queue for each in page), *(each.into for each in page))
                await on_disk(writer.write, page)
                plan.count += len(page)
                plan.bytes += sum(each.size for each in page)
                if plan.kept and not await self._plans.make_room(self._now_ms()):
                    raise _Full
            plan.pages = writer.pages
            await on_disk(writer.close)
        except BaseException:
            writer.abandon()
            raise

    async def _pages(self, plan: Plan, reach: Reach) -> AsyncIterator[list[PlannedMessage]]:
        """Pages of one queue each, of at most PAGE_BYTES_MAX unless a body is longer."""
        chosen: list[PlannedMessage] = []
        room = Allowance(PAGE_BYTES_MAX)
        async for found in self._found(plan, reach):
            for each in found:
                alike = not chosen or chosen[0].queue == each.queue
                full = len(chosen) == plan.page_messages_max
                if full or not alike or not room.fitting([len(each.body or b"")]):
                    yield chosen
                    chosen, room = [], Allowance(PAGE_BYTES_MAX)
                    room.fitting([len(each.body or b"")])
                chosen.append(each)
            await asyncio.sleep(0)
        if chosen:
            yield chosen

    async def _found(self, plan: Plan, reach: Reach) -> AsyncIterator[list[PlannedMessage]]:
        if plan.action == "retry_pushes":
            async for missed in self._missed(plan):
                yield missed
        elif plan.action == "replay":
            yield await self._archived(plan)
        elif plan.action == "take_back":
            async for found in self._copies(plan):
                yield found
        else:
            for id, _ in plan.queues:
                queue = self._store.records.get(Queue, id)
                if queue is None:
                    raise NotFound("queue", id)
                async for messages in held(self._services, queue, plan.selection):
                    taken = await self._taken(plan, id, messages, reach)
                    yield [
                        PlannedMessage.of(id, each, each.origin, kept=plan.kept) for each in taken
                    ]

    async def _taken(
        self, plan: Plan, queue: str, messages: Sequence[Message], reach: Reach
    ) -> Sequence[Message]:
        """Those that are acted on; `apart` counts those that are leased, or that cannot be."""
        if plan.action in ("backfill", "delete_queue"):
            return messages
        seqs = [each.seq for each in messages]
        if plan.action == "redrive":
            can = await self._services.broker.redrive_chosen(
                queue, seqs, actor=BROKER, dry_run=True
            )
            can = [
                each and (message.origin is None or message.origin.queue in reach)
                for each, message in zip(can, messages, strict=True)
            ]
            plan.apart += can.count(False)
            taken = [each for each, sent in zip(messages, can, strict=True) if sent]
            plan.touch(*(each.origin.queue for each in taken if each.origin))
            return taken
        if seqs:
            idle = await self._services.broker.remove_chosen(
                queue, seqs, actor=BROKER, leased=False, dry_run=True
            )
            plan.apart += idle.count(False)
        return messages

    async def _missed(self, plan: Plan) -> AsyncIterator[list[PlannedMessage]]:
        """Messages whose push to a listener failed, oldest first."""
        queue = plan.queues[0][0]
        listener = self._store.records.require(Listener, plan.target)
        found = await missed(self._store.pushes, listener, limit=RETRIED_MAX, now_ms=self._now_ms())
        for last in range(len(found), 0, -PAGE):
            yield [
                PlannedMessage(
                    queue,
                    ids.message_seq(id, queue=queue) or 0,
                    id,
                    ids.message_ms(id) or 0,
                    0,
                    "bytes",
                )
                for id in found[max(0, last - PAGE) : last][::-1]
            ]

    async def _archived(self, plan: Plan) -> list[PlannedMessage]:
        """Messages of the lake, for their own queues if these are still there, or for `target`."""
        found = await self._lake.messages(plan.selection.sql, plan.tenant, REPLAYED_MAX)
        chosen, into = [], dict.fromkeys([plan.target] if plan.target else [])
        for row in found:
            queue = plan.target or str(row["queue_id"])
            if self._store.records.get(Queue, queue) is None:
                plan.apart += 1
                continue
            into[queue] = None
            chosen.append(_archived(row, into=queue))
        named = [self._store.records.require(Queue, id) for id in into]
        plan.queues = [(queue.id, queue.name) for queue in named]
        return chosen

    async def _copies(self, plan: Plan) -> AsyncIterator[list[PlannedMessage]]:
        """What a redrive published and nobody has leased since, as its events say."""
        undone = (await self._plans.all())[plan.undo_of]
        async for run, start, stop in _read_ranges(self._store, undone.offsets):
            details = journal.column(run, "detail")
            if run.kind != "published":
                continue
            seqs = journal.column(run, "seq")
            for place in range(start, stop):
                detail, seq = details[place], seqs[place]
                redriven = isinstance(detail, dict) and detail.get("reason") == "redrive"
                if not redriven and undone.action != "replay":
                    continue
                found = await self._store.messages.browse(
                    run.queue, after_seq=seq - 1, limit=1, now_ms=self._now_ms()
                )
                fresh = found and found[0].seq == seq and not found[0].attempts
                plan.apart += not fresh
                if fresh:
                    # Back on the dead-letter queue it is one of the queue that it came to.
                    into = str(detail.get("queue", "")) if redriven else ""
                    origin = Origin(run.queue, found[0].id, reason="attempts") if into else None
                    yield [PlannedMessage.of(run.queue, found[0], origin, kept=True, into=into)]


async def _read_ranges(store: StoreReads, ranges: Ranges) -> AsyncIterator[Part]:
    for first, last in ranges:
        async for found in read(store, first - 1, last):
            yield found


async def held(
    services: Services, queue: Queue, selection: Selection
) -> AsyncIterator[list[Message]]:
    """Messages of a queue that the selection names, or that fit it; read without leasing."""
    store, now_ms = services.store, services.clock.now_ms
    seqs = selection.seqs
    while seqs:
        found = await at(store, queue, seqs, now_ms())
        yield found.messages
        last = found.messages[-1].seq if found.cut else seqs[-1]
        seqs = tuple(seq for seq in seqs if seq > last)
    if selection.seqs:
        return
    wanted = Wanted(
        selection.text, selection.path, state=selection.state or None, origin=selection.origin
    )
    after, before = 0, selection.upto_seq[queue.id] + 1
    if selection.since_ms:
        after = await first_from(store, queue, selection.since_ms, now_ms()) - 1
    if selection.until_ms < 1 << 62:
        before = min(before, await first_from(store, queue, selection.until_ms, now_ms()))
    async for page, _ in pages(store, queue, wanted, (after, before), now_ms, limit=PAGE):
        yield page


def _archived(row: dict[str, Any], *, into: str) -> PlannedMessage:
    headers = row["headers"]
    return PlannedMessage(
        str(row["queue_id"]),
        int(row["seq"]),
        str(row["message_id"]),
        int(row["published_ms"]),
        int(row["size"] or 0),
        row["content_type"] or "text",
        b64decode(row["body"]),
        row["sealed"],
        str(headers).encode() if headers else None,
        row["group"],
        into,
    )
