"""Whether a listener seems to be there, from how its probes and pushes went; and its probes.

pending --ok--> stable <--ok-- unstable <--ok-- inactive
   |               |              | ^               ^
   '----failed-----'---failed-----+-'               |
                                  '-- third in a row, or five pushes without any answer
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Literal

from msgspec.structs import replace

from courier import ids
from courier.core.errors import BrokerError
from courier.core.types import MINUTE_MS, SECOND_MS, Listener, Liveness
from courier.delivery.services import PushServices
from courier.delivery.slots import Turn

FAILURES_MAX = 3
UNANSWERED_MAX = 5
PROBE_TIMEOUT_MS = 5 * SECOND_MS
# The first look at a new listener comes this much sooner than the next ones.
FIRST_PROBE_PART = 10
IDLE_PROBE_FACTOR = 10
SAVE_EVERY_MS = MINUTE_MS

log = logging.getLogger("courier.delivery")


def probed(known: Liveness, *, ok: bool, now_ms: int, why: str = "") -> Liveness:
    if ok:
        return replace(
            known,
            state="unstable" if known.state == "inactive" else "stable",
            in_row=0,
            success_count=known.success_count + 1,
            last_success_ms=now_ms,
        )
    in_row = known.in_row + 1
    state: Literal["unstable", "inactive"] = "unstable"
    if known.state == "inactive" or in_row >= FAILURES_MAX:
        state = "inactive"
    return replace(
        known,
        state=state,
        in_row=in_row,
        failure_count=known.failure_count + 1,
        last_failure_ms=now_ms,
        last_failure=why,
    )


def silent(known: Liveness, *, now_ms: int, why: str) -> Liveness:
    """Enough pushes in a row got no answer: the next ones wait for a good probe."""
    return replace(known, state="inactive", last_failure_ms=now_ms, last_failure=why)


class Prober:
    """`changed` is called when the listener's state is another: with what it was before."""

    def __init__(
        self, services: PushServices, id: str, changed: Callable[[Liveness], None]
    ) -> None:
        self._services = services
        self._id = id
        self._changed = changed
        self._known: Liveness | None = None
        self._saved_ms = 0
        self._turn: Turn | None = None

    def known(self, listener: Listener) -> Liveness:
        if self._known is None:
            self._known = self._services.store.records.get(Liveness, listener.id) or Liveness(
                id=listener.id,
                tenant=listener.tenant,
                parent=listener.id,
                created_ms=listener.created_ms,
            )
        return self._known

    def silent(self, listener: Listener, why: str) -> None:
        """Too many requests in a row got no answer at all."""
        known = self.known(listener)
        if known.state != "inactive":
            now_ms = self._services.clock.now_ms()
            self._note(known, silent(known, now_ms=now_ms, why=why))

    async def run(self) -> None:
        """Until cancelled: often while messages are waiting, and else now and then."""
        every_s = self._services.liveness_every_ms / SECOND_MS
        wait_s, rest = every_s / FIRST_PROBE_PART, 0
        try:
            while True:
                await asyncio.sleep(wait_s * (0.9 + 0.2 * ids.luck()))
                wait_s, rest = every_s, rest - 1
                try:
                    if rest < 0 or await self._are_waiting():
                        rest = IDLE_PROBE_FACTOR - 1
                        await self._probe()
                except BrokerError as error:
                    log.warning("probe_failed", extra={"listener": self._id, "reason": str(error)})
                except Exception:
                    log.exception("probe_failed", extra={"listener": self._id})
        finally:
            if self._turn is not None:
                self._turn.close()

    async def _are_waiting(self) -> bool:
        """Whether there are messages that the listener has still to get."""
        now_ms = self._services.clock.now_ms()
        stats = await self._services.store.pushes.stats([self._id], now_ms=now_ms)
        return self._id in stats and stats[self._id].open > 0

    async def _probe(self) -> None:
        services = self._services
        listener = services.store.records.get(Listener, self._id)
        if listener is None or listener.disabled_by:
            return
        if self._turn is None:
            self._turn = Turn(services.probe_slots, tenant=listener.tenant, queue=listener.parent)
        async with self._turn:
            result = await services.transport.get(
                listener.liveness_url, timeout_ms=PROBE_TIMEOUT_MS
            )
        why = result.error or f"answered {result.status}"
        known = self.known(listener)
        now_ms = services.clock.now_ms()
        self._note(known, probed(known, ok=result.ok, now_ms=now_ms, why=why))

    def _note(self, known: Liveness, new: Liveness) -> None:
        """Remember it; write it down when it says something new, or now and then."""
        self._known = new
        now_ms = self._services.clock.now_ms()
        if new.state != known.state:
            self._changed(known)
        elif now_ms - self._saved_ms < SAVE_EVERY_MS:
            return
        self._saved_ms = now_ms
        # Only this change is news to subscribers, and changes what is sent.
        self._services.notes.add(new, urgent="inactive" in (new.state, known.state))
