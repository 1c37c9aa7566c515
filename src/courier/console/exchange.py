"""Pages of what is no queue, or no longer one: an exchange, and a queue that was deleted."""

from typing import Any

import msgspec
from markupsafe import Markup
from msgspec import Struct
from msgspec.structs import asdict

from courier.console import Page, Redirect, Services, charts, forms, queue_paths, spans
from courier.console.facts import Facts
from courier.console.guard import page_after
from courier.console.past import Past
from courier.console.queue import Problem, settings_of
from courier.console.recent import QUIET
from courier.console.troubles import Unmatched, nearest
from courier.core.errors import InvalidRequest, NotFound, OverLimit
from courier.core.routing import passes
from courier.core.types import MINUTE_MS, SECOND_MS, Binding, Exchange, Queue, Rule
from courier.web import Call, Handler

HEADERS_CHARACTERS_MAX = 4_000
NAME_CHARACTERS_MAX = 255
TESTS = {"eq": "is", "prefix": "begins with", "any_of": "is one of", "none_of": "is none of",
          "lt": "is below", "le": "is at most", "gt": "is above", "ge": "is at least",
          "range": "is from, to"}  # fmt: skip


class BindingRow(Struct):
    """`reached` is None where no headers were asked about."""

    queue: str
    name: str
    rule: str
    reached: bool | None = None


class ExchangeFacts(Struct):
    id: str
    name: str
    encrypted: bool
    in_rate: float
    out_rate: float
    rows: list[BindingRow]
    headers: str = ""
    problem: str = ""
    wrong: Problem | None = None

    @property
    def tests(self) -> dict[str, str]:
        return TESTS


class DeletedFacts(Struct):
    """A queue as it was last, and its past."""

    id: str
    name: str
    deleted_ms: int
    settings: dict[str, Any]
    series: charts.Series
    totals: spans.Totals
    since_ms: int
    until_ms: int

    @property
    def chart(self) -> Markup:
        return charts.flow(self.series, marks=[], against=(), chosen=None)


