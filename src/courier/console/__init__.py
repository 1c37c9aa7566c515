"""The console: pages under /console for people, made from the broker's own facts.

Loaded with the server are only this file and what guards a session; pages, templates and the
template engine are loaded for the first request.
"""

import asyncio
import gzip
from collections.abc import Callable, Hashable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from courier import ids
from courier.clock import Clock
from courier.console import forms
from courier.console.guard import HEADERS, NOT_KEPT, Codes, ForeignForm, Guard
from courier.console.troubles import Trouble, Unmatched, nearest, refusal, retry_after_s
from courier.core import keys
from courier.core.admin import Admin
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
from courier.core.store import StoreReads
from courier.core.types import (
    MINUTE_MS,
    OPERATOR,
    Exchange,
    Key,
    Listener,
    Queue,
    Scope,
    Tenant,
    Worker,
)
from courier.dialects import json
from courier.dialects.forms import fields as fields_of
from courier.web import (
    JSON,
    Call,
    Decision,
    Handler,
    Head,
    Method,
    Request,
    Response,
    Route,
)

HTML = b"text/html; charset=utf-8"
FORM = "application/x-www-form-urlencoded"
# As many as a page has rows to select, and some.
FIELDS_MAX = 1_100
# A page of 40 KB takes 0.5 ms at this level, and less than one more byte in a hundred than at 9.
COMPRESSION = 5
COMPRESSED_BYTES_MIN = 1_000
# Encodings of one Accept-Encoding that are looked at.
ENCODINGS_MAX = 20
# Failed sign-ins of one address in a minute.
FAILURES_MAX = 10


class Making(Protocol):
    """Makes listeners and workers, which need secrets and places that may be called."""

    def listener(self, queue: Queue, title: str, url: str) -> tuple[Listener, str]:
        """A listener of the queue and its secret; raises InvalidRequest."""
        ...

    def worker(self, tenant: str, name: str, url: str, known: Worker | None) -> Worker: ...

    def secret(self, worker: Worker) -> str:
        """What calls to it are signed with."""
        ...


class Services(Struct):
    """What pages are made from.

    `greeting` is what to paste for each API: its name and the lines. With the tenant's name it has
    the secrets of the credentials file, without one it has placeholders; `lines_of` is the same
    for a key and its secret. `placed` are the workers
    of a tenant that the server's own settings give a URL. `spelled` is the core's id that a
    dialect spells like this, "" for none. `settings` are those of the server: name, value, where
    that comes from, and what it means. `apis` are the names of APIs and the paths of their pages.
    """

    store: StoreReads
    broker: Broker
    admin: Admin
    clock: Clock
    guard: Guard
    codes: Codes
    greeting: Callable[[str], list[tuple[str, str]]]
    lines_of: Callable[[Key, str], list[tuple[str, str]]]
    placed: Callable[[str], dict[str, str]]
    spelled: Callable[[str], str]
    url: str
    first_tenant: str
    queue_bytes_max: int
    journal_bytes_max: int
    disk_free_bytes_min: int
    settings: list[tuple[str, str, str, str]]
    plans: Path
    plans_bytes_max: int
    lake: str
    newcomers: Making
    apis: list[tuple[str, str]]
    failures: Rate = msgspec.field(
        default_factory=lambda: Rate("signing in", limit=FAILURES_MAX, window_ms=MINUTE_MS)
    )

    def failed(self, request: Request) -> None:
        """Count a failed sign-in. Raises Guessing when its address had too many."""
        try:
            self.failures.take(request.remote, 1, now_ms=self.clock.now_ms())
        except RateLimited as error:
            raise Guessing("signing in", retry_after_ms=error.retry_after_ms) from error

    def other_tenant(self, id: str) -> str:
        """The name of a tenant as a command line has to give it: "" for the first."""
        tenant = self.store.records.get(Tenant, id)
        return tenant.name if tenant and tenant.name != self.first_tenant else ""

    def sign_in_url(self, key: str) -> str:
        """A link that signs in once as this key (id)."""
        return f"{self.url}/console/enter?code={self.codes.new(key)}"


