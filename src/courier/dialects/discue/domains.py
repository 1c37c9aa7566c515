"""Domains: hosts that an organization shows to be its own."""

import re

from msgspec import UNSET, Struct, UnsetType

from courier.core.domains import CONTEXT_PATH, new_domain
from courier.core.errors import InvalidRequest
from courier.core.types import Domain
from courier.dialects.discue import names
from courier.dialects.discue.site import DiscueFamily, Success
from courier.dialects.discue.wire import PAGING, Named, page
from courier.web import Call, Route

HOSTNAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{2,251}[A-Za-z0-9]", re.ASCII)
_PORTS = (80, 443)
_PORT_FROM, _PORT_TO = 1024, 65_535
_DOMAINS = "/domains"
_DOMAIN = _DOMAINS + "/{domain_id}"


class DomainBody(Named):
    hostname: str | UnsetType = UNSET
    port: int | UnsetType = UNSET


class Challenge(Struct):
    context_path: str
    file_name: str
    file_content: str
    created_at: int
    expires_at: int


class Challenges(Struct):
    https: Challenge


class Verification(Struct):
    verified: bool
    verified_at: int


class DomainMember(Struct):
    id: str
    name: str
    alias: str
    hostname: str
    port: int
    challenge: Challenges
    verification: Verification


class DomainAnswer(Struct):
    domain: DomainMember


class DomainsAnswer(Struct):
    domains: list[DomainMember]


class DomainRoutes(DiscueFamily):
    family = "domains"

    def routes(self) -> list[Route]:
        return [
            Route("GET", _DOMAINS, self.list_domains, "domains:read", "listed", "List domains",
                  result=DomainsAnswer, query=PAGING),
            Route("POST", _DOMAINS, self.create_domain, "domains:write", "whole", "Create a domain",
                  body=DomainBody, result=DomainAnswer),
            Route("PUT", _DOMAINS, self.create_domain, "domains:write", "whole", "Create a domain",
                  body=DomainBody, described=False),
            Route("GET", _DOMAIN, self.get_domain, "domains:read", "target", "Get a domain",
                  result=DomainAnswer),
            Route("PUT", _DOMAIN, self.update_domain, "domains:write", "target", "Rename a domain",
                  body=DomainBody, body_optional=True, result=DomainAnswer),
            Route("DELETE", _DOMAIN, self.delete_domain, "domains:write", "target",
                  "Delete a domain"),
            Route("POST", _DOMAIN + "/verify", self.verify_domain, "domains:write", "target",
                  "Look at once whether the host serves the file", result=DomainAnswer),
        ]  # fmt: skip

    async def list_domains(self, call: Call) -> Success:
        within = call.reach
        found = [
            each for each in self._records.scan(Domain, tenant=call.tenant) if each.id in within
        ]
        shown, links = page(found, call.request, _DOMAINS)
        links += [(each.name, names.shown(each.id), _path(each)) for each in shown]
        return Success({"domains": [_member(each) for each in shown]}, _DOMAINS, links)

    async def create_domain(self, call: Call) -> Success:
        body: DomainBody = call.body
        name = body.required()
        if body.hostname is UNSET:
            raise InvalidRequest("hostname", "is required")
        if body.port is UNSET:
            raise InvalidRequest("port", "is required")
        if not HOSTNAME.fullmatch(body.hostname):
            raise InvalidRequest(
                "hostname",
                "must have 4 to 253 letters, digits, dots and hyphens, first and last a letter "
                "or digit",
            )
        if body.port not in _PORTS and not _PORT_FROM <= body.port <= _PORT_TO:
            raise InvalidRequest("port", f"must be 80, 443 or {_PORT_FROM} to {_PORT_TO}")
        domain = new_domain(
            tenant=call.tenant,
            name=name,
            hostname=body.hostname,
            port=body.port,
            now_ms=self._clock.now_ms(),
        )
        await self._admin.domains.create(domain, actor=call.actor)
        return _answer(domain)

    async def get_domain(self, call: Call) -> Success:
        return _answer(self._domain(call))

    async def update_domain(self, call: Call) -> Success:
        body: DomainBody = call.body
        known = self._domain(call)
        if body.hostname is not UNSET and body.hostname.lower() != known.hostname:
            raise InvalidRequest("hostname", f"is {known.hostname} and cannot be changed")
        if body.port is not UNSET and body.port != known.port:
            raise InvalidRequest("port", f"is {known.port} and cannot be changed")
        domain = await self._admin.domains.update(
            call.tenant, known.id, name=body.chosen(), actor=call.actor
        )
        return _answer(domain)

    async def delete_domain(self, call: Call) -> Success:
        domain = self._domain(call)
        await self._admin.domains.delete(call.tenant, domain.id, actor=call.actor)
        return Success({}, _DOMAINS)

    async def verify_domain(self, call: Call) -> Success:
        known = self._domain(call)
        # One that has run out is renewed, so that its owner knows what to put there now.
        domain = await self._admin.domains.update(
            call.tenant, known.id, name=None, actor=call.actor
        )
        return _answer(await self._services.verifier.verify(domain))

    def _domain(self, call: Call) -> Domain:
        return self._admin.domains.get(call.tenant, names.read(call.params["domain_id"]))


def _answer(domain: Domain) -> Success:
    return Success({"domain": _member(domain)}, _path(domain))


def _path(domain: Domain) -> str:
    return f"{_DOMAINS}/{names.shown(domain.id)}"


def _member(domain: Domain) -> DomainMember:
    return DomainMember(
        id=names.shown(domain.id),
        name=domain.name,
        alias=domain.name,
        hostname=domain.hostname,
        port=domain.port,
        challenge=Challenges(
            Challenge(
                context_path=CONTEXT_PATH,
                file_name=domain.file_name,
                file_content=domain.file_content,
                created_at=domain.challenged_ms,
                expires_at=domain.expires_ms,
            )
        ),
        verification=Verification(bool(domain.verified_ms), domain.verified_ms),
    )
