"""When a domain's host is looked at. What is found there is tested over HTTP, with the dialect."""

import asyncio
import socket
from collections import Counter
from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from courier.core.domains import CHALLENGE_MS, new_domain
from courier.core.types import HOUR_MS, MINUTE_MS, SECOND_MS, Domain
from courier.delivery.slots import Slots, Turn
from courier.delivery.targets import Targets, networks
from courier.delivery.transport import HttpTransport
from courier.delivery.verifier import LOOKS_MAX, DomainVerifier, looks_due
from tests.core.desk import CALLER, OTHER, TENANT, CoreDesk
from tests.delivery.receiver import closed_port

PORT = closed_port()
CONNECTIONS_MAX = 100


class Counting(DomainVerifier):
    """Counts the looks at each domain."""

    times: Counter[str]

    async def verify(self, domain: Domain) -> Domain:
        self.times[domain.id] += 1
        return await super().verify(domain)


class Watch(CoreDesk):
    """A verifier whose domains are at a port where nobody answers."""

    def __init__(self, runner: asyncio.Runner) -> None:
        super().__init__(runner)
        self.domains = self.admin.domains
        self.transport = self.run(self._transport())
        self.slots = Slots(CONNECTIONS_MAX)
        self.restart_verifier()

    async def _transport(self) -> HttpTransport:
        return HttpTransport(Targets(networks("127.0.0.0/8")), connections_max=CONNECTIONS_MAX)

    def restart_verifier(self) -> None:
        """Forget what is not in the store."""
        self.verifier = Counting(
            self.store.records, self.domains, self.transport, self.clock, self.slots
        )
        self.times = self.verifier.times = Counter()

    def create(self, name: str = "home", *, tenant: str = TENANT, port: int = PORT) -> Domain:
        domain = new_domain(
            tenant=tenant, name=name, hostname="127.0.0.1", port=port, now_ms=self.clock.now_ms()
        )
        self.run(self.domains.create(domain, actor=CALLER))
        return domain

    def turn(self) -> int:
        return self.run(self.verifier.turn())

    def looks(self, ms: int, *, step_ms: int) -> list[int]:
        """Let time pass; after how long there was a look."""
        began_ms = self.clock.now_ms()
        found = []
        while self.clock.now_ms() < began_ms + ms:
            self.clock.advance(step_ms)
            if self.turn():
                found.append(self.clock.now_ms() - began_ms)
        return found


@pytest.fixture
def watch() -> Iterator[Watch]:
    with asyncio.Runner() as runner:
        watch = Watch(runner)
        yield watch
        watch.run(watch.transport.close())


