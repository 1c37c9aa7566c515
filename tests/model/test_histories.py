"""Random histories: whatever happens, every store says what the reference says.

Each step may first move the clock, often onto the very moment at which something ends (or one
millisecond to either side), then runs one verb on both stores and compares the answers, and
then compares everything a caller can see. In the end both journals must tell the same lives.
"""

import asyncio
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

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

# A soak run asks for more.
EXAMPLES = int(os.environ.get("COURIER_MODEL_EXAMPLES", "60"))
STEPS = 40

NAMES = ("work", "dead", "deeper", "plain")
# Durations come from few values, so that different things end at the same moment.
SHORT = st.sampled_from((0, 1, 20, 50, 100))
LEASES = st.sampled_from((0, 1, 20, 50, 50, 100, 100))
RETENTIONS = st.sampled_from((60, 100, 150, 400, 10_000, 10_000))
ATTEMPTS = st.sampled_from((1, 2, 2, 3, None))
NUMBERS = st.integers(0, 1_000)
SIDES = st.sampled_from((-1, 0, 0, 0, 1))
JUMPS = st.one_of(st.none(), st.none(), st.integers(0, 3), st.tuples(NUMBERS, SIDES))
Jump = int | tuple[int, int] | None

DRAFTS = st.builds(
    Draft,
    body=st.binary(max_size=3),
    content_type=st.sampled_from(("text", "json", "bytes")),
    headers=st.sampled_from((None, None, {}, {"k": "v"}, {"k": [1, None]}, {"k": True}, {"k": 1})),
    id=st.none(),
    delay_ms=st.one_of(st.none(), st.none(), SHORT),
    ttl_ms=st.one_of(st.none(), st.none(), st.sampled_from((1, 50, 100, 500))),
    group=st.sampled_from((None, None, "g")),
    once_key=st.sampled_from((None, None, None, "k", "l")),
    once_ms=st.sampled_from((1, 50, 100, 1_000)),
)
BATCHES = st.lists(st.tuples(DRAFTS, st.booleans()), min_size=1, max_size=4)
VERDICTS = st.one_of(
    st.tuples(st.just("ack"), st.booleans()),
    st.tuples(st.just("retry"), st.one_of(st.none(), SHORT)),
    st.tuples(st.just("extend"), LEASES),
)
QUEUES = st.sampled_from(NAMES)


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
        self.leases: list[tuple[str, int, int]] = []
        self.moments: list[int] = []
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

    # --- one step ---

    def both(self, verb: Callable[[Driver], T]) -> T:
        """Run a verb on both stores; its answer, or how it was refused, must be the same."""
        answers: list[T | tuple[type, str]] = []
        for driver in (self.reference, self.other):
            try:
                answers.append(verb(driver))
            except BrokerError as error:
                answers.append((type(error), str(error)))
        self.agreed = answers[1] == answers[0]
        assert self.agreed, f"{answers[1]} is not {answers[0]}"
        assert not isinstance(answers[0], tuple), "no step of a history is refused"
        return answers[0]

    def move(self, jump: Jump) -> None:
        """Let time pass: a little, or up to a moment at which something may end."""
        if isinstance(jump, int):
            self.clock.advance(jump)
        elif isinstance(jump, tuple):
            now_ms = self.clock.now_ms()
            ahead = sorted({moment for moment in self.moments if moment >= now_ms})
            if ahead:
                index, side = jump
                # Near moments are where things meet; far ones are reached by going on.
                moment = ahead[index % min(len(ahead), 4)]
                self.clock.advance(max(0, moment + side - now_ms))

    def mark(self, *waits_ms: int) -> None:
        """Remember when something that starts now will end."""
        self.moments += [self.clock.now_ms() + wait_ms for wait_ms in waits_ms]

    def look(self) -> None:
        """Compare everything that a caller can see."""
        for queue in self.queues.values():
            self.both(lambda driver, queue=queue: driver.stats(queue))
            self.both(lambda driver, queue=queue: driver.peek(queue))
            self.both(lambda driver, queue=queue: driver.browse(queue))
            self.both(lambda driver, queue=queue: driver.tail(queue))

    def compare_journals(self) -> None:
        mine, theirs = (lives(driver) for driver in (self.reference, self.other))
        for key in mine.keys() | theirs.keys():
            same = mine.get(key) == theirs.get(key)
            assert same, f"{theirs.get(key)} is not {mine.get(key)}"

    # --- settings ---

    def put(self, name: str, **fields: Any) -> None:
        self.made += 1
        now_ms = self.clock.now_ms()
        id = f"c0{self.made:030x}"
        queue = Queue(
            id=id, tenant=TENANT, name=name, created_ms=now_ms, modified_ms=now_ms, **fields
        )
        self.both(lambda driver: driver.change(puts=[queue]))
        self.queues[name] = queue

    @initialize(
        attempts=st.lists(ATTEMPTS, min_size=4, max_size=4),
        retry_delays=st.lists(SHORT, min_size=4, max_size=4),
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
        """Three queues that bury into each other, and one that drops."""
        for i, name in enumerate(("deeper", "dead", "work", "plain")):
            into = {"dead": "deeper", "work": "dead"}.get(name)
            self.put(
                name,
                attempts_max=attempts[i],
                retry_delay_ms=retry_delays[i],
                delay_ms=delays[i],
                retention_ms=retentions[i],
                dead_letter=self.queues[into].id if into else None,
            )

    @rule(
        name=QUEUES,
        jump=JUMPS,
        change=st.one_of(
            st.fixed_dictionaries({"retention_ms": RETENTIONS}),
            st.fixed_dictionaries({"attempts_max": ATTEMPTS}),
            st.fixed_dictionaries({"retry_delay_ms": SHORT}),
            st.fixed_dictionaries({"delay_ms": SHORT}),
            st.fixed_dictionaries({"labels": st.just({"paint": "red"})}),
        ),
    )
    def change(self, name: str, jump: Jump, change: dict[str, Any]) -> None:
        self.move(jump)
        queue = self.queues[name]
        self.queues[name] = self.both(lambda driver: driver.update(queue, **change))
        if "retention_ms" in change:
            for message in self.both(lambda driver: driver.browse(queue)):
                self.moments.append(message.published_ms + change["retention_ms"])
        self.look()

    @rule(name=QUEUES, jump=JUMPS, sure=st.integers(0, 3))
    def create_again(self, name: str, jump: Jump, sure: int) -> None:
        """Drop a queue and create another one of the same name. Dead letters then get lost."""
        if sure:
            return
        self.move(jump)
        queue = self.queues[name]
        self.both(lambda driver: driver.change(drops=[queue]))
        self.leases = [lease for lease in self.leases if lease[0] != name]
        self.put(name, attempts_max=2, dead_letter=queue.dead_letter)
        self.look()

    # --- messages ---

    @rule(name=QUEUES, batch=BATCHES, jump=JUMPS)
    def publish(self, name: str, batch: list[tuple[Draft, bool]], jump: Jump) -> None:
        self.move(jump)
        queue = self.queues[name]
        drafts = [self.drafted(draft, own) for draft, own in batch]
        self.both(lambda driver: driver.publish(queue, *drafts))
        for draft in drafts:
            delay_ms = queue.delay_ms if draft.delay_ms is None else draft.delay_ms
            self.mark(delay_ms, queue.retention_ms, draft.ttl_ms or 0)
            if draft.once_key:
                self.mark(draft.once_ms)
        self.look()

    def drafted(self, draft: Draft, own: bool) -> Draft:
        """The draft with a fresh id of the publisher's, if it is to have one."""
        if not own:
            return draft
        self.made += 1
        fields = {name: getattr(draft, name) for name in draft.__struct_fields__}
        return Draft(**fields | {"id": f"own-{self.made}"})

    @rule(left=QUEUES, right=QUEUES, batch=BATCHES, jump=JUMPS)
    def publish_on_two(
        self, left: str, right: str, batch: list[tuple[Draft, bool]], jump: Jump
    ) -> None:
        self.move(jump)
        drafts = [self.drafted(draft, own) for draft, own in batch]
        names = {left: drafts[:2], right: drafts[1:]}
        batches = [(self.queues[name].id, part) for name, part in names.items()]
        now_ms = self.clock.now_ms()
        self.both(
            lambda driver: driver.run(driver.store.publish(batches, actor=CALLER, now_ms=now_ms))
        )
        self.mark(*(self.queues[name].retention_ms for name in names))
        self.look()

    @rule(name=QUEUES, count=st.integers(1, 4), lease_ms=LEASES, jump=JUMPS)
    def lease(self, name: str, count: int, lease_ms: int, jump: Jump) -> None:
        self.move(jump)
        queue = self.queues[name]
        now_ms = self.clock.now_ms()

        def verb(driver: Driver) -> Any:
            leased = driver.run(
                driver.store.lease(
                    queue.id, count=count, lease_ms=lease_ms, actor=CALLER, now_ms=now_ms
                )
            )
            # A lease that is over as it begins may or may not still be counted.
            return [leased.messages, leased.until_ms, leased.stats if lease_ms else None]

        messages: list[Message] = self.both(verb)[0]
        self.leases += [(name, message.seq, message.attempts) for message in messages]
        self.mark(lease_ms, lease_ms + queue.retry_delay_ms)
        self.look()

    @precondition(lambda self: self.leases)
    @rule(
        picks=st.lists(st.tuples(NUMBERS, VERDICTS), min_size=1, max_size=4),
        jump=JUMPS,
    )
    def settle(self, picks: list[tuple[int, tuple[str, Any]]], jump: Jump) -> None:
        """Settle leases of one queue, be they current or long over."""
        self.move(jump)
        # The newest lease is the first choice; old ones are chosen as well.
        held = self.leases[::-1]
        name = held[picks[0][0] % len(held)][0]
        held = [lease for lease in held if lease[0] == name]
        items = [settlement(held[pick % len(held)], *verdict) for pick, verdict in picks]
        queue = self.queues[name]
        outcomes: list[Outcome] = self.both(lambda driver: driver.settle(queue, *items))
        assert len(outcomes) == len(items)
        for item in items:
            if isinstance(item, Extend):
                self.mark(item.lease_ms, item.lease_ms + queue.retry_delay_ms)
            elif isinstance(item, Retry):
                self.mark(queue.retry_delay_ms if item.delay_ms is None else item.delay_ms)
        self.look()

    @rule(name=QUEUES, seq=st.integers(-1, 9), attempt=st.integers(-1, 3), verdict=VERDICTS)
    def settle_by_guess(
        self, name: str, seq: int, attempt: int, verdict: tuple[str, Any]
    ) -> None:
        queue = self.queues[name]
        item = settlement((name, seq, attempt), *verdict)
        self.both(lambda driver: driver.settle(queue, item))
        self.look()

    @rule(name=QUEUES, pick=NUMBERS, jump=JUMPS)
    def find(self, name: str, pick: int, jump: Jump) -> None:
        queue = self.queues[name]
        known = self.both(lambda driver: driver.browse(queue))
        self.move(jump)
        if known:
            id = known[pick % len(known)].id
            self.both(lambda driver: driver.find(queue, id))

    @rule(name=QUEUES, seqs=st.lists(st.integers(1, 9), max_size=3), jump=JUMPS)
    def remove(self, name: str, seqs: list[int], jump: Jump) -> None:
        self.move(jump)
        queue = self.queues[name]
        self.both(lambda driver: driver.remove(queue, *seqs))
        self.look()

    @rule(name=QUEUES, upto=st.integers(0, 12), limit=st.integers(1, 3), jump=JUMPS)
    def purge(self, name: str, upto: int, limit: int, jump: Jump) -> None:
        self.move(jump)
        queue = self.queues[name]
        while self.both(lambda driver: driver.purge(queue, upto_seq=upto, limit=limit)):
            pass
        self.look()

    @rule(
        name=st.sampled_from(("dead", "dead", "deeper", "work")),
        seqs=st.lists(st.integers(1, 9), min_size=1, max_size=4),
        dry_run=st.booleans(),
        jump=JUMPS,
    )
    def redrive(self, name: str, seqs: list[int], dry_run: bool, jump: Jump) -> None:
        self.move(jump)
        queue = self.queues[name]
        self.both(lambda driver: driver.redrive(queue, *seqs, dry_run=dry_run))
        self.look()

    # --- time ---

    @rule(jump=JUMPS, limit=st.integers(1, 5))
    def sweep(self, jump: Jump, limit: int) -> None:
        self.move(jump)
        for driver in (self.reference, self.other):
            driver.sweep(limit=limit)
        self.look()

    @rule(jump=st.tuples(NUMBERS, SIDES))
    def wait(self, jump: Jump) -> None:
        self.move(jump)
        self.look()

    @rule(jump=JUMPS)
    def restart(self, jump: Jump) -> None:
        self.runner.run(self.other.store.close())
        self.move(jump)
        self.other.store = self.opened()
        self.look()


def settlement(lease: tuple[str, int, int], verdict: str, value: Any) -> Settlement:
    _, seq, attempt = lease
    if verdict == "ack":
        return Ack(seq, attempt, late=value)
    if verdict == "retry":
        return Retry(seq, attempt, delay_ms=value)
    return Extend(seq, attempt, lease_ms=value)


def lives(driver: Driver) -> dict[tuple[str, int], list[dict[str, Any]]]:
    """The journal, told message by message; settings come under sequence 0.

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
    from hypothesis.stateful import run_state_machine_as_test

    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        Histories,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
