"""The first page: every queue, the worst first; and what to do when there is none yet."""

import asyncio
import re
from collections.abc import Callable, Hashable
from operator import attrgetter
from typing import Any

from markupsafe import Markup
from msgspec import Struct
from msgspec.structs import replace

from courier import ids
from courier.console import Page, Redirect, Services, charts, forms, operates, wants_json
from courier.console.facts import Facts, Known, KnownExchange
from courier.console.past import Past
from courier.console.recent import QUIET
from courier.console.rules import LOOKS_MAX, Look, gravest, looks_at_server
from courier.core.errors import Conflict, InvalidRequest, OverLimit
from courier.core.types import HOUR_MS, MINUTE_MS, SECOND_MS, Draft, Queue, Tenant
from courier.web import Call, Handler

ROWS = 50
# As JSON, who asks may have more at once.
ROWS_MAX = 1_000
FILTER_CHARACTERS_MAX = 200
# How long, and for how many pages, it is known which rows a page was made with.
SHOWN_MS = 10 * SECOND_MS
SHOWN_MAX = 64
HELLO = "hello"
# What every dialect takes as a name.
NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
NAME_RULE = "1 to 63 lower-case letters, digits and dashes, no dash at either end"
SORTS = {
    "look": "what needs a look",
    "name": "name",
    "waiting": "waiting",
    "leased": "leased",
    "delayed": "delayed",
    "oldest": "oldest",
    "in": "in/s",
    "out": "out/s",
}
STATES = {
    "": "all",
    "held": "with messages",
    "look": "that need a look",
    "stopped": "paused or frozen",
}


class Row(Struct):
    """One line of the list. An exchange holds nothing; its `out_rate` is of copies.

    `dead_letters` is what its dead-letter queue holds, 0 if that is beyond reach.
    """

    id: str
    name: str
    kind: str
    waiting: int = 0
    leased: int = 0
    delayed: int = 0
    oldest_age_ms: int = 0
    in_rate: float = 0.0
    out_rate: float = 0.0
    backlog: tuple[int, ...] = ()
    state: str = ""
    paused: bool = False
    frozen: bool = False
    grave: int = 0
    bindings: int = 0
    dead_letters: int = 0

    @property
    def spark(self) -> Markup:
        return charts.spark(self.backlog, f"backlog of {self.name} in the last hour")


class QueuesFacts(Struct):
    """`after` is how many rows of those that match come before this page."""

    tenant: str
    tenants: list[str]
    total: int
    messages: int
    matching: int
    rows: list[Row]
    looks: list[Look]
    more_looks: int
    after: int
    q: str = ""
    state: str = ""
    sort: str = "look"
    cards: list[tuple[str, str]] = []
    problem: str = ""
    new_name: str = ""
    at_ms: int = 0

    @property
    def sorts(self) -> dict[str, str]:
        return SORTS

    @property
    def states(self) -> dict[str, str]:
        return STATES


