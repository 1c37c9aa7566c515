"""What many messages, a held snapshot, a second server and a standby do to the store on PostgreSQL.

Compared are CPU of the database for a cycled message, or rates, of one run and one database.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable
from itertools import cycle as in_turn
from typing import Any, NamedTuple

import asyncpg
from tests.postgres import Database, Pair

from bench.bars import Bar, ratio
from bench.comparison import say
from bench.plan import Plan
from bench.postgres import ACTOR as ACTOR
from bench.postgres import (
    BODY,
    Cost,
    Cycle,
    courier_cycle,
    cycle_cost,
    now_ms,
    put_queue,
    run_cycles,
)
from bench.postgres import QUEUE as QUEUE
from bench.table import Row
from courier.core.types import Draft
from courier.sealing import KeySealer
from courier.store.shared import SharedStore

FEW = 1_000
AGED_TIMES = 5  # as many messages as wait in the long queue are cycled, this often
HELD_S_PART = 10.0  # a snapshot is held for as many times as long as a measurement takes
SINGLES, BATCHES = (64, 1), (16, 100)


class Growth(NamedTuple):
    """What was compared -> what it cost before and then."""

    costs: dict[str, tuple[Cost, Cost]]

    def rows(self) -> list[Row]:
        return [
            Row(name, when, cost.figure, note=f"{cost.cpu_ms * 1_000:.1f} us of PostgreSQL each")
            for name, both in self.costs.items()
            for when, cost in zip(("before", "then"), both, strict=True)
        ]

    def bars(self) -> list[Bar]:
        def cpu(name: str, limit: float) -> Bar:
            before, then = self.costs[name]
            return Bar(f"{name}, CPU", ratio(then.cpu_ms, before.cpu_ms), limit, "x", at_most=True)

        together = "postgres, two servers on one queue"
        one, two = self.costs[together]
        return [
            cpu("postgres, many waiting", 1.2),
            cpu("postgres, many cycled", 1.2),
            cpu("postgres, snapshot held", 3.0),
            Bar(together, ratio(two.figure.rate, one.figure.rate), 0.6, "x"),
        ]


class Place:
    """A database with some stores on it."""

    def __init__(self, database: Any, plan: Plan) -> None:
        self.database = database
        self.plan = plan
        self._key = os.urandom(32)

    async def __aenter__(self) -> "Place":
        self.stores = [await self._opened(), await self._opened()]
        await self.stores[0].change(put_queue, actor=ACTOR, now_ms=now_ms())
        primary = getattr(self.database, "primary", self.database)
        plain = primary.url("courier").partition("?")[0]
        self.pool = await asyncpg.create_pool(plain, min_size=1, max_size=2)
        self._primary = primary
        return self

    async def _opened(self) -> SharedStore:
        return await SharedStore.open(self.database.url("courier"), sealer=KeySealer([self._key]))

    async def __aexit__(self, *_: object) -> None:
        await self.pool.close()
        for store in self.stores:
            await store.close()

    async def cost(self, cycle: Cycle, workload: tuple[int, int] = SINGLES) -> Cost:
        await run_cycles(cycle, *workload, self.plan.warmup_s)
        return await cycle_cost(self._primary, self.pool, cycle, *workload, self.plan)

    async def publish(self, count: int) -> None:
        drafts = [Draft(BODY) for _ in range(1_000)]
        for _ in range(count // len(drafts)):
            await self.stores[0].publish([(QUEUE.id, drafts)], actor=ACTOR, now_ms=now_ms())


def measure(plan: Plan) -> Growth:
    costs: dict[str, tuple[Cost, Cost]] = {}
    for name, step in {
        "postgres, many waiting": _waiting,
        "postgres, many cycled": _cycled,
        "postgres, snapshot held": _held,
        "postgres, two servers on one queue": _two,
    }.items():
        say(name)
        costs[name] = _on(Database("checkpoint_timeout=1h", "max_wal_size=20GB"), plan, step)
    say("postgres, with a standby that confirms")
    without = costs["postgres, two servers on one queue"][0]
    costs["postgres, with a standby that confirms"] = without, _on(Pair(), plan, _one)
    return Growth(costs)


Step = Callable[[Place], Awaitable[Any]]


def _on(database: Any, plan: Plan, step: Step) -> Any:
    async def story() -> Any:
        async with Place(database, plan) as place:
            return await step(place)

    try:
        return asyncio.run(story())
    finally:
        database.remove()


async def _one(place: Place) -> Cost:
    return await place.cost(courier_cycle(place.stores[0]))


async def _waiting(place: Place) -> tuple[Cost, Cost]:
    await place.publish(FEW)
    before = await _one(place)
    await place.publish(place.plan.many)
    return before, await _one(place)


async def _cycled(place: Place) -> tuple[Cost, Cost]:
    before = await _one(place)
    left = AGED_TIMES * place.plan.many
    cycle = courier_cycle(place.stores[0])
    while left > 0:
        done, _ = await run_cycles(cycle, *BATCHES, place.plan.seconds)
        left -= done
    return before, await _one(place)


async def _held(place: Place) -> tuple[Cost, Cost]:
    before = await _one(place)
    async with place.pool.acquire() as holder:
        await holder.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        await holder.fetchval("SELECT count(*) FROM courier.head")
        await run_cycles(courier_cycle(place.stores[0]), *SINGLES, HELD_S_PART * place.plan.seconds)
        then = await _one(place)
        await holder.execute("COMMIT")
    return before, then


async def _two(place: Place) -> tuple[Cost, Cost]:
    before = await _one(place)
    turns = in_turn([courier_cycle(store) for store in place.stores])

    async def cycle(batch: int) -> int:
        return await next(turns)(batch)

    return before, await place.cost(cycle)
