"""Cloudflare Queues: the API that wrangler and the `cloudflare` SDKs speak."""

from collections.abc import Hashable, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from courier.clock import Clock
from courier.core import keys
from courier.core.admin import Admin
from courier.core.broker import Broker
from courier.core.errors import (
    BrokerError,
    Forbidden,
    InvalidRequest,
    NotFound,
)
from courier.core.follower import Follower
from courier.core.limits import API_WINDOW_MS, Rate
from courier.core.store import Store
from courier.core.types import Key
from courier.dialects import json, openapi
from courier.dialects.cloudflare import wire
from courier.dialects.cloudflare.consumers import ConsumerRoutes
from courier.dialects.cloudflare.errors import refusal
from courier.dialects.cloudflare.identity import IdentityRoutes
from courier.dialects.cloudflare.messages import MessageRoutes
from courier.dialects.cloudflare.paging import Paged
from courier.dialects.cloudflare.queues import QueueRoutes
from courier.dialects.cloudflare.subscriptions import SubscriptionRoutes
from courier.web import Call, Head, Request, Response, Route

_HEAD = b'{"success":true,"errors":[],"messages":[],"result":'
_TOKEN = {"token": {"type": "http", "scheme": "bearer"}}
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

_encode = msgspec.json.Encoder().encode


class _Error(Struct, omit_defaults=True):
    code: int
    message: str
    error_chain: list[dict[str, Any]] = []


class Cloudflare:
    """The site under /client/v4."""

    name = "cloudflare"
    prefix = "/client/v4"
    body_bytes_max = 4 << 20
    segments: Sequence[str] = ()
    loose: frozenset[str] = frozenset()

    def __init__(
        self,
        store: Store,
        broker: Broker,
        admin: Admin,
        clock: Clock,
        follower: Follower,
        *,
        json_body_encoding: str,
        api_rate_max: int,
    ) -> None:
        self._keyring = keys.Keyring(store)
        self._admin = admin
        self._clock = clock
        self._api_rate = Rate("the API", limit=api_rate_max, window_ms=API_WINDOW_MS)
        self._routes = [
            *QueueRoutes(store, broker, admin, clock).routes(),
            *ConsumerRoutes(store, admin, clock).routes(),
            *MessageRoutes(broker, admin, wire.Bodies(json_body_encoding)).routes(),
            *SubscriptionRoutes(store, admin, clock, follower).routes(),
            *IdentityRoutes(store).routes(),
        ]
        self._documents = openapi.Documents(
            "Courier: Cloudflare Queues",
            self.prefix,
            self._routes,
            envelope=_envelope,
            failure=_FAILURE,
            failures=(400, 401, 403, 404, 405, 409, 413, 429, 503),
            security=_TOKEN,
            samples=_SAMPLES,
        )

    def routes(self) -> Sequence[Route]:
        return [
            *self._routes,
            Route("GET", "/openapi.json", self.openapi, None, "public", "This API as OpenAPI"),
            Route("GET", "/docs", self.docs, None, "public", "This API as a page"),
        ]

    async def openapi(self, call: Call) -> Response:
        return self._documents.document(call.request)

    async def docs(self, call: Call) -> Response:
        return self._documents.page(call.request)

    def proof(self, head: Head) -> Hashable | None:
        headers = head.headers
        return headers.get(b"authorization"), headers.get(b"x-auth-key")

    def proven_until_ms(self, request: Request) -> int | None:
        return None

    def repeat(self, call: Call, route: Route) -> None:
        """Nothing: only calls about settings have a rate."""

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
        if route.settings:
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

    def decode(self, raw: bytes, route: Route, request: Request) -> Any:
        if route.body_optional and not raw.strip():
            raw = b"{}"
        return json.decode(raw, route.body)

    def answer(self, result: Any, route: Route, request: Request) -> Response:
        if isinstance(result, Response):
            return result
        if isinstance(result, Paged):
            info = _encode(result.info)
            return Response(_HEAD + _encode(result.rows) + b',"result_info":' + info + b"}")
        return Response(_HEAD + _encode(result) + b"}")

    def refuse(self, error: BrokerError, route: Route | None, request: Request) -> Response:
        refused = refusal(error, route)
        chain = [{"code": 6111, "message": "Invalid format for Authorization header"}]
        headers: tuple[tuple[bytes, bytes], ...] = ()
        if refused.retry_after_s is not None:
            headers = ((b"retry-after", b"%d" % refused.retry_after_s),)
        if refused.status == 409:
            headers = ((b"x-should-retry", b"false"),)
        if refused.code == 7001:
            headers = ((b"allow", ", ".join(getattr(error, "allowed", ())).encode()),)
        return _failure(
            refused.status,
            _Error(refused.code, refused.message, chain if refused.code == 6003 else []),
            headers,
        )

    def broken(self) -> Response:
        return _failure(500, _Error(15000, "internal error"))


def _failure(status: int, error: _Error, headers: tuple[tuple[bytes, bytes], ...] = ()) -> Response:
    body = b'{"success":false,"errors":[%s],"messages":[],"result":null}' % _encode(error)
    return Response(body, status, headers=headers)


def _envelope(result: dict[str, Any]) -> dict[str, Any]:
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


_FAILURE: dict[str, Any] = {
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
