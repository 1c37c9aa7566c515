"""Admin: which queues an exchange copies to, and by which rules."""

import re
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from courier.core.errors import InvalidRequest
from courier.core.types import Binding, Exchange, Queue, Rule
from courier.dialects.anypoint.destinations import REGION
from courier.dialects.anypoint.paging import PARAMETERS, choice, page, starts_with
from courier.dialects.anypoint.site import AnypointFamily
from courier.web import Call, Route

_EXCHANGE = "/v1" + REGION + "/bindings/exchanges/{exchangeId}"
_BINDING = _EXCHANGE + "/queues/{queueId}"
_RULES = _BINDING + "/rules/routing"

NAME_BYTES_MAX = 180
VALUE_BYTES_MAX = 45 << 10
VALUES_MAX = 150
NUMBER_MAX = 10**9
_TEXT = re.compile(r"[\w\s()@!&|#$%\-:;,.']+")
_SETS = ("ANY_OF", "NONE_OF")
_TESTS: dict[str, tuple[str, ...]] = {
    "STRING": ("EQ", "PREFIX", "ANY_OF", "NONE_OF", "EXISTS"),
    "NUMERIC": ("EQ", "LT", "LE", "GT", "GE", "RANGE", "NONE_OF", "EXISTS"),
}
_KINDS: dict[str, Literal["text", "number"]] = {"STRING": "text", "NUMERIC": "number"}


class RuleBody(Struct):
    propertyName: str
    propertyType: Literal["STRING", "NUMERIC"]
    matcherType: Literal[
        "EQ", "PREFIX", "ANY_OF", "NONE_OF", "EXISTS", "LT", "LE", "GT", "GE", "RANGE"
    ]
    value: Any


class RulesBody(Struct):
    routingRules: Annotated[list[RuleBody], Meta(min_length=1, max_length=1)]


class BindingResult(Struct, omit_defaults=True):
    queueId: str
    exchangeId: str
    fifo: bool | UnsetType = UNSET
    routingRules: list[RuleBody] | UnsetType = UNSET


def rule(body: RuleBody) -> Rule:
    """A rule that makes sense; raises InvalidRequest."""
    field = "routingRules[0]"
    if not 1 <= len(body.propertyName.encode(errors="replace")) <= NAME_BYTES_MAX:
        raise InvalidRequest(f"{field}.propertyName", f"must have 1 to {NAME_BYTES_MAX} bytes")
    kind, test, value = body.propertyType, body.matcherType, body.value
    if test not in _TESTS[kind]:
        allowed = ", ".join(_TESTS[kind])
        raise InvalidRequest(f"{field}.matcherType", f"for {kind} must be one of {allowed}")
    where = f"{field}.value"
    if test == "EXISTS":
        if not isinstance(value, bool):
            raise InvalidRequest(where, "must be true or false")
    elif test in _SETS:
        if not isinstance(value, list) or not 1 <= len(value) <= VALUES_MAX:
            raise InvalidRequest(where, f"must be an array of 1 to {VALUES_MAX} values")
        for each in value:
            _check(kind, each, where)
        if kind == "STRING" and sum(len(each.encode()) for each in value) > VALUE_BYTES_MAX:
            raise InvalidRequest(where, f"must have at most {VALUE_BYTES_MAX} bytes together")
    elif test == "RANGE":
        if not isinstance(value, list) or len(value) != 2:
            raise InvalidRequest(where, "must be an array of two numbers")
        for each in value:
            _check(kind, each, where)
        if not value[0] < value[1]:
            raise InvalidRequest(where, "the first number must be less than the second")
    else:
        _check(kind, value, where)
    return Rule(body.propertyName, _KINDS[kind], test.lower(), value)  # type: ignore[arg-type]


def _check(kind: str, value: Any, where: str) -> None:
    if kind == "STRING":
        if not isinstance(value, str) or not _TEXT.fullmatch(value):
            allowed = "letters, digits, white space and ( ) @ ! & | # $ % - _ : ; , . '"
            raise InvalidRequest(where, f"must be text of {allowed}")
        if len(value.encode()) > VALUE_BYTES_MAX:
            raise InvalidRequest(where, f"must have at most {VALUE_BYTES_MAX} bytes")
    elif isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidRequest(where, "must be a number")
    elif not -NUMBER_MAX <= value <= NUMBER_MAX:
        raise InvalidRequest(where, f"must lie between -{NUMBER_MAX} and {NUMBER_MAX}")


def _rules(rule: Rule | None) -> list[RuleBody] | UnsetType:
    if rule is None:
        return UNSET
    kind: Any = {word: name for name, word in _KINDS.items()}[rule.kind]
    test: Any = rule.test.upper()
    return [RuleBody(rule.name, kind, test, rule.value)]


