"""The Discue API in this process, over a store of its own, with a clock that the test moves."""

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import httpx

from courier.admissions import Admissions
from courier.app import credentials_file
from courier.clock import ManualClock
from courier.core.admin import Admin
from courier.core.broker import Broker
from courier.core.limits import Limits, Rate
from courier.core.signins import SignIns
from courier.core.store import Store
from courier.credentials import FIRST_TENANT, Credentials
from courier.delivery.slots import Slots
from courier.delivery.targets import Rules, Targets, networks
from courier.delivery.transport import HttpTransport
from courier.delivery.verifier import DomainVerifier
from courier.dialects import discue
from courier.dialects.discue.lockout import Lockout
from courier.dialects.discue.site import DiscueServices
from courier.sealing import KeySealer
from courier.store.embedded import EmbeddedStore
from courier.telemetry import Telemetry
from courier.web import App
from tests.clients.discue import DiscueClient
from tests.wire.anypoint.timed import _InProcess

T = TypeVar("T")

# Sunday, 15 March 2026, 10:00:00 UTC: the beginning of an hour.
START_MS = 1_773_568_800_000
URL = "http://127.0.0.1:8787"
SECOND_MS = 1_000
MINUTE_MS = 60 * SECOND_MS
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS


@dataclass(frozen=True)
class Timed:
    """An organization, the time there, and a way to make others."""

    client: DiscueClient
    clock: ManualClock
    store: Store
    operator: Credentials
    runner: asyncio.Runner

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(call)

    def new_organization(self, name: str) -> DiscueClient:
        _, made = self.run(self.operator.create_tenant(name))
        return DiscueClient(self.client.http, made["discue"]["api_key"])


@contextmanager
def timed(data: Path) -> Iterator[Timed]:
    """Over a store in memory; time begins on START_MS."""
    with asyncio.Runner() as runner:
        store: Store = runner.run(EmbeddedStore.open(None))
        transport = runner.run(_transport())
        with _client(store, transport, runner, data) as made:
            yield made
        runner.run(transport.close())
        runner.run(store.close())


def _targets() -> Targets:
    return Targets(networks("127.0.0.0/8"))


async def _transport() -> HttpTransport:
    return HttpTransport(_targets(), connections_max=10)


@contextmanager
def _client(
    store: Store, transport: HttpTransport, runner: asyncio.Runner, data: Path
) -> Iterator[Timed]:
    clock = ManualClock(START_MS)
    sealer = KeySealer([bytes(range(32))])
    limits = Limits()
    broker = Broker(store, clock, limits, sealer)
    admin = Admin(store, clock, limits)
    credentials = credentials_file(admin, sealer, data=data, url=URL, region="us-east-1")
    services = DiscueServices(
        reads=store,
        broker=broker,
        admin=admin,
        clock=clock,
        sealer=sealer,
        lockout=Lockout(),
        api_rate=Rate("the API", limit=0),
        edit=asyncio.Lock(),
        url=URL,
        tenants=credentials,
        verifier=DomainVerifier(store.records, admin.domains, transport, clock, Slots(100)),
        listener_urls=Rules(_targets(), None),
    )
    app = App(
        discue.sites(services),
        telemetry=Telemetry(log_requests=False),
        signins=SignIns(clock),
        admissions=Admissions(store.records, clock),
        body_bytes_max=1 << 20,
        on_drain=broker.drain,
    )
    _, made = runner.run(credentials.create_tenant(FIRST_TENANT))
    with httpx.Client(base_url=URL, transport=_InProcess(app, runner)) as http:
        client = DiscueClient(http, made["discue"]["api_key"])
        yield Timed(client, clock, store, credentials, runner)
