"""Dead letters: when a message becomes one, and what it keeps."""

from typing import Any

from tests.wire.anypoint.answers import ok
from tests.wire.anypoint.destination import Message, Queue
from tests.wire.anypoint.environment import Environment


def pair(env: Environment, deliveries: int | None, **settings: Any) -> tuple[Queue, Queue]:
    """A queue and the one that its dead letters go to."""
    dead = Queue.create(env, fifo=settings.get("fifo", False))
    asked = {"deadLetterQueueId": dead.name, "maxDeliveries": deliveries, **settings}
    return Queue.create(env, **asked), dead


def nack(queue: Queue, message: Message) -> None:
    queue.nack(message)


def test_a_dead_letter_keeps_what_its_publisher_said(env: Environment) -> None:
    queue, dead = pair(env, 2)
    headers = {"own": "kept", "messageGroupId": "g", "n": 5}
    properties = {"contentType": "text/plain", "flag": True, "deep": {"a": [1]}}
    queue.publish("poison", id="a/b", headers=headers, properties=properties)
    queue.nack(queue.get_one())
    last = queue.get_one()
    queue.nack(last)
    message = dead.get_one()
    assert (message.id, message.body, message.properties) == ("a/b", "poison", properties)
    assert (message.headers["own"], message.headers["n"], message.group) == ("kept", 5, "g")
    assert message.lock != last.lock
    # Counted anew.
    assert message.count == 1
    dead.nack(message)
    assert dead.get_one().count == 2


# --- FIFO ---


def test_the_sources_of_dead_letters_are_shown(env: Environment) -> None:
    queue, dead = pair(env, 3)
    assert dead.settings()["deadLetterSources"] == [queue.name]
    shown = ok(env.admin("GET", queue.admin_at()))
    assert (shown["deadLetterQueueId"], shown["maxDeliveries"]) == (dead.name, 3)
