"""Queues: create, list, read, change, delete."""

import time
from typing import Any

import pytest

from tests.clients.anypoint import AnypointClient, environment_client
from tests.clients.discue import ID, DiscueClient, fail, new_name, ok
from tests.server import Server

NOWHERE = "http://127.0.0.1:1/"
SCHEMA = {"orderId": {"type": "string"}}


def queue_of(discue: DiscueClient, id: str) -> dict[str, Any]:
    found: dict[str, Any] = ok(discue.get(f"/queues/{id}"))["queue"]
    return found


def ids_of(discue: DiscueClient) -> list[str]:
    return [each["id"] for each in discue.queues()]


# --- create ----------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["POST", "PUT"])
@pytest.mark.parametrize("word", ["name", "alias"])
def test_a_created_queue_is_there_in_the_very_next_request(
    discue: DiscueClient, method: str, word: str
) -> None:
    name = new_name("myapp.io/orders")
    before_ms = int(time.time() * 1_000) - 1
    made = ok(discue.request(method, "/queues", {word: name}))
    queue = made["queue"]
    assert set(queue) == {"id", "name", "alias", "created_at", "updated_at"}
    assert queue["name"] == queue["alias"] == name
    assert ID.fullmatch(queue["id"])
    assert before_ms <= queue["created_at"] == queue["updated_at"] <= time.time() * 1_000 + 1
    assert list(made["_links"]) == ["self"]
    assert made["_links"]["self"]["href"].endswith(f"/v1/queues/{queue['id']}")
    assert ok(discue.get(f"/queues/{queue['id']}")) == made
    short = {"id": queue["id"], "name": name, "alias": name}
    assert short in discue.queues()


def test_a_name_that_an_exchange_has_is_taken_too(discue: DiscueClient, server: Server) -> None:
    anypoint = server.credentials["anypoint"]
    name = new_name("x")
    place = (
        f"/mq/admin/api/v1/organizations/{anypoint['organization_id']}"
        f"/environments/{anypoint['environment_id']}/regions/{anypoint['region']}/destinations"
    )
    with environment_client(anypoint) as client:
        client.put(f"{place}/exchanges/{name}", json={}).raise_for_status()
    fail(discue.post("/queues", {"name": name}), 422)
    fail(discue.put(f"/queues/{discue.new_queue()}", {"name": name}), 422)


def test_a_queue_drops_no_message_however_often_it_was_pulled(
    discue: DiscueClient, server: Server
) -> None:
    name = new_name()
    queue = discue.new_queue(name)
    message = discue.add(queue, "kept")
    anypoint = server.credentials["anypoint"]
    with environment_client(anypoint) as client:
        puller = AnypointClient(client, anypoint, name)
        for attempt in range(1, 8):
            [taken] = puller.pull(1)
            assert (taken.body, taken.attempts) == ("kept", attempt)
            puller.retry(taken.lease)
    assert discue.messages(queue) == [message]


# --- list ------------------------------------------------------------------------------------


# --- read ------------------------------------------------------------------------------------


def test_a_queue_shows_its_schema_and_links_to_its_listeners(discue: DiscueClient) -> None:
    queue = discue.new_queue(schema=SCHEMA)
    listeners = [discue.new_listener(queue, NOWHERE) for _ in range(2)]
    answer = ok(discue.get(f"/queues/{queue}"))
    assert answer["queue"]["schema"] == SCHEMA
    assert list(answer["_links"]) == ["self", *(each["name"] for each in listeners)]
    for each in listeners:
        href = answer["_links"][each["name"]]["href"]
        assert href.endswith(f"/v1/queues/{queue}/listeners/{each['id']}")
        found = discue.http.get(href, headers={"X-API-KEY": discue.key})
        assert ok(found)["listener"]["id"] == each["id"]


# --- change ----------------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["name", "alias"])
def test_changing_only_the_name_keeps_the_schema(discue: DiscueClient, word: str) -> None:
    queue = discue.new_queue(schema=SCHEMA)
    known = queue_of(discue, queue)
    name = new_name()
    changed = ok(discue.put(f"/queues/{queue}", {word: name}))
    assert changed == ok(discue.get(f"/queues/{queue}"))
    assert changed["queue"] == {
        **known,
        "name": name,
        "alias": name,
        "updated_at": changed["queue"]["updated_at"],
    }
    assert changed["queue"]["updated_at"] >= known["updated_at"]
    fail(discue.post(f"/queues/{queue}/messages", {"data": "{}"}), 422)


