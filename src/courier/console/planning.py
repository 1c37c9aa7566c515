"""The pages of plans: a dry run, its progress, its receipt. Also switches of many queues."""

from collections.abc import Sequence
from typing import Any, get_args

from msgspec import Struct
from msgspec.structs import replace

from courier import ids
from courier.console import Page, Redirect, Services, deeds, forms, operates, queue_meant
from courier.console.actions import SWITCHES
from courier.console.browsing import SEARCH_CHARACTERS_MAX
from courier.console.charts import Mark
from courier.console.guard import page_after
from courier.console.lake import LakePages
from courier.console.plans import Plan, PlanFiles, PlannedMessage, Selection
from courier.console.queue import may
from courier.console.runs import Runs
from courier.console.shell import plan_line
from courier.console.spans import moment_ms
from courier.console.troubles import PlanConflict
from courier.console.wholes import Wholes
from courier.core.errors import Forbidden, InvalidRequest, NotFound, StoreUnavailable
from courier.core.types import SECOND_MS, Key, KeyUse, Listener, MessageState, Queue, Tenant
from courier.web import Call, Handler
from courier.words import clock, count, duration, number, preview

QUEUES_MAX = 50
MESSAGES_MAX = 500
LISTED_MAX = 200
# How long an answer waits for what is quick; what is not goes on by itself.
WAIT_S = 1.5
OF_MESSAGES = ("delete", "purge", "redrive")
STATES: tuple[str, ...] = get_args(MessageState)


class PlanFacts(Struct):
    """A plan as its page has it. `confirm` has to be typed; `undo` is "" where there is none."""

    plan: Plan
    state: str
    title: str
    selected: str
    samples: list[tuple[str, str, str]]
    effects: list[str]
    confirm: str
    done: int
    skipped: int
    left: int
    rate: float
    by: str
    undo: str
    no_undo: str
    shell: str
    problem: str = ""
    filled: str = ""


class PlanRow(Struct):
    id: str
    title: str
    state: str
    made_ms: int
    by: str
    done: int
    undone_by: str


class PlansFacts(Struct):
    rows: list[PlanRow]


