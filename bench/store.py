"""The store alone, without HTTP, beside the store of before: what messages cost it.

The store of before is built from its commit; both run in turns, each in a process of its own.
"""

import asyncio
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from array import array
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import uvloop

from bench.before import export
from bench.figure import Figure, middle
from bench.plan import Plan
from bench.table import Row
from bench.workload import BODY

BEFORE = "6a97a9f"
# Who -> the module and the class that opens it. The first is looked for in the commit of before.
STORES = {
    f"before ({BEFORE})": ("courier.store.sqlite", "SqliteStore"),
    "engine": ("courier.store.embedded", "EmbeddedStore"),
    "engine in memory": ("courier.store.embedded", "EmbeddedStore"),
}
# Name, callers, messages of a call.
WORKLOADS = (
    ("cycle", 64, 1),
    ("cycle", 64, 100),
    ("publish", 16, 100),
    ("fifo cycle", 64, 1),
    ("fifo cycle", 16, 100),
    ("publish to 10 listeners", 16, 100),
    ("claims", 1, 100_000),
)
# Messages that one call of the FIFO workloads publishes in each of its groups.
_GROUP = 10
_LISTENERS = 10
_REPOSITORY = Path(__file__).parents[1]
_LEASE_MS = 30_000


def compare(plan: Plan, root: Path) -> list[Row]:
    sources = {who: _REPOSITORY / "src" for who in STORES}
    sources[next(iter(STORES))] = export(BEFORE, root / BEFORE)
    rows = []
    for number, (kind, callers, batch) in enumerate(WORKLOADS):
        figures: dict[str, list[Figure]] = {who: [] for who in STORES}
        for _ in range(plan.rounds):
            for who, source in sources.items():
                figures[who].append(_measured(who, source, number, plan, root))
        for who, rounds in figures.items():
            rows.append(Row(f"store, {kind} {callers}x{batch}", who, middle(rounds)))
    return rows


def _measured(who: str, source: Path, number: int, plan: Plan, root: Path) -> Figure:
    with tempfile.TemporaryDirectory(dir=root) as directory:
        run = subprocess.run(
            [
                *(sys.executable, "-m", "bench.store", who, str(number)),
                *(str(plan.warmup_s), str(plan.seconds), directory),
            ],
            cwd=_REPOSITORY,
            env={**os.environ, "PYTHONPATH": str(source)},
            check=True,
            stdout=subprocess.PIPE,
        )
    return Figure(*json.loads(run.stdout))


# --- in the process that is measured; its `courier` may be that of before ---


async def _run(who: str, number: int, warmup_s: float, seconds: float, directory: Path) -> Figure:
    module, name = STORES[who]
    path = None if who.endswith("memory") else directory / "courier.db"
    store = await getattr(importlib.import_module(module), name).open(path)
    try:
        kind, callers, batch = WORKLOADS[number]
        calls = Calls(store, fifo=kind.startswith("fifo"))
        await calls.create(listeners=_LISTENERS if "listeners" in kind else 0)
        verb = {"publish": calls.publish, "claims": calls.claim}.get(kind.split()[0], calls.cycle)
        return await _measure(verb, calls, callers, batch, warmup_s, seconds)
    finally:
        await store.close()