class BindingRoutes(AnypointFamily):
    family = "bindings"

    def routes(self) -> list[Route]:
        many: dict[str, Any] = {"result": list[BindingResult], "query": PARAMETERS}
        return [
            Route("GET", _EXCHANGE, self.bindings_of_exchange, "queues:read", "target",
                  "List the bindings of an exchange", **many),
            Route("GET", "/v1" + REGION + "/bindings/queues/{queueId}", self.bindings_of_queue,
                  "queues:read", "target", "List the bindings of a queue", **many),
            Route("GET", _BINDING, self.get_binding, "queues:read", "target", "Get a binding",
                  result=BindingResult, query=PARAMETERS[-1:]),
            Route("PUT", _BINDING, self.put_binding, "queues:write", "target",
                  "Bind a queue to an exchange", result=BindingResult),
            Route("DELETE", _BINDING, self.delete_binding, "queues:write", "target",
                  "Unbind a queue",
                  status=204),
            Route("PUT", _RULES, self.put_rules, "queues:write", "target",
                  "Set the rule of a binding",
                  body=RulesBody, result=BindingResult, status=201),
            Route("DELETE", _RULES, self.delete_rules, "queues:write", "target",
                  "Let a binding take everything", status=204),
        ]  # fmt: skip

    def _list(self, call: Call, bindings: list[Binding], *, by: str) -> list[BindingResult]:
        query = call.request.query
        whole = choice(query, "inclusion", ("minimal", "all")) == "all"
        rows = [self._result(binding, whole=whole) for binding in bindings]
        start = starts_with(query)
        rows = [row for row in rows if str(getattr(row, by)).startswith(start)]
        return page(sorted(rows, key=lambda row: str(getattr(row, by))), query)

    def _result(self, binding: Binding, *, whole: bool) -> BindingResult:
        queue = self._records.get(Queue, binding.queue)
        exchange = self._records.get(Exchange, binding.parent)
        assert queue is not None and exchange is not None, "a binding goes with what it binds"
        destination = self._regions.destination
        return BindingResult(
            destination(queue.name)[0],
            destination(exchange.name)[0],
            False,
            _rules(binding.rule) if whole else UNSET,
        )

    async def bindings_of_exchange(self, call: Call) -> list[BindingResult]:
        exchange = self._admin.exchange_named(call.tenant, self._name(call, "exchangeId"))
        bindings = self._records.scan(Binding, parent=exchange.id)
        shown = [binding for binding in bindings if binding.queue in call.reach]
        return self._list(call, shown, by="queueId")

    async def bindings_of_queue(self, call: Call) -> list[BindingResult]:
        queue = self._admin.queue_named(call.tenant, self._name(call, "queueId"))
        shown = []
        for binding in self._admin.bindings_of(queue):
            exchange = self._records.get(Exchange, binding.parent)
            if exchange is not None and self._admin.reaches(call.reach, exchange):
                shown.append(binding)
        return self._list(call, shown, by="exchangeId")

    async def get_binding(self, call: Call) -> BindingResult:
        whole = choice(call.request.query, "inclusion", ("minimal", "all")) == "all"
        exchange = self._admin.exchange_named(call.tenant, self._name(call, "exchangeId"))
        queue = self._admin.queue_named(call.tenant, self._name(call, "queueId"))
        return self._result(self._admin.binding(exchange, queue), whole=whole)

    async def put_binding(self, call: Call) -> BindingResult:
        binding = await self._admin.bind(
            call.tenant,
            self._name(call, "exchangeId"),
            self._name(call, "queueId"),
            actor=call.actor,
        )
        return self._result(binding, whole=False)

    async def delete_binding(self, call: Call) -> None:
        exchange, queue = self._name(call, "exchangeId"), self._name(call, "queueId")
        await self._admin.unbind(call.tenant, exchange, queue, actor=call.actor)

    async def put_rules(self, call: Call) -> BindingResult:
        wanted = rule(call.body.routingRules[0])
        binding = await self._set_rule(call, wanted)
        return BindingResult(
            call.params["queueId"], call.params["exchangeId"], UNSET, _rules(binding.rule)
        )

    async def delete_rules(self, call: Call) -> None:
        await self._set_rule(call, None)

    async def _set_rule(self, call: Call, wanted: Rule | None) -> Binding:
        exchange, queue = self._name(call, "exchangeId"), self._name(call, "queueId")
        return await self._admin.set_rule(call.tenant, exchange, queue, wanted, actor=call.actor)
