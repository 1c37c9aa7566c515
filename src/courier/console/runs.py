"""Plans at work: run, stop, go on after a restart, undo.

What a page did is read from the journal, not taken from the answer of the call, which a crash may
lose. So a page that was interrupted is counted once, and its messages are acted on once.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

from msgspec.structs import replace

from courier.console import Services
from courier.console.choosing import Choosing
from courier.console.deeds import DEEDS
from courier.console.lake import LakePages
from courier.console.plans import (
    PAGE,
    REPLAY_ID,
    Plan,
    PlanFiles,
    PlannedMessage,
    Ranges,
    State,
    add_ranges,
    extend_ranges,
    within,
)
from courier.console.reading import read
from courier.console.troubles import PlanConflict
from courier.console.wholes import Wholes
from courier.core import journal
from courier.core.errors import BrokerError, NotFound, RateLimited
from courier.core.keys import Reach
from courier.core.store import StoreReads
from courier.core.types import Actor, Draft, Queue, Run

log = logging.getLogger("courier.console")

# Redriving takes several times as long as deleting, and others have their turn between.
REDRIVEN_MAX = 100
PAUSE_S_MAX = 5.0
# How much of the journal is looked through for what one page did.
EVENTS_MAX = 2_000_000
DIALECT = "console"
_SETTINGS = ("_created", "_updated", "_deleted")


Step = Callable[[Plan, Sequence[PlannedMessage], Actor], Awaitable[set[int]]]


class Runs:
    """`_tasks` are the plans that are being made, or run, by id."""

    def __init__(self, services: Services, plans: PlanFiles, lake: LakePages) -> None:
        self._services = services
        self._store = services.store
        self._plans = plans
        self._choosing = Choosing(services, plans, lake)
        self._wholes = Wholes(services)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._stopping: set[str] = set()
        self._steps: dict[str, Step] = {
            "delete": self._delete,
            "purge": self._delete,
            "redrive": self._redrive,
            "take_back": self._take_back,
            "put_back": self._put_back,
            "replay": self._put_back,
            "create_again": self._put_back,
            "retry_pushes": self._retry,
            "delete_queue": self._check,
        }

    def runs(self, plan: Plan) -> bool:
        return plan.id in self._tasks

    def drain(self) -> None:
        """The server ends: what runs is interrupted, and goes on when somebody wants it to."""
        for task in self._tasks.values():
            task.cancel()

    # --- making, running, stopping ---

    async def make(self, plan: Plan, reach: Reach, *, wait_s: float) -> None:
        """Choose its messages; after `wait_s` that goes on by itself."""
        await self._work(plan, self._choosing.choose(plan, reach), wait_s)

    async def run(self, plan: Plan, actor: Actor, reach: Reach, *, wait_s: float) -> None:
        """Do it, or go on with it. Raises PlanConflict."""
        if self.runs(plan) or plan.state == "done":
            raise PlanConflict("this plan runs already" if self.runs(plan) else "this was done")
        queues = {queue for queue, _ in plan.queues}
        for other in (await self._plans.all()).values():
            if self.runs(other) and queues & {queue for queue, _ in other.queues}:
                raise PlanConflict(
                    f"another plan ({other.id}) runs on this queue; run this one when it is over"
                )
        await self._work(plan, self._run(plan, actor, reach), wait_s)

    async def _work(self, plan: Plan, work: Coroutine[Any, Any, None], wait_s: float) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[plan.id] = task
        task.add_done_callback(lambda _: self._ended(plan))
        await asyncio.wait({task}, timeout=wait_s)
        if task.done() and not task.cancelled():
            task.result()

    def _ended(self, plan: Plan) -> None:
        task = self._tasks.pop(plan.id)
        self._stopping.discard(plan.id)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("plan_failed", extra={"plan": plan.id, "reason": str(error)})

    def stop(self, plan: Plan) -> None:
        """After the page that runs."""
        if self.runs(plan):
            self._stopping.add(plan.id)

    async def _run(self, plan: Plan, actor: Actor, reach: Reach) -> None:
        # What an unfinished page did is still to be found behind `after`.
        unfinished = plan.state == "running" or plan.problem
        if actor.id not in plan.actors:
            plan.actors.append(actor.id)
        plan.started_ms = plan.started_ms or self._services.clock.now_ms()
        plan.state, plan.problem = "running", ""
        if not unfinished:
            plan.after = (await self._store.journal.head()).last
        await self._plans.save(plan)
        try:
            await self._all_pages(plan, actor, reach)
        except BrokerError as error:
            plan.state, plan.problem = "stopped", str(error)
        state: State = plan.state
        if state == "running":
            state = "stopped" if plan.id in self._stopping else "done"
        await self._plans.save(plan, state=state, ended_ms=self._services.clock.now_ms())

    async def _all_pages(self, plan: Plan, actor: Actor, reach: Reach) -> None:
        if plan.action != "delete_queue":
            await self._act(plan, actor, reach)
        step = self._steps.get(plan.action)
        for number in range(plan.place, plan.pages if step else 0):
            if plan.id in self._stopping:
                return
            page = await self._page(plan, number)
            if step and page:
                done = await step(plan, page, actor)
                _, offsets, plan.after = await _of_page(self._store, plan, page)
                plan.done += len(done)
                left = [each.seq for each in page if each.seq not in done]
                if left:
                    add_ranges(plan.left.setdefault(page[0].queue, []), left)
                extend_ranges(plan.offsets, offsets)
            plan.place = number + 1
            await self._plans.save(plan)
        if plan.action == "delete_queue":
            await self._act(plan, actor, reach)

    async def _act(self, plan: Plan, actor: Actor, reach: Reach) -> None:
        if DEEDS[plan.action].whole:
            await self._wholes.act(plan, actor, reach)
            extend_ranges(plan.offsets, await _of_settings(self._store, plan))

    async def _page(self, plan: Plan, number: int) -> list[PlannedMessage]:
        """What puts messages back is about those that the plan before did delete."""
        page = await self._plans.page(plan, number)
        if plan.file == plan.id:
            return page
        undone = (await self._plans.all()).get(plan.undo_of)
        if undone is None:
            raise NotFound("plan", plan.undo_of)
        left = undone.left.get(page[0].queue, [])
        back = [each for each in page if not within(left, each.seq)]
        return [replace(each, into=plan.target) for each in back] if plan.target else back

    # --- what is done to a page; the answer is what was done to which of them ---

    async def _delete(self, plan: Plan, page: Sequence[PlannedMessage], actor: Actor) -> set[int]:
        seqs = [each.seq for each in page]
        await self._services.broker.remove_chosen(page[0].queue, seqs, actor=actor, leased=False)
        return (await _of_page(self._store, plan, page))[0]

    async def _redrive(self, plan: Plan, page: Sequence[PlannedMessage], actor: Actor) -> set[int]:
        for first in range(0, len(page), REDRIVEN_MAX):
            seqs = [each.seq for each in page[first : first + REDRIVEN_MAX]]
            await self._services.broker.redrive_chosen(page[0].queue, seqs, actor=actor)
        return (await _of_page(self._store, plan, page))[0]

    async def _take_back(
        self, plan: Plan, page: Sequence[PlannedMessage], actor: Actor
    ) -> set[int]:
        """Delete the copies of a redrive or replay, and put back what were dead letters."""
        queue, now_ms = page[0].queue, self._services.clock.now_ms()
        seqs = [each.seq for each in page]
        fresh = []
        for seq in seqs:
            found = await self._store.messages.browse(
                queue, after_seq=seq - 1, limit=1, now_ms=now_ms
            )
            fresh += [each.seq for each in found if each.seq == seq and not each.attempts]
        await self._services.broker.remove_chosen(queue, fresh, actor=actor, leased=False)
        done = (await _of_page(self._store, plan, page))[0]
        back = [each for each in page if each.seq in done and each.into]
        await self._publish(plan, back, actor)
        return done

    async def _put_back(self, plan: Plan, page: Sequence[PlannedMessage], actor: Actor) -> set[int]:
        await self._publish(plan, page, actor)
        return {each.seq for each in page}

    async def _publish(self, plan: Plan, back: Sequence[PlannedMessage], actor: Actor) -> None:
        """Publish messages again, each page under a key, so that none is stored twice."""
        names = dict(plan.queues)
        for into in dict.fromkeys(each.into or each.queue for each in back):
            queue = self._store.records.get(Queue, into)
            if queue is None:
                raise NotFound("queue", into)
            drafts = [
                self._draft(plan, queue, each, names.get(each.queue) or self._named(plan, each))
                for each in back
                if (each.into or each.queue) == into
            ]
            key = f"console:{plan.id}/{plan.place}"
            most = plan.per_second or PAGE
            for first in range(0, len(drafts), most):
                part = drafts[first : first + most]
                await self._publish_part(queue, part, key, first, actor)
                if plan.per_second:
                    await asyncio.sleep(len(part) / plan.per_second)

    async def _publish_part(
        self, queue: Queue, part: Sequence[Draft], key: str, first: int, actor: Actor
    ) -> None:
        while True:
            try:
                await self._services.broker.publish_rows(
                    queue, part, key=key, first=first, actor=actor
                )
                return
            except RateLimited as error:
                await asyncio.sleep(min(PAUSE_S_MAX, error.retry_after_ms / 1_000))

    def _named(self, plan: Plan, each: PlannedMessage) -> str:
        queue = self._store.records.get(Queue, each.queue)
        return queue.name if queue else plan.target_name or each.queue

    def _draft(self, plan: Plan, queue: Queue, each: PlannedMessage, name: str) -> Draft:
        body, sealed = each.body or b"", each.sealed
        if queue.encrypted and sealed:  # it is sealed once more when it is published
            body, sealed = self._services.broker.opened(queue, each.message).body, None
        return each.draft(body, sealed, plan=plan.id, queue=name)

    async def _check(self, plan: Plan, page: Sequence[PlannedMessage], actor: Actor) -> set[int]:
        """Those that are still there, and go with their queue."""
        seqs = [each.seq for each in page]
        there = await self._services.broker.remove_chosen(
            page[0].queue, seqs, actor=actor, dry_run=True
        )
        return {seq for seq, held in zip(seqs, there, strict=True) if held}

    async def _retry(self, plan: Plan, page: Sequence[PlannedMessage], actor: Actor) -> set[int]:
        done = set()
        for each in page:
            if await self._services.admin.listeners.retry(plan.target, each.seq):
                done.add(each.seq)
        return done


# --- what a plan did: its events are those of its keys, through the console ---


async def _of_page(
    store: StoreReads, plan: Plan, page: Sequence[PlannedMessage]
) -> tuple[set[int], Ranges, int]:
    """Sequences that were deleted, offsets of all its events, and the journal's last offset."""
    queue, seqs = page[0].queue, {each.seq for each in page}
    named = {each.id for each in page}
    ended: set[int] = set()
    offsets: Ranges = []
    last = (await store.journal.head()).last
    low = max(plan.after, last - EVENTS_MAX)
    async for run, start, stop in read(store, low, last):
        if run.dialect != DIALECT or run.actor not in plan.actors:
            continue
        if run.kind == "deleted" and run.queue == queue:
            of = journal.column(run, "seq")
            mine = [place for place in range(start, stop) if of[place] in seqs]
            ended |= {of[place] for place in mine}
        elif run.kind == "published":
            mine = [place for place in range(start, stop) if _copies(run, place, plan, named)]
        else:
            continue
        add_ranges(offsets, [run.offset + place for place in mine])
    return ended, offsets, last


async def _of_settings(store: StoreReads, plan: Plan) -> Ranges:
    """Offsets of the changes of settings that it made, since `after`."""
    last = (await store.journal.head()).last
    offsets: Ranges = []
    async for run, start, stop in read(store, max(plan.after, last - EVENTS_MAX), last):
        made = run.dialect == DIALECT and run.actor in plan.actors
        if made and run.kind.endswith(_SETTINGS) and not run.kind.startswith("session_"):
            add_ranges(offsets, range(run.offset + start, run.offset + stop))
    return offsets


def _copies(run: Run, place: int, plan: Plan, named: set[str]) -> bool:
    """Whether this is a message that the plan put somewhere."""
    headers, detail = journal.column(run, "headers")[place], journal.column(run, "detail")[place]
    if headers and headers.get(REPLAY_ID) == plan.id:
        return True
    redriven = isinstance(detail, dict) and detail.get("reason") == "redrive"
    return redriven and detail.get("message") in named
