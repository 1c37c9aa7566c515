"""The wiring: configuration -> store, core, sites, loops -> one running server."""

import asyncio
import gc
import logging
import sys
import textwrap
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import uvloop
from msgspec import Struct
from msgspec.structs import asdict, replace

from courier import files, sealing, serving, tls, traffic
from courier.admissions import Admissions
from courier.clock import Clock, SteadyClock, start_ms, wall_ns
from courier.clock_record import ClockRecord
from courier.config import Config, described, is_database
from courier.console import Console
from courier.console import Services as ConsoleServices
from courier.console.guard import Codes, Guard
from courier.core import duties
from courier.core.admin import Admin
from courier.core.announcer import Announcer
from courier.core.broker import Broker
from courier.core.duties import Duty
from courier.core.errors import BrokerError, Conflict, StoreUnavailable, Unavailable
from courier.core.follower import Follower
from courier.core.limits import API_WINDOW_MS, Limits, Rate
from courier.core.sealed import Sealer
from courier.core.signins import SignIns
from courier.core.store import Store
from courier.core.sweeper import Sweeper
from courier.core.types import BROKER, SECOND_MS, Consumer, Listener, Queue, Tenant
from courier.core.usage import Usage
from courier.core.watch import Watch
from courier.credentials import FIRST_TENANT, Credentials
from courier.delivery import feed, line
from courier.delivery.calls import BatchServices
from courier.delivery.liveness import LivenessNotes, PushServices
from courier.delivery.places import BadPlaces, Places
from courier.delivery.places import urls as worker_urls
from courier.delivery.room import PushRoom
from courier.delivery.runner import Runners, RunnerServices
from courier.delivery.secrets import Newcomers
from courier.delivery.slots import Slots
from courier.delivery.targets import BadNetwork, Rules, Targets, networks
from courier.delivery.transport import HttpTransport
from courier.delivery.verifier import DomainVerifier
from courier.dialects import anypoint, discue
from courier.dialects.anypoint.clients import AnypointAccess
from courier.dialects.anypoint.names import Regions
from courier.dialects.anypoint.site import AnypointServices
from courier.dialects.cloudflare import Cloudflare
from courier.dialects.cloudflare.identity import CloudflareAccess
from courier.dialects.cloudflare.sources import Events
from courier.dialects.discue.api_keys import DiscueAccess
from courier.dialects.discue.lockout import Lockout
from courier.dialects.discue.names import DiscueSpelling
from courier.dialects.discue.names import read as read_id
from courier.dialects.discue.site import DiscueServices
from courier.dialects.site import DocumentedSite, SiteServices
from courier.ops import Ops
from courier.ops.services import OpsServices
from courier.proxies import BadProxies, Proxies
from courier.proxies import networks as trusted_networks
from courier.steering import Steering
from courier.store.embedded import EmbeddedStore
from courier.telemetry import Telemetry, clock_metrics, set_up_logs, steering_metrics
from courier.web import App, Site

RECORD_EVERY_S = 1.0
PURGES_REST_S = 5.0
# What is decoded and rendered beside the event loop. The interpreter runs one thread at a time, so
# more of them would do no more work, but each would take its turn before the loop has one again.
WORK_THREADS = 1

log = logging.getLogger("courier")

# What the server keeps in its data directory, which may hold files of others.
OUR_FILES = ("courier.db*", "courier.reserve*", "credentials*", "encryption.*", "clock.*",
             "plans", "plans/*")  # fmt: skip


