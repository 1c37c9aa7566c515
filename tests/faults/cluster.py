"""Two servers on one PostgreSQL, to callers like one server. What is killed is left to chance."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from courier.sealing import new_key
from tests import postgres
from tests.server import Server

NODES = 2
# Long enough that a server which wakes up must not believe what it knew.
ASLEEP_S = 3.0
SNAPSHOT = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", "SELECT count(*) FROM courier.grp"
CUT = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE application_name = 'courier' AND backend_type = 'client backend'
"""


class Cluster(Server):
    """`kill` ends a server, all of them, or the database while the servers run on; then all
    connections to it, or lets a server sleep. Of five each comes once. From one to the next a
    transaction holds a snapshot."""

    def __init__(self, directory: Path, *, seed: int, env: Mapping[str, str] | None = None) -> None:
        super().__init__(directory)
        self._random = random.Random(seed)
        self.database = self._databases()
        self._store = ["--store", self.database.url("courier")]
        # Links in answers name the address of all servers together, as do credentials.
        shared = {"COURIER_ENCRYPTION_KEYS": new_key(), "COURIER_PUBLIC_URL": self.url}
        self._settings = {**shared, **(env or {})}
        self.nodes = []
        for number in range(NODES):
            place = directory / str(number)
            place.mkdir()
            self.nodes.append(Server(place, args=self._store, env=self._settings))
        self._down: list[Server] = list(self.nodes)
        self.crashes = 0
        self._fates: list[Callable[[], None]] = []
        self._snapshot: postgres.OpenTransaction | None = None
        self._init()

    def _databases(self) -> Any:
        return postgres.Database()

    def _init(self) -> None:
        where = ["--data", str(self.data), "--port", str(self.port)]
        command = [sys.executable, "-m", "courier", "init", *self._store, *where]
        env = {**os.environ, **self._settings}
        subprocess.run(command, env=env, check=True, stdout=subprocess.DEVNULL)

    def address(self) -> tuple[str, int]:
        """Nodes in turn, those that are there."""
        self.nodes.reverse()
        there = [node for node in self.nodes if node.running] or self.nodes
        return there[0].address()

    def start(self, *, ready: bool = True) -> "Cluster":
        for node in self._down:
            node.start(ready=ready)
        self._down = []
        # Those that ran on may have lost the database, and refuse callers until it is found again.
        for node in list(self.nodes) if ready else ():
            node.wait_until_ready()
        return self

    def kill(self) -> None:
        if not self._fates:
            fates = [self._kill_one, self._kill_all, self._crash], [self._cut, self._sleep]
            self._fates = [fate for some in fates for fate in self._random.sample(some, len(some))]
        self._fates.pop(0)()
        self._hold_snapshot()

    def _kill_one(self) -> None:
        self._kill([self._random.choice(self.nodes)])

    def _kill_all(self) -> None:
        self._kill(self.nodes)

    def _kill(self, nodes: Sequence[Server]) -> None:
        # Callers turn the list of nodes around meanwhile.
        self._down = list(nodes)
        for node in self._down:
            node.kill()

    def _crash(self) -> None:
        self.crashes += 1
        self.database.stop("immediate")
        self.database.start()

    def _cut(self) -> None:
        self.database.sql(CUT)

    def _sleep(self) -> None:
        asleep = self._random.choice(self.nodes)
        os.kill(asleep.pid, signal.SIGSTOP)
        time.sleep(ASLEEP_S)
        os.kill(asleep.pid, signal.SIGCONT)

    def _hold_snapshot(self) -> None:
        self._release_snapshot()
        self._snapshot = postgres.OpenTransaction(self.database, *SNAPSHOT)

    def _release_snapshot(self) -> None:
        if self._snapshot is not None:
            self._snapshot.end()
            self._snapshot = None

    def __exit__(self, *error: object) -> None:
        try:
            for node in self.nodes:
                if any(error) and node.running:
                    # The database may be in any state then, and servers wait for it.
                    node.kill()
                else:
                    node.__exit__()
        finally:
            self._release_snapshot()
            self.database.remove()

    def log(self) -> str:
        return "".join(node.log() for node in self.nodes)


class FailoverCluster(Cluster):
    """`kill` ends the primary, and its standby takes over while the servers run on. Mostly a commit
    waits for the standby at that moment, which has it or not."""

    def _databases(self) -> Any:
        return postgres.Pair()

    def kill(self) -> None:
        hanging = (postgres.SENDER, postgres.RECEIVER, "")[self.crashes % 3]
        self.crashes += 1
        self.database.fail_over(hanging)
        for node in self.nodes:
            node.wait_until_ready()
