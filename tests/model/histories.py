"""Histories that are lived through by two stores at the same time.

A step may first move the clock, often onto the very moment at which something ends or one
millisecond to either side of it. Then it runs one verb on both stores and compares the answers,
and then everything else that a caller can see. In the end both journals must tell the same
lives, and both stores must have counted the same.
"""

import os
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import msgspec
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule, run_state_machine_as_test

from courier import ids
from courier.core.errors import BrokerError, ClaimLost, NotFound
from courier.core.types import (
    DAY_MS,
    MINUTE_MS,
    SEAL_BYTES,
    Ack,
    Draft,
    Extend,
    Leased,
    Listener,
    Message,
    Outcome,
    Queue,
    Retry,
    Settlement,
    Via,
)
from tests.conformance.store.driver import CALLER, TENANT, Driver, allowing
from tests.model.order import Order
from tests.model.pushing import (
    LEASE_MS,
    LEASES,
    NEWEST,
    PICKS,
    PUSH_STEPS,
    Pushing,
    Verdict,
)
from tests.model.rows import Rows, Sent
from tests.model.stage import CHAIN, Jump

T = TypeVar("T")

# A soak run asks for more.
EXAMPLES = int(os.environ.get("MODEL_EXAMPLES", "16"))
STEPS_MAX = 60

EXCHANGE = "c0" + "e" * 30

# Most is published where it has the longest way to go.
PUBLISHED_ON = ("work", "work", "plain", "work", "dead", "deeper")
# Nobody pulls from these.
QUIET = ((), (), ("work",), ("work", "plain"), ("work", "dead"), ("dead", "plain"))
REDRIVEN_FROM = ("dead", "deeper", "dead", "work")

# Durations come from few values, so that different things end at the same moment.
WAITS = st.sampled_from((0, 0, 1, 20, 50, 100))
LONG_MS = 100 * MINUTE_MS
RETENTIONS = st.sampled_from((LONG_MS, LONG_MS, LONG_MS, LONG_MS, 400, 100))
ATTEMPTS = st.sampled_from((1, 1, 2, 2, 3, None))
SEQS = st.lists(st.integers(1, 9), min_size=1, max_size=4)
CLAIMS = st.sampled_from(("one", "two", "three", "four"))
ROOMS = st.sampled_from((None, None, None, None, 0, 1, 2, 3))
LENGTHS = st.sampled_from((None, None, None, 0, 2, 5))
JUMPS = st.one_of(
    st.none(),
    st.integers(0, 3),
    st.sampled_from((0,) * 10 + (2 * MINUTE_MS, "far")),
    st.tuples(st.sampled_from((0, 0, 0, 1, 1, 2, 3)), st.sampled_from((0, 0, 0, -1, 1))),
)
DRAFTS = st.builds(
    Draft,
    body=st.binary(max_size=3),
    content_type=st.sampled_from(("text", "json", "bytes")),
    headers=st.sampled_from((None, None, {}, {"k": "v"}, {"k": [1, None]}, {"k": True}, {"k": 1})),
    # Stands for an id of the publisher's own, to be made when the draft is published.
    id=st.sampled_from((None, None, "own")),
    delay_ms=st.sampled_from((None, None, None, None, 0, 20, 500)),
    ttl_ms=st.sampled_from((None, None, None, None, None, None, 50, 100, 2 * LONG_MS)),
    group=st.sampled_from((None, "", "g", "g", "h", "i")),
    once_key=st.sampled_from((None, None, None, None, "k", "l")),
    once_ms=st.sampled_from((1, 50, 100, 1_000)),
    sealed=st.sampled_from((None, None, None, "key-1")),
)
VERDICTS = st.one_of(
    st.tuples(st.just("ack"), st.booleans()),
    st.tuples(st.just("retry"), st.one_of(st.none(), WAITS)),
    st.tuples(st.just("retry"), st.none()),
    st.tuples(st.just("extend"), LEASES),
)
OUTCOMES = st.lists(st.tuples(NEWEST, VERDICTS), min_size=1, max_size=4)
SETTINGS = st.one_of(
    st.fixed_dictionaries({"retention_ms": RETENTIONS}),
    st.fixed_dictionaries({"attempts_max": ATTEMPTS}),
    st.fixed_dictionaries({"retry_delay_ms": WAITS}),
    st.fixed_dictionaries({"labels": st.just({"paint": "red"})}),
)

