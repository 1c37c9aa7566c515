"""When batches go out, what is in them, and how many are on their way at a time."""

import time
from collections.abc import Callable

import pytest

from tests.conformance.cross.anypoint import Anypoint
from tests.delivery.workers.scene import LONG_MS, Scene, saying
from tests.wire.cloudflare.patience import eventually

pytestmark = pytest.mark.slow


def await_backlog(scene: Scene, count: int) -> None:
    eventually(lambda: scene.queue.backlog() == count)


def test_a_full_batch_goes_at_once_and_the_rest_waits(scene: Scene) -> None:
    scene.consume(batch_size=3, max_wait_time_ms=LONG_MS)
    scene.queue.push_texts([str(number) for number in range(7)])
    batches = scene.sent(2)
    assert sorted(batch.bodies for batch in batches) == [["0", "1", "2"], ["3", "4", "5"]]
    await_backlog(scene, 1)
    assert len(scene.so_far()) == 2


def test_a_part_of_a_batch_goes_when_the_first_message_has_waited_long_enough(
    scene: Scene,
) -> None:
    scene.consume(batch_size=100, max_wait_time_ms=1_500)
    began_s = time.perf_counter()
    scene.queue.push("first")
    scene.queue.push("second")
    [batch] = scene.sent(1)
    assert batch.bodies == ["first", "second"]
    assert batch.received.at_s - began_s > 1.45


def test_the_wait_of_a_second_batch_begins_with_its_own_first_message(scene: Scene) -> None:
    scene.consume(batch_size=2, max_wait_time_ms=2_000)
    began_s = time.perf_counter()
    scene.queue.push("1")
    eventually(lambda: time.perf_counter() - began_s > 1.2)
    scene.queue.push_texts(["2", "3"])
    first, second = scene.sent(2)
    assert (first.bodies, second.bodies) == (["1", "2"], ["3"])
    assert second.received.at_s - first.received.at_s > 1.9


def test_no_more_batches_are_on_their_way_than_the_consumer_says(scene: Scene) -> None:
    held = scene.receiver.hold(scene.path)
    scene.consume(max_concurrency=2)
    scene.queue.push_texts([str(number) for number in range(6)])
    eventually(lambda: scene.receiver.in_flight(scene.path) == 2)
    for done in range(1, 7):
        held.let_go()
        await_backlog(scene, 6 - done)
    assert scene.receiver.peak(scene.path) == 2
    assert sorted(batch.bodies[0] for batch in scene.so_far()) == list("012345")


def test_a_batch_says_what_a_pull_would(scene: Scene) -> None:
    scene.consume(batch_size=4, max_wait_time_ms=LONG_MS)
    before_ms = time.time_ns() // 1_000_000
    scene.queue.push("two\nlines, ünïcode \u2028 and \U0001f600")
    scene.queue.push("")
    scene.queue.push_json('{"b": 1.000000000000000000001, "a": [123456789012345678901234567890]}')
    scene.queue.push_json('"text"')
    [batch] = scene.sent(1)
    assert batch.headers["content-type"] == "application/json"
    assert batch.headers["x-courier-queue"] == batch.queue == scene.queue.name
    assert batch.headers["user-agent"].startswith("Courier/")
    for message in batch.messages:
        assert set(message) == {"id", "timestamp_ms", "attempts", "content_type", "body"}
        assert message["attempts"] == 1
        assert before_ms <= message["timestamp_ms"] <= before_ms + 30_000
        assert len(message["id"]) == 32
    kinds = [message["content_type"] for message in batch.messages]
    assert kinds == ["text", "text", "json", "json"]
    assert batch.bodies[:2] == ["two\nlines, ünïcode \u2028 and \U0001f600", ""]
    assert batch.bodies[3] == "text"
    # Digit for digit, which a JSON parser would not keep.
    assert b'{"b":1.000000000000000000001,"a":[123456789012345678901234567890]}' in (
        batch.received.body
    )


