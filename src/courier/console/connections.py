"""What messages go to and come from: workers, exchanges, event subscriptions and domains."""

import re

from msgspec import Struct
from msgspec.structs import asdict, replace

from courier import ids
from courier.console import Page, Redirect, Services, forms
from courier.console.queue import Problem
from courier.console.queues import NAME, NAME_RULE
from courier.core import news
from courier.core.domains import CONTEXT_PATH, new_domain
from courier.core.errors import Conflict, InvalidRequest, NotFound, OverLimit
from courier.core.types import (
    OPERATOR,
    Binding,
    Domain,
    EventSubscription,
    Exchange,
    Queue,
    Tenant,
    Worker,
)
from courier.web import Call, Handler

# Of each kind on the page.
SHOWN_MAX = 500
TITLE_CHARACTERS_MAX = 255
HOSTNAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{2,251}[A-Za-z0-9]", re.ASCII)
PORTS = (1, 65_535)


class WorkerRow(Struct):
    """`fixed`: the server's own settings say where it runs."""

    name: str
    url: str
    fixed: bool = False


class ExchangeRow(Struct):
    id: str
    name: str
    encrypted: bool
    bindings: int


class SubscriptionRow(Struct):
    id: str
    title: str
    queue: str
    queue_name: str
    source: str
    events: list[str]
    enabled: bool


class DomainRow(Struct):
    """To be verified it serves `content` at `url`."""

    id: str
    name: str
    host: str
    verified_ms: int
    url: str
    content: str


class ConnectionsFacts(Struct):
    """`made` is what was just made, with the secret that nobody sees again."""

    tenant: str
    workers: list[WorkerRow]
    exchanges: list[ExchangeRow]
    subscriptions: list[SubscriptionRow]
    domains: list[DomainRow]
    made: tuple[str, str] | None = None
    problem: Problem | None = None

    @property
    def sources(self) -> dict[str, tuple[str, ...]]:
        return news.SOURCES