class Planning:
    def __init__(self, services: Services, lake: LakePages) -> None:
        self._services = services
        self._store = services.store
        self._wholes = Wholes(services)
        self.plans = PlanFiles(services.plans, services.plans_bytes_max)
        self.runs = Runs(services, self.plans, lake)

    def handlers(self) -> dict[str, Handler]:
        return {
            "show_plans": self.show_plans,
            "create_plan": self.create_plan,
            "show_plan": self.show_plan,
            "run_plan": self.run_plan,
            "stop_plan": self.stop_plan,
            "undo_plan": self.undo_plan,
        }

    async def find(self, id: str) -> Plan | None:
        return (await self.plans.all()).get(id)

    def owns(self, plan: Plan, tenant: str) -> bool:
        """Whether keys of the tenant may see it at all."""
        return plan.tenant == tenant and not deeds.of_operator(plan)

    def targets(self, plan: Plan) -> list[str]:
        """What a limited key has to reach, every one of them, to see it."""
        return deeds.targets(plan)

    async def _plan(self, call: Call) -> Plan:
        found = await self.find(call.params["plan"])
        if found is None:
            raise NotFound("plan", call.params["plan"])
        return found

    # --- making one ---

    async def create_plan(self, call: Call) -> Redirect:
        asked: forms.NewPlan = call.body
        if asked.action in SWITCHES:
            return await self._switch(call, asked)
        if asked.action in ("delete_key", "delete_tenant"):
            plan = self._of_operator(call, asked)
        elif asked.action in ("retry_pushes", "backfill"):
            plan = self._of_listener(call, asked)
        elif asked.action == "replay":
            plan = self._of_lake(call, asked)
        elif asked.action in (*OF_MESSAGES, "delete_queue"):
            plan = self._of_queues(call, asked)
        else:
            call.require()
            raise InvalidRequest("action", f"'{asked.action[:40]}' is not something to plan")
        deeds.check(call.key, plan)
        await self.runs.make(plan, call.reach, wait_s=WAIT_S)
        return Redirect(f"/console/plans/{plan.id}")

    def _queues(self, call: Call, asked: forms.NewPlan) -> list[Queue]:
        named = [asked.queue] if asked.queue else _parts(asked.selected, QUEUES_MAX, "queues")
        if not named:
            call.require()
            raise InvalidRequest("selected", "Select a queue first.")
        return [queue_meant(self._services, call, id) for id in dict.fromkeys(named)]

    async def _switch(self, call: Call, asked: forms.NewPlan) -> Redirect:
        """Nothing that needs a plan: the opposite button undoes it."""
        queues = self._queues(call, asked)
        for queue in queues:
            await self._services.admin.update_queue(
                queue.tenant,
                queue.id,
                lambda each: replace(each, **SWITCHES[asked.action]),
                reach=call.reach,
                actor=call.actor,
            )
        return Redirect(page_after(asked.view))

    def _new(self, call: Call, asked: forms.NewPlan, tenant: str, **fields: Any) -> Plan:
        assert call.key is not None
        action: Any = asked.action
        now_ms = self._services.clock.now_ms()
        return Plan(
            id=ids.new_id(), action=action, tenant=tenant, made_ms=now_ms, made_by=call.key.id,
            touched=[], view=page_after(asked.view, ""), **fields,
        )  # fmt: skip

    def _of_queues(self, call: Call, asked: forms.NewPlan) -> Plan:
        queues = self._queues(call, asked)
        if len({queue.tenant for queue in queues}) > 1:
            raise InvalidRequest("selected", "must be queues of one tenant")
        by_message = asked.action in ("delete", "redrive") and bool(asked.queue)
        selection = selection_of(asked, by_message=by_message)
        if selection.text and not all(may(call.key, "messages:read", each.id) for each in queues):
            raise Forbidden("messages:read")
        plan = self._new(
            call,
            asked,
            queues[0].tenant,
            queues=[(queue.id, queue.name) for queue in queues],
            selection=selection,
        )
        if plan.action == "delete_queue":
            plan.queues, plan.target_name = plan.queues[:1], queues[0].name
            plan.before = self._wholes.before(queues[0])
            for burier, _, _ in plan.before.buriers:
                call.require(burier)
                plan.touch(burier)
        return plan

    def _of_listener(self, call: Call, asked: forms.NewPlan) -> Plan:
        [queue] = self._queues(call, asked)
        listener = self._services.admin.listeners.of_queue(queue.id, asked.target)
        return self._new(
            call,
            asked,
            queue.tenant,
            queues=[(queue.id, queue.name)],
            target=listener.id,
            target_name=listener.title,
            selection=selection_of(asked, by_message=False),
            kept=False,
        )

    def _of_lake(self, call: Call, asked: forms.NewPlan) -> Plan:
        """What a question to the lake names, or those of its rows that were selected."""
        call.require()
        target = None
        if asked.target:
            target = self._store.records.named(Queue, tenant=call.tenant, name=asked.target.strip())
            if target is None:
                raise NotFound("queue", asked.target[:80])
        sql = asked.sql.strip().rstrip(";")
        if asked.which != "all":
            pairs = [_pair(each) for each in _parts(asked.selected, MESSAGES_MAX, "rows")]
            if not pairs:
                raise InvalidRequest("selected", "Select rows first, or all of them.")
            wanted = ", ".join(f"('{queue}', {seq})" for queue, seq in pairs)
            sql = f"SELECT queue_id, seq FROM (\n{sql}\n) WHERE (queue_id, seq) IN ({wanted})"
        return self._new(
            call,
            asked,
            call.tenant,
            target=target.id if target else "",
            target_name=target.name if target else "",
            selection=Selection(sql=sql),
            per_second=_rate(asked.rate),
        )

    def _of_operator(self, call: Call, asked: forms.NewPlan) -> Plan:
        if call.key is None or not operates(call.key):
            raise Forbidden("admin")
        found: Key | Tenant | None
        if asked.action == "delete_key":
            found = self._store.records.get(Key, asked.target)
        else:
            found = self._store.records.get(Tenant, asked.target)
        if found is None:
            raise NotFound(asked.action.removeprefix("delete_"), asked.target)
        if isinstance(found, Tenant) and found.name == self._services.first_tenant:
            raise InvalidRequest("target", "the default tenant cannot be deleted")
        return self._new(
            call, asked, found.tenant, target=found.id, target_name=found.name, kept=False
        )

    # --- running it ---

    async def run_plan(self, call: Call) -> Page | Redirect:
        plan, asked = await self._plan(call), call.body
        deeds.check(call.key, plan)
        if plan.state == "planned":
            if await self._arrived(call, plan):
                says = "Messages arrived since this was planned; now these are all of them."
                return await self._again(call, plan, says, status=409)
            needed = deeds.needed_words(plan)
            typed = asked.confirm.strip().replace(",", "")
            if needed and typed != needed:
                says = f"To go on, type {needed}."
                return await self._again(call, plan, says, filled=asked.confirm)
        if plan.undone_by:
            raise PlanConflict("this plan was undone, and cannot go on")
        await self.runs.run(plan, call.actor, call.reach, wait_s=WAIT_S)
        return Redirect(f"/console/plans/{plan.id}")

    async def _arrived(self, call: Call, plan: Plan) -> bool:
        """A queue goes with all its messages, so all of them are chosen."""
        if plan.action != "delete_queue":
            return False
        [(queue, _)] = plan.queues
        tail = await self._store.messages.tail(queue)
        if tail == plan.selection.upto_seq.get(queue):
            return False
        await self.runs.make(plan, call.reach, wait_s=WAIT_S)
        return True

    async def _again(
        self, call: Call, plan: Plan, says: str, *, status: int = 400, filled: str = ""
    ) -> Page:
        facts = await self._facts(call, plan)
        facts.problem, facts.filled = says, filled[:80]
        return Page("plan.html", facts, status)

    async def stop_plan(self, call: Call) -> Redirect:
        plan = await self._plan(call)
        self.runs.stop(plan)
        return Redirect(f"/console/plans/{plan.id}")

    async def undo_plan(self, call: Call) -> Redirect:
        plan = await self._plan(call)
        undo = (await self.plans.all()).get(plan.undone_by)
        if undo is None or undo.state == "done":
            undo = await self._undo(call, plan)
        else:  # it was interrupted, maybe before anybody knew of it
            deeds.check(call.key, undo)
        await self.runs.run(undo, call.actor, call.reach, wait_s=WAIT_S)
        return Redirect(f"/console/plans/{undo.id}")

    async def _undo(self, call: Call, plan: Plan) -> Plan:
        """A new plan that undoes this one, if it can be undone."""
        if not deeds.undoable(plan):
            raise PlanConflict(
                deeds.never_undone(plan) or "nothing was done yet that could be undone"
            )
        undo = self._new(call, forms.NewPlan(deeds.DEEDS[plan.action].undo or ""), plan.tenant)
        undo.queues, undo.undo_of, undo.view = plan.queues, plan.id, plan.view
        undo.touched = None if plan.touched is None else [*plan.touched]
        for queue in deeds.targets(undo):
            call.require(queue)
        deeds.check(call.key, undo)
        if plan.action == "delete_queue":
            name = plan.target_name
            if self._store.records.named(Queue, tenant=plan.tenant, name=name):
                raise PlanConflict(f"there is another queue '{name}' now")
            undo.target, undo.target_name, undo.before = ids.new_id(), name, plan.before
            undo.queues = [(undo.target, name)]
        if undo.action == "take_back":
            await self.runs.make(undo, call.reach, wait_s=60.0)
        else:
            undo.state, undo.count, undo.pages = "planned", plan.done, plan.place
        await self.plans.save(undo)
        try:
            await self.plans.save(plan, undone_by=undo.id)
        except StoreUnavailable:
            await self.plans.forget(undo)
            raise
        return undo

    # --- showing it ---

    async def _seen(self, call: Call) -> list[Plan]:
        """Those that the key may look at, the newest first."""
        reach, key = call.reach, call.key
        assert key is not None
        return [
            plan
            for plan in [*(await self.plans.all()).values()][::-1]
            if operates(key)
            or (
                self.owns(plan, call.tenant)
                and all(queue in reach for queue in deeds.targets(plan))
            )
        ]

    async def marks(self, call: Call, queue: Queue) -> list[Mark]:
        """Plans that were run on a queue, as marks on its chart; the oldest first."""
        return [
            Mark(plan.started_ms, deeds.title(plan), plan.id)
            for plan in (await self._seen(call))[::-1]
            if plan.started_ms and queue.id in dict(plan.queues)
        ]

    async def show_plans(self, call: Call) -> Page:
        rows = [
            PlanRow(
                plan.id, deeds.title(plan), self._state(plan), plan.made_ms,
                self._name(plan.made_by), plan.done, plan.undone_by,
            )
            for plan in (await self._seen(call))[:LISTED_MAX]
        ]  # fmt: skip
        return Page("plans.html", PlansFacts(rows))

    async def show_plan(self, call: Call) -> Page:
        plan = await self._plan(call)
        # Without a script, too, the page follows what happens.
        busy = ((b"refresh", b"1"),) if self.runs.runs(plan) else ()
        return Page("plan.html", await self._facts(call, plan), headers=busy)

    def _state(self, plan: Plan) -> str:
        interrupted = plan.state == "running" and not self.runs.runs(plan)
        return "interrupted" if interrupted else plan.state

    async def _facts(self, call: Call, plan: Plan) -> PlanFacts:
        now_ms = self._services.clock.now_ms()
        ended_ms = plan.ended_ms if plan.state in ("done", "stopped") else now_ms
        worked_s = max(1, ended_ms - plan.started_ms) / 1_000
        readable = deeds.readable(call.key, plan)
        return PlanFacts(
            plan=plan,
            state=self._state(plan),
            title=deeds.title(plan),
            selected=deeds.selected(plan, now_ms),
            samples=await self._samples(plan) if readable else [],
            effects=[*await self._effects(plan, now_ms)],
            confirm=deeds.needed_words(plan) if plan.state == "planned" else "",
            done=plan.done,
            skipped=plan.skipped,
            left=max(0, plan.count - plan.done - plan.skipped),
            rate=plan.done / worked_s if plan.started_ms else 0.0,
            by=self._name(plan.actors[-1] if plan.actors else plan.made_by),
            undo=deeds.undo_words(plan) if deeds.undoable(plan) else "",
            no_undo=deeds.never_undone(plan),
            shell=plan_line(plan, self._services.other_tenant(plan.tenant)),
        )

    def _name(self, id: str) -> str:
        key = self._store.records.get(Key, id)
        return key.name if key and key.name else id

    async def _samples(self, plan: Plan) -> list[tuple[str, str, str]]:
        """The oldest, one from the middle, and the newest: which, its id, how it begins."""
        if not plan.kept or not plan.pages or not plan.count or plan.state == "choosing":
            return []
        found: list[tuple[str, PlannedMessage]] = []
        try:
            for words, number in (("oldest", 0), ("middle", plan.pages // 2), ("newest", -1)):
                page = await self.plans.page(plan, number % plan.pages)
                place = {"oldest": 0, "middle": len(page) // 2, "newest": -1}[words]
                if page[place] not in [each for _, each in found]:
                    found.append((words, page[place]))
            return [(words, each.id, self._opened(each)) for words, each in found]
        except StoreUnavailable as error:  # the rest of the plan can be shown all the same
            return [("unreadable", "", str(error))]

    def _opened(self, each: PlannedMessage) -> str:
        queue = self._store.records.get(Queue, each.queue)
        if queue is None and each.sealed:
            return "(encrypted)"
        return preview(
            self._services.broker.opened(queue, each.message).body if queue else each.body or b""
        )

    async def _effects(self, plan: Plan, now_ms: int) -> Sequence[str]:
        """What else happens, in sentences."""
        if plan.action == "delete_key":
            use = self._store.records.get(KeyUse, plan.target)
            used = f"It was last used {clock(use.at_ms, now_ms)}." if use else "Nobody has used it."
            return (used, "Every client and session that uses it is refused from then on.")
        if plan.action == "delete_tenant":
            queues = self._store.records.scan(Queue, tenant=plan.target)
            held = await self._store.stats([queue.id for queue in queues], now_ms=now_ms)
            messages = sum(each.count for each in held.values())
            keys = len(self._store.records.scan(Key, tenant=plan.target))
            return (f"It has {count(len(queues), 'queue')} with {count(messages, 'message')} and "
                    f"{count(keys, 'key')}; all of them go with it.",)  # fmt: skip
        if plan.action in ("retry_pushes", "backfill"):
            listener = self._store.records.get(Listener, plan.target)
            if listener and listener.disabled_by:
                return ("The listener is disabled: its pushes wait until it is enabled.",)
        if plan.per_second:
            took = duration(plan.count / plan.per_second * SECOND_MS)
            return (f"{number(plan.per_second)} a second are published; it takes {took}.",)
        return deeds.queue_effects(plan) if plan.before else ()


def selection_of(asked: forms.NewPlan, *, by_message: bool) -> Selection:
    """Raises InvalidRequest."""
    seqs: list[int] = []
    if by_message and asked.which != "all":
        seqs = [_seq(each) for each in _parts(asked.selected, MESSAGES_MAX, "messages")]
        if not seqs:
            raise InvalidRequest("selected", "Select messages first, or all that match.")
    if asked.action == "delete_queue":
        return Selection()
    if asked.state not in ("", *STATES):
        raise InvalidRequest("state", f"'{asked.state[:40]}' is not one of {', '.join(STATES)}")
    state: Any = asked.state
    return Selection(
        moment_ms(asked.since, "since") if asked.since else 0,
        moment_ms(asked.until, "until") if asked.until else 1 << 62,
        asked.q[:SEARCH_CHARACTERS_MAX],
        asked.path[:SEARCH_CHARACTERS_MAX],
        tuple(sorted(set(seqs))),
        state=state,
        origin=asked.origin[:SEARCH_CHARACTERS_MAX],
    )


def _parts(selected: str, most: int, what: str) -> list[str]:
    """What has commas between. Raises InvalidRequest for more than `most`, before it is read."""
    if selected.count(",") > 2 * most:
        raise InvalidRequest("selected", f"must be at most {most} {what}")
    parts = [each for each in map(str.strip, selected.split(",")) if each]
    if len(parts) > most:
        raise InvalidRequest("selected", f"must be at most {most} {what}")
    return parts


def _seq(text: str) -> int:
    text = text.strip()
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise InvalidRequest("selected", f"'{text[:40]}' is not the sequence of a message")
    return int(text)


def _rate(text: str) -> int:
    """Messages a second, 0 for no limit. Raises InvalidRequest."""
    text = text.strip().replace(",", "")
    if not text:
        return 0
    if not (text.isascii() and text.isdigit() and 0 < len(text) < 7 and int(text)):
        raise InvalidRequest("rate", f"'{text[:40]}' is not a number of messages a second")
    return int(text)


def _pair(text: str) -> tuple[str, int]:
    queue, _, seq = text.partition("/")
    if not (queue.isascii() and queue.isalnum() and len(queue) < 40):
        raise InvalidRequest("selected", f"'{text[:40]}' is not a message of the lake")
    return queue, _seq(seq)
