"""What all of Discue's routes have in common: keys, links, conditions, and how it is answered."""

import asyncio
import http
from collections.abc import Hashable, Sequence
from functools import wraps
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from courier import ids
from courier.core import keys
from courier.core.domains import Verifier
from courier.core.errors import BrokerError, Rejected, Unauthenticated
from courier.core.limits import API_WINDOW_MS, Rate
from courier.core.types import MINUTE_MS, SECOND_MS, Actor, Key, Tenant
from courier.delivery.targets import Rules
from courier.dialects import example
from courier.dialects.discue import names
from courier.dialects.discue.errors import REFUSALS, Stale, Unsupported
from courier.dialects.discue.lockout import LockedOut, Lockout
from courier.dialects.discue.wire import check_accept, check_media, etag, matches, pretty
from courier.dialects.site import DocumentedSite, Family, SiteServices, encode
from courier.refusals import Refusal
from courier.web import Call, Head, NoRoute, Parameter, Request, Response, Route

JSON = b"application/json; charset=utf-8"
_USUAL_MEDIA = (b"application/json", JSON)
SEGMENTS = (
    "queues",
    "listeners",
    "messages",
    "api_keys",
    "api_clients",
    "domains",
    "events",
    "stats",
    "channels",
    "topics",
    "subscriptions",
)
# How long it is not noted that a key is used.
KEY_REMEMBERED_MS = 1_000
# Links that are no items.
_LINKS = ("self", "next")
# The vendor names them, and says nothing else about them.
UNKNOWN_RESOURCES = ("channels", "topics", "subscriptions")
# What a path names that a key can be limited to.
_TARGETS = ("queue_id", "listener_id", "domain_id")
_BODIES = ("POST", "PUT")
_KEY = {"token": {"type": "apiKey", "in": "header", "name": "X-API-KEY"}}
# For the examples of its page; None is left out.
_SAMPLES = {
    "alias": None,
    "signing_secret": None,
    "schema": None,
    "status": "enabled",
    "resource": "queues",
    "hostname": "example.org",
    "port": 443,
    "data": '{"order": 1}',
    "since": 1_767_225_600_000,
    "until": 1_767_312_000_000,
    "after": None,
}
_PRETTY = Parameter("pretty", bool, "Indent the answer.")


_FAILURE = {
    "type": "object",
    "required": ["title", "status"],
    "properties": {
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "request_id": {"type": "string"},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["pointer", "message"],
                "properties": {"pointer": {"type": "string"}, "message": {"type": "string"}},
            },
        },
    },
}


class TenantMaker(Protocol):
    """Makes tenants, with their first keys for every dialect."""

    async def create_tenant(self, name: str, *, actor: Actor) -> tuple[Tenant, dict[str, Any]]: ...

    async def rename_tenant(self, tenant: Tenant, name: str, *, actor: Actor) -> Tenant: ...


class DiscueServices(SiteServices, frozen=True, kw_only=True):
    """`url` is the public base address, without a slash at the end."""

    lockout: Lockout
    api_rate: Rate
    edit: asyncio.Lock
    url: str
    tenants: TenantMaker
    verifier: Verifier
    listener_urls: Rules


DiscueFamily = Family[DiscueServices]


class Success(Struct, frozen=True):
    """A success: its members, and where it and what belongs to it can be read.

    `path` is that of the resource, without prefix, `links` are (name, id, path) of others.
    """

    members: dict[str, Any]
    path: str
    links: Sequence[tuple[str, str, str]] = ()


