"""What the operator sees and sets of the server itself: its settings, tenants, keys, readers."""

import re
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from courier import __version__
from courier.console import Page, Services, forms
from courier.console.facts import Facts
from courier.console.queue import Problem
from courier.console.rules import ServerFacts
from courier.core import keys
from courier.core.errors import InvalidRequest
from courier.core.types import OPERATOR, Exchange, Key, KeyUse, Queue, Tenant, Worker
from courier.web import Call, Handler

KEYS_SHOWN_MAX = 500
WORKERS_SHOWN_MAX = 500
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", re.ASCII)
TARGETS_MAX = 100


class KeyRow(Struct):
    id: str
    name: str
    kind: str
    hint: str
    scopes: list[str]
    targets: list[str]
    created_ms: int
    expires_ms: int | None
    enabled: bool
    operator: bool
    own: bool
    used_ms: int | None = None


class ServerPage(Struct):
    version: str
    url: str
    server: ServerFacts
    offsets: tuple[int, int]
    settings: list[tuple[str, str, str, str]]
    workers: list[tuple[str, str]]
    apis: list[tuple[str, str]]


class TenantRow(Struct):
    name: str
    id: str
    created_ms: int
    queues: int
    keys: int


class Tenants(Struct):
    tenants: list[TenantRow]


class Keys(Struct):
    """`made` is a key that was just created, with the secret that nobody sees again.

    `lines` are first requests with it, to each API that it opens.
    """

    tenant: str
    tenants: list[str]
    rows: list[KeyRow]
    more: int
    made: tuple[str, str] | None = None
    lines: list[tuple[str, str]] = []
    problem: Problem | None = None


class SettingsPages:
    def __init__(self, services: Services, facts: Facts) -> None:
        self._services = services
        self._store = services.store
        self._records = services.store.records
        self._facts = facts

    def handlers(self) -> dict[str, Handler]:
        return {
            "show_server": self.show_server,
            "show_tenants": self.show_tenants,
            "show_keys": self.show_keys,
            "create_key": self.create_key,
        }

    async def show_server(self, call: Call) -> Page:
        head = await self._store.journal.head()
        workers = self._records.scan(Worker, tenant=call.tenant)
        facts = ServerPage(
            __version__,
            self._services.url,
            await self._facts.server(),
            (head.first, head.last),
            self._services.settings,
            [(each.name, each.url) for each in workers[:WORKERS_SHOWN_MAX]],
            self._services.apis,
        )
        return Page("server.html", facts)

    async def show_tenants(self, call: Call) -> Page:
        rows = []
        for tenant in self._facts.tenants():
            queues = len(self._records.scan(Queue, tenant=tenant.id))
            held = len(self._records.scan(Key, tenant=tenant.id))
            rows.append(TenantRow(tenant.name, tenant.id, tenant.created_ms, queues, held))
        return Page("tenants.html", Tenants(rows))

    # --- keys ---

    async def show_keys(self, call: Call) -> Page:
        return Page("keys.html", self._keys(call))

    def _keys(self, call: Call) -> Keys:
        tenant = self._records.get(Tenant, call.tenant)
        found = self._records.scan(Key, tenant=OPERATOR)
        if call.tenant != OPERATOR:
            found = [*self._records.scan(Key, tenant=call.tenant), *found]
        assert call.key is not None
        own = call.key.id
        rows = [self._row(each, own) for each in found[:KEYS_SHOWN_MAX]]
        tenants = [each.name for each in self._facts.tenants()]
        more = max(0, len(found) - KEYS_SHOWN_MAX)
        return Keys(tenant.name if tenant else "", tenants, rows, more)

    def _row(self, key: Key, own: str) -> KeyRow:
        targets = dict.fromkeys(target for grant in key.grants for target in grant.targets)
        named = [
            self._records.get(Queue, id) or self._records.get(Exchange, id)
            for id in [*targets][:TARGETS_MAX]
        ]
        return KeyRow(
            key.id,
            key.name,
            key.kind,
            key.hint,
            [grant.scope for grant in key.grants],
            [each.name for each in named if each],
            key.created_ms,
            key.expires_ms,
            key.enabled,
            key.tenant == OPERATOR,
            key.id == own,
            use.at_ms if (use := self._records.get(KeyUse, key.id)) else None,
        )

    async def create_key(self, call: Call) -> Page:
        """The page once more, with the secret on it."""
        asked: forms.NewKey = call.body
        try:
            key, secret = await self._create(call, asked)
        except InvalidRequest as error:
            facts = self._keys(call)
            facts.problem = Problem("key", error.field, error.reason, asdict(asked))
            return Page("keys.html", facts, 400)
        facts = self._keys(call)
        facts.made = (key.name, secret)
        facts.lines = self._services.lines_of(key, secret)
        return Page("keys.html", facts)

    async def _create(self, call: Call, asked: forms.NewKey) -> tuple[Key, str]:
        if call.tenant == OPERATOR:
            raise InvalidRequest("name", "There is no tenant to make a key for.")
        if not NAME.fullmatch(asked.name):
            raise InvalidRequest(
                "name", "A key's name has 1 to 63 letters, digits, dots, dashes and underscores."
            )
        targets = [self._target(call.tenant, name) for name in _names(asked.targets)]
        grants = keys.grants(_names(asked.scopes) or ["read"], tuple(targets))
        return await self._services.admin.create_key(
            tenant=call.tenant,
            name=asked.name,
            grants=grants,
            kind="connected_app" if asked.kind == "connected_app" else "token",
            actor=call.actor,
        )

    def _target(self, tenant: str, name: str) -> str:
        found: Any = self._records.named(Queue, tenant=tenant, name=name)
        found = found or self._records.named(Exchange, tenant=tenant, name=name)
        if found is None:
            raise InvalidRequest("targets", f"There is no queue or exchange '{name[:80]}'.")
        return str(found.id)


def _names(text: str) -> list[str]:
    names = [each.strip() for each in text.replace(" ", ",").split(",")]
    found = [each for each in names if each]
    if len(found) > TARGETS_MAX:
        raise InvalidRequest("targets", f"at most {TARGETS_MAX} can be named here")
    return found
