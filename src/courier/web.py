"""HTTP as the rest of Courier sees it: requests, answers and a table of routes.

A `Site` is one API under one path prefix. Its routes are data, and both the router and the
OpenAPI document are made from them. Falcon's compiled router finds the route; requests and
answers are plain ASGI, because building Falcon's own request and response objects costs as much
as everything else that Courier does for a small message.
"""

import asyncio
import http
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, Protocol
from urllib.parse import parse_qs, unquote

from falcon.routing import CompiledRouter
from msgspec import Struct

from courier.core.broker import Caller
from courier.core.errors import (
    BrokerError,
    InvalidRequest,
    OverLimit,
    Rejected,
    ShuttingDown,
    Unauthenticated,
)
from courier.core.types import Actor, Key, Scope
from courier.telemetry import Telemetry

Message = Mapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]

log = logging.getLogger("courier.web")

JSON = b"application/json"
# What `serving.py` offers beyond ASGI: a coroutine that sends head and body together.
WHOLE_ANSWER = "courier.whole_answer"
# And the connection as a `broker.Caller`: whether it is lost, and what to call when it is.
CALLER = "courier.caller"

PATHS_REMEMBERED_MAX = 10_000
_USUAL_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n"
# Answers that have no body, and do not say how long it is.
_BODILESS = (http.HTTPStatus.NO_CONTENT, http.HTTPStatus.NOT_MODIFIED)
_BEARER = re.compile(r"bearer +(\S+) *", re.IGNORECASE)
_STATUS = {status.value: f"{status.value} {status.phrase}".encode() for status in http.HTTPStatus}


class NoRoute(Rejected):
    def __init__(self, path: str) -> None:
        super().__init__(f"no such path: {path}")


class WrongMethod(Rejected):
    def __init__(self, method: str, allowed: Sequence[str]) -> None:
        super().__init__(f"method {method} is not allowed here; allowed: {', '.join(allowed)}")
        self.allowed = tuple(allowed)


class NotJson(Rejected):
    """The body does not parse."""


class BodyTooLong(OverLimit):
    """The body was not read, so the connection cannot be used for another request."""

    def __init__(self, *, limit: int, actual: int) -> None:
        super().__init__("request body bytes", limit=limit, actual=actual)


class ClientGone(Exception):
    """Nobody is there any more to answer."""


class Response(Struct):
    body: bytes | memoryview
    status: int = 200
    content_type: bytes = JSON
    headers: tuple[tuple[bytes, bytes], ...] = ()
    stream: AsyncIterator[bytes] | None = None
    close: bool = False


class Request:
    """One request. `params` are the decoded variable parts of its path."""

    __slots__ = ("_query", "_scope", "headers", "method", "params", "path")

    def __init__(self, scope: Message, path: str, params: dict[str, str]) -> None:
        self._scope = scope
        self.method: str = scope["method"]
        self.path = path
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        self.params = params
        self._query: dict[str, list[str]] | None = None

    def header(self, name: bytes) -> str:
        return self.headers.get(name, b"").decode("latin-1")

    def bearer(self) -> str:
        """The token of the Authorization header; raises Unauthenticated."""
        header = self.header(b"authorization")
        if header.startswith("Bearer ") and len(header) > 7 and header.count(" ") == 1:
            return header[7:]
        match = _BEARER.fullmatch(header)
        if match is None:
            raise Unauthenticated("malformed" if header else "missing")
        return match[1]

    @property
    def remote(self) -> str:
        """The address that the request came from."""
        client = self._scope.get("client")
        return str(client[0]) if client else ""

    @property
    def caller(self) -> Caller:
        """Who waits for the answer."""
        caller: Caller = self._scope["extensions"][CALLER]
        return caller

    @property
    def query(self) -> dict[str, list[str]]:
        if self._query is None:
            self._query = _query(self._scope["query_string"])
        return self._query


@lru_cache(maxsize=1_000)
def _query(raw: bytes) -> dict[str, list[str]]:
    """Remembered, because clients ask with the same few again and again."""
    try:
        return parse_qs(raw.decode("latin-1"), keep_blank_values=True, max_num_fields=1_000)
    except ValueError as error:
        raise InvalidRequest("query", str(error)) from error


def _path(raw: bytes) -> str:
    """The path as sent, so that an encoded slash stays inside its segment."""
    path = raw.decode("latin-1").partition("?")[0]
    while "//" in path:
        path = path.replace("//", "/")
    return path[:-1] if path.endswith("/") and len(path) > 1 else path


