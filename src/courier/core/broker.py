"""The message verbs: publish, route, pull, settle, peek, purge, redrive."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from courier.clock import Clock
from courier.core import schemas
from courier.core.errors import (
    Frozen,
    InvalidRequest,
    NotFound,
    OverLimit,
    Paused,
    SchemaBroken,
)
from courier.core.keys import Reach
from courier.core.limits import Limits, Rate
from courier.core.routing import passes
from courier.core.sealed import Sealer, body_place, seal_bodies
from courier.core.store import Store
from courier.core.types import (
    DAY_MS,
    Actor,
    Binding,
    Draft,
    Exchange,
    Listener,
    Message,
    Numbering,
    Outcome,
    PurgeStatus,
    Queue,
    QueueStats,
    Receipt,
    Retry,
    Schema,
    Settlement,
    Via,
)
from courier.ids import Tokens

T = TypeVar("T")

REDRIVE_PAGE = 100
# Many drafts are stored in parts of so many or so long ones, and others have their turn between.
PART_DRAFTS_MAX = 500
PART_BYTES_MAX = 1 << 20
# So are many settlements, and many messages that are removed.
PART_SETTLED_MAX = 200
# How long the numbers of published drafts are known at least, after the last call with their key.
ROWS_KNOWN_MS = DAY_MS


class Pulled(Struct, frozen=True):
    """Messages with the token of the lease on each, and the backlog they were taken from."""

    messages: list[tuple[Message, str]]
    stats: QueueStats


class Routable(Struct, frozen=True):
    """A draft, and the headers by which an exchange's rules judge it."""

    draft: Draft
    headers: Sequence[Mapping[str, Any]]


class Caller(Protocol):
    """Whoever waits for an answer, and may leave before it comes."""

    on_gone: Callable[[], None] | None

    @property
    def gone(self) -> bool: ...


class Redriven(Struct, frozen=True):
    redriven: int
    skipped: int