class Courier(Struct):
    """Everything that makes up one server, ready to be served."""

    app: App
    credentials: Credentials
    store: Store
    broker: Broker
    admin: Admin
    sweeper: Sweeper
    usage: Usage
    signins: SignIns
    clock: Clock
    runners: tuple[Runners[Listener], Runners[Consumer]]
    transport: HttpTransport
    verifier: DomainVerifier
    follower: Follower
    watch: Watch
    console: Console | None
    telemetry: Telemetry

    async def keep_counts(self, every_ms: int) -> None:
        """Write down what this process counts, now and then."""
        while True:
            await self.note_usage()
            await asyncio.sleep(every_ms / SECOND_MS)

    async def note_usage(self, *, early: bool = False) -> None:
        """Write down what was counted since the last time."""
        try:
            now_ms = self.clock.now_ms()
            await self.usage.flush(now_ms=now_ms)
            await self.signins.flush(self.store, now_ms=now_ms, early=early)
        except Unavailable as error:  # no reason to stop otherwise than planned
            log.warning("usage_not_noted", extra={"reason": str(error)})
        except Exception:
            log.exception("usage_not_noted")

    def duties(self) -> list[Duty]:
        """What one process of several does for all of them."""
        purges = Duty("purges", self.resume_purges, "purges_not_resumed", PURGES_REST_S, log)
        loops = (self.sweeper, self.verifier, self.follower, self.watch)
        return [purges, *(loop.duty() for loop in loops)]

    async def resume_purges(self) -> None:
        """Finish the purges that the end of the last process broke off."""
        for queue in self.store.records.scan(Queue):
            if queue.purge is None or queue.purge.completed:
                continue
            try:
                await self.broker.purge(queue, queue.purge, actor=BROKER)
                done = replace(queue.purge, completed=True)
                await self.admin.note_purge(queue, done, actor=BROKER)
            except BrokerError as error:  # deleted meanwhile, or no disk; others have their turn
                log.warning("purge_not_resumed", extra={"queue": queue.id, "reason": str(error)})


def sealer_of(config: Config) -> sealing.KeySealer:
    """Raises BadKey."""
    file = config.data / "encryption.key"
    return sealing.KeySealer(sealing.keys(config.encryption_keys, file=file))


async def open_store(config: Config) -> Store:
    if config.store == "memory":
        return await EmbeddedStore.open(None)
    if is_database(config.store):
        return await _open_shared(config)
    return await EmbeddedStore.open(
        config.data / "courier.db",
        sealer=sealer_of(config),
        cache_bytes=config.cache_bytes,
        commit_calls_max=config.commit_calls_max,
        commit_inline_ms_max=config.commit_inline_ms_max,
        disk_free_bytes_min=config.disk_free_bytes_min,
        check_at_start=config.check_at_start,
        accept_damage=config.accept_damage,
    )


async def _open_shared(config: Config) -> Store:
    if not config.encryption_keys:
        raise StoreUnavailable(
            "servers that share a database need the same keys: set encryption_keys, for example "
            f"to {sealing.new_key()}"
        )
    try:
        # Only who uses it has the driver installed.
        from courier.store.shared import SharedStore
    except ImportError as error:
        raise StoreUnavailable(
            "PostgreSQL needs a driver: pip install 'courier-mq[postgres]'"
        ) from error
    return await SharedStore.open(
        config.store, sealer=sealer_of(config), commit_calls_max=config.commit_calls_max
    )


def initialize(config: Config) -> dict[str, Any]:
    """Make the first tenant of a database that servers will share; its credentials.

    Leaves with status 1 when it has been made before, or cannot be.
    """
    try:
        return uvloop.run(_initialize(config))
    except (Conflict, Unavailable, sealing.BadKey, OSError) as error:
        sys.exit(f"courier: {error}")


async def _initialize(config: Config) -> dict[str, Any]:
    _prepare(config.data)
    store = await open_store(config)
    try:
        record = ClockRecord(config.data / "clock.json")
        clock = await _start_clock(store, record, config, steering(store, wall_ns), wall_ns)
        courier = build(store, config, clock, port=config.port)
        if store.records.scan(Tenant):
            raise Conflict("tenant", FIRST_TENANT)
        _, made = await courier.credentials.create_tenant(FIRST_TENANT)
        await courier.transport.close()
        return made
    finally:
        await store.close()


def serve(
    config: Config,
    opened: Callable[[Config], Coroutine[Any, Any, Store]] = open_store,
    wall_ns: Callable[[], int] = wall_ns,
) -> None:
    """Run until told to stop. Leaves with status 1 when the store cannot be opened."""
    set_up_logs(level=config.log_level, format=config.log_format)
    try:
        uvloop.run(_serve(config, opened, wall_ns))
    except (
        Unavailable,
        sealing.BadKey,
        BadNetwork,
        BadPlaces,
        BadProxies,
        tls.BadCertificate,
        serving.CannotListen,
        OSError,
    ) as error:
        sys.exit(f"courier: {error}")