class Call(Struct):
    """What a handler gets: who asks (`key` is None on public routes), where, and the body.

    `tenant` is the one whose things are meant: the key's own, unless the site says otherwise.
    `queue` is the Queue that the path names, once the site has looked it up.
    """

    request: Request
    actor: Actor
    key: Key | None
    tenant: str = ""
    body: Any = None
    queue: Any = None

    @property
    def params(self) -> dict[str, str]:
        return self.request.params


Handler = Callable[[Call], Awaitable[Any]]


class Route(Struct, frozen=True):
    """One operation.

    `body` None: a request body is not read. `scope` None: no key needed; `any`: any key will
    do. `settings`: not about messages, and so under the rate limit for such calls. `status` is
    that of a usual answer, `others` are further good ones. `contract` is the operation's name in
    the vendor's own description. `body_bytes_max` 0 is the site's. `body` bytes: as it was sent.
    One that is not `described` only catches what would miss its own route.
    """

    method: Method
    path: str
    handler: Handler
    scope: Scope | Literal["any"] | None
    summary: str
    body: Any = None
    body_optional: bool = False
    result: Any = None
    query: tuple["Parameter", ...] = ()
    family: str = ""
    settings: bool = False
    status: int = 200
    others: tuple[int, ...] = ()
    contract: str = ""
    body_bytes_max: int = 0
    described: bool = True

    @property
    def operation(self) -> str:
        return self.handler.__name__


class Parameter(Struct, frozen=True):
    """A query parameter, for the OpenAPI document."""

    name: str
    type: Any
    description: str = ""


class Site(Protocol):
    """One API: how it knows its callers, what it serves and how it answers.

    `segments`: of everything under its prefix it answers only for paths that begin with one of
    these; none means all.
    """

    name: str
    prefix: str
    body_bytes_max: int
    segments: Sequence[str]

    def routes(self) -> Sequence[Route]: ...

    async def authenticate(self, request: Request) -> Key:
        """Raises Unauthenticated."""
        ...

    async def authorize(self, call: Call, route: Route) -> None:
        """Raises Forbidden or NotFound; may note on the call what it looked up."""
        ...

    def decode(self, raw: bytes, route: Route, request: Request) -> Any:
        """Raises NotJson, InvalidRequest."""
        ...

    def answer(self, result: Any, route: Route, request: Request) -> Response: ...

    def refuse(self, error: BrokerError, route: Route | None, request: Request) -> Response: ...

    def broken(self) -> Response:
        """The answer to a bug of ours."""
        ...


class _Router(CompiledRouter):
    def map_http_methods(self, resource: Any, **_: Any) -> Any:
        return dict(resource)


class _Mounted:
    def __init__(self, site: Site) -> None:
        self.site = site
        self._below = tuple(f"{site.prefix}/{segment}" for segment in site.segments or ("",))
        self._router = _Router()
        table: dict[str, dict[str, Route]] = {}
        for route in site.routes():
            table.setdefault(site.prefix + route.path, {})[route.method] = route
        for path, methods in table.items():
            self._router.add_route(path, methods)

    def covers(self, path: str) -> bool:
        if not path.startswith(self._below):
            return path == self.site.prefix
        if not self.site.segments:
            return True
        return path[len(self.site.prefix) + 1 :].partition("/")[0] in self.site.segments

    def find(self, method: str, path: str) -> "_Found":
        found = self._router.find(path)
        if found is None:
            return _Found(self.site, path, {}, None, ())
        table, _, params, _ = found
        methods: dict[str, Route] = table  # type: ignore[assignment]
        text = True
        if "%" in path:
            try:
                params = {name: unquote(value, errors="strict") for name, value in params.items()}
            except UnicodeDecodeError:
                text = False
        route = methods.get(method)
        others = () if route else tuple(sorted(methods))
        return _Found(self.site, path, params, route, others, text)


class _Found(Struct, frozen=True):
    """Where a request goes. Without a route: the methods that there are, if any.

    `text`: what its path names is UTF-8.
    """

    site: Site
    path: str
    params: dict[str, str]
    route: Route | None
    methods: tuple[str, ...]
    text: bool = True


