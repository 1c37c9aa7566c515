"""HTTP as the rest of Courier sees it: requests, answers and a table of routes.

A `Site` is one API under one path prefix. Its routes are data, and both the router and the
OpenAPI document are made from them. Falcon's compiled router finds the route; requests and
answers are our own. How they cross a socket is the business of `connection.py`.
"""

import asyncio
import logging
import re
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Mapping, Sequence
from functools import lru_cache
from time import perf_counter
from typing import Any, Literal, Protocol
from urllib.parse import parse_qs, unquote

from falcon.routing import CompiledRouter
from msgspec import Struct

from courier.admissions import PLACE_CHARACTERS_MAX, Admissions, RememberedAdmission
from courier.core import keys
from courier.core.broker import Caller
from courier.core.errors import (
    AnswersFull,
    BrokerError,
    InvalidRequest,
    OutcomeUnknown,
    OverLimit,
    Rejected,
    ShuttingDown,
    Unauthenticated,
    Unavailable,
)
from courier.core.limits import ANSWER_BYTES_MAX, Allowance, AnswerRoom
from courier.core.signins import Failure, SignIns
from courier.core.types import Actor, Key, Scope
from courier.long_texts import LongTexts
from courier.telemetry import Meter, Telemetry, note_failure

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]

log = logging.getLogger("courier.web")

JSON = b"application/json"
# Paths and queries longer than these are not remembered: a stranger may send any.
PATHS_REMEMBERED_MAX = 1_024
PATH_REMEMBERED_BYTES_MAX = 512
QUERIES_REMEMBERED_MAX = 256
QUERY_REMEMBERED_BYTES_MAX = 128
# Of a route that needs no key: hundreds may be there at one moment, and are decoded at once.
PUBLIC_BODY_BYTES_MAX = 4 << 10
# A longer body is decoded on a thread, so that others are served meanwhile; so is one that is not
# small when as many bytes were decoded in the same round of the event loop.
DECODED_INLINE_BYTES_MAX = 64 << 10
SMALL_BODY_BYTES = 4 << 10
ROUND_BYTES_MAX = 1 << 20
_BEARER = re.compile(r"bearer +(\S+) *", re.IGNORECASE)
# Their handlers only ever wait for futures, so they need no task; others may use
# `asyncio.timeout` and the like, which do.
_MESSAGE_SCOPES = ("messages:publish", "messages:consume")


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


class BodyLate(Rejected):
    """The body did not arrive in time."""

    def __init__(self, *, wait_ms: int) -> None:
        super().__init__(f"the request body did not arrive within {wait_ms} ms")


class BodiesFull(Unavailable):
    """Too many bytes of request bodies are being received and handled already."""

    def __init__(self, *, limit: int) -> None:
        super().__init__(f"request bodies in flight are at their limit of {limit} bytes")


class ClientGone(Exception):
    """The connection ended before the request had arrived."""


class Response(Struct):
    body: bytes | memoryview
    status: int = 200
    content_type: bytes = JSON
    headers: tuple[tuple[bytes, bytes], ...] = ()
    stream: AsyncIterator[bytes] | None = None


class Head:
    """What stands before the body of a request. Requests that begin with the same bytes share one.

    `found` is where it leads, and `admission` who was let in with it: what `App` knows of it.
    `seldom`: its path ends in a name, such as a message's, which seldom comes again. Unless `names`
    is None, requests with any other name share it too, but for these, which lead elsewhere; then
    `Request.name` says what the path ends in, and `raw_path` is that of the first of them.
    """

    __slots__ = (
        "_query",
        "admission",
        "expects",
        "found",
        "headers",
        "keep_alive",
        "method",
        "names",
        "old",
        "plain",
        "query_string",
        "raw_path",
        "seldom",
    )

    def __init__(
        self,
        method: str,
        raw_path: bytes,
        query_string: bytes,
        headers: Mapping[bytes, bytes],
        *,
        old: bool = False,
        keep_alive: bool = True,
    ) -> None:
        """`old`: of HTTP/1.0."""
        self.method = method
        self.raw_path = raw_path
        self.query_string = query_string
        self.headers = headers
        self.old = old
        self.keep_alive = keep_alive
        self.plain = not old and method != "HEAD"  # its answers need no other care
        self.expects = b"expect" in headers and headers[b"expect"].lower() == b"100-continue"
        self.seldom = False
        self.names: frozenset[str] | None = None
        self.found: _Found | None = None
        self.admission: RememberedAdmission | None = None
        self._query: dict[str, list[str]] | None = None

    @property
    def query(self) -> dict[str, list[str]]:
        if self._query is None:
            raw = self.query_string
            short = len(raw) <= QUERY_REMEMBERED_BYTES_MAX
            self._query = _known_query(raw) if short else _parsed_query(raw)
        return self._query


