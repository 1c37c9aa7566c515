"""Calls to workers: a leased batch is sent, its answer judged, its messages settled.

An answer of 2xx acks whatever it does not retry; any other, or none, retries whatever it does not
ack. A JSON object as its body can say more:

    {"acks": ["id", ...], "retries": ["id", {"id": "id", "delay_seconds": 30}, ...],
     "retry_all": true, "delay_seconds": 30}

`acks` and `retries` decide single messages: the first word on a message counts, and acks are read
first. `retry_all` is for the rest, and `delay_seconds` for every retry that names none of its own.
An object that cannot be understood retries everything: to ack what the worker may have wanted
back would lose it. A body that is no object (`OK`, an empty one) says nothing.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, Literal, Protocol
from urllib.parse import quote

import msgspec
from msgspec import Struct

from courier import ids
from courier.core.errors import NotFound, Unavailable
from courier.core.types import (
    DAY_MS,
    SECOND_MS,
    Ack,
    Actor,
    Consumer,
    Message,
    Queue,
    Retry,
    Settlement,
)
from courier.delivery import secrets
from courier.delivery.places import Places, WorkerPlace
from courier.delivery.runner import RunnerServices
from courier.delivery.transport import PushRequest, PushResult, Target

# A batch is leased for as long as its call may take, and a little longer to note the outcome.
LEASE_MARGIN_MS = 10 * SECOND_MS
SETTLE_AGAIN_S = 1.0
DELAY_MS_MAX = DAY_MS

log = logging.getLogger("courier.workers")

_encode = msgspec.json.Encoder().encode

BatchOutcome = Literal["done", "refused", "unanswered"]


class BatchCounts(Protocol):
    """What monitoring asks about workers."""

    workers_missing: int

    def batch_began(self) -> None: ...

    def batch_ended(self, outcome: BatchOutcome) -> None: ...


class BatchServices(RunnerServices, kw_only=True):
    """What feeds of push consumers work with."""

    places: Places
    counts: BatchCounts
    timeout_ms: int


# --- what is sent ---


def batch_body(queue: Queue, messages: Sequence[Message]) -> bytes:
    """A batch of messages as a worker is sent it.

        {"queue": "orders", "messages": [{"id": "...", "timestamp_ms": 1763251200000, "attempts": 1,
         "content_type": "json", "body": {"order": 1}}, ...]}

    A text is a string, JSON is the value itself, digit for digit as it was published, and bytes are
    base64. A message that has headers carries them as `metadata`.
    """
    return _encode({"queue": queue.name, "messages": [_message(each) for each in messages]})


def batch_headers(
    queue: Queue, keys: Sequence[str], *, id: str, at_ms: int, body: bytes
) -> dict[str, str]:
    return {
        "content-type": "application/json",
        # A queue's name may hold what no header can.
        "x-courier-queue": quote(queue.name, safe="/@"),
        **secrets.headers(keys, id=id, at_ms=at_ms, body=body),
    }


def _message(message: Message) -> dict[str, Any]:
    shown = {
        "id": message.id,
        "timestamp_ms": message.published_ms,
        "attempts": message.attempts,
        "content_type": message.content_type,
        "body": _content(message),
    }
    if message.headers:
        shown["metadata"] = message.headers
    return shown


def _content(message: Message) -> Any:
    if message.content_type == "json":
        return msgspec.Raw(message.body)
    if message.content_type == "text":
        return message.body.decode()
    return message.body  # encoded as base64


# --- what the answer does to the messages ---


class Verdict(Struct, frozen=True):
    """One settlement for each message, in their order; `reason` says what was wrong, if anything.

    `refused`: answered, but not with success, or in a way that cannot be understood.
    """

    outcome: BatchOutcome
    settlements: list[Settlement]
    reason: str = ""


class _Retried(Struct):
    id: str
    delay_seconds: float | None = None


class _Answer(Struct):
    acks: list[str] | None = None
    retries: list[str | _Retried] | None = None
    retry_all: bool | None = None
    delay_seconds: float | None = None


_decode = msgspec.json.Decoder(_Answer).decode


def judge(messages: Sequence[Message], result: PushResult) -> Verdict:
    if not result.status:
        return Verdict("unanswered", _settlements(messages, _Answer(), ok=False), result.error)
    try:
        answer = _decode(result.body) if result.body.lstrip().startswith(b"{") else _Answer()
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        reason = f"the answer cannot be understood: {error}"
        return Verdict("refused", _settlements(messages, _Answer(), ok=False), reason)
    settlements = _settlements(messages, answer, ok=result.ok)
    if result.ok:
        return Verdict("done", settlements)
    return Verdict("refused", settlements, f"answered {result.status}")


def _settlements(messages: Sequence[Message], answer: _Answer, *, ok: bool) -> list[Settlement]:
    acked = set(answer.acks or ())
    delays: dict[str, int | None] = {}
    for item in answer.retries or ():
        retried = _Retried(item) if isinstance(item, str) else item
        own = retried.delay_seconds
        delays.setdefault(retried.id, _ms(answer.delay_seconds if own is None else own))
    rest_acked = ok and not answer.retry_all
    settlements: list[Settlement] = []
    for message in messages:
        id = message.id
        if id in acked or (rest_acked and id not in delays):
            # The worker is done with it, even if saying so took longer than the lease.
            settlements.append(Ack(message.seq, message.attempts, late=True))
        else:
            delay_ms = delays.get(id, _ms(answer.delay_seconds))
            settlements.append(Retry(message.seq, message.attempts, delay_ms=delay_ms))
    return settlements


def _ms(seconds: float | None) -> int | None:
    return None if seconds is None else round(max(0, min(DELAY_MS_MAX, seconds * SECOND_MS)))


# --- one call ---


def lease_ms(services: BatchServices) -> int:
    return services.timeout_ms + LEASE_MARGIN_MS


class Batch(Struct, frozen=True):
    """Messages that are leased for one call."""

    queue: Queue
    consumer: Consumer
    place: WorkerPlace
    messages: Sequence[Message]


class WorkerCall:
    """One batch on its way. After `run` it knows what the worker asked for, as it wrote it."""

    def __init__(self, services: BatchServices, leased: Batch) -> None:
        self.batch = leased
        self.outcome: BatchOutcome = "unanswered"
        self.retry_after = ""
        self.began_s = asyncio.get_running_loop().time()
        self._services = services
        self._sending: asyncio.Task[PushResult] | None = None
        self._given_up = False

    def give_up(self) -> None:
        """The server stops: without an answer by now it counts as not answered."""
        self._given_up = True
        if self._sending is not None:
            self._sending.cancel()

    async def run(self) -> None:
        """Until the messages are settled."""
        leased, counts = self.batch, self._services.counts
        counts.batch_began()
        try:
            result = await self._send()
            judged = judge(leased.messages, result)
            self.outcome, self.retry_after = judged.outcome, result.retry_after
            if judged.outcome != "done":
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
            await self._settle(judged.settlements)
        except Exception:  # the messages come back when their leases end
            log.exception("worker_call_failed", extra={"queue": leased.queue.id})
        finally:
            counts.batch_ended(self.outcome)

    async def _send(self) -> PushResult:
        leased, services = self.batch, self._services
        body = batch_body(leased.queue, leased.messages)
        headers = batch_headers(
            leased.queue,
            leased.place.secrets,
            id=ids.new_id(),
            at_ms=services.clock.wall_ms(),
            body=body,
        )
        push = PushRequest(Target(leased.place.url, {}, trusted=True), body, headers)
        sending = services.transport.send(push, timeout_ms=services.timeout_ms)
        self._sending = asyncio.create_task(sending)
        try:
            return await self._sending
        except asyncio.CancelledError:
            return PushResult(0, 0, "the server stopped before the answer came")

    async def _settle(self, items: Sequence[Settlement]) -> None:
        """Tried again while the disk does not take it: the worker has done its part."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + LEASE_MARGIN_MS / SECOND_MS
        queue, actor = self.batch.queue.id, Actor(self.batch.consumer.id, "worker")
        while True:
            try:
                await self._services.broker.settle_all(self.batch.queue, items, actor=actor)
                return
            except NotFound:
                return  # the queue went, and its messages with it
            except Unavailable as error:
                if self._given_up or loop.time() > until_s:
                    extra = {"queue": queue, "reason": str(error)}
                    log.warning("batch_not_settled", extra=extra)
                    return
                await asyncio.sleep(SETTLE_AGAIN_S)
