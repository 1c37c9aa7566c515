"""One queue: how it is now, its past, its messages, who consumes it, its settings."""

from typing import Any

from markupsafe import Markup
from msgspec import Struct

from courier.console import Page, Services, browsing, charts, operates, spans
from courier.console.consumers import ConsumerRow, Consumers
from courier.console.facts import Facts, Known
from courier.console.rules import Listening, Look, listener_trouble
from courier.core import keys
from courier.core.errors import Forbidden
from courier.core.types import MINUTE_MS, SECOND_MS, Binding, Exchange, Key, Queue
from courier.web import Call, Handler


class Now(Struct):
    """The figures at the top of the page."""

    waiting: int
    leased: int
    delayed: int
    count: int
    bytes: int
    bytes_max: int
    oldest_age_ms: int
    in_rate: float
    out_rate: float
    buried_hour: int


class Compared(Struct):
    """Two spans side by side, and how they differ."""

    says: str
    here: spans.Totals
    there: spans.Totals
    since_ms: int
    until_ms: int


class Messages(Struct):
    rows: list[browsing.MessageRow]
    next: int | None
    looked: int
    sealed: int
    readable: bool
    last_ms: int = 0


class Problem(Struct):
    """What is wrong with a form, at which field, and what it was filled in with."""

    form: str
    field: str
    says: str
    filled: dict[str, str]


class QueueFacts(Struct):
    id: str
    name: str
    tenant: str
    settings: dict[str, Any]
    dead_letter: str
    dead_letter_id: str
    buriers: list[tuple[str, str]]
    exchanges: list[str]
    now: Now
    looks: list[Look]
    since_ms: int
    until_ms: int
    last: str
    chosen: tuple[int, int] | None
    chosen_totals: spans.Totals
    series: charts.Series
    marks: list[charts.Mark]
    against: str
    compared: Compared | None
    messages: Messages
    consumers: list[ConsumerRow]
    listeners: list[Listening]
    troubles: dict[str, str]
    q: str
    path: str
    state: str
    order: str
    after: int
    modified_ms: int
    problem: Problem | None = None
    against_line: tuple[int, ...] = ()

    @property
    def chart(self) -> Markup:
        return charts.flow(
            self.series, marks=self.marks, against=self.against_line, chosen=self.chosen
        )

    @property
    def table(self) -> list[tuple[int, int, int, int, int]]:
        """The chart's numbers, without the buckets in which nothing was different."""
        series, rows = self.series, []
        last: tuple[int, ...] = ()
        columns = (series.published, series.acked, series.failures, series.backlog)
        for place, values in enumerate(zip(*columns, strict=True)):
            if values != last and (any(values) or any(last)):
                rows.append((series.since_ms + place * series.bucket_ms, *values))
            last = values
        return rows

    @property
    def choices(self) -> dict[str, Any]:
        return {"last": list(spans.LASTS), "against": spans.AGAINST}


