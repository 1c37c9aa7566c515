"""The message verbs: publish, route, pull, settle, peek, purge, redrive."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal, Protocol, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from courier.clock import Clock
from courier.core.admission import Admission, QueueRate
from courier.core.errors import (
    AnswersFull,
    InvalidRequest,
    NotFound,
    Paused,
    SchemaBroken,
)
from courier.core.keys import Reach
from courier.core.limits import Allowance, Limits
from courier.core.routing import passes
from courier.core.sealed import Sealer, body_place
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
    Settlement,
    Via,
)
from courier.ids import Tokens

T = TypeVar("T")

REDRIVE_PAGE = 100
# Many drafts are stored in parts, limited in number and bytes; others have their turn between.
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
    """A caller that waits for an answer, and may leave before it comes."""

    on_gone: Callable[[], None] | None

    @property
    def gone(self) -> bool: ...


# Why a message is not redriven.
RedriveSkip = Literal["not_found", "not_buried", "source_beyond_reach", "source_deleted", "leased"]


class Redriven(Struct, frozen=True):
    """`reasons` says how many were skipped for what."""

    redriven: int
    skipped: int
    reasons: dict[RedriveSkip, int] = {}


class Broker:
    def __init__(self, store: Store, clock: Clock, limits: Limits, sealer: Sealer) -> None:
        self._store = store
        self._records = store.records
        self._waiters = store.waiters
        self._clock = clock
        self._limits = limits
        self._sealer = sealer
        self._leases = Tokens(store.secret, "lease")
        self._refs = Tokens(store.secret, "ref")
        self.admission = Admission(store, limits, sealer)
        self._consume_rate = QueueRate(store, "consuming", limit=limits.queue_rate_max)
        self._hints: set[asyncio.Future[bool]] = set()
        self._draining = False

    async def publish(self, queue: Queue, drafts: Sequence[Draft], *, actor: Actor) -> Receipt:
        now_ms = self._clock.now_ms()
        if not self.admission.takes_all(queue):
            drafts = await self.admission.admit(queue, drafts, now_ms=now_ms)
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
        nothing tells what is missing then. See `Store.rows`.
        """
        now_ms = self._clock.now_ms()
        known = 0
        if key:
            stored = await self._store.rows.count(queue.id, key=key, now_ms=now_ms)
            known = min(max(0, stored - first), len(drafts))
            drafts = drafts[known:]
        # Where all is known it is noted that it was asked for, so that it stays known.
        listeners = self._records.scan(Listener, parent=queue.id)
        # Each listener gets a push of every draft, at about a quarter of what the draft costs.
        most = max(1, PART_DRAFTS_MAX // (1 + len(listeners) // 4))
        parts = list(_parts(drafts, most)) or ([()] if key else [])
        try:
            await self.admission.admit_many(queue, drafts, now_ms=now_ms)
        except SchemaBroken as error:
            raise InvalidRequest("body", f"row {known + error.place}: {error}") from error
        new, place = 0, known
        for part in parts:
            part = self.admission.sealed(queue, part)
            of_part = None if marks is None else marks[place : place + len(part) + 1]
            new += await self._store_part(queue, part, key, first + place, actor, listener, of_part)
            place += len(part)
        return new

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
            return await self._store.rows.publish(
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
        """How many drafts have been published under a key of `publish_rows`."""
        now_ms = self._clock.now_ms()
        return await self._store.rows.count(queue.id, key=key, now_ms=now_ms, below=below)

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
        for binding in self._records.scan(Binding, parent=exchange.id):
            if not named:
                reach.require(binding.queue)
            drafts = [each.draft for each in routables if passes(binding.rule, each.headers)]
            queue = self._records.get(Queue, binding.queue)
            if drafts and queue is not None:
                encrypted = queue.encrypted or exchange.encrypted
                admitted = await self.admission.admit(
                    queue, drafts, now_ms=now_ms, encrypted=encrypted
                )
                batches.append((queue.id, admitted))
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
        allowance: Allowance,
        leased_max: int | None = None,
        bound: bool = False,
    ) -> Pulled:
        """Lease up to `count` messages, or none when there is none. Raises AnswersFull.

        `bound`: a token reads only together with the id of its message.
        """
        now_ms = self._clock.now_ms()
        if queue.paused:
            raise Paused(queue.name)
        if self._consume_rate.limit:
            await self._consume_rate.take(queue.id, 1, now_ms=now_ms)
        leased = await self._store.lease(
            queue.id,
            count=count,
            lease_ms=lease_ms,
            actor=actor,
            now_ms=now_ms,
            leased_max=leased_max,
            allowance=allowance,
        )
        if allowance.refused and not leased.messages:
            raise AnswersFull
        messages = leased.messages
        seqs, attempts = [m.seq for m in messages], [m.attempts for m in messages]
        names = [m.id for m in messages] if bound else ()
        tokens = self._leases.mint_all(queue.id, seqs, attempts, names)
        if any([message.sealed is not None for message in messages]):
            messages = [self.opened(queue, message) for message in messages]
        return Pulled(list(zip(messages, tokens, strict=True)), leased.stats)

    async def await_pull(
        self,
        queue: Queue,
        *,
        count: int,
        lease_ms: int,
        wait_ms: int,
        caller: Caller,
        actor: Actor,
        allowance: Allowance,
        leased_max: int | None = None,
        bound: bool = False,
    ) -> Pulled | None:
        """Lease up to `count` messages, waiting up to `wait_ms` for the first; None: no message.

        A paused queue has none. What was leased for a caller who has left goes back.
        """
        until_s = asyncio.get_running_loop().time() + wait_ms / 1000

        async def attempt() -> Pulled | None:
            current = self._records.get(Queue, queue.id)
            if current is None:
                raise NotFound("queue", queue.name)
            if current.paused:
                return None
            pulled = await self.pull(
                current,
                count=count,
                lease_ms=lease_ms,
                actor=actor,
                allowance=allowance,
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
            self._waiters.wake(queue.id)
        if pulled is not None and caller.gone:
            back = [Retry(m.seq, m.attempts, delay_ms=0) for m, _ in pulled.messages]
            await self.settle_all(queue, back, actor=actor)
            return None
        return pulled

    @contextmanager
    def _hint(
        self, queue: Queue, caller: Caller, until_s: float
    ) -> Iterator["asyncio.Future[bool]"]:
        """A hint that comes as False when time is up, the caller leaves or the server stops."""
        hint = self._waiters.wait(queue.id)
        give_up = _giver_up(hint)
        timer = asyncio.get_running_loop().call_at(until_s, give_up)
        self._hints.add(hint)
        caller.on_gone = give_up
        if self._draining:
            give_up()
        try:
            yield hint
        except BaseException:
            self._waiters.wake(queue.id)  # this hint or the one before may have been for a message
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

    def leases(self, queue: Queue, tokens: Sequence[str]) -> list[tuple[int, int] | None]:
        """Sequence and attempt that each lease's token names, None if it is not of this queue."""
        return self._leases.read_all(queue.id, tokens)

    def bound_leases(
        self, queue: Queue, tokens: Sequence[str], messages: Sequence[str]
    ) -> list[tuple[int, int] | None]:
        """The same for bound tokens, which are read with the ids of their messages."""
        return self._leases.read_all(queue.id, tokens, messages)

    async def settle(
        self, queue: Queue, items: Sequence[Settlement], *, actor: Actor
    ) -> list[Outcome]:
        if not items:
            return []
        now_ms = self._clock.now_ms()
        if self._consume_rate.limit:
            await self._consume_rate.take(queue.id, 1, now_ms=now_ms)
        part = items if len(items) <= PART_SETTLED_MAX else items[:PART_SETTLED_MAX]
        outcomes = await self._store.settle(queue.id, part, actor=actor, now_ms=now_ms)
        if len(outcomes) < len(items):
            outcomes += await self.settle_all(queue, items[len(outcomes) :], actor=actor)
        return outcomes

    async def settle_all(
        self, queue: Queue, items: Sequence[Settlement], *, actor: Actor
    ) -> list[Outcome]:
        """Whatever the queue's rate is: for what the broker itself does with leases."""
        outcomes: list[Outcome] = []
        now_ms = self._clock.now_ms()
        while len(outcomes) < len(items):
            part = items[len(outcomes) : len(outcomes) + PART_SETTLED_MAX]
            outcomes += await self._store.settle(queue.id, part, actor=actor, now_ms=now_ms)
        return outcomes

    async def claim(
        self, queue: Queue, name: str, *, count: int, lease_ms: int, actor: Actor
    ) -> int:
        """Lease up to `count` messages under a name, or find them leased; how many they are.

        A paused queue has none that are not leased already.
        """
        now_ms = self._clock.now_ms()
        await self._consume_rate.take(queue.id, 1, now_ms=now_ms)
        return await self._store.claims.take(
            queue.id,
            name,
            count=0 if queue.paused else count,
            lease_ms=lease_ms,
            actor=actor,
            now_ms=now_ms,
        )

    async def claimed(
        self, queue: Queue, name: str, *, first: int, count: int, allowance: Allowance
    ) -> list[Message]:
        """Messages of a claim from number `first` on, to be `opened`; see `ClaimVerbs`.

        Raises AnswersFull.
        """
        found = await self._store.claims.messages(
            queue.id,
            name,
            first=first,
            count=count,
            now_ms=self._clock.now_ms(),
            allowance=allowance,
        )
        if allowance.refused and not found:
            raise AnswersFull
        return found

    async def extend_claim(self, queue: Queue, name: str, *, lease_ms: int, actor: Actor) -> None:
        now_ms = self._clock.now_ms()
        await self._consume_rate.take(queue.id, 1, now_ms=now_ms)
        await self._store.claims.extend(
            queue.id, name, lease_ms=lease_ms, actor=actor, now_ms=now_ms
        )

    async def ack_claim(
        self, queue: Queue, name: str, *, actor: Actor, after: str | None = None
    ) -> None:
        now_ms = self._clock.now_ms()
        await self._consume_rate.take(queue.id, 1, now_ms=now_ms)
        await self._store.claims.ack(queue.id, name, actor=actor, now_ms=now_ms, after=after)

    async def peek(
        self, queue: Queue, *, count: int, allowance: Allowance
    ) -> list[tuple[Message, str]]:
        """What a pull would get now, each with a reference to remove it by. Raises AnswersFull."""
        now_ms = self._clock.now_ms()
        messages = await self._store.messages.peek(
            queue.id, count=count, now_ms=now_ms, allowance=allowance
        )
        if allowance.refused and not messages:
            raise AnswersFull
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

    async def remove_chosen(
        self,
        queue: str,
        seqs: Sequence[int],
        *,
        actor: Actor,
        leased: bool = True,
        dry_run: bool = False,
    ) -> list[bool]:
        """Delete messages of a queue (id) in one transaction, see `Store.remove`."""
        now_ms = self._clock.now_ms()
        return await self._store.remove(
            queue, seqs, actor=actor, now_ms=now_ms, leased=leased, dry_run=dry_run
        )

    async def redrive_chosen(
        self, queue: str, seqs: Sequence[int], *, actor: Actor, dry_run: bool = False
    ) -> list[bool]:
        """Redrive messages of a queue (id) in one transaction, see `Store.redrive`."""
        now_ms = self._clock.now_ms()
        return await self._store.redrive(
            queue, seqs=seqs, actor=actor, now_ms=now_ms, dry_run=dry_run
        )

    async def delete(self, queue: Queue, message: Message, *, actor: Actor) -> None:
        """Delete one message whatever its state. Raises NotFound."""
        now_ms = self._clock.now_ms()
        if not all(await self._store.remove(queue.id, [message.seq], actor=actor, now_ms=now_ms)):
            raise NotFound("message", message.id)

    async def rename(self, queue: Queue, message: Message, name: str, *, actor: Actor) -> Message:
        """The message with that name. Raises NotFound."""
        now_ms = self._clock.now_ms()
        renamed = await self._store.rename(queue.id, message.seq, name, actor=actor, now_ms=now_ms)
        if renamed is None:
            raise NotFound("message", message.id)
        return renamed

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
        return PurgeStatus(self._clock.now_ms(), await self._store.messages.tail(queue.id))

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
        redriven = 0
        reasons: Counter[RedriveSkip] = Counter()
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
            for message, sent in zip(page, done, strict=True):
                if not sent:
                    reasons[self._why_skipped(message, reach)] += 1
        return Redriven(redriven, reasons.total(), dict(reasons))

    def _why_skipped(self, message: Message | None, reach: Reach) -> RedriveSkip:
        if message is None:
            return "not_found"
        if message.origin is None or message.origin.reason != "attempts":
            return "not_buried"
        if message.origin.queue not in reach:
            return "source_beyond_reach"
        if self._records.get(Queue, message.origin.queue) is None:
            return "source_deleted"
        return "leased"

    async def _pages(self, queue: Queue) -> AsyncIterator[list[Message]]:
        """What the queue holds now."""
        upto_seq, after_seq = await self._store.messages.tail(queue.id), 0
        while after_seq < upto_seq:
            page = await self._store.messages.browse(
                queue.id,
                after_seq=after_seq,
                limit=REDRIVE_PAGE,
                now_ms=self._clock.now_ms(),
                bodies=False,
                allowance=Allowance(PART_BYTES_MAX),
            )
            if not page:
                return
            yield page
            after_seq = page[-1].seq

    async def _named(
        self, queue: Queue, messages: Sequence[str]
    ) -> AsyncIterator[list[Message | None]]:
        part: list[Message | None] = []
        allowance = Allowance(PART_BYTES_MAX)
        for id in dict.fromkeys(messages):
            found = await self._store.messages.find(queue.id, id, now_ms=self._clock.now_ms())
            if part and (len(part) == REDRIVE_PAGE or not allowance.fitting([_size(found)])):
                yield part
                part, allowance = [], Allowance(PART_BYTES_MAX)
                allowance.fitting([_size(found)])
            part.append(found and replace(found, body=b""))
        if part:
            yield part


def _size(message: Message | None) -> int:
    return message.size if message else 0


def _redrivable(message: Message | None, reach: Reach) -> int:
    """Its sequence; 0, which no message has, unless it was buried from a queue within reach."""
    if message is None or (message.origin and message.origin.queue not in reach):
        return 0
    return message.seq


def _parts(drafts: Sequence[Draft], most: int) -> Iterator[Sequence[Draft]]:
    """Drafts as they are stored together, a limited number."""
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