class Request(ABC):
    """One request. `params` are the decoded variable parts of its path.

    `caller` waits for the answer. `key` is the one that its credential proved to be, and
    `admitted` says that this key may do what is asked.
    """

    __slots__ = (
        "admitted",
        "caller",
        "granted",
        "head",
        "headers",
        "key",
        "name",
        "params",
        "path",
        "remote",
    )

    params: dict[str, str]

    def __init__(self, head: Head, caller: Caller, remote: str, name: str = "") -> None:
        """`remote`: the address that it came from. `name`: see `Head`; "": what its head says."""
        self.head = head
        self.name = name
        self.headers = head.headers
        self.caller = caller
        self.remote = remote
        self.path = ""
        self.key: Key | None = None
        self.admitted = False
        self.granted: Allowance | None = None  # once it was asked for

    @property
    def method(self) -> str:
        return self.head.method

    @property
    def query(self) -> dict[str, list[str]]:
        return self.head.query

    @property
    def allowance(self) -> Allowance:
        """What the answer may hold of messages; released when the answer is sent."""
        if self.granted is None:
            self.granted = Allowance(ANSWER_BYTES_MAX, self.answer_room)
        return self.granted

    @property
    def answer_room(self) -> AnswerRoom | None:
        """What all answers share."""
        return None

    def sent(self) -> None:
        """Nothing of its answer is in memory any more."""
        if self.granted is not None:
            self.granted.release()

    def whole(self, limit: int) -> bytes | None:
        """The whole body if it is here already. Raises BodyTooLong, BodiesFull."""
        return None

    @abstractmethod
    async def read(self, limit: int) -> bytes:
        """The whole body. Raises BodyTooLong, BodyLate, BodiesFull, ClientGone."""

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


def _parsed_query(raw: bytes) -> dict[str, list[str]]:
    try:
        return parse_qs(raw.decode("latin-1"), keep_blank_values=True, max_num_fields=1_000)
    except ValueError as error:
        raise InvalidRequest("query", str(error)) from error


# Remembered, because clients ask with the same few again and again.
_known_query = lru_cache(maxsize=QUERIES_REMEMBERED_MAX)(_parsed_query)


def _path(raw: bytes) -> str:
    """The path as sent, so that an encoded slash stays inside its segment."""
    path = raw.decode("latin-1").partition("?")[0]
    while "//" in path:
        path = path.replace("//", "/")
    return path[:-1] if path.endswith("/") and len(path) > 1 else path


class Undecided(Exception):
    """A bug of ours: nobody asked whether the key reaches what the request is about."""


class Call(Struct):
    """What a handler gets: who asks (`key` is None on public routes), where, and the body.

    `tenant` is the one whose things are meant: the key's own, unless the site says otherwise.
    `queue` is the Queue that the path names, once the site has looked it up. `decided`: what
    the key reaches was asked for; until then nothing can be stored, and nothing is answered.
    """

    request: Request
    who: Actor
    key: Key | None
    tenant: str = ""
    body: Any = None
    queue: Any = None
    decided: bool = False
    held: keys.Reach | None = None
    texts: LongTexts | None = None

    def long_texts(self) -> LongTexts:
        """What writes the bodies of the answer, once its allowance has let in all of them."""
        self.texts = LongTexts(self.request.allowance.size)
        return self.texts

    def admit(self, *sizes: int) -> None:
        """Let bodies into the answer that are in memory already. Raises AnswersFull."""
        allowance = self.request.allowance
        allowance.fitting(sizes)
        if allowance.refused:
            raise AnswersFull

    @property
    def params(self) -> dict[str, str]:
        return self.request.params

    @property
    def actor(self) -> Actor:
        """Who acts. Every change asks for it, and so comes after the decision."""
        if not self.decided:
            raise Undecided(self.request.path)
        return self.who

    @property
    def reach(self) -> keys.Reach:
        """What of the tenant's things the key reaches. To ask is to decide."""
        if self.held is None:
            raise Undecided(self.request.path)
        self.decided = True
        return self.held

    def require(self, *targets: str) -> None:
        """Raises Forbidden unless one of these is within reach; none: unless everything is."""
        held = self.reach
        if held.targets is not None:
            held.require(*targets)

    def hold(self, route: "Route", *others: Scope) -> None:
        """Check the scope: the route's, or one of the others. Raises Forbidden.

        This decides for routes about the key itself or the whole tenant. For the others the
        site or the handler names the target.
        """
        decision, scope = route.reach, route.scope
        if decision == "own":
            self.decided = True
            return
        # Routes for no key or for any key were told apart when they were made.
        self.held = keys.reach(self.key, scope, *others)  # type: ignore[arg-type]
        if decision == "whole":
            self.require()

    def hold_everything(self, route: "Route") -> None:
        """For the operator, who may do everything."""
        self.held = keys.Reach(str(route.scope))
        self.decided = True


