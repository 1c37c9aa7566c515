"""Messages: push, pull, settle, peek, and purge by reference."""

from collections.abc import Awaitable, Sequence

from msgspec import UNSET
from msgspec.structs import replace

from courier.core.errors import InvalidRequest, NotPullable
from courier.core.slices import Slices
from courier.core.types import SECOND_MS, Ack, Draft, Outcome, QueueStats, Retry, Settlement
from courier.dialects.cloudflare import wire
from courier.dialects.site import Family, SiteServices, given
from courier.web import Call, Route

_MESSAGES = "/accounts/{account_id}/queues/{queue_id}/messages"
IDEMPOTENCY_KEY_CHARACTERS_MAX = 128
# More leases than a usual batch has are read with others having their turn between.
TURN_EVERY = 128
_NOT_A_LEASE = "this is not a lease on this queue"


class CloudflareMessageRoutes(Family[SiteServices]):
    family = "messages"

    def __init__(self, services: SiteServices, bodies: wire.Bodies) -> None:
        super().__init__(services)
        self._bodies = bodies
        none = QueueStats()
        self._last = none, wire.MetricsMetadata(wire.metrics(none))

    def routes(self) -> list[Route]:
        return [
            Route("POST", _MESSAGES, self.push, "messages:publish", "target", "Push one message",
                  body=wire.PushBody, result=wire.PublishResult),
            Route("POST", _MESSAGES + "/batch", self.push_batch, "messages:publish", "target",
                  "Push up to 100 messages, all or none", body=wire.BatchBody,
                  result=wire.PublishResult),
            Route("POST", _MESSAGES + "/pull", self.pull, "messages:consume", "target",
                  "Lease messages", body=wire.PullBody, body_optional=True,
                  result=wire.PullResult),
            Route("POST", _MESSAGES + "/ack", self.ack, "messages:consume", "target",
                  "Acknowledge leased messages, or have them retried", body=wire.AckBody,
                  body_optional=True, result=wire.AckResult),
            Route("POST", _MESSAGES + "/peek", self.peek, "messages:consume", "target",
                  "Look at messages without leasing them", body=wire.PeekBody,
                  body_optional=True, result=wire.PeekResult),
            Route("POST", _MESSAGES + "/purge", self.purge_refs, "messages:consume", "target",
                  "Delete peeked messages", body=wire.PurgeRefsBody, body_optional=True,
                  result=wire.PurgeRefsResult),
        ]  # fmt: skip

    def push(self, call: Call) -> Awaitable[wire.PublishResult]:
        return self._publish(call, wire.pushed(call.body))

    def push_batch(self, call: Call) -> Awaitable[wire.PublishResult]:
        return self._publish(call, wire.drafts(call.body))

    async def _publish(self, call: Call, drafts: Sequence[Draft]) -> wire.PublishResult:
        once = call.request.headers.get(b"idempotency-key")
        if once is not None:
            drafts = _once(drafts, once.decode("latin-1"))
        receipt = await self._broker.publish(call.queue, drafts, actor=call.actor)
        return wire.PublishResult(self._metadata(receipt.stats))

    def _metadata(self, stats: QueueStats) -> wire.MetricsMetadata:
        """Calls that ran as one have the same, and share what is made of it."""
        if stats is not self._last[0]:
            self._last = stats, wire.MetricsMetadata(wire.metrics(stats))
        return self._last[1]

    async def pull(self, call: Call) -> wire.PullResult:
        body: wire.PullBody = call.body
        consumer = self._admin.consumer_of(call.queue)
        if consumer is None or consumer.mode != "pull":
            raise NotPullable(call.queue.name)
        lease = body.visibility_timeout_ms
        if lease is UNSET:
            lease = body.visibility_timeout
        pulled = await self._broker.pull(
            call.queue,
            count=wire.whole(given(body.batch_size, consumer.batch_size), "batch_size"),
            lease_ms=wire.whole(given(lease, call.queue.lease_ms), "visibility_timeout_ms"),
            actor=call.actor,
            allowance=call.request.allowance,
        )
        texts = call.long_texts()
        return wire.PullResult(
            pulled.stats.count,
            self._bodies.all_pulled(pulled.messages, texts),
            self._metadata(pulled.stats),
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
        acked = [ack.lease_id for ack in acks]
        places = await self._places(call, acked)
        items: list[Settlement] = [Ack(place[0], place[1], True) for place in places if place]
        tokens, warnings = acked, dict[str, str]()
        if len(items) < len(acked):
            named = list(zip(acked, places, strict=True))
            tokens = [token for token, place in named if place]
            warnings = {token: _NOT_A_LEASE for token, place in named if not place}
        asked = len(items)
        if retries:
            retried = [retry.lease_id for retry in retries]
            places = await self._places(call, retried)
            done = set(tokens)
            for token, place, delay_ms in zip(retried, places, delays, strict=True):
                if place is None:
                    warnings[token] = _NOT_A_LEASE
                elif token not in done:
                    items.append(Retry(*place, delay_ms=delay_ms))
                    tokens.append(token)
        outcomes = await self._broker.settle(call.queue, items, actor=call.actor)
        if outcomes.count(Outcome.DONE) == len(items):
            return wire.AckResult(asked, len(items) - asked, warnings)
        counts = {Ack: 0, Retry: 0}
        for item, token, outcome in zip(items, tokens, outcomes, strict=True):
            if outcome is Outcome.DONE or (outcome is Outcome.LATE and type(item) is Ack):
                counts[type(item)] += 1
            elif outcome is Outcome.LATE:
                warnings[token] = "the lease has expired"
            else:
                warnings.setdefault(token, "the message is no longer there")
        return wire.AckResult(counts[Ack], counts[Retry], warnings)

    async def _places(self, call: Call, tokens: list[str]) -> list[tuple[int, int] | None]:
        """What each token names, read with others having their turn between."""
        if len(tokens) <= TURN_EVERY:
            return self._broker.leases(call.queue, tokens)
        slices, found = Slices(), []
        for first in range(0, len(tokens), TURN_EVERY):
            found += self._broker.leases(call.queue, tokens[first : first + TURN_EVERY])
            await slices.turn()
        return found

    async def peek(self, call: Call) -> wire.PeekResult:
        body: wire.PeekBody = call.body
        count = wire.whole(given(body.batch_size, wire.PULL_COUNT_DEFAULT), "batch_size")
        peeked = await self._broker.peek(call.queue, count=count, allowance=call.request.allowance)
        texts = call.long_texts()
        shown = [self._bodies.peeked(message, ref, texts) for message, ref in peeked]
        return wire.PeekResult(shown)

    async def purge_refs(self, call: Call) -> wire.PurgeRefsResult:
        refs = [item.ref for item in call.body.refs]
        removed = await self._broker.remove(call.queue, refs, actor=call.actor)
        warnings = {
            ref: "there is no such message"
            for ref, done in zip(refs, removed, strict=True)
            if not done
        }
        return wire.PurgeRefsResult([], warnings)


def _once(drafts: Sequence[Draft], key: str) -> list[Draft]:
    if not 1 <= len(key) <= IDEMPOTENCY_KEY_CHARACTERS_MAX:
        raise InvalidRequest(
            "Idempotency-Key", f"must have 1 to {IDEMPOTENCY_KEY_CHARACTERS_MAX} characters"
        )
    return [replace(draft, once_key=f"{key} {number}") for number, draft in enumerate(drafts)]
