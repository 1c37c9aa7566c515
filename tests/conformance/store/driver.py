"""Drives a store from plain functions, at the time of a clock that moves when told to."""

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from courier import ids
from courier.clock import ManualClock
from courier.core import journal
from courier.core.limits import Allowance
from courier.core.matching import Sought
from courier.core.records import decided
from courier.core.store import Store
from courier.core.types import (
    DAY_MS,
    MINUTE_MS,
    SEAL_BYTES,
    Ack,
    Actor,
    AnyRecord,
    Draft,
    Extend,
    Level,
    Listener,
    Message,
    MessageState,
    Numbering,
    Outcome,
    Push,
    Pushed,
    PushFailed,
    PushReturned,
    PushSettlement,
    PushStats,
    Queue,
    QueueStats,
    Receipt,
    Report,
    Retry,
    Settlement,
    Standing,
    Swept,
    Tally,
    Via,
)
from courier.sealing import KEY_BYTES, KeySealer

T = TypeVar("T")
S = TypeVar("S", Queue, Listener)

TENANT = "c0" + "7" * 30
CALLER = Actor(id="caller", dialect="test")
# What came of a push, when a test does not care for more.
ARRIVED = Report(status=204, duration_ms=12)
REFUSED = Report(status=503, error="answered 503", duration_ms=40, answer=b"busy")
# What is known of a push whose lease ended.
SILENCE = Report(error="no outcome was noted")
EVENTS_MAX = 1_000_000
FOREVER_MS = 1 << 50
SWEEPS_MAX = 1_000
# More turns of the event loop than any store needs between a change and the hints that follow.
TURNS = 10


def allowing(bytes_max: int | None) -> Allowance | None:
    return None if bytes_max is None else Allowance(bytes_max)


def bodies(messages: Sequence[Message]) -> list[str]:
    return [message.body.decode() for message in messages]


SEALER = KeySealer([b"k" * KEY_BYTES])


def sealed(clear: bytes, *, key: str = "key-1", **fields: Any) -> Draft:
    """A draft whose body is as long as if it had been encrypted."""
    return Draft(clear + bytes(SEAL_BYTES), sealed=key, **fields)


