"""What the journal says has happened, read as it grows and checked line by line."""

from dataclasses import dataclass, field
from typing import Any

from tests.faults.connection import Connection

PAGE = 20_000
REREAD = 500
CLOSING = ("acked", "buried", "expired", "purged", "deleted")
ENDING = ("retried", "lease_expired")


@dataclass
class Life:
    """One message on one queue."""

    id: str
    queue: str
    body: str
    origin: str | None
    attempts: int = 0
    leased: bool = False
    retried: set[int] = field(default_factory=set)
    closed: str | None = None


class Ledger:
    """All lives so far. Reading further fails at the first event that cannot be true."""

    def __init__(self) -> None:
        self.last = 0
        # By queue and sequence. Ids are unique only where the server makes them up.
        self.lives: dict[tuple[str, int], Life] = {}
        self.by_id: dict[str, Life] = {}
        self.by_body: dict[tuple[str, str], list[Life]] = {}
        self.backlog: dict[str, int] = {}
        self._closed: list[Life] = []
        self._tail: list[dict[str, Any]] = []

    def read(self, connection: Connection) -> None:
        """Catch up with the journal: offsets are dense, and no event repeats or contradicts."""
        head = connection.journal_last()
        assert head >= self.last, f"the journal went back from {self.last} to {head}"
        while self.last < head:
            events = connection.journal(after=self.last, limit=PAGE)
            assert events, f"nothing after {self.last}, though the journal ends at {head}"
            for event in events:
                assert event["offset"] == self.last + 1, f"{event['offset']} follows {self.last}"
                self.last += 1
                self._apply(event)
            self._tail = [*self._tail, *events][-REREAD:]

    def reread(self, connection: Connection) -> None:
        """What was read before a kill reads the same after it."""
        if self._tail:
            after = self._tail[0]["offset"] - 1
            assert connection.journal(after=after, limit=len(self._tail)) == self._tail

    def take_closed(self) -> list[Life]:
        """The lives that ended since the last call."""
        closed, self._closed = self._closed, []
        return closed

    def leased(self) -> int:
        return sum(life.leased for life in self.lives.values())

    def open(self, queue: str) -> set[str]:
        """Ids of the messages that the queue still has to deliver."""
        return {
            life.id for life in self.lives.values() if life.queue == queue and life.closed is None
        }

    def _apply(self, event: dict[str, Any]) -> None:
        kind, key = event["kind"], (event["queue_name"], event.get("seq", 0))
        if "message_id" not in event:
            return
        if kind == "published":
            assert key not in self.lives, f"published twice: {event}"
            self._publish(event)
            return
        life = self.lives.get(key)
        assert life is not None, f"never published: {event}"
        assert life.closed is None, f"closed as {life.closed} before: {event}"
        attempt = event.get("attempt", 0)
        if kind == "leased":
            assert not life.leased, f"leased twice at once: {event}"
            assert attempt == life.attempts + 1, f"attempt {life.attempts} came before: {event}"
            life.attempts, life.leased = attempt, True
        elif kind in ENDING:
            assert life.leased and attempt == life.attempts, f"no such lease: {event}"
            life.leased = False
            if kind == "retried":
                life.retried.add(attempt)
        elif kind == "extended":
            assert life.leased and attempt == life.attempts, f"no such lease: {event}"
        else:
            assert kind in CLOSING, f"unknown: {event}"
            life.leased, life.closed = False, kind
            self.backlog[life.queue] -= 1
            self._closed.append(life)

    def _publish(self, event: dict[str, Any]) -> None:
        detail = event.get("detail") or {}
        life = Life(event["message_id"], event["queue_name"], event["body"], detail.get("message"))
        self.lives[life.queue, event["seq"]] = life
        self.by_id[life.id] = life
        self.by_body.setdefault((life.queue, life.body), []).append(life)
        self.backlog[life.queue] = self.backlog.get(life.queue, 0) + 1
