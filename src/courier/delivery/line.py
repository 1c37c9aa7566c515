"""One listener's line of delivery: takes what is ready, sends it, notes what came of it."""

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from courier import ids
from courier.core import retry
from courier.core.errors import BrokerError, NotFound, Unavailable
from courier.core.types import (
    BROKER,
    MINUTE_MS,
    SECOND_MS,
    Domain,
    Listener,
    Liveness,
    Message,
    Pushed,
    PushFailed,
    PushReturned,
    PushSettlement,
    Queue,
    Report,
)
from courier.delivery import liveness, requests, secrets
from courier.delivery.transport import PushResult
from courier.delivery.urls import host_and_port

if TYPE_CHECKING:
    from courier.delivery.engine import Engine

log = logging.getLogger("courier.delivery")

IN_FLIGHT_MAX = 10
# A push is leased for as long as its request may take, and a little longer to note the outcome.
# What was in flight when the process was killed waits for the end of that.
LEASE_MARGIN_MS = 10 * SECOND_MS
ANSWER_KEPT_BYTES = 1 << 10
PROBE_TIMEOUT_MS = 5 * SECOND_MS
# The first look at a new listener comes this much sooner than the next ones.
FIRST_PROBE_PART = 10
IDLE_PROBE_FACTOR = 10
LIVENESS_SAVE_EVERY_MS = MINUTE_MS
STORE_AWAY_S = 1.0
BLOCKED_LOOK_S = 1.0
_GONE = 410
_ASKING_TO_WAIT = (429, 503)


