"""Random histories: whatever happens, every store says what the reference says.

A step may first move the clock, often onto the very moment at which something ends or one
millisecond to either side of it. Then it runs one verb on both stores and compares the answers,
and then everything else that a caller can see. In the end both journals must tell the same lives.
"""

import asyncio
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    rule,
    run_state_machine_as_test,
)

from courier.clock import ManualClock
from courier.core.errors import BrokerError
from courier.core.types import (
    BROKER,
    Ack,
    Draft,
    Extend,
    Message,
    Outcome,
    Queue,
    Retry,
    Settlement,
)
from courier.store.memory import MemoryStore
from courier.store.sqlite import SqliteStore
from tests.conformance.store.driver import CALLER, TENANT, Driver

T = TypeVar("T")
Verdict = tuple[str, Any]
Jump = int | tuple[int, int] | None

# A soak run asks for more.
EXAMPLES = int(os.environ.get("MODEL_EXAMPLES", "60"))
STEPS_MAX = 50

# Where a queue of the chain buries its messages; the last two drop them.
CHAIN = {"work": "dead", "dead": "deeper", "deeper": None, "plain": None}

# Most is published where it has the longest way to go.
PUBLISHED_ON = ("work", "work", "plain", "work", "dead", "deeper")
REDRIVEN_FROM = ("dead", "deeper", "dead", "work")

# Durations come from few values, so that different things end at the same moment.
WAITS = st.sampled_from((0, 0, 1, 20, 50, 100))
LEASES = st.sampled_from((0, 1, 20, 50, 100))
RETENTIONS = st.sampled_from((10_000, 10_000, 10_000, 10_000, 400, 100))
ATTEMPTS = st.sampled_from((1, 1, 2, 2, 3, None))
PICKS = st.integers(0, 11)
SEQS = st.lists(st.integers(1, 9), min_size=1, max_size=4)
JUMPS = st.one_of(
    st.none(),
    st.integers(0, 3),
    st.tuples(st.sampled_from((0, 0, 0, 1, 1, 2, 3)), st.sampled_from((0, 0, 0, -1, 1))),
)
DRAFTS = st.builds(
    Draft,
    body=st.binary(max_size=3),
    content_type=st.sampled_from(("text", "json", "bytes")),
    headers=st.sampled_from((None, None, {}, {"k": "v"}, {"k": [1, None]}, {"k": True}, {"k": 1})),
    # Stands for an id of the publisher's own, to be made when the draft is published.
    id=st.sampled_from((None, None, "own")),
    delay_ms=st.sampled_from((None, None, None, 0, 20, 50)),
    ttl_ms=st.sampled_from((None, None, None, None, None, None, 50, 100)),
    group=st.sampled_from((None, None, "g")),
    once_key=st.sampled_from((None, None, None, None, "k", "l")),
    once_ms=st.sampled_from((1, 50, 100, 1_000)),
)
VERDICTS = st.one_of(
    st.tuples(st.just("ack"), st.booleans()),
    st.tuples(st.just("retry"), st.one_of(st.none(), WAITS)),
    st.tuples(st.just("retry"), st.none()),
    st.tuples(st.just("extend"), LEASES),
)
SETTINGS = st.one_of(
    st.fixed_dictionaries({"retention_ms": RETENTIONS}),
    st.fixed_dictionaries({"attempts_max": ATTEMPTS}),
    st.fixed_dictionaries({"retry_delay_ms": WAITS}),
    st.fixed_dictionaries({"delay_ms": WAITS}),
    st.fixed_dictionaries({"labels": st.just({"paint": "red"})}),
)