class Driver:
    """Each call is one verb, run to its end. What a test does not care about has a default."""

    def __init__(self, store: Store, clock: ManualClock, runner: asyncio.Runner) -> None:
        self.store = store
        self.clock = clock
        self._runner = runner

    @property
    def now_ms(self) -> int:
        return self.clock.now_ms()

    def advance(self, ms: int) -> None:
        self.clock.advance(ms)

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        # The runner's own `run` takes care of Ctrl-C anew each time, which costs more than a verb.
        return self._runner.get_loop().run_until_complete(call)

    # --- settings ---

    def change(self, *, puts: Sequence[AnyRecord] = (), drops: Sequence[AnyRecord] = ()) -> None:
        self.run(
            self.store.change(decided(puts=puts, drops=drops), actor=CALLER, now_ms=self.now_ms)
        )

    def queue(self, name: str = "orders", **settings: Any) -> Queue:
        """Create a queue; `settings` are fields of Queue."""
        fields = {"id": ids.new_id(), "tenant": TENANT} | settings
        now_ms = self.now_ms
        queue = Queue(name=name, created_ms=now_ms, modified_ms=now_ms, **fields)
        self.change(puts=[queue])
        return queue

    def listener(self, queue: Queue, title: str = "mill", **settings: Any) -> Listener:
        """Create a listener of a queue; `settings` are fields of Listener."""
        fields: dict[str, Any] = {"id": ids.new_id(), "created_ms": self.now_ms} | settings
        listener = Listener(
            tenant=queue.tenant,
            parent=queue.id,
            name=f"{queue.id}/{title}",
            title=title,
            modified_ms=self.now_ms,
            url="https://mill.example/push",
            liveness_url="https://mill.example/live",
            **fields,
        )
        self.change(puts=[listener])
        return listener

    def update(self, record: S, **settings: Any) -> S:
        record = msgspec.structs.replace(record, modified_ms=self.now_ms, **settings)
        self.change(puts=[record])
        return record

    # --- messages ---

    def publish(self, queue: Queue, *drafts: Draft | str, bytes_max: int | None = None) -> Receipt:
        [receipt] = self.publish_all((queue, drafts), bytes_max=bytes_max)
        return receipt

    def publish_all(
        self,
        *batches: tuple[Queue, Sequence[Draft | str]],
        bytes_max: int | None = None,
        via: Via | None = None,
    ) -> list[Receipt]:
        """Publish on several queues in one call."""
        full = [
            (queue.id, [Draft(d.encode()) if isinstance(d, str) else d for d in drafts])
            for queue, drafts in batches
        ]
        receipts = self.run(
            self.store.publish(full, actor=CALLER, now_ms=self.now_ms, bytes_max=bytes_max, via=via)
        )
        # With ids that are made, so that receipts of two stores can be compared.
        return [replace(receipt, made=receipt.ids) for receipt in receipts]

    def publish_rows(
        self,
        queue: Queue,
        *drafts: Draft | str,
        key: str = "k",
        first: int = 0,
        for_ms: int = DAY_MS,
        bytes_max: int | None = None,
        listener: Listener | None = None,
        marks: Sequence[bytes] | None = None,
    ) -> int:
        return self.run(
            self.store.rows.publish(
                queue.id,
                [Draft(d.encode()) if isinstance(d, str) else d for d in drafts],
                Numbering(key, first, self.now_ms + for_ms, marks),
                actor=CALLER,
                now_ms=self.now_ms,
                bytes_max=bytes_max,
                listener=listener.id if listener else None,
            )
        )

    def rows(self, queue: Queue, *, key: str = "k", below: bool = False) -> int:
        return self.run(self.store.rows.count(queue.id, key=key, now_ms=self.now_ms, below=below))

    def lease(
        self,
        queue: Queue,
        *,
        count: int = 100,
        lease_ms: int = 1_000,
        leased_max: int | None = None,
        bytes_max: int | None = None,
    ) -> list[Message]:
        leased = self.run(
            self.store.lease(
                queue.id,
                count=count,
                lease_ms=lease_ms,
                actor=CALLER,
                now_ms=self.now_ms,
                leased_max=leased_max,
                allowance=allowing(bytes_max),
            )
        )
        return leased.messages

    def lease_one(self, queue: Queue, *, lease_ms: int = 1_000) -> Message:
        [message] = self.lease(queue, count=1, lease_ms=lease_ms)
        return message

    def settle(self, queue: Queue, *items: Settlement) -> list[Outcome]:
        return self.run(self.store.settle(queue.id, items, actor=CALLER, now_ms=self.now_ms))

    def ack(self, queue: Queue, message: Message, *, late: bool = False) -> Outcome:
        return self.settle(queue, Ack(message.seq, message.attempts, late))[0]

    def retry(self, queue: Queue, message: Message, *, delay_ms: int | None = None) -> Outcome:
        return self.settle(queue, Retry(message.seq, message.attempts, delay_ms))[0]

    def extend(self, queue: Queue, message: Message, *, lease_ms: int) -> Outcome:
        return self.settle(queue, Extend(message.seq, message.attempts, lease_ms))[0]

    def claim(
        self, queue: Queue, name: str = "batch", *, count: int = 100, lease_ms: int = 1_000
    ) -> int:
        return self.run(
            self.store.claims.take(
                queue.id, name, count=count, lease_ms=lease_ms, actor=CALLER, now_ms=self.now_ms
            )
        )

    def claimed(
        self,
        queue: Queue,
        name: str = "batch",
        *,
        first: int = 0,
        count: int = 100,
        bytes_max: int | None = None,
    ) -> list[Message]:
        return self.run(
            self.store.claims.messages(
                queue.id,
                name,
                first=first,
                count=count,
                now_ms=self.now_ms,
                allowance=allowing(bytes_max),
            )
        )

    def extend_claim(self, queue: Queue, name: str = "batch", *, lease_ms: int) -> None:
        self.run(
            self.store.claims.extend(
                queue.id, name, lease_ms=lease_ms, actor=CALLER, now_ms=self.now_ms
            )
        )

    def ack_claim(self, queue: Queue, name: str = "batch", *, after: str | None = None) -> None:
        self.run(
            self.store.claims.ack(queue.id, name, actor=CALLER, now_ms=self.now_ms, after=after)
        )

    def backlogs(self, *, tenant: str | None = None) -> tuple[int, dict[str, int]]:
        return self.run(self.store.journal.backlogs(tenant=tenant))

    def peek(
        self,
        queue: Queue,
        *,
        count: int = 100,
        bodies: bool = True,
        bytes_max: int | None = None,
    ) -> list[Message]:
        verbs = self.store.messages
        verb = verbs.peek if bodies else partial(verbs.ready, bodies=False)
        return self.run(
            verb(
                queue.id,
                count=count,
                now_ms=self.now_ms,
                allowance=allowing(bytes_max),
            )
        )

    def pull(self, queue: Queue) -> None:
        """Ask as pullers do, so that the queue is not one that only pushes."""
        self.peek(queue, count=1)

    def browse(
        self,
        queue: Queue,
        *,
        after_seq: int = 0,
        limit: int = 100,
        kept: bool = False,
        bodies: bool = True,
        bytes_max: int | None = None,
    ) -> list[Message]:
        return self.run(
            self.store.messages.browse(
                queue.id,
                after_seq=after_seq,
                limit=limit,
                now_ms=self.now_ms,
                kept=kept,
                bodies=bodies,
                allowance=allowing(bytes_max),
            )
        )

    def states(
        self, queue: Queue, state: MessageState | None = None, *, after: int = 0,
        before: int = 1 << 40, limit: int = 100,
    ) -> list[Standing]:  # fmt: skip
        """All of them, in pages of `limit`."""
        found: list[Standing] = []
        while True:
            page, last = self.run(
                self.store.messages.states(
                    queue.id, after_seq=after, before_seq=before, limit=limit,
                    now_ms=self.now_ms, state=state,
                )
            )  # fmt: skip
            found += page
            if not last:
                return found
            after = last

    def search(
        self, queue: Queue, text: str, path: str = "", *, after: int = 0, before: int = 1 << 40,
        limit: int = 100, newest: bool = False,
    ) -> list[Message]:  # fmt: skip
        """All of them, in pages of `limit`."""
        found: list[Message] = []
        while True:
            page, end = self.run(
                self.store.messages.search(
                    queue.id, Sought(text, path), after_seq=after, before_seq=before, limit=limit,
                    now_ms=self.now_ms, newest=newest,
                )
            )  # fmt: skip
            found += page
            if not end:
                return found
            after, before = (after, end) if newest else (end, before)

    def find(self, queue: Queue, message: str) -> Message | None:
        return self.run(self.store.messages.find(queue.id, message, now_ms=self.now_ms))

    def rename(self, queue: Queue, seq: int, name: str) -> Message | None:
        return self.run(self.store.rename(queue.id, seq, name, actor=CALLER, now_ms=self.now_ms))

    def remove(
        self, queue: Queue, *seqs: int, leased: bool = True, dry_run: bool = False
    ) -> list[bool]:
        return self.run(
            self.store.remove(
                queue.id,
                seqs,
                actor=CALLER,
                now_ms=self.now_ms,
                leased=leased,
                dry_run=dry_run,
            )
        )

    def purge(self, queue: Queue, *, upto_seq: int, limit: int = 1_000) -> int:
        return self.run(
            self.store.purge(
                queue.id, upto_seq=upto_seq, limit=limit, actor=CALLER, now_ms=self.now_ms
            )
        )

    def tail(self, queue: Queue) -> int:
        return self.run(self.store.messages.tail(queue.id))

    def redrive(self, queue: Queue, *seqs: int, dry_run: bool = False) -> list[bool]:
        return self.run(
            self.store.redrive(
                queue.id, seqs=seqs, actor=CALLER, now_ms=self.now_ms, dry_run=dry_run
            )
        )

    def stats(self, queue: Queue) -> QueueStats:
        return self.run(self.store.stats([queue.id], now_ms=self.now_ms))[queue.id]

    # --- pushes ---

    def take(
        self,
        listener: Listener,
        *,
        count: int = 100,
        lease_ms: int = 1_000,
        allowance: Allowance | None = None,
    ) -> list[Message]:
        return self.run(
            self.store.pushes.take(
                listener.id,
                count=count,
                lease_ms=lease_ms,
                now_ms=self.now_ms,
                allowance=allowance,
            )
        )

    def take_one(self, listener: Listener, *, lease_ms: int = 1_000) -> Message:
        [message] = self.take(listener, count=1, lease_ms=lease_ms)
        return message

    def settle_pushes(self, listener: Listener, *items: PushSettlement) -> list[bool]:
        return self.run(self.store.pushes.settle(listener.id, items, now_ms=self.now_ms))

    def arrive(self, listener: Listener, message: Message, report: Report = ARRIVED) -> bool:
        return self.settle_pushes(listener, Pushed(message.seq, message.attempts, report))[0]

    def miss(
        self,
        listener: Listener,
        message: Message,
        *,
        delay_ms: int | None,
        report: Report = REFUSED,
    ) -> bool:
        """Note a failed push, to be tried again after `delay_ms` or never."""
        item = PushFailed(message.seq, message.attempts, report, delay_ms)
        return self.settle_pushes(listener, item)[0]

    def give_back(self, listener: Listener, message: Message) -> bool:
        return self.settle_pushes(listener, PushReturned(message.seq, message.attempts))[0]

    def pushes(self, queue: Queue, seq: int) -> list[Push]:
        return self.run(self.store.pushes.of_message(queue.id, seq, now_ms=self.now_ms))

    def push(self, listener: Listener, seq: int) -> Push:
        """The push of one message to one listener."""
        pushes = self.run(self.store.pushes.of_message(listener.parent, seq, now_ms=self.now_ms))
        [push] = [push for push in pushes if push.listener == listener.id]
        return push

    def push_stats(self, listener: Listener) -> PushStats:
        return self.run(self.store.pushes.stats([listener.id], now_ms=self.now_ms))[listener.id]

    def missed(self, listener: Listener, *, limit: int = 100, before_seq: int = 0) -> list[str]:
        missed = self.store.pushes.missed
        return self.run(missed(listener.id, limit=limit, now_ms=self.now_ms, before_seq=before_seq))

    def retry_push(self, listener: Listener, seq: int) -> bool:
        return self.run(self.store.pushes.retry(listener.id, seq, now_ms=self.now_ms))

    def backfill(
        self,
        listener: Listener,
        *,
        since_ms: int = 0,
        until_ms: int = FOREVER_MS,
        after_seq: int = 0,
        limit: int = 100,
    ) -> tuple[int, int]:
        return self.run(
            self.store.pushes.backfill(
                listener.id,
                since_ms=since_ms,
                until_ms=until_ms,
                after_seq=after_seq,
                limit=limit,
                now_ms=self.now_ms,
            )
        )

    # --- waiting ---

    def wait(self, on: Queue | Listener) -> "asyncio.Future[bool]":
        async def ask() -> "asyncio.Future[bool]":
            return self.store.waiters.wait(on.id)

        return self.run(ask())

    def hints(self, *waiting: "asyncio.Future[bool]") -> list[bool]:
        """Of each who waits, whether it has been given a hint by now."""

        async def turn() -> None:
            for _ in range(TURNS):
                await asyncio.sleep(0)

        self.run(turn())
        return [future.done() and future.result() for future in waiting]

    # --- numbers of the past ---

    def tally(self, counts: Mapping[tuple[str, str], int]) -> None:
        self.run(self.store.past.tally(counts, now_ms=self.now_ms))

    def tallies(
        self,
        id: str | None = None,
        *,
        tenant: str = TENANT,
        since_ms: int = 0,
        until_ms: int = FOREVER_MS,
    ) -> list[Tally]:
        return self.run(
            self.store.past.tallies(tenant=tenant, id=id, since_ms=since_ms, until_ms=until_ms)
        )

    def levels(self, queue: Queue, *, since_ms: int = 0) -> list[Level]:
        return self.run(self.store.past.levels([queue.id], since_ms=since_ms))[0]

    def held(self, queue: Queue, *, minute: int) -> tuple[int, int, int]:
        """What the queue held at the end of a minute: count, leased and delayed."""
        for level in self.levels(queue, since_ms=minute * MINUTE_MS):
            return level.count, level.leased, level.delayed
        stats = self.stats(queue)
        return stats.count, stats.leased, stats.delayed

    # --- time and journal ---

    def sweep(self, *, limit: int = 1_000) -> Swept:
        return self.run(self.store.sweep(limit=limit, now_ms=self.now_ms))

    def sweeps(self, *, limit: int) -> list[Swept]:
        """Sweep until nothing is left to do."""
        swept = [self.sweep(limit=limit)]
        while swept[-1].more:
            assert len(swept) < SWEEPS_MAX, "there is always more to sweep"
            swept.append(self.sweep(limit=limit))
        return swept

    def sweep_all(self) -> None:
        self.sweeps(limit=1_000)

    def last(self) -> int:
        """The offset of the newest event."""
        return self.run(self.store.journal.head()).last

    def offset_at(self, at_ms: int) -> int:
        return self.run(self.store.journal.offset_at(at_ms))

    def events(self, *, after: int = 0, limit: int = EVENTS_MAX) -> list[dict[str, Any]]:
        runs = self.run(self.store.journal.read(after=after, limit=limit))
        return list(journal.events(runs, after=after, limit=limit))

    def kinds(self, *, after: int = 0) -> list[str]:
        return [event["kind"] for event in self.events(after=after)]