# From where the drafts under a key end, how far, and whether those that are there are the same.
SENDINGS = st.tuples(
    st.sampled_from((0, -1, -2, 0, 1)), st.sampled_from(("same", "same", "other", "same", None))
)

# Each kind of step: how often it is taken, and what it is given.
STEPS: dict[str, tuple[int, st.SearchStrategy[tuple[Any, ...]]]] = {
    "wait": (2, st.tuples()),
    "publish": (9, st.tuples(PICKS, st.lists(DRAFTS, min_size=1, max_size=4))),
    "publish_rows": (
        3,
        st.tuples(
            PICKS,
            st.lists(DRAFTS, min_size=0, max_size=6),
            st.sampled_from(("run/0", "run/0", "run/1")),
            st.lists(SENDINGS, min_size=1, max_size=4),
            st.sampled_from((20, 100, 1_000)),
            ROOMS,
            st.sampled_from((None, None, 0, 1)),
        ),
    ),
    "route": (2, st.tuples(PICKS, PICKS, st.lists(DRAFTS, min_size=0, max_size=4), ROOMS)),
    "lease": (8, st.tuples(PICKS, st.integers(1, 4), LEASES, ROOMS, LENGTHS)),
    "settle": (7, st.tuples(OUTCOMES)),
    "claim": (4, st.tuples(PICKS, CLAIMS, st.integers(0, 5), LEASES)),
    "use_claim": (
        5,
        st.tuples(
            NEWEST,
            st.sampled_from(("extend", "ack", "ack", "read")),
            LEASES,
            st.sampled_from((None, None, "", "one", "two")),
        ),
    ),
    "consume": (7, st.tuples(PICKS, st.integers(1, 4), OUTCOMES)),
    "settle_by_guess": (1, st.tuples(PICKS, st.integers(-1, 9), st.integers(-1, 3), VERDICTS)),
    "find": (1, st.tuples(PICKS, PICKS)),
    "remove": (2, st.tuples(PICKS, SEQS, st.booleans(), st.sampled_from((False, False, True)))),
    "purge": (1, st.tuples(PICKS, st.integers(0, 9), st.integers(1, 3))),
    "redrive": (3, st.tuples(PICKS, SEQS, st.sampled_from((False, False, True)))),
    "sweep": (2, st.tuples(st.integers(1, 5))),
    "change": (2, st.tuples(PICKS, SETTINGS)),
    "change_delay": (2, st.tuples(PICKS, st.sampled_from((0, 0, 20, 100, 3 * MINUTE_MS)))),
    "tally": (1, st.tuples(st.integers(1, 3))),
    "create_again": (1, st.tuples(PICKS)),
    "restart": (1, st.tuples()),
    **PUSH_STEPS,
}


def steps(kind: str) -> st.SearchStrategy[tuple[str, tuple[Any, ...]]]:
    return st.tuples(st.just(kind), STEPS[kind][1])


STEP = st.sampled_from([kind for kind in STEPS for _ in range(STEPS[kind][0])]).flatmap(steps)


