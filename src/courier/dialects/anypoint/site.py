"""What the four Anypoint APIs have in common: sessions, who may reach what, and refusals."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from courier.core.errors import Forbidden, NotFound, Unauthenticated
from courier.core.types import Exchange, Key, Queue, Scope, Tenant
from courier.core.usage import Usage
from courier.dialects import example
from courier.dialects.anypoint import credentials, names
from courier.dialects.anypoint.errors import REFUSALS
from courier.dialects.site import DocumentedSite, Family, SiteServices, encode
from courier.refusals import Refusal
from courier.web import Call, Head, Request, Response, Route

JSON = b"application/json; charset=UTF-8"
# Settings are short; only messages may be longer.
REQUEST_BYTES_MAX = 1 << 20
# How long a session is believed without looking at it again.
SESSION_REMEMBERED_MS = 1_000
# Families of routes that are no use of queues or exchanges.
UNCOUNTED = ("clients", "regions")
# For the examples of its pages; None is left out.
_SAMPLES = {
    "type": "queue",
    "defaultTtl": 604_800_000,
    "defaultLockTtl": 120_000,
    "messageId": "order-1",
    "lockId": "LOCK_ID",
    "ttl": 60_000,
    "properties": {"country": "NL"},
    "headers": None,
    "body": "hello",
    "client_id": "CLIENT_ID",
    "client_secret": "CLIENT_SECRET",
    "grant_type": "client_credentials",
    "propertyName": "country",
    "propertyType": "STRING",
    "matcherType": "EQ",
    "value": "NL",
}


class AnypointServices(SiteServices, frozen=True, kw_only=True):
    """`url` is the public base address."""

    usage: Usage
    regions: names.Regions
    url: str


class AnypointFamily(Family[AnypointServices]):
    def __init__(self, services: AnypointServices) -> None:
        super().__init__(services)
        self._regions = services.regions

    def _name(self, call: Call, param: str) -> str:
        """The core's name for what a part of the path names."""
        return self._regions.name(call.params[param], call.params["regionId"])


class AnypointSite(DocumentedSite):
    """One of the APIs. `counted`: its requests count as usage. `for_apps`: client apps may call."""

    name = "anypoint"
    body_bytes_max = REQUEST_BYTES_MAX
    content_type = JSON
    # What only handlers read.
    loose = frozenset({"messageId", "lockId"})
    refusals = REFUSALS
    failures = (400, 401, 403, 404, 405, 413, 429, 503)
    failure: Mapping[str, Any] = {
        "type": "object",
        "required": ["status", "message"],
        "properties": {"status": {"type": "integer"}, "message": {"type": "string"}},
    }
    samples = _SAMPLES
    shell = example.ANYPOINT_USER
    counted = True
    for_apps = False

    def __init__(self, services: AnypointServices, routes: Sequence[Route]) -> None:
        super().__init__(routes)
        self._records = services.reads.records
        self._admin = services.admin
        self._sessions = services.admin.sessions
        self._usage = services.usage
        self._clock = services.clock
        self._regions = services.regions

    def proof(self, head: Head) -> Hashable | None:
        headers = head.headers
        return headers.get(b"authorization"), headers.get(b"host")

    def proven_until_ms(self, request: Request) -> int | None:
        """Use prolongs a session, which is noted once in a while."""
        return min(
            self._clock.now_ms() + SESSION_REMEMBERED_MS,
            self._sessions.ends_ms(_token(request)),
        )

    def repeat(self, call: Call, route: Route) -> None:
        if self.counted and route.family not in UNCOUNTED:
            self._usage.request(call.tenant)

    async def authenticate(self, request: Request) -> Key:
        return await self._sessions.find(_token(request))

    async def authorize(self, call: Call, route: Route) -> None:
        """Environment, scope, then that what the path names exists; leaves that on the call."""
        assert call.key is not None
        params = call.params
        if call.key.kind == "app" and not self.for_apps:
            raise Forbidden("app")
        if "organizationId" in params:
            self._reach(call)
        if self.counted and route.family not in UNCOUNTED:
            self._usage.request(call.tenant)
        # The vendor lists changing a lease among the rights of publishers, though consumers do it.
        others: tuple[Scope, ...] = ("messages:publish",) if route.family == "locks" else ()
        call.hold(route, *others)
        if "destinationId" in params:
            region = self._regions.of_host(call.request.header(b"host"))
            name = self._regions.name(params["destinationId"], region)
            call.queue = self._named(call, name, Queue, Exchange)
            if call.queue is None:
                raise NotFound("destination", name)
        if "queueId" in params:
            self._named(call, self._name(call, "queueId"), Queue)
        if "exchangeId" in params:
            self._named(call, self._name(call, "exchangeId"), Exchange)
        if "regionId" in params:
            self._regions.known(params["regionId"])

    def _reach(self, call: Call) -> None:
        """An app reaches its own environment, a user all of the organization."""
        key, params = call.key, call.params
        assert key is not None
        organization = names.id_of(params["organizationId"])
        id = names.id_of(params["environmentId"]) if "environmentId" in params else key.tenant
        tenant = self._records.get(Tenant, id)
        if tenant is None or tenant.organization != organization:
            raise Forbidden("environment")
        if id != key.tenant:
            own = self._records.get(Tenant, key.tenant)
            if key.kind != "user" or own is None or own.organization != organization:
                raise Forbidden("environment")
        call.tenant = id

    def _name(self, call: Call, param: str) -> str:
        return self._regions.name(call.params[param], call.params["regionId"])

    def _named(
        self, call: Call, name: str, *kinds: type[Queue] | type[Exchange]
    ) -> Queue | Exchange | None:
        """What has this name. Raises Forbidden if it is beyond reach.

        To a limited key that is also what does not exist, so that it cannot tell them apart.
        """
        found: Queue | Exchange | None = None
        for kind in kinds:
            found = found or self._records.named(kind, tenant=call.tenant, name=name)
        if not isinstance(found, Exchange) or not self._admin.reaches(call.reach, found):
            call.require(found.id if found else "")
        return found

    def decode(self, raw: bytes, route: Route, request: Request) -> Any:
        if route.body is credentials.GivenCredentials:
            return credentials.decode(raw, request)
        return super().decode(raw, route, request)

    def refused(self, refused: Refusal, request: Request) -> Response:
        body = {"status": refused.status, "message": refused.message}
        return Response(encode(body), refused.status, JSON)

    def broken(self, id: str) -> Response:
        return Response(encode({"status": 500, "message": "internal error"}), 500, JSON)


def _token(request: Request) -> str:
    """The bearer token; old samples of the vendor leave out the blank before it."""
    header = request.header(b"authorization")
    if header.startswith("Bearer ") and header.count(" ") == 1 and len(header) > 7:
        return header[7:]
    if header[:6].lower() == "bearer" and header[6:7] not in ("", " ") and " " not in header:
        return header[6:]
    token = request.bearer()
    if not token:
        raise Unauthenticated("missing")
    return token
