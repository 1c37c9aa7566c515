"""What plans do to a queue, a listener, a key or a tenant as a whole."""

from contextlib import suppress

from msgspec.structs import replace

from courier import ids
from courier.console import Services
from courier.console.plans import Before, Plan
from courier.core.admin import Policy
from courier.core.errors import NotFound
from courier.core.keys import Reach
from courier.core.types import (
    OPERATOR,
    Actor,
    Consumer,
    EventSubscription,
    Exchange,
    Listener,
    Queue,
    Schema,
    Tenant,
)


class Wholes:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._store = services.store
        self._admin = services.admin

    async def act(self, plan: Plan, actor: Actor, reach: Reach) -> None:
        """Once for a plan; again after a crash, which finds it done."""
        match plan.action:
            case "delete_queue":
                await self._delete_queue(plan, actor, reach)
            case "create_again":
                await self._create_again(plan, actor, reach)
            case "backfill":
                await self._backfill(plan)
            case "delete_key":
                await self._delete_key(plan, actor)
            case "delete_tenant":
                await self._delete_tenant(plan, actor)

    def before(self, queue: Queue) -> Before:
        """What is lost with the queue."""
        schema = self._store.records.get(Schema, queue.schema) if queue.schema else None
        bindings = []
        for binding in self._admin.bindings_of(queue):
            exchange = self._store.records.get(Exchange, binding.parent)
            bindings += [(exchange.name, binding.rule)] if exchange else []
        buriers = self._admin.buriers(queue)
        return Before(
            queue,
            schema.properties if schema else None,
            self._admin.consumer_of(queue),
            bindings,
            [(each.id, each.name, each.attempts_max) for each in buriers],
            [each.title for each in self._store.records.scan(Listener, parent=queue.id)],
            [each.title for each in self._store.records.scan(EventSubscription, parent=queue.id)],
        )

    async def _delete_queue(self, plan: Plan, actor: Actor, reach: Reach) -> None:
        id = plan.queues[0][0]
        if self._store.records.get(Queue, id) is not None:
            await self._admin.delete_queue(
                plan.tenant, id, reach=reach, actor=actor, though_used=True
            )

    async def _create_again(self, plan: Plan, actor: Actor, reach: Reach) -> None:
        """A queue of the same name and settings under the id `target`."""
        before = plan.before
        assert before is not None, "a plan to create a queue again has what it was"
        queue = self._store.records.get(Queue, plan.target)
        if queue is None:
            queue = await self._again(plan, before, actor)
        if before.consumer is not None and self._admin.consumer_of(queue) is None:
            await self._consume(plan, queue, before.consumer, actor, reach)
        for exchange, rule in before.bindings:
            if self._store.records.named(Exchange, tenant=plan.tenant, name=exchange):
                await self._admin.bind(plan.tenant, exchange, queue.name, actor=actor)
                if rule is not None:
                    await self._admin.set_rule(plan.tenant, exchange, queue.name, rule, actor=actor)
        for id, _, attempts in before.buriers:
            burier = self._store.records.get(Queue, id)
            if burier is not None and burier.dead_letter is None:
                await self._admin.update_queue(
                    plan.tenant,
                    id,
                    lambda each, n=attempts: replace(  # type: ignore[misc]
                        each, dead_letter=plan.target, attempts_max=n
                    ),
                    reach=reach,
                    actor=actor,
                )

    async def _again(self, plan: Plan, before: Before, actor: Actor) -> Queue:
        now_ms, dead = self._services.clock.now_ms(), before.queue.dead_letter
        if dead is not None and self._store.records.get(Queue, dead) is None:
            dead = None
        queue = replace(
            before.queue, id=plan.target, created_ms=now_ms, modified_ms=now_ms, purge=None,
            dead_letter=dead, frozen=False, schema="",
        )  # fmt: skip
        return await self._admin.create_queue(queue, schema=before.schema, actor=actor)

    async def _consume(
        self, plan: Plan, queue: Queue, consumer: Consumer, actor: Actor, reach: Reach
    ) -> None:
        dead = self._store.records.get(Queue, queue.dead_letter) if queue.dead_letter else None
        policy = Policy(
            queue.attempts_max, queue.retry_delay_ms, queue.lease_ms, dead.name if dead else ""
        )
        again = replace(consumer, id=ids.new_id(), parent=queue.id)
        await self._admin.put_consumer(
            plan.tenant, queue.id, lambda *_: again, policy, reach=reach, actor=actor
        )

    async def _backfill(self, plan: Plan) -> None:
        listeners = self._admin.listeners
        listener = listeners.of_queue(plan.queues[0][0], plan.target)
        plan.done, after = 0, 0
        while True:
            found = await listeners.backfill(
                listener,
                since_ms=plan.selection.since_ms,
                until_ms=min(plan.selection.until_ms, plan.made_ms + 1),
                after_seq=after,
            )
            plan.done += found.bound
            if found.next_seq is None:
                return
            after = found.next_seq

    async def _delete_key(self, plan: Plan, actor: Actor) -> None:
        with suppress(NotFound):
            await self._admin.delete_key(plan.tenant, plan.target, actor=actor)
        plan.done = 1

    async def _delete_tenant(self, plan: Plan, actor: Actor) -> None:
        tenant = self._store.records.get(Tenant, plan.target)
        if tenant is not None and tenant.tenant == OPERATOR:
            await self._admin.delete_tenant(tenant.name, actor=actor)
        plan.done = 1
