"""A bounded story of a store, and a model that knows what was answered.

The model is the naive store in memory: it goes through those steps that were answered well, and
no others. What a step that got no answer would have done is known as well.
"""

import copy
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from courier.core.errors import Conflict, NotFound, OutcomeUnknown, StoreUnavailable
from courier.core.records import decided
from courier.core.store import Store
from courier.core.types import (
    Ack,
    Actor,
    Draft,
    Extend,
    Listener,
    Numbering,
    Pushed,
    PushFailed,
    Queue,
    Report,
    Retry,
    Tenant,
)
from tests.oracle.store import Oracle

ACTOR = Actor("somebody", "test")
NOW_MS = 1_700_000_000_000
DAY_MS = 86_400_000
SMALL, LARGE = b"s" * 50, b"l" * 9_000

Leases = dict[str, list[tuple[int, int]]]
Step = Callable[[Store, Leases], Awaitable[None]]
State = tuple[Any, ...]


def queue(name: str) -> Queue:
    id = name.encode().hex().ljust(32, "0")
    return Queue(id=id, tenant="t", name=name, created_ms=NOW_MS, modified_ms=NOW_MS)


ORDERS, SPARE = queue("orders"), queue("spare")
TENANT = Tenant(id="t", tenant="t", name="t", created_ms=NOW_MS, organization="o")


def put(*records: Any) -> Step:
    async def step(store: Store, _: Leases) -> None:
        await store.change(decided(puts=records), actor=ACTOR, now_ms=NOW_MS)

    return step


def drop(record: Any) -> Step:
    async def step(store: Store, _: Leases) -> None:
        await store.change(decided(drops=[record]), actor=ACTOR, now_ms=NOW_MS)

    return step


def publish(target: Queue, body: bytes, count: int, delay_ms: int = 0) -> Step:
    async def step(store: Store, _: Leases) -> None:
        drafts = [Draft(b"%d %s" % (number, body), delay_ms=delay_ms) for number in range(count)]
        if store.records.get(Queue, target.id):
            await store.publish([(target.id, drafts)], actor=ACTOR, now_ms=NOW_MS)

    return step


def lease(target: Queue, count: int) -> Step:
    async def step(store: Store, leases: Leases) -> None:
        if store.records.get(Queue, target.id):
            leased = await store.lease(
                target.id, count=count, lease_ms=DAY_MS, actor=ACTOR, now_ms=NOW_MS
            )
            found = [(message.seq, message.attempts) for message in leased.messages]
            leases.setdefault(target.id, []).extend(found)

    return step


def settle(target: Queue, count: int, item: Callable[[int, int], Any]) -> Step:
    async def step(store: Store, leases: Leases) -> None:
        held = leases.get(target.id, [])
        items = [item(seq, attempt) for seq, attempt in held[:count]]
        if items and store.records.get(Queue, target.id):
            await store.settle(target.id, items, actor=ACTOR, now_ms=NOW_MS)
            del held[:count]

    return step


def purge(target: Queue) -> Step:
    async def step(store: Store, _: Leases) -> None:
        if store.records.get(Queue, target.id):
            await store.purge(target.id, upto_seq=9_999, limit=999, actor=ACTOR, now_ms=NOW_MS)

    return step


async def sweep(store: Store, _: Leases) -> None:
    await store.sweep(limit=1_000, now_ms=NOW_MS)


async def restart(store: Store, _: Leases) -> None:
    """The driver stops and opens the store again."""


STORY: list[Step] = [
    put(TENANT, ORDERS),
    put(SPARE),
    publish(ORDERS, SMALL, 1),
    publish(ORDERS, SMALL, 12),
    publish(SPARE, LARGE, 2),
    lease(ORDERS, 6),
    settle(ORDERS, 2, Ack),
    settle(ORDERS, 1, lambda seq, attempt: Retry(seq, attempt, delay_ms=DAY_MS)),
    publish(ORDERS, SMALL, 3, delay_ms=DAY_MS),
    restart,
    settle(ORDERS, 1, lambda seq, attempt: Extend(seq, attempt, lease_ms=2 * DAY_MS)),
    lease(SPARE, 1),
    settle(ORDERS, 1, Ack),
    settle(SPARE, 1, Ack),
    purge(SPARE),
    publish(SPARE, SMALL, 2),
    drop(SPARE),
    sweep,
    publish(ORDERS, LARGE, 1),
]


# --- the second story: what has rows of its own, and what is trimmed ---

LINES = replace(queue("lines"), fifo=True)
PUSHED = queue("pushed")
LISTENER = Listener(
    id="d0" * 16,
    tenant="t",
    parent=PUSHED.id,
    name=f"{PUSHED.id}/mill",
    title="mill",
    created_ms=NOW_MS,
    modified_ms=NOW_MS,
    url="https://mill.example/push",
    liveness_url="https://mill.example/live",
)
# Up to here the journal may be trimmed, and is not compared.
TRIMMED = 12


def publish_groups(target: Queue, groups: str) -> Step:
    async def step(store: Store, _: Leases) -> None:
        drafts = [Draft(name.encode() + SMALL, group=name) for name in groups]
        if store.records.get(Queue, target.id):
            await store.publish([(target.id, drafts)], actor=ACTOR, now_ms=NOW_MS)

    return step


