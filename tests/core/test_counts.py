"""How many settings of each kind there may be: what hangs together is changed at one moment."""

import asyncio
from collections.abc import Iterator
from typing import get_args

import pytest

from courier import ids
from courier.clock import ManualClock
from courier.core.admin import Admin
from courier.core.errors import OverLimit
from courier.core.keys import Reach
from courier.core.limits import QUEUE_BINDINGS_MAX, SUBSCRIPTIONS_MAX, Limits
from courier.core.records import Records
from courier.core.types import (
    Actor,
    AnyRecord,
    Binding,
    EventSubscription,
    Queue,
)
from tests.core import tenants
from tests.oracle.store import Oracle

TENANT = "c0" + "7" * 30
CALLER = Actor("caller", "test")
EVERYTHING = Reach("queues:write")

# Every kind of setting, and what bounds it. One that is not here has no bound.
BOUNDS = {
    "Binding": "BINDINGS_MAX of an exchange, QUEUE_BINDINGS_MAX of a queue",
    "Consumer": "one for each queue",
    "Domain": "DOMAINS_MAX of a tenant",
    "EventSubscription": "SUBSCRIPTIONS_MAX of a tenant for each type of source",
    "Exchange": "queues_max of a tenant",
    "Key": "KEYS_MAX of a tenant",
    "KeyUse": "one for each key",
    "Listener": "LISTENERS_MAX of a queue",
    "Liveness": "one for each listener",
    "Pipeline": "the operator alone makes them",
    "Queue": "queues_max of a tenant",
    "Schema": "SCHEMAS_MAX of a queue",
    "Session": "SESSIONS_MAX of a key",
    "Tenant": "the operator alone makes them",
    "Worker": "WORKERS_MAX of a tenant",
}


@pytest.fixture
def admin() -> Iterator[Admin]:
    store = Oracle()
    queue = Queue(id="q", tenant=TENANT, name="queue", created_ms=0, modified_ms=0)
    store.records.apply(puts=[*tenants(TENANT), queue])
    yield Admin(store, ManualClock(), Limits())


def test_every_kind_of_setting_has_a_bound() -> None:
    assert {kind.__name__ for kind in get_args(AnyRecord)} == BOUNDS.keys()


def subscribe(admin: Admin, source: dict[str, str]) -> None:
    new = EventSubscription(
        id=ids.new_id(),
        tenant=TENANT,
        parent="q",
        created_ms=0,
        modified_ms=0,
        title="s",
        enabled=True,
        source=source,
        events=("build.started",),
    )
    asyncio.run(admin.put_subscription(TENANT, None, lambda _: new, reach=EVERYTHING, actor=CALLER))


def test_subscriptions_to_one_type_of_source_are_limited(admin: Admin) -> None:
    """One event is published to all of them in one transaction."""
    for number in range(SUBSCRIPTIONS_MAX):
        subscribe(admin, {"type": "workersBuilds.worker", "worker_name": f"w{number}"})
    with pytest.raises(OverLimit, match="subscriptions"):
        subscribe(admin, {"type": "workersBuilds.worker", "worker_name": "another"})
    subscribe(admin, {"type": "kv"})


def test_a_queue_can_be_bound_to_a_limited_number_of_exchanges(admin: Admin) -> None:
    """They go with it."""

    async def bind() -> None:
        for number in range(QUEUE_BINDINGS_MAX + 1):
            await admin.put_exchange(TENANT, f"x{number}", encrypted=False, actor=CALLER)
        for number in range(QUEUE_BINDINGS_MAX):
            await admin.bind(TENANT, f"x{number}", "queue", actor=CALLER)
        await admin.bind(TENANT, "x0", "queue", actor=CALLER)
        with pytest.raises(OverLimit, match="bindings of a queue"):
            await admin.bind(TENANT, f"x{QUEUE_BINDINGS_MAX}", "queue", actor=CALLER)

    asyncio.run(bind())


def test_bindings_are_found_by_exchange_and_by_queue() -> None:
    """Without looking at those of others, of which there may be millions."""
    records = Records()
    bindings = [
        Binding(id=f"{x}{q}", tenant=TENANT, parent=x, queue=q, created_ms=0)
        for x in ("x1", "x2")
        for q in ("q1", "q2")
    ]
    records.apply(puts=bindings)
    assert records.scan(Binding, parent="x1") == bindings[:2]
    assert records.scan(Binding, tenant=TENANT, parent="q2") == bindings[1::2]
    records.apply(drops=bindings[:2])
    assert records.scan(Binding, parent="x1") == []
    assert records.scan(Binding, parent="q2") == bindings[3:]
