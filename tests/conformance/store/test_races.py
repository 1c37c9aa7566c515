import asyncio
from collections import Counter

import msgspec
import pytest

from courier import ids
from courier.core.errors import Conflict, NotFound, OverLimit
from courier.core.records import decided
from courier.core.types import Ack, Draft, Message, Outcome, Queue, QueueStats, Retry, Settlement
from tests.conformance.store.driver import CALLER, TENANT, Driver, bodies

BUSY_SECONDS_MAX = 60


def test_concurrent_publishes_are_all_kept(driver: Driver, queue: Queue) -> None:
    store, now_ms = driver.store, driver.now_ms

    async def publish(number: int) -> list[str]:
        drafts = [Draft(f"{number}-{i}".encode()) for i in range(20)]
        [receipt] = await store.publish([(queue.id, drafts)], actor=CALLER, now_ms=now_ms)
        return receipt.ids

    async def all_at_once() -> list[list[str]]:
        return await asyncio.gather(*(publish(number) for number in range(50)))

    answers = driver.run(all_at_once())
    messages = driver.lease(queue, count=2_000)
    by_id = {message.id: message.body.decode() for message in messages}
    assert len(by_id) == 1_000
    for number, answer in enumerate(answers):
        assert [by_id[id] for id in answer] == [f"{number}-{i}" for i in range(20)]
    assert driver.stats(queue).count == 1_000


def test_no_message_is_leased_twice(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, *(str(number) for number in range(300)))
    store, now_ms = driver.store, driver.now_ms

    async def lease() -> list[Message]:
        leased = await store.lease(queue.id, count=7, lease_ms=1_000, actor=CALLER, now_ms=now_ms)
        return leased.messages

    async def all_at_once() -> list[list[Message]]:
        return await asyncio.gather(*(lease() for _ in range(60)))

    batches = driver.run(all_at_once())
    handed = Counter(message.seq for batch in batches for message in batch)
    assert len(handed) == 300
    assert set(handed.values()) == {1}
    assert driver.stats(queue).leased == 300


def test_callers_of_one_moment_lease_no_more_than_may_be_leased(
    driver: Driver, queue: Queue
) -> None:
    driver.publish(queue, *(str(number) for number in range(30)))
    store, now_ms = driver.store, driver.now_ms

    async def lease(leased_max: int | None) -> int:
        leased = await store.lease(
            queue.id,
            count=2,
            lease_ms=1_000,
            actor=CALLER,
            now_ms=now_ms,
            leased_max=leased_max,
        )
        return len(leased.messages)

    async def all_at_once(*limits: int | None) -> list[int]:
        return await asyncio.gather(*(lease(limit) for limit in limits))

    assert sorted(driver.run(all_at_once(5, 5, 5, 5))) == [0, 1, 2, 2]
    assert driver.stats(queue).leased == 5
    # Each by its own limit, in any order.
    assert sum(driver.run(all_at_once(6, 5, 6))) == 1
    assert sum(driver.run(all_at_once(5, None, 6))) == 2


def test_one_of_many_acks_of_a_lease_takes_effect(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, "a")
    message = driver.lease_one(queue)
    store, now_ms = driver.store, driver.now_ms
    item = Ack(message.seq, 1, late=True)

    async def all_at_once() -> list[list[Outcome]]:
        calls = [store.settle(queue.id, [item], actor=CALLER, now_ms=now_ms) for _ in range(30)]
        return await asyncio.gather(*calls)

    outcomes = Counter(outcome for [outcome] in driver.run(all_at_once()))
    assert outcomes == {Outcome.DONE: 1, Outcome.GONE: 29}
    assert driver.stats(queue) == QueueStats()


def test_one_of_many_retries_of_a_lease_takes_effect(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, "a")
    message = driver.lease_one(queue)
    store, now_ms = driver.store, driver.now_ms

    async def all_at_once() -> list[list[Outcome]]:
        items = [Retry(message.seq, 1)]
        calls = [store.settle(queue.id, items, actor=CALLER, now_ms=now_ms) for _ in range(30)]
        return await asyncio.gather(*calls)

    outcomes = Counter(outcome for [outcome] in driver.run(all_at_once()))
    assert outcomes == {Outcome.DONE: 1, Outcome.LATE: 29}
    assert driver.lease_one(queue).attempts == 2