class Broker:
    def __init__(self, store: Store, clock: Clock, limits: Limits, sealer: Sealer) -> None:
        self._store = store
        self._clock = clock
        self._limits = limits
        self._sealer = sealer
        self._leases = Tokens(store.secret, "lease")
        self._refs = Tokens(store.secret, "ref")
        self._publish_rate = Rate("publishing", limit=limits.queue_rate_max)
        self._consume_rate = Rate("consuming", limit=limits.queue_rate_max)
        self._hints: set[asyncio.Future[bool]] = set()
        self._draining = False

    async def publish(self, queue: Queue, drafts: Sequence[Draft], *, actor: Actor) -> Receipt:
        now_ms = self._clock.now_ms()
        if queue.schema:
            await self._check(queue, drafts)
        self._admit(queue, len(drafts), now_ms)
        if queue.encrypted:
            drafts = self._sealed(queue, drafts)
        receipts = await self._store.publish(
            [(queue.id, drafts)],
            actor=actor,
            now_ms=now_ms,
            bytes_max=self._limits.queue_bytes_max,
        )
        return receipts[0]

    async def publish_rows(
        self,
        queue: Queue,
        drafts: Sequence[Draft],
        *,
        key: str,
        first: int,
        actor: Actor,
        listener: str | None = None,
        marks: Sequence[bytes] | None = None,
    ) -> int:
        """Publish any number of drafts, numbered from `first` on under a key; how many were new.

        All of them are checked before the first is stored, but they are stored part by part:
        after a failure, the same call with the same key stores the rest. Without a key ("")
        nothing tells what is missing then. See `Store.publish_rows`.
        """
        now_ms = self._clock.now_ms()
        known = 0
        if key:
            stored = await self._store.rows(queue.id, key=key, now_ms=now_ms)
            known = min(max(0, stored - first), len(drafts))
            drafts = drafts[known:]
        # Where all is known it is noted that it was asked for, so that it stays known.
        listeners = await self._store.scan(Listener, parent=queue.id)
        # Each listener gets a push of every draft, at about a quarter of what the draft costs.
        most = max(1, PART_DRAFTS_MAX // (1 + len(listeners) // 4))
        parts = list(_parts(drafts, most)) or ([()] if key else [])
        await self._check_parts(queue, parts, known)
        self._admit(queue, len(drafts), now_ms)
        held = (await self.stats(queue)).bytes
        size = held + sum([len(draft.body) for draft in drafts])
        if drafts and size > self._limits.queue_bytes_max:
            raise OverLimit("queue bytes", limit=self._limits.queue_bytes_max, actual=size)
        new, place = 0, known
        for part in parts:
            if queue.encrypted:
                part = self._sealed(queue, part)
            of_part = None if marks is None else marks[place : place + len(part) + 1]
            new += await self._store_part(queue, part, key, first + place, actor, listener, of_part)
            place += len(part)
        return new

    async def _check_parts(
        self, queue: Queue, parts: Sequence[Sequence[Draft]], known: int
    ) -> None:
        """Raises InvalidRequest that names the first draft that breaks the schema."""
        place = known
        for part in parts if queue.schema else ():
            try:
                await self._check(queue, part)
            except SchemaBroken as error:
                raise InvalidRequest("body", f"row {place + error.place}: {error}") from error
            place += len(part)
            await asyncio.sleep(0)

    async def _store_part(
        self,
        queue: Queue,
        part: Sequence[Draft],
        key: str,
        first: int,
        actor: Actor,
        listener: str | None,
        marks: Sequence[bytes] | None,
    ) -> int:
        now_ms = self._clock.now_ms()
        bytes_max = self._limits.queue_bytes_max
        if key:
            return await self._store.publish_rows(
                queue.id,
                part,
                Numbering(key, first, now_ms + ROWS_KNOWN_MS, marks),
                actor=actor,
                now_ms=now_ms,
                bytes_max=bytes_max,
                listener=listener,
            )
        await self._store.publish(
            [(queue.id, part)], actor=actor, now_ms=now_ms, bytes_max=bytes_max
        )
        return len(part)

    async def rows(self, queue: Queue, key: str, *, below: bool = False) -> int:
        """How many drafts have been published under a key of `publish_rows`, see `Store.rows`."""
        now_ms = self._clock.now_ms()
        return await self._store.rows(queue.id, key=key, now_ms=now_ms, below=below)

    def _admit(self, queue: Queue, count: int, now_ms: int) -> None:
        if queue.frozen:
            raise Frozen(queue.name)
        self._publish_rate.take(queue.id, count, now_ms=now_ms)

    async def _check(self, queue: Queue, drafts: Sequence[Draft]) -> None:
        """Raises SchemaBroken."""
        schema = await self._store.get(Schema, queue.schema)
        if schema is None:
            return
        for place, draft in enumerate(drafts):
            if len(draft.body) <= schemas.QUICK_BYTES_MAX:
                problems = schemas.problems_of_body(draft.body, schema.properties)
            else:  # others have their turn meanwhile
                problems = await asyncio.to_thread(
                    schemas.problems_of_body, draft.body, schema.properties
                )
            if problems:
                raise SchemaBroken([*problems], place)

    def _sealed(self, queue: Queue, drafts: Sequence[Draft]) -> list[Draft]:
        return seal_bodies(drafts, self._sealer, tenant=queue.tenant)

    def opened(self, queue: Queue, message: Message) -> Message:
        """The queue's message with its body in clear."""
        if message.sealed is None:
            return message
        body = self._sealer.open(message.body, message.sealed, body_place(queue.tenant))
        return replace(message, body=body, sealed=None)

    async def route(
        self, exchange: Exchange, routables: Sequence[Routable], *, reach: Reach, actor: Actor
    ) -> None:
        """Publish to an exchange: a copy for every queue whose binding lets it through, or none.

        Raises Forbidden unless the exchange is within reach, or all queues bound to it are.
        """
        named = exchange.id in reach
        now_ms = self._clock.now_ms()
        batches: list[tuple[str, Sequence[Draft]]] = []
        for binding in await self._store.scan(Binding, parent=exchange.id):
            if not named:
                reach.require(binding.queue)
            drafts = [each.draft for each in routables if passes(binding.rule, each.headers)]
            queue = await self._store.get(Queue, binding.queue)
            if drafts and queue is not None:
                await self._check(queue, drafts)
                self._admit(queue, len(drafts), now_ms)
                if queue.encrypted or exchange.encrypted:
                    drafts = self._sealed(queue, drafts)
                batches.append((queue.id, drafts))
        size = sum(len(each.draft.body) for each in routables)
        await self._store.publish(
            batches,
            actor=actor,
            now_ms=now_ms,
            bytes_max=self._limits.queue_bytes_max,
            via=Via(exchange.tenant, exchange.id, len(routables), size),
        )

    async def pull(
        self,
        queue: Queue,
        *,
        count: int,
        lease_ms: int,
        actor: Actor,
        leased_max: int | None = None,
        bound: bool = False,
    ) -> Pulled:
        """Lease up to `count` messages, or none when there is none.

        `bound`: a token reads only together with the id of its message.
        """
        now_ms = self._clock.now_ms()
        if queue.paused:
            raise Paused(queue.name)
        self._consume_rate.take(queue.id, 1, now_ms=now_ms)
        leased = await self._store.lease(
            queue.id,
            count=count,
            lease_ms=lease_ms,
            actor=actor,
            now_ms=now_ms,
            leased_max=leased_max,
        )
        mint, id = self._leases.mint, queue.id
        messages = [
            (
                self.opened(queue, message),
                mint(id, message.seq, message.attempts, message.id if bound else ""),
            )
            for message in leased.messages
        ]
        return Pulled(messages, leased.stats)

    async def await_pull(
        self,
        queue: Queue,
        *,
        count: int,
        lease_ms: int,
        wait_ms: int,
        caller: Caller,
        actor: Actor,
        leased_max: int | None = None,
        bound: bool = False,
    ) -> Pulled | None:
        """Lease up to `count` messages, waiting up to `wait_ms` for the first; None: no message.

        A paused queue has none. What was leased for a caller who has left goes back.
        """
        until_s = asyncio.get_running_loop().time() + wait_ms / 1000

        async def attempt() -> Pulled | None:
            current = await self._store.get(Queue, queue.id)
            if current is None:
                raise NotFound("queue", queue.name)
            if current.paused:
                return None
            pulled = await self.pull(
                current,
                count=count,
                lease_ms=lease_ms,
                actor=actor,
                leased_max=leased_max,
                bound=bound,
            )
            return pulled if pulled.messages else None

        pulled = await attempt()
        hinted, waiting = False, wait_ms > 0
        while pulled is None and waiting and not caller.gone:
            with self._hint(queue, caller, until_s) as hint:
                # The hint is asked for before looking, or a message could slip between the two.
                pulled = await attempt()
                hinted = waiting = hint.done() and hint.result() if pulled else await hint
        if hinted and (pulled or caller.gone):
            self._store.wake(queue.id)
        if pulled is not None and caller.gone:
            back = [Retry(m.seq, m.attempts, delay_ms=0) for m, _ in pulled.messages]
            await self._store.settle(queue.id, back, actor=actor, now_ms=self._clock.now_ms())
            return None
        return pulled

    @contextmanager
    def _hint(
        self, queue: Queue, caller: Caller, until_s: float
    ) -> Iterator["asyncio.Future[bool]"]:
        """A hint that comes as False when time is up, the caller leaves or the server stops."""
        hint = self._store.wait(queue.id)
        give_up = _giver_up(hint)
        timer = asyncio.get_running_loop().call_at(until_s, give_up)
        self._hints.add(hint)
        caller.on_gone = give_up
        if self._draining:
            give_up()
        try:
            yield hint
        except BaseException:
            self._store.wake(queue.id)  # this hint or the one before may have been for a message
            raise
        finally:
            give_up()
            caller.on_gone = None
            timer.cancel()
            self._hints.discard(hint)

    def drain(self) -> None:
        """Let everyone who waits for messages go."""
        self._draining = True
        for hint in list(self._hints):
            _giver_up(hint)()

    def lease(self, queue: Queue, token: str, message: str = "") -> tuple[int, int] | None:
        """Sequence and attempt that a lease's token names, None if it is not of this queue.

        A bound token is read with the id of its message.
        """
        return self._leases.read(queue.id, token, message)

    async def settle(
        self, queue: Queue, items: Sequence[Settlement], *, actor: Actor
    ) -> list[Outcome]:
        if not items:
            return []
        now_ms = self._clock.now_ms()
        self._consume_rate.take(queue.id, 1, now_ms=now_ms)
        if len(items) <= PART_SETTLED_MAX:
            return await self._store.settle(queue.id, items, actor=actor, now_ms=now_ms)
        outcomes: list[Outcome] = []
        for part in _cut(items):
            outcomes += await self._store.settle(queue.id, part, actor=actor, now_ms=now_ms)
        return outcomes

    async def claim(
        self, queue: Queue, name: str, *, count: int, lease_ms: int, actor: Actor
    ) -> int:
        """Lease up to `count` messages under a name, or find them leased; how many they are.

        A paused queue has none that are not leased already.
        """
        now_ms = self._clock.now_ms()
        self._consume_rate.take(queue.id, 1, now_ms=now_ms)
        return await self._store.claim(
            queue.id,
            name,
            count=0 if queue.paused else count,
            lease_ms=lease_ms,
            actor=actor,
            now_ms=now_ms,
        )

    async def claimed(
        self, queue: Queue, name: str, *, first: int, count: int, bytes_max: int
    ) -> list[Message]:
        """Messages of a claim from number `first` on, to be `opened`; see `Store.claimed`."""
        return await self._store.claimed(
            queue.id,
            name,
            first=first,
            count=count,
            now_ms=self._clock.now_ms(),
            bytes_max=bytes_max,
        )

    async def extend_claim(self, queue: Queue, name: str, *, lease_ms: int, actor: Actor) -> None:
        now_ms = self._clock.now_ms()
        self._consume_rate.take(queue.id, 1, now_ms=now_ms)
        await self._store.extend_claim(
            queue.id, name, lease_ms=lease_ms, actor=actor, now_ms=now_ms
        )

    async def ack_claim(
        self, queue: Queue, name: str, *, actor: Actor, after: str | None = None
    ) -> None:
        now_ms = self._clock.now_ms()
        self._consume_rate.take(queue.id, 1, now_ms=now_ms)
        await self._store.ack_claim(queue.id, name, actor=actor, now_ms=now_ms, after=after)

    async def peek(self, queue: Queue, *, count: int) -> list[tuple[Message, str]]:
        """What a pull would get now, each with a reference to remove it by."""
        now_ms = self._clock.now_ms()
        messages = await self._store.peek(queue.id, count=count, now_ms=now_ms)
        mint = self._refs.mint
        return [
            (self.opened(queue, message), mint(queue.id, message.seq, 0)) for message in messages
        ]

    async def remove(self, queue: Queue, refs: Sequence[str], *, actor: Actor) -> list[bool]:
        """Delete messages by reference; False where a reference leads nowhere."""
        removed: list[bool] = []
        for part in _cut(refs):
            seqs = [(self._refs.read(queue.id, ref) or (0, 0))[0] for ref in part]
            now_ms = self._clock.now_ms()
            removed += await self._store.remove(queue.id, seqs, actor=actor, now_ms=now_ms)
        return removed

    async def stats(self, queue: Queue) -> QueueStats:
        """Raises NotFound."""
        stats = await self.stats_of([queue])
        if queue.id not in stats:
            raise NotFound("queue", queue.id)
        return stats[queue.id]

    async def stats_of(self, queues: Sequence[Queue]) -> dict[str, QueueStats]:
        """By id, of those that are still there."""
        ids = [queue.id for queue in queues]
        return await self._store.stats(ids, now_ms=self._clock.now_ms())

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
        self,
        queue: Queue,
        messages: Sequence[str] | None,
        *,
        reach: Reach,
        actor: Actor,
        dry_run: bool = False,
    ) -> Redriven:
        """Send dead letters back to the queue they were buried from; all, or those named.

        Those from a queue beyond reach are skipped.
        """
        redriven = skipped = 0
        pages = self._pages(queue) if messages is None else self._named(queue, messages)
        async for page in pages:
            done = await self._store.redrive(
                queue.id,
                seqs=[_redrivable(message, reach) for message in page],
                actor=actor,
                now_ms=self._clock.now_ms(),
                dry_run=dry_run,
            )
            redriven += sum(done)
            skipped += len(done) - sum(done)
        return Redriven(redriven, skipped)

    async def _pages(self, queue: Queue) -> AsyncIterator[list[Message]]:
        """What the queue holds now."""
        upto_seq, after_seq = await self._store.tail(queue.id), 0
        while after_seq < upto_seq:
            page = await self._store.browse(
                queue.id, after_seq=after_seq, limit=REDRIVE_PAGE, now_ms=self._clock.now_ms()
            )
            if not page:
                return
            yield page
            after_seq = page[-1].seq

    async def _named(
        self, queue: Queue, messages: Sequence[str]
    ) -> AsyncIterator[list[Message | None]]:
        for part in _cut(messages, REDRIVE_PAGE):
            now_ms = self._clock.now_ms()
            yield [await self._store.find(queue.id, id, now_ms=now_ms) for id in part]


def _redrivable(message: Message | None, reach: Reach) -> int:
    """Its sequence; 0, which no message has, unless it was buried from a queue within reach."""
    if message is None or (message.origin and message.origin.queue not in reach):
        return 0
    return message.seq


def _parts(drafts: Sequence[Draft], most: int) -> Iterator[Sequence[Draft]]:
    """Drafts as they are stored together, at most so many."""
    start = size = 0
    for place, draft in enumerate(drafts):
        size += len(draft.body)
        if place > start and (place - start == most or size > PART_BYTES_MAX):
            yield drafts[start:place]
            start, size = place, len(draft.body)
    if start < len(drafts):
        yield drafts[start:]


def _cut(items: Sequence[T], most: int = PART_SETTLED_MAX) -> Iterator[Sequence[T]]:
    """Items as they are settled together."""
    for first in range(0, len(items), most):
        yield items[first : first + most]


def _giver_up(hint: "asyncio.Future[bool]") -> Callable[[], None]:
    def give_up() -> None:
        if not hint.done():
            hint.set_result(False)

    return give_up
