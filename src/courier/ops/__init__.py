"""Courier's own routes: health, metrics, the journal, and what the operator does."""

from collections.abc import Sequence
from typing import Any

from courier.core import keys
from courier.core.errors import ClaimLost, Forbidden, NotFound, RowsChanged
from courier.core.types import OPERATOR, Key, Queue, Scope, Tenant
from courier.dialects import example
from courier.dialects.site import DocumentedSite, encode
from courier.ops.bulk import BulkRoutes
from courier.ops.claims import ClaimRoutes
from courier.ops.events import OpsEventRoutes
from courier.ops.health import HealthRoutes
from courier.ops.journal import JournalRoutes, OffsetTrimmed
from courier.ops.listeners import OpsListenerRoutes
from courier.ops.operator import OperatorRoutes
from courier.ops.services import OpsServices
from courier.ops.workers import WorkerRoutes
from courier.refusals import OURS, Refusal, Refusals
from courier.web import Call, NoRoute, Request, Response, Route

_TEXTS = {"code": {"type": "string"}, "message": {"type": "string"}}
_ERROR = {"type": "object", "required": ["code", "message"], "properties": _TEXTS}
_FAILURE = {"type": "object", "required": ["error"], "properties": {"error": _ERROR}}
# For the examples of its page; None is left out.
_SAMPLES = {"beside": None, "targets": None, "secret": None, "scopes": ["read"], "lease_ms": 60_000}


class Ops(DocumentedSite):
    """The site at the root."""

    name = "courier"
    prefix = ""
    title = "Courier"
    docs_path = "/courier/v1"
    body_bytes_max = 4 << 20
    refusals = Refusals(
        {
            **OURS,
            RowsChanged: Refusal(409, "rows_changed"),
            ClaimLost: Refusal(409, "claim_lost"),
            OffsetTrimmed: Refusal(410, "trimmed"),
        }
    )
    failures = (400, 401, 403, 404, 405, 408, 409, 410, 413, 429, 503)
    failure = _FAILURE
    samples = _SAMPLES
    shell = example.OPERATOR

    def __init__(self, services: OpsServices, *, front: str) -> None:
        """`front` is where browsers that ask for / are sent; "" for nowhere."""
        self._front = front
        self._records = services.reads.records
        self._keyring = keys.Keyring(services.reads.records)
        self._clock = services.clock
        families = (
            HealthRoutes(services),
            JournalRoutes(services),
            OperatorRoutes(services),
            BulkRoutes(services),
            ClaimRoutes(services),
            OpsListenerRoutes(services),
            WorkerRoutes(services),
            OpsEventRoutes(services),
        )
        super().__init__([route for family in families for route in family.table()])

    def routes(self) -> Sequence[Route]:
        if not self._front:
            return super().routes()
        front = Route("GET", "/", self.front, None, "public", "Lead browsers to the console")
        return [*super().routes(), front]

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
        return raw if route.body is bytes else super().decode(raw, route, request)

    def refused(self, refused: Refusal, request: Request) -> Response:
        body = {"error": {"code": refused.code, "message": refused.message}}
        return Response(encode(body), refused.status)

    def broken(self, id: str) -> Response:
        return Response(b'{"error":{"code":"internal","message":"internal error"}}', 500)


def _holds(key: Key, scope: Scope) -> bool:
    return any(grant.scope == scope for grant in key.grants)