class Discue(DocumentedSite):
    """The whole API under one prefix: `/v1`, or none."""

    name = "discue"
    title = "Courier: Discue"
    body_bytes_max = 1 << 20
    content_type = JSON
    refusals = REFUSALS
    failures = (400, 401, 402, 403, 404, 405, 406, 409, 413, 415, 422, 423, 429, 503)
    failure = _FAILURE
    samples = _SAMPLES
    security = _KEY
    shell = example.DISCUE

    def __init__(self, services: DiscueServices, routes: Sequence[Route], *, prefix: str) -> None:
        self.prefix = prefix
        self.segments = () if prefix else SEGMENTS
        self._services = services
        self._base = services.url + prefix
        self._keyring = keys.Keyring(services.reads.records)
        self._readers = {route.path: route.handler for route in routes if route.method == "GET"}
        super().__init__([self._conditional(route) for route in routes])

    def routes(self) -> Sequence[Route]:
        return super().routes() if self.prefix else self._routes

    def described(self, route: Route) -> Route:
        return msgspec.structs.replace(route, query=(*route.query, _PRETTY))

    def envelope(self, result: dict[str, Any]) -> dict[str, Any]:
        """Its members, and the links."""
        link = {"type": "object", "required": ["href"], "properties": {"href": {"type": "string"}}}
        links = {"type": "object", "required": ["self"], "additionalProperties": link}
        answer = {"type": "object", "required": ["_links"], "properties": {"_links": links}}
        return {"allOf": [result, answer]}

    # --- who asks, and for what ---

    def proof(self, head: Head) -> Hashable | None:
        headers = head.headers
        return headers.get(b"x-api-key"), headers.get(b"accept"), head.query_string

    def proven_until_ms(self, request: Request) -> int | None:
        return self._services.clock.now_ms() + KEY_REMEMBERED_MS

    def repeat(self, call: Call, route: Route) -> None:
        assert call.key is not None
        services = self._services
        if services.api_rate.limit:
            services.api_rate.take(call.key.id, 1, now_ms=services.clock.now_ms())

    async def authenticate(self, request: Request) -> Key:
        now_ms = self._services.clock.now_ms()
        secret = request.header(b"x-api-key")
        if not secret:
            raise Unauthenticated("missing")  # without a key nothing was guessed
        try:
            key = await self._keyring.find(secret, now_ms=now_ms)
        except Unauthenticated:
            self._services.lockout.failed(request.remote, now_ms=now_ms)
            raise
        await self._services.admin.note_key_use(key)
        return key

    async def authorize(self, call: Call, route: Route) -> None:
        """That what the path names exists, then the scope; leaves the queue on the call."""
        assert call.key is not None
        services = self._services
        services.api_rate.take(call.key.id, 1, now_ms=services.clock.now_ms())
        check_accept(call.request.header(b"accept"))
        pretty(call.request)
        named = {name: names.read(text) for name, text in call.params.items()}
        if "queue_id" in named:
            call.queue = services.admin.queue(call.tenant, named["queue_id"])
        if "listener_id" in named:
            services.admin.listeners.of_queue(call.queue.id, named["listener_id"])
        if "domain_id" in named:
            services.admin.domains.get(call.tenant, named["domain_id"])
        call.hold(route)
        targets = [named[name] for name in _TARGETS if name in named]
        if targets:
            call.require(*targets)

    def _conditional(self, route: Route) -> Route:
        """Changes happen one at a time, and only to the version that `If-Match` names."""
        if route.method not in ("PUT", "DELETE") or not route.path.endswith("}"):
            return route
        handler, reader = route.handler, self._readers.get(route.path)

        @wraps(handler)
        async def changed(call: Call) -> Any:
            async with self._services.edit:
                if call.queue is not None:  # it may have changed while others had their turn
                    call.queue = self._services.admin.queue(call.tenant, call.queue.id)
                wanted = call.request.header(b"if-match")
                if wanted and reader is not None:
                    body = self._body(await reader(call))
                    if not matches(wanted, etag(encode(body))):
                        raise Stale
                return await handler(call)

        return msgspec.structs.replace(route, handler=changed)

    def decode(self, raw: bytes, route: Route, request: Request) -> Any:
        media = request.headers.get(b"content-type", b"")
        if media not in _USUAL_MEDIA and raw.strip() and request.method in _BODIES:
            check_media(media.decode("latin-1"))
        return super().decode(raw, route, request)

    # --- answers ---

    def _body(self, answer: Success) -> dict[str, Any]:
        base = self._base
        links = {"self": {"href": base + answer.path}}
        for name, id, path in answer.links:
            taken = name in links or name in _LINKS
            links[id if taken else name] = {"href": base + path}
        return {**answer.members, "_links": links}

    def answer(self, result: Any, route: Route, request: Request) -> Response:
        if isinstance(result, Response):
            return result
        body = encode(self._body(result))
        headers = self._rate_headers(request)
        if route.method == "GET":
            version = etag(body)
            headers = (*headers, (b"etag", version.encode()))
            if matches(request.header(b"if-none-match"), version):
                return Response(b"", 304, JSON, headers)
        if request.head.query_string:
            body = _spelled(body, request)
        return Response(body, 200, JSON, headers)

    def refuse(self, error: BrokerError, route: Route | None, request: Request) -> Response:
        if isinstance(error, NoRoute) and _first_segment(self, request) in UNKNOWN_RESOURCES:
            error = Unsupported(_first_segment(self, request))
        response = super().refuse(error, route, request)
        if not isinstance(error, Unauthenticated | LockedOut):
            response.headers += self._rate_headers(request)
        return response

    def refused(self, refused: Refusal, request: Request) -> Response:
        status = refused.status
        # The reason phrase of 422 was renamed, and Python follows; clients know the old one.
        title = "Unprocessable Entity" if status == 422 else http.HTTPStatus(status).phrase
        body: dict[str, Any] = {"title": title, "status": status, "detail": refused.message}
        if refused.problems:
            body["errors"] = [{"pointer": at, "message": what} for at, what in refused.problems]
        body["request_id"] = ids.new_id()
        return Response(_spelled(encode(body), request), status, JSON)

    def broken(self, id: str) -> Response:
        return Response(b'{"title":"Internal Server Error","status":500}', 500, JSON)

    def _rate_headers(self, request: Request) -> tuple[tuple[bytes, bytes], ...]:
        """How much is left, for those who are limited at all."""
        if not self._services.api_rate.limit:
            return ()
        found = self._services.api_rate.standing(keys.id_of(request.header(b"x-api-key")))
        if found is None:
            return ()
        limit, left, reset_ms = found
        # Callers compare it with a clock of their own.
        clock = self._services.clock
        reset_ms += clock.wall_ms() - clock.now_ms()
        minute = -(-limit * MINUTE_MS // API_WINDOW_MS)
        return (
            (b"x-ratelimit-limit", b"%d" % minute),
            (b"x-ratelimit-remaining", b"%d" % min(left, minute)),
            (b"x-ratelimit-reset", b"%d" % -(-reset_ms // SECOND_MS)),
        )


def _spelled(raw: bytes, request: Request) -> bytes:
    try:
        return msgspec.json.format(raw, indent=2) if pretty(request) else raw
    except Rejected:
        return raw


def _first_segment(site: Discue, request: Request) -> str:
    return request.path[len(site.prefix) + 1 :].partition("/")[0]
