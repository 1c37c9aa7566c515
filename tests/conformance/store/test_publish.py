import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from courier import ids
from courier.core.errors import NotFound, OverLimit
from courier.core.types import (
    DAY_MS,
    ContentType,
    Draft,
    Message,
    PlainDrafts,
    Queue,
    QueueStats,
)
from tests.conformance.store.driver import CALLER, Driver, bodies, sealed


def test_a_receipt_names_every_draft_in_order(driver: Driver, queue: Queue) -> None:
    receipt = driver.publish(queue, "a", "b", "c")
    messages = driver.lease(queue)
    assert receipt.ids == [message.id for message in messages]
    assert receipt.repeated == [False, False, False]
    assert bodies(messages) == ["a", "b", "c"]


def test_generated_ids_sort_by_time_then_by_sequence(driver: Driver, queue: Queue) -> None:
    published = []
    for _ in range(3):
        published += driver.publish(queue, "a", "b").ids
        driver.advance(1)
    assert published == sorted(set(published))


def test_a_generated_id_leads_back_to_its_message(driver: Driver, queue: Queue) -> None:
    [id] = driver.publish(queue, "a").ids
    message = driver.find(queue, id)
    assert message is not None
    assert ids.message_seq(id, queue=queue.id) == message.seq
    assert id == ids.message_id(published_ms=message.published_ms, seq=message.seq, queue=queue.id)


def test_the_publishers_own_id_is_kept_and_found(driver: Driver, queue: Queue) -> None:
    receipt = driver.publish(queue, Draft(b"a", id="order-1"), "b", Draft(b"c", id="größe"))
    assert receipt.ids[0] == "order-1"
    assert receipt.ids[2] == "größe"
    for id, body in zip(receipt.ids, (b"a", b"b", b"c"), strict=True):
        message = driver.find(queue, id)
        assert message is not None
        assert (message.id, message.body) == (id, body)
    assert [message.id for message in driver.lease(queue)] == receipt.ids


@pytest.mark.parametrize("delay_ms", [0, 50], ids=["ready", "delayed"])
def test_a_message_with_an_own_id_is_found_by_the_generated_one_too(
    driver: Driver, queue: Queue, delay_ms: int
) -> None:
    driver.publish(queue, "a", Draft(b"b", id="order-1", delay_ms=delay_ms))
    generated = ids.message_id(published_ms=driver.now_ms, seq=2, queue=queue.id)
    found = driver.find(queue, generated)
    assert found is not None
    assert (found.id, found.body) == ("order-1", b"b")
    assert found == driver.find(queue, "order-1")


def test_an_own_id_is_found_on_its_own_queue_only(driver: Driver, queue: Queue) -> None:
    other = driver.queue("other")
    driver.publish(queue, Draft(b"a", id="order-1"))
    assert driver.find(other, "order-1") is None


def test_an_own_id_that_looks_generated_is_still_its_own(driver: Driver, queue: Queue) -> None:
    [generated] = driver.publish(queue, "a").ids
    lookalike = ids.message_id(published_ms=driver.now_ms + 1, seq=1, queue=queue.id)
    driver.publish(queue, Draft(b"b", id=lookalike))
    first, second = driver.find(queue, generated), driver.find(queue, lookalike)
    assert first is not None
    assert second is not None
    assert (first.body, second.body) == (b"a", b"b")


@pytest.mark.parametrize(
    "unknown", ["", "x", "c0" + "0" * 30, "c0" + "z" * 30, "c0" + "_1" * 15, "e" * 32, "ü" * 32]
)
def test_an_unknown_id_is_not_found(driver: Driver, queue: Queue, unknown: str) -> None:
    driver.publish(queue, "a", Draft(b"b", id="order-1"))
    assert driver.find(queue, unknown) is None


def test_an_id_with_another_time_is_not_found(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, "a")
    forged = ids.message_id(published_ms=driver.now_ms - 1, seq=1, queue=queue.id)
    assert driver.find(queue, forged) is None


