"""Steps of a history that have to do with listeners and their pushes."""

from collections.abc import Collection
from typing import Any

from hypothesis import strategies as st

from courier.core.types import (
    Listener,
    Message,
    Pushed,
    PushFailed,
    PushReturned,
    PushSettlement,
    Report,
)
from tests.conformance.store.driver import ARRIVED, FOREVER_MS
from tests.model.stage import PEEK_MAX, PICKS_MAX, Stage

Verdict = tuple[str, Any]

LISTENERS_MAX = 3
# Most listeners are where most is published, and where it comes to in the end.
LISTENED_ON = ("work", "work", "dead", "work", "plain")

PICKS = st.integers(0, PICKS_MAX)
# Which of those that are held: mostly the newest ones, for time is quick.
NEWEST = st.sampled_from((0, 0, 0, 0, 1, 1, 2, 3, 5, 11))
SIDES = st.sampled_from((0, 0, 1, -1))
LEASE_MS = 50
LEASES = st.sampled_from((0, 1, 20, LEASE_MS, 100))
DELAYS = st.sampled_from((0, 0, 1, 20, 50, None, None))
VERDICTS = st.one_of(
    st.tuples(st.just("pushed"), st.none()),
    st.tuples(st.just("pushed"), st.none()),
    st.tuples(st.just("failed"), DELAYS),
    st.tuples(st.just("failed"), DELAYS),
    st.tuples(st.just("returned"), st.none()),
)
OUTCOMES = st.lists(st.tuples(NEWEST, VERDICTS), min_size=1, max_size=3)

# Each kind of step: how often it is taken, and what it is given.
PUSH_STEPS: dict[str, tuple[int, st.SearchStrategy[tuple[Any, ...]]]] = {
    "listen": (2, st.tuples(PICKS, st.booleans())),
    "change_listener": (1, st.tuples(PICKS)),
    "unlisten": (1, st.tuples(PICKS)),
    "take": (5, st.tuples(PICKS, st.integers(1, 3), LEASES)),
    "settle_pushes": (5, st.tuples(OUTCOMES)),
    "deliver": (10, st.tuples(PICKS, st.integers(1, 3), OUTCOMES)),
    "settle_push_by_guess": (
        1,
        st.tuples(PICKS, st.integers(-1, 9), st.integers(-1, 3), VERDICTS),
    ),
    "retry_push": (2, st.tuples(PICKS)),
    "backfill": (3, st.tuples(PICKS, st.tuples(PICKS, SIDES), st.integers(1, 3))),
    "rename": (1, st.tuples(PICKS, PICKS, st.sampled_from(("n", "", "größe")))),
}