def test_every_batch_has_an_id_of_its_own_also_when_it_is_sent_again(scene: Scene) -> None:
    scene.on(saying(retry_all=True), saying())
    scene.consume()
    scene.queue.push("x")
    first, second = scene.sent(2)
    assert first.messages[0]["id"] == second.messages[0]["id"]
    assert first.headers["webhook-id"] != second.headers["webhook-id"]


def test_headers_of_a_message_are_its_metadata_and_its_own_id_is_kept(
    anypoint_scene: Callable[..., Scene], anypoint: Anypoint
) -> None:
    scene = anypoint_scene()
    scene.consume()
    anypoint.publish(scene.queue.name, "x", id="order-1", properties={"country": "NL"})
    [batch] = scene.sent(1)
    assert batch.messages[0]["id"] == "order-1"
    assert batch.messages[0]["metadata"] == {"country": "NL"}


def test_the_worker_of_an_encrypted_queue_gets_bodies_in_clear(
    anypoint_scene: Callable[..., Scene], anypoint: Anypoint
) -> None:
    scene = anypoint_scene(encrypted=True)
    scene.consume()
    anypoint.publish(scene.queue.name, "for your eyes only")
    assert scene.sent(1)[0].bodies == ["for your eyes only"]
    await_backlog(scene, 0)
    [published] = [event for event in scene.events() if event["kind"] == "published"]
    assert "sealed" in published


def test_groups_of_a_fifo_queue_keep_their_order_and_go_side_by_side(
    anypoint_scene: Callable[..., Scene], anypoint: Anypoint
) -> None:
    scene = anypoint_scene(fifo=True)
    held = scene.receiver.hold(scene.path)
    scene.consume(batch_size=1, max_concurrency=5)
    wanted = [("a", "a1"), ("b", "b1"), ("a", "a2"), ("a", "a3"), ("b", "b2")]
    for group, body in wanted:
        anypoint.publish(scene.queue.name, body, headers={"messageGroupId": group})
    # One of each group; a third call would be out of order.
    eventually(lambda: scene.receiver.in_flight(scene.path) == 2)
    for left in (4, 3, 2, 1, 0):
        held.let_go()
        await_backlog(scene, left)
    bodies = [batch.bodies[0] for batch in scene.so_far()]
    assert [body for body in bodies if body[0] == "a"] == ["a1", "a2", "a3"]
    assert [body for body in bodies if body[0] == "b"] == ["b1", "b2"]
    assert scene.receiver.peak(scene.path) == 2


def test_messages_behind_others_of_their_group_do_not_make_a_batch_full(
    anypoint_scene: Callable[..., Scene], anypoint: Anypoint
) -> None:
    scene = anypoint_scene(fifo=True)
    held = scene.receiver.hold(scene.path)
    scene.consume(batch_size=2, max_wait_time_ms=LONG_MS)

    def publish(*bodies: str) -> None:
        for body in bodies:
            anypoint.publish(scene.queue.name, body, headers={"messageGroupId": body[0]})

    publish("a1", "a2")
    scene.sent(1)
    publish("a3", "a4", "b1", "b2")
    assert scene.sent(2)[1].bodies == ["b1", "b2"]
    held.let_go(3)
    assert scene.sent(3)[2].bodies == ["a3", "a4"]
    await_backlog(scene, 0)


def test_a_retried_message_of_a_fifo_queue_holds_up_its_group(
    anypoint_scene: Callable[..., Scene], anypoint: Anypoint
) -> None:
    scene = anypoint_scene(fifo=True)
    scene.on(saying(retries=["$0"], delay_seconds=1), saying())
    scene.consume(batch_size=1)
    for body in ("1", "2"):
        anypoint.publish(scene.queue.name, body, headers={"messageGroupId": "g"})
    batches = scene.sent(3)
    assert [batch.bodies[0] for batch in batches] == ["1", "1", "2"]
    assert batches[1].received.at_s - batches[0].received.at_s > 0.95