class Connections:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._admin = services.admin
        self._records = services.store.records

    def handlers(self) -> dict[str, Handler]:
        return {"show_connections": self.show_connections, "connect": self.connect}

    async def show_connections(self, call: Call) -> Page:
        return Page("connections.html", self._facts(call))

    async def connect(self, call: Call) -> Page | Redirect:
        """Make or remove one. Raises InvalidRequest for what is no action of this page."""
        asked: forms.ConnectionForm = call.body
        if call.tenant == OPERATOR:
            raise InvalidRequest("tenant", "There is no tenant to change.")
        made: tuple[str, str] | None = None
        try:
            match asked.action:
                case "worker":
                    made = await self._put_worker(call, asked)
                case "exchange":
                    await self._put_exchange(call, asked)
                case "subscription":
                    await self._subscribe(call, asked)
                case "domain":
                    await self._add_domain(call, asked)
                case _:
                    await self._remove(call, asked)
        except (InvalidRequest, Conflict, OverLimit, NotFound) as error:
            return self._wrong(call, asked, error)
        if made is None:
            tenant = self._records.require(Tenant, call.tenant)
            return Redirect(f"/console/settings/connections?tenant={tenant.name}")
        facts = self._facts(call)
        facts.made = made
        return Page("connections.html", facts)

    def _wrong(
        self,
        call: Call,
        asked: forms.ConnectionForm,
        error: InvalidRequest | Conflict | OverLimit | NotFound,
    ) -> Page:
        facts = self._facts(call)
        invalid = isinstance(error, InvalidRequest)
        field = error.field if isinstance(error, InvalidRequest) else "name"
        says = error.reason if isinstance(error, InvalidRequest) else str(error)
        filled = {name: str(value) for name, value in asdict(asked).items()}
        facts.problem = Problem(asked.action, field, says, filled)
        return Page("connections.html", facts, 400 if invalid else 409)

    # --- making and removing ---

    async def _put_worker(self, call: Call, asked: forms.ConnectionForm) -> tuple[str, str]:
        name, newcomers = asked.name.strip(), self._services.newcomers
        worker = await self._admin.workers.put(
            call.tenant,
            name,
            lambda known: newcomers.worker(call.tenant, name, asked.url.strip(), known),
            actor=call.actor,
        )
        return f"worker {name}", newcomers.secret(worker)

    async def _put_exchange(self, call: Call, asked: forms.ConnectionForm) -> None:
        name = asked.name.strip()
        if not NAME.fullmatch(name):
            raise InvalidRequest("name", f"An exchange's name has {NAME_RULE}.")
        if self._records.named(Exchange, tenant=call.tenant, name=name):
            raise Conflict("exchange", name)
        await self._admin.put_exchange(
            call.tenant, name, encrypted=asked.encrypted, actor=call.actor
        )

    async def _subscribe(self, call: Call, asked: forms.ConnectionForm) -> None:
        known = news.SOURCES.get(asked.source)
        if known is None:
            raise InvalidRequest("source", f"'{asked.source[:40]}' is not one of the sources")
        wanted = [each for each in re.split(r"[,\s]+", asked.events) if each] or [*known]
        for each in wanted:
            if each not in known:
                says = f"'{each[:40]}' is not an event of {asked.source}: {', '.join(known)}"
                raise InvalidRequest("events", says)
        title = asked.name.strip()
        if not (1 <= len(title) <= TITLE_CHARACTERS_MAX and title.isprintable()):
            raise InvalidRequest("name", f"must have 1 to {TITLE_CHARACTERS_MAX} characters")
        queue = self._records.named(Queue, tenant=call.tenant, name=asked.queue.strip())
        if queue is None:
            raise InvalidRequest("queue", f"There is no queue '{asked.queue[:80]}'.")
        now_ms = self._services.clock.now_ms()
        since = (await self._services.store.journal.head()).last
        new = EventSubscription(
            id=ids.new_id(), tenant=call.tenant, parent=queue.id, created_ms=now_ms,
            modified_ms=now_ms, title=title, enabled=True, source={"type": asked.source},
            events=tuple(dict.fromkeys(wanted)), since=since,
        )  # fmt: skip
        await self._admin.put_subscription(
            call.tenant, None, lambda _: new, reach=call.reach, actor=call.actor
        )

    async def _add_domain(self, call: Call, asked: forms.ConnectionForm) -> None:
        hostname, port = asked.hostname.strip(), asked.port.strip()
        if not HOSTNAME.fullmatch(hostname):
            raise InvalidRequest("hostname", f"'{hostname[:80]}' is not the name of a host")
        low, high = PORTS
        if not (port.isascii() and port.isdigit() and len(port) < 6 and low <= int(port) <= high):
            raise InvalidRequest("port", f"'{port[:40]}' is not a number from {low} to {high}")
        domain = new_domain(
            tenant=call.tenant,
            name=asked.name.strip()[:TITLE_CHARACTERS_MAX] or hostname,
            hostname=hostname,
            port=int(port),
            now_ms=self._services.clock.now_ms(),
        )
        await self._admin.domains.create(domain, actor=call.actor)

    async def _remove(self, call: Call, asked: forms.ConnectionForm) -> None:
        tenant, target = call.tenant, asked.target
        match asked.action:
            case "remove_worker":
                await self._admin.workers.remove(tenant, target, actor=call.actor)
            case "remove_subscription":
                await self._admin.delete_subscription(tenant, target, actor=call.actor)
            case "switch_subscription":
                await self._admin.put_subscription(
                    tenant, target, _switched, reach=call.reach, actor=call.actor
                )
            case "remove_domain":
                await self._admin.domains.delete(tenant, target, actor=call.actor)
            case _:
                raise InvalidRequest("action", f"'{asked.action[:40]}' is not something to do here")

    # --- showing ---

    def _facts(self, call: Call) -> ConnectionsFacts:
        tenant = self._records.get(Tenant, call.tenant)
        workers = {
            name: WorkerRow(name, url, fixed=True)
            for name, url in self._services.placed(call.tenant).items()
        }
        for worker in self._records.scan(Worker, tenant=call.tenant):
            workers[worker.name] = WorkerRow(worker.name, worker.url)
        exchanges = self._records.scan(Exchange, tenant=call.tenant)[:SHOWN_MAX]
        subscriptions = self._records.scan(EventSubscription, tenant=call.tenant)[:SHOWN_MAX]
        domains = self._records.scan(Domain, tenant=call.tenant)[:SHOWN_MAX]
        return ConnectionsFacts(
            tenant.name if tenant else "",
            [workers[name] for name in sorted(workers)][:SHOWN_MAX],
            [self._exchange(each) for each in exchanges],
            [self._subscription(each) for each in subscriptions],
            [_domain(each) for each in domains],
        )

    def _exchange(self, each: Exchange) -> ExchangeRow:
        bindings = len(self._records.scan(Binding, parent=each.id))
        return ExchangeRow(each.id, each.name, each.encrypted, bindings)

    def _subscription(self, each: EventSubscription) -> SubscriptionRow:
        queue = self._records.get(Queue, each.parent)
        return SubscriptionRow(
            each.id, each.title, each.parent, queue.name if queue else "", each.source["type"],
            [*each.events], each.enabled,
        )  # fmt: skip


def _switched(known: EventSubscription | None) -> EventSubscription:
    assert known is not None, "found by its id"
    return replace(known, enabled=not known.enabled)


def _domain(each: Domain) -> DomainRow:
    plain = {80: "http", 443: "https"}.get(each.port, "")
    host = each.hostname if plain else f"{each.hostname}:{each.port}"
    url = f"{plain or 'https'}://{host}/{CONTEXT_PATH}/{each.file_name}"
    return DomainRow(
        each.id, each.name, f"{each.hostname}:{each.port}", each.verified_ms, url, each.file_content
    )