class QueuesPage:
    def __init__(self, services: Services, facts: Facts) -> None:
        self._services = services
        self._facts = facts
        self._past = Past(services)
        self._shown: dict[Hashable, tuple[int, tuple[str, ...], bool]] = {}

    def handlers(self) -> dict[str, Handler]:
        return {
            "show_queues": self.show_queues,
            "create_queue": self.create_queue,
            "say_hello": self.say_hello,
        }

    async def show_queues(self, call: Call) -> Page:
        return Page("queues.html", await self.facts(call))

    async def shown(self, call: Call) -> tuple[tuple[str, ...], bool]:
        """Ids of the rows of a page, and whether it is the first-run page.

        A page asks for its live values at once, so what it was made with is still known.
        """
        known = self._shown.get(_address(call))
        if known is None or known[0] < self._services.clock.now_ms() - SHOWN_MS:
            await self.facts(call)
            known = self._shown[_address(call)]
        return known[1:]

    async def facts(self, call: Call, problem: str = "", new_name: str = "") -> QueuesFacts:
        at_ms = self._past.at(call)
        now_ms = at_ms - 1 if at_ms else self._services.clock.now_ms()
        reach, query = call.reach, call.request.query
        if at_ms:
            known = await self._past.of_tenant(call.tenant, reach, at_ms)
        else:
            known = await self._facts.of_tenant(call.tenant, reach, now_ms)
        exchanges = await self._facts.exchanges(call.tenant, reach, now_ms, past=bool(at_ms))
        looks = [look for each in known for look in each.looks]
        if call.key and operates(call.key) and not at_ms:
            looks += looks_at_server(await self._facts.server(), now_ms)
        looks = gravest(looks)
        q = query.get("q", [""])[-1][:FILTER_CHARACTERS_MAX].strip()
        state = query.get("state", [""])[-1]
        sort = query.get("sort", ["look"])[-1]
        sort = sort if sort in SORTS else "look"
        second = now_ms % MINUTE_MS // SECOND_MS
        wanted: list[Known | KnownExchange] = [each for each in known if _wanted(each, q, state)]
        if not state:
            wanted += [each for each in exchanges if q.lower() in each.name.lower()]
        # With very many queues each of these takes some milliseconds; others have their turn.
        await asyncio.sleep(0)
        wanted = _sorted(wanted, sort)
        await asyncio.sleep(0)
        after = min(_offset(query.get("after", ["0"])[-1]), max(0, len(wanted) - 1))
        rows = _offset(query.get("rows", ["0"])[-1]) if wants_json(call.request) else 0
        most = min(rows or ROWS, ROWS_MAX)
        dead = {each.queue.id: each.held.count for each in known}
        page = wanted[after : after + most]
        backlogs = await self._facts.backlogs(
            [each for each in page if isinstance(each, Known)],
            since_ms=now_ms - HOUR_MS,
            until_ms=now_ms,
        )
        shown = [_row(each, now_ms, second, dead, backlogs) for each in page]
        tenant = self._services.store.records.get(Tenant, call.tenant)
        first = not known and not exchanges and not at_ms
        self._remember(call, tuple(each.id for each in shown[:ROWS]), first)
        return QueuesFacts(
            tenant=tenant.name if tenant else "",
            tenants=self._tenants(call),
            total=len(known),
            messages=sum(each.held.count for each in known),
            matching=len(wanted),
            rows=shown,
            looks=looks[:LOOKS_MAX],
            more_looks=max(0, len(looks) - LOOKS_MAX),
            after=after,
            q=q,
            state=state if state in STATES else "",
            sort=sort,
            cards=self._cards(call, tenant) if first else [],
            problem=problem,
            new_name=new_name,
            at_ms=now_ms,
        )

    def _remember(self, call: Call, rows: tuple[str, ...], first: bool) -> None:
        while len(self._shown) >= SHOWN_MAX:
            del self._shown[next(iter(self._shown))]
        self._shown[_address(call)] = self._services.clock.now_ms(), rows, first

    def _tenants(self, call: Call) -> list[str]:
        if call.key is None or not operates(call.key):
            return []
        return [tenant.name for tenant in self._facts.tenants()]

    def _cards(self, call: Call, tenant: Tenant | None) -> list[tuple[str, str]]:
        """Lines to paste; with secrets for the operator only."""
        trusted = call.key is not None and operates(call.key) and tenant is not None
        return self._services.greeting(tenant.name if trusted and tenant else "")

    async def create_queue(self, call: Call) -> Page | Redirect:
        call.require()
        asked: forms.NewQueue = call.body
        try:
            queue = await self._create(call, asked.name.strip(), asked.like)
        except (InvalidRequest, Conflict, OverLimit) as error:
            problem = error.reason if isinstance(error, InvalidRequest) else str(error)
            facts = await self.facts(call, problem, asked.name[:FILTER_CHARACTERS_MAX])
            return Page("queues.html", facts, 409 if isinstance(error, Conflict) else 400)
        return Redirect(f"/console/queues/{queue.id}")

    async def _create(self, call: Call, name: str, like: str = "") -> Queue:
        if not like and not NAME.fullmatch(name):
            raise InvalidRequest("name", f"A queue's name has {NAME_RULE}.")
        now_ms = self._services.clock.now_ms()
        queue = Queue(
            id=ids.new_id(), tenant=call.tenant, name=name, created_ms=now_ms, modified_ms=now_ms
        )
        if like:
            known = await self._past.settings(call.tenant, like, now_ms + 1)
            if known is None:
                raise InvalidRequest("like", "What that queue was is no longer known.")
            dead = known.dead_letter if self._named(known.dead_letter) else None
            queue = replace(
                known, id=queue.id, created_ms=now_ms, modified_ms=now_ms, dead_letter=dead,
                purge=None, schema="", frozen=False, paused=False,
            )  # fmt: skip
        return await self._services.admin.create_queue(queue, actor=call.actor)

    def _named(self, id: str | None) -> bool:
        return id is not None and self._services.store.records.get(Queue, id) is not None

    async def say_hello(self, call: Call) -> Redirect:
        """Make the queue `hello`, if it is not there, and publish to it."""
        call.require()
        queue = self._services.store.records.named(Queue, tenant=call.tenant, name=HELLO)
        if queue is None:
            queue = await self._create(call, HELLO)
        draft = Draft(b'{"hello": "world"}', "json")
        receipt = await self._services.broker.publish(queue, [draft], actor=call.actor)
        return Redirect(f"/console/messages/{receipt.ids[0]}?queue={queue.id}")


