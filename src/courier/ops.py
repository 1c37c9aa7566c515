"""Courier's own routes: health, metrics, the journal, and what the operator does."""

import asyncio
import base64
import re
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import replace
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from courier.clock import Clock
from courier.core import journal, keys
from courier.core.admin import OPERATOR, Admin
from courier.core.broker import Broker, Redriven
from courier.core.errors import (
    BrokerError,
    Conflict,
    Forbidden,
    InUse,
    InvalidRequest,
    NotFound,
    OverLimit,
    RateLimited,
    Rejected,
    Unauthenticated,
    Unavailable,
)
from courier.core.store import Store
from courier.core.sweeper import Sweeper
from courier.core.types import SECOND_MS, Key, Pipeline, Queue, Run, Scope, Tenant
from courier.credentials import FIRST_TENANT, Credentials
from courier.dialects import json
from courier.telemetry import Telemetry, exposition
from courier.web import Call, NoRoute, NotJson, Request, Response, Route, WrongMethod

JOURNAL_PAGE = 1_000
ARROW = "application/vnd.apache.arrow.stream"
_NAME = Annotated[str, Meta(pattern="^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]
_BEARER = re.compile(r"bearer +(\S+) *", re.IGNORECASE)
_TENANT = "/courier/v1/tenants/{tenant}"

_encode = msgspec.json.Encoder().encode


class TenantBody(Struct):
    name: _NAME


class KeyBody(Struct):
    name: _NAME
    scopes: Annotated[list[str], Meta(min_length=1, max_length=20)]
    targets: Annotated[list[str], Meta(max_length=1_000)] | UnsetType = UNSET
    expires_in_seconds: Annotated[int, Meta(ge=1, le=3_155_760_000)] | UnsetType = UNSET


class RedriveBody(Struct):
    messages: Annotated[list[str], Meta(max_length=10_000)] | UnsetType = UNSET
    dry_run: bool | UnsetType = UNSET


class FrozenBody(Struct):
    frozen: bool


class PipelineBody(Struct):
    offset: Annotated[int, Meta(ge=0, le=1 << 62)]


class Ops:
    """The site at the root."""

    name = "courier"
    prefix = ""

    def __init__(
        self,
        store: Store,
        broker: Broker,
        admin: Admin,
        clock: Clock,
        telemetry: Telemetry,
        sweeper: Sweeper,
        credentials: Credentials,
        *,
        journal_page_max: int,
    ) -> None:
        self._store = store
        self._keyring = keys.Keyring(store)
        self._broker = broker
        self._admin = admin
        self._clock = clock
        self._telemetry = telemetry
        self._sweeper = sweeper
        self._credentials = credentials
        self._journal_page_max = journal_page_max

    def routes(self) -> Sequence[Route]:
        queue = _TENANT + "/queues/{queue}"
        return [
            Route("GET", "/health", self.health, None, "Is the process up"),
            Route("GET", "/ready", self.ready, None, "Can the store be written"),
            Route("GET", "/metrics", self.metrics, None, "Figures for Prometheus"),
            Route("GET", "/journal", self.read_journal, "journal", "Events of a range of offsets"),
            Route("GET", "/journal/head", self.journal_head, "journal", "Where the journal is"),
            Route("GET", "/journal/pipelines", self.list_pipelines, "journal",
                  "Registered readers of the journal"),
            Route("PUT", "/journal/pipelines/{name}", self.commit_pipeline, "journal",
                  "Register a reader, or say how far it has come", body=PipelineBody),
            Route("DELETE", "/journal/pipelines/{name}", self.delete_pipeline, "journal",
                  "Forget a reader"),
            Route("GET", "/courier/v1/tenants", self.list_tenants, "admin", "List tenants"),
            Route("POST", "/courier/v1/tenants", self.create_tenant, "admin", "Create a tenant",
                  body=TenantBody),
            Route("DELETE", _TENANT, self.delete_tenant, "admin", "Delete a tenant"),
            Route("GET", _TENANT + "/keys", self.list_keys, "admin", "List keys"),
            Route("POST", _TENANT + "/keys", self.create_key, "admin", "Create a key",
                  body=KeyBody),
            Route("DELETE", _TENANT + "/keys/{key}", self.delete_key, "admin", "Delete a key"),
            Route("POST", queue + "/redrive", self.redrive, "queues:write",
                  "Send dead letters back", body=RedriveBody, body_optional=True),
            Route("PUT", queue + "/frozen", self.freeze, "queues:write",
                  "Refuse or accept new messages", body=FrozenBody),
        ]  # fmt: skip

    # --- the site ---

    async def authenticate(self, request: Request) -> Key:
        header = request.header(b"authorization")
        match = _BEARER.fullmatch(header)
        if match is None:
            raise Unauthenticated("malformed" if header else "missing")
        key = await self._keyring.find(match[1], now_ms=self._clock.now_ms())
        if key is None:
            raise Unauthenticated("unknown")
        return key

    async def authorize(self, call: Call, route: Route) -> None:
        """An operator's admin key may do everything; others what their scopes say."""
        assert call.key is not None and route.scope is not None and route.scope != "any"
        scope: Scope = route.scope
        if call.key.tenant == OPERATOR and _holds(call.key, "admin"):
            return
        if scope == "admin":
            raise Forbidden(scope)
        if "queue" in call.params:
            tenant = await self._store.get(Tenant, call.key.tenant)
            if tenant is None or tenant.name != call.params["tenant"]:
                raise Forbidden(scope)
            queue = await self._admin.queue_named(tenant.id, call.params["queue"])
            keys.require(call.key, scope, queue.id)
        else:
            keys.require(call.key, scope)

    def decode(self, raw: bytes, route: Route) -> Any:
        return json.decode(raw if raw or not route.body_optional else b"{}", route.body)

    def answer(self, result: Any) -> Response:
        return result if isinstance(result, Response) else Response(_encode(result))

    def refuse(self, error: BrokerError, route: Route | None) -> Response:
        status, code = refusal(error)
        body = _encode({"error": {"code": code, "message": str(error)}})
        headers = ((b"retry-after", b"1"),) if status in (429, 503) else ()
        return Response(body, status, headers=headers)

    def broken(self) -> Response:
        return Response(b'{"error":{"code":"internal","message":"internal error"}}', 500)

    # --- operations ---

    async def health(self, _: Call) -> dict[str, str]:
        return {"status": "up"}

    async def ready(self, _: Call) -> dict[str, str]:
        await self._store.check()
        return {"status": "ready"}

    async def metrics(self, _: Call) -> Response:
        found = [*self._telemetry.metrics(), *await self._gauges()]
        return Response(exposition(found), content_type=b"text/plain; version=0.0.4")

    async def _gauges(self) -> list[Metric]:
        now_ms = self._clock.now_ms()
        labels = ("tenant", "queue")
        families = {
            "count": GaugeMetricFamily(
                "courier_backlog_messages", "Messages not yet done.", labels=labels
            ),
            "bytes": GaugeMetricFamily("courier_backlog_bytes", "Their bodies.", labels=labels),
            "leased": GaugeMetricFamily("courier_leases", "Leased messages.", labels=labels),
            "delayed": GaugeMetricFamily("courier_delayed", "Delayed messages.", labels=labels),
        }
        oldest = GaugeMetricFamily(
            "courier_oldest_age_seconds", "Age of the oldest message.", labels=labels
        )
        names = {tenant.id: tenant.name for tenant in await self._store.scan(Tenant)}
        for queue in await self._store.scan(Queue):
            stats = await self._store.stats(queue.id, now_ms=now_ms)
            label = (names.get(queue.tenant, queue.tenant), queue.name)
            for name, family in families.items():
                family.add_metric(label, getattr(stats, name))
            age_ms = now_ms - stats.oldest_ms if stats.oldest_ms else 0
            oldest.add_metric(label, age_ms / SECOND_MS)
        return [
            *families.values(),
            oldest,
            *await self._journal_gauges(),
            *(
                CounterMetricFamily(f"courier_store_{name}", "Counted by the store.", value=value)
                for name, value in self._store.figures().items()
            ),
        ]

    async def _journal_gauges(self) -> list[Metric]:
        head = await self._store.head()
        size = GaugeMetricFamily("courier_journal_bytes", "Size of the journal.")
        size.add_metric((), head.bytes)
        last = GaugeMetricFamily("courier_journal_last_offset", "Newest event's offset.")
        last.add_metric((), head.last)
        lag = GaugeMetricFamily(
            "courier_pipeline_lag_events", "Events a reader has not committed.", labels=("name",)
        )
        for pipeline in await self._store.scan(Pipeline):
            lag.add_metric((pipeline.name,), max(0, head.last - pipeline.offset))
        trims = CounterMetricFamily(
            "courier_journal_forced_trims",
            "Times the journal was cut before its readers were done, for lack of space.",
            value=self._sweeper.forced_trims,
        )
        return [size, last, lag, trims]

    # --- journal ---

    async def read_journal(self, call: Call) -> Response:
        after = _number(call.request, "after", default=0, high=1 << 62)
        limit = _number(call.request, "limit", default=JOURNAL_PAGE, low=1, high=1 << 62)
        limit = min(limit, self._journal_page_max)
        head = await self._store.head()
        if after + 1 < head.first:
            raise OffsetTrimmed(after, head.first)
        runs = await self._store.read_journal(after=after, limit=limit)
        parts = [
            part
            for part in journal.cut(runs, after=after, limit=limit)
            if call.tenant in (OPERATOR, part[0].tenant)
        ]
        loop = asyncio.get_running_loop()
        if ARROW in call.request.header(b"accept"):
            # Here, so that a server nobody asks for Arrow does not load it.
            from courier import arrow

            body = await loop.run_in_executor(None, arrow.stream, parts)
            return Response(body, content_type=ARROW.encode())
        body = await loop.run_in_executor(None, _lines, parts)
        return Response(body, content_type=b"application/x-ndjson")

    async def journal_head(self, _: Call) -> dict[str, Any]:
        head = await self._store.head()
        return {"first": head.first, "last": head.last, "epoch": head.epoch}

    async def list_pipelines(self, _: Call) -> dict[str, Any]:
        found = await self._store.scan(Pipeline)
        return {"pipelines": [_pipeline(each) for each in found]}

    async def commit_pipeline(self, call: Call) -> dict[str, Any]:
        _operator(call)
        name = call.params["name"]
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", name):
            raise InvalidRequest("name", "expected 1 to 63 letters, digits, dots or dashes")
        offset: int = call.body.offset
        last = (await self._store.head()).last
        if offset > last:
            raise InvalidRequest("offset", f"the journal ends at {last}, before {offset}")
        return _pipeline(await self._admin.commit_pipeline(name, offset, actor=call.actor))

    async def delete_pipeline(self, call: Call) -> dict[str, Any]:
        _operator(call)
        await self._admin.delete_pipeline(call.params["name"], actor=call.actor)
        return {}

    # --- tenants and keys ---

    async def list_tenants(self, _: Call) -> dict[str, Any]:
        return {"tenants": [_tenant(each) for each in await self._store.scan(Tenant)]}

    async def create_tenant(self, call: Call) -> dict[str, Any]:
        name = call.body.name
        if name == "operator":
            raise Conflict("tenant", name)
        tenant, made = await self._credentials.create_tenant(name, actor=call.actor)
        return {"tenant": _tenant(tenant), "credentials": made}

    async def delete_tenant(self, call: Call) -> dict[str, Any]:
        name = call.params["tenant"]
        if name == FIRST_TENANT:
            raise InvalidRequest("tenant", f"'{name}' comes with the server and stays")
        await self._admin.delete_tenant(name, actor=call.actor)
        self._credentials.forget(name)
        return {}

    async def _tenant_id(self, call: Call) -> str:
        name = call.params["tenant"]
        return OPERATOR if name == "operator" else (await self._admin.tenant(name)).id

    async def list_keys(self, call: Call) -> dict[str, Any]:
        found = await self._store.scan(Key, tenant=await self._tenant_id(call))
        return {"keys": [await self._key(key) for key in found]}

    async def create_key(self, call: Call) -> dict[str, Any]:
        body: KeyBody = call.body
        tenant = await self._tenant_id(call)
        targets = [] if body.targets is UNSET else body.targets
        queues = [(await self._admin.queue_named(tenant, name)).id for name in targets]
        expires_s = None if body.expires_in_seconds is UNSET else body.expires_in_seconds
        key, secret = await self._admin.create_key(
            tenant=tenant,
            name=body.name,
            grants=keys.grants(body.scopes, tuple(queues)),
            expires_in_ms=None if expires_s is None else expires_s * SECOND_MS,
            actor=call.actor,
        )
        return {"key": await self._key(key), "token": secret}

    async def delete_key(self, call: Call) -> dict[str, Any]:
        tenant = await self._tenant_id(call)
        await self._admin.delete_key(tenant, call.params["key"], actor=call.actor)
        return {}

    async def _key(self, key: Key) -> dict[str, Any]:
        targets = [target for grant in key.grants for target in grant.targets]
        queues = [await self._store.get(Queue, id) for id in dict.fromkeys(targets)]
        return {
            "id": key.id,
            "name": key.name,
            "hint": key.hint,
            "scopes": [grant.scope for grant in key.grants],
            "targets": [queue.name for queue in queues if queue],
            "enabled": key.enabled,
            "created_ms": key.created_ms,
            "expires_ms": key.expires_ms,
        }

    # --- queues ---

    async def _queue(self, call: Call) -> Queue:
        tenant = await self._admin.tenant(call.params["tenant"])
        return await self._admin.queue_named(tenant.id, call.params["queue"])

    async def redrive(self, call: Call) -> Redriven:
        body: RedriveBody = call.body
        return await self._broker.redrive(
            await self._queue(call),
            None if body.messages is UNSET else body.messages,
            actor=call.actor,
            dry_run=body.dry_run is True,
        )

    async def freeze(self, call: Call) -> dict[str, bool]:
        queue = await self._queue(call)
        frozen: bool = call.body.frozen
        await self._admin.update_queue(
            queue.tenant,
            queue.id,
            lambda current: replace(current, frozen=frozen),
            actor=call.actor,
        )
        return {"frozen": frozen}


class OffsetTrimmed(Rejected):
    def __init__(self, after: int, first: int) -> None:
        super().__init__(
            f"the journal has been trimmed: events after {after} were asked for, "
            f"the first one kept is {first}"
        )


def refusal(error: BrokerError) -> tuple[int, str]:
    match error:
        case InvalidRequest() | NotJson():
            return 400, "invalid_request"
        case Unauthenticated():
            return 401, "unauthenticated"
        case Forbidden():
            return 403, "forbidden"
        case NotFound() | NoRoute():
            return 404, "not_found"
        case WrongMethod():
            return 405, "method_not_allowed"
        case Conflict() | InUse():
            return 409, "conflict"
        case OffsetTrimmed():
            return 410, "trimmed"
        case OverLimit():
            return 413, "too_large"
        case RateLimited():
            return 429, "rate_limited"
        case Unavailable():
            return 503, "unavailable"
    return 400, "refused"


def _holds(key: Key, scope: Scope) -> bool:
    return any(grant.scope == scope for grant in key.grants)


def _operator(call: Call) -> None:
    """A pipeline holds back the whole journal, so only the operator registers one."""
    if call.tenant != OPERATOR:
        raise Forbidden("journal")


def _number(request: Request, name: str, *, default: int, high: int, low: int = 0) -> int:
    text = request.query.get(name, [""])[-1]
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 20 and low <= int(text) <= high):
        raise InvalidRequest(name, f"expected a number from {low} to {high}, not '{text[:40]}'")
    return int(text)


def _lines(parts: list[tuple[Run, int, int]]) -> bytes:
    lines = []
    for run, start, stop in parts:
        after, limit = run.offset + start - 1, stop - start
        for event in journal.events([run], after=after, limit=limit):
            body = event.pop("body", None)
            if body is not None and event["content_type"] == "bytes":
                event["body_base64"] = base64.b64encode(body).decode()
            elif body is not None:
                event["body"] = body.decode()
            lines.append(_encode(event))
    return b"\n".join(lines) + (b"\n" if lines else b"")


def _tenant(tenant: Tenant) -> dict[str, Any]:
    return {"id": tenant.id, "name": tenant.name, "created_ms": tenant.created_ms}


def _pipeline(pipeline: Pipeline) -> dict[str, Any]:
    return {"name": pipeline.name, "offset": pipeline.offset, "seen_ms": pipeline.seen_ms}
