"""What the oracle knows of one listener's pushes."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from msgspec.structs import replace

from courier.core.types import Listener, Push, PushStats, Report

OPEN = ("pending", "in_flight", "retrying")
# What is noted of a push whose lease ended.
SILENCE = Report(error="no outcome was noted")


def _has_failed(push: Push) -> bool:
    """Has failed and not succeeded since: whatever was noted of it was a failure."""
    return push.report is not None and push.status != "acknowledged"


def _waits(push: Push, now_ms: int) -> bool:
    """For time to pass: in flight for the end of its lease, others for that of a delay."""
    return push.status == "in_flight" or (push.due_ms is not None and now_ms < push.due_ms)


@dataclass
class PushLine:
    """A listener and its pushes, by sequence.

    A push's `due_ms` is when time does something to it: for one in flight, the end of its lease.
    `told` are the sequences that were ready when those who wait were last told.
    """

    listener: Listener
    pushes: dict[int, Push] = field(default_factory=dict)
    told: set[int] = field(default_factory=set)
    acknowledged: int = 0
    expired: int = 0
    last_success_ms: int = 0
    last_failure_ms: int = 0

    def bind(self, seq: int, *, due_ms: int) -> None:
        self.pushes[seq] = Push(self.listener.id, seq, "pending", due_ms=due_ms)

    def ready(self, now_ms: int) -> list[Push]:
        """What may be taken now, by sequence."""
        unfinished = [self.pushes[seq] for seq in sorted(self.pushes)]
        unfinished = [push for push in unfinished if push.status in OPEN]
        if self.listener.ordered:
            unfinished = unfinished[:1]
        return [push for push in unfinished if not _waits(push, now_ms)]

    def take(self, push: Push, *, lease_ms: int, now_ms: int) -> Push:
        self.pushes[push.seq] = taken = replace(
            push,
            status="in_flight",
            attempts=push.attempts + 1,
            first_ms=now_ms if push.first_ms is None else push.first_ms,
            last_ms=now_ms,
            due_ms=now_ms + lease_ms,
        )
        return taken

    def in_flight(self, seq: int, attempt: int) -> Push | None:
        push = self.pushes.get(seq)
        if push is None or push.status != "in_flight" or push.attempts != attempt:
            return None
        return push

    def arrived(self, push: Push, report: Report, *, now_ms: int) -> None:
        self.pushes[push.seq] = replace(push, status="acknowledged", due_ms=None, report=report)
        self.acknowledged += 1
        self.last_success_ms = now_ms

    def failed(self, push: Push, report: Report, *, due_ms: int | None, now_ms: int) -> None:
        """Due again at `due_ms`, or exhausted."""
        status = "exhausted" if due_ms is None else "retrying"
        self.pushes[push.seq] = replace(push, status=status, due_ms=due_ms, report=report)
        self.last_failure_ms = now_ms

    def returned(self, push: Push, *, now_ms: int) -> None:
        if push.attempts == 1:
            self.bind(push.seq, due_ms=now_ms)
        else:
            self.pushes[push.seq] = replace(
                push, status="retrying", attempts=push.attempts - 1, due_ms=now_ms
            )

    def retry(self, seq: int, *, now_ms: int) -> bool:
        push = self.pushes.get(seq)
        if push is None or push.status not in ("retrying", "exhausted"):
            return False
        self.pushes[seq] = replace(push, status="retrying", due_ms=now_ms)
        return True

    def shown(self, seq: int) -> Push:
        push = self.pushes[seq]
        return replace(push, due_ms=None) if push.status == "in_flight" else push

    def stats(self) -> PushStats:
        pushes = self.pushes.values()
        return PushStats(
            open=sum(push.status in OPEN for push in pushes),
            in_flight=sum(push.status == "in_flight" for push in pushes),
            missed=sum(_has_failed(push) for push in pushes),
            acknowledged=self.acknowledged,
            last_success_ms=self.last_success_ms,
            last_failure_ms=self.last_failure_ms,
            expired=self.expired,
        )

    def missed(self) -> list[int]:
        """Sequences, newest first."""
        return [seq for seq in sorted(self.pushes, reverse=True) if _has_failed(self.pushes[seq])]

    def leases(self) -> Iterator[tuple[int, Push]]:
        """When each lease ends, and of what it is."""
        for push in self.pushes.values():
            if push.status == "in_flight" and push.due_ms is not None:
                yield push.due_ms, push

    def next(self, now_ms: int) -> Iterator[int]:
        """Every time at which a lease or a delay ends."""
        for push in self.pushes.values():
            if push.due_ms is not None and _waits(push, now_ms):
                yield push.due_ms
