"""Courier's own routes: health, metrics, the journal, and what the operator does."""

from collections.abc import Sequence
from typing import Any

import msgspec

from courier.clock import Clock
from courier.core import keys
from courier.core.admin import OPERATOR, Admin
from courier.core.announcer import Announcer
from courier.core.broker import Broker
from courier.core.errors import (
    BrokerError,
    ClaimLost,
    Conflict,
    Forbidden,
    InUse,
    InvalidRequest,
    NotFound,
    OutOfSpace,
    OverLimit,
    RateLimited,
    RowsChanged,
    Unauthenticated,
    Unavailable,
)
from courier.core.sealed import Sealer
from courier.core.store import Store
from courier.core.sweeper import Sweeper
from courier.core.types import Key, Queue, Scope, Tenant
from courier.credentials import Credentials
from courier.delivery.engine import Engine
from courier.delivery.places import Places
from courier.dialects import json
from courier.ops.bulk import BulkRoutes
from courier.ops.claims import ClaimRoutes
from courier.ops.events import EventRoutes
from courier.ops.health import HealthRoutes
from courier.ops.journal import JournalRoutes, OffsetTrimmed
from courier.ops.listeners import ListenerRoutes
from courier.ops.operator import OperatorRoutes
from courier.ops.workers import WorkerRoutes
from courier.telemetry import Telemetry
from courier.web import BodyLate, Call, NoRoute, NotJson, Request, Response, Route, WrongMethod

_encode = msgspec.json.Encoder().encode


class Ops:
    """The site at the root."""

    name = "courier"
    prefix = ""
    body_bytes_max = 4 << 20
    segments: Sequence[str] = ()

    def __init__(
        self,
        store: Store,
        broker: Broker,
        admin: Admin,
        clock: Clock,
        telemetry: Telemetry,
        sweeper: Sweeper,
        credentials: Credentials,
        sealer: Sealer,
        places: Places,
        announcer: Announcer,
        engine: Engine,
        *,
        journal_page_max: int,
        metrics_public: bool,
        front: str,
    ) -> None:
        """`front` is where browsers that ask for / are sent; "" for nowhere."""
        self._front = front
        self._store = store
        self._keyring = keys.Keyring(store)
        self._clock = clock
        self._routes = [
            *HealthRoutes(
                store, clock, telemetry, sweeper, engine, metrics_public=metrics_public
            ).routes(),
            *JournalRoutes(store, admin, sweeper, page_max=journal_page_max).routes(),
            *OperatorRoutes(store, broker, admin, credentials).routes(),
            *BulkRoutes(broker, admin, sealer).routes(),
            *ClaimRoutes(broker, admin).routes(),
            *ListenerRoutes(store, admin, clock).routes(),
            *WorkerRoutes(admin, clock, sealer, places).routes(),
            *EventRoutes(admin, announcer).routes(),
        ]
        if front:
            route = Route("GET", "/", self.front, None, "public", "Lead browsers to the console")
            self._routes.append(route)

    def routes(self) -> Sequence[Route]:
        return self._routes

    async def front(self, call: Call) -> Response:
        if "text/html" not in call.request.header(b"accept"):
            raise NoRoute("/")
        return Response(b"", 303, headers=((b"location", self._front.encode()),))

    async def authenticate(self, request: Request) -> Key:
        return await self._keyring.find(request.bearer(), now_ms=self._clock.now_ms())

    async def authorize(self, call: Call, route: Route) -> None:
        """An operator's admin key may do everything; others what their scopes say."""
        assert call.key is not None and route.scope is not None and route.scope != "any"
        scope: Scope = route.scope
        if call.key.tenant == OPERATOR and _holds(call.key, "admin"):
            call.hold_everything(route)
            return
        if scope == "admin" or (scope == "metrics" and call.key.tenant != OPERATOR):
            raise Forbidden(scope)  # what tells of all tenants is for the operator
        if "tenant" in call.params:
            tenant = await self._store.get(Tenant, call.key.tenant)
            if tenant is None or tenant.name != call.params["tenant"]:
                raise Forbidden(scope)
        call.hold(route)
        if "queue" in call.params:
            name = call.params["queue"]
            queue = await self._store.named(Queue, tenant=call.key.tenant, name=name)
            call.require(queue.id if queue else "")
            if queue is None:
                raise NotFound("queue", name)

    def decode(self, raw: bytes, route: Route, request: Request) -> Any:
        if route.body is bytes:
            return raw
        return json.decode(raw if raw or not route.body_optional else b"{}", route.body)

    def answer(self, result: Any, route: Route, request: Request) -> Response:
        return result if isinstance(result, Response) else Response(_encode(result))

    def refuse(self, error: BrokerError, route: Route | None, request: Request) -> Response:
        status, code = refusal(error)
        body = _encode({"error": {"code": code, "message": str(error)}})
        after_s = OutOfSpace.RETRY_AFTER_S if isinstance(error, OutOfSpace) else 1
        headers = ((b"retry-after", b"%d" % after_s),) if status in (429, 503) else ()
        return Response(body, status, headers=headers)

    def broken(self) -> Response:
        return Response(b'{"error":{"code":"internal","message":"internal error"}}', 500)


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
        case BodyLate():
            return 408, "timeout"
        case RowsChanged():
            return 409, "rows_changed"
        case ClaimLost():
            return 409, "claim_lost"
        case Conflict() | InUse():
            return 409, "conflict"
        case OffsetTrimmed():
            return 410, "trimmed"
        case OverLimit():
            return 413, "too_large"
        case RateLimited():
            return 429, "rate_limited"
        case OutOfSpace():
            return 503, "out_of_space"
        case Unavailable():
            return 503, "unavailable"
    return 400, "refused"


def _holds(key: Key, scope: Scope) -> bool:
    return any(grant.scope == scope for grant in key.grants)