class Histories(Pushing):
    """One history, lived through by the reference and by a store on disk."""

    def __init__(self) -> None:
        super().__init__()
        self.leases: list[tuple[str, Message]] = []
        self.claims: list[tuple[str, str]] = []
        self.order = Order()
        self.rows = Rows()

    # --- the steps ---

    @initialize(
        attempts=st.lists(ATTEMPTS, min_size=4, max_size=4),
        retry_delays=st.lists(WAITS, min_size=4, max_size=4),
        delays=st.lists(st.sampled_from((0, 0, 50)), min_size=4, max_size=4),
        retentions=st.lists(RETENTIONS, min_size=4, max_size=4),
        listeners=st.lists(st.tuples(PICKS, st.booleans()), min_size=1, max_size=2),
        quiet=st.sampled_from(QUIET),
    )
    def begin(
        self,
        attempts: list[int | None],
        retry_delays: list[int],
        delays: list[int],
        retentions: list[int],
        listeners: list[tuple[int, bool]],
        quiet: tuple[str, ...],
    ) -> None:
        self.quiet = set(quiet)
        for i, name in enumerate(reversed(CHAIN)):
            self.create(
                name,
                attempts_max=attempts[i],
                retry_delay_ms=retry_delays[i],
                delay_ms=delays[i],
                retention_ms=retentions[i],
            )
        for listener in listeners:
            self.listen(*listener)

    @rule(jump=JUMPS, step=STEP)
    def step(self, jump: Jump, step: tuple[str, tuple[Any, ...]]) -> None:
        kind, values = step
        self.move(jump)
        getattr(self, kind)(*values)
        self.look()

    def drafted(self, draft: Draft) -> Draft:
        """With an id of its own if it is to have one, and as long as its seal makes it."""
        if draft.sealed:
            draft = msgspec.structs.replace(draft, body=draft.body + bytes(SEAL_BYTES))
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

    def route(self, left: int, right: int, drafts: list[Draft], bytes_max: int | None) -> None:
        """Through an exchange to two queues, or one, or none; refused when one has no room."""
        own = [self.drafted(draft) for draft in drafts]
        parts = {self.pick(left): own[:2], self.pick(right): own[1:]}
        batches = [(self.queues[name], part) for name, part in parts.items() if part]
        via = Via(TENANT, EXCHANGE, len(own), sum(draft.size for draft in own))

        def verb(driver: Driver) -> Any:
            try:
                return driver.publish_all(*batches, bytes_max=bytes_max, via=via)
            except BrokerError as error:
                return repr(error)

        self.both(verb)

    def publish_rows(
        self,
        number: int,
        drafts: list[Draft],
        key: str,
        sendings: list[tuple[int, Sent]],
        for_ms: int,
        bytes_max: int | None,
        listening: int | None,
    ) -> None:
        """Some drafts, now and then those again that are there; for a listener or all."""
        queue = self.queues[PUBLISHED_ON[number % len(PUBLISHED_ON)]]
        # Best one of the queue's own, but one of another is only refused.
        mine = [on.id for on in self.listeners if on.parent == queue.id]
        listener = None if listening is None else self.chosen(listening, among=mine)
        for place, (ahead, sent) in enumerate(sendings):
            new = [self.drafted(draft) for draft in drafts[place :: len(sendings)]]
            self.send_rows(queue, key, new, ahead, sent, for_ms, bytes_max, listener)
        self.both(lambda driver: driver.rows(queue, key="run", below=True))
        self.mark(for_ms, queue.delay_ms, queue.retention_ms)
        for draft in drafts:
            self.mark(draft.delay_ms, draft.ttl_ms)

    def send_rows(
        self,
        queue: Queue,
        key: str,
        new: list[Draft],
        ahead: int,
        sent: Sent,
        for_ms: int,
        bytes_max: int | None,
        listener: Listener | None,
    ) -> None:
        """From where the key's drafts end, some before or one too far.

        Those that are there already are sent again, or others in their place.
        """
        name = (queue.id, key)
        stored = self.both(lambda driver: driver.rows(queue, key=key))
        first = max(0, stored + ahead)
        if not stored:
            self.rows.forget(name)
        own, marks = self.rows.again(name, first, new, sent)

        def verb(driver: Driver) -> Any:
            try:
                return driver.publish_rows(
                    queue,
                    *own,
                    key=key,
                    first=first,
                    for_ms=for_ms,
                    bytes_max=bytes_max,
                    listener=listener,
                    marks=marks,
                )
            except BrokerError as error:
                return repr(error)

        answer = str(self.both(verb))
        if "NotFound" not in answer:
            refused = self.rows.refused(name, first, sent)
            assert ("RowsChanged" in answer) == refused, (answer, refused)
        stored = self.both(lambda driver: driver.rows(queue, key=key))
        self.rows.stored(name, first, own, stored, sent)

    def lease(
        self,
        number: int,
        count: int,
        lease_ms: int,
        leased_max: int | None,
        bytes_max: int | None = None,
    ) -> None:
        name = self.pick_to_pull(number)
        queue = self.queues[name]
        now_ms = self.clock.now_ms()
        present = self.other.browse(queue)
        room = count
        if leased_max is not None:
            room = min(count, max(0, leased_max - self.other.stats(queue).leased))
        self.order.follow(self.other)

        def verb(driver: Driver) -> Leased:
            return driver.run(
                driver.store.lease(
                    queue.id,
                    count=count,
                    lease_ms=lease_ms,
                    actor=CALLER,
                    now_ms=now_ms,
                    leased_max=leased_max,
                    allowance=allowing(bytes_max),
                )
            )

        leased = self.both(verb)
        if bytes_max is not None:
            sizes = [message.size for message in leased.messages]
            assert len(sizes) <= 1 or sum(sizes) <= bytes_max
            room = min(room, len(sizes)) if sizes else room  # the next may be too long
        if queue.fifo:
            self.order.judge(queue, present, leased.messages, count=room, now_ms=now_ms)
        self.leases += [(name, message) for message in leased.messages]
        self.mark(lease_ms, lease_ms + queue.retry_delay_ms)

    def consume(self, number: int, count: int, picks: list[tuple[int, Verdict]]) -> None:
        """Lease and settle before any time has passed."""
        self.lease(number, count, LEASE_MS, None)
        self.settle(picks)

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

    def claim(self, number: int, claim: str, count: int, lease_ms: int) -> None:
        """Under one of few names, so that some are claimed before, lost or acknowledged."""
        name = self.pick_to_pull(number)
        queue, now_ms = self.queues[name], self.clock.now_ms()

        async def verb(driver: Driver) -> int:
            return await driver.store.claims.take(
                queue.id, claim, count=count, lease_ms=lease_ms, actor=CALLER, now_ms=now_ms
            )

        if self.refusable(verb):
            self.claims.append((name, claim))
            self.mark(lease_ms, lease_ms + queue.retry_delay_ms, lease_ms + DAY_MS)
            messages = self.read_claim(queue, claim)
            self.leases += [(name, message) for message in messages or ()]

    def use_claim(self, pick: int, what: str, lease_ms: int, after: str | None) -> None:
        if not self.claims:
            return
        name, claim = self.claims[-1 - pick % len(self.claims)]
        queue, now_ms = self.queues[name], self.clock.now_ms()

        async def extend(driver: Driver) -> None:
            await driver.store.claims.extend(
                queue.id, claim, lease_ms=lease_ms, actor=CALLER, now_ms=now_ms
            )

        async def ack(driver: Driver) -> None:
            await driver.store.claims.ack(queue.id, claim, actor=CALLER, now_ms=now_ms, after=after)

        if what == "extend":
            self.refusable(extend)
            self.mark(lease_ms, lease_ms + queue.retry_delay_ms, lease_ms + DAY_MS)
        elif what == "ack":
            self.refusable(ack)
            self.mark(DAY_MS)
        self.read_claim(queue, claim)

    def read_claim(self, queue: Queue, claim: str) -> list[Message] | None:
        now_ms = self.clock.now_ms()

        async def read(driver: Driver) -> list[Message]:
            return await driver.store.claims.messages(
                queue.id, claim, first=0, count=100, now_ms=now_ms
            )

        return self.refusable(read)

    def refusable(self, verb: Callable[[Driver], Coroutine[Any, Any, T]]) -> T | None:
        """Run a verb on both stores, which must also refuse it in the same words."""

        def run(driver: Driver) -> T | str:
            try:
                return driver.run(verb(driver))
            except (ClaimLost, NotFound) as error:
                return f"refused: {error!r}"

        answer = self.both(run)
        return None if isinstance(answer, str) else answer

    def settle_by_guess(self, number: int, seq: int, attempt: int, verdict: Verdict) -> None:
        queue = self.queues[self.pick(number)]
        self.both(lambda driver: driver.settle(queue, settlement(seq, attempt, verdict)))

    def find(self, number: int, pick: int) -> None:
        self.settle_down()
        queue = self.queues[self.pick(number)]
        known = [message.id for holder, message in self.leases if holder == queue.name]
        for message in self.sight.known.get(queue.id, []):
            made = ids.message_id(
                published_ms=message.published_ms, seq=message.seq, queue=queue.id
            )
            known += [made, message.id]
        if known:
            self.both(lambda driver: driver.find(queue, known[-1 - pick % len(known)]))

    def remove(self, number: int, seqs: list[int], leased: bool, dry_run: bool) -> None:
        self.settle_down()
        queue = self.queues[self.pick(number)]
        self.both(lambda driver: driver.remove(queue, *seqs, leased=leased, dry_run=dry_run))

    def purge(self, number: int, upto_seq: int, limit: int) -> None:
        self.settle_down()
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
        swept = [driver.sweep(limit=limit) for driver in (self.reference, self.other)]
        self.swept = self.swept or not any(each.more for each in swept)

    def change(self, number: int, fields: dict[str, Any]) -> None:
        name = self.pick(number)
        queue = self.queues[name]
        self.queues[name] = self.both(lambda driver: driver.update(queue, **fields))
        for message in self.both(lambda driver: driver.browse(queue)):
            self.moments.add(message.published_ms + self.queues[name].retention_ms)
            self.moments.add(message.published_ms + self.queues[name].delay_ms)

    def change_delay(self, number: int, delay_ms: int) -> None:
        """Where it matters most: on a queue that holds messages."""
        names = [name for name, queue in self.queues.items() if self.reference.browse(queue)]
        names = [name for name in names if name in self.FIFO] or names or list(self.queues)
        name = names[number % len(names)]
        self.change(list(CHAIN).index(name), {"delay_ms": delay_ms})

    def tally(self, count: int) -> None:
        self.both(lambda driver: driver.tally({(TENANT, "requested"): count}))

    def create_again(self, number: int) -> None:
        """Another queue of the same name. What was to be buried in the first one is dropped."""
        name = self.pick(number)
        queue = self.queues[name]
        listeners = [on for on in self.listeners if on.parent == queue.id]
        # Now and then, listeners are left behind.
        drops = [] if number % 3 == 0 else listeners
        self.both(lambda driver: driver.change(drops=[queue, *drops]))
        self.dropped |= {queue.id, *(listener.id for listener in drops)}
        self.leases = [lease for lease in self.leases if lease[0] != name]
        self.claims = [claim for claim in self.claims if claim[0] != name]
        for listener in listeners:
            self.forget(listener)
        self.create(name, attempts_max=2)
        if number % 2:
            self.quiet.add(name)


def settlement(seq: int, attempt: int, verdict: Verdict) -> Settlement:
    kind, value = verdict
    if kind == "ack":
        return Ack(seq, attempt, late=value)
    if kind == "retry":
        return Retry(seq, attempt, delay_ms=value)
    return Extend(seq, attempt, lease_ms=value)


def live(histories: type[Histories], *, examples: int = EXAMPLES, steps: int = STEPS_MAX) -> None:
    """Many histories, each of up to that many steps."""
    run_state_machine_as_test(
        histories,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            # The short form lives the same histories every time; the long form is for new ones.
            derandomize="MODEL_EXAMPLES" not in os.environ,
            database=None,
        ),
    )