def build(store: Store, config: Config, clock: SteadyClock, *, port: int) -> Courier:
    """Wire a server around a store."""
    telemetry = Telemetry(log_requests=config.log_requests)
    telemetry.collectors.append(partial(clock_metrics, clock))
    limits, sealer = _limits(config), sealer_of(config)
    broker = Broker(store, clock, limits, sealer)
    admin = Admin(store, clock, limits)
    announcer = Announcer(store, clock, broker.admission, Events())
    follower = Follower(store, admin, clock, announcer)
    services = SiteServices(reads=store, broker=broker, admin=admin, clock=clock, sealer=sealer)
    outgoing = _outgoing(services, store, telemetry, config)
    workers = feed.runners(outgoing.batches, stop_wait_ms=config.drain_wait_ms_max)
    usage = Usage(store.past)
    signins = SignIns(clock)
    url = config.url(port)
    credentials = credentials_file(admin, sealer, data=config.data, url=url, region=config.region)
    sweeper = _sweeper(store, clock, config)
    sites: list[Site] = [
        *_dialects(services, follower, usage, credentials, outgoing, config, url=url),
        _ops(services, telemetry, sweeper, credentials, announcer, outgoing, config),
    ]
    console = None
    if config.console:
        console = _console(services, store.secret, credentials, outgoing, config, url, sites)
        # The site at the root takes what no other one covers, so it is the last.
        sites.insert(len(sites) - 1, console)

    def drain() -> None:
        broker.drain()
        workers.drain()
        if console is not None:
            console.drain()

    app = App(
        sites,
        telemetry=telemetry,
        signins=signins,
        admissions=Admissions(store.records, clock),
        body_bytes_max=min(config.request_bytes_max, _traffic_limits(config).body_bytes_max),
        on_drain=drain,
        unseen=store.health.unseen,
    )
    return Courier(
        app,
        credentials,
        store,
        broker,
        admin,
        sweeper,
        usage,
        signins,
        clock,
        (line.runners(outgoing.pushes), workers),
        outgoing.transport,
        outgoing.verifier,
        follower,
        Watch(store, clock, announcer),
        console,
        telemetry,
    )


def _limits(config: Config) -> Limits:
    return Limits(
        queues_max=config.queues_max,
        queue_bytes_max=config.queue_bytes_max,
        queue_rate_max=config.queue_rate_max,
    )


def _sweeper(store: Store, clock: Clock, config: Config) -> Sweeper:
    return Sweeper(
        store,
        clock,
        every_ms=config.sweep_every_ms,
        batch_max=config.sweep_batch_max,
        journal_retention_ms=config.journal_retention_ms,
        journal_bytes_max=config.journal_bytes_max,
    )


class Outgoing(NamedTuple):
    """What calls out: pushes to listeners, batches to workers, looks at domains."""

    transport: HttpTransport
    verifier: DomainVerifier
    listener_urls: Rules
    pushes: PushServices
    batches: BatchServices


def _outgoing(
    services: SiteServices, store: Store, telemetry: Telemetry, config: Config
) -> Outgoing:
    admin = services.admin
    clock, sealer = services.clock, services.sealer
    placed = worker_urls(config.worker_urls, tenant=FIRST_TENANT)
    targets = Targets(networks(config.push_networks))
    listener_urls = Rules(targets, admin.domains if config.domains_required else None)
    transport = HttpTransport(targets, connections_max=config.pushes_max)
    probe_slots = Slots(config.pushes_max)
    verifier = DomainVerifier(store.records, admin.domains, transport, clock, probe_slots)
    shared = asdict(
        RunnerServices(
            store=store,
            broker=services.broker,
            clock=clock,
            transport=transport,
            slots=Slots(config.pushes_max),
            room=PushRoom(config.pushes_bytes_max),
        )
    )
    pushes = PushServices(
        **shared,
        listeners=admin.listeners,
        sealer=sealer,
        spelling=DiscueSpelling(),
        notes=LivenessNotes(admin.listeners),
        probe_slots=probe_slots,
        delay_percent=config.push_delay_percent,
        liveness_every_ms=config.liveness_every_ms,
        domains_required=config.domains_required,
    )
    batches = BatchServices(
        **shared,
        places=Places(store.records, store.secret, clock, sealer, placed),
        counts=telemetry,
        timeout_ms=config.worker_wait_ms_max,
    )
    return Outgoing(transport, verifier, listener_urls, pushes, batches)


def credentials_file(
    admin: Admin, sealer: Sealer, *, data: Path, url: str, region: str
) -> Credentials:
    """Each dialect has a part in it."""
    dialects = (
        CloudflareAccess(url),
        AnypointAccess(url, region=region, sealer=sealer),
        DiscueAccess(url),
    )
    return Credentials(admin, dialects, data=data)


