"""What the callers know: every request they sent, and what was answered.

Times are the callers' own. The server acted on a request somewhere between `sent_s` and
`answered_s`, so a lease certainly lasts until `sent_s + lease_s`, however it is reckoned.
"""

import threading
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from tests.faults.ledger import Ledger, Life

# Clocks are read in milliseconds; a lease may look that much shorter from here.
SLACK_S = 0.05


class Publish(NamedTuple):
    queue: str
    bodies: Sequence[str]
    answered: bool


class Delivery(NamedTuple):
    queue: str
    message: str
    body: str
    attempt: int
    lease: str
    lease_s: float
    sent_s: float
    answered_s: float

    @property
    def held_until_s(self) -> float:
        return self.sent_s + self.lease_s - SLACK_S


class Settle(NamedTuple):
    """`counted` is False when the answer had a warning; `answered_s` is None when none came."""

    delivery: Delivery
    kind: str
    sent_s: float
    answered_s: float | None
    counted: bool


class History:
    """Callers report here; `check` compares what they saw with itself and with the ledger."""

    def __init__(self, *, attempts_max: dict[str, int]) -> None:
        self.operations = 0
        self.in_doubt = 0
        self._attempts_max = attempts_max
        self._lock = threading.Lock()
        self._publishes: list[Publish] = []
        self._published: set[tuple[str, str]] = set()
        self._deliveries: dict[str, list[Delivery]] = {}
        self._settles: dict[str, list[Settle]] = {}
        self._touched: set[str] = set()

    def publish(self, publish: Publish) -> None:
        with self._lock:
            self._count(publish.answered)
            self._publishes.append(publish)
            self._published.update((publish.queue, body) for body in publish.bodies)

    def pull(self, deliveries: Sequence[Delivery] | None) -> None:
        """None: no answer came."""
        with self._lock:
            self._count(deliveries is not None)
            for delivery in deliveries or ():
                self._deliveries.setdefault(delivery.message, []).append(delivery)
                self._touched.add(delivery.message)

    def settle(self, settles: Sequence[Settle]) -> None:
        with self._lock:
            self._count(settles[0].answered_s is not None)
            for settle in settles:
                self._settles.setdefault(settle.delivery.message, []).append(settle)
                self._touched.add(settle.delivery.message)

    def check(self, ledger: Ledger) -> None:
        """Everything since the last check. Nobody may be at work meanwhile."""
        for publish in self._publishes:
            self._check_publish(publish, ledger)
        self._publishes.clear()
        for message in self._touched:
            deliveries = self._deliveries.get(message, [])
            settles = self._settles.get(message, [])
            life = ledger.by_id.get(message)
            assert life is not None, f"delivered, yet not in the journal: {deliveries}"
            check_leases(deliveries, settles)
            check_settles(settles)
            check_life(life, deliveries, settles)
        self._touched.clear()
        for life in ledger.take_closed():
            self._check_end(life, ledger)

    def _count(self, answered: bool) -> None:
        self.operations += 1
        self.in_doubt += not answered

    def _check_publish(self, publish: Publish, ledger: Ledger) -> None:
        stored = [len(ledger.by_body.get((publish.queue, body), ())) for body in publish.bodies]
        assert max(stored) <= 1, f"stored more than once: {publish}"
        assert min(stored) == max(stored), f"half of a batch: {publish}"
        assert stored[0] or not publish.answered, f"lost: {publish}"

    def _check_end(self, life: Life, ledger: Ledger) -> None:
        """A message goes only because somebody acked it, or nobody did often enough."""
        if life.closed == "acked":
            acks = [s for s in self._settles.get(life.id, ()) if s.kind == "ack"]
            assert acks, f"nobody acked it: {life}"
        else:
            assert life.closed == "buried", f"nobody asked for that: {life}"
            assert life.attempts == self._attempts_max.get(life.queue), f"too early: {life}"
            copies = [
                copy
                for queue in self._attempts_max
                for copy in ledger.by_body.get((f"{queue}-dead", life.body), ())
                if copy.origin == life.id
            ]
            assert len(copies) == 1, f"{len(copies)} dead letters of {life}"

    def check_known(self, queue: str, bodies: Sequence[str]) -> None:
        """Nothing is delivered that nobody published."""
        for body in bodies:
            assert (queue, body) in self._published, f"nobody published {body!r} on {queue}"


def check_leases(deliveries: Sequence[Delivery], settles: Sequence[Settle]) -> None:
    """Nobody is handed a message that another caller holds, nor one that was acked."""
    in_order = sorted(deliveries, key=lambda delivery: delivery.attempt)
    for earlier, later in pairwise(in_order):
        assert earlier.attempt != later.attempt, f"one attempt, two leases: {earlier} {later}"
        if later.answered_s < earlier.held_until_s:
            given_back = [
                settle
                for settle in settles
                if settle.delivery.lease == earlier.lease
                and settle.kind == "retry"
                and settle.sent_s <= later.answered_s
            ]
            assert given_back, f"two leases at once: {earlier} {later}"
    for settle in settles:
        if settle.kind == "ack" and settle.answered_s is not None:
            for delivery in deliveries:
                assert delivery.sent_s <= settle.answered_s, f"delivered after {settle}: {delivery}"


def check_settles(settles: Sequence[Settle]) -> None:
    """A lease that is certainly still held can be settled, whatever happened in between."""
    for settle in settles:
        if settle.answered_s is None or settle.answered_s >= settle.delivery.held_until_s:
            continue
        # An ack takes effect even when its own lease has ended, so it may have come before.
        before = [
            other
            for other in settles
            if other is not settle
            and (other.kind == "ack" or other.delivery.lease == settle.delivery.lease)
            and other.sent_s <= settle.answered_s
        ]
        assert settle.counted or before, f"the lease was good: {settle}"


def check_life(life: Life, deliveries: Sequence[Delivery], settles: Sequence[Settle]) -> None:
    """What was answered is in the journal."""
    for delivery in deliveries:
        assert delivery.body == life.body, f"another body: {delivery} {life}"
        assert delivery.attempt <= life.attempts, f"unknown to the journal: {delivery} {life}"
    for settle in settles:
        if settle.answered_s is None:
            continue
        if settle.kind == "ack":
            assert life.closed is not None, f"acked, yet still there: {settle} {life}"
            if settle.counted:
                assert life.closed == "acked", f"acked, yet {life.closed}: {settle} {life}"
        elif settle.counted:
            assert settle.delivery.attempt in life.retried, f"lost retry: {settle} {life}"
