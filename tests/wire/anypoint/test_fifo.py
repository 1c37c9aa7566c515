"""FIFO queues: groups in order, one hand at a time, and each id once in five minutes."""

import asyncio
from typing import Any

import pytest

from courier.clock import ManualClock
from courier.core import types as core
from courier.core.records import decided
from courier.dialects.anypoint import wire
from tests.oracle.store import Oracle
from tests.wire.anypoint.answers import fail, result, results
from tests.wire.anypoint.destination import Message, Queue, bodies
from tests.wire.anypoint.timed import Timed

FIVE_MINUTES_MS = 300_000


def put(queue: Queue, *texts: str) -> None:
    """Publish texts; the first character of each names its group."""
    for text in texts:
        queue.publish(text, headers={"messageGroupId": text[0]})


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


def ack(queue: Queue, messages: list[Message]) -> list[dict[str, str]]:
    return queue.ack_batch([message.item for message in messages])


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


def test_a_queues_delay_holds_a_group_back_in_order(clocked: Timed) -> None:
    queue = Queue.create(clocked.env, fifo=True, defaultDeliveryDelay=300)
    put(queue, "a1", "a2")
    assert queue.get() == []
    clocked.advance(seconds=0.3)
    first = queue.get_one(batchSize=1)
    assert (first.body, first.headers["deliveryDelay"]) == ("a1", "300")
    queue.nack(first)
    assert bodies(queue.get()) == ["a1", "a2"]


# --- each id once ---


def test_a_repeated_id_is_answered_as_a_success_and_dropped(fifo_queue: Queue) -> None:
    for text in ("first", "second"):
        result(fifo_queue.put("same", {"body": text}), "same", 201)
    fifo_queue.publish("other")
    assert bodies(fifo_queue.get()) == ["first", "other"]


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
