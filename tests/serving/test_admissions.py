"""Requests that are let through from memory, beside an application that remembers nothing."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from courier import app as server
from courier import ids
from courier.admissions import (
    ADMISSIONS_MAX,
    PLACE_CHARACTERS_MAX,
    PROOF_CHARACTERS_MAX,
    Admissions,
    RememberedAdmission,
)
from courier.clock import SteadyClock
from courier.config import Config
from courier.core import keys
from courier.core.records import decided
from courier.core.signins import SignIns
from courier.core.types import BROKER, SECOND_MS, Grant, Key, Listener, Queue, Record, Session
from courier.dialects.discue import names
from courier.store.embedded import EmbeddedStore
from courier.telemetry import Telemetry
from courier.web import App, Head, Request, Route, Site
from tests.routes import tables

START_MS = 1_773_568_800_000
REGION = "us-east-1"
MESSAGE_SCOPES = ("messages:publish", "messages:consume")


class Ticks:
    ns = 0

    def elapsed_ns(self) -> int:
        return self.ns

    def wall_ns(self) -> int:
        return START_MS * 1_000_000 + self.ns

    def advance(self, ms: int) -> None:
        self.ns += ms * 1_000_000


class Gone:
    """A caller who does not wait."""

    gone = True
    on_gone: Callable[[], None] | None = None


class Sent(Request):
    def __init__(
        self, method: str, path: str, headers: dict[str, str], remote: str = "192.0.2.1"
    ) -> None:
        raw, _, query = path.encode().partition(b"?")
        spelled = {name.lower().encode(): value.encode() for name, value in headers.items()}
        super().__init__(Head(method, raw, query, spelled), Gone(), remote)

    async def read(self, limit: int) -> bytes:
        return b"{}"


class Forgetful(Admissions):
    def find(self, place: Any, proof: Any) -> RememberedAdmission | None:
        return None

    def holds(self, known: RememberedAdmission) -> bool:
        return False


class Watched(Admissions):
    """Counts what it has let through."""

    hits = 0

    def holds(self, known: RememberedAdmission) -> bool:
        held = super().holds(known)
        self.hits += held
        return held


@dataclass
class World:
    """One tenant with two queues, on a server that remembers and on one that does not."""

    runner: asyncio.Runner
    store: EmbeddedStore
    ticks: Ticks
    clock: SteadyClock
    sites: list[Site]
    made: dict[str, Any]
    ours: Queue
    others: Queue
    listeners: dict[str, Listener]
    admissions: Watched
    app: App
    forgetful: App
    heads: dict[Any, Head]

    def new_key(self, *targets: str, kind: Any = "token") -> tuple[Key, str]:
        """A key for messages of these queues, or of all."""
        grants = tuple(Grant(scope, targets) for scope in keys.WRITE)
        key, secret = keys.new_key(
            tenant=self.ours.tenant, name=ids.new_id(), grants=grants, now_ms=START_MS, kind=kind
        )
        self.put(key)
        return key, secret

    def new_queue(self, queue: Queue) -> None:
        listener = Listener(
            id=ids.new_id(),
            tenant=queue.tenant,
            parent=queue.id,
            name=f"{queue.id}/listener",
            title="listener",
            created_ms=START_MS,
            modified_ms=START_MS,
            url="http://127.0.0.1:9/",
            liveness_url="http://127.0.0.1:9/",
            disabled_by="user",
        )
        self.put(queue, listener)
        self.listeners[queue.id] = listener

    def put(self, *records: Record) -> None:
        self.runner.run(
            self.store.change(decided(puts=records), actor=BROKER, now_ms=self.clock.now_ms())  # type: ignore[arg-type]
        )

    def drop(self, *records: Record) -> None:
        self.runner.run(
            self.store.change(decided(drops=records), actor=BROKER, now_ms=self.clock.now_ms())  # type: ignore[arg-type]
        )

    def credential(self, site: Site, key: Key, secret: str) -> dict[str, str]:
        """What to show that site for the key."""
        if site.name == "discue":
            return {"X-API-KEY": secret}
        if site.name == "anypoint":
            sessions = self.sessions()
            token = self.runner.run(sessions.open(key, actor=BROKER))
            return {"Authorization": f"Bearer {token}", "Host": "127.0.0.1"}
        return {"Authorization": f"Bearer {secret}"}

    def sessions(self) -> Any:
        return next(site for site in self.sites if site.name == "anypoint")._sessions  # type: ignore[attr-defined]

    def path(self, site: Site, route: Route, queue: Queue) -> str:
        own = self.made["anypoint"]
        values = {
            "account_id": queue.tenant,
            "queue_id": names.shown(queue.id) if site.name == "discue" else queue.id,
            "organizationId": own["organization_id"],
            "environmentId": own["environment_id"],
            "destinationId": queue.name,
            # A name of another thing must be no more than a message's name where it stands for one.
            "messageId": self.others.name,
            "lockId": "lock",
            "message_id": names.shown(ids.new_id()),
            "listener_id": names.shown(self.listeners[queue.id].id),
        }
        return site.prefix + route.path.format_map(values) + "?pollingTime=0"

    def ask(self, app: App, sent: Sent) -> int:
        """The status of the answer to those who are let in, negative to others.

        Requests that begin alike share a head, as those of connections do.
        """
        head = sent.head
        spelling = (app, head.method, head.raw_path, head.query_string, *head.headers.items())
        sent.head = self.heads.setdefault(spelling, head)
        answer = self.runner.run(app.respond(sent))
        assert answer is not None
        assert sent.admitted or answer.status in (400, 401, 403, 404)
        return answer.status if sent.admitted else -answer.status

    def both(self, route: Route, path: str, headers: dict[str, str]) -> tuple[int, int]:
        return (
            self.ask(self.app, Sent(route.method, path, headers)),
            self.ask(self.forgetful, Sent(route.method, path, headers)),
        )


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    ticks = Ticks()
    clock = SteadyClock(
        START_MS, step_wait_ms=0, wall_ns=ticks.wall_ns, elapsed_ns=ticks.elapsed_ns
    )
    config = Config(data=tmp_path_factory.mktemp("admissions"), region=REGION)
    with asyncio.Runner() as runner:
        store = runner.run(EmbeddedStore.open(None))

        async def built() -> server.Courier:
            return server.build(store, config, clock, port=1)

        courier = runner.run(built())
        tenant, made = runner.run(courier.credentials.create_tenant("default"))

        def new_queue(name: str) -> Queue:
            return Queue(
                id=ids.new_id(),
                tenant=tenant.id,
                name=name,
                created_ms=START_MS,
                modified_ms=START_MS,
            )

        def new_app(admissions: Admissions) -> App:
            return App(
                courier.app.sites,
                telemetry=Telemetry(),
                signins=SignIns(clock),
                admissions=admissions,
                body_bytes_max=1 << 20,
                on_drain=lambda: None,
            )

        ours, others = new_queue("ours"), new_queue("others")
        watched = Watched(store.records, clock)
        found = World(
            *(runner, store, ticks, clock, courier.app.sites, made, ours, others, {}),
            *(watched, new_app(watched), new_app(Forgetful(store.records, clock)), {}),
        )
        found.new_queue(ours)
        found.new_queue(others)
        yield found
        runner.run(courier.transport.close())
        runner.run(store.close())


def is_remembered(site: Site, route: Route) -> bool:
    return route.scope in MESSAGE_SCOPES and route.reach == "target" and site.name in DIALECTS


DIALECTS = ("cloudflare", "anypoint", "discue")


def every_route(world: World) -> list[tuple[Site, Route]]:
    return [(site, route) for site in world.sites for route in site.routes()]


def remembered(world: World) -> list[tuple[Site, Route]]:
    return [(site, route) for site, route in every_route(world) if is_remembered(site, route)]


def let_in(world: World, site: Site, route: Route, path: str, headers: dict[str, str]) -> None:
    """Twice: the second time from memory, if it has one for it."""
    for _ in range(2):
        one, other = world.both(route, path, headers)
        assert one > 0 and other > 0, (site.name, route.method, route.path)


def test_message_routes_of_every_dialect_are_remembered_and_no_others(world: World) -> None:
    seen = set()
    for site, route in every_route(world):
        mounted = next(each for each in world.app._mounted if each.site is site)
        place = mounted.find(route.method, site.prefix + route.path, 1).place
        asked = Sent(route.method, "/", {"Authorization": "x", "X-Api-Key": "x"})
        remembers = place is not None and site.proof(asked.head) is not None
        assert remembers == is_remembered(site, route), (site.name, route.method, route.path)
        seen |= {site.name} if remembers else set()
    assert seen == {*DIALECTS}


def test_what_is_asked_again_is_let_through_from_memory(world: World) -> None:
    for site, route in remembered(world):
        key, secret = world.new_key(kind="app" if site.name == "anypoint" else "token")
        headers = world.credential(site, key, secret)
        path = world.path(site, route, world.ours)
        let_in(world, site, route, path, headers)
        before = world.admissions.hits
        let_in(world, site, route, path, headers)
        assert world.admissions.hits == before + 2, (site.name, route.method, route.path)


def changes() -> dict[str, Callable[[World, Key], None]]:
    """What ends an admission of a key to a queue."""

    def limited(world: World, key: Key) -> None:
        grants = tuple(Grant(each.scope, (world.others.id,)) for each in key.grants)
        world.put(msgspec.structs.replace(key, grants=grants))

    def rotated(world: World, key: Key) -> None:
        new, _ = keys.rotated(key, now_ms=world.clock.now_ms(), overlap_ms=0)
        world.put(new)
        for session in world.store.records.scan(Session, parent=key.id):
            world.drop(session)

    def retired(world: World, key: Key) -> None:
        """As a rotation leaves it: sessions end with the secret that they were opened with."""
        now_ms = world.clock.now_ms()
        new, _ = keys.rotated(key, now_ms=now_ms, overlap_ms=400)
        ended = [
            msgspec.structs.replace(session, ends_ms=now_ms + 400)
            for session in world.store.records.scan(Session, parent=key.id)
        ]
        world.put(new, *ended)

    def expiring(world: World, key: Key) -> None:
        world.put(msgspec.structs.replace(key, expires_ms=world.clock.now_ms() + 400))

    return {
        "disabled": lambda world, key: world.put(msgspec.structs.replace(key, enabled=False)),
        "deleted": lambda world, key: world.drop(key),
        "without grants": lambda world, key: world.put(msgspec.structs.replace(key, grants=())),
        "limited to another queue": limited,
        "another secret": rotated,
        "secret retired": retired,
        "expiring": expiring,
    }


@pytest.mark.parametrize("change", list(changes()))
def test_no_route_lets_a_key_in_that_was_changed_meanwhile(world: World, change: str) -> None:
    for site, route in remembered(world):
        key, secret = world.new_key(kind="app" if site.name == "anypoint" else "token")
        headers = world.credential(site, key, secret)
        path = world.path(site, route, world.ours)
        let_in(world, site, route, path, headers)
        changes()[change](world, key)
        if change in ("secret retired", "expiring"):
            # It works until it ends, and is remembered meanwhile, but not a moment longer.
            let_in(world, site, route, path, headers)
            world.ticks.advance(399)
            let_in(world, site, route, path, headers)
            world.ticks.advance(1)
        one, other = world.both(route, path, headers)
        assert one == other < 0, (site.name, route.method, route.path, one)


def test_a_queue_that_is_deleted_or_renamed_is_not_found_any_more(world: World) -> None:
    for site, route in remembered(world):
        key, secret = world.new_key(kind="app" if site.name == "anypoint" else "token")
        headers = world.credential(site, key, secret)
        queue = msgspec.structs.replace(world.ours, id=ids.new_id(), name=f"q-{ids.new_id()}")
        world.new_queue(queue)
        path = world.path(site, route, queue)
        let_in(world, site, route, path, headers)
        world.drop(queue)
        one, other = world.both(route, path, headers)
        assert one == other == -404, (site.name, route.method, route.path, one)


def test_a_limited_key_gets_no_further_by_what_was_remembered(world: World) -> None:
    """Neither with a queue's name in the place of a message's, nor the other way round."""
    for site, route in remembered(world):
        key, secret = world.new_key(
            world.ours.id, kind="app" if site.name == "anypoint" else "token"
        )
        headers = world.credential(site, key, secret)
        ours, others = (world.path(site, route, queue) for queue in (world.ours, world.others))
        let_in(world, site, route, ours, headers)
        for path in (others, others.replace("others", "ours", 1).replace("ours", "others")):
            one, other = world.both(route, path, headers)
            assert one == other < 0, (site.name, route.method, route.path, one)


def test_another_credential_or_none_gets_in_by_its_own_right_only(world: World) -> None:
    for site, route in remembered(world):
        kind = "app" if site.name == "anypoint" else "token"
        key, secret = world.new_key(kind=kind)
        stranger, other_secret = world.new_key(world.others.id, kind=kind)
        headers = world.credential(site, key, secret)
        path = world.path(site, route, world.ours)
        let_in(world, site, route, path, headers)
        [(name, value)] = [each for each in headers.items() if each[0] != "Host"]
        shown: list[dict[str, str]] = [
            {},
            {name: ""},
            {name: value[:-1]},
            {name: value + "x"},
            {name: value.swapcase()},
            {"X-Auth-Key": ""},
            {name: "", "X-Auth-Key": value.removeprefix("Bearer ")},
            world.credential(site, stranger, other_secret),
        ]
        for headers in shown:
            one, other = world.both(route, path, headers)
            assert one == other < 0, (site.name, route.path, headers, one)


def test_a_refusal_is_never_remembered(world: World) -> None:
    for site, route in remembered(world):
        key, secret = world.new_key(kind="app" if site.name == "anypoint" else "token")
        headers = world.credential(site, key, secret)
        path = world.path(site, route, world.ours)
        world.put(msgspec.structs.replace(key, grants=()))
        before = world.admissions.hits
        assert {world.both(route, path, headers)[0] for _ in range(3)} == {-403}
        assert world.admissions.hits == before
        world.put(key)
        let_in(world, site, route, path, headers)


def test_who_asked_is_the_one_who_asks_now(world: World) -> None:
    """The address of a remembered caller is that of its last request."""
    site, route = next(each for each in remembered(world) if each[1].operation == "pull")
    _, secret = world.new_key()
    headers = {"Authorization": f"Bearer {secret}"}
    path = world.path(site, route, world.ours)
    seen = []

    async def handler(call: Any) -> None:
        seen.append((call.actor.address, call.request.key.id, call.queue.id))

    spied = msgspec.structs.replace(route, handler=handler)

    class Spied:
        def __getattr__(self, name: str) -> Any:
            return getattr(site, name)

        def routes(self) -> list[Route]:
            return [spied]

    app = App(
        [Spied()],
        telemetry=Telemetry(),
        signins=SignIns(world.clock),
        admissions=Watched(world.store.records, world.clock),
        body_bytes_max=1 << 20,
        on_drain=lambda: None,
    )
    for remote in ("192.0.2.1", "192.0.2.2", "192.0.2.1"):
        world.ask(app, Sent(route.method, path, headers, remote))
    assert [address for address, _, _ in seen] == ["192.0.2.1", "192.0.2.2", "192.0.2.1"]
    assert {queue for _, _, queue in seen} == {world.ours.id}


def test_requests_that_differ_in_a_name_alone_share_a_head_where_it_admits_nobody(
    world: World,
) -> None:
    """And each is about its own name; where the name decides, or is a route, none is shared."""
    shared = set()
    for site, route in remembered(world):
        if not route.path.endswith("}"):
            continue
        key, secret = world.new_key(kind="app" if site.name == "anypoint" else "token")
        path = world.path(site, route, world.ours).partition("?")[0]
        sent = Sent(route.method, path, world.credential(site, key, secret))
        answer = world.runner.run(world.app.respond(sent))
        assert answer is not None and sent.head.seldom
        if sent.head.names is None:
            continue
        shared.add((site.name, route.method, route.path.rpartition("/")[2]))
        assert "locks" in sent.head.names
        again = Sent(route.method, "/", {})
        again.head, again.name = sent.head, "another"
        world.runner.run(world.app.respond(again))
        assert again.admitted and again.params == {**sent.params, "messageId": "another"}
        assert again.path == path.rpartition("/")[0] + "/another"
    assert shared == {("anypoint", "PUT", "{messageId}"), ("anypoint", "DELETE", "{messageId}")}


def test_sessions_are_prolonged_and_requests_counted_all_the_same(world: World) -> None:
    site, route = next(
        (site, route)
        for site, route in remembered(world)
        if site.name == "anypoint" and route.operation == "publish"
    )
    key, secret = world.new_key(kind="app")
    headers = world.credential(site, key, secret)
    path = world.path(site, route, world.ours)
    usage = site._usage  # type: ignore[attr-defined]
    usage._requests.clear()
    for _ in range(90):
        let_in(world, site, route, path, headers)
        world.ticks.advance(60 * SECOND_MS)
    assert usage._requests[world.ours.tenant] == 90 * 4
    world.ticks.advance(61 * 60 * SECOND_MS)
    assert world.both(route, path, headers) == (-401, -401)


def test_long_paths_and_credentials_are_not_remembered(world: World) -> None:
    admissions = Watched(world.store.records, world.clock)
    key, _ = world.new_key()

    class Decided:
        who, tenant, queue, decided, held = None, "t", None, True, keys.Reach("messages:publish")

    call: Any = Decided()
    call.key = key
    version = admissions.version
    admissions.keep(("p",), b"x" * PROOF_CHARACTERS_MAX, call, version=version, until_ms=None)
    admissions.keep(("p",), b"x" * (PROOF_CHARACTERS_MAX + 1), call, version=version, until_ms=None)
    assert len(admissions._known) == 1
    for number in range(2 * ADMISSIONS_MAX):
        admissions.keep((number,), b"x", call, version=version, until_ms=None)
    assert len(admissions._known) <= ADMISSIONS_MAX
    # By settings that have changed since, or of a call about which nothing was decided.
    admissions.keep(("late",), b"x", call, version=version - 1, until_ms=None)
    call.decided = False
    admissions.keep(("open",), b"x", call, version=version, until_ms=None)
    assert admissions.find(("late",), b"x") is admissions.find(("open",), b"x") is None
    assert PLACE_CHARACTERS_MAX >= 512


def test_every_site_says_what_it_goes_by(tmp_path: Path) -> None:
    """One that remembers nothing needs no more than to say so."""
    asked = Sent("GET", "/", {"Authorization": "a", "X-Api-Key": "b", "X-Auth-Key": "c"})
    proofs = {site.name: site.proof(asked.head) for site, _ in tables(tmp_path)}
    assert {name for name, proof in proofs.items() if proof is None} == {"console", "courier"}