class Guessing(RateLimited):
    signin = "locked_out"


class Page(Struct):
    """An answer: the facts, and the template that shows them. JSON is the facts alone.

    One that is `large` is rendered on a thread. `tenant` is the one that it is about, which links
    to lists name: "" for the first, and for keys of a tenant.
    """

    template: str
    facts: Struct
    status: int = 200
    headers: tuple[tuple[bytes, bytes], ...] = ()
    large: bool = False
    tenant: str = ""


class Redirect(Struct):
    """Go on at another page of the console, by its path from the root."""

    path: str
    headers: tuple[tuple[bytes, bytes], ...] = ()


class Console:
    name = "console"
    prefix = "/console"
    body_bytes_max = 4 << 20
    segments: Sequence[str] = ()
    loose: frozenset[str] = frozenset()

    def __init__(self, services: Services) -> None:
        self.services = services
        self._keyring = keys.Keyring(services.store.records)
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
            *self._of_queue(),
            *self._receivers(),
            page("/exchanges/{exchange}", "show_exchange", "queues:read", "target"),
            page("/messages/{message}", "show_message", "queues:read", "target"),
            page("/messages/{message}/body", "send_body", "messages:read", "target"),
            page("/events", "show_events", "journal", "whole"),
            page("/lake", "show_lake", "journal", "whole"),
            form("/lake", "ask_lake", "journal", "whole", forms.Question, status=200),
            page("/lake/audit", "show_audit", "journal", "whole"),
            page("/live", "follow", "queues:read", "listed"),
            page("/settings", "show_server", "admin", "whole"),
            page("/settings/tenants", "show_tenants", "admin", "whole"),
            page("/settings/keys", "show_keys", "admin", "whole"),
            form("/settings/keys", "create_key", "admin", "whole", forms.NewKey, status=200),
            page("/plans", "show_plans", "queues:read", "listed"),
            form("/plans", "create_plan", "queues:write", "named", forms.NewPlan),
            page("/plans/{plan}", "show_plan", "queues:read", "target"),
            form("/plans/{plan}/run", "run_plan", "queues:write", "target", forms.Confirmed),
            form("/plans/{plan}/stop", "stop_plan", "queues:write", "target", forms.Nothing),
            form("/plans/{plan}/undo", "undo_plan", "queues:write", "target", forms.Nothing),
            page("/find", "find", "queues:read", "listed"),
            form("/hello", "say_hello", "queues:write", "whole", forms.Nothing),
        ]

    def _of_queue(self) -> list[Route]:
        form, page, at = self._form, self._page, "/queues/{queue}"
        write, read = "queues:write", "messages:read"
        return [
            page(at, "show_queue", "queues:read", "target"),
            *(
                form(f"{at}/{verb}", f"{verb}_queue", write, "target", forms.Switch)
                for verb in ("pause", "resume", "freeze", "unfreeze")
            ),
            form(f"{at}/publish", "publish", "messages:publish", "target", forms.Publish),
            form(f"{at}/settings", "change_settings", write, "target", forms.Settings, status=200),
            form(f"{at}/messages", "download", read, "target", forms.NewPlan, status=200),
            page(f"{at}/settings", "set_back", "queues:write", "target"),
        ]

    def _receivers(self) -> list[Route]:
        """Forms of what messages are pushed and copied to."""
        form, page = self._form, self._page
        new, connect = forms.NewListener, forms.ConnectionForm
        listeners = "/queues/{queue}/listeners"
        return [
            form(listeners, "create_listener", "listeners:write", "target", new, status=200),
            form(f"{listeners}/{{listener}}", "change_listener", "listeners:write", "target",
                 forms.ChangeForm),
            form("/exchanges/{exchange}", "change_exchange", "queues:write", "target",
                 forms.ChangeForm),
            page("/settings/connections", "show_connections", "admin", "whole"),
            form("/settings/connections", "connect", "admin", "whole", connect, status=200),
        ]  # fmt: skip

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
            result = await pages.handlers[name](call)
            if isinstance(result, Page):
                if call.key is not None and operates(call.key):
                    result.tenant = self.services.other_tenant(call.tenant)
                if result.large:
                    return await asyncio.to_thread(self._shown, result, call.request)
            return result

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

    def proof(self, head: Head) -> Hashable | None:
        return None

    def proven_until_ms(self, request: Request) -> int | None:
        return None

    def repeat(self, call: Call, route: Route) -> None:
        """No call is let through without being asked about."""

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
            call.tenant = self._tenant_meant(call)
        else:
            if route.scope == "admin":
                raise Forbidden("admin")
            call.hold(route)
        if "queue" in call.params:
            self._find_queue(call, call.params["queue"], gone=route.operation == "show_queue")
        elif "exchange" in call.params:
            self._find_exchange(call, call.params["exchange"])
        elif "message" in call.params:
            self._find_queue(call, self._queue_of_message(call))
        elif "plan" in call.params:
            await self._find_plan(call, call.params["plan"])

    def _tenant_meant(self, call: Call) -> str:
        name = call.request.query.get("tenant", [self.services.first_tenant])[-1]
        found = self.services.store.records.named(Tenant, tenant=OPERATOR, name=name)
        if found is None and "tenant" in call.request.query:
            raise NotFound("tenant", name)
        return found.id if found else OPERATOR

    def _queue_of_message(self, call: Call) -> str:
        """The id of the queue that the query names, or that the message's id is marked with."""
        named = call.request.query.get("queue", [""])[-1]
        if named:
            return named
        mark = ids.message_mark(call.params["message"])
        if mark is None:
            return ""
        queues = self.services.store.records.scan(Queue, tenant=call.tenant)
        return next((queue.id for queue in queues if ids.mark(queue.id) == mark), "")

    def _find_exchange(self, call: Call, id: str) -> None:
        assert call.key is not None
        found = self.services.store.records.get(Exchange, id)
        if found is None or not (operates(call.key) or found.tenant == call.tenant):
            call.require("")
            raise NotFound("exchange", id)
        if not self.services.admin.reaches(call.reach, found):
            call.require("")
        call.tenant = found.tenant

    def _find_queue(self, call: Call, id: str, *, gone: bool = False) -> None:
        """`gone`: the page knows what to do about a queue that was deleted."""
        if gone and self.services.store.records.get(Queue, id) is None:
            call.require(id)
            return
        queue = queue_meant(self.services, call, id)
        call.queue, call.tenant = queue, queue.tenant

    async def _find_plan(self, call: Call, id: str) -> None:
        """A plan is seen by those who reach every queue that it touches."""
        assert call.key is not None
        planning = self._loaded.planning
        plan = await planning.find(id)
        if plan is None or not (operates(call.key) or planning.owns(plan, call.tenant)):
            call.require("")
            raise NotFound("plan", id)
        for queue in planning.targets(plan):
            call.require(queue)
        call.tenant = plan.tenant

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
            if wants_json(request):
                return Response(msgspec.json.encode({"path": result.path}), 303, JSON, headers)
            return Response(b"", 303, HTML, headers)
        return self._shown(result, request)

    def _shown(self, page: Page, request: Request) -> Response:
        headers = (*HEADERS, NOT_KEPT, *page.headers)
        if wants_json(request):
            body, kind = msgspec.json.encode(page.facts), JSON
        else:
            body, kind = self._loaded.render(page, request), HTML
        return compressed(Response(body, page.status, kind, headers), request)

    def refuse(self, error: BrokerError, route: Route | None, request: Request) -> Response:
        status, code = refusal(error)
        headers: tuple[tuple[bytes, bytes], ...] = (*HEADERS, NOT_KEPT)
        if route is not None and route.operation == "sign_in" and status == 401:
            return self._shown(self._loaded.wrong_sign_in(request), request)
        entering = route is not None and route.scope is None
        if status == 401 and not entering and request.method == "GET" and wants_html(request):
            asked = request.path + (b"?" + request.head.query_string).decode("latin-1").rstrip("?")
            to = relative(request, f"/console/sign-in?then={quote(asked, safe='/')}")
            ended = (self.services.guard.cookie(""),)
            return Response(b"", 303, HTML, (*headers, (b"location", to.encode()), *ended))
        after_s = retry_after_s(error, status)
        if after_s:
            headers = (*headers, (b"retry-after", b"%d" % after_s))
        near = error.near if isinstance(error, Unmatched) else ()
        trouble = Trouble(status, code, str(error), after_s, near)
        if wants_json(request) or self._loaded is None:
            plain: dict[str, Any] = {"code": code, "message": str(error)}
            if near:
                plain["near"] = [name for name, _ in near]
            return Response(msgspec.json.encode({"error": plain}), status, JSON, headers)
        body = self._loaded.render(Page("trouble.html", trouble, status), request)
        return Response(body, status, HTML, headers)

    def broken(self, id: str) -> Response:
        says = f"<h1>Internal error</h1><p>The log has it as request {id}."
        body = f"<!doctype html><title>Courier</title>{says}".encode()
        return Response(body, 500, HTML, (*HEADERS, NOT_KEPT))


