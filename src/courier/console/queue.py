"""One queue: how it is now, its past, its messages, who consumes it, its settings."""

import base64
from collections import defaultdict
from collections.abc import Awaitable, Callable, Container
from typing import Any

import msgspec
from markupsafe import Markup
from msgspec import Struct
from msgspec.structs import replace

from courier.console import Page, Services, browsing, charts, operates, spans
from courier.console.consumers import ConsumerRow, Consumers, ConsumerShares, Work
from courier.console.facts import BEYOND, Facts, Known
from courier.console.lake import AWAY, LakePages
from courier.console.past import Past, SetBy
from courier.console.rules import Listening, Look, listener_trouble, who_left
from courier.console.shell import queue_lines, replay_sql
from courier.core import keys
from courier.core.errors import Forbidden, NotFound, OverLimit
from courier.core.limits import ANSWER_BYTES_MAX, Allowance
from courier.core.types import (
    MINUTE_MS,
    SECOND_MS,
    Exchange,
    Key,
    Message,
    MessageState,
    Queue,
)
from courier.web import Call, Handler
from courier.words import preview

# What of a queue is listed: any state ("ready" is what is handed out next), or its dead letters.
STATES: dict[str, MessageState | None] = {
    "ready": None, "waiting": "waiting", "leased": "leased", "delayed": "delayed", "dead": None,
}  # fmt: skip
# A body that is put into the form to be changed and published again.
AGAIN_BYTES_MAX = 1 << 20
NO_LETTERS = "Dead letters of this queue are dropped, or go where this key does not reach."


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
    work_here: Work
    work_there: Work


class Listed(Struct):
    """Which messages the address asks for: of a state, with a text, from where on."""

    q: str
    path: str
    state: str
    order: str
    after: int

    def wanted(self, queue: Queue, chosen: spans.ChartSpan) -> browsing.Wanted:
        times = chosen.chosen or (0, 1 << 62)
        origin = queue.id if self.state == "dead" else ""
        return browsing.Wanted(self.q, self.path, *times, STATES.get(self.state), origin)


class Messages(Struct):
    """`queue` is where they are: of dead letters another one than the page's. `share` of it was
    searched, as far as `last_ms`. `encrypted`: the tenant has queues with bodies that cannot be
    searched, and what they buried may be anywhere."""

    rows: list[browsing.MessageRow]
    next: int | None
    readable: bool
    share: float = 1.0
    last_ms: int = 0
    encrypted: bool = False
    says: str = ""
    queue: str = ""


class Problem(Struct):
    """What is wrong with a form, at which field, and what it was filled in with."""

    form: str
    field: str
    says: str
    filled: dict[str, str]


class ShownQueue(Struct):
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
    listed: Listed
    modified_ms: int
    problem: Problem | None = None
    draft: dict[str, str] = {}
    made: tuple[str, str] | None = None
    set_by: dict[str, SetBy] | None = None
    shell: list[tuple[str, str]] = []
    against_line: tuple[int, ...] = ()
    who_left: str = ""
    shares: ConsumerShares | None = None

    @property
    def chart(self) -> Markup:
        return charts.flow(
            self.series, marks=self.marks, against=self.against_line, chosen=self.chosen
        )

    @property
    def table(self) -> list[tuple[int, int, int, int, int]]:
        """The chart's numbers, without the rows in which nothing was different."""
        series, rows = self.series.rows(spans.ROWS_MAX), []
        last: tuple[int, ...] = ()
        columns = (series.published, series.acked, series.failures, series.backlog)
        for place, values in enumerate(zip(*columns, strict=True)):
            if values != last and (any(values) or any(last)):
                rows.append((series.since_ms + place * series.bucket_ms, *values))
            last = values
        return rows

    @property
    def replay(self) -> str:
        """What asks the lake for the messages of the selected time."""
        return replay_sql(self.id, *self.chosen) if self.chosen else ""

    @property
    def row_ms(self) -> int:
        return self.series.rows(spans.ROWS_MAX).bucket_ms

    @property
    def choices(self) -> dict[str, Any]:
        return {"last": list(spans.LASTS), "against": spans.AGAINST}


