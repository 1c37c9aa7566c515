"""Requests as clients really send them: labels, empty bodies, numbers, slashes, sizes."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.server import Server
from tests.wire.cloudflare import shapes
from tests.wire.cloudflare.endpoints import BY_NAME, ENDPOINTS
from tests.wire.cloudflare.envelope import fail, ok
from tests.wire.cloudflare.queue import Queue, new_name

WITH_BODY = tuple(endpoint for endpoint in ENDPOINTS if endpoint.body is not None)


def test_a_body_may_come_in_chunks_of_unknown_length(queue: Queue) -> None:
    def chunks() -> Iterator[bytes]:
        yield b'{"body": "in '
        yield b'two parts", "content_type": "text"}'

    ok(queue.http.post(queue.at("/messages"), content=chunks()))
    assert queue.peek()[0]["body"] == "in two parts"


def test_a_missing_body_counts_as_an_empty_object(pull_queue: Queue) -> None:
    for path in ("/messages/pull", "/messages/ack", "/messages/peek", "/purge"):
        for headers in ({}, {"Content-Type": "application/json"}):
            ok(pull_queue.http.post(pull_queue.at(path), headers=headers))


def test_a_purge_by_reference_without_a_body_lacks_its_refs(queue: Queue) -> None:
    assert "refs" in fail(queue.http.post(queue.at("/messages/purge")), 400, 10207)


def test_a_missing_body_is_not_json_where_one_is_needed(standing_queue: Queue) -> None:
    needed = ("create_queue", "put_queue", "patch_queue", "create_consumer", "put_consumer")
    for name in (*needed, "push", "push_batch"):
        response = BY_NAME[name].send(
            standing_queue.http, {"queue": standing_queue.id}, content=b""
        )
        fail(response, 400, 10026 if name in needed else 10208)


def test_a_body_that_is_not_json_is_refused(standing_queue: Queue, subscription: str) -> None:
    """In the code of its route; what is not JSON is tried in tests/attack."""
    places = {"queue": standing_queue.id, "subscription": subscription}
    for endpoint in WITH_BODY:
        response = endpoint.send(standing_queue.http, places, content=b"{")
        code = 0 if endpoint.family == "subscriptions" else 10026
        fail(response, 400, 10208 if endpoint.name in ("push", "push_batch") else code)


@pytest.fixture(scope="module")
def subscription(http: httpx.Client) -> str:
    """The id of a subscription."""
    queue = Queue.create(http)
    created = ok(BY_NAME["create_subscription"].send(http, {"queue": queue.id}))
    subscription_id: str = created["id"]
    return subscription_id


@pytest.mark.parametrize("number", ["2", "2.0", "2e0", "20e-1", "0.2E1", "2.000"])
def test_a_number_with_no_fraction_is_an_integer_however_it_is_written(
    http: httpx.Client, number: str
) -> None:
    name = new_name()
    content = f'{{"queue_name": "{name}", "settings": {{"delivery_delay": {number}}}}}'.encode()
    created = ok(http.post("/queues", content=content))
    shapes.check_queue(created)
    assert created["settings"]["delivery_delay"] == 2
    queue = Queue(http, created["queue_id"], name)
    content = f'{{"type": "http_pull", "settings": {{"batch_size": {number}}}}}'.encode()
    consumer = ok(http.post(queue.at("/consumers"), content=content))
    shapes.check_consumer(consumer)
    assert consumer["settings"]["batch_size"] == 2
    for _ in range(3):
        ok(http.post(queue.at("/messages"), content=b'{"body": 1, "delay_seconds": 0.0}'))
    content = f'{{"batch_size": {number}, "visibility_timeout_ms": 60000.0}}'.encode()
    pulled = ok(http.post(queue.at("/messages/pull"), content=content))
    assert len(pulled["messages"]) == 2


FLOATS: list[tuple[str, str, Any]] = [
    ("PATCH", "", {"settings": {"delivery_delay": 0.0, "message_retention_period": 3600.0}}),
    ("PUT", "", {"settings": {"delivery_delay": 86400.0}}),
    ("POST", "/messages", {"body": 1, "delay_seconds": 2.0}),
    ("POST", "/messages/batch", {"messages": [{"body": 1, "delay_seconds": 2.0}]}),
    ("POST", "/messages/batch", {"messages": [{"body": 1}], "delay_seconds": 0.0}),
    ("POST", "/messages/pull", {"batch_size": 5.0, "visibility_timeout_ms": 1000.0}),
    ("POST", "/messages/pull", {"visibility_timeout": 1000.0}),
    ("POST", "/messages/ack", {"retries": [{"lease_id": "x", "delay_seconds": 10.0}]}),
    ("POST", "/messages/peek", {"batch_size": 5.0}),
]


@pytest.mark.parametrize(("method", "path", "body"), FLOATS)
def test_floats_without_a_fraction_are_accepted(
    pull_queue: Queue, method: str, path: str, body: Any
) -> None:
    ok(pull_queue.http.request(method, pull_queue.at(path), json=body))


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PATCH", "", {"x": 1, "settings": {"x": 1, "delivery_delay": 0}}),
        ("PUT", "", {"x": [], "settings": {"x": {}}}),
        ("POST", "/messages", {"body": 1, "x": 1}),
        ("POST", "/messages/batch", {"messages": [{"body": 1, "x": 1}], "x": 1}),
        ("POST", "/messages/pull", {"x": 1}),
        ("POST", "/messages/ack", {"acks": [{"lease_id": "y", "x": 1}], "x": 1}),
        ("POST", "/messages/ack", {"retries": [{"lease_id": "y", "x": 1}]}),
        ("POST", "/messages/peek", {"x": 1}),
        ("POST", "/messages/purge", {"refs": [{"ref": "y", "x": 1}], "x": 1}),
        ("POST", "/purge", {"delete_messages_permanently": True, "x": 1}),
    ],
)
def test_unknown_fields_are_ignored_at_every_level(
    pull_queue: Queue, method: str, path: str, body: Any
) -> None:
    result = ok(pull_queue.http.request(method, pull_queue.at(path), json=body))
    assert "x" not in result


def test_unknown_fields_are_ignored_when_something_is_created(http: httpx.Client) -> None:
    queue = Queue.create(http, x=1, settings={"x": 1})
    consumer = {"type": "http_pull", "x": 1, "settings": {"x": 1}}
    shapes.check_consumer(ok(queue.post("/consumers", consumer)))
    subscription = {
        "x": 1,
        "events": ["namespace.created"],
        "source": {"type": "kv"},
        "destination": {"type": "queues.queue", "queue_id": queue.id, "x": 1},
    }
    created = ok(http.post("/event_subscriptions/subscriptions", json=subscription))
    shapes.check_subscription(created)


def test_repeated_slashes_count_as_one(
    server: Server, token: str, account: str, queue: Queue
) -> None:
    headers = {"Authorization": f"Bearer {token}"}
    with httpx.Client(headers=headers, trust_env=False, verify=False) as client:
        for prefix in ("/client/v4//accounts", "//client/v4/accounts", "/client//v4///accounts"):
            url = f"{server.url}{prefix}/{account}//queues//{queue.id}"
            assert ok(client.get(url))["queue_name"] == queue.name


def test_headers_of_the_official_clients_are_ignored(queue: Queue) -> None:
    headers = {
        "api-version": "2026-11-16",
        "x-stainless-lang": "python",
        "x-stainless-retry-count": "0",
        "Cf-Trace-Id": "0123456789abcdef",
        "Accept-Language": "*",
        "Sec-Fetch-Mode": "cors",
        "Accept-Encoding": "gzip, deflate",
    }
    shapes.check_queue(ok(queue.http.get(queue.at(), headers=headers)))


def test_a_body_nobody_asked_for_is_ignored(queue: Queue) -> None:
    for method, path in (("GET", ""), ("GET", "/metrics"), ("GET", "/consumers"), ("DELETE", "")):
        assert queue.http.request(method, queue.at(path), content=b"{").status_code == 200
