"""One push consumer: when its batches go out, and how many at a time."""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from urllib.parse import urlsplit

from msgspec import Struct

from courier.core.duties import Fence
from courier.core.errors import AnswersFull, BrokerError, NotFound, Paused, RateLimited
from courier.core.limits import ANSWER_BYTES_MAX
from courier.core.types import SECOND_MS, Actor, Consumer, Message, Queue
from courier.delivery import pace
from courier.delivery.calls import Batch, BatchServices, WorkerCall, lease_ms
from courier.delivery.places import WorkerPlace
from courier.delivery.room import PushAllowance
from courier.delivery.runner import Runner, Runners

# How soon a change is noticed that gives no hint: of a URL, or of how many calls there are.
LOOK_EVERY_S = 0.5
CONCURRENCY_DEFAULT = 10
# The body of a call is about this long at most: of larger messages fewer go together.
BATCH_BYTES_MAX = ANSWER_BYTES_MAX
# A worker that fails is left alone for a while, twice as long each time.
BACKOFF_S = 0.5
BACKOFF_S_MAX = 30.0
# One that takes no connection costs no message an attempt, so it may be tried more often.
KNOCK_EVERY_S_MAX = 5.0
KNOCK_S_MAX = 3.0
MISSING_LOG_EVERY_S = 60.0

log = logging.getLogger("courier.workers")


def runners(services: BatchServices, *, stop_wait_ms: int) -> Runners[Consumer]:
    """Send batches to push consumers."""
    consumers = services.store.records
    return Runners(
        "workers",
        services,
        lambda: [each for each in consumers.scan(Consumer) if each.mode == "push"],
        partial(Feed, services),
        stop_wait_s=stop_wait_ms / SECOND_MS,
    )


class _Wait(Struct, frozen=True):
    """Wait for a hint, for `seconds` at most.

    Who is not `hinted` could not take a message if there was one, and leaves hints to others.
    """

    seconds: float | None = None
    hinted: bool = True


