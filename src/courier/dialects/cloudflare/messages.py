"""Messages: push, pull, settle, peek, and purge by reference."""

from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from courier.core.admin import Admin
from courier.core.broker import Broker
from courier.core.errors import InvalidRequest, NotPullable
from courier.core.slices import Slices
from courier.core.types import SECOND_MS, Ack, Draft, Outcome, Retry, Settlement
from courier.dialects.cloudflare import wire
from courier.web import Call, Route

_MESSAGES = "/accounts/{account_id}/queues/{queue_id}/messages"
IDEMPOTENCY_KEY_CHARACTERS_MAX = 128
# More leases than a usual batch has are read with others having their turn between.
TURN_EVERY = 128


class MessageRoutes:
    def __init__(self, broker: Broker, admin: Admin, bodies: wire.Bodies) -> None:
        self._broker = broker
        self._admin = admin
        self._bodies = bodies

    def routes(self) -> list[Route]:
        family: dict[str, Any] = {"family": "messages"}
        return [
            Route("POST", _MESSAGES, self.push, "messages:publish", "target", "Push one message",
                  body=wire.PushBody, result=wire.PushResult, **family),
            Route("POST", _MESSAGES + "/batch", self.push_batch, "messages:publish", "target",
                  "Push up to 100 messages, all or none", body=wire.BatchBody,
                  result=wire.PushResult, **family),
            Route("POST", _MESSAGES + "/pull", self.pull, "messages:consume", "target",
                  "Lease messages", body=wire.PullBody, body_optional=True,
                  result=wire.PullResult, **family),
            Route("POST", _MESSAGES + "/ack", self.ack, "messages:consume", "target",
                  "Acknowledge leased messages, or have them retried", body=wire.AckBody,
                  body_optional=True, result=wire.AckResult, **family),
            Route("POST", _MESSAGES + "/peek", self.peek, "messages:consume", "target",
                  "Look at messages without leasing them", body=wire.PeekBody,
                  body_optional=True, result=wire.PeekResult, **family),
            Route("POST", _MESSAGES + "/purge", self.purge_refs, "messages:consume", "target",
                  "Delete peeked messages", body=wire.PurgeRefsBody, body_optional=True,
                  result=wire.PurgeRefsResult, **family),
        ]  # fmt: skip

    async def push(self, call: Call) -> wire.PushResult:
        return await self._publish(call, [wire.draft(call.body)])

    async def push_batch(self, call: Call) -> wire.PushResult:
        return await self._publish(call, wire.drafts(call.body))

    async def _publish(self, call: Call, drafts: list[Draft]) -> wire.PushResult:
        once = call.request.headers.get(b"idempotency-key")
        if once is not None:
            drafts = _once(drafts, once.decode("latin-1"))
        receipt = await self._broker.publish(call.queue, drafts, actor=call.actor)
        return wire.PushResult(wire.MetricsMetadata(wire.metrics(receipt.stats)))

    async def pull(self, call: Call) -> wire.PullResult:
        body: wire.PullBody = call.body
        consumer = await self._admin.consumer_of(call.queue)
        if consumer is None or consumer.mode != "pull":
            raise NotPullable(call.queue.name)
        lease = body.visibility_timeout_ms
        if lease is UNSET:
            lease = body.visibility_timeout
        pulled = await self._broker.pull(
            call.queue,
            count=wire.whole(wire.given(body.batch_size, consumer.batch_size), "batch_size"),
            lease_ms=wire.whole(wire.given(lease, call.queue.lease_ms), "visibility_timeout_ms"),
            actor=call.actor,
        )
        return wire.PullResult(
            pulled.stats.count,
            [self._bodies.pulled(message, token) for message, token in pulled.messages],
            wire.MetricsMetadata(wire.metrics(pulled.stats)),
        )

    async def ack(self, call: Call) -> wire.AckResult:
        body: wire.AckBody = call.body
        acks = [] if body.acks is UNSET else body.acks
        retries = [] if body.retries is UNSET else body.retries
        delays = [
            None
            if item.delay_seconds is UNSET
            else wire.whole(item.delay_seconds, f"retries[{number}].delay_seconds") * SECOND_MS
            for number, item in enumerate(retries)
        ]
        warnings: dict[str, str] = {}
        items: list[Settlement] = []
        tokens: list[str] = []
        read = self._broker.lease
        slices = Slices()
        for number, ack in enumerate(acks, 1):
            if not number % TURN_EVERY:
                await slices.turn()
            place = read(call.queue, ack.lease_id)
            if place is None:
                warnings[ack.lease_id] = "this is not a lease on this queue"
            else:
                items.append(Ack(*place, late=True))
                tokens.append(ack.lease_id)
        acked = set(tokens)
        for number, (retry, delay_ms) in enumerate(zip(retries, delays, strict=True), 1):
            if not number % TURN_EVERY:
                await slices.turn()
            place = read(call.queue, retry.lease_id)
            if place is None:
                warnings[retry.lease_id] = "this is not a lease on this queue"
            elif retry.lease_id not in acked:
                items.append(Retry(*place, delay_ms=delay_ms))
                tokens.append(retry.lease_id)
        outcomes = await self._broker.settle(call.queue, items, actor=call.actor)
        counts = {Ack: 0, Retry: 0}
        for item, token, outcome in zip(items, tokens, outcomes, strict=True):
            if outcome is Outcome.DONE or (outcome is Outcome.LATE and type(item) is Ack):
                counts[type(item)] += 1
            elif outcome is Outcome.LATE:
                warnings[token] = "the lease has expired"
            else:
                warnings.setdefault(token, "the message is no longer there")
        return wire.AckResult(counts[Ack], counts[Retry], warnings)

    async def peek(self, call: Call) -> wire.PeekResult:
        body: wire.PeekBody = call.body
        count = wire.whole(wire.given(body.batch_size, wire.PULL_COUNT_DEFAULT), "batch_size")
        peeked = await self._broker.peek(call.queue, count=count)
        return wire.PeekResult([self._bodies.peeked(message, ref) for message, ref in peeked])

    async def purge_refs(self, call: Call) -> wire.PurgeRefsResult:
        refs = [item.ref for item in call.body.refs]
        removed = await self._broker.remove(call.queue, refs, actor=call.actor)
        warnings = {
            ref: "there is no such message"
            for ref, done in zip(refs, removed, strict=True)
            if not done
        }
        return wire.PurgeRefsResult([], warnings)


def _once(drafts: list[Draft], key: str) -> list[Draft]:
    if not 1 <= len(key) <= IDEMPOTENCY_KEY_CHARACTERS_MAX:
        raise InvalidRequest(
            "Idempotency-Key", f"must have 1 to {IDEMPOTENCY_KEY_CHARACTERS_MAX} characters"
        )
    return [replace(draft, once_key=f"{key} {number}") for number, draft in enumerate(drafts)]
