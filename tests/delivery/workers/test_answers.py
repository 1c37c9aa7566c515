"""What a worker's answer does to messages, seen from outside."""

import pytest

from tests.delivery.receiver import OK, Answer, late, status
from tests.delivery.workers.scene import LONG_MS, Scene, saying
from tests.wire.cloudflare.patience import eventually
from tests.wire.cloudflare.queue import Queue, new_name

pytestmark = pytest.mark.slow

THREE = ["0", "1", "2"]


def settled(scene: Scene) -> None:
    eventually(lambda: scene.queue.backlog() == 0)


@pytest.mark.parametrize(
    "answer",
    [
        status(200),
        status(204),
        status(200, b"OK"),
        status(200, b"<html>" + b"x" * 200_000),
        saying(retries=["nobody"]),
    ],
)
def test_success_acks_the_batch(scene: Scene, answer: Answer) -> None:
    scene.on(answer)
    scene.consume(batch_size=3, max_wait_time_ms=LONG_MS)
    scene.queue.push_texts(THREE)
    settled(scene)
    assert len(scene.so_far()) == 1


def test_the_journal_names_the_consumer(scene: Scene) -> None:
    consumer = scene.consume()
    scene.queue.push("x")
    settled(scene)
    events = {event["kind"]: event for event in scene.events()}
    for kind in ("leased", "acked"):
        assert (events[kind]["actor"], events[kind]["dialect"]) == (consumer, "worker")


def test_a_message_of_its_own_word_is_not_retried_with_all(scene: Scene) -> None:
    scene.on(saying(retry_all=True, acks=["$0"]), saying())
    scene.consume(batch_size=3, max_wait_time_ms=1_000)
    scene.queue.push_texts(THREE)
    assert scene.sent(2)[1].bodies == ["1", "2"]
    settled(scene)


def test_the_delay_of_a_retry_is_its_own_or_the_answers(scene: Scene) -> None:
    own = [{"id": "$0", "delay_seconds": 0}]
    scene.on(saying(retry_all=True, delay_seconds=2, retries=own), saying())
    scene.consume(batch_size=2, max_wait_time_ms=100, retry_delay=60)
    scene.queue.push_texts(["own", "answers"])
    first, second, third = scene.sent(3)
    assert (second.bodies, third.bodies) == (["own"], ["answers"])
    assert third.received.at_s - first.received.at_s > 1.9
    settled(scene)


def test_a_message_without_attempts_left_is_buried(scene: Scene) -> None:
    letters = new_name()
    scene.on(status(500))
    scene.consume(dead_letter=letters, max_retries=1)
    scene.queue.push("x")
    settled(scene)
    assert [batch.attempts for batch in scene.so_far()] == [[1], [2]]
    [found] = scene.queue.http.get("/queues", params={"name": letters}).json()["result"]
    dead = Queue(scene.queue.http, found["queue_id"], letters)
    assert [message["body"] for message in dead.peek()] == ["x"]


def test_a_slow_answer_counts(scene: Scene) -> None:
    scene.on(late(1.2, OK))  # most of the time that a worker has here
    scene.consume()
    scene.queue.push("x")
    settled(scene)
    assert len(scene.so_far()) == 1