@pytest.mark.parametrize("body", [b"", b"\0", bytes(range(256)), "größe".encode(), b"x" * 300_000])
@pytest.mark.every_value
def test_a_body_comes_back_byte_for_byte(driver: Driver, queue: Queue, body: bytes) -> None:
    driver.publish(queue, Draft(body, "bytes"))
    [message] = driver.lease(queue)
    assert message.body == body
    assert type(message.body) is bytes
    assert driver.stats(queue).bytes == len(body)


@pytest.mark.parametrize("content_type", ["text", "json", "bytes"])
def test_what_a_draft_says_comes_back(
    driver: Driver, queue: Queue, content_type: ContentType
) -> None:
    headers: dict[str, Any] = {
        "empty": "",
        "größe": [1, -2.5, True, None, {"deep": ["er"]}],
        "big": 2**53,
    }
    driver.publish(queue, Draft(b"1", content_type, headers, group="customer-7", ttl_ms=500))
    for message in (driver.peek(queue)[0], driver.lease_one(queue)):
        assert message.content_type == content_type
        assert message.headers == headers
        assert message.group == "customer-7"
        assert message.published_ms == driver.now_ms
        assert message.expires_ms == driver.now_ms + 500
        assert message.origin is None


def test_what_a_draft_leaves_out_stays_absent(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, Draft(b"1"), Draft(b"2", headers={}, group=""))
    bare, empty = driver.lease(queue)
    assert (bare.headers, bare.group, bare.expires_ms) == (None, None, None)
    assert (bare.delay_ms, bare.sealed) == (None, None)
    assert (empty.headers, empty.group) == ({}, "")


def test_a_message_says_which_key_its_body_is_sealed_with(driver: Driver, queue: Queue) -> None:
    [id, _] = driver.publish(queue, sealed(b"\x00\x01"), "clear").ids
    found = driver.find(queue, id)
    assert found is not None
    assert found.sealed == "key-1"
    for look in (driver.peek, driver.browse, driver.lease):
        assert [message.sealed for message in look(queue)] == ["key-1", None]


def test_a_sealed_message_counts_as_long_as_it_is_in_clear(driver: Driver, queue: Queue) -> None:
    assert driver.publish(queue, "abc", sealed(b"de"), sealed(b"")).stats.bytes == 5
    with pytest.raises(OverLimit) as refused:
        driver.publish(queue, sealed(b"fg"), bytes_max=6)
    assert (refused.value.limit, refused.value.actual) == (6, 7)
    driver.publish(queue, sealed(b"f"), bytes_max=6)
    for message in driver.lease(queue, count=2):
        driver.ack(queue, message)
    assert driver.stats(queue).bytes == 1


def test_a_message_says_the_delay_it_was_published_with(driver: Driver) -> None:
    queue = driver.queue(delay_ms=30)
    driver.publish(queue, "queue's", Draft(b"own", delay_ms=20), Draft(b"none", delay_ms=0))
    driver.update(queue, delay_ms=99)
    driver.advance(30)
    for look in (driver.peek, driver.browse, driver.lease):
        told = {message.body.decode(): message.delay_ms for message in look(queue)}
        assert told == {"queue's": 30, "own": 20, "none": None}


def test_a_message_says_the_delay_of_its_own_on_a_fifo_queue(driver: Driver) -> None:
    queue = driver.queue(delay_ms=30, fifo=True)
    driver.publish(
        queue,
        Draft(b"queue's", group="a"),
        Draft(b"own", group="b", delay_ms=20),
        Draft(b"none", group="c", delay_ms=0),
    )
    driver.advance(30)
    for look in (driver.peek, driver.browse, driver.lease):
        told = {message.body.decode(): message.delay_ms for message in look(queue)}
        assert told == {"queue's": None, "own": 20, "none": 0}


