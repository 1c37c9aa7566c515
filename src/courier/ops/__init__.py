"""Courier's own routes: health, metrics, the journal, and what the operator does."""

from collections.abc import Hashable, Sequence
from typing import Any

import msgspec

from courier import refusals
from courier.clock import Clock
from courier.core import keys
from courier.core.admin import Admin
from courier.core.announcer import Announcer
from courier.core.broker import Broker
from courier.core.errors import (
    BrokerError,
    ClaimLost,
    Forbidden,
    NotFound,
    OutOfSpace,
    RowsChanged,
)
from courier.core.sealed import Sealer
from courier.core.store import Store
from courier.core.sweeper import Sweeper
from courier.core.types import OPERATOR, Key, Queue, Scope, Tenant
from courier.credentials import Credentials
from courier.delivery.engine import Engine
from courier.delivery.places import Places
from courier.delivery.urls import Rules
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
from courier.web import Call, Head, NoRoute, Request, Response, Route

# Of what is refused, names may be as long as a path.
MESSAGE_CHARACTERS_MAX = 1_000

_encode = msgspec.json.Encoder().encode


class Ops:
    """The site at the root."""

    name = "courier"
    prefix = ""
    body_bytes_max = 4 << 20
    segments: Sequence[str] = ()
    loose: frozenset[str] = frozenset()

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
        listener_urls: Rules,
        *,
        journal_page_max: int,
        metrics_public: bool,
        front: str,
    ) -> None:
        """`front` is where browsers that ask for / are sent; "" for nowhere."""
        self._front = front
        self._records = store.records
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
            *ListenerRoutes(store, admin, clock, sealer, engine, listener_urls).routes(),
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

    def proof(self, head: Head) -> Hashable | None:
        return None

    def proven_until_ms(self, request: Request) -> int | None:
        return None

    def repeat(self, call: Call, route: Route) -> None:
        """No call is let through without being asked about."""

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
            tenant = self._records.get(Tenant, call.key.tenant)
            if tenant is None or tenant.name != call.params["tenant"]:
                raise Forbidden(scope)
        call.hold(route)
        if "queue" in call.params:
            name = call.params["queue"]
            queue = self._records.named(Queue, tenant=call.key.tenant, name=name)
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
        message = str(error)[:MESSAGE_CHARACTERS_MAX]
        body = _encode({"error": {"code": code, "message": message}})
        after_s = OutOfSpace.RETRY_AFTER_S if isinstance(error, OutOfSpace) else 1
        headers = ((b"retry-after", b"%d" % after_s),) if status in (429, 503) else ()
        return Response(body, status, headers=headers)

    def broken(self) -> Response:
        return Response(b'{"error":{"code":"internal","message":"internal error"}}', 500)


def refusal(error: BrokerError) -> tuple[int, str]:
    match error:
        case RowsChanged():
            return 409, "rows_changed"
        case ClaimLost():
            return 409, "claim_lost"
        case OffsetTrimmed():
            return 410, "trimmed"
    return refusals.refusal(error)


def _holds(key: Key, scope: Scope) -> bool:
    return any(grant.scope == scope for grant in key.grants)
