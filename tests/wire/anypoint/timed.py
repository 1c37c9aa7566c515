"""The four APIs in this process, over a store in memory, with a clock that the test moves."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx

from courier.admissions import Admissions
from courier.app import credentials_file
from courier.clock import ManualClock
from courier.core.admin import Admin
from courier.core.broker import Broker
from courier.core.limits import Limits
from courier.core.signins import SignIns
from courier.core.store import Store
from courier.core.sweeper import Sweeper
from courier.core.usage import Usage
from courier.credentials import FIRST_TENANT, Credentials
from courier.dialects import anypoint
from courier.dialects.anypoint.names import Regions
from courier.dialects.anypoint.site import AnypointServices
from courier.sealing import KeySealer
from courier.store.embedded import EmbeddedStore
from courier.telemetry import Telemetry
from courier.web import App, BodyTooLong, Head, Request
from tests.wire.anypoint.environment import Environment, Tokens

# Sunday, 15 March 2026, 10:00:00 UTC: the beginning of an hour.
START_MS = 1_773_568_800_000
URL = "http://127.0.0.1:8787"
REGION = "us-east-1"
BODY_BYTES_MAX = 64 << 20
FOREVER_MS = 1 << 50


@dataclass(frozen=True)
class Timed:
    """An environment, what was written down for its owner, and the time there."""

    env: Environment
    anypoint: dict[str, Any]
    clock: ManualClock
    sweep: Callable[[], object]
    operator: Credentials
    runner: asyncio.Runner

    @property
    def now_ms(self) -> int:
        return self.clock.now_ms()

    def advance(
        self, *, seconds: float = 0, minutes: float = 0, hours: float = 0, days: float = 0
    ) -> None:
        """Let time pass, with a sweep at the end of it."""
        total_s = seconds + 60 * (minutes + 60 * (hours + 24 * days))
        self.clock.advance(round(total_s * 1_000))
        self.sweep()

    def pass_minutes(self, count: int) -> None:
        """Let time pass with a sweep every minute; a server sweeps whenever something is due."""
        for _ in range(count):
            self.advance(minutes=1)

    def log_in(self) -> Environment:
        """The environment with new tokens; the others last an hour."""
        return replace(self.env, tokens=Tokens.of(self.env.http, self.anypoint))

    def new_environment(self, name: str, *, beside: str = "") -> Environment:
        _, made = self.runner.run(self.operator.create_tenant(name, beside=beside))
        return Environment.of(self.env.http, made)


class _Patient:
    """A caller who waits for the answer."""

    gone = False
    on_gone: Callable[[], None] | None = None


class _Sent(Request):
    """A request that has arrived whole."""

    def __init__(self, sent: httpx.Request) -> None:
        path, _, query = sent.url.raw_path.partition(b"?")
        headers = {name.lower(): value for name, value in sent.headers.raw}
        super().__init__(Head(sent.method, path, query, headers), _Patient(), "127.0.0.1")
        self._body = sent.read()

    async def read(self, limit: int) -> bytes:
        if len(self._body) > limit:
            raise BodyTooLong(limit=limit, actual=len(self._body))
        return self._body


class _InProcess(httpx.BaseTransport):
    """Hands requests to the application as the server would."""

    def __init__(self, app: App, runner: asyncio.Runner) -> None:
        self._app = app
        self._runner = runner

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        found = self._runner.run(self._app.respond(_Sent(request)))
        assert found is not None and found.stream is None, "these APIs answer at once"
        headers = [(b"content-type", found.content_type), *found.headers]
        return httpx.Response(found.status, headers=headers, content=bytes(found.body))


@contextmanager
def timed(data: Path) -> Iterator[Timed]:
    """Over a store in memory; time begins on START_MS."""
    with asyncio.Runner() as runner:
        store: Store = runner.run(EmbeddedStore.open(None))
        with _client(store, runner, data) as made:
            yield made
        runner.run(store.close())


@contextmanager
def _client(store: Store, runner: asyncio.Runner, data: Path) -> Iterator[Timed]:
    clock = ManualClock(START_MS)
    sealer = KeySealer([bytes(range(32))])
    limits = Limits()
    broker = Broker(store, clock, limits, sealer)
    admin = Admin(store, clock, limits)
    usage = Usage(store.past)
    sweeper = Sweeper(
        store,
        clock,
        every_ms=1_000,
        batch_max=1_000,
        journal_retention_ms=FOREVER_MS,
        journal_bytes_max=1 << 40,
    )
    services = AnypointServices(
        reads=store,
        broker=broker,
        admin=admin,
        clock=clock,
        sealer=sealer,
        usage=usage,
        regions=Regions(REGION),
        url=URL,
    )
    app = App(
        anypoint.sites(services),
        telemetry=Telemetry(log_requests=False),
        signins=SignIns(clock),
        admissions=Admissions(store.records, clock),
        body_bytes_max=BODY_BYTES_MAX,
        on_drain=broker.drain,
    )
    credentials = credentials_file(admin, sealer, data=data, url=URL, region=REGION)
    _, made = runner.run(credentials.create_tenant(FIRST_TENANT))
    with httpx.Client(base_url=URL, transport=_InProcess(app, runner)) as http:
        yield Timed(
            env=Environment.of(http, made),
            anypoint=made["anypoint"],
            clock=clock,
            sweep=lambda: runner.run(sweeper.turn()),
            operator=credentials,
            runner=runner,
        )
