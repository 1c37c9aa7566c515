"""FIFO queues: groups in order, one hand at a time, and each id once in five minutes."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from courier.clock import ManualClock
from courier.core import types as core
from courier.core.records import decided
from courier.dialects.anypoint import wire
from tests.oracle.store import Oracle
from tests.server import Server
from tests.wire.anypoint.answers import fail, result, results
from tests.wire.anypoint.destination import Message, Queue, bodies, new_id
from tests.wire.anypoint.environment import Environment, root_client

FIVE_MINUTES_MS = 300_000


def put(queue: Queue, *texts: str) -> None:
    """Publish texts; the first character of each names its group."""
    for text in texts:
        queue.publish(text, headers={"messageGroupId": text[0]})


def seen(messages: list[Message]) -> list[tuple[str | None, int]]:
    return [(message.body, message.count) for message in messages]


# --- groups ---


def test_a_message_says_its_group(fifo_queue: Queue) -> None:
    fifo_queue.publish("a", headers={"messageGroupId": "orders-7"})
    message = fifo_queue.get_one()
    assert message.group == "orders-7"
    assert message.headers["messageGroupId"] == "orders-7"


def test_messages_without_a_group_share_one(fifo_queue: Queue) -> None:
    fifo_queue.publish("a")
    fifo_queue.publish("b")
    first = fifo_queue.get_one(batchSize=1)
    assert first.group
    assert fifo_queue.get() == []
    fifo_queue.ack(first)
    second = fifo_queue.get_one()
    assert (second.body, second.group) == ("b", first.group)


def test_a_group_is_handed_out_in_the_order_of_arrival(fifo_queue: Queue) -> None:
    put(fifo_queue, "a1", "a2", "a3", "a4", "a5")
    found: list[Message] = []
    while part := fifo_queue.get(batchSize=2):
        assert len(part) <= 2
        assert all(each["status"] == "successful" for each in ack(fifo_queue, part))
        found += part
    assert bodies(found) == ["a1", "a2", "a3", "a4", "a5"]


def ack(queue: Queue, messages: list[Message]) -> list[dict[str, str]]:
    return queue.ack_batch([message.item for message in messages])


def test_a_group_in_flight_is_blocked_and_others_are_not(fifo_queue: Queue) -> None:
    put(fifo_queue, "a1", "a2", "b1", "a3", "b2")
    assert bodies(fifo_queue.get(batchSize=1)) == ["a1"]
    assert bodies(fifo_queue.get(batchSize=1)) == ["b1"]
    assert fifo_queue.get() == []


def test_what_arrives_while_its_group_is_in_flight_waits(fifo_queue: Queue) -> None:
    put(fifo_queue, "a1")
    first = fifo_queue.get_one()
    put(fifo_queue, "a2")
    assert fifo_queue.get() == []
    fifo_queue.ack(first)
    assert bodies(fifo_queue.get()) == ["a2"]


def test_a_batch_takes_as_much_of_a_group_as_it_can(fifo_queue: Queue) -> None:
    put(fifo_queue, "a1", "b1", "a2", "c1", "a3", "b2")
    assert bodies(fifo_queue.get(batchSize=2)) == ["a1", "a2"]
    assert bodies(fifo_queue.get(batchSize=10)) == ["b1", "b2", "c1"]


def test_a_batch_goes_on_with_the_next_group(fifo_queue: Queue) -> None:
    put(fifo_queue, "a1", "b1", "a2", "b2", "a3")
    found = bodies(fifo_queue.get(batchSize=10))
    assert [text for text in found if text and text[0] == "a"] == ["a1", "a2", "a3"]
    assert [text for text in found if text and text[0] == "b"] == ["b1", "b2"]
    assert found[:3] == ["a1", "a2", "a3"]


def test_no_more_than_a_batch_of_a_group_is_in_flight(fifo_queue: Queue) -> None:
    for start in (0, 10):
        items = [f"{number:02}" for number in range(start, start + 10)]
        fifo_queue.publish_batch(items, messageGroupId="g")
    assert len(fifo_queue.get(batchSize=10)) == 10
    assert fifo_queue.get() == []


def test_a_group_is_blocked_until_all_in_flight_have_ended(fifo_queue: Queue) -> None:
    put(fifo_queue, "a1", "a2", "a3", "a4")
    a1, a2, a3 = fifo_queue.get(batchSize=3)
    fifo_queue.ack(a1)
    assert fifo_queue.get() == []
    fifo_queue.nack(a3)
    assert fifo_queue.get() == []
    fifo_queue.ack(a2)
    assert seen(fifo_queue.get()) == [("a3", 2), ("a4", 1)]


def test_a_nacked_message_comes_before_its_successors(fifo_queue: Queue) -> None:
    put(fifo_queue, "a1", "a2", "a3")
    fifo_queue.nack(fifo_queue.get_one(batchSize=1))
    assert seen(fifo_queue.get()) == [("a1", 2), ("a2", 1), ("a3", 1)]


def test_nacked_messages_come_in_order_however_they_were_nacked(fifo_queue: Queue) -> None:
    put(fifo_queue, "a1", "a2", "a3")
    found = fifo_queue.get()
    for message in reversed(found):
        fifo_queue.nack(message)
    again = fifo_queue.get()
    assert seen(again) == [("a1", 2), ("a2", 2), ("a3", 2)]
    fifo_queue.nack_batch([again[number].item for number in (1, 2, 0)])
    assert seen(fifo_queue.get()) == [("a1", 3), ("a2", 3), ("a3", 3)]


@pytest.mark.parametrize("end", ["runs out", "is set to nothing"])
def test_the_end_of_a_lock_unblocks_its_group(fifo_queue: Queue, end: str) -> None:
    put(fifo_queue, "a1", "a2")
    message = fifo_queue.get_one(batchSize=1, lockTtl=200)
    assert fifo_queue.get() == []
    if end == "is set to nothing":
        fifo_queue.set_lock(message, ttl_s=0)
        assert seen(fifo_queue.get()) == [("a1", 2), ("a2", 1)]
    else:
        assert seen(fifo_queue.get(pollingTime=5_000)) == [("a1", 2), ("a2", 1)]


def test_the_end_of_a_life_unblocks_its_group(fifo_queue: Queue) -> None:
    fifo_queue.publish("a1", headers={"messageGroupId": "a", "ttl": 200})
    put(fifo_queue, "a2")
    fifo_queue.get_one(batchSize=1)
    assert fifo_queue.get() == []
    assert seen(fifo_queue.get(pollingTime=5_000)) == [("a2", 1)]


def test_a_purge_unblocks_every_group(fifo_queue: Queue) -> None:
    put(fifo_queue, "a1", "a2", "b1")
    fifo_queue.get(batchSize=1)
    fifo_queue.purge()
    put(fifo_queue, "a3")
    assert seen(fifo_queue.get()) == [("a3", 1)]


def test_many_groups_are_independent(fifo_queue: Queue) -> None:
    groups = [f"group-{number}" for number in range(40)]
    for round in range(2):
        for start in range(0, 40, 10):
            items = [
                {"headers": {"messageGroupId": group}, "body": f"{group} {round}"}
                for group in groups[start : start + 10]
            ]
            results(fifo_queue.put_batch(items))
    first: list[Message] = []
    while part := fifo_queue.get(batchSize=1):
        first += part
    assert sorted(bodies(first)) == sorted(f"{group} 0" for group in groups)  # type: ignore[type-var]
    for start in range(0, 40, 10):
        ack(fifo_queue, first[start : start + 10])
    second: list[Message] = []
    while part := fifo_queue.get():
        second += part
    assert sorted(bodies(second)) == sorted(f"{group} 1" for group in groups)  # type: ignore[type-var]


def test_consumers_at_the_same_time_keep_every_group_in_order(fifo_queue: Queue) -> None:
    groups, each = "abcdef", 12
    for number in range(each):
        items = [
            {"headers": {"messageGroupId": group}, "body": f"{group}{number:02}"}
            for group in groups
        ]
        results(fifo_queue.put_batch(items))
    log: list[str] = []

    def consume(_: int) -> None:
        while found := fifo_queue.get(batchSize=3, pollingTime=300):
            log.extend(message.body or "" for message in found)
            for message in found:
                fifo_queue.ack(message)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(consume, range(6)))
    assert len(log) == len(groups) * each
    for group in groups:
        assert [text for text in log if text[0] == group] == [
            f"{group}{number:02}" for number in range(each)
        ]


def test_a_group_on_a_standard_queue_blocks_nothing(queue: Queue) -> None:
    put(queue, "a1", "a2")
    assert bodies(queue.get(batchSize=1)) == ["a1"]
    second = queue.get_one(batchSize=1)
    assert (second.body, second.group) == ("a2", "a")


# --- delays ---


@pytest.mark.parametrize("delay", [1, "1", 900_000])
def test_a_delay_of_a_message_is_refused(fifo_queue: Queue, delay: Any) -> None:
    message = {"headers": {"deliveryDelay": delay}, "body": "a"}
    assert "deliveryDelay" in fail(fifo_queue.put("m", message), 400, "m")
    items = [{"headers": {"messageId": "n", "deliveryDelay": delay}}, {"body": "b"}]
    answered = results(fifo_queue.put_batch(items))
    assert [each["status"] for each in answered] == ["failure", "successful"]
    assert bodies(fifo_queue.get()) == ["b"]


@pytest.mark.parametrize("delay", [0, "0", None])
def test_no_delay_of_a_message_is_accepted(fifo_queue: Queue, delay: Any) -> None:
    fifo_queue.publish("a", headers={"deliveryDelay": delay})
    assert "deliveryDelay" not in fifo_queue.get_one().headers


def test_a_queues_delay_holds_a_group_back_in_order(env: Environment) -> None:
    queue = Queue.create(env, fifo=True, defaultDeliveryDelay=300)
    put(queue, "a1", "a2")
    assert queue.get() == []
    first = queue.get_one(pollingTime=5_000, batchSize=1)
    assert (first.body, first.headers["deliveryDelay"]) == ("a1", "300")
    queue.nack(first)
    assert bodies(queue.get(pollingTime=5_000))[0] == "a1"


# --- each id once ---


def test_a_repeated_id_is_answered_as_a_success_and_dropped(fifo_queue: Queue) -> None:
    for text in ("first", "second"):
        result(fifo_queue.put("same", {"body": text}), "same", 201)
    fifo_queue.publish("other")
    assert bodies(fifo_queue.get()) == ["first", "other"]


def test_a_repeated_id_in_another_group_is_dropped_too(fifo_queue: Queue) -> None:
    fifo_queue.publish("first", id="same", headers={"messageGroupId": "a"})
    fifo_queue.publish("second", id="same", headers={"messageGroupId": "b"})
    assert bodies(fifo_queue.get()) == ["first"]


def test_repeated_ids_in_batches_are_dropped(fifo_queue: Queue) -> None:
    items = [
        {"headers": {"messageId": id}, "body": body}
        for id, body in (("x", "1"), ("y", "2"), ("x", "3"))
    ]
    for _ in range(2):
        answered = results(fifo_queue.put_batch(items))
        assert [(each["messageId"], each["status"]) for each in answered] == [
            ("x", "successful"),
            ("y", "successful"),
            ("x", "successful"),
        ]
    assert bodies(fifo_queue.get()) == ["1", "2"]


@pytest.mark.parametrize("state", ["in flight", "acked", "purged"])
def test_a_repeated_id_is_dropped_whatever_became_of_the_first(
    fifo_queue: Queue, state: str
) -> None:
    fifo_queue.publish("first", id="same")
    message = fifo_queue.get_one()
    if state == "acked":
        fifo_queue.ack(message)
    elif state == "purged":
        fifo_queue.purge()
    result(fifo_queue.put("same", {"body": "second"}), "same", 201)
    assert fifo_queue.get() == []


def test_ids_are_compared_within_a_queue_only(env: Environment, fifo_queue: Queue) -> None:
    other = Queue.create(env, fifo=True)
    for queue in (fifo_queue, other):
        queue.publish("a", id="same")
        assert bodies(queue.get()) == ["a"]


def test_ids_are_compared_exactly(fifo_queue: Queue) -> None:
    ids = ["a", "A", "a ", "á", "a\n", "id\na"]
    for id in ids:
        fifo_queue.publish("x", id=id)
    assert [message.id for message in fifo_queue.get()] == ids


def test_ids_that_the_broker_made_repeat_nothing(fifo_queue: Queue) -> None:
    for _ in range(2):
        results(fifo_queue.put_batch([{"body": "same"}, {"body": "same"}]))
    assert len(fifo_queue.get()) == 4


def test_an_id_that_failed_may_be_published(fifo_queue: Queue) -> None:
    fail(fifo_queue.put("m", {"headers": {"ttl": 0}, "body": "bad"}), 400, "m")
    fifo_queue.publish("good", id="m")
    assert bodies(fifo_queue.get()) == ["good"]


def test_one_of_many_publishers_of_an_id_wins(fifo_queue: Queue) -> None:
    id = new_id()
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda n: fifo_queue.put(id, {"body": str(n)}), range(16)))
    for answer in answers:
        result(answer, id, 201)
    assert len(fifo_queue.get()) == 1


def test_an_id_may_be_published_again_after_five_minutes() -> None:
    """The drafts that the dialect makes, on a clock that moves when told to."""
    fifo = core.Queue(id="q", tenant="t", name="q", created_ms=0, modified_ms=0, fifo=True)
    clock = ManualClock()
    store = Oracle()
    actor = core.Actor("caller", "test")

    async def publish(text: str) -> bool:
        """Whether it was a repetition."""
        draft = wire.draft("same", wire.MessageBody(body=text), fifo)
        [receipt] = await store.publish([("q", [draft])], actor=actor, now_ms=clock.now_ms())
        return receipt.repeated[0]

    with asyncio.Runner() as runner:
        runner.run(store.change(decided(puts=[fifo]), actor=actor, now_ms=clock.now_ms()))
        assert not runner.run(publish("first"))
        clock.advance(FIVE_MINUTES_MS - 1)
        assert runner.run(publish("repeated"))
        clock.advance(1)
        assert not runner.run(publish("again"))
        # Counted from the first that was kept, not from the last that was sent.
        clock.advance(FIVE_MINUTES_MS - 1)
        assert runner.run(publish("repeated"))


@pytest.mark.parametrize("end", ["stopped", "killed"])
def test_order_blocks_and_ids_survive_a_restart(fresh_server: Server, end: str) -> None:
    with root_client(fresh_server.url) as http:
        queue = Queue.create(Environment.of(http, fresh_server.credentials), fifo=True)
        put(queue, "a1", "a2", "b1")
        queue.publish("acked", id="same", headers={"messageGroupId": "c"})
        a1 = queue.get_one(batchSize=1)
        found = queue.get()
        assert bodies(found) == ["b1", "acked"]
        queue.ack(found[1])

    if end == "killed":
        fresh_server.kill()
    fresh_server.restart()

    with root_client(fresh_server.url) as http:
        queue = Queue(Environment.of(http, fresh_server.credentials), queue.name)
        result(queue.put("same", {"body": "again"}), "same", 201)
        put(queue, "a3", "d1")
        assert bodies(queue.get()) == ["d1"]
        queue.nack(a1)
        assert seen(queue.get()) == [("a1", 2), ("a2", 1), ("a3", 1)]
        queue.ack(found[0])
        assert queue.get() == []
