"""The floor: Courier's own HTTP stack over a store that does nothing with what it is given.

Routing, authentication, parsing and rendering are the real ones, so the distance between this
and Courier is what storing a message costs.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from bench.courier import CourierServer
from bench.workload import Workload
from courier import app, config
from courier.config import Config
from courier.core.types import Actor, Draft, QueueStats, Receipt, Via
from courier.store.embedded import EmbeddedStore

_RECEIPTS = [Receipt([], [], QueueStats(count=1, bytes=200, oldest_ms=1_700_000_000_000))]


class EmptyStore(EmbeddedStore):
    """The real store for settings, so that keys and queues cost what they cost; no messages."""

    async def publish(
        self,
        batches: Sequence[tuple[str, Sequence[Draft]]],
        *,
        actor: Actor,
        now_ms: int,
        bytes_max: int | None = None,
        via: Via | None = None,
    ) -> list[Receipt]:
        return _RECEIPTS


class Floor:
    name = "floor: no store"

    def takes(self, workload: Workload) -> bool:
        return not workload.cycle and not workload.ours

    def installed(self) -> bool:
        return True

    def start(self, directory: Path) -> CourierServer:
        return CourierServer(directory, module="bench.floor")


async def _open(config: Config) -> EmptyStore:
    return await EmptyStore.open(config.data / "courier.db")


def main() -> None:
    """`courier serve` as it is, wiring and all, but for the store that it opens."""
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=["serve"])
    for flag in ("--host", "--port", "--data"):
        parser.add_argument(flag)
    given = parser.parse_args()
    app.serve(config.load({"host": given.host, "port": given.port, "data": given.data}), _open)


if __name__ == "__main__":
    main()
