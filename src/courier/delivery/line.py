"""One listener's line of delivery: takes what is ready, sends it, notes what came of it."""

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from msgspec.structs import replace

from courier import ids
from courier.core.duties import Fence
from courier.core.errors import BrokerError, NotFound, Unavailable
from courier.core.types import (
    ANSWER_KEPT_BYTES,
    BROKER,
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
from courier.delivery import liveness, pace, requests, secrets
from courier.delivery.liveness import Prober, PushServices
from courier.delivery.moments import MOMENT_MS
from courier.delivery.pace import IN_FLIGHT_MAX, Bursts, PushPace
from courier.delivery.room import PushAllowance
from courier.delivery.runner import Runner, Runners
from courier.delivery.targets import host_and_port
from courier.delivery.transport import OnItsWay, PushRequest, PushResult

log = logging.getLogger("courier.delivery")

# What was taken ahead and has waited for long goes back, well before its lease ends.
AHEAD_MS_MAX = 5 * SECOND_MS
# Bodies of one take; a longer one comes alone.
TAKEN_BYTES_MAX = 16 << 20
# A push is leased for as long as its request may take, and a little longer to note the outcome.
# What was in flight when the process was killed waits for the end of that.
LEASE_MARGIN_MS = 10 * SECOND_MS
# While requests follow each other, outcomes are noted some at a time.
NOTED_TOGETHER = 100
STORE_AWAY_S = 1.0
BLOCKED_LOOK_S = 1.0
# How long requests that are on their way may still take when the server stops.
STOP_WAIT_S = 5.0
_GONE = 410
_ASKING_TO_WAIT = (429, 503)


class Sending(NamedTuple):
    """A request on its way; `way` is None where none could be made."""

    listener: Listener
    message: Message
    way: OnItsWay | None


def runners(services: PushServices) -> Runners[Listener]:
    """Push messages to listeners, as far as there are slots for requests."""
    return Runners(
        "listeners",
        services,
        lambda: services.store.records.scan(Listener),
        partial(Line, services),
        stop_wait_s=STOP_WAIT_S,
        last=services.notes.finish,
    )


class Line(Runner):
    """`sending` are the requests on their way; `_ahead` is what follows, and when it was taken."""

    def __init__(self, services: PushServices, listener: Listener, fence: Fence) -> None:
        super().__init__(services, listener, fence, line=listener.id)
        self._services = services
        self._pace = PushPace()
        self._allowance = Bursts()
        self._prober = Prober(services, listener.id, self._changed)
        self._unanswered = 0
        self._gone = False  # so it said
        self._ahead: deque[tuple[int, Message]] = deque()
        self._settled: list[PushSettlement] = []
        self._current: tuple[Listener, Queue] | None = None
        self._prepared: tuple[Listener, Queue, requests.Prepared] | None = None
        # How many requests began, and since when.
        self._begun, self._since_s = 0, 0.0
        self.sending: dict[int, Sending] = {}

    async def run(self) -> None:
        prober = asyncio.create_task(self._prober.run())
        try:
            await super().run()
        finally:
            prober.cancel()

    def _failed(self, error: Exception) -> float:
        extra = {"listener": self._id, "reason": str(error)}
        if isinstance(error, NotFound):
            self.leave()
        elif isinstance(error, Unavailable):
            log.warning("push_waits", extra=extra)
        else:
            log.exception("push_line_failed", extra=extra)
        return STORE_AWAY_S

    async def _end(self) -> bool:
        self._give_back()
        await self._settle()
        if self.sending:
            await self._wake.wait()
        return bool(self.sending or self._settled)

    async def _turn(self) -> None:
        """Note what is done, take what there is room for, wait."""
        records = self._services.store.records
        listener = records.get(Listener, self._id)
        queue = records.get(Queue, listener.parent) if listener else None
        if listener is None or queue is None:
            self.leave()
            return
        if self._gone:
            await self._disable(listener)
            return
        if self._current is None:
            await self._meet(listener)
        self._current = listener, queue
        self._wait_for_hint()
        limit = self._limit(listener, queue)
        now_ms = self._services.clock.now_ms()
        free = max(0, limit - len(self.sending))
        room = min(free, self._allowance.left(listener.per_second_max, now_ms))
        granted = self._seat.take(room)
        self._seat.decline()
        asked = granted + (self._reach(listener) if limit and granted == room else 0)
        taken: Sequence[Message] = ()
        allowance = self._share.allowance(granted, TAKEN_BYTES_MAX)
        self._note_speed()
        try:
            taken = await self._note_and_take(listener, asked, now_ms, allowance)
        finally:
            self._seat.give_back(max(0, granted - len(taken)))
        self._ahead.extend([(now_ms, message) for message in taken])
        if self._leaving:
            self._seat.give_back(min(granted, len(taken)))
            return
        self._allowance.take(len(taken))
        for _ in range(min(granted, len(taken))):  # the oldest, which may be from before
            self._begin(self._seat.begin(), listener, queue, self._ahead.popleft()[1])
        self._begin_next()
        if not limit and self._unhinted(listener, queue):
            await self._woken_within(BLOCKED_LOOK_S)
        elif room < free and granted == room and len(taken) == asked:
            await self._woken_within(self._allowance.wait_s)
        elif len(taken) < asked or not asked:  # else there may be more
            await self._wake.wait()

    def _note_speed(self) -> None:
        now_s = asyncio.get_running_loop().time()
        self._pace.began(self._begun, in_s=now_s - self._since_s)
        self._begun, self._since_s = 0, now_s

    async def _meet(self, listener: Listener) -> None:
        """One whose last request went well may get many at a time."""
        now_ms = self._services.clock.now_ms()
        found = await self._services.store.pushes.stats([listener.id], now_ms=now_ms)
        stats = found.get(listener.id)  # none if it was deleted meanwhile
        quick = stats is not None and stats.last_success_ms > stats.last_failure_ms
        if not quick:
            self._pace.restart()
        self._seat.quick = quick

    # --- what to send ---

    def _limit(self, listener: Listener, queue: Queue) -> int:
        """How many requests this listener may get at a time."""
        if not self._may_send(listener, queue):
            self._give_back()
            return 0
        return 1 if listener.ordered else self._width(listener)

    def _width(self, listener: Listener) -> int:
        return min(self._pace.width, listener.in_flight_max or IN_FLIGHT_MAX)

    def _may_send(self, listener: Listener, queue: Queue) -> bool:
        if listener.disabled_by or self._prober.known(listener).state == "inactive":
            return False
        return not self._unhinted(listener, queue)

    def _unhinted(self, listener: Listener, queue: Queue) -> bool:
        """Whether it waits for something that gives no hint: the end of a pause, a domain."""
        if queue.paused:
            return True
        return self._services.domains_required and not self._verified(listener)

    def _verified(self, listener: Listener) -> bool:
        place = host_and_port(listener.url)
        domains = self._services.store.records.scan(Domain, tenant=listener.tenant)
        return any((d.hostname, d.port) == place and d.verified_ms for d in domains)

    def _reach(self, listener: Listener) -> int:
        """How many to take ahead. Never of an ordered listener: the store gives one at a time; nor
        of one with limits of its own, which is not meant to be quick.
        """
        if listener.ordered or listener.in_flight_max or listener.per_second_max:
            return 0
        ahead = self._pace.ahead
        return 0 if len(self._ahead) > ahead // 2 else ahead - len(self._ahead)

    def _give_back(self) -> None:
        """What was taken ahead is not tried after all."""
        if self._ahead:
            self._settled += [PushReturned(m.seq, m.attempts) for _, m in self._ahead]
            size = sum(message.size for _, message in self._ahead)
            self._ahead.clear()
            self._share.release(size)

    async def _note_and_take(
        self, listener: Listener, count: int, now_ms: int, allowance: PushAllowance
    ) -> Sequence[Message]:
        """Both go into the same commit. What was taken must be sent, whatever came of the rest."""
        if not count and not self._settled:
            return ()
        settling = asyncio.ensure_future(self._settle())
        taking = asyncio.ensure_future(
            self._take(self._ready(listener, count, now_ms, allowance), allowance)
        )
        await asyncio.wait([settling, taking])
        if not taking.exception() and taking.result():
            if error := settling.exception():
                log.warning("outcomes_wait", extra={"listener": self._id, "reason": str(error)})
            return taking.result()
        settling.result()
        return taking.result()

    async def _ready(
        self, listener: Listener, count: int, now_ms: int, allowance: PushAllowance
    ) -> Sequence[Message]:
        if not count:
            return ()
        return await self._services.store.pushes.take(
            listener.id,
            count=count,
            lease_ms=listener.timeout_ms + LEASE_MARGIN_MS,
            now_ms=now_ms,
            allowance=allowance,
        )

    async def _settle(self) -> None:
        """Note what came of the requests that are done."""
        settled, self._settled = self._settled, []
        if not settled:
            return
        now_ms = self._services.clock.now_ms()
        timed = [_at_a_moment(item, now_ms) for item in settled]
        try:
            await self._services.store.pushes.settle(self._id, timed, now_ms=now_ms)
        except Unavailable:
            self._settled = settled + self._settled
            raise
        except NotFound:
            pass

    # --- one request ---

    def _begin(self, number: int, listener: Listener, queue: Queue, message: Message) -> None:
        """On the slot of this number."""
        self._begun += 1
        self._services.in_flight += 1
        ended = partial(self._ended, number)
        way = None
        try:
            push = self._push(listener, queue, message)
        except (BrokerError, ValueError) as error:
            asyncio.get_running_loop().call_soon(ended, PushResult(0, 0, str(error)))
        else:
            way = self._services.transport.begin(push, timeout_ms=listener.timeout_ms, ended=ended)
        self.sending[number] = Sending(listener, message, way)

    def _begin_next(self) -> None:
        """What was taken ahead follows, as long as all goes well."""
        while self._may_follow():
            assert self._current is not None, "it has taken something"
            if not self._seat.take(1):
                self._give_back()
                return
            self._begin(self._seat.begin(), *self._current, self._ahead.popleft()[1])

    def _may_follow(self) -> bool:
        """Whether what was taken ahead may be sent; what may not, goes back."""
        if not self._ahead or self._current is None:
            return False
        late = self._ahead[0][0] < self._services.clock.now_ms() - AHEAD_MS_MAX
        if late or not self._pace.quick:
            self._give_back()
            return False
        return len(self.sending) < self._width(self._current[0])

    def _ended(self, number: int, result: PushResult) -> None:
        if number not in self.sending:
            return  # it was given up before it began
        listener, message, _ = self.sending.pop(number)
        self._services.in_flight -= 1
        try:
            self._note(listener, message, result)
        except Exception:
            # The push is in flight until its lease ends, and then made again.
            log.exception("push_broken", extra={"listener": self._id})
        self._share.release(message.size)
        if result.ok and self._may_follow():
            if again := self._seat.again(number):
                assert self._current is not None
                self._begin(again, *self._current, self._ahead.popleft()[1])
        else:
            self._seat.end(number, answered=bool(result.status))
        self._begin_next()
        if len(self._ahead) > self._pace.ahead // 2 and len(self._settled) < NOTED_TOGETHER:
            self._services.soon.add(self._wake.set)
        else:
            self._wake.set()

    def give_up(self) -> None:
        """It is made again after the start."""
        report = Report(error="the server stopped before an answer came")
        while self.sending:
            number, (_, message, way) = self.sending.popitem()
            if way is not None:
                way.give_up()
            self._settled.append(PushFailed(message.seq, message.attempts, report, 0))
            self._share.release(message.size)
            self._seat.end(number, answered=False)
            self._services.in_flight -= 1
        self._wake.set()

    def _note(self, listener: Listener, message: Message, result: PushResult) -> None:
        report = Report(
            result.status, result.error, result.duration_ms, result.body[:ANSWER_KEPT_BYTES]
        )
        if result.ok:
            self._services.pushed += 1
            self._pace.reached(duration_ms=result.duration_ms)
            self._unanswered = 0
            self._settled.append(Pushed(message.seq, message.attempts, report))
            return
        self._services.failed += 1
        asked_ms = 0
        if result.status in _ASKING_TO_WAIT:
            asked_ms = pace.asked_ms(result.retry_after, wall_ms=self._services.clock.wall_ms())
        if result.status and not asked_ms:
            self._pace.reached(duration_ms=result.duration_ms)
        else:
            self._pace.unreached()
            self._give_back()
        delay_ms = pace.delay_ms(
            attempt=message.attempts,
            attempts_max=listener.attempts_max,
            luck=ids.luck(),
            asked_ms=asked_ms,
            percent=self._services.delay_percent,
        )
        self._settled.append(PushFailed(message.seq, message.attempts, report, delay_ms))
        if result.status == _GONE:
            self._pace.restart()
            self._give_back()
            self._gone = True
        self._judge(listener, result)

    def _push(self, listener: Listener, queue: Queue, message: Message) -> PushRequest:
        """Raises BrokerError and ValueError."""
        return requests.request(
            listener,
            queue,
            self._services.broker.opened(queue, message),
            self._preparation(listener, queue),
            self._services.spelling,
            wall_ms=self._services.clock.wall_ms(),
        )

    def _preparation(self, listener: Listener, queue: Queue) -> requests.Prepared:
        """Made once for each version of the listener, and again while a secret is running out."""
        known = self._prepared
        if known is None or known[0] is not listener or known[1] is not queue:
            sealer, now_ms = self._services.sealer, self._services.clock.now_ms()
            prepared = requests.prepared(
                listener,
                queue,
                secrets.opened(listener, sealer, now_ms=now_ms),
                secrets.request_headers(listener, sealer),
                self._services.spelling,
            )
            known = listener, queue, prepared
            lasting = not any(secret.until_ms for secret in listener.secrets)
            self._prepared = known if lasting else None
        return known[2]

    # --- whether it is there ---

    async def _disable(self, listener: Listener) -> None:
        """It said that it is gone: the rest of its messages wait for somebody to enable it."""
        self._gone = False
        try:
            await self._services.listeners.disable(listener.id, "gone", actor=BROKER)
        except BrokerError as error:
            log.warning("listener_not_disabled", extra={"listener": self._id, "reason": str(error)})

    def _judge(self, listener: Listener, result: PushResult) -> None:
        """Too many requests in a row without any answer: wait for a good probe."""
        self._unanswered = 0 if result.status else self._unanswered + 1
        if self._unanswered >= liveness.UNANSWERED_MAX:
            self._unanswered = 0
            self._prober.silent(listener, result.error)

    def _changed(self, before: Liveness) -> None:
        if before.state == "inactive":
            self._pace.restart()
        self._wake.set()


def _at_a_moment(item: PushSettlement, now_ms: int) -> PushSettlement:
    """What was not answered is tried again at a moment: to become due may cost a commit."""
    if type(item) is not PushFailed or item.report.status or not item.delay_ms:
        return item
    return replace(item, delay_ms=item.delay_ms + -(now_ms + item.delay_ms) % MOMENT_MS)