Handler = Callable[[Call], Awaitable[Any]]


# Who decides whether a key that is limited to some targets may make a request:
#   public    nobody: no key is needed
#   own       nobody: it is about the key itself
#   whole     only a key without limits may
#   target    the site, which finds out what the path names
#   listed    the handler, which leaves out what is beyond reach
#   named     the handler, because the body names the target
Decision = Literal["public", "own", "whole", "target", "listed", "named"]


class Route(Struct, frozen=True):
    """One operation. `reach` has no default: every new route needs a decision.

    `body` None: a request body is not read. `scope` None: no key needed; `any`: any key will
    do. `status` is that of a usual answer, `others` are further good ones. `contract` is the
    operation's name in the vendor's own description. `body_bytes_max` 0 is the site's. `body`
    bytes: as it was sent. One that is not `described` only catches what would miss its own route.
    `media` are the types that a good answer may have.
    """

    method: Method
    path: str
    handler: Handler
    scope: Scope | Literal["any"] | None
    reach: Decision
    summary: str
    body: Any = None
    body_optional: bool = False
    result: Any = None
    query: tuple["Parameter", ...] = ()
    family: str = ""
    status: int = 200
    others: tuple[int, ...] = ()
    contract: str = ""
    body_bytes_max: int = 0
    described: bool = True
    media: tuple[str, ...] = ("application/json",)

    def __post_init__(self) -> None:
        fits = {None: ("public",), "any": ("own",)}.get(
            self.scope, ("whole", "target", "listed", "named")
        )
        if self.reach not in fits:
            raise ValueError(f"{self.path}: reach {self.reach} does not go with {self.scope}")
        if self.reach == "target" and "{" not in self.path:
            raise ValueError(f"{self.path} names no target")

    @property
    def operation(self) -> str:
        return self.handler.__name__


class Parameter(Struct, frozen=True):
    """A query parameter, for the OpenAPI document. One that is needed has an example."""

    name: str
    type: Any
    description: str = ""
    example: str = ""


class Site(Protocol):
    """One API: how it knows its callers, what it serves and how it answers.

    `segments`: of everything under its prefix it answers only for paths that begin with one of
    these; none means all. `loose`: names of variable parts of paths by which it never decides
    who may do what.
    """

    name: str
    prefix: str
    body_bytes_max: int
    segments: Sequence[str]
    loose: frozenset[str]

    def routes(self) -> Sequence[Route]: ...

    def proof(self, head: Head) -> Hashable | None:
        """All that `authenticate` and `authorize` go by, beside settings, time and the path.

        None: they are asked every time.
        """
        ...

    def proven_until_ms(self, request: Request) -> int | None:
        """Until when a request with this proof may be let through without asking them; None: as
        long as no setting changes, nor a credential of the key ends."""
        ...

    def repeat(self, call: Call, route: Route) -> None:
        """What they do beside deciding, for a call that is let through without. Raises what they
        would raise."""
        ...

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

    def broken(self, id: str) -> Response:
        """The answer to a bug of ours; `id` is what its line in the log has."""
        ...


class _Router(CompiledRouter):
    def map_http_methods(self, resource: Any, **_: Any) -> Any:
        return dict(resource)