def test_a_new_domain_is_looked_at_soon_and_often(watch: Watch) -> None:
    watch.create()
    assert watch.turn() == 0
    at_s = [ms // SECOND_MS for ms in watch.looks(5 * MINUTE_MS, step_ms=SECOND_MS)]
    assert at_s == [10, 70, 130, 190, 250]


def test_one_that_keeps_its_owner_waiting_is_looked_at_less_often(watch: Watch) -> None:
    domain = watch.create()
    looks = [ms // MINUTE_MS for ms in watch.looks(2 * HOUR_MS, step_ms=MINUTE_MS)]
    assert looks == [*range(1, 61), 75, 90, 105, 120]
    # Courier makes up for nothing that it missed.
    watch.clock.advance(domain.expires_ms - watch.clock.now_ms() - 1)
    assert watch.turn() == 1
    assert watch.turn() == 0


def test_a_challenge_that_has_run_out_is_looked_at_no_more(watch: Watch) -> None:
    domain = watch.create()
    watch.clock.advance(CHALLENGE_MS)
    assert watch.turn() == 0
    watch.run(watch.domains.update(TENANT, domain.id, name=None, actor=CALLER))
    assert watch.turn() == 0
    watch.clock.advance(10 * SECOND_MS)
    assert watch.turn() == 1


def test_a_renewed_challenge_begins_anew(watch: Watch) -> None:
    domain = watch.create()
    watch.clock.advance(CHALLENGE_MS - 1)
    assert watch.turn() == 1  # the last of many hundred
    watch.clock.advance(1)
    watch.run(watch.domains.update(TENANT, domain.id, name=None, actor=CALLER))
    at_s = [ms // SECOND_MS for ms in watch.looks(2 * MINUTE_MS, step_ms=SECOND_MS)]
    assert at_s == [10, 70]


def test_a_verified_domain_is_looked_at_no_more(watch: Watch) -> None:
    domain = watch.create()
    watch.run(watch.domains.note_verified(domain))
    assert watch.looks(HOUR_MS, step_ms=MINUTE_MS) == []


def test_a_deleted_domain_is_looked_at_no_more(watch: Watch) -> None:
    domain = watch.create()
    watch.clock.advance(10 * SECOND_MS)
    assert watch.turn() == 1
    watch.run(watch.domains.delete(TENANT, domain.id, actor=CALLER))
    assert watch.looks(HOUR_MS, step_ms=MINUTE_MS) == []


def test_so_many_are_looked_at_at_once(watch: Watch) -> None:
    for number in range(LOOKS_MAX + 5):
        watch.create(f"no-{number}")
    watch.clock.advance(10 * SECOND_MS)
    assert [watch.turn() for _ in range(3)] == [LOOKS_MAX, 5, 0]


def test_many_domains_of_one_tenant_hold_up_no_other(watch: Watch) -> None:
    for number in range(5 * LOOKS_MAX):
        watch.create(f"no-{number}")
    other = watch.create(tenant=OTHER)
    watch.clock.advance(10 * SECOND_MS)
    watch.turn()
    assert watch.times[other.id] == 1


def test_more_than_can_be_looked_at_are_looked_at_in_turn(watch: Watch) -> None:
    """Each turn takes as long as the slowest of its looks, and meanwhile all are due again."""
    domains = [watch.create(f"no-{number}") for number in range(3 * LOOKS_MAX)]
    for _ in range(9):
        watch.clock.advance(MINUTE_MS)
        watch.turn()
    assert {watch.times[domain.id] for domain in domains} == {3}


def test_looks_at_hosts_that_hang_leave_connections_for_others(watch: Watch) -> None:
    """However many one tenant asks for at once."""
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(CONNECTIONS_MAX)
        port = deaf.getsockname()[1]
        hung = [watch.create(f"hung-{n}", port=port) for n in range(CONNECTIONS_MAX + 10)]

        async def other() -> None:
            looks = [asyncio.create_task(watch.verifier.verify(domain)) for domain in hung]
            await asyncio.sleep(0.5)
            async with asyncio.timeout(1), Turn(watch.slots, tenant=OTHER, queue=""):
                result = await watch.transport.get(f"http://127.0.0.1:{PORT}/", timeout_ms=900)
            for look in looks:
                look.cancel()
            await asyncio.gather(*looks, return_exceptions=True)
            assert "refused" in result.error

        watch.run(other())


def test_after_a_start_every_open_domain_is_looked_at_once(watch: Watch) -> None:
    watch.create()
    watch.looks(HOUR_MS, step_ms=10 * MINUTE_MS)
    assert watch.turn() == 0
    watch.restart_verifier()
    assert [watch.turn(), watch.turn()] == [1, 0]


def test_nobody_there_verifies_nothing(watch: Watch) -> None:
    domain = watch.create()
    assert watch.run(watch.verifier.verify(domain)) == domain
    verified = replace(domain, verified_ms=1)
    assert watch.run(watch.verifier.verify(verified)) == verified


def test_no_look_is_due_before_the_first() -> None:
    assert looks_due(1_000, 0) == looks_due(0, 0) == looks_due(0, 9_999) == 0
    assert looks_due(0, 10_000) == looks_due(0, 69_999) == 1
