"""What the journal says has become of pushes, beside what it says of messages."""

from dataclasses import dataclass, field
from typing import Any

from tests.faults.ledger import Ledger

PUSHES = ("pushed", "push_failed")


@dataclass
class Way:
    """One message's way to one listener; `attempt` is the last whose outcome was noted."""

    body: str
    attempt: int = 0
    arrived: bool = False


@dataclass
class Listening:
    """A listener, and the ways of messages to it, by sequence."""

    ways: dict[int, Way] = field(default_factory=dict)
    arrived: int = 0

    @property
    def missed(self) -> int:
        """How many have failed and not arrived since."""
        return sum(not way.arrived for way in self.ways.values())


class PushLedger(Ledger):
    """Of one queue with listeners. Reading fails at the first push that cannot be true."""

    def __init__(self) -> None:
        super().__init__()
        self.listeners: dict[str, Listening] = {}
        self.seqs: dict[str, int] = {}
        self._by_id: dict[str, Listening] = {}
        self._arrived: list[tuple[str, str]] = []

    def take_arrived(self) -> list[tuple[str, str]]:
        """Listener and body of what has arrived, by the journal's word, since the last call."""
        arrived, self._arrived = self._arrived, []
        return arrived

    def _apply(self, event: dict[str, Any]) -> None:
        kind = event["kind"]
        if kind == "listener_created":
            name, id = event["detail"]["title"], event["detail"]["id"]
            self.listeners[name] = self._by_id[id] = Listening()
        elif kind in PUSHES:
            self._push(event)
        else:
            super()._apply(event)

    def _publish(self, event: dict[str, Any]) -> None:
        super()._publish(event)
        assert event["body"] not in self.seqs, f"stored twice: {event}"
        self.seqs[event["body"]] = event["seq"]

    def _push(self, event: dict[str, Any]) -> None:
        listening = self._by_id[event["detail"]["listener"]]
        life = self.lives.get((event["queue_name"], event["seq"]))
        assert life is not None, f"never published: {event}"
        way = listening.ways.setdefault(event["seq"], Way(life.body))
        assert not way.arrived, f"arrived before: {event}"
        assert event["attempt"] > way.attempt, f"attempt {way.attempt} came before: {event}"
        way.attempt = event["attempt"]
        if event["kind"] == "pushed":
            assert 200 <= event["detail"]["status"] < 300, f"that is no success: {event}"
            way.arrived = True
            listening.arrived += 1
            [name] = [name for name, each in self.listeners.items() if each is listening]
            self._arrived.append((name, life.body))
