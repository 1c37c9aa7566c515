"""Two servers on one PostgreSQL, to callers like one server. What is killed is left to chance."""

import os
import random
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from courier.sealing import new_key
from tests import postgres
from tests.server import Server

NODES = 2


class Cluster(Server):
    """`kill` ends a server, all of them, or the database while the servers run on."""

    def __init__(self, directory: Path, *, seed: int, env: Mapping[str, str] | None = None) -> None:
        super().__init__(directory)
        self._random = random.Random(seed)
        self.database = self._databases()
        self._store = ["--store", self.database.url("courier")]
        self._keys = {"COURIER_ENCRYPTION_KEYS": new_key(), **(env or {})}
        self.nodes = []
        for number in range(NODES):
            place = directory / str(number)
            place.mkdir()
            self.nodes.append(Server(place, args=self._store, env=self._keys))
        self._down: list[Server] = list(self.nodes)
        self.crashes = 0
        self._init()

    def _databases(self) -> Any:
        return postgres.Database()

    def _init(self) -> None:
        # What credentials name is the address of all servers together.
        where = ["--data", str(self.data), "--port", str(self.port)]
        command = [sys.executable, "-m", "courier", "init", *self._store, *where]
        env = {**os.environ, **self._keys}
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
        return self

    def kill(self) -> None:
        fate = self._random.choice(("node", "nodes", "database"))
        if fate == "database":
            self.crashes += 1
            self.database.stop("immediate")
            self.database.start()
            return
        self._down = self._random.sample(self.nodes, 1 if fate == "node" else NODES)
        for node in self._down:
            node.kill()

    def __exit__(self, *error: object) -> None:
        try:
            for node in self.nodes:
                # After a failure the database may be in any state, and servers wait for it.
                node.kill() if any(error) else node.__exit__()
        finally:
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
