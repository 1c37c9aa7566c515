"""Pushes to three listeners, from a server that is killed again and again.

Publishers publish over both dialects; one listener is well, one is often ill, and one is ordered
and sometimes ill. The server dies at any moment: before a message is stored, between storing and
sending, between the answer and its record. Nothing answered is lost, and in the end every message
has arrived at every listener, under one id and with one body however often; the ordered listener
never sees a message before it has acknowledged the one before.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import closing

import pytest

from tests.delivery.receiver import Receiver
from tests.faults.push_crew import Hook, KeyChannel, Publisher
from tests.faults.push_history import PushHistory
from tests.faults.push_ledger import PushLedger
from tests.faults.trial import POLL_S, SEED, TIMEOUT_SECONDS, Trial
from tests.server import Server

PUBLISHERS = 3
# How often each listener does not answer well.
ILL = {"well": 0.0, "flaky": 0.25, "ordered": 0.03}
# Settings of an environment, which stay when the trial changes the flags.
SETTINGS = {
    "COURIER_PUSH_NETWORKS": "127.0.0.0/8",
    "COURIER_PUSH_DELAY_PERCENT": "1",
    "COURIER_LIVENESS_EVERY_MS": "500",
}
PUSH_TIMEOUT_MS = 1_000
# How long nothing may arrive while something is owed: what was in flight at a kill waits for the
# end of its lease, 11 s, and for a server that takes the listener over.
STALLED_SECONDS_MAX = 60.0
# An ordered listener gets each message after a commit of its own, and waits for a second now and
# then: how long it takes to catch up is up to the machine, and this is only where the test ends.
CATCH_UP_SECONDS = 300


@pytest.fixture
def pushing_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("pushing"), env=SETTINGS).start()
    yield server
    if server.running:
        server.stop()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


class PushTrial(Trial):
    """Publishers of one queue, and its listeners."""

    def __init__(self, server: Server, receiver: Receiver) -> None:
        super().__init__(server)
        self.ledger: PushLedger = PushLedger()
        self.history = PushHistory(list(ILL), ordered="ordered")
        self.discue = KeyChannel(server)
        self.queue: str = self.discue.ask("POST", "/queues", {"name": "orders"})["queue"]["id"]
        [found] = self.connection.ask("GET", "/queues?page=1&name=orders")
        self.cloudflare_queue: str = found["queue_id"]
        self.listeners: dict[str, str] = {}
        for number, (name, ill) in enumerate(ILL.items()):
            receiver.on(f"/{name}", Hook(name, self.history, ill=ill, seed=SEED + number))
            self.listeners[name] = self.listen(name, receiver)

    def listen(self, name: str, receiver: Receiver) -> str:
        """The path of a new listener."""
        made = self.discue.ask(
            "POST",
            f"/queues/{self.queue}/listeners",
            {
                "name": name,
                "notify_url": receiver.url(f"/{name}"),
                "liveness_url": receiver.url("/live"),
                "timeout_ms": PUSH_TIMEOUT_MS,
                "ordered": name == "ordered",
            },
        )
        return f"/queues/{self.queue}/listeners/{made['listener']['id']}"

    def publisher(self, number: int) -> Publisher:
        ids = (self.queue, self.cloudflare_queue)
        seed = SEED * 1_000 + number
        return Publisher(f"publisher{number}", self.server, ids, self.history, seed)

    def close(self) -> None:
        super().close()
        self.discue.close()

    def give_back(self) -> None:
        """Nobody here has leases."""

    def keep(self) -> None:
        """Nobody here has leases."""

    def compare(self) -> None:
        self.history.check(self.ledger)

    def backlogs(self) -> dict[str, int]:
        """Nobody pulls, so everything waits for that."""
        metrics = self.connection.ask("GET", f"/queues/{self.cloudflare_queue}/metrics")
        return {"orders": int(metrics["backlog_count"])}

    def numbers(self, name: str) -> tuple[int, int]:
        """How many a listener has acknowledged, and how many it has missed."""
        told = self.discue.ask("GET", self.listeners[name])["listener"]["messages"]
        return told["acknowledged_count"], told["missed_count"]

    def numbers_fit(self) -> bool:
        """Pushes go on meanwhile: a number is between what the journal had before and after."""
        before = {name: each.arrived for name, each in self.ledger.listeners.items()}
        told = {name: self.numbers(name) for name in self.listeners}
        fits = super().numbers_fit()
        for name, (acknowledged, _) in told.items():
            now = self.ledger.listeners[name].arrived
            assert before[name] <= acknowledged <= now, f"{name}: {acknowledged} of {now}"
        return fits

    def wait_until_delivered(self) -> None:
        """However slow the machine is: while something arrives, the rest is on its way."""
        all_of_it = dict.fromkeys(self.listeners, (len(self.ledger.seqs), 0))
        last: dict[str, tuple[int, int]] = {}
        while (told := {name: self.numbers(name) for name in self.listeners}) != all_of_it:
            if told != last:
                last, stalled_s = told, time.monotonic() + STALLED_SECONDS_MAX
            assert time.monotonic() < stalled_s, f"nothing arrives: {told} of {all_of_it}"
            time.sleep(POLL_S)


@pytest.mark.slow
@pytest.mark.timeout(TIMEOUT_SECONDS + CATCH_UP_SECONDS)
def test_every_message_arrives_at_every_listener_though_the_server_is_killed(
    pushing_server: Server, receiver: Receiver, capsys: pytest.CaptureFixture[str]
) -> None:
    trial = PushTrial(pushing_server, receiver)
    deliver(trial, [trial.publisher(number) for number in range(PUBLISHERS)], capsys)


def deliver(
    trial: PushTrial, publishers: Sequence[Publisher], capsys: pytest.CaptureFixture[str]
) -> None:
    """Kill, and check that every message arrives at every listener."""
    with closing(trial):
        trial.run(publishers)
        trial.wait_until_delivered()
        trial.check()
        history, ledger = trial.history, trial.ledger
        history.check_delivered(ledger)
        for name, listening in ledger.listeners.items():
            assert trial.numbers(name) == (len(ledger.seqs), 0)
            assert listening.missed == 0
    assert "Traceback" not in trial.server.log()
    with capsys.disabled():
        print(
            f"\n{trial.kills} kills, {len(ledger.seqs)} messages, {history.arrivals} pushes,"
            f" {history.repeats} of them again, {history.in_doubt} publishes in doubt"
        )
    assert history.in_doubt > 0, "every kill missed"
    assert history.repeats > 0, "nothing ever failed"