def test_a_message_does_not_change_with_the_values_a_caller_holds(
    driver: Driver, queue: Queue
) -> None:
    headers = {"list": [1]}
    driver.publish(queue, Draft(b"a", headers=headers))
    headers["list"].append(2)
    [peeked] = driver.peek(queue)
    assert peeked.headers == {"list": [1]}
    peeked.headers["list"].append(3)
    assert driver.lease_one(queue).headers == {"list": [1]}
    [published] = [event for event in driver.events() if event["kind"] == "published"]
    assert published["headers"] == {"list": [1]}


def test_a_receipt_counts_the_new_messages(driver: Driver, queue: Queue) -> None:
    first_ms = driver.now_ms
    assert driver.publish(queue, "abc").stats == QueueStats(1, 3, first_ms)
    driver.advance(5)
    receipt = driver.publish(queue, "de", Draft(b"f", delay_ms=10))
    assert receipt.stats == QueueStats(3, 6, first_ms, leased=0, delayed=1)
    assert driver.stats(queue) == receipt.stats


def test_the_oldest_message_is_the_oldest_that_is_left(driver: Driver, queue: Queue) -> None:
    times = []
    for body in "abc":
        driver.publish(queue, body)
        times.append(driver.now_ms)
        driver.advance(1)
    a, b, c = driver.lease(queue)
    driver.ack(queue, b)
    assert driver.stats(queue).oldest_ms == times[0]
    driver.ack(queue, a)
    assert driver.stats(queue).oldest_ms == times[2]
    driver.ack(queue, c)
    assert driver.stats(queue) == QueueStats()


def test_the_oldest_message_may_be_a_delayed_one(driver: Driver, queue: Queue) -> None:
    delayed_ms = driver.now_ms
    driver.publish(queue, Draft(b"delayed", delay_ms=DAY_MS))
    driver.advance(1)
    driver.publish(queue, "a")
    assert driver.stats(queue).oldest_ms == delayed_ms
    driver.ack(queue, driver.lease_one(queue))
    assert driver.stats(queue).oldest_ms == delayed_ms


def test_the_sequence_grows_and_is_not_given_out_again(driver: Driver, queue: Queue) -> None:
    assert driver.tail(queue) == 0
    driver.publish(queue, "a", "b")
    first = driver.lease(queue)
    assert driver.tail(queue) == first[-1].seq
    for message in first:
        driver.ack(queue, message)
    assert driver.tail(queue) == first[-1].seq
    driver.publish(queue, "c")
    [third] = driver.lease(queue)
    assert 0 < first[0].seq < first[1].seq < third.seq == driver.tail(queue)


def test_one_call_publishes_on_several_queues(driver: Driver, queue: Queue) -> None:
    other = driver.queue("other")
    batches = [
        (queue.id, [Draft(b"a"), Draft(b"b")]),
        (other.id, [Draft(b"c")]),
    ]
    receipts = driver.run(driver.store.publish(batches, actor=CALLER, now_ms=driver.now_ms))
    assert [receipt.stats.count for receipt in receipts] == [2, 1]
    assert [len(receipt.ids) for receipt in receipts] == [2, 1]
    assert bodies(driver.lease(queue)) == ["a", "b"]
    assert bodies(driver.lease(other)) == ["c"]


def test_nothing_is_stored_when_one_of_the_queues_is_unknown(driver: Driver, queue: Queue) -> None:
    before = driver.last()
    batches = [(queue.id, [Draft(b"a", once_key="k")]), (ids.new_id(), [Draft(b"b")])]
    with pytest.raises(NotFound):
        driver.run(driver.store.publish(batches, actor=CALLER, now_ms=driver.now_ms))
    assert driver.stats(queue) == QueueStats()
    assert driver.tail(queue) == 0
    assert driver.last() == before
    assert driver.publish(queue, Draft(b"a", once_key="k")).repeated == [False]