class _Mounted:
    def __init__(self, site: Site, telemetry: Telemetry) -> None:
        self.site = site
        self._below = tuple(f"{site.prefix}/{segment}" for segment in site.segments or ("",))
        self._router = _Router()
        table: dict[str, dict[str, Route]] = {}
        for route in site.routes():
            table.setdefault(site.prefix + route.path, {})[route.method] = route
        for path, methods in table.items():
            self._router.add_route(path, methods)
        self._meters = {
            id(route): telemetry.meter(site.name, route.operation)
            for methods in table.values()
            for route in methods.values()
        }
        self._stray = telemetry.meter(site.name, "none")
        segments = {segment for path in table for segment in path.split("/")}
        self._fixed = frozenset(segment for segment in segments if "{" not in segment)

    def covers(self, path: str) -> bool:
        if not path.startswith(self._below):
            return path == self.site.prefix
        if not self.site.segments:
            return True
        return path[len(self.site.prefix) + 1 :].partition("/")[0] in self.site.segments

    def find(self, method: str, path: str, body_bytes_max: int) -> "_Found":
        methods: Any
        methods, _, params, _ = self._router.find(path) or ({}, None, {}, None)
        text = True
        if "%" in path:
            try:
                params = {name: unquote(value, errors="strict") for name, value in params.items()}
            except UnicodeDecodeError:
                text = False
        route: Route | None = methods.get(method)
        if route is None:
            return _Found(self.site, path, params, None, self._stray, tuple(sorted(methods)), text)
        limits = [route.body_bytes_max or self.site.body_bytes_max, body_bytes_max]
        if route.scope is None:
            limits.append(PUBLIC_BODY_BYTES_MAX)
        place = self._place(route, params) if text else None
        return _Found(
            self.site,
            path,
            params,
            route,
            self._meters[id(route)],
            text=text,
            place=place,
            last=self._last(route, params) if place is not None else "",
            fixed=self._fixed,
            body_bytes_max=min(limits),
            public=route.scope is None,
            waits_only=route.scope in _MESSAGE_SCOPES,
        )

    def _place(self, route: Route, params: dict[str, str]) -> tuple[Hashable, ...] | None:
        """What an admission to it is remembered by, beside the proof; None: it is not."""
        if route.scope not in _MESSAGE_SCOPES or route.reach != "target":
            return None
        loose = self.site.loose
        named = [each for each in params.items() if each[0] not in loose]
        if sum([len(value) for _, value in named]) > PLACE_CHARACTERS_MAX:
            return None
        return (route.method, self.site.prefix + route.path, *named)

    def _last(self, route: Route, params: dict[str, str]) -> str:
        """The parameter that the path ends in, if it is the only one that admits nobody."""
        last = route.path.rpartition("/{")[2].removesuffix("}")
        return last if [name for name in params if name in self.site.loose] == [last] else ""


class _Found(Struct, frozen=True):
    """Where a request goes. Without a route: the methods that there are, if any.

    `text`: what its path names is UTF-8. `place`: what admissions are remembered by, if at all.
    `last`: the parameter that may have any other value but the `fixed` ones; "": none may.
    `public`: it needs no key. `waits_only`: its handler needs no task, see _MESSAGE_SCOPES.
    """

    site: Site
    path: str
    params: dict[str, str]
    route: Route | None
    meter: Meter
    methods: tuple[str, ...] = ()
    text: bool = True
    place: tuple[Hashable, ...] | None = None
    last: str = ""
    fixed: frozenset[str] = frozenset()
    body_bytes_max: int = 0
    public: bool = False
    waits_only: bool = False