class Feed(Runner):
    def __init__(self, services: BatchServices, consumer: Consumer, fence: Fence) -> None:
        super().__init__(services, consumer, fence, line=consumer.parent)
        self._services = services
        self._queue = consumer.parent
        self._calls: dict[WorkerCall, asyncio.Task[None]] = {}
        # When messages that still wait were first seen waiting.
        self._since_s: float | None = None
        self._missing = False
        self._missing_logged_s = -MISSING_LOG_EVERY_S
        # Of the worker at `_url`: whether it takes connections as far as is known, how often in
        # a row it failed, when it did so last, and when it may be called again.
        self._url = ""
        self._reached = False
        self._failures = 0
        self._failed_s = 0.0
        self._resume_s = 0.0

    async def _turn(self) -> None:
        self._wait_for_hint()
        wait = await self._look()
        self._seat.decline()
        if wait is None:
            self.leave()
            return
        if not wait.hinted:
            self._pass_on()
        await self._woken_within(wait.seconds)

    def _failed(self, error: Exception) -> float:
        self._seat.decline()
        self._pass_on()
        if isinstance(error, NotFound | Paused):
            return 0.0  # the next look finds out
        if isinstance(error, RateLimited):
            return error.retry_after_ms / SECOND_MS
        extra = {"queue": self._queue, "reason": str(error)}
        if isinstance(error, BrokerError):
            log.warning("batch_not_leased", extra=extra)
        else:
            log.exception("batch_not_leased", extra=extra)
        return self._fail(BACKOFF_S_MAX)

    async def _end(self) -> bool:
        self._note_missing(False)
        self._pass_on()
        if self._calls:
            await self._wake.wait()
        return bool(self._calls)

    def give_up(self) -> None:
        for call in self._calls:
            call.give_up()

    async def _look(self) -> _Wait | None:
        """Send a batch if one is due; returns how to wait for the next, None at the end."""
        records = self._services.store.records
        consumer = records.get(Consumer, self._id)
        queue = records.get(Queue, self._queue)
        if consumer is None or consumer.parent != self._queue or queue is None:
            return None
        if consumer.mode != "push":
            return None
        waiting, count = (0, 0) if queue.paused else await self._ready(queue, consumer.batch_size)
        if not waiting:
            self._since_s = None
            self._note_missing(False)
            return _Wait()
        now_s = asyncio.get_running_loop().time()
        if self._since_s is None:
            self._since_s = now_s
        place = self._services.places.find(consumer.tenant, consumer.script)
        self._note_missing(place is None)
        if place is None:
            self._log_missing(consumer, now_s)
            return _Wait(LOOK_EVERY_S, hinted=False)
        self._meet(place.url)
        if now_s < self._resume_s:
            return _Wait(min(LOOK_EVERY_S, self._resume_s - now_s), hinted=False)
        together = 1 if self._failures else consumer.concurrency_max or CONCURRENCY_DEFAULT
        room = together - len(self._calls)
        if room <= 0:
            return _Wait(LOOK_EVERY_S, hinted=False)  # or until one of its calls ends
        due_s = self._since_s + consumer.wait_ms_max / SECOND_MS
        if waiting < count and now_s < due_s:
            return _Wait(due_s - now_s)
        if not self._reached:
            return await self._knock(place.url)
        if self._leaving:
            return None
        # Of a FIFO queue, two batches of one lease could hold messages of one group.
        batches = 1 if queue.fifo else max(1, min(room, waiting // count))
        batches = self._seat.take(batches)
        if not batches:
            return _Wait(LOOK_EVERY_S, hinted=False)  # or until it is offered a slot
        return await self._send(queue, consumer, place, count, batches)

    async def _ready(self, queue: Queue, batch_size: int) -> tuple[int, int]:
        """How many messages wait (or as many as matter), and how many of them go together."""
        store, now_ms = self._services.store, self._services.clock.now_ms()
        found = await store.stats([queue.id], now_ms=now_ms)
        if queue.id not in found:
            raise NotFound("queue", queue.id)
        stats = found[queue.id]
        ready = stats.count - stats.leased - stats.delayed
        fitting = BATCH_BYTES_MAX * stats.count // stats.bytes if stats.bytes else batch_size
        count = max(1, min(batch_size, fitting))
        if queue.fifo and ready:
            # Of those, some may wait for others of their group.
            found_ready = await store.messages.ready(
                queue.id, count=count, now_ms=now_ms, bodies=False
            )
            ready = len(found_ready)
        return ready, count

    async def _send(
        self, queue: Queue, consumer: Consumer, place: WorkerPlace, count: int, batches: int
    ) -> _Wait:
        """Lease up to `batches` batches of `count` messages, and start a call with each."""
        started = 0
        allowance = self._share.allowance(batches, BATCH_BYTES_MAX)
        leasing = self._leased(queue, consumer, count * batches, allowance)
        try:
            messages = await self._take(leasing, allowance)
            for first in range(0, len(messages), count):
                batch = Batch(queue, consumer, place, messages[first : first + count])
                started += 1
                call = WorkerCall(self._services, batch)
                sending = self._send_batch(call, self._seat.begin())
                self._calls[call] = asyncio.create_task(sending)
        except AnswersFull:
            return _Wait(LOOK_EVERY_S, hinted=False)  # or until there is room for it
        finally:
            self._seat.give_back(batches - started)
        if not messages:
            return _Wait(LOOK_EVERY_S)  # somebody else was faster
        # Those that are left are a new lot.
        self._since_s = None
        return _Wait(0.0)

    async def _leased(
        self, queue: Queue, consumer: Consumer, count: int, allowance: PushAllowance
    ) -> Sequence[Message]:
        """Raises AnswersFull when there is no room for the first of them."""
        pulled = await self._services.broker.pull(
            queue,
            count=count,
            lease_ms=lease_ms(self._services),
            actor=Actor(consumer.id, "worker"),
            allowance=allowance,
        )
        return [message for message, _ in pulled.messages]

    async def _send_batch(self, call: WorkerCall, number: int) -> None:
        """On the slot of this number."""
        try:
            await call.run()
        finally:
            del self._calls[call]
            self._share.release(sum(message.size for message in call.batch.messages))
            self._seat.end(number)
            if call.batch.place.url == self._url:
                self._judge(call)
            self._wake.set()

    def _judge(self, call: WorkerCall) -> None:
        if call.outcome == "done":
            self._failures, self._resume_s = 0, 0.0
            return
        if call.outcome == "unanswered":
            self._reached = False
        # Calls that were on their way together fail together, and that is one failure.
        if call.began_s >= self._failed_s:
            asked_ms = pace.asked_ms(call.retry_after, wall_ms=self._services.clock.wall_ms())
            self._fail(BACKOFF_S_MAX, at_least_s=asked_ms / SECOND_MS)

    def _fail(self, most_s: float, *, at_least_s: float = 0.0) -> float:
        """Leave the worker alone for a while; returns how long."""
        self._failures += 1
        usual_s = BACKOFF_S * 2.0 ** min(self._failures - 1, 10)
        wait_s = min(most_s, max(usual_s, at_least_s))
        self._failed_s = asyncio.get_running_loop().time()
        self._resume_s = self._failed_s + wait_s
        return wait_s

    def _meet(self, url: str) -> None:
        """Whatever is known of a worker is forgotten when it moves."""
        if url != self._url:
            self._url = url
            self._reached = False
            self._failures, self._failed_s, self._resume_s = 0, 0.0, 0.0

    async def _knock(self, url: str) -> _Wait:
        """Nothing is leased for a worker that does not even take a connection."""
        parts = urlsplit(url)
        port = parts.port or {"http": 80, "https": 443}[parts.scheme]
        try:
            async with asyncio.timeout(KNOCK_S_MAX):
                _, writer = await asyncio.open_connection(parts.hostname, port)
        except (OSError, UnicodeError) as error:
            reason = str(error) or type(error).__name__
            log.warning("worker_unreachable", extra={"queue": self._queue, "reason": reason})
            self._fail(KNOCK_EVERY_S_MAX)
        else:
            self._reached = True
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
        return _Wait(0.0)  # things may have changed meanwhile

    def _note_missing(self, missing: bool) -> None:
        self._services.counts.workers_missing += missing - self._missing
        self._missing = missing

    def _log_missing(self, consumer: Consumer, now_s: float) -> None:
        if now_s - self._missing_logged_s >= MISSING_LOG_EVERY_S:
            self._missing_logged_s = now_s
            log.warning(
                "worker_url_missing", extra={"queue": self._queue, "script": consumer.script}
            )