class ExchangePages:
    def __init__(self, services: Services, facts: Facts, past: Past) -> None:
        self._services = services
        self._store = services.store
        self._facts = facts
        self._past = past

    def handlers(self) -> dict[str, Handler]:
        return {"show_exchange": self.show_exchange, "change_exchange": self.change_exchange}

    async def show_exchange(self, call: Call) -> Page:
        facts = await self._shown(call)
        return Page("exchange.html", facts, 400 if facts.problem else 200)

    async def change_exchange(self, call: Call) -> Page | Redirect:
        """Bind a queue, by a rule or not, unbind one, or delete the exchange."""
        asked: forms.ChangeForm = call.body
        exchange = self._store.records.require(Exchange, call.params["exchange"])
        try:
            await self._change(call, exchange, asked)
        except (InvalidRequest, NotFound, OverLimit) as error:
            field = error.field if isinstance(error, InvalidRequest) else "queue"
            says = error.reason if isinstance(error, InvalidRequest) else str(error)
            facts = await self._shown(call)
            form = "delete" if asked.action == "delete" else "bind"
            facts.wrong = Problem(form, field, says, asdict(asked))
            return Page("exchange.html", facts, 400)
        if asked.action == "delete":
            return Redirect("/console")
        return Redirect(page_after(asked.view, f"/console/exchanges/{exchange.id}"))

    async def _change(self, call: Call, exchange: Exchange, asked: forms.ChangeForm) -> None:
        admin, tenant = self._services.admin, exchange.tenant
        if asked.action == "delete":
            if asked.confirm.strip() != exchange.name:
                raise InvalidRequest("confirm", f"To delete the exchange, type {exchange.name}.")
            await admin.delete_exchange(tenant, exchange.name, actor=call.actor)
            return
        name = asked.queue.strip()
        queue = self._store.records.named(Queue, tenant=tenant, name=name)
        if queue is None or queue.id not in call.reach:
            raise InvalidRequest("queue", f"There is no queue '{name[:80]}'.")
        if asked.action == "unbind":
            await admin.unbind(tenant, exchange.name, name, actor=call.actor)
        elif asked.action == "bind":
            rule = rule_of(asked)
            bound = await admin.bind(tenant, exchange.name, name, actor=call.actor)
            if bound.rule != rule:
                await admin.set_rule(tenant, exchange.name, name, rule, actor=call.actor)
        else:
            raise InvalidRequest("action", "must be bind, unbind or delete")

    async def _shown(self, call: Call) -> ExchangeFacts:
        exchange = self._store.records.require(Exchange, call.params["exchange"])
        now_ms = self._services.clock.now_ms()
        second = now_ms % MINUTE_MS // SECOND_MS
        histories = await self._facts.recent.of(exchange.tenant, now_ms)
        history = histories.get(exchange.id, QUIET)
        given = call.request.query.get("headers", [""])[-1][:HEADERS_CHARACTERS_MAX].strip()
        facts = ExchangeFacts(
            exchange.id, exchange.name, exchange.encrypted, history.rate("routed", second),
            history.rate("copied", second), [], given,
        )  # fmt: skip
        headers: dict[str, Any] | None = None
        try:
            headers = msgspec.json.decode(given, type=dict[str, Any]) if given else None
        except (msgspec.DecodeError, RecursionError) as error:
            facts.problem = f"This is not a JSON object: {error}."
        for binding in self._store.records.scan(Binding, parent=exchange.id):
            queue = self._store.records.get(Queue, binding.queue)
            if queue is not None:
                reached = None if headers is None else passes(binding.rule, [headers])
                row = BindingRow(queue.id, queue.name, rule_words(binding.rule), reached)
                facts.rows.append(row)
        return facts

    async def deleted(self, call: Call) -> Page:
        """A queue of an old link: its last settings and its past. Raises NotFound."""
        id, now_ms = call.params["queue"], self._services.clock.now_ms()
        last = await self._past.settings(call.tenant, id, now_ms + 1)
        if last is None:
            raise Unmatched("queue", id, nearest(id, queue_paths(self._services, call)))
        chosen = spans.span("", "", call.request.query.get("last", ["7d"])[-1], now_ms)
        series, tallies = await spans.series(self._store, last, chosen, 0)
        gone = [each.minute * MINUTE_MS for each in tallies if each.kind == "queue_deleted"]
        facts = DeletedFacts(
            id, last.name, gone[-1] if gone else 0, settings_of(last), series,
            spans.totals(tallies, chosen.since_ms, chosen.until_ms), chosen.since_ms,
            chosen.until_ms,
        )  # fmt: skip
        return Page("deleted.html", facts)


def rule_words(rule: Rule | None) -> str:
    if rule is None:
        return "everything"
    if rule.test == "exists":
        return f"{rule.name} {'is there' if rule.value else 'is not there'}"
    value = rule.value
    shown = ", ".join(str(each) for each in value) if isinstance(value, list | tuple) else value
    return f"{rule.name} {TESTS[rule.test]} {shown}"


def rule_of(asked: forms.ChangeForm) -> Rule | None:
    """What a form says of a header, None for everything. Raises InvalidRequest."""
    name, test, text = asked.header.strip(), asked.test, asked.value.strip()
    if not name:
        return None
    if len(name) > NAME_CHARACTERS_MAX or len(text) > HEADERS_CHARACTERS_MAX:
        raise InvalidRequest("header", "is too long")
    if test not in (*TESTS, "exists"):
        raise InvalidRequest("test", f"'{test[:40]}' is not a test")
    if test == "exists":
        if text not in ("", "yes", "no"):
            raise InvalidRequest("value", "must be yes or no")
        return Rule(name, "text", "exists", text != "no")
    listed = [each.strip() for each in text.split(",")]
    if test in ("lt", "le", "gt", "ge", "range"):
        return _number_rule(name, test, listed)
    value: Any = listed if test in ("any_of", "none_of") else text
    return Rule(name, "text", test, value)  # type: ignore[arg-type]


def _number_rule(name: str, test: str, listed: list[str]) -> Rule:
    try:
        numbers = [msgspec.json.decode(each, type=float) for each in listed]
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidRequest("value", "must be a number, or two with a comma") from error
    if len(numbers) != (2 if test == "range" else 1):
        raise InvalidRequest("value", "must be a number, or two with a comma for a range")
    value: Any = numbers if test == "range" else numbers[0]
    return Rule(name, "number", test, value)  # type: ignore[arg-type]