class Calls:
    """The store and the types that it understands."""

    def __init__(self, store: Any, *, fifo: bool) -> None:
        self.store = store
        self.busy_s = self.cpu_s = 0.0  # of what counts; for the others it is the whole time
        self._types = types = importlib.import_module("courier.core.types")
        self._fifo = fifo
        self._asked = {"actor": types.Actor("bench", "bench")}
        self._id: str = importlib.import_module("courier.ids").new_id()
        self._done = types.Outcome.DONE
        self._claims = 0

    async def create(self, *, listeners: int) -> None:
        now_ms = _now_ms()
        new = {"tenant": "bench", "created_ms": now_ms, "modified_ms": now_ms}
        puts = [self._types.Queue(id=self._id, name="bench", fifo=self._fifo, **new)]
        puts += [
            self._types.Listener(
                id=f"{self._id}{number}",
                parent=self._id,
                name=f"{self._id}/{number}",
                title=str(number),
                url="https://example.com",
                liveness_url="https://example.com",
                **new,
            )
            for number in range(listeners)
        ]
        try:
            records = importlib.import_module("courier.core.records")
        except ImportError:  # a commit before changes were decisions
            await self.store.change(puts=puts, **self._asked, now_ms=now_ms)
        else:
            await self.store.change(records.decided(puts=puts), **self._asked, now_ms=now_ms)

    async def publish(self, batch: int) -> None:
        drafts = [self._types.Draft(BODY)] * batch
        if self._fifo:
            drafts = [
                self._types.Draft(BODY, group=f"{id(drafts)}-{number // _GROUP}")
                for number in range(batch)
            ]
        await self.store.publish([(self._id, drafts)], **self._asked, now_ms=_now_ms())

    async def cycle(self, batch: int) -> None:
        await self.publish(batch)
        leased = await self.store.lease(
            self._id, count=batch, lease_ms=_LEASE_MS, **self._asked, now_ms=_now_ms()
        )
        acks = [self._types.Ack(message.seq, message.attempts) for message in leased.messages]
        outcomes = await self.store.settle(self._id, acks, **self._asked, now_ms=_now_ms())
        if outcomes != [self._done] * batch:
            raise RuntimeError(f"a cycle of {batch} ended with {outcomes}")

    async def claim(self, batch: int) -> None:
        """Publishes first, which does not count: what counts is to claim, extend and ack."""
        for _ in range(batch // 1_000):
            await self.publish(1_000)
        self._claims += 1
        claim = (self._id, str(self._claims))
        claims = getattr(self.store, "claims", None)
        take, extend, ack = (
            (claims.take, claims.extend, claims.ack)
            if claims
            else (self.store.claim, self.store.extend_claim, self.store.ack_claim)
        )
        started_s, cpu_s = time.perf_counter(), time.process_time()
        timed = {**self._asked, "now_ms": _now_ms()}
        taken = await take(*claim, count=batch, lease_ms=_LEASE_MS, **timed)
        await extend(*claim, lease_ms=_LEASE_MS, **timed)
        await ack(*claim, **timed)
        self.busy_s += time.perf_counter() - started_s
        self.cpu_s += time.process_time() - cpu_s
        if taken != batch:
            raise RuntimeError(f"a claim of {batch} took {taken}")


async def _measure(
    verb: Callable[[int], Awaitable[None]],
    calls: Calls,
    callers: int,
    batch: int,
    warmup_s: float,
    seconds: float,
) -> Figure:
    async def call(until_s: float, latencies_s: "array[float]") -> None:
        started_s = time.perf_counter()
        while started_s < until_s:
            await verb(batch)
            ended_s = time.perf_counter()
            latencies_s.append(ended_s - started_s)
            started_s = ended_s

    latencies_s = array("d")
    until_s = time.perf_counter() + warmup_s
    await asyncio.gather(*(call(until_s, array("d")) for _ in range(callers)))
    calls.busy_s = calls.cpu_s = 0.0
    started_s, cpu_s = time.perf_counter(), time.process_time()
    await asyncio.gather(*(call(started_s + seconds, latencies_s) for _ in range(callers)))
    return Figure.of(
        messages=len(latencies_s) * batch,
        latencies_s=latencies_s,
        elapsed_s=calls.busy_s or time.perf_counter() - started_s,
        cpu_s=calls.cpu_s or time.process_time() - cpu_s,
        client_cpu_s=0.0,
    )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


if __name__ == "__main__":
    who, number, warmup_s, seconds, directory = sys.argv[1:]
    figure = uvloop.run(_run(who, int(number), float(warmup_s), float(seconds), Path(directory)))
    print(json.dumps(figure))
