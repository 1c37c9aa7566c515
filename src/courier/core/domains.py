"""Domains: hosts that tenants show to be their own, by serving a file there."""

from typing import Protocol

from msgspec.structs import replace

from courier import ids
from courier.core.decider import Decider
from courier.core.errors import OverLimit
from courier.core.records import Change, Records
from courier.core.types import BROKER, DAY_MS, Actor, Domain

DOMAINS_MAX = 1_000
CHALLENGE_MS = 7 * DAY_MS
# Below this path of the host the file is looked for.
CONTEXT_PATH = ".well-known/queue-challenge"


class Verifier(Protocol):
    async def verify(self, domain: Domain) -> Domain:
        """Look for the file now; the domain as it is afterwards."""
        ...


def new_domain(*, tenant: str, name: str, hostname: str, port: int, now_ms: int) -> Domain:
    """A domain with a challenge that its owner has still to meet."""
    return Domain(
        id=ids.new_id(),
        tenant=tenant,
        name=name,
        created_ms=now_ms,
        modified_ms=now_ms,
        hostname=hostname.lower(),
        port=port,
        file_name=ids.new_id(),
        file_content=ids.new_secret(),
        challenged_ms=now_ms,
        expires_ms=now_ms + CHALLENGE_MS,
    )


def renewed(domain: Domain, now_ms: int) -> Domain:
    """With another challenge, if the domain has neither met its own nor any time left for it."""
    if domain.verified_ms or now_ms < domain.expires_ms:
        return domain
    return replace(
        domain,
        file_name=ids.new_id(),
        file_content=ids.new_secret(),
        challenged_ms=now_ms,
        expires_ms=now_ms + CHALLENGE_MS,
    )


class Domains(Decider):
    def get(self, tenant: str, id: str) -> Domain:
        return self._records.require(Domain, id, tenant=tenant)

    def covers(self, tenant: str, hostname: str, port: int) -> bool:
        """Whether the tenant claims that place, be it verified or not."""
        domains = self._records.scan(Domain, tenant=tenant)
        return any((each.hostname, each.port) == (hostname, port) for each in domains)

    async def create(self, domain: Domain, *, actor: Actor) -> None:
        def decide(records: Records) -> Change[None]:
            count = records.count(Domain, tenant=domain.tenant) + 1
            if count > DOMAINS_MAX:
                raise OverLimit("domains", limit=DOMAINS_MAX, actual=count)
            return Change(puts=[domain])

        await self._change(decide, actor=actor)

    async def update(self, tenant: str, id: str, *, name: str | None, actor: Actor) -> Domain:
        """Give it another name; a challenge that has run out is renewed on the occasion."""

        def decide(records: Records) -> Change[Domain]:
            known = records.require(Domain, id, tenant=tenant)
            now_ms = self._clock.now_ms()
            domain = renewed(known, now_ms)
            if name is not None:
                domain = replace(domain, name=name)
            if domain == known:
                return Change(answer=known)
            domain = replace(domain, modified_ms=now_ms)
            return Change(puts=[domain], answer=domain)

        return await self._change(decide, actor=actor)

    async def note_verified(self, domain: Domain) -> Domain:
        """The file was found. A domain that has another challenge by now stays as it is."""

        def decide(records: Records) -> Change[Domain]:
            known = records.require(Domain, domain.id, tenant=domain.tenant)
            if known.verified_ms or known.file_content != domain.file_content:
                return Change(answer=known)
            verified = replace(known, verified_ms=self._clock.now_ms())
            return Change(puts=[verified], answer=verified)

        return await self._change(decide, actor=BROKER)

    async def delete(self, tenant: str, id: str, *, actor: Actor) -> None:
        def decide(records: Records) -> Change[None]:
            return Change(drops=[records.require(Domain, id, tenant=tenant)])

        await self._change(decide, actor=actor)
