"""What every queue holds, at one place of the journal."""

import asyncio
from collections import Counter

from courier.core.types import Draft, Queue
from tests.conformance.store.driver import CALLER, Driver

ENDS = ("acked", "buried", "expired", "purged", "deleted")


def told(driver: Driver, *, upto: int) -> dict[str, int]:
    """The same from the journal, without queues that hold nothing."""
    held: Counter[str] = Counter()
    for event in driver.events():
        if event["offset"] <= upto:
            held[event["queue"]] += (event["kind"] == "published") - (event["kind"] in ENDS)
    return {queue: count for queue, count in held.items() if count}


def test_a_queue_that_holds_nothing_is_among_them(driver: Driver, queue: Queue) -> None:
    assert driver.backlogs() == (driver.last(), {queue.id: 0})


def test_every_state_counts_until_the_message_ends(driver: Driver) -> None:
    dead = driver.queue("dead")
    queue = driver.queue("work", attempts_max=1, dead_letter=dead.id)
    driver.publish(queue, *"abcdef", Draft(b"late", delay_ms=500), Draft(b"short", ttl_ms=50))
    a, b, _ = driver.lease(queue, count=3)
    assert driver.backlogs()[1] == {queue.id: 8, dead.id: 0}
    driver.ack(queue, a)
    driver.retry(queue, b)
    assert driver.backlogs()[1] == {queue.id: 6, dead.id: 1}
    driver.remove(queue, 4)
    driver.purge(queue, upto_seq=5)
    driver.advance(50)
    driver.sweep_all()
    offset, held = driver.backlogs()
    assert held == {queue.id: 2, dead.id: 1}
    assert offset == driver.last()
    assert told(driver, upto=offset) == held


def test_a_message_that_is_only_kept_for_listeners_has_ended(driver: Driver, queue: Queue) -> None:
    driver.listener(queue)
    driver.publish(queue, "a")
    driver.ack(queue, driver.lease_one(queue))
    assert driver.backlogs()[1] == {queue.id: 0}


def test_a_dropped_queue_counts_until_it_is_swept(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, *"abcde")
    driver.change(drops=[queue])
    offset, held = driver.backlogs()
    assert held == told(driver, upto=offset) == {queue.id: 5}
    driver.sweep(limit=2)
    offset, held = driver.backlogs()
    assert held == told(driver, upto=offset) == {queue.id: 3}
    driver.sweep_all()
    offset, held = driver.backlogs()
    assert held == told(driver, upto=offset) == {}


def test_a_tenant_has_its_own_queues_dropped_ones_too(driver: Driver, queue: Queue) -> None:
    other = driver.queue("other", tenant="c0" + "8" * 30)
    gone = driver.queue("gone", tenant=other.tenant)
    for each in (queue, other, gone):
        driver.publish(each, "a")
    driver.change(drops=[gone])
    assert driver.backlogs(tenant=queue.tenant)[1] == {queue.id: 1}
    assert driver.backlogs(tenant=other.tenant)[1] == {other.id: 1, gone.id: 1}


def test_the_numbers_belong_to_the_offset_though_others_write(driver: Driver, queue: Queue) -> None:
    store, now_ms = driver.store, driver.now_ms

    async def write(number: int) -> None:
        drafts = [Draft(b"x")] * (number % 7 + 1)
        await store.publish([(queue.id, drafts)], actor=CALLER, now_ms=now_ms)
        name = f"{number}"
        if await store.claims.take(
            queue.id, name, count=3, lease_ms=900, actor=CALLER, now_ms=now_ms
        ):
            await store.claims.ack(queue.id, name, actor=CALLER, now_ms=now_ms)

    async def look() -> tuple[int, dict[str, int]]:
        await asyncio.sleep(0)
        return await store.journal.backlogs()

    async def all_at_once() -> list[tuple[int, dict[str, int]]]:
        writers = [write(number) for number in range(60)]
        lookers = [asyncio.create_task(look()) for _ in range(20)]
        for start in range(0, 60, 6):
            await asyncio.gather(*writers[start : start + 6])
            lookers += [asyncio.create_task(look()) for _ in range(2)]
        return await asyncio.gather(*lookers)

    for offset, held in driver.run(all_at_once()):
        assert {id: count for id, count in held.items() if count} == told(driver, upto=offset)