def test_concurrent_publishes_under_one_key_store_one_message(driver: Driver, queue: Queue) -> None:
    store, now_ms = driver.store, driver.now_ms

    async def publish(number: int) -> tuple[str, bool]:
        draft = Draft(str(number).encode(), once_key="k")
        [receipt] = await store.publish([(queue.id, [draft])], actor=CALLER, now_ms=now_ms)
        return receipt.ids[0], receipt.repeated[0]

    async def all_at_once() -> list[tuple[str, bool]]:
        return await asyncio.gather(*(publish(number) for number in range(30)))

    answers = driver.run(all_at_once())
    assert len({id for id, _ in answers}) == 1
    assert [repeated for _, repeated in answers].count(False) == 1
    assert driver.stats(queue).count == 1


def test_one_of_many_queues_of_the_same_name_is_created(driver: Driver) -> None:
    store, now_ms = driver.store, driver.now_ms

    async def create() -> bool:
        queue = Queue(
            id=ids.new_id(), tenant=TENANT, name="orders", created_ms=now_ms, modified_ms=now_ms
        )
        try:
            await store.change(decided(puts=[queue]), actor=CALLER, now_ms=now_ms)
        except Conflict:
            return False
        return True

    async def all_at_once() -> list[bool]:
        return await asyncio.gather(*(create() for _ in range(20)))

    assert driver.run(all_at_once()).count(True) == 1
    [queue] = store.records.scan(Queue)
    driver.publish(queue, "a")
    assert driver.kinds() == ["queue_created", "published"]


def test_an_answer_of_one_call_is_seen_by_the_next(driver: Driver, queue: Queue) -> None:
    """Many callers, each publishing and then finding its own message, never miss it."""
    store, now_ms = driver.store, driver.now_ms

    async def round_trip(number: int) -> None:
        draft = Draft(str(number).encode())
        [receipt] = await store.publish([(queue.id, [draft])], actor=CALLER, now_ms=now_ms)
        found = await store.messages.find(queue.id, receipt.ids[0], now_ms=now_ms)
        assert found is not None
        assert found.body == draft.body

    async def all_at_once() -> None:
        await asyncio.gather(*(round_trip(number) for number in range(100)))

    driver.run(all_at_once())


def test_nothing_is_lost_or_done_twice_among_busy_callers(driver: Driver, queue: Queue) -> None:
    """Publishers, consumers that ack, retry or forget, and a sweep, all at the same time."""
    driver.update(queue, attempts_max=None)
    store, clock = driver.store, driver.clock
    wanted = {f"{publisher}-{i}" for publisher in range(10) for i in range(20)}
    done: Counter[str] = Counter()

    async def publish(publisher: int) -> None:
        for i in range(20):
            draft = Draft(f"{publisher}-{i}".encode())
            await store.publish([(queue.id, [draft])], actor=CALLER, now_ms=clock.now_ms())

    async def consume() -> None:
        while sum(done.values()) < len(wanted):
            clock.advance(1)
            leased = await store.lease(
                queue.id, count=5, lease_ms=40, actor=CALLER, now_ms=clock.now_ms()
            )
            for message in leased.messages:
                # The first attempt of some is forgotten, of others given back.
                fate = message.seq % 3 if message.attempts == 1 else 2
                if fate == 0:
                    continue
                verdict = Retry if fate == 1 else Ack
                item: Settlement = verdict(message.seq, message.attempts)
                [outcome] = await store.settle(
                    queue.id, [item], actor=CALLER, now_ms=clock.now_ms()
                )
                if fate == 2 and outcome is Outcome.DONE:
                    done[message.body.decode()] += 1
            await asyncio.sleep(0)

    async def sweep() -> None:
        while sum(done.values()) < len(wanted):
            await store.sweep(limit=10, now_ms=clock.now_ms())
            await asyncio.sleep(0)

    async def all_at_once() -> None:
        publishers = [publish(number) for number in range(10)]
        async with asyncio.timeout(BUSY_SECONDS_MAX):
            await asyncio.gather(*publishers, *(consume() for _ in range(8)), sweep())

    driver.run(all_at_once())
    assert set(done) == wanted
    assert set(done.values()) == {1}
    assert driver.stats(queue) == QueueStats()
    events = driver.events()
    assert [event["offset"] for event in events] == list(range(1, len(events) + 1))
    ends = Counter(event["seq"] for event in events if event["kind"] == "acked")
    assert len(ends) == len(wanted)
    assert set(ends.values()) == {1}