# Each kind of step: how often it is taken, and what it is given.
STEPS: dict[str, tuple[int, st.SearchStrategy[tuple[Any, ...]]]] = {
    "wait": (2, st.tuples()),
    "publish": (6, st.tuples(PICKS, st.lists(DRAFTS, min_size=1, max_size=4))),
    "publish_on_two": (1, st.tuples(PICKS, PICKS, st.lists(DRAFTS, min_size=1, max_size=4))),
    "lease": (10, st.tuples(PICKS, st.integers(1, 4), LEASES)),
    "settle": (9, st.tuples(st.lists(st.tuples(PICKS, VERDICTS), min_size=1, max_size=4))),
    "settle_by_guess": (1, st.tuples(PICKS, st.integers(-1, 9), st.integers(-1, 3), VERDICTS)),
    "find": (1, st.tuples(PICKS, PICKS)),
    "remove": (1, st.tuples(PICKS, SEQS)),
    "purge": (1, st.tuples(PICKS, st.integers(0, 9), st.integers(1, 3))),
    "redrive": (3, st.tuples(PICKS, SEQS, st.sampled_from((False, False, True)))),
    "sweep": (2, st.tuples(st.integers(1, 5))),
    "change": (2, st.tuples(PICKS, SETTINGS)),
    "create_again": (1, st.tuples(PICKS)),
    "restart": (1, st.tuples()),
}


def steps(kind: str) -> st.SearchStrategy[tuple[str, tuple[Any, ...]]]:
    return st.tuples(st.just(kind), STEPS[kind][1])


STEP = st.sampled_from([kind for kind in STEPS for _ in range(STEPS[kind][0])]).flatmap(steps)


