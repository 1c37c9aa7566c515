"""Looking whether a domain's host serves the file that its tenant was asked to put there."""

import asyncio
import logging
from collections import Counter
from typing import NamedTuple

from courier.clock import Clock
from courier.core.domains import CONTEXT_PATH, Domains
from courier.core.duties import Duty
from courier.core.errors import BrokerError
from courier.core.records import Records
from courier.core.types import HOUR_MS, MINUTE_MS, SECOND_MS, Domain
from courier.delivery.slots import Slots, Turn
from courier.delivery.transport import Transport

FIRST_LOOK_MS = 10 * SECOND_MS
OFTEN_EVERY_MS = MINUTE_MS
OFTEN_FOR_MS = HOUR_MS
LATER_EVERY_MS = 15 * MINUTE_MS
LOOK_TIMEOUT_MS = 10 * SECOND_MS
LOOKS_MAX = 20
TURN_EVERY_S = 1.0
_HTTP_PORT = 80
_NEWLINES = (b"", b"\n", b"\r\n")

log = logging.getLogger("courier.delivery")


def looks_due(challenged_ms: int, now_ms: int) -> int:
    """How many looks at a domain are due by now, if there was one whenever it was time."""
    since_ms = now_ms - challenged_ms
    if since_ms < FIRST_LOOK_MS:
        return 0
    often = 1 + (min(since_ms, OFTEN_FOR_MS) - FIRST_LOOK_MS) // OFTEN_EVERY_MS
    return often + max(0, since_ms - OFTEN_FOR_MS) // LATER_EVERY_MS


class _Looked(NamedTuple):
    """How often this challenge was looked for, and when the domain was last looked at."""

    challenge: str = ""
    looks: int = 0
    at_ms: int = 0


class DomainVerifier:
    """Looks at a new domain soon and often, at one that keeps its owner waiting less often.

    `slots` are those of probes: looks are made with the same connections.
    """

    def __init__(
        self, records: Records, domains: Domains, transport: Transport, clock: Clock, slots: Slots
    ) -> None:
        self._records = records
        self._domains = domains
        self._transport = transport
        self._clock = clock
        self._slots = slots
        self._looked: dict[str, _Looked] = {}

    async def verify(self, domain: Domain) -> Domain:
        """Look for the file now; the domain as it is afterwards."""
        if domain.verified_ms:
            return domain
        scheme = "http" if domain.port == _HTTP_PORT else "https"
        place = f"{scheme}://{domain.hostname}:{domain.port}"
        url = f"{place}/{CONTEXT_PATH}/{domain.file_name}"
        turn = Turn(self._slots, tenant=domain.tenant, queue=domain.id)
        try:
            async with turn:
                result = await self._transport.get(url, timeout_ms=LOOK_TIMEOUT_MS)
        finally:
            turn.close()
        content = domain.file_content.encode()
        if result.ok and result.body in [content + newline for newline in _NEWLINES]:
            return await self._domains.note_verified(domain)
        return self._domains.get(domain.tenant, domain.id)

    def duty(self) -> Duty:
        async def turn() -> float:
            await self.turn()
            return TURN_EVERY_S

        return Duty("domains", turn, "domains_not_seen", TURN_EVERY_S, log)

    async def turn(self) -> int:
        """Look at domains whose time has come, a limited number at once; how many those were."""
        now_ms = self._clock.now_ms()
        open_ = [
            domain
            for domain in self._records.scan(Domain)
            if not domain.verified_ms and now_ms < domain.expires_ms
        ]
        known = {domain.id for domain in open_}
        self._looked = {id: looked for id, looked in self._looked.items() if id in known}
        due = self._first([domain for domain in open_ if self._due(domain, now_ms)])
        for domain in due:
            looks = looks_due(domain.challenged_ms, now_ms)
            self._looked[domain.id] = _Looked(domain.file_name, looks, now_ms)
        await asyncio.gather(*(self._look(domain) for domain in due))
        return len(due)

    def _first(self, due: list[Domain]) -> list[Domain]:
        """As many as may be looked at: of each tenant in turn the one that has waited the longest.

        Or hosts that hang would keep others from ever being looked at.
        """
        counts: Counter[str] = Counter()
        ranked: list[tuple[int, Domain]] = []
        for domain in sorted(due, key=lambda each: self._looked.get(each.id, _Looked()).at_ms):
            ranked.append((counts[domain.tenant], domain))
            counts[domain.tenant] += 1
        ranked.sort(key=lambda each: each[0])
        return [domain for _, domain in ranked[:LOOKS_MAX]]

    def _due(self, domain: Domain, now_ms: int) -> bool:
        looked = self._looked.get(domain.id, _Looked())
        looks = looked.looks if looked.challenge == domain.file_name else 0
        return looks_due(domain.challenged_ms, now_ms) > looks

    async def _look(self, domain: Domain) -> None:
        try:
            await self.verify(domain)
        except BrokerError as error:
            log.warning("domain_not_verified", extra={"domain": domain.id, "reason": str(error)})