@pytest.mark.parametrize("content", [b"", b"{}"])
def test_changing_nothing_changes_nothing(discue: DiscueClient, content: bytes) -> None:
    queue = discue.new_queue(schema=SCHEMA)
    known = queue_of(discue, queue)
    headers = {"Content-Type": "application/json"}
    changed = ok(discue.put(f"/queues/{queue}", content=content, headers=headers))["queue"]
    assert {**changed, "updated_at": 0} == {**known, "updated_at": 0}


def test_changes_keep_what_other_dialects_have_set(discue: DiscueClient, server: Server) -> None:
    with server.client() as cloudflare:
        made = cloudflare.post("/queues", json={"queue_name": new_name()}).json()["result"]
        path = f"/queues/{made['queue_id']}"
        settings = {"delivery_delay": 7, "message_retention_period": 100_000}
        cloudflare.patch(path, json={"settings": settings}).raise_for_status()
        id = discue.queue_named(made["queue_name"])
        ok(discue.put(f"/queues/{id}", {"name": new_name(), "schema": SCHEMA}))
        found = cloudflare.get(path).json()["result"]["settings"]
        assert {name: found[name] for name in settings} == settings
        cloudflare.patch(path, json={"settings": {"delivery_delay": 1}}).raise_for_status()
        assert queue_of(discue, id)["schema"] == SCHEMA


# --- delete ----------------------------------------------------------------------------------


def test_deleting_a_queue_takes_everything_with_it(discue: DiscueClient) -> None:
    name = new_name()
    queue = discue.new_queue(name, schema=SCHEMA)
    schema = queue_of(discue, queue)["schema_id"]
    listener = discue.new_listener(queue, NOWHERE, status="disabled")["id"]
    message = discue.add(queue, '{"orderId":"1"}')
    answer = ok(discue.delete(f"/queues/{queue}"))
    assert list(answer) == ["_links"] and list(answer["_links"]) == ["self"]
    assert answer["_links"]["self"]["href"].endswith("/v1/queues")
    for path in ("", f"/messages/{message}", "/messages", f"/listeners/{listener}", "/listeners",
                 f"/schemas/{schema}"):  # fmt: skip
        fail(discue.get(f"/queues/{queue}{path}"), 404)
    fail(discue.delete(f"/queues/{queue}"), 404)
    fail(discue.post(f"/queues/{queue}/messages", {"data": "x"}), 404)
    assert queue not in ids_of(discue)
    assert message not in discue.get("/messages").text
    assert listener not in discue.get("/listeners").text
    # Neither comes back with a queue of the same name.
    again = discue.new_queue(name)
    assert again != queue
    assert discue.messages(again) == []
    assert ok(discue.get(f"/queues/{again}/listeners"))["listeners"] == []
    ok(discue.post(f"/queues/{again}/messages", {"data": "anything"}))
    fail(discue.get(f"/queues/{again}/schemas/{schema}"), 404)


def test_a_queue_that_others_bury_in_goes_too_and_they_keep_their_messages(
    discue: DiscueClient, server: Server
) -> None:
    with server.client() as cloudflare:
        source, dead = new_name("source"), new_name("dead")
        made = cloudflare.post("/queues", json={"queue_name": source}).json()["result"]
        consumer = {
            "type": "http_pull",
            "dead_letter_queue": dead,
            "settings": {"max_retries": 0, "visibility_timeout_ms": 30_000},
        }
        path = f"/queues/{made['queue_id']}"
        cloudflare.post(f"{path}/consumers", json=consumer).raise_for_status()
        names = {each["name"]: each["id"] for each in discue.queues()}
        ok(discue.delete(f"/queues/{names[dead]}"))
        message = discue.add(names[source], "kept")
        for _ in range(3):
            [got] = cloudflare.post(f"{path}/messages/pull", json={}).json()["result"]["messages"]
            retries = [{"lease_id": got["lease_id"], "delay_seconds": 0}]
            cloudflare.post(f"{path}/messages/ack", json={"retries": retries}).raise_for_status()
        assert discue.messages(names[source]) == [message]