def publish_rows(target: Queue, first: int, count: int) -> Step:
    async def step(store: Store, _: Leases) -> None:
        drafts = [Draft(b"row %d" % number) for number in range(first, first + count)]
        if store.records.get(Queue, target.id):
            with suppress(Conflict):  # one before it was refused
                numbering = Numbering("k", first, NOW_MS + DAY_MS)
                await store.rows.publish(target.id, drafts, numbering, actor=ACTOR, now_ms=NOW_MS)

    return step


def push(count: int, item: Callable[[int], Any]) -> Step:
    """Take and settle: two calls, of which the second may be refused alone."""

    async def step(store: Store, leases: Leases) -> None:
        if store.records.get(Listener, LISTENER.id):
            held = leases.setdefault("pushed", [])
            items = [item(seq) for seq, _ in held]
            if items:
                await store.pushes.settle(LISTENER.id, items, now_ms=NOW_MS)
                held.clear()
                return
            taken = await store.pushes.take(
                LISTENER.id, count=count, lease_ms=DAY_MS, now_ms=NOW_MS
            )
            held.extend((message.seq, 1) for message in taken)

    return step


async def claim(store: Store, _: Leases) -> None:
    if store.records.get(Queue, PUSHED.id):
        await store.claims.take(
            PUSHED.id, "c", count=2, lease_ms=DAY_MS, actor=ACTOR, now_ms=NOW_MS
        )


async def ack_claim(store: Store, _: Leases) -> None:
    if store.records.get(Queue, PUSHED.id):
        with suppress(NotFound):
            await store.claims.ack(PUSHED.id, "c", actor=ACTOR, now_ms=NOW_MS)


def remove(target: Queue, seqs: list[int]) -> Step:
    async def step(store: Store, _: Leases) -> None:
        if store.records.get(Queue, target.id):
            await store.remove(target.id, seqs, actor=ACTOR, now_ms=NOW_MS)

    return step


async def trim(store: Store, _: Leases) -> None:
    await store.journal.trim(upto=TRIMMED)


SECOND_STORY: list[Step] = [
    put(TENANT, LINES, PUSHED, LISTENER),
    publish_groups(LINES, "aabbc"),
    publish(PUSHED, SMALL, 5),
    lease(LINES, 3),
    push(2, lambda seq: Pushed(seq, 1, Report(200))),
    settle(LINES, 1, Ack),
    push(2, lambda seq: Pushed(seq, 1, Report(200))),
    claim,
    settle(LINES, 1, lambda seq, attempt: Retry(seq, attempt, delay_ms=DAY_MS)),
    push(2, lambda seq: PushFailed(seq, 1, Report(500), DAY_MS)),
    ack_claim,
    trim,
    restart,
    push(2, lambda seq: PushFailed(seq, 1, Report(500), DAY_MS)),
    publish_rows(PUSHED, 0, 2),
    publish_rows(PUSHED, 1, 2),
    remove(PUSHED, [5]),
    trim,
    drop(LISTENER),
    sweep,
    publish_groups(LINES, "ca"),
    trim,
]


async def state(store: Store) -> State:
    """All that callers can see of it, but for the beginning of the journal."""
    queues = store.records.scan(Queue)
    found: list[Any] = [store.records.scan(Tenant), queues]
    for each in queues:
        messages = await store.messages.browse(
            each.id, after_seq=0, limit=9_999, now_ms=NOW_MS, kept=True
        )
        found.append([(message.seq, message.body, message.attempts) for message in messages])
        stats = (await store.stats([each.id], now_ms=NOW_MS))[each.id]
        found.append((stats.count, stats.bytes, stats.leased, stats.delayed))
        for message in messages:
            pushes = await store.pushes.of_message(each.id, message.seq, now_ms=NOW_MS)
            found += [(push.status, push.attempts) for push in pushes]
    head = await store.journal.head()
    kinds: Counter[str] = Counter()
    last = head.first - 1
    for run in await store.journal.read(after=0, limit=99_999):
        assert run.offset == last + 1, "offsets are dense"
        last = run.offset + run.count - 1
        kinds[run.kind] += max(0, min(run.count, last - TRIMMED))
    assert head.last == last
    return (*found, last, sorted((+kinds).items()))


class Model:
    """What the store may hold: `now` for certain, or one of `maybe` while a step is under way."""

    def __init__(self) -> None:
        self._oracle = Oracle()
        self._leases: Leases = {}
        self.now: State = ()
        self.maybe: list[State] = []
        self.refused = self.unknown = 0

    async def begin(self) -> None:
        self.now = await state(self._oracle)
        self.maybe = [self.now]

    async def run(
        self, step: Step, store: Store, leases: Leases, *, begun: Callable[[], None]
    ) -> bool:
        """Let the store take a step; False: it did not say whether it has."""
        held = copy.deepcopy(leases)
        ahead = copy.deepcopy(self._oracle), copy.deepcopy(self._leases)
        await step(*ahead)
        after = await state(ahead[0])
        self.maybe = [self.now, after]
        begun()
        try:
            await step(store, leases)
        except OutcomeUnknown:
            self.unknown += 1
            return False
        except StoreUnavailable:
            self.refused += 1
            leases.clear()
            leases.update(held)
        else:
            self._oracle, self._leases = ahead
            self.now = after
        self.maybe = [self.now]
        return True
