"""What a caller can know about its leases, and what follows from all callers' leases together.

A caller does not see when the server acts, only that it acts between the moment the request was
sent and the moment the answer came; when no answer came, the error that came instead is the
latest moment, because a killed process does nothing afterwards. So of each lease two moments are
known: it certainly lasted until `low_s`, and was certainly over at `high_s`. Callers' clocks and
the server's run alike, and leases outlive the process, so a kill changes nothing about this.

From that follows, for the leases that were answered:

- Exclusion. Two leases of one group (of one message, on a standard queue) that were not got with
  one request were held one after the other. They break the rule when neither can have been over
  by the time the other one was answered. A lease that nobody was told of, because its answer was
  lost, cannot be seen; all it can do is hold its group up until it expires.
- Order. A message that is leased, or that has a lease changed, after another one of its group
  was answered, was there all the time. If it was published before that other one, it was passed
  over; unless both were got with one request. Nothing need be known about acks or burials that
  were in doubt: a message that was gone is never heard of again.
- Attempts. Those of a message on a queue are counted up, none is used twice, and there are no
  more of them than the queue allows. One that is missing must have been lost with an answer.

What cannot be concluded: that a message *should* have been handed out at a moment when none was
(a lost lease may have held its group), and which of two messages was buried first, when both
were got with one request. So the order on a dead-letter queue is judged only of pairs that
certainly came there one after the other.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

# Clocks are read in milliseconds; a lease may look that much shorter or longer from here.
SLACK_S = 0.05


class Change(NamedTuple):
    """An ack, nack or extension that was asked for. `done` is None when no answer came.

    `answered_s` is when the answer came, or the error in its place.
    """

    kind: str
    sent_s: float
    answered_s: float
    done: bool | None
    lease_s: float = 0.0


@dataclass(eq=False)
class Lease:
    """One delivery of one message, with what was done about it. `request` numbers the GETs."""

    queue: str
    group: str
    message: str
    number: int
    attempt: int
    lock: str
    lease_s: float
    request: int
    sent_s: float
    answered_s: float
    changes: list[Change] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.low_s = self.sent_s + self.lease_s - SLACK_S
        self.high_s = self.answered_s + self.lease_s + SLACK_S

    @property
    def alive_s(self) -> float:
        """The message was certainly still there at this moment."""
        done = [change.sent_s for change in self.changes if change.done]
        return max([self.sent_s, *done])

    @property
    def acked_s(self) -> float | None:
        """The message was certainly gone at this moment; None: nobody was told that it is."""
        return next((c.answered_s for c in self.changes if c.kind == "ack" and c.done), None)

    def change(self, change: Change) -> None:
        """Take note of it. Fails when the answer contradicts what is known of the lease."""
        self.changes.append(change)
        if change.done is False:
            assert self.low_s <= change.answered_s, f"the lease was good: {self}"
            self.high_s = min(self.high_s, change.answered_s)
            return
        if change.done:
            assert change.sent_s <= self.high_s, f"the lease was over: {self}"
        if change.kind == "extend":
            low_s = change.sent_s + change.lease_s - SLACK_S
            high_s = change.answered_s + change.lease_s + SLACK_S
        else:
            low_s, high_s = change.sent_s, change.answered_s
        if change.done:
            self.low_s, self.high_s = low_s, high_s
        else:
            self.low_s = min(self.low_s, low_s)
            if change.kind == "extend":
                self.high_s = max(self.high_s, high_s)


def check_exclusion(leases: Sequence[Lease]) -> None:
    """Of the leases of a group, one request's are over before another's begin."""
    in_order = sorted(leases, key=lambda lease: lease.answered_s)
    for place, later in enumerate(in_order):
        for earlier in in_order[:place]:
            if earlier.request == later.request or earlier.low_s <= later.answered_s:
                continue
            # Their requests may have overlapped, and `later` may have come and gone first.
            assert later.low_s <= earlier.answered_s, f"two leases at once: {earlier} {later}"


Precedes = Callable[[Lease, Lease], bool]


def by_number(first: Lease, second: Lease) -> bool:
    """Publishers number the messages of a group."""
    return first.number < second.number


def check_order(leases: Sequence[Lease], precedes: Precedes = by_number) -> None:
    """Nothing of a group is handed out while something that precedes it is still there."""
    together: dict[int, list[Lease]] = {}
    for lease in leases:
        together.setdefault(lease.request, []).append(lease)
    # Only what was heard of last can show that a message was passed over.
    last: dict[str, Lease] = {}
    for lease in leases:
        known = last.get(lease.message)
        if known is None or lease.alive_s > known.alive_s:
            last[lease.message] = lease
    for later in leases:
        beside = {lease.message for lease in together[later.request]}
        for earlier in last.values():
            if earlier.alive_s > later.answered_s and precedes(earlier, later):
                assert earlier.message in beside, f"passed over: {earlier} by {later}"


def check_together(leases: Sequence[Lease]) -> None:
    """The messages of one answer are in order within their group."""
    last: dict[str, Lease] = {}
    for lease in leases:
        before = last.get(lease.group)
        assert before is None or by_number(before, lease), f"out of order: {before} {lease}"
        last[lease.group] = lease


def check_attempts(leases: Sequence[Lease], *, attempts_max: int | None) -> int:
    """Of the leases of one message on one queue; how many attempts nobody was told of."""
    in_order = sorted(leases, key=lambda lease: lease.attempt)
    for earlier, later in pairwise(in_order):
        assert earlier.attempt < later.attempt, f"one attempt, two leases: {earlier} {later}"
        assert earlier.sent_s <= later.answered_s, f"counted backwards: {earlier} {later}"
    last = in_order[-1]
    assert attempts_max is None or last.attempt <= attempts_max, f"too often: {last}"
    for acked in leases:
        if acked.acked_s is not None:
            back = [lease for lease in leases if lease.sent_s > acked.acked_s]
            assert not back, f"acked, and handed out again: {acked} {back}"
    return last.attempt - len(leases)


def buried_apart(
    sources: Mapping[str, Sequence[Lease]], *, attempts_max: int
) -> Callable[[Lease, Lease], bool]:
    """Whether one dead letter certainly arrived before another.

    `sources` has the leases that each message had before its burial. The one with the lower
    number was gone before the other was first handed out, if all attempts of the other are known
    and none was got together with it.
    """

    def precedes(first: Lease, second: Lease) -> bool:
        ours, theirs = sources.get(first.message, ()), sources.get(second.message, ())
        requests = {lease.request for lease in theirs}
        return (
            by_number(first, second)
            and len(theirs) == attempts_max
            and not any(lease.request in requests for lease in ours)
        )

    return precedes
