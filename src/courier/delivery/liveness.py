"""Whether a listener seems to be there, from how its probes and pushes went; and its probes.

pending --ok--> stable <--ok-- unstable <--ok-- inactive
   |               |              | ^               ^
   '----failed-----'---failed-----+-'               |
                                  '-- third in a row, or five pushes without any answer
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Literal

from msgspec import field
from msgspec.structs import replace

from courier import ids
from courier.core.errors import BrokerError
from courier.core.listeners import Listeners
from courier.core.sealed import Sealer
from courier.core.types import MINUTE_MS, SECOND_MS, Listener, Liveness, Message, Queue
from courier.delivery import requests, secrets
from courier.delivery.moments import Soon
from courier.delivery.requests import Spelling
from courier.delivery.runner import RunnerServices
from courier.delivery.slots import Slots, Turn
from courier.delivery.transport import PushResult

FAILURES_MAX = 3
UNANSWERED_MAX = 5
PROBE_TIMEOUT_MS = 5 * SECOND_MS
# The first look at a new listener comes this much sooner than the next ones.
FIRST_PROBE_PART = 10
IDLE_PROBE_FACTOR = 10
SAVE_EVERY_MS = MINUTE_MS
# How long a note may wait for others, unless it says something new.
NOTE_WITHIN_S = 0.2
# Notes of one commit.
NOTES_MAX = 200
TRIAL_BODY = b'{"test":true}'

log = logging.getLogger("courier.delivery")


class LivenessNotes:
    """The newest note of each listener, until it is written: many probes end at the same moment."""

    def __init__(self, listeners: Listeners) -> None:
        self._listeners = listeners
        self._waiting: dict[str, Liveness] = {}
        self._task: asyncio.Task[None] | None = None
        self._urgent = asyncio.Event()

    def add(self, note: Liveness, *, urgent: bool = False) -> None:
        """`urgent`: it is written at once, with those that wait."""
        self._waiting[note.id] = note
        if urgent:
            self._urgent.set()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._write_soon())

    async def _write_soon(self) -> None:
        while self._waiting:
            with suppress(TimeoutError):
                async with asyncio.timeout(NOTE_WITHIN_S):
                    await self._urgent.wait()
            self._urgent.clear()
            await self._write()

    async def _write(self) -> None:
        """Write what waits. A failure is logged: the next probe makes another note."""
        while self._waiting:
            notes = [*self._waiting.values()][:NOTES_MAX]
            for note in notes:
                del self._waiting[note.id]
            try:
                await self._listeners.note_liveness(notes)
            except BrokerError as error:
                extra = {"listeners": len(notes), "reason": str(error)}
                log.warning("liveness_not_noted", extra=extra)

    async def finish(self) -> None:
        """Until all are written; there must be no more probes."""
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)


class PushServices(RunnerServices, kw_only=True):
    """What lines of listeners work with.

    `pushed` and `failed` requests have ended, `in_flight` are on their way.
    """

    listeners: Listeners
    sealer: Sealer
    spelling: Spelling
    notes: LivenessNotes
    # As many connections are for probes alone: they tell who may be sent requests at all.
    probe_slots: Slots
    delay_percent: int
    liveness_every_ms: int
    domains_required: bool
    soon: Soon = field(default_factory=Soon)
    pushed: int = 0
    failed: int = 0
    in_flight: int = 0


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


async def trial(services: PushServices, listener: Listener, queue: Queue) -> PushResult:
    """What came of a request by hand, signed as a push is. It is not stored, and judges nothing."""
    now_ms = services.clock.now_ms()
    id = ids.message_id(published_ms=now_ms, seq=0, queue=queue.id)
    message = Message(0, id, now_ms, TRIAL_BODY, "json", attempts=1)
    try:
        prepared = requests.prepared(
            listener,
            queue,
            secrets.opened(listener, services.sealer, now_ms=now_ms),
            {**secrets.request_headers(listener, services.sealer), "x-courier-test": "true"},
            services.spelling,
        )
        push = requests.request(
            listener, queue, message, prepared, services.spelling, wall_ms=services.clock.wall_ms()
        )
    except (BrokerError, ValueError) as error:
        return PushResult(0, 0, str(error))
    turn = Turn(services.probe_slots, tenant=listener.tenant, queue=listener.parent)
    try:
        async with turn:
            return await services.transport.send(push, timeout_ms=listener.timeout_ms, trial=True)
    finally:
        turn.close()
