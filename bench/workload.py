"""What is asked of every broker, and what a broker must offer to be asked."""

from pathlib import Path
from typing import NamedTuple, Protocol

from bench.client import NewScript
from bench.process import Process

BODY = b"m" * 200


class Workload(NamedTuple):
    name: str
    clients: int
    batch: int
    cycle: bool  # publish, pull and ack; otherwise publish only
    ours: bool = False  # asked of Courier's dialects and of nobody else


WORKLOADS = (
    Workload("publish 64x1", clients=64, batch=1, cycle=False),
    Workload("publish 16x10", clients=16, batch=10, cycle=False, ours=True),
    Workload("publish 16x100", clients=16, batch=100, cycle=False),
    Workload("cycle 64x1", clients=64, batch=1, cycle=True),
    Workload("cycle 16x10", clients=16, batch=10, cycle=True, ours=True),
    Workload("cycle 16x100", clients=16, batch=100, cycle=True),
)


class Server(Protocol):
    """A running broker with one empty queue."""

    @property
    def process(self) -> Process: ...

    def publish(self, client: int, batch: int) -> NewScript: ...

    def cycle(self, client: int, batch: int) -> NewScript: ...


class Contestant(Protocol):
    @property
    def name(self) -> str: ...

    def takes(self, workload: Workload) -> bool: ...

    def installed(self) -> bool: ...

    def start(self, directory: Path) -> Server:
        """Start it with its data in an empty directory."""
        ...


def scripts(server: Server, workload: Workload) -> list[NewScript]:
    make = server.cycle if workload.cycle else server.publish
    return [make(client, workload.batch) for client in range(workload.clients)]
