"""What publishers and listeners know: all that was sent to the server, and all that it sent."""

import threading
from collections.abc import Sequence
from typing import NamedTuple

from tests.faults.push_ledger import PushLedger


class Arrival(NamedTuple):
    """One push as its listener saw it."""

    listener: str
    message: str
    body: str
    attempt: int


class PushHistory:
    """Both sides report here, from their own threads. A message is known by its body.

    What a listener finds wrong is kept for `check` to raise.
    """

    def __init__(self, listeners: Sequence[str], *, ordered: str) -> None:
        self.operations = 0
        self.in_doubt = 0
        self.arrivals = 0
        self.repeats = 0
        self._ordered = ordered
        self._lock = threading.Lock()
        self._wrong: list[str] = []
        self._sent: set[str] = set()
        self._answered: dict[str, str] = {}
        self._ids: dict[str, str] = {}
        self._attempts: dict[tuple[str, str], int] = {}
        self._good: dict[str, set[str]] = {name: set() for name in listeners}
        self._stored: list[Arrival] = []
        # What the ordered listener got and said, in its order: body, and whether it was a yes.
        self._story: list[tuple[str, bool]] = []
        self._last = 0
        self._last_good = True

    # --- publishers ---

    def send(self, bodies: Sequence[str]) -> None:
        """They are about to be published."""
        with self._lock:
            self._sent.update(bodies)

    def publish(self, bodies: Sequence[str], *, answered: bool, id: str = "") -> None:
        """`id` is the message's, where the answer tells it."""
        with self._lock:
            self.operations += 1
            self.in_doubt += not answered
            if answered:
                self._answered.update(dict.fromkeys(bodies, id))

    def behind(self) -> int:
        """How many messages the slowest listener has yet to get."""
        with self._lock:
            return len(self._answered) - min(len(good) for good in self._good.values())

    # --- listeners ---

    def arrive(self, arrival: Arrival) -> None:
        listener, message, body, attempt = arrival
        with self._lock:
            self.arrivals += 1
            last = self._attempts.get((listener, body), 0)
            self.repeats += last > 0
            if body not in self._sent:
                self._wrong.append(f"nobody published it: {arrival}")
            if self._ids.setdefault(body, message) != message:
                self._wrong.append(f"came as {self._ids[body]} before: {arrival}")
            if attempt <= last:
                self._wrong.append(f"attempt {last} came before: {arrival}")
            self._attempts[listener, body] = attempt
            self._stored.append(arrival)
            if listener == self._ordered:
                self._story.append((body, False))

    def acknowledge(self, arrival: Arrival) -> None:
        """All of a good answer is on its way."""
        with self._lock:
            self._good[arrival.listener].add(arrival.body)
            if arrival.listener == self._ordered:
                self._story.append((arrival.body, True))

    # --- the judge ---

    def check(self, ledger: PushLedger) -> None:
        """Everything since the last check. Nobody may be publishing meanwhile."""
        with self._lock:
            assert not self._wrong, self._wrong[:5]
            for body, id in self._answered.items():
                assert body in ledger.seqs, f"answered, and lost: {body[:60]}"
                assert not id or self._ids.get(body, id) == id, f"came under another id: {id}"
            for arrival in self._stored:
                assert arrival.body in ledger.seqs, f"pushed, and not stored: {arrival}"
            self._stored.clear()
            for listener, body in ledger.take_arrived():
                good = body in self._good[listener]
                assert good, f"noted as arrived, and {listener} never said so: {body[:60]}"
            self._check_order(ledger)

    def _check_order(self, ledger: PushLedger) -> None:
        """One after the other: none before the one before it was acknowledged, none left out."""
        queued = sorted(ledger.seqs.values())
        following = dict(zip([0, *queued], queued, strict=False))
        for body, good in self._story:
            seq = ledger.seqs[body]
            if good:
                assert seq == self._last, f"{seq} is acknowledged while {self._last} is tried"
                self._last_good = True
            elif seq != self._last:
                assert self._last_good, f"{seq} came before {self._last} was acknowledged"
                assert seq == following[self._last], f"{seq} came after {self._last}"
                self._last, self._last_good = seq, False
        self._story.clear()

    def missing(self) -> int:
        """Of what was answered, how much some listener has not acknowledged."""
        with self._lock:
            return sum(len(self._answered.keys() - good) for good in self._good.values())

    def check_delivered(self, ledger: PushLedger) -> None:
        """In the end all that is stored has arrived everywhere, and nothing was sent after that."""
        assert self.missing() == 0
        for name, listening in ledger.listeners.items():
            assert {way.body for way in listening.ways.values()} == set(ledger.seqs)
            for way in listening.ways.values():
                assert way.arrived, f"never arrived at {name}: {way}"
                last = self._attempts[name, way.body]
                assert last <= way.attempt, f"sent again after it had arrived at {name}: {way}"