class QueuePage:
    def __init__(self, services: Services, facts: Facts, lake: LakePages) -> None:
        self._services = services
        self._store = services.store
        self._records = services.store.records
        self._facts = facts
        self._consumers = Consumers(services.store, lake)
        self._past = Past(services)
        self._lake = lake
        self.gone: Callable[[Call], Awaitable[Page]]
        self.plans_of: Callable[[Call, Queue], Awaitable[list[charts.Mark]]]

    def handlers(self) -> dict[str, Handler]:
        return {"show_queue": self.show_queue}

    async def show_queue(self, call: Call) -> Page:
        if call.queue is None:
            return await self.gone(call)
        facts = await self.facts(call, call.queue)
        again = call.request.query.get("again", [""])[-1]
        if again:
            facts.draft = await self._draft(call, call.queue, again)
        if "who" in call.request.query and may(call.key, "journal", call.queue.id):
            facts.set_by = await self._past.changes(call.queue)
        return Page("queue.html", facts)

    async def _draft(self, call: Call, queue: Queue, id: str) -> dict[str, str]:
        """A message that is there, as the form to publish it once more. Raises NotFound."""
        now_ms = self._services.clock.now_ms()
        found = await self._store.messages.find(queue.id, id, now_ms=now_ms)
        if found is None:
            raise NotFound("message", id)
        if not may(call.key, "messages:read", queue.id):
            raise Forbidden("messages:read")
        if found.size > AGAIN_BYTES_MAX:
            raise OverLimit("body", limit=AGAIN_BYTES_MAX, actual=found.size)
        raw = self._services.broker.opened(queue, found).body
        kind = found.content_type
        try:
            body = base64.b64encode(raw).decode() if kind == "bytes" else raw.decode()
        except UnicodeDecodeError:
            kind, body = "bytes", base64.b64encode(raw).decode()
        headers = msgspec.json.encode(found.headers).decode() if found.headers else ""
        return {"body": body, "kind": kind, "headers": headers, "group": found.group or ""}

    async def shown_again(self, call: Call, problem: Problem, status: int = 400) -> Page:
        """The page with a form as it was filled in, and what is wrong with it."""
        facts = await self.facts(call, call.queue)
        facts.problem = problem
        return Page("queue.html", facts, status)

    async def facts(self, call: Call, queue: Queue) -> ShownQueue:
        at_ms = self._past.at(call)
        now_ms = at_ms - 1 if at_ms else self._services.clock.now_ms()
        given = {name: values[-1] for name, values in call.request.query.items()}
        query = defaultdict(str, given)
        known = await self._known(call, queue, at_ms, now_ms)
        queue = known.queue
        chosen = spans.span(query["since"], query["until"], query["last"], now_ms)
        shown = chosen.chosen or (chosen.since_ms, chosen.until_ms)
        series, tallies = await spans.series(self._store, queue, chosen, known.held.count)
        against = _one_of(query, "against", spans.AGAINST)
        other = spans.shifted(chosen, against, query["other_since"], query["other_until"])
        compared, line = await self._compared(queue, chosen, other, tallies)
        dead = self._records.get(Queue, queue.dead_letter) if queue.dead_letter else None
        reached = dead if dead and dead.id in call.reach else None
        listed = _listed(query)
        consumers = await self._consumers.of(queue, now_ms)
        told = may(call.key, "listeners:read", queue.id)
        troubles = {each.id: listener_trouble(each, now_ms) for each in known.listeners}
        return ShownQueue(
            id=queue.id,
            name=queue.name,
            tenant=queue.tenant,
            settings=settings_of(queue),
            dead_letter=(dead.name if reached else BEYOND) if dead else "",
            dead_letter_id=reached.id if reached else "",
            buriers=[(each.id, each.name) for each in self._services.admin.buriers(queue)
                     if each.id in call.reach],
            exchanges=self._exchanges(queue, call.reach),
            now=self._now(known, now_ms),
            looks=[*known.looks],
            since_ms=chosen.since_ms,
            until_ms=chosen.until_ms,
            last=chosen.last,
            chosen=chosen.chosen,
            chosen_totals=spans.totals(tallies, *shown),
            series=series,
            marks=[*spans.marks(tallies), *await self._plan_marks(call, queue, chosen)],
            against=against,
            compared=compared,
            messages=await self._then(call, queue, at_ms) if at_ms else
            await self._messages(call, queue, reached, listed, chosen, now_ms),
            consumers=consumers,
            shares=await self._consumers.shares(queue, *shown) if query["shares"] else None,
            listeners=[*known.listeners] if told else [],
            troubles={id: said for id, said in troubles.items() if said and told},
            listed=listed,
            modified_ms=queue.modified_ms,
            shell=queue_lines(self._services.url, queue.id, queue.name,
                              self._services.other_tenant(queue.tenant)),
            against_line=line,
            who_left=_who_left(consumers, known, now_ms),
        )  # fmt: skip

    async def _known(self, call: Call, queue: Queue, at_ms: int, now_ms: int) -> Known:
        if at_ms:
            return await self._past.of_queue(queue, at_ms)
        return await self._facts.of_queue(queue, call.reach, now_ms)

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

    async def _plan_marks(
        self, call: Call, queue: Queue, chosen: spans.ChartSpan
    ) -> list[charts.Mark]:
        found = await self.plans_of(call, queue)
        return [mark for mark in found if chosen.since_ms <= mark.at_ms < chosen.until_ms]

    def _exchanges(self, queue: Queue, reach: keys.Reach) -> list[str]:
        found = []
        for binding in self._services.admin.bindings_of(queue):
            exchange = self._records.get(Exchange, binding.parent)
            if exchange and self._services.admin.reaches(reach, exchange):
                found.append(exchange.name)
        return found

    async def _compared(
        self, queue: Queue, chosen: spans.ChartSpan, other: tuple[int, int] | None, tallies: Any
    ) -> tuple[Compared | None, tuple[int, ...]]:
        """The other span's figures, and its line over this one."""
        if other is None:
            return None, ()
        first, last = chosen.chosen or (chosen.since_ms, chosen.until_ms)
        theirs = await self._store.past.tallies(
            tenant=queue.tenant, id=queue.id, since_ms=other[0], until_ms=other[1]
        )
        here, there = spans.totals(tallies, first, last), spans.totals(theirs, *other)
        work_here = await self._consumers.between(queue, first, last)
        work_there = await self._consumers.between(queue, *other)
        says = spans.difference(here, there)
        compared = Compared(says, here, there, *other, work_here, work_there)
        bucket_ms = chosen.bucket_ms
        line = [0] * max(1, -(-(chosen.until_ms - chosen.since_ms) // bucket_ms))
        for tally in theirs:
            at_ms = tally.minute * MINUTE_MS + (first - other[0])
            place = (at_ms - chosen.since_ms) // bucket_ms
            if tally.kind == "published" and 0 <= place < len(line):
                line[place] += tally.count
        return compared, tuple(line)

    async def _then(self, call: Call, queue: Queue, at_ms: int) -> Messages:
        """The first messages that the queue held then, as the lake has them, with their states."""
        readable = may(call.key, "messages:read", queue.id)
        rows = await self._lake.held(queue.id, at_ms)
        if rows is None:
            return Messages([], None, readable, says=AWAY)
        shown = [
            browsing.MessageRow(
                str(row["message_id"]),
                int(row["seq"]),
                int(row["published_ms"]),
                max(0, at_ms - int(row["published_ms"])),
                int(row["attempts"]),
                int(row["size"] or 0),
                preview(str(row["body"] or "").encode()) if readable else "",
                state=str(row["state"]),
            )
            for row in rows
        ]
        return Messages(shown, None, readable)

    def _has_encrypted(self, tenant: str) -> bool:
        return any(each.encrypted for each in self._records.scan(Queue, tenant=tenant))

    async def _messages(
        self,
        call: Call,
        queue: Queue,
        dead: Queue | None,
        listed: Listed,
        chosen: spans.ChartSpan,
        now_ms: int,
    ) -> Messages:
        wanted = listed.wanted(queue, chosen)
        if listed.state == "dead":
            if dead is None:
                return Messages([], None, readable=True, says=NO_LETTERS)
            queue = dead
        readable = may(call.key, "messages:read", queue.id)
        if not readable:
            wanted = replace(wanted, text="", path="")
        opened = self._services.broker.opened

        def row(message: Message) -> browsing.MessageRow:
            body = opened(queue, message).body if readable else None
            found = browsing.row(message, body, now_ms)
            if found.buried_from not in call.reach:
                found.buried_from = ""
            return found

        if listed.state == "ready":
            allowance = Allowance(ANSWER_BYTES_MAX)
            ready = await self._store.messages.ready(
                queue.id, count=browsing.ROWS, now_ms=now_ms, allowance=allowance
            )
            fits = browsing.fitting(queue, wanted)
            found = browsing.FoundPage([row(each) for each in ready if fits(each)])
        else:
            found = await browsing.browse(
                self._store, queue, wanted, row, newest=listed.order == "newest",
                after=listed.after, now_ms=now_ms,
            )  # fmt: skip
        return Messages(
            found.rows, found.next, readable, found.share, found.last_ms,
            wanted.searches and self._has_encrypted(queue.tenant), queue=queue.id,
        )  # fmt: skip


def _who_left(consumers: list[ConsumerRow], known: Known, now_ms: int) -> str:
    if not consumers or known.queue.paused:
        return ""
    return who_left(
        [row.name or "a key that is gone" for row in consumers],
        minute_ms=consumers[0].minute_ms,
        acked=sum(row.acked for row in consumers),
        waiting=known.waiting,
        now_ms=now_ms,
    )


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


def _listed(query: defaultdict[str, str]) -> Listed:
    longest = browsing.SEARCH_CHARACTERS_MAX
    return Listed(
        query["q"][:longest],
        query["path"][:longest],
        _one_of(query, "state", STATES),
        _one_of(query, "order", ("oldest",)) or "newest",
        _number(query["after"]),
    )


def _one_of(query: defaultdict[str, str], name: str, known: Container[str]) -> str:
    value = query[name]
    return value if value in known else ""


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else 0
