"""Ack and nack: one message, up to ten, and locks that are worth nothing any more."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.wire.anypoint.answers import fail, ok
from tests.wire.anypoint.destination import Exchange, Message, Queue, bodies, new_name, segment

UNKNOWN_LOCK = "AAAAAAABAAABtjx3NKNy4FWH"


def expired(lock: str) -> str:
    return f"LockId: {lock} provided is expired"


def test_an_acked_message_is_gone(queue: Queue) -> None:
    queue.publish("a", id="m")
    message = queue.get_one()
    answer = ok(queue.delete_message("m", {"lockId": message.lock}))
    assert answer == {
        "messageId": "m",
        "status": "successful",
        "statusMessage": "Acknowledgement operation successful",
    }
    assert queue.get() == []


def test_a_nacked_message_is_available_at_once(queue: Queue) -> None:
    queue.publish("a", id="m")
    message = queue.get_one()
    answer = ok(queue.delete_lock("m", message.lock))
    assert (answer["messageId"], answer["status"]) == ("m", "successful")
    assert queue.get_one().count == 2


def test_the_body_of_a_nack_is_ignored(queue: Queue) -> None:
    for content in (b'{"lockId": "something else"}', b"lockId=in+a+form", b"not { JSON", b"\xff"):
        id = queue.publish("a")
        message = queue.get_one()
        assert queue.delete_lock(id, message.lock, content=content).status_code == 200
        again = queue.get_one()
        assert again.count == 2
        queue.ack(again)


def test_an_ack_without_a_lock_is_refused(queue: Queue) -> None:
    queue.publish("a", id="m")
    message = queue.get_one()
    for sent in ({}, {"lockId": None}, {"lockId": ""}, {"lockid": message.lock}, [message.item]):
        fail(queue.delete_message("m", sent), 400, "m")
    fail(queue.delete_message("m", content=b"lockId=" + message.lock.encode()), 400, "m")
    queue.ack(message)


def test_an_ack_needs_no_content_type(queue: Queue) -> None:
    queue.publish("a", id="m")
    content = f'{{"lockId":"{queue.get_one().lock}","more":1}}'.encode()
    assert queue.delete_message("m", content=content).status_code == 200


def test_an_escaped_lock_is_read_in_clear(queue: Queue) -> None:
    queue.publish_batch(["a", "b"])
    for message, method in zip(queue.get(), ("DELETE", "PATCH"), strict=True):
        escaped = "".join(f"%{ord(character):02X}" for character in message.lock)
        path = queue.at(f"/{segment(message.id)}/locks/{escaped}")
        body = {"ttl": 60} if method == "PATCH" else None
        assert queue.env.broker(method, path, body).status_code == 200


# --- locks that are worth nothing ---

Spoil = Callable[[Queue], Message]


def never_existed(queue: Queue) -> Message:
    queue.publish("a")
    message = queue.get_one()
    return Message({**message.headers, "lockId": UNKNOWN_LOCK}, {}, None)


def no_lock_at_all(queue: Queue) -> Message:
    queue.publish("a")
    message = queue.get_one()
    return Message({**message.headers, "lockId": "x/y z?é%"}, {}, None)


def changed(queue: Queue) -> Message:
    queue.publish("a")
    message = queue.get_one()
    last = "A" if message.lock[-1] != "A" else "B"
    return Message({**message.headers, "lockId": message.lock[:-1] + last}, {}, None)


def of_another_message(queue: Queue) -> Message:
    queue.publish_batch(["a", "b"])
    first, second = queue.get()
    return Message({**first.headers, "lockId": second.lock}, {}, None)


def of_an_unknown_message(queue: Queue) -> Message:
    queue.publish("a")
    return Message({**queue.get_one().headers, "messageId": "never published"}, {}, None)


def of_another_queue(queue: Queue) -> Message:
    other = Queue.create(queue.env)
    for each in (queue, other):
        each.publish("a", id="same")
    queue.get_one()
    return other.get_one()


def acked(queue: Queue) -> Message:
    queue.publish("a")
    message = queue.get_one()
    queue.ack(message)
    return message


def nacked(queue: Queue) -> Message:
    queue.publish("a")
    message = queue.get_one()
    queue.nack(message)
    return message


def nacked_and_taken_again(queue: Queue) -> Message:
    message = nacked(queue)
    queue.get_one()
    return message


def released(queue: Queue) -> Message:
    queue.publish("a")
    message = queue.get_one()
    queue.set_lock(message, ttl_s=0)
    return message


def ran_out(queue: Queue) -> Message:
    queue.publish("a")
    return queue.get_one(lockTtl=0)


def ran_out_and_taken_again(queue: Queue) -> Message:
    message = ran_out(queue)
    queue.get_one()
    return message


def purged(queue: Queue) -> Message:
    queue.publish("a")
    message = queue.get_one()
    queue.purge()
    return message


def buried(queue: Queue) -> Message:
    other = Queue.create(queue.env)
    queue.change(deadLetterQueueId=other.name, maxDeliveries=1)
    queue.publish("a")
    message = queue.get_one()
    queue.nack(message)
    return message


SPOILS = [
    never_existed,
    no_lock_at_all,
    changed,
    of_another_message,
    of_an_unknown_message,
    of_another_queue,
    acked,
    nacked,
    nacked_and_taken_again,
    released,
    ran_out,
    ran_out_and_taken_again,
    purged,
    buried,
]


@pytest.mark.parametrize("spoil", SPOILS)
def test_a_lock_that_is_worth_nothing_settles_nothing(queue: Queue, spoil: Spoil) -> None:
    message = spoil(queue)
    id, lock = message.id, message.lock
    texts = {
        fail(queue.delete_message(id, {"lockId": lock}), 400, id),
        fail(queue.delete_lock(id, lock), 400, id),
        fail(queue.patch_lock(id, lock, {"ttl": 60}), 400, id),
        fail(queue.patch_lock(id, lock, {"ttl": 0}), 400, id),
    }
    assert texts == {expired(lock)}
    for answered in (
        queue.ack_batch([message.item]),
        queue.nack_batch([message.item]),
        queue.set_locks([{**message.item, "ttl": 60}]),
        queue.set_locks([{**message.item, "ttl": 0}]),
    ):
        assert answered == [
            {"messageId": id, "lockId": lock, "status": "failure", "statusMessage": expired(lock)}
        ]


@pytest.mark.parametrize("spoil", [nacked_and_taken_again, ran_out_and_taken_again])
def test_an_old_lock_does_no_harm_to_the_new_one(queue: Queue, spoil: Spoil) -> None:
    old = spoil(queue)
    queue.nack_batch([old.item])
    queue.ack_batch([old.item])
    assert queue.get() == []


# --- batches ---


def test_a_batch_is_settled_item_by_item_in_order(queue: Queue) -> None:
    queue.publish_batch([str(number) for number in range(10)])
    found = queue.get()
    answered = queue.ack_batch([message.item for message in found[:5]])
    assert answered == [
        {
            "messageId": message.id,
            "lockId": message.lock,
            "status": "successful",
            "statusMessage": "Acknowledgement operation successful",
        }
        for message in found[:5]
    ]
    answered = queue.nack_batch([message.item for message in reversed(found[5:])])
    assert [(each["messageId"], each["lockId"], each["status"]) for each in answered] == [
        (message.id, message.lock, "successful") for message in reversed(found[5:])
    ]
    assert [(message.body, message.count) for message in queue.get()] == [
        (str(number), 2) for number in range(5, 10)
    ]


@pytest.mark.parametrize("verb", ["ack_batch", "nack_batch"])
def test_a_bad_item_fails_alone(queue: Queue, verb: str) -> None:
    queue.publish_batch(["a", "b"])
    first, second = queue.get()
    items: list[dict[str, Any]] = [
        first.item,
        {"messageId": "m", "lockId": UNKNOWN_LOCK},
        {"messageId": first.id, "lockId": second.lock},
        {"messageId": first.id},
        {"lockId": first.lock},
        {"messageId": None, "lockId": None},
        {},
        second.item,
        first.item,
    ]
    answered = getattr(queue, verb)(items)
    good = (0, 7)
    assert [each["status"] for each in answered] == [
        "successful" if number in good else "failure" for number in range(len(items))
    ]
    for item, each in zip(items, answered, strict=True):
        assert each["messageId"] == (item.get("messageId") or "")
        assert each["lockId"] == (item.get("lockId") or "")
    assert answered[1]["statusMessage"] == expired(UNKNOWN_LOCK)
    assert answered[8]["statusMessage"] == expired(first.lock)


@pytest.mark.parametrize(
    ("method", "path"), [("DELETE", ""), ("DELETE", "/locks"), ("PATCH", "/locks")]
)
def test_a_batch_has_one_to_ten_items(standing_queue: Queue, method: str, path: str) -> None:
    one = {"messageId": "m", "lockId": "l", "ttl": 1}
    for items in ([], [one] * 11, [one, 5], {}, one):
        fail(standing_queue.env.broker(method, standing_queue.at(path), items), 400)


def test_messages_of_one_id_are_told_apart_by_their_locks(queue: Queue) -> None:
    for text in ("a", "b", "c"):
        queue.publish(text, id="same")
    a, b, c = queue.get()
    queue.ack(b)
    queue.nack(a)
    queue.nack(c)
    assert bodies(queue.get()) == ["a", "c"]


# --- a message called locks ---


def test_a_message_may_be_called_locks(queue: Queue) -> None:
    queue.publish("a", id="locks")
    message = queue.get_one()
    assert (message.id, message.body) == ("locks", "a")
    queue.set_lock(message, ttl_s=60)
    queue.nack(message)
    message = queue.get_one()
    # This path is the batch nack whatever the messages are called.
    fail(queue.delete_message("locks", {"lockId": message.lock}), 400)
    [answered] = queue.ack_batch([message.item])
    assert (answered["messageId"], answered["status"]) == ("locks", "successful")


# --- where there is nothing to settle ---

CALLS: list[tuple[str, str, Any]] = [
    ("DELETE", "/m", {"lockId": "l"}),
    ("DELETE", "", [{"messageId": "m", "lockId": "l"}]),
    ("DELETE", "/m/locks/l", None),
    ("DELETE", "/locks", [{"messageId": "m", "lockId": "l"}]),
    ("PATCH", "/m/locks/l", {"ttl": 5}),
    ("PATCH", "/locks", [{"messageId": "m", "lockId": "l", "ttl": 5}]),
]


@pytest.mark.parametrize(("method", "path", "body"), CALLS)
def test_an_unknown_destination_is_not_found(
    standing_queue: Queue, method: str, path: str, body: Any
) -> None:
    nowhere = Queue(standing_queue.env, new_name())
    response = nowhere.env.broker(method, nowhere.at(path), body)
    id = "m" if path.startswith("/m") else None
    assert fail(response, 404, id) == "Destination not found"


@pytest.mark.parametrize(("method", "path", "body"), CALLS)
def test_an_exchange_has_no_locks(
    standing_exchange: Exchange, method: str, path: str, body: Any
) -> None:
    response = standing_exchange.env.broker(method, standing_exchange.at(path), body)
    id = "m" if path.startswith("/m") else None
    assert fail(response, 400, id) == "The destination should be a queue."
