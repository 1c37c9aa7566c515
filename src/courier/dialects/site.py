"""What every site does alike: tables of routes and refusals, documents, and numbers in queries."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from courier.clock import Clock
from courier.core.admin import Admin
from courier.core.broker import Broker
from courier.core.errors import BrokerError, InvalidRequest
from courier.core.sealed import Sealer
from courier.core.store import StoreReads
from courier.core.types import Queue
from courier.dialects import json, openapi
from courier.dialects.example import Shell
from courier.refusals import Refusal, Refusals
from courier.web import JSON, Call, Head, Request, Response, Route, Site, WrongMethod

BEARER = {"token": {"type": "http", "scheme": "bearer"}}
_DIGITS_MAX = 19
_SHOWN_CHARACTERS = 40

T = TypeVar("T")
encode = msgspec.json.Encoder().encode


class SiteServices(Struct, frozen=True, kw_only=True):
    """What handlers of any site work with."""

    reads: StoreReads
    broker: Broker
    admin: Admin
    clock: Clock
    sealer: Sealer


S = TypeVar("S", bound=SiteServices)


class Family(ABC, Generic[S]):
    """Handlers of routes that belong together, under one name in the documents."""

    family = ""

    def __init__(self, services: S) -> None:
        self._services = services
        self._reads = services.reads
        self._records = services.reads.records
        self._broker = services.broker
        self._admin = services.admin
        self._clock = services.clock
        self._sealer = services.sealer

    @abstractmethod
    def routes(self) -> Sequence[Route]: ...

    async def _purge(self, call: Call, queue: Queue) -> Queue:
        """Delete all messages. One that a crash cuts short is finished later, by a duty."""
        purge = await self._broker.new_purge(queue)
        queue = await self._admin.note_purge(queue, purge, actor=call.actor)
        await self._broker.purge(queue, purge, actor=call.actor)
        return await self._admin.note_purge(queue, replace(purge, completed=True), actor=call.actor)

    def table(self) -> list[Route]:
        """The routes, each with the name of its family."""
        return [
            route if route.family else replace(route, family=self.family) for route in self.routes()
        ]


class DocumentedSite(Site):
    """A site whose routes and refusals are tables, with a document made from them.

    `failure` is the schema of every refusal, `failures` are their statuses, `failure_media` is
    their type; `samples` are values
    for examples by the name of the member, None to leave it out.
    """

    title: str
    refusals: Refusals
    failures: Sequence[int]
    failure: Mapping[str, Any]
    failure_media = "application/json"
    samples: Mapping[str, Any] = {}
    security: Mapping[str, Any] = BEARER
    shell: Shell
    content_type = JSON
    docs_path = ""
    segments: Sequence[str] = ()
    loose: frozenset[str] = frozenset()

    def __init__(self, routes: Sequence[Route]) -> None:
        self._routes = routes
        self._documents = openapi.Documents(
            self, [self.described(route) for route in routes if route.described]
        )

    def routes(self) -> Sequence[Route]:
        return [
            *self._routes,
            _document(f"{self.docs_path}/openapi.json", self.openapi, "This API as OpenAPI"),
            _document(f"{self.docs_path}/docs", self.docs, "This API as a page"),
        ]

    async def openapi(self, call: Call) -> Response:
        return self._documents.document(call.request)

    async def docs(self, call: Call) -> Response:
        return self._documents.page(call.request)

    def described(self, route: Route) -> Route:
        """The route as the document shows it."""
        return route

    def envelope(self, result: dict[str, Any]) -> dict[str, Any]:
        """The schema of an answer with such a result."""
        return result

    def proof(self, head: Head) -> Hashable | None:
        return None

    def proven_until_ms(self, request: Request) -> int | None:
        return None

    def repeat(self, call: Call, route: Route) -> None:
        """Nothing."""

    def decode(self, raw: bytes, route: Route, request: Request) -> Any:
        if route.body_optional and not raw.strip():
            raw = b"{}"
        return json.decode(raw, route.body)

    def answer(self, result: Any, route: Route, request: Request) -> Response:
        if isinstance(result, Response):
            return result
        if route.status == openapi.NO_CONTENT:
            return Response(b"", route.status)
        return Response(encode(result), route.status, self.content_type)

    def refuse(self, error: BrokerError, route: Route | None, request: Request) -> Response:
        refused = self.refusals.of(error, route)
        response = self.refused(refused, request)
        if refused.retry_after_s is not None:
            response.headers += ((b"retry-after", b"%d" % refused.retry_after_s),)
        if isinstance(error, WrongMethod):
            response.headers += ((b"allow", ", ".join(error.allowed).encode()),)
        return response

    @abstractmethod
    def refused(self, refused: Refusal, request: Request) -> Response:
        """A refusal in the site's own shape."""


def _document(path: str, handler: Callable[[Call], Any], summary: str) -> Route:
    return Route("GET", path, handler, None, "public", summary)


# --- queries and optional members ------------------------------------------------------------


class InvalidQuery(InvalidRequest):
    """A parameter of the query has a value that it does not take."""


def number(request: Request, name: str, *, default: int, high: int, low: int = 0) -> int:
    """A parameter that is a whole number; the default if it is not given."""
    if name not in request.query:
        return default
    text = request.query[name][-1]
    digits = text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX
    if not (digits and low <= int(text) <= high):
        shown = text[:_SHOWN_CHARACTERS]
        raise InvalidQuery(name, f"expected a number from {low} to {high}, not '{shown}'")
    return int(text)


def choice(request: Request, name: str, choices: Sequence[str]) -> str:
    """A parameter that is one of these; the first if it is not given."""
    text = request.query.get(name, [choices[0]])[-1]
    if text not in choices:
        wanted = " or ".join(choices) if len(choices) == 2 else f"one of {', '.join(choices)}"
        raise InvalidQuery(name, f"expected {wanted}, not '{text[:_SHOWN_CHARACTERS]}'")
    return text


def flag(request: Request, name: str) -> bool:
    """A parameter that is true or false, which it is if it is not given."""
    return choice(request, name, ("false", "true")) == "true"


def given(value: T | UnsetType | None, default: T) -> T:
    """What a member says; null says nothing."""
    return default if value is UNSET or value is None else value
