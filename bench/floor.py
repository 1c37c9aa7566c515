"""The floor: Courier's own HTTP stack over a store that does nothing with what it is given.

Routing, authentication, parsing and rendering are the real ones, so the distance between this
and Courier is what storing a message costs.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import uvloop

from bench.courier import CourierServer
from bench.workload import Workload
from courier import serving
from courier.app import build
from courier.config import Config
from courier.core.types import Actor, Draft, QueueStats, Receipt
from courier.credentials import FIRST_TENANT
from courier.store.sqlite import SqliteStore

_RECEIPTS = [Receipt([], [], QueueStats(count=1, bytes=200, oldest_ms=1_700_000_000_000))]


class EmptyStore(SqliteStore):
    """The real store for settings, so that keys and queues cost what they cost; no messages."""

    async def publish(
        self,
        batches: Sequence[tuple[str, Sequence[Draft]]],
        *,
        actor: Actor,
        now_ms: int,
        bytes_max: int | None = None,
    ) -> list[Receipt]:
        return _RECEIPTS


async def serve(config: Config) -> None:
    store = await EmptyStore.open(config.data / "courier.db")
    courier = build(store, config, port=config.port)
    await courier.credentials.create_tenant(FIRST_TENANT)
    with serving.listen(config.host, config.port) as listener:
        await serving.run(
            courier.app,
            listener,
            connection=serving.protocol(
                header_bytes_max=config.header_bytes_max,
                header_wait_s=config.header_wait_ms_max / 1000,
                request_wait_s=config.request_wait_ms_max / 1000,
            ),
            connections_max=config.connections_max,
            idle_wait_ms_max=config.idle_wait_ms_max,
            drain_wait_ms_max=config.drain_wait_ms_max,
        )
    await store.close()


class Floor:
    name = "floor: no store"

    def takes(self, workload: Workload) -> bool:
        return not workload.cycle

    def installed(self) -> bool:
        return True

    def start(self, directory: Path) -> CourierServer:
        return CourierServer(directory, module="bench.floor")


def main() -> None:
    parser = argparse.ArgumentParser("bench.floor")
    parser.add_argument("command", choices=("serve",))
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--data", type=Path, required=True)
    options = parser.parse_args()
    uvloop.run(serve(Config(host=options.host, port=options.port, data=options.data)))


if __name__ == "__main__":
    main()