def _address(call: Call) -> Hashable:
    """What decides which rows a page has: who asks, and its query."""
    query = call.request.query
    asked = (query.get(name, [""])[-1] for name in ("q", "state", "sort", "after", "at"))
    return call.key and call.key.id, call.tenant, *(each[:FILTER_CHARACTERS_MAX] for each in asked)


def _wanted(known: Known, q: str, state: str) -> bool:
    if q and q.lower() not in known.name.lower():
        return False
    if state == "held":
        return known.held.count > 0
    if state == "look":
        return bool(known.looks)
    if state == "stopped":
        return known.queue.paused or known.queue.frozen
    return True


def _row(
    known: Known | KnownExchange,
    now_ms: int,
    second: int,
    held_by: dict[str, int],
    backlogs: dict[str, list[int]],
) -> Row:
    if isinstance(known, KnownExchange):
        return _exchange_row(known, second)
    queue, held = known.queue, known.held
    look = known.looks[0] if known.looks else None
    stopped = "paused" if queue.paused else "frozen" if queue.frozen else ""
    return Row(
        queue.id,
        queue.name,
        "queue",
        known.waiting,
        held.leased,
        held.delayed,
        now_ms - held.oldest_ms if held.count and held.oldest_ms else 0,
        known.history.rate("published", second),
        known.history.rate("acked", second),
        tuple(backlogs[queue.id]),
        look.state if look else stopped,
        queue.paused,
        queue.frozen,
        look.grave if look else 0,
        dead_letters=held_by.get(queue.dead_letter or "", 0),
    )


def _exchange_row(known: KnownExchange, second: int) -> Row:
    history = known.history
    return Row(
        known.exchange.id,
        known.exchange.name,
        "exchange",
        in_rate=history.rate("routed", second),
        out_rate=history.rate("copied", second),
        bindings=known.bindings,
    )


Figure = Callable[[Known], float]


def _sorted(found: list[Known | KnownExchange], sort: str) -> list[Known | KnownExchange]:
    """Those with most of it first, then all that have none of it, by name."""
    figure, copied = _FIGURES[sort]
    busy: list[tuple[Any, str, int]] = []
    rest = []
    for place, each in enumerate(found):
        if isinstance(each, Known):
            idle = not each.held.count and each.history is QUIET and not each.looks
            value = 0 if idle else figure(each)
        else:
            value = each.history.rate(copied, 0) if copied else 0
        if value:
            busy.append((-value, each.name, place))
        else:
            rest.append(each)
    rest.sort(key=attrgetter("name"))
    return [*(found[place] for *_, place in sorted(busy)), *rest]


def _look(known: Known) -> float:
    """By how grave it is, and the same by how many wait."""
    grave = known.looks[0].grave if known.looks else 0
    waiting = known.waiting
    return grave + waiting / (waiting + 1) if waiting else grave


def _age(known: Known) -> float:
    return (1 << 46) - known.held.oldest_ms if known.held.count else 0


_FIGURES: dict[str, tuple[Figure, str]] = {
    "look": (_look, ""),
    "name": (lambda _: 0, ""),
    "waiting": (lambda known: known.waiting, ""),
    "leased": (lambda known: known.held.leased, ""),
    "delayed": (lambda known: known.held.delayed, ""),
    "oldest": (_age, ""),
    "in": (lambda known: known.history.rate("published", 0), "routed"),
    "out": (lambda known: known.history.rate("acked", 0), "copied"),
}


def _offset(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
