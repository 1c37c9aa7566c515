"""A data directory as a server has it after years: as many of everything as tenants may have."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from courier import ids
from courier.clock import SystemClock
from courier.core import keys
from courier.core.limits import SUBSCRIPTIONS_MAX
from courier.core.records import decided
from courier.core.types import (
    BROKER,
    DAY_MS,
    HOUR_MS,
    AnyRecord,
    Binding,
    Consumer,
    ContentType,
    Domain,
    Draft,
    EventSubscription,
    Exchange,
    Listener,
    Queue,
    Retry,
    Schema,
)
from courier.store.embedded import EmbeddedStore

QUEUES = 10_000
LISTENERS = 1_000
LISTENERS_PER_QUEUE = 100
BINDINGS = 450
KEYS = 990
DOMAINS = 1_000
MESSAGES = 5_000
HEAVY_MESSAGES = 20
HEAVY_BYTES = 10 << 20
HEAVY_CLAIM = "heavy"
COPIED_MESSAGES = 10
HOURS = 460 * 24
PART = 500
# What every word of a message is checked against; matching takes a step per character.
SCHEMA = {
    "words": {"type": "array", "items": {"type": "string", "pattern": "^([a-z]+)*[0-9]?$"}},
    "tree": {"type": "object", "additionalProperties": {"type": "object"}},
}


class Crowd:
    """The ids that requests need. `main` has messages, listeners and a consumer.

    `heavy` and `claimed` have messages that are as long as they may be, the latter in a claim.
    """

    def __init__(self) -> None:
        self.main = self.strict = self.dead = self.heavy = self.claimed = ""
        self.heavy_message = ""
        self.consumer = self.subscription = self.listener = self.domain = self.key = ""
        self.message = ""
        self.titles: dict[str, str] = {}


def fill(data: Path, *, tenant: str, others: Sequence[str]) -> Crowd:
    """Fill the store of a server that does not run. `others` are tenants with queues only."""
    return asyncio.run(_Filler(data, tenant).fill(others))


def fill_with_long_messages(data: Path, queue: str) -> None:
    async def fill() -> None:
        store = await EmbeddedStore.open(data / "courier.db")
        batch = [(queue, [Draft(b"x" * HEAVY_BYTES, "text")])]
        for _ in range(COPIED_MESSAGES):
            await store.publish(batch, actor=BROKER, now_ms=SystemClock().now_ms())
        await store.close()

    asyncio.run(fill())


class _Filler:
    def __init__(self, data: Path, tenant: str) -> None:
        self._data = data
        self._tenant = tenant
        self._now_ms = SystemClock().now_ms()
        self._crowd = Crowd()

    async def fill(self, others: Sequence[str]) -> Crowd:
        self._store = await EmbeddedStore.open(self._data / "courier.db")
        try:
            await self._heavy()
            main, queues = await self._queues()
            await self._around(main, queues)
            for other in others:
                await self._put([self._queue(f"q{n}", tenant=other) for n in range(QUEUES)])
            await self._messages(main, queues)
            await self._past()
        finally:
            await self._store.close()
        return self._crowd

    async def _put(self, records: Sequence[AnyRecord]) -> None:
        for first in range(0, len(records), PART):
            part = records[first : first + PART]
            await self._store.change(decided(puts=part), actor=BROKER, now_ms=self._now_ms)

    def _made(self, **fields: Any) -> dict[str, Any]:
        return {"id": ids.new_id(), "tenant": self._tenant, "created_ms": self._now_ms} | fields

    def _queue(self, name: str, **fields: Any) -> Queue:
        return Queue(**self._made(name=name, modified_ms=self._now_ms, **fields))

    async def _heavy(self) -> None:
        """First of all, so that the journal begins with it."""
        crowd, store, now_ms = self._crowd, self._store, self._now_ms
        heavy = self._queue("heavy", attempts_max=None)
        claimed = self._queue("claimed", attempts_max=None)
        consumer = Consumer(**self._made(parent=heavy.id), mode="pull", batch_size=10)
        await self._put([heavy, claimed, consumer])
        crowd.heavy, crowd.claimed = heavy.id, claimed.id
        # Of the first, every byte is six characters long in JSON.
        kinds: list[tuple[ContentType, bytes]] = [
            ("text", b"\x01"),
            ("bytes", b"\xff"),
            ("json", b"1"),
            ("text", "é".encode()),
        ]
        for number in range(HEAVY_MESSAGES):
            kind, filling = kinds[number % len(kinds)]
            body = filling * (HEAVY_BYTES // len(filling))
            drafts = [Draft(body, kind)]
            batches = [(queue.id, drafts) for queue in (heavy, claimed)]
            receipt, _ = await store.publish(batches, actor=BROKER, now_ms=now_ms)
            if not number:
                crowd.heavy_message = receipt.ids[0]
        await store.claims.take(
            claimed.id, HEAVY_CLAIM, count=100, lease_ms=DAY_MS, actor=BROKER, now_ms=now_ms
        )

    async def _queues(self) -> tuple[Queue, list[Queue]]:
        """Half of them bury in one queue, so that it has many to name."""
        crowd = self._crowd
        dead, main = self._queue("dead"), self._queue("main")
        schema = Schema(**self._made(fingerprint="f" * 64, properties=SCHEMA))
        strict = self._queue("strict", schema=schema.id)
        schema = Schema(**self._made(id=schema.id, parent=strict.id, fingerprint="f" * 64,
                                     properties=SCHEMA))  # fmt: skip
        crowd.dead, crowd.main, crowd.strict = dead.id, main.id, strict.id
        work = self._queue("work", attempts_max=1, dead_letter=dead.id)
        rest = [
            self._queue(f"q{n:05d}", dead_letter=dead.id if n % 2 else None)
            for n in range(QUEUES - 10)
        ]
        await self._put([dead, main, strict, schema, work, *rest])
        return main, [main, work, *rest]

    async def _around(self, main: Queue, queues: list[Queue]) -> None:
        crowd, made = self._crowd, self._made
        now: dict[str, Any] = {"modified_ms": self._now_ms}
        listeners = [
            Listener(
                **made(parent=queue.id, name=f"{queue.id}/l{n}", title=f"l{n}", **now),
                url="http://127.0.0.1:1/",
                liveness_url="http://127.0.0.1:1/",
                disabled_by="user",
            )
            for queue in [main, *queues[2 : LISTENERS // LISTENERS_PER_QUEUE + 1]]
            for n in range(LISTENERS_PER_QUEUE)
        ]
        fan = Exchange(**made(name="fan", **now))
        bound = [
            Binding(**made(parent=fan.id, queue=queue.id))
            for queue in [main, *queues[20:]][:BINDINGS]
        ]
        consumer = Consumer(**made(parent=main.id), mode="pull", batch_size=10)
        source = {"type": "kv"}
        subscriptions = [
            EventSubscription(
                **made(parent=queue.id, title=queue.name, **now),
                enabled=True,
                source=source,
                events=("namespace.created",),
            )
            for queue in queues[:SUBSCRIPTIONS_MAX]
        ]
        domains = [
            Domain(
                **made(name=f"127.0.0.1:{n + 1}", **now),
                hostname="127.0.0.1",
                port=n + 1,
                file_name="a",
                file_content="b",
                challenged_ms=self._now_ms,
                expires_ms=self._now_ms + DAY_MS,
                verified_ms=self._now_ms,
            )
            for n in range(DOMAINS - 10)
        ]
        tokens = [
            keys.new_key(
                tenant=self._tenant,
                name=f"k{n}",
                grants=keys.grants(["read"], tuple(each.id for each in queues[:20])),
                now_ms=self._now_ms,
            )[0]
            for n in range(KEYS)
        ]
        crowd.listener, crowd.consumer = listeners[0].id, consumer.id
        crowd.subscription, crowd.domain = subscriptions[0].id, domains[0].id
        crowd.key = tokens[0].id
        await self._put([*listeners, fan, *bound, consumer, *subscriptions])
        await self._put([*domains, *tokens])

    async def _messages(self, main: Queue, queues: list[Queue]) -> None:
        """On the main queue, pushed to all its listeners; and as many dead letters."""
        store, now_ms = self._store, self._now_ms
        drafts = [Draft(b"x" * 200, "text") for _ in range(PART)]
        for queue, count in ((queues[1], MESSAGES), (main, MESSAGES)):
            for _ in range(count // PART):
                batch = [(queue.id, drafts)]
                [receipt] = await store.publish(batch, actor=BROKER, now_ms=now_ms)
        self._crowd.message = receipt.ids[-1]
        for _ in range(MESSAGES // PART):
            leased = await store.lease(
                queues[1].id, count=PART, lease_ms=HOUR_MS, actor=BROKER, now_ms=now_ms
            )
            buried = [Retry(each.seq, each.attempts) for each in leased.messages]
            await store.settle(queues[1].id, buried, actor=BROKER, now_ms=now_ms)

    async def _past(self) -> None:
        """Something in every hour that is remembered."""
        counts = {(self._tenant, "requested"): 1, (self._tenant, "leased_units"): 1}
        hours = [self._now_ms - hour * HOUR_MS for hour in range(HOURS)]
        for first in range(0, HOURS, PART):
            part = hours[first : first + PART]
            await asyncio.gather(*(self._store.past.tally(counts, now_ms=ms) for ms in part))