class App:
    """The ASGI application: picks the site, runs the route, renders whatever happens."""

    def __init__(
        self,
        sites: Sequence[Site],
        *,
        telemetry: Telemetry,
        body_bytes_max: int,
        on_drain: Callable[[], None],
    ) -> None:
        self._mounted = [_Mounted(site) for site in sites]
        self._found: dict[tuple[str, bytes], _Found] = {}
        self._telemetry = telemetry
        self._body_bytes_max = body_bytes_max
        self._on_drain = on_drain
        self._draining = asyncio.Event()

    def drain(self) -> None:
        """Take no new work, and end what waits or would never end by itself."""
        self._draining.set()
        self._on_drain()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        started = self._telemetry.started()
        place = (scope["method"], scope["raw_path"])
        found = self._found.get(place) or self._find(*place)
        request = Request(scope, found.path, found.params)
        response = await self._respond(found, request, receive)
        if response is None:
            return
        operation = found.route.operation if found.route else "none"
        self._telemetry.answered(found.site.name, operation, response.status, started, request.path)
        if response.stream is not None:
            await self._stream(response, response.stream, receive, send)
        else:
            body = b"" if request.method == "HEAD" else response.body
            await scope["extensions"][WHOLE_ANSWER](_head(response), body, response.close)

    async def _stream(
        self, response: Response, stream: AsyncIterator[bytes], receive: Receive, send: Send
    ) -> None:
        """Send parts until the stream ends, the client goes or the server stops."""

        async def parts() -> None:
            async for part in stream:
                await send({"type": "http.response.body", "body": part, "more_body": True})

        async def gone() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass

        await send(_start(response))
        ends = (parts(), gone(), self._draining.wait())
        tasks = [asyncio.create_task(end) for end in ends]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        await send({"type": "http.response.body", "body": b""})

    def _find(self, method: str, raw_path: bytes) -> _Found:
        """Look the route up, and remember it: most requests go where others went before.

        Except where a path ends in a name, such as a message's, which seldom comes again.
        """
        path = _path(raw_path)
        mounted = next((each for each in self._mounted if each.covers(path)), self._mounted[-1])
        found = mounted.find(method, path)
        if found.route is None or not found.route.path.endswith("}"):
            if len(self._found) >= PATHS_REMEMBERED_MAX:
                self._found.clear()
            self._found[method, raw_path] = found
        return found

    async def _respond(self, found: _Found, request: Request, receive: Receive) -> Response | None:
        site, route = found.site, found.route
        try:
            if self._draining.is_set():
                raise ShuttingDown
            if route is not None and route.scope is None:
                call = Call(request, Actor("", site.name), None)
            else:
                key = await site.authenticate(request)
                if route is None and found.methods:
                    raise WrongMethod(request.method, found.methods)
                if route is None:
                    raise NoRoute(found.path)
                if not found.text:
                    raise InvalidRequest("path", "is not UTF-8")
                call = Call(request, Actor(key.id, site.name), key, key.tenant)
                await site.authorize(call, route)
            if route.body is not None:
                limit = min(route.body_bytes_max or site.body_bytes_max, self._body_bytes_max)
                raw = await self._read(request, receive, limit)
                call.body = site.decode(raw, route, request)
            return site.answer(await route.handler(call), route, request)
        except BrokerError as error:
            refused = site.refuse(error, route, request)
            refused.close = isinstance(error, BodyTooLong)
            return refused
        except ClientGone:
            return None
        except Exception:
            log.exception("request_failed", extra={"path": request.path, "site": site.name})
            return site.broken()

    async def _read(self, request: Request, receive: Receive, limit: int) -> bytes:
        """The whole body, refused before it is read when it says that it is too long.

        How long this may take is watched over by `serving.py`.
        """
        declared = request.headers.get(b"content-length", b"")
        if declared.isdigit() and int(declared) > limit:
            raise BodyTooLong(limit=limit, actual=int(declared))
        message = await receive()
        body: bytes = message.get("body", b"")
        if message.get("more_body"):
            parts, size = [body], len(body)
            while message.get("more_body"):
                message = await receive()
                parts.append(message.get("body", b""))
                size += len(parts[-1])
                if size > limit:
                    raise BodyTooLong(limit=limit, actual=size)
            body = b"".join(parts)
        if message["type"] == "http.disconnect":
            raise ClientGone
        return body


def _start(response: Response) -> Message:
    headers = [(b"content-type", response.content_type), *response.headers]
    return {"type": "http.response.start", "status": response.status, "headers": headers}


def _head(response: Response) -> bytes:
    if response.status == 200 and response.content_type is JSON and not response.headers:
        return _USUAL_HEAD % len(response.body)
    head = b"HTTP/1.1 %s\r\n" % _STATUS[response.status]
    if response.status not in _BODILESS:
        head += b"content-type: %s\r\ncontent-length: %d\r\n" % (
            response.content_type,
            len(response.body),
        )
    for name, value in response.headers:
        head += b"%s: %s\r\n" % (name, value)
    return head
