"""A queue that grows: who is said to be missing, after ten minutes of a clock that is moved."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from courier import ids
from courier.core.listeners import record_name
from courier.core.records import decided
from courier.core.types import BROKER, MINUTE_MS, Ack, Actor, Consumer, Draft, Listener, Queue
from courier.store.embedded import EmbeddedStore
from tests.console.test_past import World

GROWING = 12


def _records(world: World, queue: Queue, *kinds: str) -> list[Any]:
    """A listener that nobody serves here, and a consumer that pulls."""
    of_queue: dict[str, Any] = {
        "tenant": world.tenant.id, "parent": queue.id, "created_ms": world.now_ms,
    }  # fmt: skip
    url = "https://example.org/hook"
    listener = Listener(
        id=ids.new_id(), name=record_name(queue.id, "mailer"), title="mailer", url=url,
        modified_ms=world.now_ms, liveness_url=url, **of_queue,
    )  # fmt: skip
    known = {"listener": listener, "consumer": Consumer(
        id=ids.new_id(), mode="pull", batch_size=10, **of_queue
    )}  # fmt: skip
    return [known[kind] for kind in kinds]


@pytest.mark.parametrize(
    ("kinds", "says"),
    [
        (("consumer",), "nobody has leased from it in the last 10 minutes."),
        (("listener",), "its listeners take fewer than come; 12 pushes wait."),
        (("listener", "consumer"), "nobody has leased from it in the last 10 minutes."),
    ],
    ids=["pulled", "pushed", "both"],
)
def test_who_is_missing_depends_on_who_consumes_the_queue(
    tmp_path: Path, kinds: tuple[str, ...], says: str
) -> None:
    async def grow() -> None:
        world = World(await EmbeddedStore.open(None), tmp_path)
        [queue] = await world.begin("orders")
        puts = _records(world, queue, *kinds)
        await world.store.change(decided(puts=puts), actor=BROKER, now_ms=world.now_ms)
        for _ in range(GROWING):
            await world.store.publish([(queue.id, [Draft(b"x")])], actor=BROKER,
                                      now_ms=world.now_ms)  # fmt: skip
            world.clock.advance(MINUTE_MS)
        [look] = (await world.facts(f"/console/queues/{queue.id}"))["looks"]
        assert look["sentence"].endswith(says)
        await world.store.close()

    asyncio.run(grow())


def test_who_pulled_last_is_said_with_the_time_they_would_need(tmp_path: Path) -> None:
    """Three were acked in the minute of the last lease, and twelve wait: four minutes."""

    async def leave() -> None:
        world = World(await EmbeddedStore.open(None), tmp_path)
        [queue] = await world.begin("orders")
        store = world.store
        actor = (await world.facts("/console/settings/keys"))["rows"][0]["id"]
        worker = Actor(actor, "cloudflare")
        await store.publish([(queue.id, [Draft(b"x")] * 15)], actor=BROKER, now_ms=world.now_ms)
        leased = await store.lease(
            queue.id, count=3, lease_ms=MINUTE_MS, actor=worker, now_ms=world.now_ms
        )
        done = [Ack(each.seq, each.attempts) for each in leased.messages]
        await store.settle(queue.id, done, actor=worker, now_ms=world.now_ms)
        assert (await world.facts(f"/console/queues/{queue.id}"))["who_left"] == ""
        world.clock.advance(5 * MINUTE_MS)
        said = (await world.facts(f"/console/queues/{queue.id}"))["who_left"]
        assert said.startswith("Nobody has leased since ")
        assert said.endswith(". first did then, and would need 4 min for what waits.")
        await store.close()

    asyncio.run(leave())
