"""What the callers of FIFO queues and exchanges know: every request, and what was answered.

Judged against itself (see `lease.py`) and against the journal, which says of every moment what
the server held: so a loss shows at the next check, not only when a queue has been drained.
"""

import threading
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tests.faults.lease import (
    Change,
    Lease,
    buried_apart,
    check_attempts,
    check_exclusion,
    check_order,
    check_together,
)
from tests.faults.ledger import Ledger, Life


class Publish(NamedTuple):
    """Messages that are stored on all of the queues, or on none. Repeats are none of them."""

    queues: Sequence[str]
    messages: Sequence[str]
    answered: bool


class FifoHistory:
    """Callers report here. `buries` has the queues with dead letters: attempts, and where to."""

    def __init__(self, *, fifo: Sequence[str], buries: Mapping[str, tuple[int, str]]) -> None:
        self.operations = 0
        self.in_doubt = 0
        self._fifo = fifo
        self._buries = buries
        self._lock = threading.Lock()
        self._publishes: list[Publish] = []
        self._unchecked: list[Publish] = []
        self._lost_max = 0
        self._missing: dict[tuple[str, str], int] = {}
        self._groups: dict[tuple[str, str], list[Lease]] = {}
        self._messages: dict[tuple[str, str], list[Lease]] = {}
        self._touched: set[tuple[str, str]] = set()

    def publish(self, publish: Publish) -> None:
        with self._lock:
            self._count(publish.answered)
            self._publishes.append(publish)
            self._unchecked.append(publish)

    def repeat(self, *, answered: bool) -> None:
        """A publish of messages that were answered before: nothing may come of it."""
        with self._lock:
            self._count(answered)

    def get(self, leases: Sequence[Lease] | None, *, count: int) -> None:
        """None: no answer came, and up to `count` messages may have been leased."""
        with self._lock:
            self._count(leases is not None)
            if leases is None:
                self._lost_max += count
                return
            check_together([lease for lease in leases if lease.queue in self._ordered])
            for lease in leases:
                self._groups.setdefault((lease.queue, lease.group), []).append(lease)
                self._messages.setdefault((lease.queue, lease.message), []).append(lease)
                self._touched.add((lease.queue, lease.group))

    def change(self, changed: Sequence[tuple[Lease, Change]]) -> None:
        with self._lock:
            self._count(changed[0][1].done is not None)
            for lease, change in changed:
                lease.change(change)
                self._touched.add((lease.queue, lease.group))

    def check(self, ledger: Ledger) -> None:
        """Everything since the last check. Nobody may be at work meanwhile."""
        for publish in self._unchecked:
            _check_publish(publish, ledger)
        self._unchecked.clear()
        for queue, group in self._touched:
            self._check_group(queue, self._groups[queue, group], ledger)
        self._touched.clear()
        lost = sum(self._missing.values())
        assert lost <= self._lost_max, f"{lost} attempts are missing, not {self._lost_max}"
        for life in ledger.take_closed():
            self._check_end(life, ledger)

    def check_delivered(self) -> None:
        """At the end, when all was drained: judged by what callers sent and got alone."""
        for publish in self._publishes:
            got = [
                (queue, message) in self._messages
                for queue in publish.queues
                for message in publish.messages
            ]
            assert all(got) or not publish.answered, f"lost: {publish}"
            assert all(got) or not any(got), f"half of it: {publish}"

    @property
    def _ordered(self) -> set[str]:
        """Queues on which the order of a group is that of its numbers."""
        return set(self._fifo) - {dead for _, dead in self._buries.values()}

    def _count(self, answered: bool) -> None:
        self.operations += 1
        self.in_doubt += not answered

    def _check_group(self, queue: str, leases: Sequence[Lease], ledger: Ledger) -> None:
        check_exclusion(leases)
        attempts_max, _ = self._buries.get(queue, (None, ""))
        for message in {lease.message for lease in leases}:
            its = self._messages[queue, message]
            self._missing[queue, message] = check_attempts(its, attempts_max=attempts_max)
            _check_life(queue, message, its, ledger)
        if queue in self._ordered:
            check_order(leases)
        for source, (source_attempts, dead) in self._buries.items():
            if queue == dead:
                before = {
                    lease.message: self._messages.get((source, lease.message), [])
                    for lease in leases
                }
                check_order(leases, buried_apart(before, attempts_max=source_attempts))
                for earlier in before.values():
                    acked = [lease for lease in earlier if lease.acked_s is not None]
                    assert not acked, f"acked, and buried: {acked}"

    def _check_end(self, life: Life, ledger: Ledger) -> None:
        """A message goes only because somebody acked it, or nobody did often enough."""
        leases = self._messages.get((life.queue, life.id), [])
        if life.closed == "acked":
            acks = [c for lease in leases for c in lease.changes if c.kind == "ack"]
            assert any(ack.done is not False for ack in acks), f"nobody acked it: {life}"
        else:
            assert life.closed == "buried", f"nobody asked for that: {life}"
            attempts_max, dead = self._buries.get(life.queue, (None, ""))
            assert life.attempts == attempts_max, f"too early: {life}"
            copies = ledger.by_body.get((dead, life.body), [])
            assert len(copies) == 1, f"{len(copies)} dead letters of {life}"


def _check_publish(publish: Publish, ledger: Ledger) -> None:
    stored = [
        len(ledger.by_body.get((queue, message), ()))
        for queue in publish.queues
        for message in publish.messages
    ]
    assert max(stored) <= 1, f"stored more than once: {publish}"
    assert min(stored) == max(stored), f"half of it: {publish}"
    assert stored[0] or not publish.answered, f"lost: {publish}"


def _check_life(queue: str, message: str, leases: Sequence[Lease], ledger: Ledger) -> None:
    """What was answered is in the journal."""
    lives = ledger.by_body.get((queue, message), [])
    assert len(lives) == 1, f"{len(lives)} lives in the journal: {leases}"
    [life] = lives
    for lease in leases:
        assert lease.message == life.id, f"another id: {lease} {life}"
        assert lease.attempt <= life.attempts, f"unknown to the journal: {lease} {life}"
        for change in lease.changes:
            if change.done and change.kind == "ack":
                assert life.closed == "acked", f"acked, yet {life.closed}: {lease} {life}"
            elif change.done and change.kind == "nack":
                assert lease.attempt in life.retried, f"lost: {change} {lease} {life}"
