"""Pushes among many callers at the same time."""

import asyncio
from collections import Counter

from courier import ids
from courier.core.records import decided
from courier.core.types import Ack, Draft, Listener, Message, Pushed, Queue
from tests.conformance.store.driver import ARRIVED, CALLER, TENANT, Driver

ENDS = ("pushed", "push_dropped")


def test_no_push_is_taken_twice(driver: Driver, queue: Queue, listener: Listener) -> None:
    driver.publish(queue, *(str(number) for number in range(300)))
    store, now_ms = driver.store, driver.now_ms

    async def take() -> list[Message]:
        return await store.pushes.take(listener.id, count=7, lease_ms=1_000, now_ms=now_ms)

    async def all_at_once() -> list[list[Message]]:
        return await asyncio.gather(*(take() for _ in range(60)))

    handed = Counter(message.seq for batch in driver.run(all_at_once()) for message in batch)
    assert len(handed) == 300
    assert set(handed.values()) == {1}
    assert driver.push_stats(listener).in_flight == 300


def test_one_of_many_settlements_takes_effect(
    driver: Driver, queue: Queue, listener: Listener
) -> None:
    driver.publish(queue, "a")
    driver.take(listener)
    store, now_ms = driver.store, driver.now_ms
    item = Pushed(1, 1, ARRIVED)

    async def all_at_once() -> list[list[bool]]:
        calls = [store.pushes.settle(listener.id, [item], now_ms=now_ms) for _ in range(30)]
        return await asyncio.gather(*calls)

    assert Counter(done for [done] in driver.run(all_at_once())) == {True: 1, False: 29}
    assert driver.push_stats(listener).acknowledged == 1
    assert driver.kinds().count("pushed") == 1


def test_a_message_that_is_acked_while_it_arrives_is_not_kept(
    driver: Driver, queue: Queue, listener: Listener
) -> None:
    total = 40
    driver.publish(queue, *(str(number) for number in range(total)))
    driver.lease(queue, count=total)
    driver.take(listener, count=total)
    store, now_ms = driver.store, driver.now_ms

    async def all_at_once() -> None:
        calls = []
        for seq in range(1, total + 1):
            ack = store.settle(queue.id, [Ack(seq, 1)], actor=CALLER, now_ms=now_ms)
            arrival = store.pushes.settle(listener.id, [Pushed(seq, 1, ARRIVED)], now_ms=now_ms)
            calls += [ack, arrival] if seq % 2 else [arrival, ack]
        await asyncio.gather(*calls)

    driver.run(all_at_once())
    assert driver.browse(queue, kept=True) == []
    assert driver.push_stats(listener).acknowledged == total


def test_listeners_come_and_go_among_busy_callers(driver: Driver, queue: Queue) -> None:
    """Whatever a listener was bound to ends, and nothing is kept for one that is gone."""
    store, now_ms = driver.store, driver.now_ms
    rounds = 12

    async def listen(title: str) -> None:
        for _ in range(rounds):
            listener = Listener(
                id=ids.new_id(),
                tenant=TENANT,
                parent=queue.id,
                name=f"{queue.id}/{title}",
                title=title,
                created_ms=now_ms,
                modified_ms=now_ms,
                url="https://mill.example/push",
                liveness_url="https://mill.example/live",
            )
            await store.change(decided(puts=[listener]), actor=CALLER, now_ms=now_ms)
            await asyncio.sleep(0)
            taken = await store.pushes.take(listener.id, count=3, lease_ms=1_000, now_ms=now_ms)
            arrived = [Pushed(message.seq, 1, ARRIVED) for message in taken[:2]]
            done = await store.pushes.settle(listener.id, arrived, now_ms=now_ms)
            assert all(done)
            await asyncio.sleep(0)
            await store.change(decided(drops=[listener]), actor=CALLER, now_ms=now_ms)

    async def publish_and_ack() -> None:
        for number in range(rounds * 3):
            draft = Draft(str(number).encode())
            await store.publish([(queue.id, [draft])], actor=CALLER, now_ms=now_ms)
            leased = await store.lease(
                queue.id, count=1, lease_ms=1_000, actor=CALLER, now_ms=now_ms
            )
            acks = [Ack(message.seq, message.attempts) for message in leased.messages]
            await store.settle(queue.id, acks, actor=CALLER, now_ms=now_ms)
            await asyncio.sleep(0)

    async def sweep() -> None:
        for _ in range(rounds):
            await store.sweep(limit=5, now_ms=now_ms)
            await asyncio.sleep(0)

    async def all_at_once() -> None:
        await asyncio.gather(
            *(listen(title) for title in "abc"), *(publish_and_ack() for _ in range(3)), sweep()
        )

    driver.run(all_at_once())
    driver.sweep_all()
    assert driver.browse(queue, kept=True) == driver.browse(queue)
    ends = [event for event in driver.events() if event["kind"] in ENDS]
    assert "pushed" in {event["kind"] for event in ends}
    told = Counter((event["seq"], event["detail"]["listener"]) for event in ends)
    assert set(told.values()) == {1}
    for seq in range(1, driver.tail(queue) + 1):
        assert driver.pushes(queue, seq) == []
