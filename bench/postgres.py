"""The store on PostgreSQL beside statements of pgmq's shape, on one server and in turns.

Counted is what the database does for a message: CPU of all its processes, and bytes of its log.
pgmq itself is an extension; its statements are a row per message, SKIP LOCKED, update, delete.
"""

import asyncio
import os
import time
from array import array
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import asyncpg
from tests.postgres import Database, children

from bench.comparison import say
from bench.figure import Figure, middle
from bench.plan import Plan
from bench.table import Row
from courier.core.records import Change, Records
from courier.core.types import Ack, Actor, Draft, Queue
from courier.sealing import KeySealer
from courier.store.shared import SharedStore

# Callers, messages of a call.
WORKLOADS = ((64, 1), (16, 100))
COURIER, PGMQ = "courier", "pgmq's statements"
BODY = b"x" * 200
_LEASE_MS = 30_000
_TICKS = os.sysconf("SC_CLK_TCK")
ACTOR = Actor("bench", "bench", "")
QUEUE = Queue(id="c0" + "b" * 30, tenant="t", name="q", created_ms=0, modified_ms=0)

CREATE = """
CREATE TABLE public.q (msg_id bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    read_ct int NOT NULL DEFAULT 0, enqueued_at timestamptz NOT NULL DEFAULT now(),
    vt timestamptz NOT NULL, message jsonb);
CREATE INDEX q_vt ON public.q (vt ASC)
"""
SEND = """
INSERT INTO public.q (vt, message)
SELECT clock_timestamp(), unnest($1::jsonb[]) RETURNING msg_id
"""
READ = """
WITH cte AS (
    SELECT msg_id FROM public.q WHERE vt <= clock_timestamp()
    ORDER BY msg_id ASC LIMIT $1 FOR UPDATE SKIP LOCKED)
UPDATE public.q AS m SET vt = clock_timestamp() + interval '30 s', read_ct = read_ct + 1
FROM cte WHERE m.msg_id = cte.msg_id
RETURNING m.msg_id, m.read_ct, m.enqueued_at, m.vt, m.message
"""
DELETE = "DELETE FROM public.q WHERE msg_id = ANY($1) RETURNING msg_id"

Cycle = Callable[[int], Awaitable[int]]


class Cost(NamedTuple):
    """`cpu_ms` of PostgreSQL and `wal_bytes` for each message that was cycled."""

    figure: Figure
    cpu_ms: float
    wal_bytes: float


class Cycles(NamedTuple):
    """Workload -> who -> what it cost."""

    costs: dict[str, dict[str, Cost]]

    def rows(self) -> list[Row]:
        return [
            Row(name, who, cost.figure, note=f"{cost.wal_bytes:,.0f} bytes of WAL each")
            for name, found in self.costs.items()
            for who, cost in found.items()
        ]


def measure(plan: Plan) -> Cycles:
    # The first change of a page after a checkpoint is logged whole, so there is none meanwhile.
    database = Database("checkpoint_timeout=1h", "max_wal_size=20GB")
    try:
        return asyncio.run(_measure(database, plan))
    finally:
        database.remove()


async def _measure(database: Database, plan: Plan) -> Cycles:
    store = await SharedStore.open(database.url("courier"), sealer=KeySealer([os.urandom(32)]))
    await store.change(put_queue, actor=ACTOR, now_ms=now_ms())
    plain = database.url("courier").partition("?")[0]
    pool = await asyncpg.create_pool(plain, min_size=64, max_size=64)
    await pool.execute(CREATE)
    who: dict[str, Cycle] = {COURIER: courier_cycle(store), PGMQ: _pgmq(pool)}
    costs: dict[str, dict[str, Cost]] = {}
    for callers, batch in WORKLOADS:
        found: dict[str, list[Cost]] = {name: [] for name in who}
        for turn in range(plan.rounds):
            say(f"postgres, cycle {callers}x{batch}, round {turn + 1} of {plan.rounds}")
            for name, cycle in who.items():
                await run_cycles(cycle, callers, batch, plan.warmup_s)
                found[name].append(await cycle_cost(database, pool, cycle, callers, batch, plan))
        costs[f"postgres, cycle {callers}x{batch}"] = {
            name: Cost(
                middle([cost.figure for cost in rounds]),
                median([cost.cpu_ms for cost in rounds]),
                median([cost.wal_bytes for cost in rounds]),
            )
            for name, rounds in found.items()
        }
    await pool.close()
    await store.close()
    return Cycles(costs)


async def cycle_cost(
    database: Database, pool: Any, cycle: Cycle, callers: int, batch: int, plan: Plan
) -> Cost:
    wal, used_s = await pool.fetchval("SELECT pg_current_wal_lsn()"), cpu_s(database)
    own_s, began_s = time.process_time(), time.monotonic()
    messages, latencies = await run_cycles(cycle, callers, batch, plan.seconds)
    elapsed_s, own_s = time.monotonic() - began_s, time.process_time() - own_s
    used_s = cpu_s(database) - used_s
    written = await pool.fetchval("SELECT pg_current_wal_lsn() - $1::pg_lsn", wal)
    figure = Figure.of(
        messages=messages,
        latencies_s=latencies,
        elapsed_s=elapsed_s,
        cpu_s=used_s,
        client_cpu_s=own_s,
    )
    return Cost(figure, used_s * 1_000 / messages, float(written) / messages)


async def run_cycles(
    cycle: Cycle, callers: int, batch: int, seconds: float
) -> tuple[int, "array[float]"]:
    """How many messages were cycled, and how long the cycles took."""
    until_s = time.monotonic() + seconds
    latencies: array[float] = array("d")
    messages = 0

    async def call() -> None:
        nonlocal messages
        while (began_s := time.monotonic()) < until_s:
            done = await cycle(batch)
            messages += done
            latencies.append(time.monotonic() - began_s)

    await asyncio.gather(*(call() for _ in range(callers)))
    return messages, latencies


def courier_cycle(store: SharedStore, queue: Queue = QUEUE) -> Cycle:
    async def cycle(batch: int) -> int:
        how: dict[str, Any] = {"actor": ACTOR, "now_ms": now_ms()}
        await store.publish([(queue.id, [Draft(BODY) for _ in range(batch)])], **how)
        leased = await store.lease(queue.id, count=batch, lease_ms=_LEASE_MS, **how)
        acks = [Ack(message.seq, message.attempts) for message in leased.messages]
        if acks:
            await store.settle(queue.id, acks, **how)
        return len(acks)

    return cycle


def _pgmq(pool: Any) -> Cycle:
    body = f'"{BODY.decode()}"'

    async def cycle(batch: int) -> int:
        await pool.fetch(SEND, [body] * batch)
        ids = [row[0] for row in await pool.fetch(READ, batch)]
        await pool.fetch(DELETE, ids)
        return len(ids)

    return cycle


def cpu_s(database: Database) -> float:
    """CPU of the server and of all processes that it has or had."""
    postmaster = int((database.data / "postmaster.pid").read_text().split()[0])
    ticks = sum(_ticks(postmaster))
    return (ticks + sum(sum(_ticks(pid)[:2]) for pid in children(postmaster))) / _TICKS


def _ticks(pid: int) -> list[int]:
    """User and system time of a process, and of its children that have ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return [0]
    return [int(value) for value in stat.rpartition(") ")[2].split()[11:15]]


def put_queue(records: Records) -> Change[None]:
    return Change(puts=[QUEUE])


def now_ms() -> int:
    return time.time_ns() // 1_000_000
