"""FIFO queues and an exchange, on a server that is killed again and again.

Callers publish to groups of their own, say once more what was not answered, and get, ack, nack,
extend and forget what anybody published. Nothing answered is undone: no message is lost or
stored twice, none that was acked comes back, an exchange's copies are all there or none, and the
order within a group is kept. What can be concluded about order, although answers get lost and
locks expire, stands in `lease.py`.
"""

from collections import Counter
from collections.abc import Callable
from contextlib import closing

import pytest

from tests.faults.environment import Environment
from tests.faults.fifo_crew import BATCH_MAX, FifoCaller, Site
from tests.faults.fifo_history import FifoHistory
from tests.faults.lease import Lease
from tests.faults.trial import CALLERS, KILLS, SEED, TIMEOUT_SECONDS, Trial
from tests.report import TOLD
from tests.server import Server

ATTEMPTS_MAX = 2
KEPT_LOCK_MS = 120_000
SITE = Site(["orders", "steps"], ["orders-dead"], "news", ["left", "right"])
FIFO = [*SITE.fifo, *SITE.dead]
QUEUES = [*FIFO, *SITE.bound]


class FifoTrial(Trial):
    """Callers of an Anypoint environment. `orders` buries, `steps` never gives up."""

    def __init__(self, server: Server) -> None:
        super().__init__(server)
        self.environment = Environment(server)
        for queue in ("orders-dead", "steps"):
            self.environment.create_queue(queue, fifo=True)
        self.environment.create_queue(
            "orders", fifo=True, deadLetterQueueId="orders-dead", maxDeliveries=ATTEMPTS_MAX
        )
        for queue in SITE.bound:
            self.environment.create_queue(queue)
        self.environment.create_exchange(SITE.exchange, *SITE.bound)
        buries = {"orders": (ATTEMPTS_MAX, "orders-dead")}
        self.history = FifoHistory(fifo=FIFO, buries=buries)
        self.keeper = self.caller("keeper", SEED)
        self.kept: list[Lease] = []

    def caller(self, name: str, seed: int) -> FifoCaller:
        return FifoCaller(name, self.server, SITE, self.history, seed)

    def close(self) -> None:
        super().close()
        self.environment.close()
        self.keeper.close()

    def compare(self) -> None:
        self.history.check(self.ledger)

    def backlogs(self) -> dict[str, int]:
        return self.environment.backlog(*QUEUES)

    def keep(self) -> None:
        """Meanwhile their groups stand still, also over the kill."""
        for queue in QUEUES:
            self.kept += self.keeper.get(queue, count=4, lock_ms=KEPT_LOCK_MS)

    def give_back(self) -> None:
        """Some acked, some nacked: which fails if they are not still good."""
        for queue in QUEUES:
            mine = [lease for lease in self.kept if lease.queue == queue]
            half = self.random.randint(0, len(mine))
            for kind, leases in (("ack", mine[:half]), ("nack", mine[half:])):
                if leases:
                    self.keeper.settle(kind, leases)
        self.kept.clear()

    def drain(self, queue: str) -> None:
        """Everything the numbers promise is delivered, once, and then the queue is empty."""
        promised = self.backlogs()[queue]
        expected = self.ledger.open(queue)
        drained: list[str] = []
        while leases := self.keeper.get(queue, count=BATCH_MAX, lock_ms=KEPT_LOCK_MS):
            drained += [lease.message for lease in leases]
            self.keeper.settle("ack", leases)
        assert sorted(drained) == sorted(expected)
        assert len(drained) == promised
        assert self.backlogs()[queue] == 0


@pytest.mark.slow
@pytest.mark.timeout(TIMEOUT_SECONDS)
def test_groups_keep_their_order_and_copies_stay_whole_over_kills(
    fresh_server: Server, record_property: Callable[[str, object], None]
) -> None:
    with closing(FifoTrial(fresh_server)) as trial:
        trial.run([trial.caller(f"caller{n}", SEED * 1_000 + n) for n in range(CALLERS)])
        for queue in QUEUES:
            trial.drain(queue)
        trial.check()
        trial.history.check_delivered()
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
