"""The settings verbs: tenants, keys, queues, exchanges, consumers, event subscriptions.

Each is a decision over the records that runs where it is written; see `decider.py`.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from courier import ids
from courier.clock import Clock
from courier.core import keys, schemas
from courier.core.decider import Decider
from courier.core.domains import Domains
from courier.core.errors import Conflict, InUse, InvalidRequest, NotFound, OverLimit, Unavailable
from courier.core.keys import Reach, Rotation
from courier.core.limits import (
    BINDINGS_MAX,
    QUEUE_BINDINGS_MAX,
    RULED_BINDINGS_MAX,
    SUBSCRIPTIONS_MAX,
    Limits,
)
from courier.core.listeners import Listeners, with_liveness
from courier.core.records import Change, Records, decided
from courier.core.sessions import BROWSER_SESSION_MS, BROWSER_WHOLE_MS, Sessions
from courier.core.store import Store
from courier.core.types import (
    BROKER,
    MINUTE_MS,
    OPERATOR,
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


class Admin(Decider):
    def __init__(self, store: Store, clock: Clock, limits: Limits) -> None:
        super().__init__(store, clock)
        self._limits = limits
        self.sessions = Sessions(store, clock)
        self.browser_sessions = Sessions(
            store,
            clock,
            purpose=b"browser",
            session_ms=BROWSER_SESSION_MS,
            whole_ms=BROWSER_WHOLE_MS,
        )
        self.rotation = Rotation(store, clock)
        self.listeners = Listeners(store, clock)
        self.domains = Domains(store, clock)
        self.workers = Workers(store, clock)

    # --- tenants and keys ---

    def new_tenant(self, name: str, *, beside: str = "") -> Tenant:
        """A tenant that does not exist yet; Conflict when the name is taken.

        It belongs to the organization of tenant `beside`, or to one of its own.
        """
        self.check_tenant_name(name)
        organization = self.tenant(beside).organization if beside else ids.new_id()
        return Tenant(
            id=ids.new_id(),
            tenant=OPERATOR,
            name=name,
            created_ms=self._clock.now_ms(),
            organization=organization,
        )

    def check_tenant_name(self, name: str) -> None:
        """Raises Conflict when another tenant has it."""
        if self._records.named(Tenant, tenant=OPERATOR, name=name):
            raise Conflict("tenant", name)

    async def add_tenant(self, tenant: Tenant, first_keys: list[Key], *, actor: Actor) -> None:
        await self._change(decided(puts=[tenant, *first_keys]), actor=actor)

    def tenant(self, name: str) -> Tenant:
        return self._records.require_named(Tenant, tenant=OPERATOR, name=name)

    async def rename_tenant(self, id: str, name: str, *, actor: Actor) -> Tenant:
        def decide(records: Records) -> Change[Tenant]:
            tenant = replace(records.require(Tenant, id), name=name)
            return Change(puts=[tenant], answer=tenant)

        return await self._change(decide, actor=actor)

    async def delete_tenant(self, name: str, *, actor: Actor) -> None:
        """Delete the tenant and everything it owns, itself last.

        In parts: after a failure some of it is left, and the same call deletes the rest. The
        first part is all that lets anybody in: its keys, and its place in an organization, whose
        users may act in all its tenants. So nothing of it answers from then on.
        """

        def shut(records: Records) -> Change[Tenant]:
            tenant = records.require_named(Tenant, tenant=OPERATOR, name=name)
            alone = replace(tenant, organization=ids.new_id())
            return Change([alone], records.scan(Key, tenant=tenant.id), alone)

        tenant = await self._change(shut, actor=actor)
        kinds = (Key, Session, KeyUse, *_BELOW_QUEUES, Exchange, Queue, Worker, Domain)

        def left(records: Records) -> list[AnyRecord]:
            return [*_owned(records, tenant.id, kinds), tenant]

        await self._drop_in_parts(left, actor=actor)

    async def clear_tenant(self, tenant: str, *, actor: Actor) -> None:
        """Delete what the tenant owns: its queues, its exchanges and its apps; in parts."""

        def left(records: Records) -> list[AnyRecord]:
            drops = _owned(records, tenant, (*_BELOW_QUEUES, Exchange, Queue))
            for key in records.scan(Key, tenant=tenant):
                if key.kind == "app":
                    drops += _with_sessions(records, key)
            return drops

        await self._drop_in_parts(left, actor=actor)

    async def _drop_in_parts(
        self, left: Callable[[Records], list[AnyRecord]], *, actor: Actor
    ) -> None:
        """Drop what is left until nothing is. The last part is all of it, so none slips in."""

        def decide(records: Records) -> Change[bool]:
            drops = left(records)
            return Change(drops=drops[:PART_DROPPED_MAX], answer=len(drops) > PART_DROPPED_MAX)

        while await self._change(decide, actor=actor):
            pass

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
        await self._change(decided(puts=[key]), actor=actor)
        return key, secret

    async def replace_keys(self, tenant: str, new: list[Key], *, actor: Actor) -> None:
        """Add keys, in place of those that have the same names."""
        names = {key.name for key in new}

        def decide(records: Records) -> Change[None]:
            drops: list[AnyRecord] = []
            for key in records.scan(Key, tenant=tenant):
                if key.name in names:
                    drops += _with_sessions(records, key)
            return Change(puts=new, drops=drops)

        await self._change(decide, actor=actor)

    async def delete_key(self, tenant: str, id: str, *, actor: Actor) -> None:
        def decide(records: Records) -> Change[None]:
            return Change(drops=_with_sessions(records, records.require(Key, id, tenant=tenant)))

        await self._change(decide, actor=actor)

    def token(self, tenant: str, id: str) -> Key:
        return _token(self._records, tenant, id)

    def tokens(self, tenant: str) -> list[Key]:
        """Oldest first."""
        return _tokens(self._records, tenant)

    async def add_token(self, key: Key, *, actor: Actor) -> None:
        """A key that a tenant makes for itself; there is a limit to how many."""

        def decide(records: Records) -> Change[None]:
            count = len(_tokens(records, key.tenant)) + 1
            if count > KEYS_MAX:
                raise OverLimit("keys", limit=KEYS_MAX, actual=count)
            return Change(puts=[key])

        await self._change(decide, actor=actor)

    async def update_token(
        self, tenant: str, id: str, edit: Callable[[Key], Key], *, actor: Actor
    ) -> Key:
        def decide(records: Records) -> Change[Key]:
            key = edit(_token(records, tenant, id))
            key = replace(key, modified_ms=self._clock.now_ms())
            return Change(puts=[key], answer=key)

        return await self._change(decide, actor=actor)

    def app(self, tenant: str, id: str) -> Key:
        key = self._records.get(Key, id)
        if key is None or key.tenant != tenant or key.kind != "app":
            raise NotFound("app", id)
        return key

    async def add_app(self, app: Key, *, actor: Actor) -> None:
        await self._change(decided(puts=[app]), actor=actor)

    async def note_key_use(self, key: Key) -> None:
        """Write down that the key was used, not more often than every few minutes."""
        now_ms = self._clock.now_ms()
        use = KeyUse(
            id=key.id, tenant=key.tenant, parent=key.id, created_ms=key.created_ms, at_ms=now_ms
        )

        def is_old(records: Records) -> bool:
            known = records.get(KeyUse, key.id)
            return known is None or now_ms - known.at_ms >= KEY_USE_EVERY_MS

        def decide(records: Records) -> Change[None]:
            # By now it may have been noted, or the key may be gone and must leave nothing behind.
            wanted = is_old(records) and records.get(Key, key.id) is not None
            return Change(puts=[use] if wanted else [])

        if is_old(self._records):
            # Those who only read need not know that nothing can be written.
            with suppress(Unavailable):
                await self._change(decide, actor=BROKER)

    # --- queues ---

    def queue(self, tenant: str, id: str) -> Queue:
        return self._records.require(Queue, id, tenant=tenant)

    def queue_named(self, tenant: str, name: str) -> Queue:
        return self._records.require_named(Queue, tenant=tenant, name=name)

    async def create_queue(
        self, queue: Queue, *, schema: dict[str, Any] | None = None, actor: Actor
    ) -> Queue:
        """`schema` is one that `schemas.py` finds no problem with."""

        def decide(records: Records) -> Change[Queue]:
            self._check_new(records, queue)
            return self._with_schema(records, queue, schema)

        return await self._change(decide, actor=actor)

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

        def decide(records: Records) -> Change[Queue]:
            current = records.named(Queue, tenant=tenant, name=name)
            target = None
            if dead_letter:
                target = records.named(Queue, tenant=tenant, name=dead_letter)
            if target is not None and target.id not in reach:
                target = None
            reach.require(current.id if current else "")
            queue = edit(current, target)
            if current is None:
                self._check_new(records, queue)
            return Change(puts=[queue], answer=queue)

        return await self._change(decide, actor=actor)

    def _check_new(self, records: Records, queue: Queue) -> None:
        """Raises when the queue must not be created."""
        count = records.count(Queue, tenant=queue.tenant) + 1
        if count > self._limits.queues_max:
            raise OverLimit("queues", limit=self._limits.queues_max, actual=count)
        # Publishers name queues and exchanges alike, so a name is one or the other.
        if records.named(Exchange, tenant=queue.tenant, name=queue.name):
            raise Conflict("exchange", queue.name)

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

        def decide(records: Records) -> Change[Queue]:
            known = records.require(Queue, id, tenant=tenant)
            queue = replace(edit(known), modified_ms=self._clock.now_ms())
            if queue.name != known.name:
                reach.require()
                if records.named(Exchange, tenant=tenant, name=queue.name):
                    raise Conflict("exchange", queue.name)
            if isinstance(schema, UnsetType):
                return Change(puts=[queue], answer=queue)
            return self._with_schema(records, queue, schema)

        return await self._change(decide, actor=actor)

    def _with_schema(
        self, records: Records, queue: Queue, properties: dict[str, Any] | None
    ) -> Change[Queue]:
        """The queue with that schema, what to write for it, and which old schemas then go.

        Schemas that a queue had before can still be read, the newest of them.
        """
        if properties is None:
            queue = replace(queue, schema="")
            return Change(puts=[queue], answer=queue)
        fingerprint = schemas.fingerprint(properties)
        known = records.scan(Schema, parent=queue.id)
        for each in known:
            if each.fingerprint == fingerprint:
                queue = replace(queue, schema=each.id)
                return Change(puts=[queue], answer=queue)
        schema = Schema(
            id=ids.new_id(),
            tenant=queue.tenant,
            parent=queue.id,
            created_ms=self._clock.now_ms(),
            fingerprint=fingerprint,
            properties=properties,
        )
        queue = replace(queue, schema=schema.id)
        return Change([queue, schema], known[: max(0, len(known) + 1 - SCHEMAS_MAX)], queue)

    async def delete_queue(
        self, tenant: str, id: str, *, reach: Reach, actor: Actor, though_used: bool = False
    ) -> None:
        """Delete the queue, its messages, schemas, consumer and listeners, and what feeds it.

        A queue that others bury in is InUse; `though_used` frees those from it, if they are all
        within reach.
        """

        def decide(records: Records) -> Change[None]:
            queue = records.require(Queue, id, tenant=tenant)
            users = _buriers(records, queue)
            for user in users:
                reach.require(user.id)
            if users and not though_used:
                names = ", ".join(user.name for user in users[:10])
                raise InUse("queue", queue.name, f"the consumers of {names}")
            freed = [replace(user, dead_letter=None, attempts_max=None) for user in users]
            drops: list[AnyRecord] = [queue, *_bindings_of(records, queue)]
            drops += records.scan(Consumer, parent=id)
            drops += records.scan(EventSubscription, parent=id)
            drops += records.scan(Schema, parent=id)
            drops += with_liveness(records, *records.scan(Listener, parent=id))
            return Change(freed, drops)

        await self._change(decide, actor=actor)

    def buriers(self, queue: Queue) -> list[Queue]:
        """The queues whose dead letters go to this one."""
        return _buriers(self._records, queue)

    async def note_purge(self, queue: Queue, status: PurgeStatus, *, actor: Actor) -> Queue:
        def decide(records: Records) -> Change[Queue]:
            known = records.require(Queue, queue.id, tenant=queue.tenant)
            noted = replace(known, purge=status)
            return Change(puts=[noted], answer=noted)

        return await self._change(decide, actor=actor)

    # --- exchanges ---

    def exchange_named(self, tenant: str, name: str) -> Exchange:
        return self._records.require_named(Exchange, tenant=tenant, name=name)

    async def put_exchange(
        self, tenant: str, name: str, *, encrypted: bool, actor: Actor
    ) -> Exchange:
        """Create the exchange of that name, or change it."""

        def decide(records: Records) -> Change[Exchange]:
            now_ms = self._clock.now_ms()
            exchange = records.named(Exchange, tenant=tenant, name=name)
            if exchange is None:
                if records.named(Queue, tenant=tenant, name=name):
                    raise Conflict("queue", name)
                count = records.count(Exchange, tenant=tenant) + 1
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
            return Change(puts=[exchange], answer=exchange)

        return await self._change(decide, actor=actor)

    async def delete_exchange(self, tenant: str, name: str, *, actor: Actor) -> None:
        def decide(records: Records) -> Change[None]:
            exchange = records.require_named(Exchange, tenant=tenant, name=name)
            return Change(drops=[*records.scan(Binding, parent=exchange.id), exchange])

        await self._change(decide, actor=actor)

    def reaches(self, reach: Reach, exchange: Exchange) -> bool:
        """An exchange is within reach if it is itself, or if all queues bound to it are."""
        if exchange.id in reach:
            return True
        bindings = self._records.scan(Binding, parent=exchange.id)
        return bool(bindings) and all(binding.queue in reach for binding in bindings)

    def bindings_of(self, queue: Queue) -> list[Binding]:
        return _bindings_of(self._records, queue)

    def binding(self, exchange: Exchange, queue: Queue) -> Binding:
        return _binding(self._records, exchange, queue)

    async def bind(self, tenant: str, exchange: str, queue: str, *, actor: Actor) -> Binding:
        """Bind a queue to an exchange, both by name; one that is bound already stays as it is."""

        def decide(records: Records) -> Change[Binding]:
            source = records.require_named(Exchange, tenant=tenant, name=exchange)
            target = records.require_named(Queue, tenant=tenant, name=queue)
            if target.fifo:
                raise InvalidRequest("queueId", f"'{queue}' is a FIFO queue and cannot be bound")
            known = records.scan(Binding, parent=source.id)
            for binding in known:
                if binding.queue == target.id:
                    return Change(answer=binding)
            ruled = any(binding.rule for binding in known)
            limit = RULED_BINDINGS_MAX if ruled else BINDINGS_MAX
            if len(known) >= limit:
                what = "bindings of an exchange with rules" if ruled else "bindings of an exchange"
                raise OverLimit(what, limit=limit, actual=len(known) + 1)
            count = len(_bindings_of(records, target)) + 1
            if count > QUEUE_BINDINGS_MAX:
                raise OverLimit("bindings of a queue", limit=QUEUE_BINDINGS_MAX, actual=count)
            binding = Binding(
                id=ids.new_id(),
                tenant=tenant,
                parent=source.id,
                created_ms=self._clock.now_ms(),
                queue=target.id,
            )
            return Change(puts=[binding], answer=binding)

        return await self._change(decide, actor=actor)

    async def unbind(self, tenant: str, exchange: str, queue: str, *, actor: Actor) -> None:
        def decide(records: Records) -> Change[None]:
            return Change(drops=[_bound(records, tenant, exchange, queue)])

        await self._change(decide, actor=actor)

    async def set_rule(
        self, tenant: str, exchange: str, queue: str, rule: Rule | None, *, actor: Actor
    ) -> Binding:
        """Let a binding take only what the rule lets through, or everything."""

        def decide(records: Records) -> Change[Binding]:
            binding = replace(_bound(records, tenant, exchange, queue), rule=rule)
            count = len(records.scan(Binding, parent=binding.parent))
            if rule is not None and count > RULED_BINDINGS_MAX:
                what = "bindings of an exchange with rules"
                raise OverLimit(what, limit=RULED_BINDINGS_MAX, actual=count)
            return Change(puts=[binding], answer=binding)

        return await self._change(decide, actor=actor)

    # --- consumers ---

    def consumer_of(self, queue: Queue) -> Consumer | None:
        return _consumer_of(self._records, queue)

    def consumer(self, queue: Queue, id: str) -> Consumer:
        return _consumer(self._records, queue, id)

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

        def decide(records: Records) -> Change[tuple[Queue, Consumer]]:
            queue = records.require(Queue, queue_id, tenant=tenant)
            consumer = make(queue, _consumer_of(records, queue))
            holder = records.get(Consumer, consumer.id)
            if holder is not None and holder.parent != queue.id:
                raise NotFound("consumer", consumer.id)
            dead_letter, puts = self._dead_letter(records, queue, policy.dead_letter, reach)
            queue = replace(
                queue,
                attempts_max=policy.attempts_max,
                retry_delay_ms=policy.retry_delay_ms,
                lease_ms=policy.lease_ms,
                dead_letter=dead_letter,
            )
            return Change(puts=[*puts, queue, consumer], answer=(queue, consumer))

        return await self._change(decide, actor=actor)

    def _dead_letter(
        self, records: Records, queue: Queue, name: str, reach: Reach
    ) -> tuple[str | None, list[AnyRecord]]:
        """The id of the dead-letter queue, and the queue itself if it must be created."""
        if not name:
            return None, []
        if name == queue.name:
            raise InvalidRequest("dead_letter", f"queue '{name}' cannot be its own dead letter")
        target = records.named(Queue, tenant=queue.tenant, name=name)
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
            self._check_new(records, target)
            return target.id, [target]
        if target.fifo != queue.fifo:
            kind = "FIFO" if queue.fifo else "standard"
            raise InvalidRequest("dead_letter", f"queue '{name}' must be a {kind} queue too")
        if target.labels != queue.labels:
            raise InvalidRequest("dead_letter", f"queue '{name}' has other labels")
        return target.id, []

    async def delete_consumer(self, tenant: str, queue_id: str, id: str, *, actor: Actor) -> None:
        """Without a consumer the queue goes back to the default policy."""

        def decide(records: Records) -> Change[None]:
            queue = records.require(Queue, queue_id, tenant=tenant)
            consumer = _consumer(records, queue, id)
            default = Policy()
            queue = replace(
                queue,
                attempts_max=default.attempts_max,
                retry_delay_ms=default.retry_delay_ms,
                lease_ms=default.lease_ms,
                dead_letter=None,
            )
            return Change([queue], [consumer])

        await self._change(decide, actor=actor)

    # --- event subscriptions ---

    def subscription(self, tenant: str, id: str) -> EventSubscription:
        return self._records.require(EventSubscription, id, tenant=tenant)

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

        def decide(records: Records) -> Change[EventSubscription]:
            known = None if id is None else records.require(EventSubscription, id, tenant=tenant)
            if known is not None:
                reach.require(known.parent)
            subscription = edit(known)
            reach.require(subscription.parent)
            records.require(Queue, subscription.parent, tenant=tenant)
            if known is None:
                _room_for(records, subscription)
            for other in records.scan(EventSubscription, parent=subscription.parent):
                if other.source == subscription.source and other.id != subscription.id:
                    raise Conflict("subscription", other.title)
            return Change(puts=[subscription], answer=subscription)

        return await self._change(decide, actor=actor)

    async def delete_subscription(self, tenant: str, id: str, *, actor: Actor) -> EventSubscription:
        def decide(records: Records) -> Change[EventSubscription]:
            subscription = records.require(EventSubscription, id, tenant=tenant)
            return Change(drops=[subscription], answer=subscription)

        return await self._change(decide, actor=actor)

    # --- pipelines ---

    async def commit_pipeline(
        self, name: str, offset: int, *, actor: Actor, restart: bool = False, lost: int = 0
    ) -> Pipeline:
        """Register a reader of the journal, or move it forward; back only on a `restart`.

        `lost` counts events before `offset` that were trimmed before it could read them. What lies
        before the offset that it has come to already was reported before.
        """

        def decide(records: Records) -> Change[Pipeline]:
            now_ms = self._clock.now_ms()
            known = records.named(Pipeline, tenant=OPERATOR, name=name)
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
                ahead = max(0, offset - known.offset)
                pipeline = replace(
                    known,
                    offset=offset if ahead or restart else known.offset,
                    seen_ms=now_ms,
                    lost=known.lost + (lost if restart else min(lost, ahead)),
                )
            return Change(puts=[pipeline], answer=pipeline)

        return await self._change(decide, actor=actor)

    async def delete_pipeline(self, name: str, *, actor: Actor) -> None:
        def decide(records: Records) -> Change[None]:
            return Change(drops=[records.require_named(Pipeline, tenant=OPERATOR, name=name)])

        await self._change(decide, actor=actor)


# --- what verbs and decisions look up alike ---


def _owned(records: Records, tenant: str, kinds: tuple[type[AnyRecord], ...]) -> list[AnyRecord]:
    return [record for kind in kinds for record in records.scan(kind, tenant=tenant)]


def _with_sessions(records: Records, key: Key) -> list[AnyRecord]:
    """All that goes when this key does."""
    return [*records.scan(Session, parent=key.id), *records.scan(KeyUse, parent=key.id), key]


def _token(records: Records, tenant: str, id: str) -> Key:
    key = records.require(Key, id, tenant=tenant)
    if key.kind != "token":
        raise NotFound("key", id)
    return key


def _tokens(records: Records, tenant: str) -> list[Key]:
    return [key for key in records.scan(Key, tenant=tenant) if key.kind == "token"]


def _buriers(records: Records, queue: Queue) -> list[Queue]:
    return records.scan(Queue, tenant=queue.tenant, parent=queue.id)


def _room_for(records: Records, subscription: EventSubscription) -> None:
    """Raises OverLimit."""
    kind = subscription.source["type"]
    others = records.scan(EventSubscription, tenant=subscription.tenant)
    count = sum([each.source["type"] == kind for each in others]) + 1
    if count > SUBSCRIPTIONS_MAX:
        what = "subscriptions to sources of one type"
        raise OverLimit(what, limit=SUBSCRIPTIONS_MAX, actual=count)


def _bindings_of(records: Records, queue: Queue) -> list[Binding]:
    return records.scan(Binding, tenant=queue.tenant, parent=queue.id)


def _binding(records: Records, exchange: Exchange, queue: Queue) -> Binding:
    for binding in records.scan(Binding, parent=exchange.id):
        if binding.queue == queue.id:
            return binding
    raise NotFound("binding", queue.name)


def _bound(records: Records, tenant: str, exchange: str, queue: str) -> Binding:
    source = records.require_named(Exchange, tenant=tenant, name=exchange)
    return _binding(records, source, records.require_named(Queue, tenant=tenant, name=queue))


def _consumer_of(records: Records, queue: Queue) -> Consumer | None:
    found = records.scan(Consumer, parent=queue.id)
    return found[0] if found else None


def _consumer(records: Records, queue: Queue, id: str) -> Consumer:
    consumer = _consumer_of(records, queue)
    if consumer is None or consumer.id != id:
        raise NotFound("consumer", id)
    return consumer
