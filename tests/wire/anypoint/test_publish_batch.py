"""Publishing up to ten messages in one call; each has a fate of its own."""

import uuid
from typing import Any

import pytest

from tests.wire.anypoint.answers import fail, ok, results
from tests.wire.anypoint.destination import Queue, bodies, new_name

LONG_ID = "x" * 257


def item(id: str, body: Any = "b", **headers: Any) -> dict[str, Any]:
    return {"headers": {"messageId": id, **headers}, "body": body}


@pytest.mark.parametrize("count", [1, 2, 10])
def test_results_and_messages_come_in_the_order_of_the_batch(queue: Queue, count: int) -> None:
    texts = [f"m{number}" for number in range(count)]
    ids = queue.publish_batch(texts)
    found = queue.get()
    assert bodies(found) == texts
    assert [message.id for message in found] == ids


def test_a_batch_has_one_to_ten_messages(standing_queue: Queue) -> None:
    for items in ([], [{"body": "b"}] * 11, item("m")):
        fail(standing_queue.put_batch(items), 400)
    assert standing_queue.get() == []


@pytest.mark.parametrize(
    "headers", [{}, {"headers": {}}, {"headers": None}, {"headers": {"messageId": None}}]
)
def test_an_item_without_an_id_is_given_one(queue: Queue, headers: dict[str, Any]) -> None:
    answered = results(queue.put_batch([{"body": "b", **headers}, {"body": "c", **headers}]))
    ids = [each["messageId"] for each in answered]
    assert [each["status"] for each in answered] == ["successful"] * 2
    assert len(set(ids)) == 2
    assert all(str(uuid.UUID(id)) == id for id in ids)
    assert [message.id for message in queue.get()] == ids


@pytest.mark.parametrize("item", [{}, {"body": None}, {"body": ""}, {"properties": {}}])
def test_an_item_without_a_body_is_empty(queue: Queue, item: dict[str, Any]) -> None:
    [answered] = results(queue.put_batch([item]))
    assert answered["status"] == "successful"
    assert queue.get_one().body == ""


BAD: list[tuple[str, dict[str, Any]]] = [
    ("a body that is no text", item("bad", 5)),
    ("a delay below zero", item("bad", deliveryDelay=-1)),
    ("a delay over a quarter of an hour", item("bad", deliveryDelay=900_001)),
    ("a delay that is no number", item("bad", deliveryDelay="x")),
    ("no life", item("bad", ttl=0)),
    ("a life over two weeks", item("bad", ttl=1_209_600_001)),
    ("a group without a name", item("bad", messageGroupId="")),
    ("a group with a blank", item("bad", messageGroupId="a b")),
    ("a group with a long name", item("bad", messageGroupId="g" * 129)),
    ("a list of properties", {**item("bad"), "properties": []}),
    ("a property of the broker's", {**item("bad"), "properties": {"anypoint.headers": 1}}),
    ("a list of headers", {"headers": [], "body": "b"}),
    ("an id that is no text", {"headers": {"messageId": 5}, "body": "b"}),
    ("an empty id", {"headers": {"messageId": ""}, "body": "b"}),
    ("a long id", {"headers": {"messageId": LONG_ID}, "body": "b"}),
]


@pytest.mark.parametrize("wrong", [wrong for _, wrong in BAD], ids=[name for name, _ in BAD])
def test_an_invalid_item_fails_alone_and_under_its_id(queue: Queue, wrong: dict[str, Any]) -> None:
    answered = results(queue.put_batch([item("first", "1"), wrong, item("last", "2")]))
    assert [each["status"] for each in answered] == ["successful", "failure", "successful"]
    assert [answered[0]["messageId"], answered[2]["messageId"]] == ["first", "last"]
    if wrong.get("headers", {}) and wrong["headers"]["messageId"] == "bad":
        assert answered[1]["messageId"] == "bad"
    assert bodies(queue.get()) == ["1", "2"]


def test_a_batch_of_invalid_items_is_answered_like_any_other(standing_queue: Queue) -> None:
    answered = results(standing_queue.put_batch([item("a", 5), item("b", ttl=0)]))
    assert [(each["messageId"], each["status"]) for each in answered] == [
        ("a", "failure"),
        ("b", "failure"),
    ]
    assert standing_queue.get() == []


def test_one_id_may_be_in_a_batch_twice(queue: Queue) -> None:
    answered = results(queue.put_batch([item("same", "1"), item("same", "2")]))
    assert [(each["messageId"], each["status"]) for each in answered] == [
        ("same", "successful"),
        ("same", "successful"),
    ]
    assert bodies(queue.get()) == ["1", "2"]


def test_each_item_has_headers_and_properties_of_its_own(queue: Queue) -> None:
    items = [
        {**item("1", kind="a", ttl="60000"), "properties": {"n": 1}},
        {**item("2", messageGroupId="g"), "properties": {"n": True}},
    ]
    assert all(each["status"] == "successful" for each in results(queue.put_batch(items)))
    first, second = queue.get()
    assert (first.headers["kind"], first.headers["ttl"], first.properties) == (
        "a",
        "60000",
        {"n": 1},
    )
    assert second.properties == {"n": True}
    assert second.headers["ttl"] == "604800000"


def test_an_unknown_destination_is_not_found(standing_queue: Queue) -> None:
    nowhere = Queue(standing_queue.env, new_name())
    assert ok(nowhere.put_batch([item("m")]), 404) == {
        "status": "failure",
        "statusMessage": "Destination not found",
    }