class Pushing(Stage):
    def __init__(self) -> None:
        super().__init__()
        self.flights: list[tuple[str, Message]] = []

    def chosen(self, number: int, *, among: Collection[str] = ()) -> Listener | None:
        """A listener, and one of those ids if there is one."""
        wanted = [on for on in self.listeners if on.id in among] or self.listeners
        return wanted[number % len(wanted)] if wanted else None

    def listen(self, number: int, ordered: bool) -> None:
        if len(self.listeners) >= LISTENERS_MAX:
            return
        queue = self.queues[LISTENED_ON[number % len(LISTENED_ON)]]
        id = self.new_id()
        listener = self.both(lambda driver: driver.listener(queue, id[-3:], id=id, ordered=ordered))
        self.listeners.append(listener)

    def change_listener(self, number: int) -> None:
        listener = self.chosen(number)
        if listener is not None:
            at = self.listeners.index(listener)
            ordered = not listener.ordered
            self.listeners[at] = self.both(lambda d: d.update(listener, ordered=ordered))

    def unlisten(self, number: int) -> None:
        """Best while something is in flight."""
        in_flight = {push.listener for push in self.sight.pushes if push.status == "in_flight"}
        listener = self.chosen(number, among=in_flight)
        if listener is not None:
            self.both(lambda driver: driver.change(drops=[listener]))
            self.dropped.add(listener.id)
            self.swept = False
            self.forget(listener)

    def forget(self, listener: Listener) -> None:
        self.listeners.remove(listener)
        self.flights = [flight for flight in self.flights if flight[0] != listener.id]

    def take(self, number: int, count: int, lease_ms: int) -> None:
        listener = self.chosen(number, among=[id for id, seqs in self.sight.ready.items() if seqs])
        if listener is None:
            return
        taken = self.both(lambda driver: driver.take(listener, count=count, lease_ms=lease_ms))
        self.flights += [(listener.id, message) for message in taken]
        self.mark(lease_ms)

    def deliver(self, number: int, count: int, picks: list[tuple[int, Verdict]]) -> None:
        """Take and settle before any time has passed."""
        self.take(number, count, LEASE_MS)
        self.settle_pushes(picks)

    def settle_pushes(self, picks: list[tuple[int, Verdict]]) -> None:
        """Settle pushes of one listener, mostly new ones, but also some that are long over."""
        if not self.flights:
            return
        newest = self.flights[::-1]
        id = newest[picks[0][0] % len(newest)][0]
        held = [message for holder, message in newest if holder == id]
        [listener] = [on for on in self.listeners if on.id == id]
        items = []
        for pick, verdict in picks:
            message = held[pick % len(held)]
            items.append(push_settlement(message.seq, message.attempts, verdict))
        settled = self.both(lambda driver: driver.settle_pushes(listener, *items))
        over = {item.seq for item, done in zip(items, settled, strict=True) if not done}
        self.flights = [(i, m) for i, m in self.flights if i != id or m.seq not in over]
        for item in items:
            if isinstance(item, PushFailed):
                self.mark(item.delay_ms)

    def settle_push_by_guess(self, number: int, seq: int, attempt: int, verdict: Verdict) -> None:
        listener = self.chosen(number)
        if listener is not None:
            item = push_settlement(seq, attempt, verdict)
            self.both(lambda driver: driver.settle_pushes(listener, item))

    def retry_push(self, number: int) -> None:
        """Mostly one that has failed."""
        listener = self.chosen(number)
        if listener is None:
            return
        mine = [push for push in self.sight.pushes if push.listener == listener.id]
        failed = [push for push in mine if push.status in ("retrying", "exhausted")]
        seqs = [push.seq for push in failed or mine] or [1]
        self.both(lambda driver: driver.retry_push(listener, seqs[number % len(seqs)]))

    def backfill(self, number: int, edge: tuple[int, int], limit: int) -> None:
        """Before or after some message's time, or just beside it."""
        listener = self.chosen(number)
        if listener is None:
            return
        self.settle_down()
        known = self.sight.known.get(listener.parent, [])
        times = [message.published_ms for message in known] or [self.clock.now_ms()]
        place, side = edge
        edge_ms = times[place % len(times)] + side
        since_ms, until_ms = (edge_ms, FOREVER_MS) if number % 2 else (0, edge_ms)
        after_seq = number // 6
        for _ in range(PEEK_MAX):
            bound_and_last = self.both(
                lambda driver, seq=after_seq: driver.backfill(  # type: ignore[misc]
                    listener, since_ms=since_ms, until_ms=until_ms, after_seq=seq, limit=limit
                )
            )
            after_seq = bound_and_last[1]
            if not after_seq:
                break

    def rename(self, number: int, pick: int, name: str) -> None:
        self.settle_down()
        queue = self.queues[self.pick(number)]
        known = [message.seq for message in self.sight.known.get(queue.id, [])] + [99]
        self.both(lambda driver: driver.rename(queue, known[pick % len(known)], name))


def push_settlement(seq: int, attempt: int, verdict: Verdict) -> PushSettlement:
    kind, delay_ms = verdict
    if kind == "pushed":
        return Pushed(seq, attempt, ARRIVED)
    if kind == "failed":
        # What is noted differs from one failure to the next.
        report = Report(status=500 + attempt, error="refused", duration_ms=seq, answer=b"no")
        return PushFailed(seq, attempt, report, delay_ms)
    return PushReturned(seq, attempt)