def operates(key: Key) -> bool:
    return key.tenant == OPERATOR and any(grant.scope == "admin" for grant in key.grants)


def queue_meant(services: Services, call: Call, id: str) -> Queue:
    """The queue of that id, if the key reaches it. Raises Forbidden or NotFound."""
    assert call.key is not None
    queue = services.store.records.get(Queue, id)
    if queue is None or not (operates(call.key) or queue.tenant == call.tenant):
        call.require("")
        if "message" in call.params:
            raise NotFound("message", call.params["message"])
        raise Unmatched("queue", id, nearest(id, queue_paths(services, call)))
    call.require(queue.id)
    return queue


def queue_paths(services: Services, call: Call) -> list[tuple[str, str]]:
    """Names and pages of the tenant's queues that the key reaches."""
    queues = services.store.records.scan(Queue, tenant=call.tenant)
    return [(each.name, f"/console/queues/{each.id}") for each in queues if each.id in call.reach]


def _fields(raw: bytes) -> dict[str, str]:
    try:
        pairs = fields_of(raw, fields_max=FIELDS_MAX)
    except ValueError as error:
        raise InvalidRequest("form", "is not a form in UTF-8 with few enough fields") from error
    fields = dict(pairs)
    if "selected" in fields:  # a box for each of many
        fields["selected"] = ",".join(value for name, value in pairs if name == "selected")
    return fields


