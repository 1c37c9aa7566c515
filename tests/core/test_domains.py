"""Domains: claimed, renamed, given another challenge, verified, deleted."""

import pytest
from msgspec.structs import replace

from courier import ids
from courier.core.domains import CHALLENGE_MS, DOMAINS_MAX, Domains, new_domain
from courier.core.errors import Conflict, NotFound, OverLimit
from courier.core.records import decided
from courier.core.types import DAY_MS, Domain
from tests.core.desk import CALLER, OTHER, TENANT, CoreDesk


class Desk(CoreDesk):
    @property
    def domains(self) -> Domains:
        return self.admin.domains

    def create(
        self,
        name: str = "home",
        hostname: str = "App.example",
        port: int = 443,
        tenant: str = TENANT,
    ) -> Domain:
        domain = new_domain(
            tenant=tenant, name=name, hostname=hostname, port=port, now_ms=self.clock.now_ms()
        )
        self.run(self.domains.create(domain, actor=CALLER))
        return domain

    def known(self, domain: Domain) -> Domain:
        return self.domains.get(domain.tenant, domain.id)

    def update(self, domain: Domain, name: str | None = None) -> Domain:
        return self.run(self.domains.update(domain.tenant, domain.id, name=name, actor=CALLER))

    def covers(self, hostname: str, port: int, tenant: str = TENANT) -> bool:
        return self.domains.covers(tenant, hostname, port)

    def verified(self, domain: Domain) -> Domain:
        return self.run(self.domains.note_verified(domain))


def test_a_new_domain_has_a_week_for_its_challenge(desk: Desk) -> None:
    domain, other = desk.create(), desk.create("other")
    now_ms = desk.clock.now_ms()
    assert desk.known(domain) == domain
    assert (domain.challenged_ms, domain.expires_ms) == (now_ms, now_ms + 7 * DAY_MS)
    assert domain.verified_ms == 0
    assert domain.file_name != other.file_name
    assert domain.file_content != other.file_content
    assert len(domain.file_content) >= 40


def test_a_domain_covers_one_port_of_one_host_of_one_tenant(desk: Desk) -> None:
    desk.create(hostname="App.Example", port=8443)
    assert desk.covers("app.example", 8443)
    assert not desk.covers("app.example", 443)
    assert not desk.covers("www.app.example", 8443)
    assert not desk.covers("example", 8443)
    assert not desk.covers("app.example", 8443, OTHER)


def test_another_tenants_domain_is_not_there(desk: Desk) -> None:
    domain = desk.create()
    with pytest.raises(NotFound):
        desk.domains.get(OTHER, domain.id)
    with pytest.raises(NotFound):
        desk.run(desk.domains.update(OTHER, domain.id, name="mine", actor=CALLER))
    with pytest.raises(NotFound):
        desk.run(desk.domains.delete(OTHER, domain.id, actor=CALLER))
    assert desk.known(domain) == domain


def test_a_name_is_taken_once(desk: Desk) -> None:
    first = desk.create("home")
    with pytest.raises(Conflict):
        desk.create("home")
    desk.create("home", tenant=OTHER)
    second = desk.create("away")
    with pytest.raises(Conflict):
        desk.update(second, "home")
    desk.update(first, "gone")
    assert desk.update(second, "home").name == "home"


def test_there_is_a_limit_to_the_domains_of_a_tenant(desk: Desk) -> None:
    domain = desk.create()
    more: list[Domain] = [
        replace(domain, id=ids.new_id(), name=f"no-{number}") for number in range(DOMAINS_MAX - 1)
    ]
    desk.run(desk.store.change(decided(puts=more), actor=CALLER, now_ms=desk.clock.now_ms()))
    with pytest.raises(OverLimit):
        desk.create("one-more")
    desk.create(tenant=OTHER)
    desk.run(desk.domains.delete(TENANT, domain.id, actor=CALLER))
    desk.create("one-more")


def test_a_challenge_is_renewed_once_it_has_run_out(desk: Desk) -> None:
    domain = desk.create()
    desk.clock.advance(CHALLENGE_MS - 1)
    renamed = desk.update(domain, "other")
    assert renamed == replace(domain, name="other", modified_ms=desk.clock.now_ms())
    desk.clock.advance(1)
    now_ms = desk.clock.now_ms()
    renewed = desk.update(domain)
    assert renewed.name == "other"
    assert (renewed.challenged_ms, renewed.expires_ms) == (now_ms, now_ms + CHALLENGE_MS)
    assert renewed.file_name != domain.file_name
    assert renewed.file_content != domain.file_content
    assert desk.update(domain) == renewed == desk.known(domain)


def test_a_verified_domain_stays_so(desk: Desk) -> None:
    domain = desk.create()
    desk.clock.advance(5)
    verified = desk.verified(domain)
    assert verified == replace(domain, verified_ms=desk.clock.now_ms()) == desk.known(domain)
    desk.clock.advance(2 * CHALLENGE_MS)
    assert desk.verified(domain) == verified
    assert desk.update(domain) == verified


def test_what_met_an_old_challenge_verifies_nothing(desk: Desk) -> None:
    domain = desk.create()
    desk.clock.advance(CHALLENGE_MS)
    renewed = desk.update(domain)
    assert desk.verified(domain) == renewed == desk.known(domain)
    assert desk.verified(renewed).verified_ms


def test_a_deleted_domain_is_gone(desk: Desk) -> None:
    domain = desk.create()
    desk.run(desk.domains.delete(TENANT, domain.id, actor=CALLER))
    assert not desk.covers(domain.hostname, domain.port)
    with pytest.raises(NotFound):
        desk.verified(domain)
    with pytest.raises(NotFound):
        desk.known(domain)
