"""The settings verbs: tenants, keys, queues, exchanges, consumers, event subscriptions.

Each reads what is there, decides, and writes all of it in one change. They run one at a time, so
what was read is still true when it is written.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from courier import ids
from courier.clock import Clock
from courier.core import keys, schemas
from courier.core.domains import Domains
from courier.core.errors import Conflict, InUse, InvalidRequest, NotFound, OverLimit, Unavailable
from courier.core.keys import Reach
from courier.core.limits import BINDINGS_MAX, RULED_BINDINGS_MAX, Limits
from courier.core.listeners import Listeners
from courier.core.rotation import Rotation
from courier.core.sessions import BROWSER_SESSION_MS, BROWSER_WHOLE_MS, Sessions
from courier.core.store import Store
from courier.core.turns import Turn
from courier.core.types import (
    BROKER,
    MINUTE_MS,
    Actor,
    AnyRecord,
    Binding,
    Consumer,
    Domain,
    EventSubscription,
    Exchange,
    Grant,
    Key,
    KeyUse,
    Listener,
    Liveness,
    Pipeline,
    PurgeStatus,
    Queue,
    Rule,
    Schema,
    Session,
    Tenant,
    Worker,
)
from courier.core.workers import Workers

# A key in use is noted this often, not with every use.
KEY_USE_EVERY_MS = 5 * MINUTE_MS
OPERATOR = ""  # the tenant of keys that belong to the operator
KEYS_MAX = 1_000
# Of one queue: the one it has, and those it had.
SCHEMAS_MAX = 100
# Many records are dropped in parts, and others have their turn between.
PART_DROPPED_MAX = 200
# What hangs on queues or leads to them, and goes when all queues of a tenant do.
_BELOW_QUEUES = (EventSubscription, Consumer, Binding, Liveness, Listener, Schema)


class Policy(Struct, frozen=True):
    """How a queue's messages are attempted. `dead_letter` is a queue's name, "" for none."""

    attempts_max: int | None = 4
    retry_delay_ms: int = 0
    lease_ms: int = 30_000
    dead_letter: str = ""


class _Exists(Exception):
    """A queue that was to be created is there."""


class Admin:
    def __init__(self, store: Store, clock: Clock, limits: Limits) -> None:
        self._store = store
        self._clock = clock
        self._limits = limits
        self._turn = Turn()
        self._creating: dict[str, Queue] = {}  # by id, until they are there
        self._deleted: set[str] = set()  # tenants, while this server runs
        self.sessions = Sessions(store, clock, self._turn)
        self.browser_sessions = Sessions(
            store,
            clock,
            self._turn,
            purpose=b"browser",
            session_ms=BROWSER_SESSION_MS,
            whole_ms=BROWSER_WHOLE_MS,
        )
        self.rotation = Rotation(store, clock, self._turn)
        self.listeners = Listeners(store, clock, self._turn)
        self.domains = Domains(store, clock, self._turn)
        self.workers = Workers(store, clock, self._turn)

    # --- tenants and keys ---

    async def new_tenant(self, name: str, *, beside: str = "") -> Tenant:
        """A tenant that does not exist yet; Conflict when the name is taken.

        It belongs to the organization of tenant `beside`, or to one of its own.
        """
        await self.check_tenant_name(name)
        organization = (await self.tenant(beside)).organization if beside else ids.new_id()
        return Tenant(
            id=ids.new_id(),
            tenant=OPERATOR,
            name=name,
            created_ms=self._clock.now_ms(),
            organization=organization,
        )

    async def check_tenant_name(self, name: str) -> None:
        """Raises Conflict when another tenant has it."""
        if await self._store.named(Tenant, tenant=OPERATOR, name=name):
            raise Conflict("tenant", name)

    async def add_tenant(self, tenant: Tenant, first_keys: list[Key], *, actor: Actor) -> None:
        await self._change(puts=[tenant, *first_keys], actor=actor)

    async def tenant(self, name: str) -> Tenant:
        tenant = await self._store.named(Tenant, tenant=OPERATOR, name=name)
        if tenant is None:
            raise NotFound("tenant", name)
        return tenant

    async def rename_tenant(self, id: str, name: str, *, actor: Actor) -> Tenant:
        async with self._turn:
            known = await self._store.get(Tenant, id)
            if known is None:
                raise NotFound("tenant", id)
            tenant = replace(known, name=name)
            await self._change(puts=[tenant], actor=actor)
            return tenant

    async def delete_tenant(self, name: str, *, actor: Actor) -> None:
        """Delete the tenant and everything it owns, itself last.

        In parts: after a failure some of it is left, and the same call deletes the rest. The
        first part is all that lets anybody in: its keys, and its place in an organization, whose
        users may act in all its tenants. So nothing of it answers from then on.
        """
        async with self._turn:
            tenant = await self.tenant(name)
            alone = replace(tenant, organization=ids.new_id())
            keys = await self._store.scan(Key, tenant=tenant.id)
            await self._change(puts=[alone], drops=[*keys], actor=actor)
            drops: list[AnyRecord] = []
            for kind in (Session, KeyUse, *_BELOW_QUEUES, Exchange, Queue, Worker, Domain):
                drops += await self._store.scan(kind, tenant=tenant.id)
            await self._drop_in_parts([*drops, alone], actor=actor)
            self._deleted.add(tenant.id)

    async def clear_tenant(self, tenant: str, *, actor: Actor) -> None:
        """Delete what the tenant owns: its queues, its exchanges and its apps; in parts."""
        async with self._turn:
            drops: list[AnyRecord] = []
            for kind in (*_BELOW_QUEUES, Exchange, Queue):
                drops += await self._store.scan(kind, tenant=tenant)
            for key in await self._store.scan(Key, tenant=tenant):
                if key.kind == "app":
                    drops += await self._with_sessions(key)
            await self._drop_in_parts(drops, actor=actor)

    async def create_key(
        self,
        *,
        tenant: str,
        name: str,
        grants: tuple[Grant, ...],
        expires_in_ms: int | None = None,
        kind: Literal["token", "connected_app"] = "token",
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
            kind=kind,
        )
        async with self._turn:
            await self._change(puts=[key], actor=actor)
        return key, secret

    async def replace_keys(self, tenant: str, new: list[Key], *, actor: Actor) -> None:
        """Add keys, in place of those that have the same names."""
        async with self._turn:
            names = {key.name for key in new}
            drops: list[AnyRecord] = []
            for key in await self._store.scan(Key, tenant=tenant):
                if key.name in names:
                    drops += await self._with_sessions(key)
            await self._change(puts=[*new], drops=drops, actor=actor)

    async def delete_key(self, tenant: str, id: str, *, actor: Actor) -> None:
        async with self._turn:
            key = await self._store.get(Key, id)
            if key is None or key.tenant != tenant:
                raise NotFound("key", id)
            await self._change(drops=await self._with_sessions(key), actor=actor)

    async def _with_sessions(self, key: Key) -> list[AnyRecord]:
        """All that goes when this key does."""
        sessions = await self._store.scan(Session, parent=key.id)
        return [*sessions, *await self._store.scan(KeyUse, parent=key.id), key]

    async def token(self, tenant: str, id: str) -> Key:
        key = await self._store.get(Key, id)
        if key is None or key.tenant != tenant or key.kind != "token":
            raise NotFound("key", id)
        return key

    async def tokens(self, tenant: str) -> list[Key]:
        """Oldest first."""
        return [key for key in await self._store.scan(Key, tenant=tenant) if key.kind == "token"]

    async def add_token(self, key: Key, *, actor: Actor) -> None:
        """A key that a tenant makes for itself; there is a limit to how many."""
        async with self._turn:
            count = len(await self.tokens(key.tenant)) + 1
            if count > KEYS_MAX:
                raise OverLimit("keys", limit=KEYS_MAX, actual=count)
            await self._change(puts=[key], actor=actor)

    async def update_token(
        self, tenant: str, id: str, edit: Callable[[Key], Key], *, actor: Actor
    ) -> Key:
        async with self._turn:
            key = edit(await self.token(tenant, id))
            key = replace(key, modified_ms=self._clock.now_ms())
            await self._change(puts=[key], actor=actor)
            return key

    async def app(self, tenant: str, id: str) -> Key:
        key = await self._store.get(Key, id)
        if key is None or key.tenant != tenant or key.kind != "app":
            raise NotFound("app", id)
        return key

    async def add_app(self, app: Key, *, actor: Actor) -> None:
        await self._change(puts=[app], actor=actor)

    async def note_key_use(self, key: Key) -> None:
        """Write down that the key was used, not more often than every few minutes."""
        now_ms = self._clock.now_ms()
        if not await self._use_is_old(key, now_ms):
            return
        async with self._turn:
            # By now it may have been noted, or the key may be gone and must leave nothing behind.
            if await self._use_is_old(key, now_ms) and await self._store.get(Key, key.id):
                use = KeyUse(
                    id=key.id,
                    tenant=key.tenant,
                    parent=key.id,
                    created_ms=key.created_ms,
                    at_ms=now_ms,
                )
                # Whoever only reads need not know that nothing can be written.
                with suppress(Unavailable):
                    await self._change(puts=[use], actor=BROKER)

    async def _use_is_old(self, key: Key, now_ms: int) -> bool:
        known = await self._store.get(KeyUse, key.id)
        return known is None or now_ms - known.at_ms >= KEY_USE_EVERY_MS

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

    async def create_queue(
        self, queue: Queue, *, schema: dict[str, Any] | None = None, actor: Actor
    ) -> Queue:
        """`schema` is one that `schemas.py` finds no problem with."""
        async with self._turn.shared(), self._new(queue):
            queue, puts, _ = await self._with_schema(queue, schema)
            await self._change(puts=puts, actor=actor)
            return queue

    async def put_queue(
        self,
        tenant: str,
        name: str,
        edit: Callable[[Queue | None, Queue | None], Queue],
        *,
        dead_letter: str = "",
        reach: Reach,
        actor: Actor,
    ) -> Queue:
        """Create or change the queue of that name.

        `edit` gets the queue, if it exists, and the one named by `dead_letter`; one beyond reach
        does not exist for it.
        """
        if await self._store.named(Queue, tenant=tenant, name=name) is None:
            with suppress(_Exists):
                async with self._turn.shared():
                    return await self._put_queue(
                        tenant, name, edit, dead_letter, reach, actor, alone=False
                    )
        async with self._turn:
            return await self._put_queue(tenant, name, edit, dead_letter, reach, actor, alone=True)

    async def _put_queue(
        self,
        tenant: str,
        name: str,
        edit: Callable[[Queue | None, Queue | None], Queue],
        dead_letter: str,
        reach: Reach,
        actor: Actor,
        *,
        alone: bool,
    ) -> Queue:
        """Raises _Exists, unless `alone`, when somebody else has just created the queue."""
        current = await self._store.named(Queue, tenant=tenant, name=name)
        if current is not None and not alone:
            raise _Exists
        target = None
        if dead_letter:
            target = await self._store.named(Queue, tenant=tenant, name=dead_letter)
        if target is not None and target.id not in reach:
            target = None
        reach.require(current.id if current else "")
        queue = edit(current, target)
        if current is not None:
            await self._change(puts=[queue], actor=actor)
            return queue
        try:
            async with self._new(queue):
                await self._change(puts=[queue], actor=actor)
        except Conflict as error:
            if error.kind == "queue" and not alone:
                raise _Exists from error
            raise
        return queue

    @asynccontextmanager
    async def _new(self, queue: Queue) -> AsyncIterator[None]:
        """While a queue is being created. Raises when it must not be."""
        await self._check_new(queue)
        self._creating[queue.id] = queue
        try:
            yield
        finally:
            del self._creating[queue.id]

    async def _check_new(self, queue: Queue) -> None:
        others = [each for each in self._creating.values() if each.tenant == queue.tenant]
        adding = [each for each in others if await self._store.get(Queue, each.id) is None]
        await self._check_count(queue.tenant, adding=1 + len(adding))
        # Publishers name queues and exchanges alike, so a name is one or the other.
        if await self._store.named(Exchange, tenant=queue.tenant, name=queue.name):
            raise Conflict("exchange", queue.name)

    async def _check_count(self, tenant: str, *, adding: int) -> None:
        count = len(await self._store.scan(Queue, tenant=tenant)) + adding
        if count > self._limits.queues_max:
            raise OverLimit("queues", limit=self._limits.queues_max, actual=count)

    async def update_queue(
        self,
        tenant: str,
        id: str,
        edit: Callable[[Queue], Queue],
        *,
        schema: dict[str, Any] | UnsetType | None = UNSET,
        reach: Reach,
        actor: Actor,
    ) -> Queue:
        """A `schema` of None ends the one that the queue has; unset, it stays.

        Publishers find queues by name, so to rename one takes a reach over all of them.
        """
        async with self._turn:
            known = await self.queue(tenant, id)
            queue = replace(edit(known), modified_ms=self._clock.now_ms())
            if queue.name != known.name:
                reach.require()
                if await self._store.named(Exchange, tenant=tenant, name=queue.name):
                    raise Conflict("exchange", queue.name)
            puts: list[AnyRecord] = [queue]
            drops: list[AnyRecord] = []
            if schema is not UNSET:
                queue, puts, drops = await self._with_schema(queue, schema)
            await self._change(puts=puts, drops=drops, actor=actor)
            return queue

    async def _with_schema(
        self, queue: Queue, properties: dict[str, Any] | None
    ) -> tuple[Queue, list[AnyRecord], list[AnyRecord]]:
        """The queue with that schema, what to write for it, and which old schemas then go.

        Schemas that a queue had before can still be read, the newest of them.
        """
        if properties is None:
            queue = replace(queue, schema="")
            return queue, [queue], []
        fingerprint = schemas.fingerprint(properties)
        known = await self._store.scan(Schema, parent=queue.id)
        for each in known:
            if each.fingerprint == fingerprint:
                queue = replace(queue, schema=each.id)
                return queue, [queue], []
        schema = Schema(
            id=ids.new_id(),
            tenant=queue.tenant,
            parent=queue.id,
            created_ms=self._clock.now_ms(),
            fingerprint=fingerprint,
            properties=properties,
        )
        queue = replace(queue, schema=schema.id)
        return queue, [queue, schema], [*known[: max(0, len(known) + 1 - SCHEMAS_MAX)]]

    async def delete_queue(
        self, tenant: str, id: str, *, reach: Reach, actor: Actor, though_used: bool = False
    ) -> None:
        """Delete the queue, its messages, schemas, consumer and listeners, and what feeds it.

        A queue that others bury in is InUse; `though_used` frees those from it, if they are all
        within reach.
        """
        async with self._turn:
            queue = await self.queue(tenant, id)
            users = await self.buriers(queue)
            for user in users:
                reach.require(user.id)
            if users and not though_used:
                names = ", ".join(user.name for user in users[:10])
                raise InUse("queue", queue.name, f"the consumers of {names}")
            freed = [replace(user, dead_letter=None, attempts_max=None) for user in users]
            drops: list[AnyRecord] = [queue, *await self.bindings_of(queue)]
            drops += await self._store.scan(Consumer, parent=id)
            drops += await self._store.scan(EventSubscription, parent=id)
            drops += await self._store.scan(Schema, parent=id)
            listeners = await self._store.scan(Listener, parent=id)
            drops += await self.listeners.with_liveness(*listeners)
            await self._change(puts=[*freed], drops=drops, actor=actor)

    async def buriers(self, queue: Queue) -> list[Queue]:
        """The queues whose dead letters go to this one."""
        queues = await self._store.scan(Queue, tenant=queue.tenant)
        return [each for each in queues if each.dead_letter == queue.id]

    async def note_purge(self, queue: Queue, status: PurgeStatus, *, actor: Actor) -> Queue:
        async with self._turn:
            queue = replace(await self.queue(queue.tenant, queue.id), purge=status)
            await self._change(puts=[queue], actor=actor)
            return queue

    # --- exchanges ---

    async def exchange_named(self, tenant: str, name: str) -> Exchange:
        exchange = await self._store.named(Exchange, tenant=tenant, name=name)
        if exchange is None:
            raise NotFound("exchange", name)
        return exchange

    async def put_exchange(
        self, tenant: str, name: str, *, encrypted: bool, actor: Actor
    ) -> Exchange:
        """Create the exchange of that name, or change it."""
        async with self._turn:
            now_ms = self._clock.now_ms()
            exchange = await self._store.named(Exchange, tenant=tenant, name=name)
            if exchange is None:
                if await self._store.named(Queue, tenant=tenant, name=name):
                    raise Conflict("queue", name)
                count = len(await self._store.scan(Exchange, tenant=tenant)) + 1
                if count > self._limits.queues_max:
                    raise OverLimit("exchanges", limit=self._limits.queues_max, actual=count)
                exchange = Exchange(
                    id=ids.new_id(),
                    tenant=tenant,
                    name=name,
                    created_ms=now_ms,
                    modified_ms=now_ms,
                )
            exchange = replace(exchange, encrypted=encrypted, modified_ms=now_ms)
            await self._change(puts=[exchange], actor=actor)
            return exchange

    async def delete_exchange(self, tenant: str, name: str, *, actor: Actor) -> None:
        async with self._turn:
            exchange = await self.exchange_named(tenant, name)
            bindings = await self._store.scan(Binding, parent=exchange.id)
            await self._change(drops=[*bindings, exchange], actor=actor)

    async def reaches(self, reach: Reach, exchange: Exchange) -> bool:
        """An exchange is within reach if it is itself, or if all queues bound to it are."""
        if exchange.id in reach:
            return True
        bindings = await self._store.scan(Binding, parent=exchange.id)
        return bool(bindings) and all(binding.queue in reach for binding in bindings)

    async def bindings_of(self, queue: Queue) -> list[Binding]:
        bindings = await self._store.scan(Binding, tenant=queue.tenant)
        return [binding for binding in bindings if binding.queue == queue.id]

    async def binding(self, exchange: Exchange, queue: Queue) -> Binding:
        for binding in await self._store.scan(Binding, parent=exchange.id):
            if binding.queue == queue.id:
                return binding
        raise NotFound("binding", queue.name)

    async def bind(self, tenant: str, exchange: str, queue: str, *, actor: Actor) -> Binding:
        """Bind a queue to an exchange, both by name; one that is bound already stays as it is."""
        async with self._turn:
            source = await self.exchange_named(tenant, exchange)
            target = await self.queue_named(tenant, queue)
            if target.fifo:
                raise InvalidRequest("queueId", f"'{queue}' is a FIFO queue and cannot be bound")
            known = await self._store.scan(Binding, parent=source.id)
            for binding in known:
                if binding.queue == target.id:
                    return binding
            ruled = any(binding.rule for binding in known)
            limit = RULED_BINDINGS_MAX if ruled else BINDINGS_MAX
            if len(known) >= limit:
                what = "bindings of an exchange with rules" if ruled else "bindings of an exchange"
                raise OverLimit(what, limit=limit, actual=len(known) + 1)
            binding = Binding(
                id=ids.new_id(),
                tenant=tenant,
                parent=source.id,
                created_ms=self._clock.now_ms(),
                queue=target.id,
            )
            await self._change(puts=[binding], actor=actor)
            return binding

    async def unbind(self, tenant: str, exchange: str, queue: str, *, actor: Actor) -> None:
        async with self._turn:
            binding = await self._bound(tenant, exchange, queue)
            await self._change(drops=[binding], actor=actor)

    async def set_rule(
        self, tenant: str, exchange: str, queue: str, rule: Rule | None, *, actor: Actor
    ) -> Binding:
        """Let a binding take only what the rule lets through, or everything."""
        async with self._turn:
            binding = replace(await self._bound(tenant, exchange, queue), rule=rule)
            count = len(await self._store.scan(Binding, parent=binding.parent))
            if rule is not None and count > RULED_BINDINGS_MAX:
                what = "bindings of an exchange with rules"
                raise OverLimit(what, limit=RULED_BINDINGS_MAX, actual=count)
            await self._change(puts=[binding], actor=actor)
            return binding

    async def _bound(self, tenant: str, exchange: str, queue: str) -> Binding:
        source = await self.exchange_named(tenant, exchange)
        return await self.binding(source, await self.queue_named(tenant, queue))

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
        reach: Reach,
        actor: Actor,
    ) -> tuple[Queue, Consumer]:
        """Create or replace a queue's consumer, and with it the policy of the queue.

        `make` gets the queue and its present consumer. A dead-letter queue must be within reach;
        one that does not exist yet is created, which takes a reach over everything.
        """
        async with self._turn:
            queue = await self.queue(tenant, queue_id)
            consumer = make(queue, await self.consumer_of(queue))
            holder = await self._store.get(Consumer, consumer.id)
            if holder is not None and holder.parent != queue.id:
                raise NotFound("consumer", consumer.id)
            dead_letter, puts = await self._dead_letter(queue, policy.dead_letter, reach)
            queue = replace(
                queue,
                attempts_max=policy.attempts_max,
                retry_delay_ms=policy.retry_delay_ms,
                lease_ms=policy.lease_ms,
                dead_letter=dead_letter,
            )
            await self._change(puts=[*puts, queue, consumer], actor=actor)
            return queue, consumer

    async def _dead_letter(
        self, queue: Queue, name: str, reach: Reach
    ) -> tuple[str | None, list[AnyRecord]]:
        """The id of the dead-letter queue, and the queue itself if it must be created."""
        if not name:
            return None, []
        if name == queue.name:
            raise InvalidRequest("dead_letter", f"queue '{name}' cannot be its own dead letter")
        target = await self._store.named(Queue, tenant=queue.tenant, name=name)
        reach.require(target.id if target else "")
        if target is None:
            now_ms = self._clock.now_ms()
            target = Queue(
                id=ids.new_id(),
                tenant=queue.tenant,
                name=name,
                created_ms=now_ms,
                modified_ms=now_ms,
                labels=queue.labels,
                fifo=queue.fifo,
            )
            await self._check_new(target)
            return target.id, [target]
        if target.fifo != queue.fifo:
            kind = "FIFO" if queue.fifo else "standard"
            raise InvalidRequest("dead_letter", f"queue '{name}' must be a {kind} queue too")
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
        reach: Reach,
        actor: Actor,
    ) -> EventSubscription:
        """Create (no id) or change one; another on the same source and queue is a Conflict.

        The queue must be within reach, and so must the one it fed before.
        """
        async with self._turn:
            known = None if id is None else await self.subscription(tenant, id)
            if known is not None:
                reach.require(known.parent)
            subscription = edit(known)
            reach.require(subscription.parent)
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

    async def commit_pipeline(
        self, name: str, offset: int, *, actor: Actor, restart: bool = False, lost: int = 0
    ) -> Pipeline:
        """Register a reader of the journal, or move it forward; back only on a `restart`.

        `lost` counts events before `offset` that were trimmed before it could read them. A
        reader that has come as far already has reported them before.
        """
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
                    lost=lost,
                )
            else:
                new = offset > known.offset or restart
                pipeline = replace(
                    known,
                    offset=offset if new else known.offset,
                    seen_ms=now_ms,
                    lost=known.lost + lost if new else known.lost,
                )
            await self._change(puts=[pipeline], actor=actor)
            return pipeline

    async def delete_pipeline(self, name: str, *, actor: Actor) -> None:
        async with self._turn:
            pipeline = await self._store.named(Pipeline, tenant=OPERATOR, name=name)
            if pipeline is None:
                raise NotFound("pipeline", name)
            await self._change(drops=[pipeline], actor=actor)

    async def _drop_in_parts(self, drops: Sequence[AnyRecord], *, actor: Actor) -> None:
        for first in range(0, len(drops), PART_DROPPED_MAX):
            await self._change(drops=[*drops[first : first + PART_DROPPED_MAX]], actor=actor)

    async def _change(
        self, *, puts: list[AnyRecord] | None = None, drops: list[AnyRecord] | None = None,
        actor: Actor,
    ) -> None:  # fmt: skip
        for record in puts or ():
            if record.tenant in self._deleted:  # since the caller was let in
                raise NotFound("tenant", record.tenant)
        now_ms = self._clock.now_ms()
        await self._store.change(puts=puts or [], drops=drops or [], actor=actor, now_ms=now_ms)