def wants_json(request: Request) -> bool:
    accept = request.header(b"accept")
    return "application/json" in accept and "text/html" not in accept


def wants_html(request: Request) -> bool:
    return "text/html" in request.header(b"accept")


def compressed(response: Response, request: Request) -> Response:
    """The answer as gzip, if the browser takes that and it is worth it."""
    takes = _takes_gzip(request.header(b"accept-encoding"))
    vary = (*response.headers, (b"vary", b"accept-encoding"))
    if not takes or len(response.body) < COMPRESSED_BYTES_MIN:
        return replace(response, headers=vary)
    headers = (*vary, (b"content-encoding", b"gzip"))
    body = gzip.compress(response.body, COMPRESSION, mtime=0)
    return replace(response, body=body, headers=headers)


def _takes_gzip(accepted: str) -> bool:
    """Whether gzip is among the encodings, and not with a quality of 0."""
    for each in accepted.lower().split(",", ENCODINGS_MAX)[:ENCODINGS_MAX]:
        name, _, quality = each.partition(";")
        if name.strip() == "gzip":
            return quality.strip().removeprefix("q=").strip("0.") != "" or not quality.strip()
    return False


def relative(request: Request, path: str) -> str:
    """A link from the page that was asked for to another one, for proxies that add a prefix."""
    return "../" * (request.head.raw_path.count(b"/") - 1) + path.lstrip("/")