class Line:
    """`sending` are the requests on their way.

    A listener gets one request at a time while it fails; whenever as many as it gets at a time
    have gone well, it gets twice as many, up to the limit. So one that is down costs the others
    next to nothing.
    """

    def __init__(self, engine: "Engine", id: str) -> None:
        self._engine = engine
        self._id = id
        self._width = IN_FLIGHT_MAX
        self._good = 0
        self._unanswered = 0
        self._settled: list[PushSettlement] = []
        self._wake = asyncio.Event()
        self._liveness: Liveness | None = None
        self._saved_ms = 0
        self._signed: tuple[Listener, requests.Signed] | None = None
        self.sending: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Until the listener is gone."""
        prober = asyncio.create_task(self._probe_for_ever())
        try:
            while True:
                try:
                    if not await self._turn():
                        return
                except NotFound:
                    return
                except Unavailable as error:
                    log.warning("push_waits", extra={"listener": self._id, "reason": str(error)})
                    await asyncio.sleep(STORE_AWAY_S)
                except Exception:
                    log.exception("push_line_failed", extra={"listener": self._id})
                    await asyncio.sleep(STORE_AWAY_S)
        finally:
            prober.cancel()

    async def _turn(self) -> bool:
        """Note what is done, take what there is room for, wait; False: the listener is gone."""
        store = self._engine.store
        listener = await store.get(Listener, self._id)
        queue = await store.get(Queue, listener.parent) if listener else None
        if listener is None or queue is None:
            return False
        self._wake.clear()
        hint = store.wait(self._id)
        hint.add_done_callback(self._hinted)
        try:
            room = await self._room(listener, queue)
            granted = self._engine.reserve(room, self._wake.set) if room else 0
            taken: list[Message] = []
            try:
                taken = await self._note_and_take(listener, granted)
            finally:
                self._engine.release(granted - len(taken))
            for message in taken:
                task = asyncio.create_task(self._send(listener, queue, message))
                self.sending.add(task)
                task.add_done_callback(self._sent)
            if not granted and (room or not self.sending):
                await self._woken_within(BLOCKED_LOOK_S)
            elif not granted or len(taken) < granted:  # else there may be more
                await self._wake.wait()
        finally:
            if not hint.done():
                hint.set_result(False)
        return True

    def _hinted(self, hint: "asyncio.Future[bool]") -> None:
        if hint.result():
            self._wake.set()

    async def _woken_within(self, seconds: float) -> None:
        """What the line waits for (a queue's pause, a domain) does not always wake it.

        And a line that may make a request now need not be the one that was told so.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()

    async def _note_and_take(self, listener: Listener, count: int) -> list[Message]:
        """Both go into the same commit. What was taken must be sent, whatever came of the rest."""
        settling = asyncio.ensure_future(self.settle())
        taking = asyncio.ensure_future(self._take(listener, count))
        try:
            await asyncio.wait([settling, taking])
        except asyncio.CancelledError:
            # The server stops. What is being taken at this moment will not be sent.
            await asyncio.wait([settling, taking])
            if not taking.exception():
                self._settled += [PushReturned(m.seq, m.attempts) for m in taking.result()]
            raise
        if not taking.exception() and taking.result():
            if error := settling.exception():
                log.warning("outcomes_wait", extra={"listener": self._id, "reason": str(error)})
            return taking.result()
        settling.result()
        return taking.result()

    async def _room(self, listener: Listener, queue: Queue) -> int:
        """How many more requests this listener may get now."""
        if listener.disabled_by or queue.paused:
            return 0
        if (await self._known_liveness(listener)).state == "inactive":
            return 0
        if self._engine.domains_required and not await self._verified(listener):
            return 0
        limit = 1 if listener.ordered else self._width
        return max(0, limit - len(self.sending))

    async def _verified(self, listener: Listener) -> bool:
        place = host_and_port(listener.url)
        domains = await self._engine.store.scan(Domain, tenant=listener.tenant)
        return any((d.hostname, d.port) == place and d.verified_ms for d in domains)

    async def _take(self, listener: Listener, count: int) -> list[Message]:
        if not count:
            return []
        return await self._engine.store.take_pushes(
            listener.id,
            count=count,
            lease_ms=listener.timeout_ms + LEASE_MARGIN_MS,
            now_ms=self._engine.clock.now_ms(),
        )

    async def settle(self) -> None:
        """Note what came of the requests that are done."""
        settled, self._settled = self._settled, []
        if not settled:
            return
        try:
            await self._engine.store.settle_pushes(
                self._id, settled, now_ms=self._engine.clock.now_ms()
            )
        except Unavailable:
            self._settled = settled + self._settled
            raise
        except NotFound:
            pass

    # --- one request ---

    def _sent(self, task: "asyncio.Task[None]") -> None:
        self.sending.discard(task)
        self._engine.release(1)
        self._wake.set()
        if not task.cancelled() and (error := task.exception()):
            # Its push is in flight until the lease ends, and then made again.
            log.error("push_broken", extra={"listener": self._id}, exc_info=error)

    async def _send(self, listener: Listener, queue: Queue, message: Message) -> None:
        try:
            result = await self._request(listener, queue, message)
        except asyncio.CancelledError:
            # It may have arrived, so the attempt counts; it is made again after the start.
            report = Report(error="the server stopped before an answer came")
            self._settled.append(PushFailed(message.seq, message.attempts, report, 0))
            raise
        report = Report(
            result.status, result.error, result.duration_ms, result.body[:ANSWER_KEPT_BYTES]
        )
        if result.ok:
            self._engine.pushed += 1
            self._widen()
            self._unanswered = 0
            self._settled.append(Pushed(message.seq, message.attempts, report))
            return
        self._engine.failed += 1
        self._narrow()
        asked_ms = 0
        if result.status in _ASKING_TO_WAIT:
            asked_ms = retry.asked_ms(result.retry_after, now_ms=self._engine.clock.now_ms())
        delay_ms = retry.delay_ms(
            attempt=message.attempts,
            attempts_max=listener.attempts_max,
            luck=ids.luck(),
            asked_ms=asked_ms,
            percent=self._engine.delay_percent,
        )
        self._settled.append(PushFailed(message.seq, message.attempts, report, delay_ms))
        if result.status == _GONE:
            await self._disable(listener)
        await self._judge(listener, result)

    def _widen(self) -> None:
        self._good += 1
        if self._good >= self._width:
            self._good = 0
            self._width = min(IN_FLIGHT_MAX, self._width * 2)

    def _narrow(self) -> None:
        self._good = 0
        self._width = 1

    async def _request(self, listener: Listener, queue: Queue, message: Message) -> PushResult:
        try:
            push = requests.request(
                listener,
                queue,
                self._engine.broker.opened(message),
                self._signing(listener),
                self._engine.spelling,
                now_ms=self._engine.clock.now_ms(),
            )
        except (BrokerError, ValueError) as error:
            return PushResult(0, 0, str(error))
        return await self._engine.transport.send(push, timeout_ms=listener.timeout_ms)

    def _signing(self, listener: Listener) -> requests.Signed:
        """Opened once for each version of the listener, and again once a secret has run out."""
        now_ms = self._engine.clock.now_ms()
        known = self._signed
        if known is None or known[0] is not listener or any(s.until_ms for s in listener.secrets):
            sealer = self._engine.sealer
            signed = requests.Signed(
                secrets.opened(listener.secrets, sealer, now_ms=now_ms),
                secrets.request_headers(listener.private, sealer),
            )
            self._signed = known = listener, signed
        return known[1]

    async def _disable(self, listener: Listener) -> None:
        """It said that it is gone: the rest of its messages wait for somebody to enable it."""
        try:
            await self._engine.admin.listeners.disable(listener.id, "gone", actor=BROKER)
        except BrokerError as error:
            log.warning("listener_not_disabled", extra={"listener": self._id, "reason": str(error)})

    async def _judge(self, listener: Listener, result: PushResult) -> None:
        """Too many requests in a row without any answer: wait for a good probe."""
        self._unanswered = 0 if result.status else self._unanswered + 1
        if self._unanswered >= liveness.UNANSWERED_MAX:
            self._unanswered = 0
            known = await self._known_liveness(listener)
            if known.state != "inactive":
                now_ms = self._engine.clock.now_ms()
                await self._note(liveness.silent(known, now_ms=now_ms, why=result.error))

    # --- liveness ---

    async def _known_liveness(self, listener: Listener) -> Liveness:
        if self._liveness is None:
            self._liveness = await self._engine.store.get(Liveness, listener.id) or Liveness(
                id=listener.id,
                tenant=listener.tenant,
                parent=listener.id,
                created_ms=listener.created_ms,
            )
        return self._liveness

    async def _note(self, new: Liveness) -> None:
        """Remember it; write it down when it says something new, or now and then."""
        known, self._liveness = self._liveness, new
        now_ms = self._engine.clock.now_ms()
        changed = known is None or known.state != new.state
        if changed:
            if known is not None and known.state == "inactive":
                self._narrow()
            self._wake.set()
        if changed or now_ms - self._saved_ms >= LIVENESS_SAVE_EVERY_MS:
            self._saved_ms = now_ms
            try:
                await self._engine.admin.listeners.note_liveness(new)
            except BrokerError as error:
                log.warning(
                    "liveness_not_noted", extra={"listener": self._id, "reason": str(error)}
                )

    async def _probe_for_ever(self) -> None:
        every_s = self._engine.liveness_every_s
        wait_s, rest = every_s / FIRST_PROBE_PART, 0
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

    async def _are_waiting(self) -> bool:
        """Whether there are messages that the listener has still to get."""
        now_ms = self._engine.clock.now_ms()
        return (await self._engine.store.push_stats(self._id, now_ms=now_ms)).open > 0

    async def _probe(self) -> None:
        """Look whether the listener is there."""
        engine = self._engine
        listener = await engine.store.get(Listener, self._id)
        if listener is None or listener.disabled_by:
            return
        result = await engine.transport.get(listener.liveness_url, timeout_ms=PROBE_TIMEOUT_MS)
        why = result.error or f"answered {result.status}"
        known = await self._known_liveness(listener)
        now_ms = engine.clock.now_ms()
        await self._note(liveness.probed(known, ok=result.ok, now_ms=now_ms, why=why))
