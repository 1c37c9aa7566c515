"""The message verbs: publish, pull, settle, peek, purge, redrive."""

from collections.abc import Sequence

from msgspec import Struct

from courier.clock import Clock
from courier.core.errors import Frozen, Paused
from courier.core.limits import Limits, Rate
from courier.core.store import Store
from courier.core.types import (
    Actor,
    Draft,
    Message,
    Outcome,
    PurgeStatus,
    Queue,
    QueueStats,
    Receipt,
    Settlement,
)
from courier.ids import Tokens

REDRIVE_PAGE = 500


class Pulled(Struct, frozen=True):
    """Messages with the token of the lease on each, and the backlog they were taken from."""

    messages: list[tuple[Message, str]]
    stats: QueueStats


class Redriven(Struct, frozen=True):
    redriven: int
    skipped: int


class Broker:
    def __init__(self, store: Store, clock: Clock, limits: Limits) -> None:
        self._store = store
        self._clock = clock
        self._limits = limits
        self._leases = Tokens(store.secret, "lease")
        self._refs = Tokens(store.secret, "ref")
        self._publish_rate = Rate("publishing", limit=limits.queue_rate_max)
        self._consume_rate = Rate("consuming", limit=limits.queue_rate_max)

    async def publish(self, queue: Queue, drafts: Sequence[Draft], *, actor: Actor) -> Receipt:
        now_ms = self._clock.now_ms()
        if queue.frozen:
            raise Frozen(queue.name)
        self._publish_rate.take(queue.id, len(drafts), now_ms=now_ms)
        receipts = await self._store.publish(
            [(queue.id, drafts)],
            actor=actor,
            now_ms=now_ms,
            bytes_max=self._limits.queue_bytes_max,
        )
        return receipts[0]

    async def pull(self, queue: Queue, *, count: int, lease_ms: int, actor: Actor) -> Pulled:
        now_ms = self._clock.now_ms()
        if queue.paused:
            raise Paused(queue.name)
        self._consume_rate.take(queue.id, 1, now_ms=now_ms)
        leased = await self._store.lease(
            queue.id, count=count, lease_ms=lease_ms, actor=actor, now_ms=now_ms
        )
        mint = self._leases.mint
        place = queue.id
        messages = [
            (message, mint(place, message.seq, message.attempts)) for message in leased.messages
        ]
        return Pulled(messages, leased.stats)

    def lease(self, queue: Queue, token: str) -> tuple[int, int] | None:
        """Sequence and attempt that a lease's token names, None if it is not of this queue."""
        return self._leases.read(queue.id, token)

    async def settle(
        self, queue: Queue, items: Sequence[Settlement], *, actor: Actor
    ) -> list[Outcome]:
        if not items:
            return []
        now_ms = self._clock.now_ms()
        self._consume_rate.take(queue.id, 1, now_ms=now_ms)
        return await self._store.settle(queue.id, items, actor=actor, now_ms=now_ms)

    async def peek(self, queue: Queue, *, count: int) -> list[tuple[Message, str]]:
        """What a pull would get now, each with a reference to remove it by."""
        now_ms = self._clock.now_ms()
        messages = await self._store.peek(queue.id, count=count, now_ms=now_ms)
        return [(message, self._refs.mint(queue.id, message.seq, 0)) for message in messages]

    async def remove(self, queue: Queue, refs: Sequence[str], *, actor: Actor) -> list[bool]:
        """Delete messages by reference; False where a reference leads nowhere."""
        seqs = [(self._refs.read(queue.id, ref) or (0, 0))[0] for ref in refs]
        return await self._store.remove(queue.id, seqs, actor=actor, now_ms=self._clock.now_ms())

    async def stats(self, queue: Queue) -> QueueStats:
        return await self._store.stats(queue.id, now_ms=self._clock.now_ms())

    async def new_purge(self, queue: Queue) -> PurgeStatus:
        """A purge of every message that is there now."""
        return PurgeStatus(self._clock.now_ms(), await self._store.tail(queue.id))

    async def purge(self, queue: Queue, purge: PurgeStatus, *, actor: Actor) -> None:
        """Delete what the purge covers, a part at a time so that others get their turn."""
        while await self._store.purge(
            queue.id,
            upto_seq=purge.upto_seq,
            limit=self._limits.purge_batch_max,
            actor=actor,
            now_ms=self._clock.now_ms(),
        ):
            pass

    async def redrive(
        self, queue: Queue, messages: Sequence[str] | None, *, actor: Actor, dry_run: bool = False
    ) -> Redriven:
        """Send dead letters back to the queue they were buried from; all, or those named."""
        now_ms = self._clock.now_ms()
        if messages is not None:
            found = [await self._store.find(queue.id, id, now_ms=now_ms) for id in messages]
            seqs = [message.seq if message else 0 for message in found]
            return await self._redrive(queue, seqs, actor, dry_run)
        redriven = skipped = 0
        upto_seq, after_seq = await self._store.tail(queue.id), 0
        while after_seq < upto_seq:
            page = await self._store.browse(
                queue.id, after_seq=after_seq, limit=REDRIVE_PAGE, now_ms=now_ms
            )
            if not page:
                break
            seqs = [message.seq for message in page]
            part = await self._redrive(queue, seqs, actor, dry_run)
            redriven += part.redriven
            skipped += part.skipped
            after_seq = page[-1].seq
        return Redriven(redriven, skipped)

    async def _redrive(
        self, queue: Queue, seqs: Sequence[int], actor: Actor, dry_run: bool
    ) -> Redriven:
        done = await self._store.redrive(
            queue.id, seqs=seqs, actor=actor, now_ms=self._clock.now_ms(), dry_run=dry_run
        )
        return Redriven(sum(done), len(done) - sum(done))
