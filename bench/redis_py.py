"""Redis Streams through redis-py: the same server, driven as a Python program would drive it.

The bare client of `redis.py` shows what the server can do; this shows what its users get.
"""

import asyncio
import time
from array import array
from typing import Any, cast

import redis.asyncio
import uvloop

from bench.figure import Figure
from bench.plan import Plan
from bench.redis import GROUP, STREAM, Redis, RedisServer
from bench.workload import BODY, Workload


class RedisPy(Redis):
    name = "redis streams, redis-py"

    def measure(self, server: RedisServer, workload: Workload, plan: Plan) -> Figure:
        return uvloop.run(_measure(server, workload, plan))


async def _measure(server: RedisServer, workload: Workload, plan: Plan) -> Figure:
    begin_s = time.perf_counter() + plan.warmup_s
    end_s = begin_s + plan.seconds
    latencies_s = array("d")
    moved = 0

    async def client(number: int) -> None:
        nonlocal moved
        connection = cast(
            Any,
            redis.asyncio.Redis(port=server.process.port, single_connection_client=True),
        )
        while (started_s := time.perf_counter()) < end_s:
            messages = await _pass(connection, number, workload)
            if started_s >= begin_s:
                latencies_s.append(time.perf_counter() - started_s)
                moved += messages
        await connection.aclose()

    clients = [asyncio.create_task(client(number)) for number in range(workload.clients)]
    await asyncio.sleep(plan.warmup_s)
    own_cpu_s, cpu_s = time.process_time(), server.process.cpu_s()
    await asyncio.gather(*clients)
    return Figure.of(
        messages=moved,
        latencies_s=latencies_s,
        elapsed_s=time.perf_counter() - begin_s,
        cpu_s=server.process.cpu_s() - cpu_s,
        client_cpu_s=time.process_time() - own_cpu_s,
    )


async def _pass(connection: Any, number: int, workload: Workload) -> int:
    """Publish, and in a cycle read and settle; how many messages went all the way."""
    adding = connection.pipeline(transaction=False)
    for _ in range(workload.batch):
        adding.xadd(STREAM, {b"b": BODY})
    await adding.execute()
    if not workload.cycle:
        return workload.batch
    consumer = f"consumer-{number}"
    found = await connection.xreadgroup(GROUP, consumer, {STREAM: b">"}, count=workload.batch)
    entries = [entry for entry, _ in found[0][1]]
    settling = connection.pipeline(transaction=False)
    settling.xack(STREAM, GROUP, *entries)
    settling.xdel(STREAM, *entries)
    await settling.execute()
    return len(entries)