class Histories(RuleBasedStateMachine):
    """One history, lived through by the reference and by a store on disk."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.clock = ManualClock()
        self.folder = Path(tempfile.mkdtemp(prefix="courier-model-"))
        self.reference = Driver(MemoryStore(), self.clock, self.runner)
        self.other = Driver(self.opened(), self.clock, self.runner)
        self.queues: dict[str, Queue] = {}
        self.leases: list[tuple[str, Message]] = []
        self.moments: set[int] = set()
        self.made = 0
        self.agreed = True

    def opened(self) -> SqliteStore:
        return self.runner.run(SqliteStore.open(self.folder / "courier.db"))

    def teardown(self) -> None:
        try:
            if self.agreed:
                self.compare_journals()
        finally:
            self.runner.run(self.other.store.close())
            self.runner.close()
            shutil.rmtree(self.folder)

    # --- comparing ---

    def both(self, verb: Callable[[Driver], T]) -> T:
        """Run a verb on both stores; its answer, or its refusal, must be the same."""
        answers: list[T | BrokerError] = []
        for driver in (self.reference, self.other):
            try:
                answers.append(verb(driver))
            except BrokerError as error:
                answers.append(error)
        mine, theirs = answers
        self.agreed = mine == theirs
        assert self.agreed, f"{theirs!r} is not {mine!r}"
        assert not isinstance(mine, BrokerError)
        return mine

    def look(self) -> None:
        """Compare everything that a caller can see."""
        queues = self.queues.values()
        self.both(lambda d: [(d.stats(q), d.tail(q), d.peek(q), d.browse(q)) for q in queues])

    def compare_journals(self) -> None:
        mine, theirs = lives(self.reference), lives(self.other)
        for key in mine.keys() | theirs.keys():
            same = mine.get(key) == theirs.get(key)
            assert same, f"{theirs.get(key)} is not {mine.get(key)}"

    # --- the steps ---

    @initialize(
        attempts=st.lists(ATTEMPTS, min_size=4, max_size=4),
        retry_delays=st.lists(WAITS, min_size=4, max_size=4),
        delays=st.lists(st.sampled_from((0, 0, 50)), min_size=4, max_size=4),
        retentions=st.lists(RETENTIONS, min_size=4, max_size=4),
    )
    def begin(
        self,
        attempts: list[int | None],
        retry_delays: list[int],
        delays: list[int],
        retentions: list[int],
    ) -> None:
        for i, name in enumerate(reversed(CHAIN)):
            self.create(
                name,
                attempts_max=attempts[i],
                retry_delay_ms=retry_delays[i],
                delay_ms=delays[i],
                retention_ms=retentions[i],
            )

    @rule(jump=JUMPS, step=STEP)
    def step(self, jump: Jump, step: tuple[str, tuple[Any, ...]]) -> None:
        kind, values = step
        self.move(jump)
        getattr(self, kind)(*values)
        self.look()

    def move(self, jump: Jump) -> None:
        """Let time pass: by so much, or up to a coming moment (and its side)."""
        now_ms = self.clock.now_ms()
        ahead = sorted(moment for moment in self.moments if moment >= now_ms)
        if isinstance(jump, int):
            self.clock.advance(jump)
        elif jump and jump[0] < len(ahead):
            place, side_ms = jump
            self.clock.advance(max(0, ahead[place] + side_ms - now_ms))

    def mark(self, *waits_ms: int | None) -> None:
        """Remember when something that starts now will end."""
        self.moments |= {self.clock.now_ms() + wait_ms for wait_ms in waits_ms if wait_ms}

    def pick(self, number: int, *, ready: bool = False) -> str:
        """A queue, and one that has something ready if that is wanted and there is one."""
        names = list(CHAIN)
        if ready:
            names = [n for n in names if self.reference.peek(self.queues[n])] or names
        return names[number % len(names)]

    def create(self, name: str, **fields: Any) -> None:
        # Both stores make their message ids from the queue's, so it must not be random.
        self.made += 1
        into = CHAIN[name]
        queue = Queue(
            id=f"c0{self.made:030x}",
            tenant=TENANT,
            name=name,
            created_ms=self.clock.now_ms(),
            modified_ms=self.clock.now_ms(),
            dead_letter=self.queues[into].id if into else None,
            **fields,
        )
        self.both(lambda driver: driver.change(puts=[queue]))
        self.queues[name] = queue

    def drafted(self, draft: Draft) -> Draft:
        if draft.id is None:
            return draft
        self.made += 1
        return msgspec.structs.replace(draft, id=f"own-{self.made}")

    def wait(self) -> None:
        """Nothing but the time that has passed, and what it did."""

    def publish(self, number: int, drafts: list[Draft]) -> None:
        queue = self.queues[PUBLISHED_ON[number % len(PUBLISHED_ON)]]
        own = [self.drafted(draft) for draft in drafts]
        self.both(lambda driver: driver.publish(queue, *own))
        self.mark(queue.delay_ms, queue.retention_ms)
        for draft in drafts:
            self.mark(draft.delay_ms, draft.ttl_ms, draft.once_ms if draft.once_key else None)

    def publish_on_two(self, left: int, right: int, drafts: list[Draft]) -> None:
        own = [self.drafted(draft) for draft in drafts]
        parts = {self.pick(left): own[:2], self.pick(right): own[1:]}
        batches = [(self.queues[name].id, part) for name, part in parts.items()]
        now_ms = self.clock.now_ms()
        self.both(lambda d: d.run(d.store.publish(batches, actor=CALLER, now_ms=now_ms)))

    def lease(self, number: int, count: int, lease_ms: int) -> None:
        name = self.pick(number, ready=True)
        queue = self.queues[name]
        now_ms = self.clock.now_ms()

        def verb(driver: Driver) -> tuple[Any, ...]:
            call = driver.store.lease(
                queue.id, count=count, lease_ms=lease_ms, actor=CALLER, now_ms=now_ms
            )
            leased = driver.run(call)
            # Whether a lease that is over as it begins is counted is the store's affair.
            return leased.messages, leased.until_ms, leased.stats if lease_ms else None

        messages: list[Message] = self.both(verb)[0]
        self.leases += [(name, message) for message in messages]
        self.mark(lease_ms, lease_ms + queue.retry_delay_ms)

    def settle(self, picks: list[tuple[int, Verdict]]) -> None:
        """Settle leases of one queue, mostly new ones, but also some that are long over."""
        if not self.leases:
            return
        newest = self.leases[::-1]
        name = newest[picks[0][0] % len(newest)][0]
        held = [message for holder, message in newest if holder == name]
        queue = self.queues[name]
        items = []
        for pick, verdict in picks:
            message = held[pick % len(held)]
            items.append(settlement(message.seq, message.attempts, verdict))
        outcomes = self.both(lambda driver: driver.settle(queue, *items))
        gone = {item.seq for item, o in zip(items, outcomes, strict=True) if o is Outcome.GONE}
        self.leases = [(n, m) for n, m in self.leases if n != name or m.seq not in gone]
        for item in items:
            if isinstance(item, Extend):
                self.mark(item.lease_ms, item.lease_ms + queue.retry_delay_ms)
            elif isinstance(item, Retry):
                self.mark(queue.retry_delay_ms if item.delay_ms is None else item.delay_ms)

    def settle_by_guess(self, number: int, seq: int, attempt: int, verdict: Verdict) -> None:
        queue = self.queues[self.pick(number)]
        self.both(lambda driver: driver.settle(queue, settlement(seq, attempt, verdict)))

    def find(self, number: int, pick: int) -> None:
        queue = self.queues[self.pick(number)]
        known = [message.id for holder, message in self.leases if holder == queue.name]
        known += [message.id for message in self.both(lambda driver: driver.browse(queue))]
        if known:
            self.both(lambda driver: driver.find(queue, known[-1 - pick % len(known)]))

    def remove(self, number: int, seqs: list[int]) -> None:
        queue = self.queues[self.pick(number)]
        self.both(lambda driver: driver.remove(queue, *seqs))

    def purge(self, number: int, upto_seq: int, limit: int) -> None:
        queue = self.queues[self.pick(number)]
        while self.both(lambda driver: driver.purge(queue, upto_seq=upto_seq, limit=limit)):
            pass

    def redrive(self, number: int, picks: list[int], dry_run: bool) -> None:
        queue = self.queues[REDRIVEN_FROM[number % len(REDRIVEN_FROM)]]
        known = [message.seq for message in self.reference.browse(queue)] or [1]
        seqs = [known[pick % len(known)] for pick in picks]
        self.both(lambda driver: driver.redrive(queue, *seqs, dry_run=dry_run))

    def sweep(self, limit: int) -> None:
        """Not compared: how much a store has left to its sweep is its own affair."""
        for driver in (self.reference, self.other):
            driver.sweep(limit=limit)

    def change(self, number: int, fields: dict[str, Any]) -> None:
        name = self.pick(number)
        queue = self.queues[name]
        self.queues[name] = self.both(lambda driver: driver.update(queue, **fields))
        for message in self.both(lambda driver: driver.browse(queue)):
            self.moments.add(message.published_ms + self.queues[name].retention_ms)

    def create_again(self, number: int) -> None:
        """Another queue of the same name. What was to be buried in the first one is dropped."""
        name = self.pick(number)
        queue = self.queues[name]
        self.both(lambda driver: driver.change(drops=[queue]))
        self.leases = [lease for lease in self.leases if lease[0] != name]
        self.create(name, attempts_max=2)

    def restart(self) -> None:
        self.runner.run(self.other.store.close())
        self.other.store = self.opened()


def settlement(seq: int, attempt: int, verdict: Verdict) -> Settlement:
    kind, value = verdict
    if kind == "ack":
        return Ack(seq, attempt, late=value)
    if kind == "retry":
        return Retry(seq, attempt, delay_ms=value)
    return Extend(seq, attempt, lease_ms=value)


def lives(driver: Driver) -> dict[tuple[str, int], list[dict[str, Any]]]:
    """The journal, told message by message; what is no message's comes under sequence 0.

    How unrelated events are interleaved is each store's own affair, and so are their offsets,
    except that they are dense. So is the time at which the messages of a dropped queue go.
    """
    driver.sweep_all()
    events = driver.events()
    assert [event["offset"] for event in events] == list(range(1, len(events) + 1))
    found: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for event in events:
        del event["offset"]
        if event["kind"] == "deleted" and event["dialect"] == BROKER.dialect:
            del event["at_ms"]
        found.setdefault((event["queue"], event.get("seq", 0)), []).append(event)
    return found


@pytest.mark.slow
def test_every_store_lives_every_history_like_the_reference() -> None:
    run_state_machine_as_test(
        Histories,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS_MAX,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
