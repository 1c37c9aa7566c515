"""Calls to workers: a leased batch is sent, its answer judged, its messages settled."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec import Struct

from courier import ids
from courier.clock import Clock
from courier.core.errors import NotFound, Unavailable
from courier.core.store import Store
from courier.core.types import SECOND_MS, Actor, Consumer, Message, Queue, Settlement
from courier.delivery import batch, verdict
from courier.delivery.places import Place
from courier.delivery.transport import Push, PushResult, Target, Transport
from courier.delivery.verdict import BatchOutcome

# A batch is leased for as long as its call may take, and a little longer to note the outcome.
LEASE_MARGIN_MS = 10 * SECOND_MS
SETTLE_AGAIN_S = 1.0

log = logging.getLogger("courier.workers")


class Counts(Protocol):
    """What monitoring asks about workers."""

    workers_missing: int

    def batch_began(self) -> None: ...

    def batch_ended(self, outcome: BatchOutcome) -> None: ...


class Batch(Struct, frozen=True):
    """Messages that are leased for one call."""

    queue: Queue
    consumer: Consumer
    place: Place
    messages: Sequence[Message]


class Ended(Struct, frozen=True):
    """How a call went. `retry_after` is what the worker asked for, as it wrote it."""

    outcome: BatchOutcome
    began_s: float
    retry_after: str = ""


class Calls:
    """Calls that are on their way, each on a slot of its consumer's."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        transport: Transport,
        counts: Counts,
        *,
        timeout_ms: int,
    ) -> None:
        self._store = store
        self._clock = clock
        self._transport = transport
        self._counts = counts
        self._timeout_ms = timeout_ms
        self._calls: set[asyncio.Task[None]] = set()
        self._sending: set[asyncio.Task[PushResult]] = set()
        self._stopping = False

    @property
    def lease_ms(self) -> int:
        return self._timeout_ms + LEASE_MARGIN_MS

    def start(self, leased: Batch, ended: Callable[[Ended], None]) -> None:
        """`ended` is called when the messages are settled."""
        call = asyncio.create_task(self._run(leased, ended))
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)

    async def finish(self, *, wait_s: float) -> None:
        """Let running calls come to an end; those that take longer count as not answered."""
        self._stopping = True
        if self._calls:
            await asyncio.wait(self._calls, timeout=max(0.0, wait_s))
        for sending in list(self._sending):
            sending.cancel()
        await asyncio.gather(*self._calls, return_exceptions=True)

    async def _run(self, leased: Batch, ended: Callable[[Ended], None]) -> None:
        outcome: BatchOutcome = "unanswered"
        began_s = asyncio.get_running_loop().time()
        retry_after = ""
        self._counts.batch_began()
        try:
            result = await self._send(leased)
            judged = verdict.judge(leased.messages, result)
            outcome, retry_after = judged.outcome, result.retry_after
            if outcome != "done":
                log.warning(
                    "worker_failed",
                    extra={
                        "queue": leased.queue.id,
                        "script": leased.consumer.script,
                        "messages": len(leased.messages),
                        "status": result.status,
                        # Some errors say the whole URL, which may hold a secret.
                        "reason": judged.reason.replace(leased.place.url, "the URL"),
                    },
                )
            await self._settle(leased, judged.settlements)
        except Exception:  # the messages come back when their leases end
            log.exception("worker_call_failed", extra={"queue": leased.queue.id})
        finally:
            self._counts.batch_ended(outcome)
            ended(Ended(outcome, began_s, retry_after))

    async def _send(self, leased: Batch) -> PushResult:
        body = batch.body(leased.queue, leased.messages)
        headers = batch.headers(
            leased.queue,
            leased.place.secrets,
            id=ids.new_id(),
            at_ms=self._clock.wall_ms(),
            body=body,
        )
        push = Push(Target(leased.place.url, {}, trusted=True), body, headers)
        sending = asyncio.create_task(self._transport.send(push, timeout_ms=self._timeout_ms))
        self._sending.add(sending)
        try:
            return await sending
        except asyncio.CancelledError:
            return PushResult(0, 0, "the server stopped before the answer came")
        finally:
            self._sending.discard(sending)

    async def _settle(self, leased: Batch, items: Sequence[Settlement]) -> None:
        """Tried again while the disk does not take it: the worker has done its part."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + LEASE_MARGIN_MS / SECOND_MS
        actor = Actor(leased.consumer.id, "worker")
        while items:
            try:
                now_ms = self._clock.now_ms()
                outcomes = await self._store.settle(
                    leased.queue.id, items, actor=actor, now_ms=now_ms
                )
                items = items[len(outcomes) :]
            except NotFound:
                return  # the queue went, and its messages with it
            except Unavailable as error:
                if self._stopping or loop.time() > until_s:
                    log.warning(
                        "batch_not_settled",
                        extra={"queue": leased.queue.id, "reason": str(error)},
                    )
                    return
                await asyncio.sleep(SETTLE_AGAIN_S)
