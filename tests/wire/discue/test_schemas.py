"""Schemas of queues: set, replace, end, read again, and what they do to messages."""

import hashlib
import json
from typing import Any

import pytest

from tests.clients.discue import DiscueClient, fail, new_name, ok, pointers

STRING = {"type": "string"}
NUMBER = {"type": "number"}


def sha256(schema: dict[str, Any]) -> str:
    text = json.dumps(schema, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def set_schema(discue: DiscueClient, queue: str, schema: Any) -> dict[str, Any]:
    found: dict[str, Any] = ok(discue.put(f"/queues/{queue}", {"schema": schema}))["queue"]
    return found


def add(discue: DiscueClient, queue: str, value: Any) -> list[str]:
    """Where a message with this value is refused, if it is."""
    data = value if isinstance(value, str) else json.dumps(value)
    response = discue.post(f"/queues/{queue}/messages", {"data": data})
    if response.status_code == 200:
        ok(response)
        return []
    return pointers(response)


# --- the schema itself -----------------------------------------------------------------------


def test_a_schema_is_shown_and_named_by_its_hash(discue: DiscueClient) -> None:
    schema = {"b": {"type": "number", "max": 3, "required": False}, "a": {"type": "string"}}
    queue = ok(discue.post("/queues", {"name": new_name(), "schema": schema}))["queue"]
    assert queue["schema"] == schema
    assert queue["schema_id"] == sha256(schema)
    path = f"/queues/{queue['id']}/schemas/{queue['schema_id']}"
    answer = ok(discue.get(path))
    assert set(answer) == {"schema", "_links"}
    assert answer["schema"] == schema
    assert list(answer["_links"]) == ["self"]
    assert answer["_links"]["self"]["href"].endswith(f"/v1{path}")


def test_a_queue_without_a_schema_has_no_such_member(discue: DiscueClient) -> None:
    for queue in (discue.new_queue(), discue.new_queue(schema=None)):
        found = ok(discue.get(f"/queues/{queue}"))["queue"]
        assert "schema" not in found and "schema_id" not in found


def test_a_schema_can_be_set_replaced_and_ended(discue: DiscueClient, queue: str) -> None:
    assert set_schema(discue, queue, {"a": STRING})["schema"] == {"a": STRING}
    assert add(discue, queue, {"a": 1}) == ["/data/a"]
    assert set_schema(discue, queue, {"a": NUMBER})["schema"] == {"a": NUMBER}
    assert add(discue, queue, {"a": 1}) == []
    ended = set_schema(discue, queue, None)
    assert "schema" not in ended and "schema_id" not in ended
    assert add(discue, queue, "anything") == []
    assert len(discue.messages(queue)) == 2


def test_a_schema_does_not_touch_messages_that_are_there(discue: DiscueClient, queue: str) -> None:
    message = discue.add(queue, "not JSON")
    set_schema(discue, queue, {"a": STRING})
    assert discue.message(queue, message)["data"] == "not JSON"
    ok(discue.put(f"/queues/{queue}/messages/{message}", {"name": "renamed"}))


def test_superseded_schemas_can_still_be_read(discue: DiscueClient, queue: str) -> None:
    old = [{f"p{number}": STRING} for number in range(3)]
    for schema in old:
        set_schema(discue, queue, schema)
    set_schema(discue, queue, None)
    for schema in old:
        assert ok(discue.get(f"/queues/{queue}/schemas/{sha256(schema)}"))["schema"] == schema


def test_a_schema_that_comes_back_is_the_same_one(discue: DiscueClient, queue: str) -> None:
    first = set_schema(discue, queue, {"a": STRING, "b": NUMBER})
    set_schema(discue, queue, {"b": STRING})
    again = set_schema(discue, queue, {"b": NUMBER, "a": STRING})
    assert again["schema_id"] == first["schema_id"]
    assert add(discue, queue, {"a": "x", "b": 1}) == []


def test_a_hundred_schemas_of_a_queue_are_kept_and_the_oldest_go(
    discue: DiscueClient, queue: str
) -> None:
    ids = [set_schema(discue, queue, {f"p{number}": STRING})["schema_id"] for number in range(102)]
    statuses = [discue.get(f"/queues/{queue}/schemas/{id}").status_code for id in ids]
    assert statuses == [404] * 2 + [200] * 100
    assert add(discue, queue, {"p101": "x"}) == []
    assert add(discue, queue, {"p100": "x"}) == ["/data/p100", "/data/p101"]


def test_a_schema_is_found_on_its_own_queue_only(
    discue: DiscueClient, neighbour: DiscueClient, queue: str
) -> None:
    id = set_schema(discue, queue, {"a": STRING})["schema_id"]
    other = discue.new_queue()
    fail(discue.get(f"/queues/{other}/schemas/{id}"), 404)
    fail(discue.get(f"/queues/{queue}/schemas/{id.upper()}"), 404)
    fail(discue.get(f"/queues/{queue}/schemas/{id[:-1]}"), 404)
    fail(neighbour.get(f"/queues/{queue}/schemas/{id}"), 404)


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({}, ["/schema"]),
        ({"a": "string"}, ["/schema/a"]),
        ({"a": {"type": "text"}, "b": {}}, ["/schema/a/type", "/schema/b/type"]),
        ({"a": {"type": "string", "pattern": "(?=x)"}}, ["/schema/a/pattern"]),
        ({"a": {"type": "string", "pattern": "x" * 257}}, ["/schema/a/pattern"]),
        ({"a": {"type": "string", "size": 3}}, ["/schema/a/size"]),
        ({"a/b": {"type": "array"}}, ["/schema/a~1b/items"]),
        ({f"p{number}": STRING for number in range(513)}, ["/schema"]),
        ({"a": {"type": "string", "enum": ["x" * (64 << 10)]}}, ["/schema"]),
        ([], ["/schema"]),
        ("string", ["/schema"]),
        (1, ["/schema"]),
        (False, ["/schema"]),
    ],
)
def test_a_bad_schema_is_refused_and_changes_nothing(
    discue: DiscueClient, schema: Any, expected: list[str]
) -> None:
    name = new_name()
    assert pointers(discue.post("/queues", {"name": name, "schema": schema})) == expected
    assert name not in ok(discue.get("/queues"))["_links"]
    queue = discue.new_queue(schema={"a": STRING})
    known = ok(discue.get(f"/queues/{queue}"))
    body = {"name": new_name(), "schema": schema}
    assert pointers(discue.put(f"/queues/{queue}", body)) == expected
    assert ok(discue.get(f"/queues/{queue}")) == known