def test_settings_and_messages_change_side_by_side(driver: Driver, queue: Queue) -> None:
    store, now_ms = driver.store, driver.now_ms

    async def publish(number: int) -> None:
        draft = Draft(str(number).encode())
        await store.publish([(queue.id, [draft])], actor=CALLER, now_ms=now_ms)

    async def change(number: int) -> None:
        changed = msgspec.structs.replace(queue, labels={"n": str(number)})
        await store.change(decided(puts=[changed]), actor=CALLER, now_ms=now_ms)

    async def all_at_once() -> None:
        await asyncio.gather(*(call(n) for n in range(30) for call in (publish, change)))

    driver.run(all_at_once())
    assert len(driver.lease(queue)) == 30
    kinds = Counter(driver.kinds())
    assert (kinds["queue_updated"], kinds["published"]) == (30, 30)


def test_a_queue_dropped_among_publishes_leaves_nothing_behind(
    driver: Driver, queue: Queue
) -> None:
    store, now_ms = driver.store, driver.now_ms

    async def publish() -> None:
        await store.publish([(queue.id, [Draft(b"a")])], actor=CALLER, now_ms=now_ms)

    async def drop() -> None:
        await store.change(decided(drops=[queue]), actor=CALLER, now_ms=now_ms)

    async def all_at_once() -> list[BaseException | None]:
        calls = [*(publish() for _ in range(10)), drop(), *(publish() for _ in range(10))]
        return await asyncio.gather(*calls, return_exceptions=True)

    refused = [answer for answer in driver.run(all_at_once()) if answer is not None]
    driver.sweep_all()
    kinds = Counter(driver.kinds())
    assert kinds["published"] == kinds["deleted"] == 20 - len(refused)
    assert kinds["queue_deleted"] == 1


@pytest.mark.one_node
@pytest.mark.parametrize("turns", range(4))
@pytest.mark.every_value
def test_a_caller_that_gives_up_leaves_the_store_whole(
    driver: Driver, queue: Queue, turns: int
) -> None:
    """Whether or not the abandoned call still took effect, all of it did or none of it."""
    store, now_ms = driver.store, driver.now_ms

    async def give_up() -> None:
        drafts = [Draft(b"a"), Draft(b"b")]
        call = asyncio.ensure_future(
            store.publish([(queue.id, drafts)], actor=CALLER, now_ms=now_ms)
        )
        for _ in range(turns):
            await asyncio.sleep(0)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)

    driver.run(give_up())
    driver.publish(queue, "c")
    found = bodies(driver.lease(queue))
    assert found in (["c"], ["a", "b", "c"])
    assert driver.stats(queue).count == len(found)
    assert driver.kinds().count("published") == len(found)


def test_a_queue_is_deleted_once_by_many_callers(driver: Driver, queue: Queue) -> None:
    store, now_ms = driver.store, driver.now_ms

    async def all_at_once() -> None:
        calls = [
            store.change(decided(drops=[queue]), actor=CALLER, now_ms=now_ms) for _ in range(5)
        ]
        await asyncio.gather(*calls)

    driver.run(all_at_once())
    assert driver.kinds() == ["queue_created", "queue_deleted"]


def test_concurrent_publishes_fill_a_queue_to_its_last_byte(driver: Driver, queue: Queue) -> None:
    store, now_ms = driver.store, driver.now_ms

    async def publish() -> bool:
        try:
            await store.publish(
                [(queue.id, [Draft(b"ten bytes.")])], actor=CALLER, now_ms=now_ms, bytes_max=30
            )
        except OverLimit:
            return False
        return True

    async def all_at_once() -> list[bool]:
        return await asyncio.gather(*(publish() for _ in range(5)))

    assert driver.run(all_at_once()).count(True) == 3
    assert driver.stats(queue).bytes == 30


def test_each_of_several_refused_callers_gets_an_error_of_its_own(driver: Driver) -> None:
    async def all_at_once() -> list[object]:
        calls = [
            driver.store.lease("missing", count=1, lease_ms=1, actor=CALLER, now_ms=driver.now_ms)
            for _ in range(3)
        ]
        return await asyncio.gather(*calls, return_exceptions=True)

    refused = driver.run(all_at_once())
    assert [(type(e), vars(e)["kind"], vars(e)["ref"]) for e in refused] == [
        (NotFound, "queue", "missing")
    ] * 3
    assert len({id(error) for error in refused}) == 3
