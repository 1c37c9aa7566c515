"""An engine at work without a server around it: time passes when it is told to."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
import uvloop

from courier import ids
from courier.clock import ManualClock
from courier.core.admin import Admin
from courier.core.broker import Broker
from courier.core.lifecycle import NAME_HEADER
from courier.core.limits import Limits
from courier.core.records import decided
from courier.core.store import Store
from courier.core.types import BROKER, DAY_MS, Draft, Listener, Message, Push, Queue, Secret, Tenant
from courier.delivery import line, secrets
from courier.delivery.liveness import LivenessNotes, PushServices
from courier.delivery.room import PushRoom
from courier.delivery.slots import Slots
from courier.delivery.targets import Targets, networks
from courier.delivery.transport import HttpTransport
from courier.sealing import KEY_BYTES, KeySealer
from courier.store.embedded import EmbeddedStore
from tests.oracle.store import Oracle

T = TypeVar("T")

STEP_S = 0.005
TRUE_S_MAX = 10.0
SWEPT_MAX = 10_000


class Plain:
    """Things are named as the core names them."""

    def id(self, id: str) -> str:
        return id

    def name(self, queue: Queue, message: Message, id: str) -> str:
        return str((message.headers or {}).get(NAME_HEADER, "unnamed"))


class Inside:
    """A store, an engine over it, and one queue. Probes come once a day unless told otherwise."""

    def __init__(
        self,
        store: Store,
        *,
        pushes_max: int = 1_000,
        pushes_bytes_max: int = 256 << 20,
        liveness_every_ms: int = DAY_MS,
    ) -> None:
        self.store = store
        self.clock = ManualClock(time.time_ns() // 1_000_000)
        self.sealer = KeySealer([b"k" * KEY_BYTES])
        limits = Limits(queues_max=100, queue_bytes_max=1 << 30, queue_rate_max=0)
        self.broker = Broker(store, self.clock, limits, self.sealer)
        self.admin = Admin(store, self.clock, limits)
        self.transport = HttpTransport(Targets(networks("127.0.0.0/8")), connections_max=1_000)
        self.slots = Slots(pushes_max)
        self.room = PushRoom(pushes_bytes_max)
        self.pushes = PushServices(
            store=store,
            broker=self.broker,
            clock=self.clock,
            transport=self.transport,
            slots=self.slots,
            room=self.room,
            listeners=self.admin.listeners,
            sealer=self.sealer,
            spelling=Plain(),
            notes=LivenessNotes(self.admin.listeners),
            probe_slots=Slots(pushes_max),
            delay_percent=100,
            liveness_every_ms=liveness_every_ms,
            domains_required=False,
        )
        now_ms = self.clock.now_ms()
        self.tenant = Tenant(
            id=ids.new_id(), tenant="", name="t", created_ms=now_ms, organization=ids.new_id()
        )
        self.queue = Queue(
            id=ids.new_id(),
            tenant=self.tenant.id,
            name="orders",
            created_ms=now_ms,
            modified_ms=now_ms,
            retention_ms=14 * DAY_MS,
        )

    async def set_up(self) -> None:
        now_ms = self.clock.now_ms()
        await self.store.change(
            decided(puts=[self.tenant, self.queue]), actor=BROKER, now_ms=now_ms
        )

    async def listen(self, url: str, **fields: Any) -> Listener:
        """A new listener of the queue."""
        id, now_ms = ids.new_id(), self.clock.now_ms()
        on = {"tenant": self.tenant.id, "parent": self.queue.id, "liveness_url": url}
        listener = Listener(
            id=id,
            name=f"{self.queue.id}/{id}",
            created_ms=now_ms,
            title=id,
            modified_ms=now_ms,
            url=url,
            secrets=(self.sealed(id, tenant=fields.get("tenant", self.tenant.id)),),
            **{**on, **fields},
        )
        await self.store.change(decided(puts=[listener]), actor=BROKER, now_ms=now_ms)
        return listener

    def sealed(self, listener: str, *, tenant: str) -> Secret:
        secret = secrets.new_secret()
        return secrets.sealed(secret, self.sealer, Listener, tenant=tenant, id=listener)

    async def change(self, *records: Any) -> None:
        await self.store.change(decided(puts=records), actor=BROKER, now_ms=self.clock.now_ms())

    async def publish(self, *bodies: str) -> None:
        drafts = [Draft(body.encode()) for body in bodies]
        await self.broker.publish(self.queue, drafts, actor=BROKER)

    async def push(self, seq: int = 1) -> Push:
        """How far the message has come on its way to the first listener."""
        return (await self.store.pushes.of_message(self.queue.id, seq, now_ms=self.clock.now_ms()))[
            0
        ]

    async def pass_time(self, ms: int) -> None:
        self.clock.advance(ms)
        await self.store.sweep(limit=SWEPT_MAX, now_ms=self.clock.now_ms())

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Let the engine run meanwhile, and stop it as a server does that is told to stop."""
        task = asyncio.create_task(line.runners(self.pushes).run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def until(true: Callable[[], Coroutine[Any, Any, bool]], otherwise: str) -> None:
    deadline_s = time.monotonic() + TRUE_S_MAX
    while not await true():
        assert time.monotonic() < deadline_s, otherwise
        await asyncio.sleep(STEP_S)


def run_inside(
    kind: str,
    directory: Path,
    main: Callable[[Inside], Coroutine[Any, Any, T]],
    **settings: Any,
) -> T:
    """Run a test over a store of this kind. What the engine logs as a bug fails it."""

    async def run() -> T:
        opened: Store = Oracle()
        if kind == "sqlite":
            opened = await EmbeddedStore.open(directory / "courier.db")
        inside = Inside(opened, **settings)
        try:
            await inside.set_up()
            return await main(inside)
        finally:
            await inside.transport.close()
            await opened.close()

    return uvloop.run(run())


both_stores = pytest.mark.parametrize("kind", ["memory", "sqlite"])
