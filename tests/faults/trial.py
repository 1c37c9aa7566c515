"""A server that is killed again and again while callers are at work on it."""

import os
import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

from tests.faults.connection import Connection
from tests.faults.crew import Gate
from tests.faults.ledger import Ledger
from tests.server import Server

KILLS = int(os.environ.get("KILLS", "5"))
SEED = int(os.environ.get("KILL_SEED", "1"))
CALLERS = 5
TIMEOUT_SECONDS = 120 + 10 * KILLS
SETTLED_SECONDS_MAX = 30.0
POLL_S = 0.05


class Worker(Protocol):
    def work(self, gate: Gate) -> None: ...


class Trial:
    """A server, the callers at work on it, and what is known of both.

    The methods that raise NotImplementedError say what callers do, and what must be true.
    """

    kills = KILLS

    def __init__(self, server: Server) -> None:
        self.server = server
        self.random = random.Random(SEED)
        self.connection = Connection(server)
        self.ledger = Ledger()
        self.gate = Gate()

    def give_back(self) -> None:
        """Settle, after a kill, the leases that were taken before it."""
        raise NotImplementedError

    def keep(self) -> None:
        """Take leases that will outlast the next kill."""
        raise NotImplementedError

    def compare(self) -> None:
        """What callers know, with what the journal says."""
        raise NotImplementedError

    def backlogs(self) -> dict[str, int]:
        """What each queue says it holds."""
        raise NotImplementedError

    def close(self) -> None:
        """Let go of connections that a dead server can no longer answer."""
        self.connection.close()

    def run(self, workers: Sequence[Worker]) -> None:
        """All the kills, with a check after each; at the end no lease is left."""
        with ThreadPoolExecutor(len(workers)) as pool:
            futures = [pool.submit(worker.work, self.gate) for worker in workers]
            try:
                for _ in range(self.kills):
                    self.gate.open()
                    self.kill()
                    failures(futures)
                    self.give_back()
                    self.check()
                    self.keep()
                self.give_back()
            finally:
                self.gate.end()
        failures(futures)
        self.wait_until(self.no_leases, "a lease does not end")
        self.check()

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

    def check(self) -> None:
        """With nobody at work, callers, journal and numbers tell one story."""
        # A server closes a connection that was idle for long, which is no answer.
        self.connection.close()
        self.ledger.reread(self.connection)
        self.ledger.read(self.connection)
        self.compare()
        self.wait_until(self.numbers_fit, "numbers and journal differ")

    def numbers_fit(self) -> bool:
        """The backlog is what the journal has open. A burial may come between two readings."""
        self.ledger.read(self.connection)
        return all(
            count == self.ledger.backlog.get(queue, 0) for queue, count in self.backlogs().items()
        )

    def no_leases(self) -> bool:
        self.ledger.read(self.connection)
        return self.ledger.leased() == 0

    def wait_until(self, true: Callable[[], bool], otherwise: str) -> None:
        deadline = time.monotonic() + SETTLED_SECONDS_MAX
        while not true():
            assert time.monotonic() < deadline, otherwise
            time.sleep(POLL_S)


def failures(futures: Sequence[Future[None]]) -> None:
    """Raise what a caller raised."""
    for future in futures:
        if future.done():
            future.result()
