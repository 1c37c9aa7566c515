"""The console: pages under /console for people, made from the broker's own facts.

Loaded with the server are only this file and what guards a session; pages, templates and the
template engine are loaded for the first request.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from importlib import import_module
from typing import Any
from urllib.parse import parse_qsl, quote

import msgspec
from msgspec import Struct

from courier import ids
from courier.clock import Clock
from courier.console import forms
from courier.console.guard import HEADERS, NOT_KEPT, Codes, ForeignForm, Guard
from courier.console.refusals import Trouble, refusal, retry_after_s
from courier.core import keys
from courier.core.admin import OPERATOR, Admin
from courier.core.broker import Broker
from courier.core.errors import (
    BrokerError,
    Forbidden,
    InvalidRequest,
    NotFound,
    RateLimited,
    Unauthenticated,
)
from courier.core.limits import Rate
from courier.core.store import Store
from courier.core.types import MINUTE_MS, Key, Queue, Scope, Tenant
from courier.dialects import json
from courier.web import (
    JSON,
    Call,
    Decision,
    Handler,
    Method,
    Request,
    Response,
    Route,
)

HTML = b"text/html; charset=utf-8"
FORM = "application/x-www-form-urlencoded"
FIELDS_MAX = 200
# Failed sign-ins of one address in a minute.
FAILURES_MAX = 10


class Services(Struct):
    """What pages are made from.

    `greeting` is what to paste for each API: its name and the lines. With the tenant's name it has
    the secrets of the credentials file, without one it has placeholders. `placed` are the workers
    of a tenant that the server's own settings give a URL. `spelled` is the core's id that a
    dialect spells like this, "" for none. `settings` are those of the server: name, value, where
    that comes from, and what it means.
    """

    store: Store
    broker: Broker
    admin: Admin
    clock: Clock
    guard: Guard
    codes: Codes
    failures: Rate
    greeting: Callable[[str], list[tuple[str, str]]]
    placed: Callable[[str], Awaitable[dict[str, str]]]
    spelled: Callable[[str], str]
    url: str
    first_tenant: str
    queue_bytes_max: int
    journal_bytes_max: int
    disk_free_bytes_min: int
    settings: list[tuple[str, str, str, str]]

    def failed(self, request: Request) -> None:
        """Count a failed sign-in. Raises Guessing when its address had too many."""
        try:
            self.failures.take(request.remote, 1, now_ms=self.clock.now_ms())
        except RateLimited as error:
            raise Guessing("signing in", retry_after_ms=error.retry_after_ms) from error

    def sign_in_url(self, key: str) -> str:
        """A link that signs in once as this key (id)."""
        return f"{self.url}/console/enter?code={self.codes.new(key)}"


class Guessing(RateLimited):
    signin = "locked_out"


class Page(Struct):
    """An answer: the facts, and the template that shows them. JSON is the facts alone."""

    template: str
    facts: Struct
    status: int = 200
    headers: tuple[tuple[bytes, bytes], ...] = ()


class Redirect(Struct):
    """Go on at another page of the console, by its path from the root."""

    path: str
    headers: tuple[tuple[bytes, bytes], ...] = ()


class Console:
    name = "console"
    prefix = "/console"
    body_bytes_max = 4 << 20
    segments: Sequence[str] = ()

    def __init__(
        self,
        store: Store,
        broker: Broker,
        admin: Admin,
        clock: Clock,
        *,
        greeting: Callable[[str], list[tuple[str, str]]],
        placed: Callable[[str], Awaitable[dict[str, str]]],
        spelled: Callable[[str], str],
        url: str,
        first_tenant: str,
        queue_bytes_max: int,
        journal_bytes_max: int,
        disk_free_bytes_min: int,
        settings: list[tuple[str, str, str, str]],
    ) -> None:
        self.services = Services(
            store,
            broker,
            admin,
            clock,
            Guard(store.secret, url),
            Codes(clock),
            Rate("signing in", limit=FAILURES_MAX, window_ms=MINUTE_MS),
            greeting,
            placed,
            spelled,
            url,
            first_tenant,
            queue_bytes_max,
            journal_bytes_max,
            disk_free_bytes_min,
            settings,
        )
        self._keyring = keys.Keyring(store)
        self._loading = asyncio.Lock()
        self._loaded: Any = None

    def sign_in_url(self, token: str) -> str:
        """A link that signs in once, as the key that this is the token of."""
        return self.services.sign_in_url(keys.id_of(token))

    def drain(self) -> None:
        """End the streams that never end by themselves."""
        if self._loaded is not None:
            self._loaded.drain()

    # --- routes ---

    def routes(self) -> Sequence[Route]:
        page, form, door = self._page, self._form, self._door
        return [
            door("GET", "/sign-in", "show_sign_in"),
            door("POST", "/sign-in", "sign_in", body=forms.SignIn),
            door("GET", "/enter", "enter"),
            door("GET", "/static/{file}", "send_file"),
            form("/sign-out", "sign_out", "any", "own", forms.Nothing),
            form("/enter", "make_link", "any", "own", forms.Nothing, status=200),
            page("", "show_queues", "queues:read", "listed"),
            form("/queues", "create_queue", "queues:write", "whole", forms.NewQueue),
            page("/queues/{queue}", "show_queue", "queues:read", "target"),
            *(
                form(
                    f"/queues/{{queue}}/{verb}",
                    f"{verb}_queue",
                    "queues:write",
                    "target",
                    forms.Nothing,
                )
                for verb in ("pause", "resume", "freeze", "unfreeze")
            ),
            form("/queues/{queue}/publish", "publish", "messages:publish", "target", forms.Publish),
            form(
                "/queues/{queue}/settings",
                "change_settings",
                "queues:write",
                "target",
                forms.Settings,
                status=200,
            ),
            page("/messages/{message}", "show_message", "queues:read", "target"),
            page("/messages/{message}/body", "send_body", "messages:read", "target"),
            page("/events", "show_events", "journal", "whole"),
            page("/live", "follow", "queues:read", "listed"),
            page("/settings", "show_server", "admin", "whole"),
            page("/settings/tenants", "show_tenants", "admin", "whole"),
            page("/settings/keys", "show_keys", "admin", "whole"),
            form("/settings/keys", "create_key", "admin", "whole", forms.NewKey, status=200),
            form("/settings/keys/{key}/delete", "delete_key", "admin", "whole", forms.Typed),
            page("/find", "find", "queues:read", "listed"),
            form("/hello", "say_hello", "queues:write", "whole", forms.Nothing),
        ]

    def _page(self, path: str, name: str, scope: Scope, reach: Decision) -> Route:
        return Route("GET", path, self._later(name), scope, reach, name.replace("_", " "))

    def _form(
        self, path: str, name: str, scope: Any, reach: Decision, body: Any, *, status: int = 303
    ) -> Route:
        summary = name.replace("_", " ")
        handler = self._later(name)
        return Route("POST", path, handler, scope, reach, summary, body=body, status=status)

    def _door(self, method: Method, path: str, name: str, *, body: Any = None) -> Route:
        """For people who have not signed in yet."""
        summary = name.replace("_", " ")
        return Route(method, path, self._later(name), None, "public", summary, body=body)

    def _later(self, name: str) -> Handler:
        """The page of that name, which is loaded when somebody wants it."""

        async def handler(call: Call) -> Any:
            pages = await self._load()
            return await pages.handlers[name](call)

        handler.__name__ = name
        return handler

    async def _load(self) -> Any:
        """The pages; on a thread, because loading the template engine takes a while."""
        async with self._loading:
            if self._loaded is None:
                module = await asyncio.to_thread(import_module, "courier.console.pages")
                self._loaded = await asyncio.to_thread(module.Pages, self.services)
        return self._loaded

    # --- who asks ---

    async def authenticate(self, request: Request) -> Key:
        await self._load()
        if b"authorization" in request.headers:
            try:
                now_ms = self.services.clock.now_ms()
                return await self._keyring.find(request.bearer(), now_ms=now_ms)
            except Unauthenticated:
                self.services.failed(request)
                raise
        token = self.services.guard.session(request)
        if not token:
            raise Unauthenticated("missing")
        return await self.services.admin.browser_sessions.find(token)

    async def authorize(self, call: Call, route: Route) -> None:
        """An operator's admin key sees every tenant; others their own, by their scopes."""
        assert call.key is not None
        if operates(call.key):
            call.hold_everything(route)
            call.tenant = await self._tenant_meant(call)
        else:
            if route.scope == "admin":
                raise Forbidden("admin")
            call.hold(route)
        if "queue" in call.params:
            await self._find_queue(call, call.params["queue"])
        elif "message" in call.params:
            await self._find_queue(call, await self._queue_of_message(call))

    async def _tenant_meant(self, call: Call) -> str:
        name = call.request.query.get("tenant", [self.services.first_tenant])[-1]
        found = await self.services.store.named(Tenant, tenant=OPERATOR, name=name)
        if found is None and "tenant" in call.request.query:
            raise NotFound("tenant", name)
        return found.id if found else OPERATOR

    async def _queue_of_message(self, call: Call) -> str:
        """The id of the queue that the query names, or that the message's id is marked with."""
        named = call.request.query.get("queue", [""])[-1]
        if named:
            return named
        mark = ids.message_mark(call.params["message"])
        if mark is None:
            return ""
        queues = await self.services.store.scan(Queue, tenant=call.tenant)
        return next((queue.id for queue in queues if ids.mark(queue.id) == mark), "")

    async def _find_queue(self, call: Call, id: str) -> None:
        assert call.key is not None
        queue = await self.services.store.get(Queue, id)
        if queue is None or not (operates(call.key) or queue.tenant == call.tenant):
            call.require("")
            if "message" in call.params:
                raise NotFound("message", call.params["message"])
            raise NotFound("queue", id)
        call.require(queue.id)
        call.queue, call.tenant = queue, queue.tenant

    # --- what comes in and goes out ---

    def decode(self, raw: bytes, route: Route, request: Request) -> Any:
        """A form, or the same as JSON. With a cookie it must be one of our own forms."""
        guard = self.services.guard
        by_cookie = b"authorization" not in request.headers
        if by_cookie:
            guard.check_origin(request)
        if request.header(b"content-type").partition(";")[0].strip() == FORM:
            fields = _fields(raw)
            given = fields.pop("token", "")
        else:
            body = json.decode(raw or b"{}", route.body)
            if by_cookie and route.scope is not None:
                raise ForeignForm("it has no token")
            return body
        if by_cookie and route.scope is not None:
            guard.check_token(request, given)
        try:
            return msgspec.convert(fields, route.body, strict=False)
        except msgspec.ValidationError as error:
            raise InvalidRequest("form", str(error)) from error

    def answer(self, result: Any, route: Route, request: Request) -> Response:
        if isinstance(result, Response):
            return result
        if not isinstance(result, Page | Redirect):
            return Response(msgspec.json.encode(result), headers=(*HEADERS, NOT_KEPT))
        if isinstance(result, Redirect):
            location = relative(request, result.path).encode()
            headers = (*HEADERS, NOT_KEPT, (b"location", location), *result.headers)
            return Response(b"", 303, HTML, headers)
        return self._shown(result, request)

    def _shown(self, page: Page, request: Request) -> Response:
        headers = (*HEADERS, NOT_KEPT, *page.headers)
        if wants_json(request):
            return Response(msgspec.json.encode(page.facts), page.status, JSON, headers)
        body = self._loaded.render(page, request)
        return Response(body, page.status, HTML, headers)

    def refuse(self, error: BrokerError, route: Route | None, request: Request) -> Response:
        status, code = refusal(error)
        headers: tuple[tuple[bytes, bytes], ...] = (*HEADERS, NOT_KEPT)
        if route is not None and route.operation == "sign_in" and status == 401:
            return self._shown(self._loaded.wrong_sign_in(request), request)
        entering = route is not None and route.scope is None
        if status == 401 and not entering and request.method == "GET" and wants_html(request):
            asked = request.path + (b"?" + request.query_string).decode("latin-1").rstrip("?")
            to = relative(request, f"/console/sign-in?then={quote(asked, safe='/')}")
            ended = (self.services.guard.cookie(""),)
            return Response(b"", 303, HTML, (*headers, (b"location", to.encode()), *ended))
        after_s = retry_after_s(error, status)
        if after_s:
            headers = (*headers, (b"retry-after", b"%d" % after_s))
        trouble = Trouble(status, code, str(error), after_s)
        if wants_json(request) or self._loaded is None:
            plain = {"error": {"code": code, "message": str(error)}}
            return Response(msgspec.json.encode(plain), status, JSON, headers)
        body = self._loaded.render(Page("trouble.html", trouble), request)
        return Response(body, status, HTML, headers)

    def broken(self) -> Response:
        body = b"<!doctype html><title>Courier</title><h1>Internal error</h1><p>The log has it."
        return Response(body, 500, HTML, (*HEADERS, NOT_KEPT))


def operates(key: Key) -> bool:
    return key.tenant == OPERATOR and any(grant.scope == "admin" for grant in key.grants)


def _fields(raw: bytes) -> dict[str, str]:
    try:
        pairs = parse_qsl(
            raw.decode(), keep_blank_values=True, max_num_fields=FIELDS_MAX, errors="strict"
        )
    except ValueError as error:
        raise InvalidRequest("form", "is not a form in UTF-8 with few enough fields") from error
    return dict(pairs)


def wants_json(request: Request) -> bool:
    accept = request.header(b"accept")
    return "application/json" in accept and "text/html" not in accept


def wants_html(request: Request) -> bool:
    return "text/html" in request.header(b"accept")


def relative(request: Request, path: str) -> str:
    """A link from the page that was asked for to another one, for proxies that add a prefix."""
    return "../" * (request.raw_path.count(b"/") - 1) + path.lstrip("/")
