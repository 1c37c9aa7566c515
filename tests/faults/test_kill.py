"""The server is killed again and again while callers are at work; nothing answered is undone."""

from collections import Counter
from collections.abc import Callable
from contextlib import closing

import pytest

from tests.faults.connection import Connection
from tests.faults.crew import Caller
from tests.faults.history import Delivery, History
from tests.faults.trial import CALLERS, KILLS, SEED, TIMEOUT_SECONDS, Trial
from tests.report import TOLD
from tests.server import Server

ATTEMPTS_MAX = {"orders": 3, "plain": 101}
KEPT_LEASE_MS = 120_000


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


class PullTrial(Trial):
    """Callers of a Cloudflare account."""

    def __init__(self, server: Server) -> None:
        super().__init__(server)
        self.ids = create_queues(self.connection)
        self.history = History(attempts_max=ATTEMPTS_MAX)
        self.keeper = self.caller("keeper", SEED)
        self.kept: list[Delivery] = []

    def caller(self, name: str, seed: int) -> Caller:
        queues = {name: self.ids[name] for name in ATTEMPTS_MAX}
        return Caller(name, self.server, queues, self.history, seed)

    def close(self) -> None:
        super().close()
        self.keeper.close()

    def compare(self) -> None:
        self.history.check(self.ledger)

    def backlogs(self) -> dict[str, int]:
        return {queue: self.backlog(queue) for queue in self.ids}

    def backlog(self, queue: str) -> int:
        metrics = self.connection.ask("GET", f"/queues/{self.ids[queue]}/metrics")
        return int(metrics["backlog_count"])

    def keep(self) -> None:
        for queue in ATTEMPTS_MAX:
            self.kept += self.keeper.pull(queue, count=5, lease_ms=KEPT_LEASE_MS)

    def give_back(self) -> None:
        """The next check sees to it that they were still good."""
        for queue in ATTEMPTS_MAX:
            mine = [delivery for delivery in self.kept if delivery.queue == queue]
            if mine:
                self.keeper.settle(queue, acks=mine)
        self.kept.clear()

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


@pytest.mark.slow
@pytest.mark.timeout(TIMEOUT_SECONDS)
def test_nothing_answered_is_undone_by_killing_the_server(
    fresh_server: Server, record_property: Callable[[str, object], None]
) -> None:
    with closing(PullTrial(fresh_server)) as trial:
        trial.run([trial.caller(f"caller{n}", SEED * 1_000 + n) for n in range(CALLERS)])
        for queue in trial.ids:
            trial.drain(queue)
        trial.ledger.read(trial.connection)
    fates = Counter(life.closed for life in trial.ledger.lives.values())
    assert set(fates) == {"acked", "buried"}, fates
    assert "Traceback" not in fresh_server.log()
    history = trial.history
    record_property(
        TOLD,
        f"{KILLS} kills, {history.operations} operations, {history.in_doubt} in doubt,"
        f" {fates['acked']} messages acked, {fates['buried']} buried",
    )
    assert history.in_doubt > 0, "every kill missed"
