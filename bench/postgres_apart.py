"""Servers with a queue each on one PostgreSQL, every one a process of its own.

    python -m bench.postgres_apart URL KEY QUEUE WARMUP_S SECONDS

is one of them: it says when it is warm, waits for a line, and tells what it has cycled since.
"""

import asyncio
import os
import subprocess
import sys
import time
from array import array
from contextlib import ExitStack

from msgspec import json
from msgspec.structs import replace
from tests.postgres import Database

from bench.bars import Bar, ratio
from bench.comparison import say
from bench.figure import Figure, middle
from bench.plan import Plan
from bench.postgres import ACTOR, QUEUE, courier_cycle, cpu_s, now_ms, run_cycles
from bench.table import Row
from courier.core.records import Change
from courier.sealing import KeySealer
from courier.store.shared import SharedStore

NAME = "postgres, servers with a queue each"
CALLERS, BATCH = 64, 1
# One for each server, one for the database and its disk, and one for all else: with fewer they
# only stand in each other's way.
CORES_MIN = 4
_READY = "ready"


class Apart:
    """How many servers -> what they cycle together."""

    def __init__(self, figures: dict[int, Figure]) -> None:
        self.figures = figures

    def rows(self) -> list[Row]:
        return [Row(NAME, str(count), figure) for count, figure in self.figures.items()]

    def bars(self) -> list[Bar]:
        if (os.cpu_count() or 1) < CORES_MIN:
            return []
        two, one = self.figures[2].rate, self.figures[1].rate
        return [Bar(f"{NAME}, two beside one", ratio(two, one), 1.2, "x")]


def measure(plan: Plan) -> Apart:
    database = Database("checkpoint_timeout=1h", "max_wal_size=20GB")
    key = os.urandom(32).hex()
    found: dict[int, list[Figure]] = {1: [], 2: []}
    try:
        for turn in range(plan.rounds):
            say(f"{NAME}, round {turn + 1} of {plan.rounds}")
            for count, figures in found.items():
                figures.append(_together(database, key, count, plan))
    finally:
        database.remove()
    return Apart({count: middle(figures) for count, figures in found.items()})


def _together(database: Database, key: str, count: int, plan: Plan) -> Figure:
    times = str(plan.warmup_s), str(plan.seconds)
    with ExitStack() as started:
        pipes = []
        for number in range(count):
            queue = f"c0{number + 1:030x}"
            command = [sys.executable, "-m", __name__, database.url("courier"), key, queue, *times]
            server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            started.enter_context(server)
            assert server.stdin is not None and server.stdout is not None
            pipes.append((server.stdin, server.stdout))
        for _, said in pipes:
            if said.readline().decode().strip() != _READY:
                raise RuntimeError("a server of the bench did not start")
        used_s = cpu_s(database)
        for told, _ in pipes:
            told.write(b"go\n")
            told.flush()
        found = [said.readline() for _, said in pipes]
        used_s = cpu_s(database) - used_s
    parts = [json.decode(each, type=tuple[int, float, float, list[float]]) for each in found]
    return Figure.of(
        messages=sum(part[0] for part in parts),
        elapsed_s=max(part[1] for part in parts),
        cpu_s=used_s,
        client_cpu_s=max(part[2] for part in parts),
        latencies_s=array("d", [each for part in parts for each in part[3]]),
    )


async def _serve(url: str, key: str, queue: str, warmup_s: float, seconds: float) -> None:
    store = await SharedStore.open(url, sealer=KeySealer([bytes.fromhex(key)]))
    mine = replace(QUEUE, id=queue, name=queue)
    await store.change(lambda _: Change(puts=[mine]), actor=ACTOR, now_ms=now_ms())
    cycle = courier_cycle(store, mine)
    await run_cycles(cycle, CALLERS, BATCH, warmup_s)
    print(_READY, flush=True)
    # Nobody cycles meanwhile, but the server goes on looking at what others write.
    await asyncio.to_thread(sys.stdin.readline)
    own_s, began_s = time.process_time(), time.monotonic()
    messages, latencies = await run_cycles(cycle, CALLERS, BATCH, seconds)
    took = time.monotonic() - began_s, time.process_time() - own_s
    print(json.encode((messages, *took, latencies.tolist())).decode(), flush=True)
    await store.close()


if __name__ == "__main__":
    url, key, queue, *times = sys.argv[1:]
    asyncio.run(_serve(url, key, queue, *map(float, times)))
