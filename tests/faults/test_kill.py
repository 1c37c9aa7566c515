"""The server is killed again and again while callers are at work; nothing answered is undone."""

import os
import random
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from tests.faults.connection import Connection
from tests.faults.crew import Caller, Gate
from tests.faults.history import Delivery, History
from tests.faults.ledger import Ledger
from tests.server import Server

KILLS = int(os.environ.get("KILLS", "12"))
SEED = int(os.environ.get("KILL_SEED", "1"))
CALLERS = 5
ATTEMPTS_MAX = {"orders": 3, "plain": 101}
KEPT_LEASE_MS = 120_000
SETTLED_SECONDS_MAX = 30.0
POLL_S = 0.05


def create_queues(connection: Connection) -> dict[str, str]:
    """Queue ids by name: one that buries after three attempts, one that hardly ever gives up."""
    ids = {}
    for name in (*ATTEMPTS_MAX, "orders-dead"):
        ids[name] = connection.ask("POST", "/queues", {"queue_name": name})["queue_id"]
    for name, id in ids.items():
        consumer: dict[str, object] = {
            "type": "http_pull",
            "settings": {"max_retries": ATTEMPTS_MAX.get(name, 101) - 1},
        }
        if name == "orders":
            consumer["dead_letter_queue"] = "orders-dead"
        connection.ask("POST", f"/queues/{id}/consumers", consumer)
    return ids


class Trial:
    """A server, the callers at work on it, and what is known of both."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.random = random.Random(SEED)
        self.connection = Connection(server)
        self.ids = create_queues(self.connection)
        self.history = History(attempts_max=ATTEMPTS_MAX)
        self.ledger = Ledger()
        self.gate = Gate()
        self.keeper = self.caller("keeper", SEED)
        self.kept: list[Delivery] = []

    def caller(self, name: str, seed: int) -> Caller:
        queues = {name: self.ids[name] for name in ATTEMPTS_MAX}
        return Caller(name, self.server, queues, self.history, seed)

    def kill(self) -> None:
        """At some moment while everybody is at work; sometimes again as soon as it is back."""
        time.sleep(self.random.uniform(0.2, 1.2))
        self.server.kill()
        # Both ways of waiting for the disk get their share of kills.
        self.server.args = ["--commit-inline-ms-max", str(self.random.choice((0, 1)))]
        self.gate.close()
        self.close()
        self.server.start()
        if self.random.random() < 0.2:
            self.server.kill()
            self.server.start()

    def close(self) -> None:
        """Let go of connections that a dead server can no longer answer."""
        self.connection.close()
        self.keeper.close()

    def check(self) -> None:
        """With nobody at work, callers, journal and numbers tell one story."""
        self.ledger.reread(self.connection)
        self.ledger.read(self.connection)
        self.history.check(self.ledger)
        self.wait_until(self.numbers_fit, "metrics and journal differ")

    def numbers_fit(self) -> bool:
        """The backlog is what the journal has open. A burial may come between two readings."""
        self.ledger.read(self.connection)
        return all(self.backlog(name) == self.ledger.backlog.get(name, 0) for name in self.ids)

    def backlog(self, queue: str) -> int:
        metrics = self.connection.ask("GET", f"/queues/{self.ids[queue]}/metrics")
        return int(metrics["backlog_count"])

    def keep(self) -> None:
        """Take leases that will outlast the next kill."""
        for queue in ATTEMPTS_MAX:
            self.kept += self.keeper.pull(queue, count=5, lease_ms=KEPT_LEASE_MS)

    def give_back(self) -> None:
        """Ack them after the kill. The next check sees to it that they were still good."""
        for queue in ATTEMPTS_MAX:
            mine = [delivery for delivery in self.kept if delivery.queue == queue]
            if mine:
                self.keeper.settle(queue, acks=mine)
        self.kept.clear()

    def no_leases(self) -> bool:
        self.ledger.read(self.connection)
        return self.ledger.leased() == 0

    def drain(self, queue: str) -> None:
        """Everything the metrics promise is delivered, once, and then the queue is empty."""
        promised = self.backlog(queue)
        drained: dict[str, str] = {}

        def empty() -> bool:
            path = f"/queues/{self.ids[queue]}/messages"
            asked = {"batch_size": 100, "visibility_timeout_ms": KEPT_LEASE_MS}
            messages = self.connection.ask("POST", f"{path}/pull", asked)["messages"]
            for message in messages:
                assert message["id"] not in drained, f"delivered twice: {message}"
                drained[message["id"]] = message["body"]
            acks = [{"lease_id": message["lease_id"]} for message in messages]
            result = self.connection.ask("POST", f"{path}/ack", {"acks": acks})
            assert result["ackCount"] == len(acks), result
            return self.backlog(queue) == 0

        expected = self.ledger.open(queue)
        self.wait_until(empty, f"{queue} does not drain")
        assert set(drained) == expected
        assert len(drained) == promised
        self.history.check_known(queue.removesuffix("-dead"), list(drained.values()))

    def wait_until(self, true: Callable[[], bool], otherwise: str) -> None:
        deadline = time.monotonic() + SETTLED_SECONDS_MAX
        while not true():
            assert time.monotonic() < deadline, otherwise
            time.sleep(POLL_S)


def failures(futures: list[Future[None]]) -> None:
    """Raise what a caller raised."""
    for future in futures:
        if future.done():
            future.result()


@pytest.mark.slow
@pytest.mark.timeout(120 + 10 * KILLS)
def test_nothing_answered_is_undone_by_killing_the_server(
    fresh_server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    trial = Trial(fresh_server)
    with ThreadPoolExecutor(CALLERS) as pool:
        callers = [trial.caller(f"caller{n}", SEED * 1_000 + n) for n in range(CALLERS)]
        futures = [pool.submit(caller.work, trial.gate) for caller in callers]
        try:
            for _ in range(KILLS):
                trial.gate.open()
                trial.kill()
                failures(futures)
                trial.give_back()
                trial.check()
                trial.keep()
            trial.give_back()
        finally:
            trial.gate.end()
    failures(futures)
    trial.wait_until(trial.no_leases, "a lease does not end")
    trial.check()
    for queue in trial.ids:
        trial.drain(queue)
    trial.ledger.read(trial.connection)
    fates = Counter(life.closed for life in trial.ledger.lives.values())
    assert set(fates) == {"acked", "buried"}, fates
    trial.close()
    assert "Traceback" not in fresh_server.log()
    history = trial.history
    with capsys.disabled():
        print(
            f"\n{KILLS} kills, {history.operations} operations, {history.in_doubt} in doubt,"
            f" {fates['acked']} messages acked, {fates['buried']} buried"
        )
    assert history.in_doubt > 0, "every kill missed"