def test_an_empty_batch_stores_nothing(driver: Driver, queue: Queue) -> None:
    before = driver.last()
    receipt = driver.publish(queue)
    assert (receipt.ids, receipt.repeated, receipt.stats) == ([], [], QueueStats())
    assert driver.last() == before


def test_queues_do_not_see_each_others_messages(driver: Driver, queue: Queue) -> None:
    others = [driver.queue(name) for name in "xyz"]
    driver.publish(others[1], "a")
    for empty in (queue, others[0], others[2]):
        assert driver.lease(empty) == []
        assert driver.peek(empty) == []
        assert driver.stats(empty) == QueueStats()
    assert bodies(driver.lease(others[1])) == ["a"]


def test_a_queue_without_messages_has_empty_numbers(driver: Driver, queue: Queue) -> None:
    assert driver.stats(queue) == QueueStats(count=0, bytes=0, oldest_ms=0, leased=0, delayed=0)


def test_a_queue_takes_no_more_bytes_than_it_may_hold(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, "abcd")
    driver.publish(queue, "ef", "gh", bytes_max=8)
    before = driver.last()
    with pytest.raises(OverLimit) as refused:
        driver.publish(queue, "", "i", bytes_max=8)
    assert (refused.value.what, refused.value.limit, refused.value.actual) == ("queue bytes", 8, 9)
    assert driver.last() == before
    assert driver.stats(queue).count == 3
    driver.ack(queue, driver.lease_one(queue))
    driver.publish(queue, "ijkl", bytes_max=8)
    assert driver.stats(queue).bytes == 8


def test_nothing_is_stored_when_one_of_the_queues_is_full(driver: Driver, queue: Queue) -> None:
    full = driver.queue("full")
    batches = [(queue.id, [Draft(b"a")]), (full.id, [Draft(b"too long")])]
    call = driver.store.publish(batches, actor=CALLER, now_ms=driver.now_ms, bytes_max=5)
    with pytest.raises(OverLimit):
        driver.run(call)
    assert driver.stats(queue) == QueueStats()
    assert driver.tail(queue) == 0


@pytest.mark.parametrize("settings", [{}, {"fifo": True}, {"delay_ms": 500}], ids=str)
def test_columns_with_ids_are_kept_as_the_drafts_they_stand_for(
    driver: Driver, settings: dict[str, Any]
) -> None:
    """Also when those of several callers are stored together, and not all have ids."""
    queue = driver.queue(**settings)
    store, now_ms = driver.store, driver.now_ms
    calls = [
        PlainDrafts([b"a", b"b"], ["text", "json"], ["one", "two"]),
        PlainDrafts([b"c"], ["text"]),
        [Draft(b"d", id="four")],
        PlainDrafts([b"e", b"f"], ["bytes", "text"], [None, "six"]),
    ]

    async def publish(drafts: Sequence[Draft]) -> list[str]:
        [receipt] = await store.publish([(queue.id, drafts)], actor=CALLER, now_ms=now_ms)
        return receipt.ids

    async def together(calls: Sequence[Sequence[Draft]]) -> list[list[str]]:
        return await asyncio.gather(*(publish(drafts) for drafts in calls))

    for those in (calls, [calls[0], calls[1], calls[3]]):
        ids = [id for answer in driver.run(together(those)) for id in answer]
        drafts = [draft for call in those for draft in call]
        assert [draft.id or id for draft, id in zip(drafts, ids, strict=True)] == ids
        assert len(set(ids)) == len(ids)
        driver.advance(500)
        found: list[Message] = []
        while leased := driver.lease(queue):
            found += leased
            for message in leased:
                driver.ack(queue, message)
        known = {message.id: (message.body, message.content_type) for message in found}
        assert known == {
            id: (draft.body, draft.content_type) for id, draft in zip(ids, drafts, strict=True)
        }
    part = calls[0][1:]
    assert isinstance(part, PlainDrafts) and part.ids == ["two"] and part[0].id == "two"