def test_a_schema_may_be_as_large_as_the_limits_say(discue: DiscueClient) -> None:
    schema = {f"property-{number:03}": {"type": "string", "max": 1} for number in range(512)}
    queue = discue.new_queue(schema=schema)
    assert ok(discue.get(f"/queues/{queue}"))["queue"]["schema"] == schema


# --- messages --------------------------------------------------------------------------------


def test_a_message_that_breaks_the_schema_is_not_stored(discue: DiscueClient) -> None:
    items = {"type": "object", "props": {"sku": STRING, "count": {"type": "number", "min": 1}}}
    schema = {"id": {"type": "string", "pattern": "/^o-[0-9]+$/"},
              "items": {"type": "array", "items": items}}  # fmt: skip
    queue = discue.new_queue(schema=schema)
    bad = {"id": "x", "items": [{"sku": "a", "count": 1}, {"count": 0}], "more": None}
    assert sorted(add(discue, queue, bad)) == [
        "/data/id",
        "/data/items/1/count",
        "/data/items/1/sku",
        "/data/more",
    ]
    assert discue.messages(queue) == []
    good = {"id": "o-1", "items": [{"sku": "a", "count": 1}]}
    assert add(discue, queue, good) == []
    assert len(discue.messages(queue)) == 1


@pytest.mark.parametrize(
    "data",
    ["hello", "[]", "1", "null", '{"a":"b"', '{"a":NaN}', '{"a":"b","a":"b"}', '{"a":"\\ud800"}',
     '{"a":1e999}', "[" * 100_000, '{"a":"' + "9" * 5_000],
)  # fmt: skip
def test_data_that_is_no_json_object_breaks_any_schema(discue: DiscueClient, data: str) -> None:
    queue = discue.new_queue(schema={"a": {"type": "string", "required": False}})
    assert add(discue, queue, data) == ["/data"]
    assert discue.messages(queue) == []


def test_the_data_itself_is_stored_as_it_came(discue: DiscueClient) -> None:
    queue = discue.new_queue(schema={"a": NUMBER})
    data = ' { "a" : 1.50 }\n'
    assert discue.message(queue, discue.add(queue, data))["data"] == data