def _dialects(
    services: SiteServices,
    follower: Follower,
    usage: Usage,
    credentials: Credentials,
    outgoing: Outgoing,
    config: Config,
    *,
    url: str,
) -> list[Site]:
    cloudflare = Cloudflare(
        services,
        follower,
        json_body_encoding=config.json_body_encoding,
        api_rate_max=config.api_rate_max,
    )
    for_anypoint = AnypointServices(
        **asdict(services), usage=usage, regions=Regions(config.region), url=url
    )
    for_discue = DiscueServices(
        **asdict(services),
        lockout=Lockout(),
        api_rate=Rate("the API", limit=config.api_rate_max, window_ms=API_WINDOW_MS),
        edit=asyncio.Lock(),
        url=url,
        tenants=credentials,
        verifier=outgoing.verifier,
        listener_urls=outgoing.listener_urls,
    )
    return [cloudflare, *anypoint.sites(for_anypoint), *discue.sites(for_discue)]


def _apis(sites: list[Site]) -> list[tuple[str, str]]:
    """The names of APIs, and where each is described; one that is at two places is named once."""
    found: dict[str, str] = {}
    for site in sites:
        if isinstance(site, DocumentedSite):
            name = site.title.removeprefix("Courier: ")
            found.setdefault(name, f"{site.prefix}{site.docs_path}/docs")
    return [*found.items()]


def _ops(
    services: SiteServices,
    telemetry: Telemetry,
    sweeper: Sweeper,
    credentials: Credentials,
    announcer: Announcer,
    outgoing: Outgoing,
    config: Config,
) -> Ops:
    for_ops = OpsServices(
        **asdict(services),
        telemetry=telemetry,
        sweeper=sweeper,
        credentials=credentials,
        places=outgoing.batches.places,
        announcer=announcer,
        pushes=outgoing.pushes,
        listener_urls=outgoing.listener_urls,
        journal_page_max=config.journal_page_max,
        metrics_public=config.metrics_public,
    )
    return Ops(for_ops, front="console" if config.console else "")


def _console(
    services: SiteServices,
    secret: bytes,
    credentials: Credentials,
    outgoing: Outgoing,
    config: Config,
    url: str,
    sites: list[Site],
) -> Console:
    return Console(
        ConsoleServices(
            services.reads,
            services.broker,
            services.admin,
            services.clock,
            Guard(secret, url),
            Codes(services.clock),
            greeting=credentials.examples,
            lines_of=credentials.examples_of,
            placed=outgoing.batches.places.set_urls,
            spelled=read_id,
            url=url,
            first_tenant=FIRST_TENANT,
            queue_bytes_max=config.queue_bytes_max,
            journal_bytes_max=config.journal_bytes_max,
            disk_free_bytes_min=config.disk_free_bytes_min,
            settings=described(config),
            plans=config.data / "plans",
            plans_bytes_max=config.plans_bytes_max,
            lake=str((config.data / "lake").resolve()),
            newcomers=Newcomers(services.sealer, outgoing.listener_urls, services.clock),
            apis=_apis(sites),
        )
    )


def _tune_collector() -> None:
    """Requests leave no cycles behind, so looking for them often finds nothing, at a price.

    Nor is it worth looking at what loading left behind, which is less than a megabyte: it stays.
    """
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    gc.enable()


def steering(store: Store, wall_ns: Callable[[], int]) -> Steering | None:
    """What takes the place of the wall clock, if the store has a clock that others share."""
    if store.health.ahead_ns() is None:
        return None
    return Steering(lambda: store.health.ahead_ns() or 0, wall_ns=wall_ns)


