"""Subscriptions, queues and who announces to them, around a store and without a server."""

import asyncio
import json
from collections.abc import Coroutine
from typing import Any, TypeVar

from msgspec.structs import replace

from courier import ids
from courier.clock import ManualClock
from courier.core.admin import Admin
from courier.core.admission import Admission
from courier.core.announcer import Announcer
from courier.core.follower import READER, Follower
from courier.core.limits import Limits
from courier.core.records import decided
from courier.core.store import Store
from courier.core.types import (
    OPERATOR,
    Actor,
    AnyRecord,
    Draft,
    EventSubscription,
    Listener,
    Message,
    Pipeline,
    PushFailed,
    Queue,
    Report,
    Retry,
)
from courier.core.watch import Watch
from courier.dialects.cloudflare.sources import Events
from courier.sealing import KeySealer

T = TypeVar("T")

TENANT = "c0" + "7" * 30
CALLER = Actor("caller", "test")
QUEUES = {"type": "courier.queue"}
MESSAGES = {"type": "courier.message"}


class Newsroom:
    def __init__(self, runner: asyncio.Runner, store: Store, **limits: int) -> None:
        self.store = store
        self.clock = ManualClock()
        self.sealer = KeySealer([b"k" * 32])
        self.limits = Limits(**limits)
        self._runner = runner
        self.restart()

    def restart(self) -> None:
        """Forget what is not in the store."""
        self.admin = Admin(self.store, self.clock, self.limits)
        admission = Admission(self.store, self.limits, self.sealer)
        self.announcer = Announcer(self.store, self.clock, admission, Events())
        self.follower = Follower(self.store, self.admin, self.clock, self.announcer)
        self.watch = Watch(self.store, self.clock, self.announcer)

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(call)

    def change(self, *puts: AnyRecord, drops: tuple[AnyRecord, ...] = ()) -> None:
        now_ms = self.clock.now_ms()
        self.run(self.store.change(decided(puts=puts, drops=drops), actor=CALLER, now_ms=now_ms))

    def plain(self, name: str, **settings: Any) -> Queue:
        """A queue that is not stored yet."""
        now_ms = self.clock.now_ms()
        fields = {"name": name, "created_ms": now_ms, "modified_ms": now_ms, **settings}
        return Queue(id=ids.new_id(), tenant=TENANT, **fields)

    def queue(self, name: str, **settings: Any) -> Queue:
        queue = self.plain(name, **settings)
        self.change(queue)
        return queue

    def made(
        self, queue: Queue, source: dict[str, str], *events: str, since: int
    ) -> EventSubscription:
        """A subscription that is not stored yet."""
        now_ms = self.clock.now_ms()
        return EventSubscription(
            id=ids.new_id(),
            tenant=TENANT,
            parent=queue.id,
            title="",
            created_ms=now_ms,
            modified_ms=now_ms,
            enabled=True,
            source=source,
            events=events,
            since=since,
        )

    def subscription(
        self, queue: Queue, source: dict[str, str], *events: str, since: int | None = None
    ) -> EventSubscription:
        """Asked for now, or at the time of an earlier offset."""
        since = self.last() if since is None else since
        subscription = self.made(queue, source, *events, since=since)
        self.change(subscription)
        return subscription

    def last(self) -> int:
        """The offset of the newest event."""
        return self.run(self.store.journal.head()).last

    def position(self) -> int | None:
        """How far the journal is known to be followed."""
        known = self.store.records.named(Pipeline, tenant=OPERATOR, name=READER)
        return known.offset if known else None

    def follow(self) -> None:
        """Announce what happened so far."""

        async def settle() -> None:
            async with self.follower.settled():
                pass

        self.run(settle())

    def send(self, source: dict[str, str], event: str, payload: bytes = b"{}") -> dict[str, int]:
        """Tell of an event; to how many subscriptions it went, but for zeros."""
        told = self.run(
            self.announcer.announce(TENANT, source, event, payload, id="", actor=CALLER)
        )
        counts = {name: getattr(told, name) for name in told.__struct_fields__}
        return {name: count for name, count in counts.items() if count}

    def publish(self, queue: Queue, count: int) -> None:
        drafts = [Draft(b"x")] * count
        now_ms = self.clock.now_ms()
        self.run(self.store.publish([(queue.id, drafts)], actor=CALLER, now_ms=now_ms))

    def bury(self, queue: Queue, count: int) -> None:
        """Let that many messages fail for the last time, in one go."""
        now_ms = self.clock.now_ms()
        taken = self.store.lease(queue.id, count=count, lease_ms=1_000, actor=CALLER, now_ms=now_ms)
        items = [Retry(each.seq, each.attempts) for each in self.run(taken).messages]
        assert len(items) == count
        self.run(self.store.settle(queue.id, items, actor=CALLER, now_ms=now_ms))

    def listener(self, queue: Queue) -> Listener:
        now_ms = self.clock.now_ms()
        url = "https://example.org/hook"
        listener = Listener(
            id=ids.new_id(),
            tenant=TENANT,
            parent=queue.id,
            name=f"{queue.id}/hook",
            title="hook",
            created_ms=now_ms,
            modified_ms=now_ms,
            url=url,
            liveness_url=url,
        )
        self.change(listener)
        return listener

    def fail_push(self, listener: Listener, delay_ms: int | None) -> None:
        """Let the next push fail; without a delay for good."""
        now_ms = self.clock.now_ms()
        taking = self.store.pushes.take(listener.id, count=1, lease_ms=1_000, now_ms=now_ms)
        [message] = self.run(taking)
        failed = PushFailed(message.seq, message.attempts, Report(status=500), delay_ms)
        self.run(self.store.pushes.settle(listener.id, [failed], now_ms=now_ms))

    def messages(self, queue: Queue) -> list[Message]:
        now_ms = self.clock.now_ms()
        browse = self.store.messages.browse(queue.id, after_seq=0, limit=1_000_000, now_ms=now_ms)
        return self.run(browse)

    def told(self, queue: Queue) -> list[dict[str, Any]]:
        """Every event that the queue was told, from the first on."""
        return [json.loads(message.body) for message in self.messages(queue)]

    def told_types(self, queue: Queue) -> list[str]:
        return [event["type"] for event in self.told(queue)]

    def disable(self, subscription: EventSubscription) -> None:
        self.change(replace(subscription, enabled=False))
