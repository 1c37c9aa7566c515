"""The settings verbs: tenants, keys, queues, consumers, event subscriptions.

Each reads what is there, decides, and writes all of it in one change. They run one at a time, so
what was read is still true when it is written.
"""

import asyncio
from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from courier import ids
from courier.clock import Clock
from courier.core import keys
from courier.core.errors import Conflict, InUse, InvalidRequest, NotFound, OverLimit
from courier.core.limits import Limits
from courier.core.store import Store
from courier.core.types import (
    Actor,
    AnyRecord,
    Consumer,
    EventSubscription,
    Grant,
    Key,
    Pipeline,
    PurgeStatus,
    Queue,
    Tenant,
)

OPERATOR = ""  # the tenant of keys that belong to the operator


class Policy(Struct, frozen=True):
    """How a queue's messages are attempted. `dead_letter` is a queue's name, "" for none."""

    attempts_max: int | None = 4
    retry_delay_ms: int = 0
    lease_ms: int = 30_000
    dead_letter: str = ""


class Admin:
    def __init__(self, store: Store, clock: Clock, limits: Limits) -> None:
        self._store = store
        self._clock = clock
        self._limits = limits
        self._turn = asyncio.Lock()

    # --- tenants and keys ---

    async def new_tenant(self, name: str) -> Tenant:
        """A tenant that does not exist yet; Conflict when the name is taken."""
        if await self._store.named(Tenant, tenant=OPERATOR, name=name):
            raise Conflict("tenant", name)
        return Tenant(
            id=ids.new_id(),
            tenant=OPERATOR,
            name=name,
            created_ms=self._clock.now_ms(),
            organization=ids.new_id(),
        )

    async def add_tenant(self, tenant: Tenant, first_keys: list[Key], *, actor: Actor) -> None:
        await self._change(puts=[tenant, *first_keys], actor=actor)

    async def tenant(self, name: str) -> Tenant:
        tenant = await self._store.named(Tenant, tenant=OPERATOR, name=name)
        if tenant is None:
            raise NotFound("tenant", name)
        return tenant

    async def delete_tenant(self, name: str, *, actor: Actor) -> None:
        """Delete the tenant and everything it owns."""
        async with self._turn:
            tenant = await self.tenant(name)
            drops: list[AnyRecord] = [tenant]
            for kind in (EventSubscription, Consumer, Queue, Key):
                drops += await self._store.scan(kind, tenant=tenant.id)
            await self._change(drops=drops, actor=actor)

    async def create_key(
        self,
        *,
        tenant: str,
        name: str,
        grants: tuple[Grant, ...],
        expires_in_ms: int | None = None,
        actor: Actor,
    ) -> tuple[Key, str]:
        """The key and its secret, which cannot be shown again."""
        now_ms = self._clock.now_ms()
        key, secret = keys.new_key(
            tenant=tenant,
            name=name,
            grants=grants,
            now_ms=now_ms,
            expires_ms=None if expires_in_ms is None else now_ms + expires_in_ms,
        )
        await self._change(puts=[key], actor=actor)
        return key, secret

    async def delete_key(self, tenant: str, id: str, *, actor: Actor) -> None:
        async with self._turn:
            key = await self._store.get(Key, id)
            if key is None or key.tenant != tenant:
                raise NotFound("key", id)
            await self._change(drops=[key], actor=actor)

    # --- queues ---

    async def queue(self, tenant: str, id: str) -> Queue:
        queue = await self._store.get(Queue, id)
        if queue is None or queue.tenant != tenant:
            raise NotFound("queue", id)
        return queue

    async def queue_named(self, tenant: str, name: str) -> Queue:
        queue = await self._store.named(Queue, tenant=tenant, name=name)
        if queue is None:
            raise NotFound("queue", name)
        return queue

    async def create_queue(self, queue: Queue, *, actor: Actor) -> Queue:
        async with self._turn:
            await self._check_count(queue.tenant, adding=1)
            await self._change(puts=[queue], actor=actor)
            return queue

    async def _check_count(self, tenant: str, *, adding: int) -> None:
        count = len(await self._store.scan(Queue, tenant=tenant)) + adding
        if count > self._limits.queues_max:
            raise OverLimit("queues", limit=self._limits.queues_max, actual=count)

    async def update_queue(
        self, tenant: str, id: str, edit: Callable[[Queue], Queue], *, actor: Actor
    ) -> Queue:
        async with self._turn:
            queue = edit(await self.queue(tenant, id))
            queue = replace(queue, modified_ms=self._clock.now_ms())
            await self._change(puts=[queue], actor=actor)
            return queue

    async def delete_queue(self, tenant: str, id: str, *, actor: Actor) -> None:
        """Delete the queue, its messages, its consumer and what feeds it."""
        async with self._turn:
            queue = await self.queue(tenant, id)
            users = [
                other.name
                for other in await self._store.scan(Queue, tenant=tenant)
                if other.dead_letter == id
            ]
            if users:
                raise InUse("queue", queue.name, f"the consumers of {', '.join(users[:10])}")
            drops: list[AnyRecord] = [queue]
            drops += await self._store.scan(Consumer, parent=id)
            drops += await self._store.scan(EventSubscription, parent=id)
            await self._change(drops=drops, actor=actor)

    async def note_purge(self, queue: Queue, status: PurgeStatus, *, actor: Actor) -> Queue:
        async with self._turn:
            queue = replace(await self.queue(queue.tenant, queue.id), purge=status)
            await self._change(puts=[queue], actor=actor)
            return queue

    # --- consumers ---

    async def consumer_of(self, queue: Queue) -> Consumer | None:
        found = await self._store.scan(Consumer, parent=queue.id)
        return found[0] if found else None

    async def consumer(self, queue: Queue, id: str) -> Consumer:
        consumer = await self.consumer_of(queue)
        if consumer is None or consumer.id != id:
            raise NotFound("consumer", id)
        return consumer

    async def put_consumer(
        self,
        tenant: str,
        queue_id: str,
        make: Callable[[Queue, Consumer | None], Consumer],
        policy: Policy,
        *,
        actor: Actor,
    ) -> tuple[Queue, Consumer]:
        """Create or replace a queue's consumer, and with it the policy of the queue.

        `make` gets the queue and its present consumer. A dead-letter queue that does not exist
        yet is created.
        """
        async with self._turn:
            queue = await self.queue(tenant, queue_id)
            consumer = make(queue, await self.consumer_of(queue))
            holder = await self._store.get(Consumer, consumer.id)
            if holder is not None and holder.parent != queue.id:
                raise NotFound("consumer", consumer.id)
            dead_letter, puts = await self._dead_letter(queue, policy.dead_letter)
            queue = replace(
                queue,
                attempts_max=policy.attempts_max,
                retry_delay_ms=policy.retry_delay_ms,
                lease_ms=policy.lease_ms,
                dead_letter=dead_letter,
            )
            await self._change(puts=[*puts, queue, consumer], actor=actor)
            return queue, consumer

    async def _dead_letter(self, queue: Queue, name: str) -> tuple[str | None, list[AnyRecord]]:
        """The id of the dead-letter queue, and the queue itself if it must be created."""
        if not name:
            return None, []
        if name == queue.name:
            raise InvalidRequest("dead_letter", f"queue '{name}' cannot be its own dead letter")
        target = await self._store.named(Queue, tenant=queue.tenant, name=name)
        if target is None:
            await self._check_count(queue.tenant, adding=1)
            now_ms = self._clock.now_ms()
            target = Queue(
                id=ids.new_id(),
                tenant=queue.tenant,
                name=name,
                created_ms=now_ms,
                modified_ms=now_ms,
                labels=queue.labels,
            )
            return target.id, [target]
        if target.labels != queue.labels:
            raise InvalidRequest("dead_letter", f"queue '{name}' has other labels")
        return target.id, []

    async def delete_consumer(self, tenant: str, queue_id: str, id: str, *, actor: Actor) -> None:
        """Without a consumer the queue goes back to the default policy."""
        async with self._turn:
            queue = await self.queue(tenant, queue_id)
            consumer = await self.consumer(queue, id)
            default = Policy()
            queue = replace(
                queue,
                attempts_max=default.attempts_max,
                retry_delay_ms=default.retry_delay_ms,
                lease_ms=default.lease_ms,
                dead_letter=None,
            )
            await self._change(puts=[queue], drops=[consumer], actor=actor)

    # --- event subscriptions ---

    async def subscription(self, tenant: str, id: str) -> EventSubscription:
        found = await self._store.get(EventSubscription, id)
        if found is None or found.tenant != tenant:
            raise NotFound("subscription", id)
        return found

    async def put_subscription(
        self,
        tenant: str,
        id: str | None,
        edit: Callable[[EventSubscription | None], EventSubscription],
        *,
        actor: Actor,
    ) -> EventSubscription:
        """Create (no id) or change one; another on the same source and queue is a Conflict."""
        async with self._turn:
            subscription = edit(None if id is None else await self.subscription(tenant, id))
            await self.queue(tenant, subscription.parent)
            for other in await self._store.scan(EventSubscription, parent=subscription.parent):
                if other.source == subscription.source and other.id != subscription.id:
                    raise Conflict("subscription", other.title)
            await self._change(puts=[subscription], actor=actor)
            return subscription

    async def delete_subscription(self, tenant: str, id: str, *, actor: Actor) -> EventSubscription:
        async with self._turn:
            subscription = await self.subscription(tenant, id)
            await self._change(drops=[subscription], actor=actor)
            return subscription

    # --- pipelines ---

    async def commit_pipeline(self, name: str, offset: int, *, actor: Actor) -> Pipeline:
        """Register a reader of the journal, or move it forward; it never moves back."""
        async with self._turn:
            now_ms = self._clock.now_ms()
            known = await self._store.named(Pipeline, tenant=OPERATOR, name=name)
            if known is None:
                pipeline = Pipeline(
                    id=ids.new_id(),
                    tenant=OPERATOR,
                    name=name,
                    created_ms=now_ms,
                    offset=offset,
                    seen_ms=now_ms,
                )
            else:
                pipeline = replace(known, offset=max(offset, known.offset), seen_ms=now_ms)
            await self._change(puts=[pipeline], actor=actor)
            return pipeline

    async def delete_pipeline(self, name: str, *, actor: Actor) -> None:
        async with self._turn:
            pipeline = await self._store.named(Pipeline, tenant=OPERATOR, name=name)
            if pipeline is None:
                raise NotFound("pipeline", name)
            await self._change(drops=[pipeline], actor=actor)

    async def _change(
        self, *, puts: list[AnyRecord] | None = None, drops: list[AnyRecord] | None = None,
        actor: Actor,
    ) -> None:  # fmt: skip
        now_ms = self._clock.now_ms()
        await self._store.change(puts=puts or [], drops=drops or [], actor=actor, now_ms=now_ms)