async def _start_clock(
    store: Store,
    record: ClockRecord,
    config: Config,
    steering: Steering | None,
    wall_ns: Callable[[], int],
) -> SteadyClock:
    def doubted(ahead_ms: int) -> None:
        store.doubt_ms = ahead_ms

    head = await store.journal.head()
    if steering is None:
        wall_ms = wall_ns() // 1_000_000
        begin_ms = start_ms(wall_ms=wall_ms, journal_ms=head.at_ms, record_ms=record.read())
    else:
        # The journal was written by the same clock.
        wall_ns = steering.now_ns
        begin_ms = max(wall_ns() // 1_000_000, head.at_ms)
    return SteadyClock(
        begin_ms, step_wait_ms=config.clock_step_wait_ms, doubted=doubted, wall_ns=wall_ns
    )


async def _keep_time(clock: Clock, record: ClockRecord, steering: Steering | None) -> None:
    """Keep the record of the clock up to date, for the next start."""
    while True:
        if steering is not None:
            steering.look()
        try:
            # Not in the thread, which may begin later.
            boot_ms = record.boot_ms(clock.now_ms())
            await asyncio.to_thread(record.keep, boot_ms)
        except OSError as error:
            log.warning("clock_not_recorded", extra={"reason": str(error)})
        await asyncio.sleep(RECORD_EVERY_S)


def _traffic_limits(config: Config) -> traffic.TrafficLimits:
    return traffic.TrafficLimits(
        connections_max=config.connections_max,
        connections_per_address_max=config.connections_per_address_max,
        header_bytes_max=config.header_bytes_max,
        header_wait_s=config.header_wait_ms_max / 1000,
        request_wait_s=config.request_wait_ms_max / 1000,
        idle_wait_s=config.idle_wait_ms_max / 1000,
        bodies_bytes_max=config.bodies_bytes_max,
        answers_bytes_max=config.answers_bytes_max,
    )


async def _serve(
    config: Config,
    opened: Callable[[Config], Coroutine[Any, Any, Store]],
    wall_ns: Callable[[], int],
) -> None:
    asyncio.get_running_loop().set_default_executor(
        ThreadPoolExecutor(WORK_THREADS, thread_name_prefix="courier-work")
    )
    certificate = tls.certificate(config.tls_certificate, config.tls_key)
    proxies = Proxies(trusted_networks(config.trusted_proxies))
    _prepare(config.data)
    store = await opened(config)
    try:
        record = ClockRecord(config.data / "clock.json")
        steered = steering(store, wall_ns)
        clock = await _start_clock(store, record, config, steered, wall_ns)
        with serving.listen(config.host, config.port) as listener:
            courier = build(store, config, clock, port=listener.getsockname()[1])
            if steered is not None:
                courier.telemetry.collectors.append(partial(steering_metrics, steered))
            await _first_start(courier, config)
            _welcome(config.url(listener.getsockname()[1]), courier)
            _tune_collector()
            server = serving.Server(
                courier.app,
                _traffic_limits(config),
                proxies=proxies,
                certificate=certificate,
                drain_wait_ms_max=config.drain_wait_ms_max,
            )
            async with _running(
                *(duties.run(duty, store, clock) for duty in courier.duties()),
                *(runners.run() for runners in courier.runners),
                courier.keep_counts(config.sweep_every_ms),
                _keep_time(clock, record, steered),
            ):
                await server.run(listener)
            await courier.note_usage(early=True)
            await courier.transport.close()
    finally:
        await store.close()
    log.info("stopped")


def _prepare(data: Path) -> None:
    """The data directory, and what is in it from before, are for their owner only."""
    files.make_directory(data)
    ours = (path for pattern in OUR_FILES for path in data.glob(pattern))
    if changed := files.tighten([data, *ours]):
        log.warning("files_tightened", extra={"directory": str(data), "count": changed})


@asynccontextmanager
async def _running(*loops: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Let the loops run meanwhile."""
    tasks = [asyncio.create_task(loop) for loop in loops]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _first_start(courier: Courier, config: Config) -> None:
    tenants = courier.store.records.scan(Tenant)
    if not tenants and is_database(config.store):
        raise StoreUnavailable(
            "this database has no tenant yet: run `courier init` with the same settings, once"
        )
    if not tenants:
        await courier.credentials.create_tenant(FIRST_TENANT)
    for tenant in tenants:
        await courier.credentials.refresh(tenant)


def _welcome(url: str, courier: Courier) -> None:
    """Print what a person needs next. Secrets are for a terminal: anything else may be a log."""
    path = courier.credentials.path(FIRST_TENANT)
    print(f"Courier is running on {url}")
    if path.exists() and not sys.stdout.isatty():
        print(f"Credentials are in {path}.")
    elif path.exists():
        print(f"Credentials are in {path}. Try, as a client of", end="")
        for place, (name, lines) in enumerate(courier.credentials.examples(FIRST_TENANT)):
            shown = textwrap.indent(lines, "  ")
            print(f"{'or of' if place else ''} {name}:\n\n{shown}\n")
    if courier.console is not None:
        made = courier.credentials.load() if path.exists() else {}
        token = made.get("admin", {}).get("token", "")
        if token and sys.stdout.isatty():
            print(f"Look at it, with this link, once: {courier.console.sign_in_url(token)}\n")
        else:
            print(f"The console is at {url}/console")
    sys.stdout.flush()
    log.info("started", extra={"url": url})
