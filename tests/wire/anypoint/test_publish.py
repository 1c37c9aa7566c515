"""Publishing one message: what is taken, what is refused, and what comes out again."""

from typing import Any

import pytest

from tests.wire.anypoint.answers import fail, ok
from tests.wire.anypoint.destination import Message, Queue, new_id, new_name

DELAY_MS_MAX = 900_000
TTL_MS_MAX = 1_209_600_000
BAD_GROUPS: list[Any] = ["", "g" * 129, "a b", " ", "a\n", "\x7f", "é", 5, True, [], {}]
BAD_NUMBERS: list[Any] = [-1, "-1", 1.5, "1.5", "x", "", " 5", "5s", True, [], {}, 10**30, "1e3"]


def journey(queue: Queue, message: dict[str, Any]) -> Message:
    """What a consumer gets of this message."""
    id = new_id()
    ok(queue.put(id, message), 201)
    found = queue.get_one()
    assert found.id == id
    queue.ack(found)
    return found


def test_a_publish_is_answered_with_a_result(queue: Queue) -> None:
    id = new_id()
    answer = ok(queue.put(id, {"body": "hello"}), 201)
    assert answer == {
        "messageId": id,
        "status": "successful",
        "statusMessage": answer["statusMessage"],
    }
    assert queue.get_one().body == "hello"


def test_a_body_comes_back_as_it_was_sent(queue: Queue) -> None:
    for body in (
        *("", " ", "text", "ünï\u2028cødé 🚚", '{"not": "parsed"}', "line\nfeed\ttab\x00\x01"),
        *("x" * 100_000, "</script>"),
    ):
        assert journey(queue, {"body": body}).body == body


@pytest.mark.parametrize(
    "message",
    [
        {},
        {"body": None},
        {"headers": None, "properties": None, "body": None},
        {"headers": {}, "properties": {}},
        {"body": "", "somethingElse": [1]},
    ],
)
def test_every_member_may_be_missing(queue: Queue, message: dict[str, Any]) -> None:
    found = journey(queue, message)
    assert (found.body, found.properties) == ("", {})
    assert set(found.headers) == {"messageId", "lockId", "created", "deliveryCount", "ttl"}


def test_headers_and_properties_come_back_as_they_were_sent(queue: Queue) -> None:
    mixed: dict[str, Any] = {
        "text": "t",
        "empty": "",
        "number": 5,
        "fraction": 0.1,
        "negative": -7,
        "large": 10**18,
        "yes": True,
        "no": False,
        "list": [1, "2", {"three": 3.5}],
        "object": {"a": {"b": []}},
        "ünï": "cødé",
        "contentType": "application/json; charset=UTF-8",
        "": "no name",
        "MULE_ENCODING": "UTF-8",
    }
    found = journey(queue, {"headers": mixed, "properties": mixed, "body": "b"})
    assert found.properties == mixed
    for name, value in mixed.items():
        for kept in (found.properties[name], found.headers[name]):
            assert kept == value
            assert type(kept) is type(value), name


def test_headers_and_properties_of_one_name_are_kept_apart(queue: Queue) -> None:
    found = journey(queue, {"headers": {"a": "header", "b": 1}, "properties": {"a": "property"}})
    assert (found.headers["a"], found.headers["b"]) == ("header", 1)
    assert found.properties == {"a": "property"}


def test_headers_that_the_broker_owns_are_not_the_publishers(queue: Queue) -> None:
    sent = {
        "messageId": "another",
        "lockId": "mine",
        "created": "Tue, 23 Oct 2018 21:17:57 GMT",
        "deliveryCount": 7,
        "payloadHidden": "true",
    }
    found = journey(queue, {"headers": sent, "body": "b"})
    assert found.headers["lockId"] != "mine"
    assert found.headers["created"] != sent["created"]
    assert found.count == 1
    assert "payloadHidden" not in found.headers
    assert found.body == "b"


@pytest.mark.parametrize("wrong", [5, None, "", "x" * 300, []])
def test_an_id_in_the_headers_is_ignored_whatever_it_is(queue: Queue, wrong: Any) -> None:
    journey(queue, {"headers": {"messageId": wrong}, "body": "b"})


def test_an_id_is_any_text(queue: Queue) -> None:
    for id in (
        *("1", "x" * 256, "🚚" * 256, "a/b", "/", "//", "a b", "a+b", "%", "%2F", "?pollingTime=0"),
        *("#fragment", "..", "ünï", "a\nb", "locks", "messages", 'quote"s', "a;b=c&d"),
        "0e1f4ee0-1b7c-4d5c-9d9c-0e2f4b1c7a11",
    ):
        queue.publish("b", id=id)
        found = queue.get_one()
        assert found.id == id
        [result] = queue.ack_batch([found.item])
        assert (result["messageId"], result["status"]) == (id, "successful")


def test_an_id_is_at_most_256_characters_long(queue: Queue) -> None:
    id = "x" * 257
    assert "256" in fail(queue.put(id, {"body": "b"}), 400, id)
    assert queue.get() == []


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("ttl", 60_000, "60000"),
        ("ttl", "60000", "60000"),
        ("ttl", 60_000.0, "60000"),
        ("ttl", TTL_MS_MAX, str(TTL_MS_MAX)),
        ("ttl", None, "604800000"),
        ("messageGroupId", "g", "g"),
        ("messageGroupId", "!" + "~" * 127, "!" + "~" * 127),
        ("messageGroupId", None, None),
        ("deliveryDelay", 0, None),
        ("deliveryDelay", "0", None),
        ("deliveryDelay", None, None),
    ],
)
def test_the_headers_that_the_broker_reads(
    queue: Queue, name: str, value: Any, shown: str | None
) -> None:
    found = journey(queue, {"headers": {name: value}, "body": "b"})
    assert found.headers.get(name) == shown


def test_delays_and_lives_at_their_limits_are_accepted(queue: Queue) -> None:
    for delay in (1, "1", DELAY_MS_MAX, str(DELAY_MS_MAX)):
        queue.publish("late", headers={"deliveryDelay": delay})
    for ttl in (1, "1"):
        queue.publish("short", headers={"ttl": ttl})


def test_headers_beyond_their_limits_are_refused(standing_queue: Queue) -> None:
    for name, values in (
        ("deliveryDelay", (DELAY_MS_MAX + 1, *BAD_NUMBERS)),
        ("ttl", (0, "0", TTL_MS_MAX + 1, str(TTL_MS_MAX + 1), *BAD_NUMBERS)),
        ("messageGroupId", BAD_GROUPS),
    ):
        for value in values:
            message = {"headers": {name: value}, "body": "b"}
            assert name in fail(standing_queue.put("m", message), 400, "m"), value
    assert standing_queue.get() == []


def test_a_name_that_is_the_brokers_own_is_no_property(standing_queue: Queue) -> None:
    fail(standing_queue.put("m", {"properties": {"anypoint.headers": {}}}), 400, "m")
    assert standing_queue.get() == []


def test_an_unknown_destination_is_not_found(standing_queue: Queue) -> None:
    nowhere = Queue(standing_queue.env, new_name())
    assert ok(nowhere.put("a/b", {"body": "b"}), 404) == {
        "status": "failure",
        "statusMessage": "Destination not found",
        "messageId": "a/b",
    }


def test_a_name_of_every_allowed_character_is_reached(standing_queue: Queue) -> None:
    env = standing_queue.env
    name = new_name("Aa0.-")
    for each in (name, name.ljust(127, "z")):
        queue = Queue.create(env, each)
        queue.publish("b")
        assert queue.get_one().body == "b"
