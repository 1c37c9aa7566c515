"""Cloudflare Queues: the API that wrangler and the `cloudflare` SDKs speak."""

from collections.abc import Hashable
from typing import Any

import msgspec
from msgspec import Struct

from courier.core import keys
from courier.core.errors import BrokerError, Forbidden, InvalidRequest, NotFound
from courier.core.follower import Follower
from courier.core.limits import API_WINDOW_MS, Rate
from courier.core.types import Key
from courier.dialects import example
from courier.dialects.cloudflare import wire
from courier.dialects.cloudflare.consumers import ConsumerRoutes
from courier.dialects.cloudflare.errors import REFUSALS
from courier.dialects.cloudflare.identity import PREFIX, IdentityRoutes
from courier.dialects.cloudflare.messages import CloudflareMessageRoutes
from courier.dialects.cloudflare.paging import Paged
from courier.dialects.cloudflare.queues import CloudflareQueueRoutes
from courier.dialects.cloudflare.subscriptions import SubscriptionRoutes
from courier.dialects.site import DocumentedSite, SiteServices, encode
from courier.refusals import Refusal
from courier.web import Call, Head, Request, Response, Route

# Families of routes that have a rate.
_SETTINGS = ("queues", "consumers", "subscriptions")
_HEAD = b'{"success":true,"errors":[],"messages":[],"result":'
# For the examples of its page; None is left out.
_SAMPLES = {
    "jurisdiction": None,
    "visibility_timeout": None,
    "visibility_timeout_ms": 30_000,
    "delivery_paused": False,
    "message_retention_period": 345_600,
    "body": {"order": 1},
    "retries": None,
    "lease_id": "LEASE_ID",
    "ref": "REF",
    "events": ["application.created"],
    "queue_id": "QUEUE_ID",
}

_FAILURE = {
    "type": "object",
    "required": ["success", "errors", "messages", "result"],
    "properties": {
        "success": {"const": False},
        "errors": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "required": ["code", "message"],
                "properties": {"code": {"type": "integer"}, "message": {"type": "string"}},
            },
        },
        "messages": {"type": "array", "maxItems": 0},
        "result": {"type": "null"},
    },
}


class CloudflareError(Struct, omit_defaults=True):
    code: int
    message: str
    error_chain: list[dict[str, Any]] = []


class Cloudflare(DocumentedSite):
    """The site under /client/v4."""

    name = "cloudflare"
    prefix = PREFIX
    title = "Courier: Cloudflare Queues"
    body_bytes_max = 4 << 20
    refusals = REFUSALS
    failures = (400, 401, 403, 404, 405, 409, 413, 429, 503)
    failure = _FAILURE
    samples = _SAMPLES
    shell = example.CLOUDFLARE

    def __init__(
        self,
        services: SiteServices,
        follower: Follower,
        *,
        json_body_encoding: str,
        api_rate_max: int,
    ) -> None:
        self._keyring = keys.Keyring(services.reads.records)
        self._admin = services.admin
        self._clock = services.clock
        self._api_rate = Rate("the API", limit=api_rate_max, window_ms=API_WINDOW_MS)
        families = (
            CloudflareQueueRoutes(services),
            ConsumerRoutes(services),
            CloudflareMessageRoutes(services, wire.Bodies(json_body_encoding)),
            SubscriptionRoutes(services, follower),
            IdentityRoutes(services),
        )
        super().__init__([route for family in families for route in family.table()])

    def envelope(self, result: dict[str, Any]) -> dict[str, Any]:
        return {
            "type": "object",
            "required": ["success", "errors", "messages", "result"],
            "properties": {
                "success": {"const": True},
                "errors": {"type": "array", "maxItems": 0},
                "messages": {"type": "array", "maxItems": 0},
                "result": result,
                "result_info": msgspec.json.schema_components([wire.ResultInfo])[1]["ResultInfo"],
            },
        }

    def proof(self, head: Head) -> Hashable | None:
        headers = head.headers
        return headers.get(b"authorization"), headers.get(b"x-auth-key")

    async def authenticate(self, request: Request) -> Key:
        secret = ""
        if b"authorization" not in request.headers:
            secret = request.header(b"x-auth-key")
        secret = secret or request.bearer()
        return await self._keyring.find(secret, now_ms=self._clock.now_ms())

    async def authorize(self, call: Call, route: Route) -> None:
        """Account, scope, then that what the path names exists; leaves the queue on the call."""
        assert call.key is not None
        account = call.params.get("account_id", call.key.tenant)
        if account != call.key.tenant or not account:
            raise Forbidden("account")
        if route.family in _SETTINGS:
            self._api_rate.take(call.key.id, 1, now_ms=self._clock.now_ms())
        call.hold(route)
        id = call.params.get("queue_id")
        if id is not None:
            call.require(id)
            if route.family == "messages" and not id.isalnum():
                raise InvalidRequest("queue_id", f"malformed queue id '{id[:64]}'")
            call.queue = self._admin.queue(account, id)
        if "subscription_id" in call.params:
            self._subscription(call, account, call.params["subscription_id"])

    def _subscription(self, call: Call, account: str, id: str) -> None:
        """That it exists and feeds a queue within reach; for a limited key those are one."""
        try:
            found = self._admin.subscription(account, id)
        except NotFound:
            call.require()
            raise
        call.require(found.parent)

    def answer(self, result: Any, route: Route, request: Request) -> Response:
        if isinstance(result, Response):
            return result
        if isinstance(result, Paged):
            info = encode(result.info)
            return Response(_HEAD + encode(result.rows) + b',"result_info":' + info + b"}")
        return Response(_HEAD + encode(result) + b"}")

    def refuse(self, error: BrokerError, route: Route | None, request: Request) -> Response:
        response = super().refuse(error, route, request)
        if response.status == 409:
            response.headers += ((b"x-should-retry", b"false"),)
        return response

    def refused(self, refused: Refusal, request: Request) -> Response:
        chain = [{"code": 6111, "message": "Invalid format for Authorization header"}]
        code = int(refused.code)
        error = CloudflareError(code, refused.message, chain if code == 6003 else [])
        return _failure(refused.status, error)

    def broken(self, id: str) -> Response:
        return _failure(500, CloudflareError(15000, "internal error"))


def _failure(status: int, error: CloudflareError) -> Response:
    body = b'{"success":false,"errors":[%s],"messages":[],"result":null}' % encode(error)
    return Response(body, status)