class QueuePage:
    def __init__(self, services: Services, facts: Facts) -> None:
        self._services = services
        self._store = services.store
        self._facts = facts
        self._consumers = Consumers(services.store)

    def handlers(self) -> dict[str, Handler]:
        return {"show_queue": self.show_queue}

    async def show_queue(self, call: Call) -> Page:
        return Page("queue.html", await self.facts(call, call.queue))

    async def shown_again(self, call: Call, problem: Problem, status: int = 400) -> Page:
        """The page with a form as it was filled in, and what is wrong with it."""
        facts = await self.facts(call, call.queue)
        facts.problem = problem
        return Page("queue.html", facts, status)

    async def facts(self, call: Call, queue: Queue) -> QueueFacts:
        now_ms = self._services.clock.now_ms()
        query = {name: values[-1] for name, values in call.request.query.items()}
        get = query.get
        known = await self._facts.of_queue(queue, now_ms)
        held = known.held
        chosen = spans.span(get("since", ""), get("until", ""), get("last", ""), now_ms)
        series, tallies = await spans.series(self._store, queue, chosen, held.count)
        against = get("against", "") if get("against", "") in spans.AGAINST else ""
        compared, line = await self._compared(queue, chosen, against, tallies)
        dead = await self._store.get(Queue, queue.dead_letter) if queue.dead_letter else None
        reach = call.reach
        order = "oldest" if get("order", "") == "oldest" else "newest"
        after = _number(get("after", ""))
        state = "ready" if get("state", "") == "ready" else ""
        wanted = browsing.Wanted(
            get("q", "")[: browsing.SEARCH_CHARACTERS_MAX],
            get("path", "")[: browsing.SEARCH_CHARACTERS_MAX],
            *(chosen.chosen or (0, 1 << 62)),
        )
        return QueueFacts(
            id=queue.id,
            name=queue.name,
            tenant=queue.tenant,
            settings=settings_of(queue),
            dead_letter=dead.name if dead else "",
            dead_letter_id=dead.id if dead and dead.id in reach else "",
            buriers=[(each.id, each.name) for each in await self._services.admin.buriers(queue)
                     if each.id in reach],
            exchanges=await self._exchanges(queue),
            now=self._now(known, now_ms),
            looks=[*known.looks],
            since_ms=chosen.since_ms,
            until_ms=chosen.until_ms,
            last=chosen.last,
            chosen=chosen.chosen,
            chosen_totals=spans.totals(tallies, *(chosen.chosen or (chosen.since_ms,
                                                                    chosen.until_ms))),
            series=series,
            marks=spans.marks(tallies),
            against=against,
            compared=compared,
            messages=await self._messages(call, queue, wanted, order, state, after, now_ms),
            consumers=await self._consumers.of(queue, now_ms),
            listeners=[*known.listeners] if await self._may(call, "listeners:read", queue) else [],
            troubles={each.id: said for each in known.listeners
                      if (said := listener_trouble(each, now_ms))},
            q=wanted.text,
            path=wanted.path,
            state=state,
            order=order,
            after=after,
            modified_ms=queue.modified_ms,
            against_line=line,
        )  # fmt: skip

    async def _may(self, call: Call, scope: Any, queue: Queue) -> bool:
        return may(call.key, scope, queue.id)

    def _now(self, known: Known, now_ms: int) -> Now:
        held, history = known.held, known.history
        second = now_ms % MINUTE_MS // SECOND_MS
        return Now(
            known.waiting,
            held.leased,
            held.delayed,
            held.count,
            held.bytes,
            self._services.queue_bytes_max,
            now_ms - held.oldest_ms if held.count and held.oldest_ms else 0,
            history.rate("published", second),
            history.rate("acked", second),
            history.buried_hour,
        )

    async def _exchanges(self, queue: Queue) -> list[str]:
        found = []
        for binding in await self._store.scan(Binding, tenant=queue.tenant):
            if binding.queue == queue.id:
                exchange = await self._store.get(Exchange, binding.parent)
                found += [exchange.name] if exchange else []
        return found

    async def _compared(
        self, queue: Queue, chosen: spans.Span, against: str, tallies: Any
    ) -> tuple[Compared | None, tuple[int, ...]]:
        """The other span's figures, and its line over this one."""
        other = spans.shifted(chosen, against)
        if other is None:
            return None, ()
        first, last = chosen.chosen or (chosen.since_ms, chosen.until_ms)
        theirs = await self._store.tallies(
            tenant=queue.tenant, id=queue.id, since_ms=other[0], until_ms=other[1]
        )
        here, there = spans.totals(tallies, first, last), spans.totals(theirs, *other)
        compared = Compared(spans.difference(here, there), here, there, *other)
        bucket_ms = chosen.bucket_ms
        line = [0] * max(1, -(-(chosen.until_ms - chosen.since_ms) // bucket_ms))
        for tally in theirs:
            at_ms = tally.minute * MINUTE_MS + (first - other[0])
            place = (at_ms - chosen.since_ms) // bucket_ms
            if tally.kind == "published" and 0 <= place < len(line):
                line[place] += tally.count
        return compared, tuple(line)

    async def _messages(
        self,
        call: Call,
        queue: Queue,
        wanted: browsing.Wanted,
        order: str,
        state: str,
        after: int,
        now_ms: int,
    ) -> Messages:
        readable = may(call.key, "messages:read", queue.id)
        if not readable:
            wanted = browsing.Wanted(since_ms=wanted.since_ms, until_ms=wanted.until_ms)
        if state == "ready":
            ready = await self._store.peek(queue.id, count=browsing.ROWS, now_ms=now_ms)
            found = browsing.Found([each for each in ready if browsing.matches(each, wanted)])
            found.looked = len(ready)
        else:
            found = await browsing.browse(
                self._store, queue, wanted, newest=order == "newest", after=after, now_ms=now_ms
            )
        opened = self._services.broker.opened
        rows = [
            browsing.row(each, opened(queue, each).body if readable else None, now_ms)
            for each in found.messages
        ]
        return Messages(rows, found.next, found.looked, found.sealed, readable, found.last_ms)


def may(key: Key | None, scope: Any, queue: str) -> bool:
    """Whether the key may do this to the queue."""
    if key is None:
        return False
    if operates(key):
        return True
    try:
        keys.reach(key, scope).require(queue)
    except Forbidden:
        return False
    return True


def settings_of(queue: Queue) -> dict[str, Any]:
    return {
        "lease_ms": queue.lease_ms,
        "delay_ms": queue.delay_ms,
        "retention_ms": queue.retention_ms,
        "retry_delay_ms": queue.retry_delay_ms,
        "attempts_max": queue.attempts_max,
        "paused": queue.paused,
        "frozen": queue.frozen,
        "fifo": queue.fifo,
        "encrypted": queue.encrypted,
        "schema": bool(queue.schema),
        "created_ms": queue.created_ms,
    }


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else 0