class App:
    """Picks the site, runs the route, renders whatever happens."""

    def __init__(
        self,
        sites: Sequence[Site],
        *,
        telemetry: Telemetry,
        signins: SignIns,
        admissions: Admissions,
        body_bytes_max: int,
        on_drain: Callable[[], None],
        unseen: Callable[[], "asyncio.Future[None] | None"] = lambda: None,
    ) -> None:
        """`unseen`: what calls that need a key wait for first, see `HealthVerbs`."""
        self._unseen = unseen
        self._mounted = [_Mounted(site, telemetry) for site in sites]
        self._found: dict[tuple[str, bytes], _Found] = {}
        self._telemetry = telemetry
        self._signins = signins
        self._admissions = admissions
        self._body_bytes_max = body_bytes_max
        self._on_drain = on_drain
        self._draining = False
        self._round_bytes = 0

    @property
    def sites(self) -> list[Site]:
        return [mounted.site for mounted in self._mounted]

    def drain(self) -> None:
        """Take no new work, and end what waits or would never end by itself."""
        self._draining = True
        self._on_drain()

    async def respond(self, request: Request) -> Response | None:
        """The answer; None when there is none to give, and the connection is to be closed."""
        started = perf_counter()
        found = request.head.found or self._find(request.head)
        site, route = found.site, found.route
        request.path, request.params = found.path, found.params
        if request.name:
            request.path = f"{found.path.rpartition('/')[0]}/{request.name}"
            request.params = {**found.params, found.last: request.name}
        try:
            if self._draining:
                raise ShuttingDown
            if not found.public and (unseen := self._unseen()) is not None:
                await unseen
            call = self._again(found, request) if found.place is not None else None
            if call is None:
                call = await self._admit(found, request)
            assert route is not None
            if route.body is not None:
                raw = request.whole(found.body_bytes_max)
                if raw is None:
                    raw = await request.read(found.body_bytes_max)
                if len(raw) <= SMALL_BODY_BYTES or self._at_once(len(raw)):
                    call.body = site.decode(raw, route, request)
                else:
                    call.body = await asyncio.to_thread(site.decode, raw, route, request)
            if found.waits_only:
                result = await route.handler(call)
            else:
                result = await asyncio.ensure_future(route.handler(call))
            if not call.decided:
                raise Undecided(request.path)
            response = site.answer(result, route, request)
            if call.texts is not None and isinstance(response.body, bytes):
                response.stream = call.texts.parts(response.body)
        except OutcomeUnknown as error:
            log.error("outcome_unknown", extra={"path": request.path, "reason": str(error)})
            return None
        except BrokerError as error:
            if error.signin:
                self._not_let_in(error, site, request)
            response = site.refuse(error, route, request)
        except ClientGone:
            return None
        except Exception:
            response = site.broken(note_failure(request.path, site.name))
        found.meter.answered(response.status, perf_counter() - started, request.path)
        return response

    def _at_once(self, size: int) -> bool:
        """Whether a body that is not small is decoded before others have their turn."""
        if not self._round_bytes:
            asyncio.get_running_loop().call_soon(setattr, self, "_round_bytes", 0)
        self._round_bytes += size
        return size <= DECODED_INLINE_BYTES_MAX and self._round_bytes <= ROUND_BYTES_MAX

    def _not_let_in(self, error: BrokerError, site: Site, request: Request) -> None:
        self._telemetry.signin_failed(error.signin)
        key = request.key
        tenant, id = (key.tenant, key.id) if key else ("", "")
        if isinstance(error, Unauthenticated):
            tenant, id = error.tenant, error.key
        self._signins.failed(Failure(error.signin, site.name, request.remote, tenant, id))

    def _find(self, head: Head) -> _Found:
        known = self._found.get((head.method, head.raw_path))
        if known is None:
            path = _path(head.raw_path)
            mounted = next((each for each in self._mounted if each.covers(path)), self._mounted[-1])
            known = mounted.find(head.method, path, self._body_bytes_max)
        head.found = known
        head.seldom = known.route is not None and known.route.path.endswith("}")
        head.names = known.fixed if known.last else None
        return known

    def _remember(self, head: Head, found: _Found) -> None:
        """Most requests go where others went before.

        Only paths of admitted requests are remembered, so that strangers cannot fill the memory.
        """
        place = head.method, head.raw_path
        if len(head.raw_path) > PATH_REMEMBERED_BYTES_MAX or head.seldom:
            return
        if len(self._found) >= PATHS_REMEMBERED_MAX and place not in self._found:
            self._found.clear()
        self._found[place] = found

    def _again(self, found: _Found, request: Request) -> Call | None:
        """The call of a request like one that was let through before, if nothing has changed."""
        site, route, head = found.site, found.route, request.head
        known = head.admission
        if known is None or not self._admissions.holds(known):
            proof = site.proof(head)
            known = self._admissions.find(found.place, proof) if proof is not None else None
            head.admission = known
        if known is None or route is None:
            return None
        actor, remote = known.actor, request.remote
        if actor.address != remote:
            actor = Actor(actor.id, actor.dialect, remote)
        request.key = known.key
        call = Call(request, actor, known.key, known.tenant, None, known.queue, True, known.held)
        site.repeat(call, route)
        request.admitted = True
        return call

    async def _admit(self, found: _Found, request: Request) -> Call:
        """Whether the request may do what it asks for. Raises what the site does."""
        site, route, head = found.site, found.route, request.head
        if route is not None and route.scope is None:
            return Call(request, Actor("", site.name, request.remote), None, decided=True)
        version = self._admissions.version
        key = request.key = await site.authenticate(request)
        if route is None and found.methods:
            raise WrongMethod(request.method, found.methods)
        if route is None:
            raise NoRoute(found.path)
        if not found.text:
            raise InvalidRequest("path", "is not UTF-8")
        call = Call(request, Actor(key.id, site.name, request.remote), key, key.tenant)
        await site.authorize(call, route)
        request.admitted = True
        self._remember(head, found)
        proof = site.proof(head) if found.place is not None else None
        if proof is not None:
            until_ms = site.proven_until_ms(request)
            self._admissions.keep(found.place, proof, call, version=version, until_ms=until_ms)
        return call
