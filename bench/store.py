"""The store alone, without HTTP: what a cycle of publish, lease and settle costs it."""

import asyncio
import tempfile
import time
from array import array
from pathlib import Path

import uvloop

from bench.figure import Figure, middle
from bench.plan import Plan
from bench.table import Row
from bench.workload import BODY
from courier import ids
from courier.core.store import Store
from courier.core.types import Ack, Actor, Draft, Outcome, Queue
from courier.store.embedded import EmbeddedStore
from courier.store.memory import MemoryStore
from courier.store.sqlite import SqliteStore

_ACTOR = Actor("bench", "bench")
_CALLERS = 64
_LEASE_MS = 30_000


def compare(plan: Plan, root: Path) -> list[Row]:
    rows = []
    for batch in (1, 100):
        figures: dict[str, list[Figure]] = {"sqlite": [], "engine": [], "memory": []}
        for _ in range(plan.rounds):
            figures["sqlite"].append(uvloop.run(_on_disk(SqliteStore, batch, plan, root)))
            figures["engine"].append(uvloop.run(_on_disk(EmbeddedStore, batch, plan, root)))
            figures["memory"].append(uvloop.run(_memory(batch, plan)))
        for name, rounds in figures.items():
            rows.append(Row(f"store, cycle {_CALLERS}x{batch}", name, middle(rounds)))
    return rows


async def _on_disk(
    kind: type[SqliteStore] | type[EmbeddedStore], batch: int, plan: Plan, root: Path
) -> Figure:
    with tempfile.TemporaryDirectory(dir=root) as directory:
        store = await kind.open(Path(directory) / "courier.db")
        try:
            return await _measure(store, batch, plan)
        finally:
            await store.close()


async def _memory(batch: int, plan: Plan) -> Figure:
    return await _measure(MemoryStore(), batch, plan)


async def _measure(store: Store, batch: int, plan: Plan) -> Figure:
    now_ms = _now_ms()
    queue = Queue(
        id=ids.new_id(), tenant="bench", name="bench", created_ms=now_ms, modified_ms=now_ms
    )
    await store.change(puts=[queue], actor=_ACTOR, now_ms=now_ms)
    latencies_s = array("d")
    until_s = time.perf_counter() + plan.warmup_s
    await asyncio.gather(*(_cycle(store, queue.id, batch, until_s, array("d")) for _ in range(64)))
    started_s, cpu_s = time.perf_counter(), time.process_time()
    callers = [
        _cycle(store, queue.id, batch, started_s + plan.seconds, latencies_s)
        for _ in range(_CALLERS)
    ]
    await asyncio.gather(*callers)
    return Figure.of(
        messages=len(latencies_s) * batch,
        latencies_s=latencies_s,
        elapsed_s=time.perf_counter() - started_s,
        cpu_s=time.process_time() - cpu_s,
        client_cpu_s=0.0,
    )


async def _cycle(
    store: Store, queue: str, batch: int, until_s: float, latencies_s: "array[float]"
) -> None:
    drafts = [Draft(BODY)] * batch
    started_s = time.perf_counter()
    while started_s < until_s:
        await store.publish([(queue, drafts)], actor=_ACTOR, now_ms=_now_ms())
        leased = await store.lease(
            queue, count=batch, lease_ms=_LEASE_MS, actor=_ACTOR, now_ms=_now_ms()
        )
        acks = [Ack(message.seq, message.attempts) for message in leased.messages]
        outcomes = await store.settle(queue, acks, actor=_ACTOR, now_ms=_now_ms())
        if outcomes != [Outcome.DONE] * batch:
            raise RuntimeError(f"a cycle of {batch} ended with {outcomes}")
        ended_s = time.perf_counter()
        latencies_s.append(ended_s - started_s)
        started_s = ended_s
        # The memory store never waits; without this one caller would run alone.
        await asyncio.sleep(0)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
