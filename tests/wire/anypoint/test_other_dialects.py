"""One queue through two dialects: what each makes of the other's messages and settings."""

import base64
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from courier.core import types as core
from courier.dialects.anypoint import wire
from courier.long_texts import LongTexts
from tests.server import Server
from tests.wire.anypoint.answers import fail, nothing
from tests.wire.anypoint.destination import Queue, bodies
from tests.wire.anypoint.waiter import Waiter

NOT_UTF_8 = b"\xff\xfe\x00bytes"


@pytest.fixture(scope="module")
def account(server: Server) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client


def call(account: httpx.Client, method: str, path: str, body: Any = None) -> Any:
    answer = account.request(method, path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()["result"]


@pytest.fixture
def path(account: httpx.Client, queue: Queue) -> str:
    """The queue as Cloudflare knows it, with a pull consumer."""
    [found] = account.get("/queues", params={"name": queue.name}).json()["result"]
    path = f"/queues/{found['queue_id']}"
    call(account, "POST", f"{path}/consumers", {"type": "http_pull"})
    return path


def test_texts_and_json_of_cloudflare(account: httpx.Client, queue: Queue, path: str) -> None:
    for sent in (
        {"body": "text", "content_type": "text"},
        {"body": {"a": [1, 2]}, "content_type": "json"},
    ):
        call(account, "POST", f"{path}/messages", sent)
    text, value = queue.get()
    assert (text.body, text.properties) == ("text", {})
    assert (value.body, value.properties) == ('{"a":[1,2]}', {"contentType": "application/json"})
    for message in (text, value):
        assert message.id and message.count == 1
        queue.ack(message)


def test_bytes_that_are_no_text_come_as_base64() -> None:
    """No dialect takes such bodies in by HTTP so far; what is stored may hold them."""
    queue = core.Queue(id="q", tenant="t", name="q", created_ms=0, modified_ms=0)
    message = core.Message(1, "m", 0, NOT_UTF_8, "bytes", attempts=1)
    found = wire.delivered(message, "lock", queue, LongTexts(0), visibility="full")
    assert found.headers["bodyEncoding"] == "base64"
    assert isinstance(found.body, str)
    assert base64.b64decode(found.body, validate=True) == NOT_UTF_8


def test_cloudflare_pulls_what_anypoint_published(
    account: httpx.Client, queue: Queue, path: str
) -> None:
    queue.publish("text", id="a/b", headers={"h": 1}, properties={"p": 2})
    [pulled] = call(account, "POST", f"{path}/messages/pull", {})["messages"]
    assert (pulled["id"], pulled["body"], pulled["attempts"]) == ("a/b", "text", 1)
    assert queue.get() == []
    retries = {"retries": [{"lease_id": pulled["lease_id"]}]}
    assert call(account, "POST", f"{path}/messages/ack", retries)["retryCount"] == 1
    again = queue.get_one()
    assert (again.count, again.headers["h"], again.properties) == (2, 1, {"p": 2})


def test_a_lock_of_one_dialect_is_none_of_the_other(
    account: httpx.Client, queue: Queue, path: str
) -> None:
    id = queue.publish("a")
    [pulled] = call(account, "POST", f"{path}/messages/pull", {})["messages"]
    fail(queue.delete_message(id, {"lockId": pulled["lease_id"]}), 400, id)
    assert call(account, "GET", f"{path}/metrics")["backlog_count"] == 1


def test_a_paused_queue_has_nothing_until_it_goes_on(
    account: httpx.Client, queue: Queue, path: str
) -> None:
    call(account, "PATCH", path, {"settings": {"delivery_paused": True}})
    queue.publish("a")
    nothing(queue.poll(pollingTime=0))
    nothing(queue.poll(pollingTime=100))
    waiter = Waiter(queue, pollingTime=20_000)
    time.sleep(0.1)
    started = time.monotonic()
    call(account, "PATCH", path, {"settings": {"delivery_paused": False}})
    assert waiter.message().body == "a"
    assert time.monotonic() - started < 2


def test_a_frozen_queue_is_unavailable_to_publishers_only(
    operator: httpx.Client, queue: Queue
) -> None:
    queue.publish("before")
    frozen = f"/tenants/default/queues/{queue.name}/frozen"
    assert operator.put(frozen, json={"frozen": True}).is_success
    response = queue.put("m", {"body": "a"})
    fail(response, 503, "m")
    assert int(response.headers["retry-after"]) > 0
    fail(queue.put_batch([{"body": "a"}]), 503)
    assert bodies(queue.get()) == ["before"]
    assert operator.put(frozen, json={"frozen": False}).is_success
    queue.publish("after")


def test_a_retry_delay_of_cloudflare_is_not_for_nacks(
    account: httpx.Client, queue: Queue, path: str
) -> None:
    [consumer] = call(account, "GET", f"{path}/consumers")
    body = {"type": "http_pull", "settings": {"retry_delay": 600}}
    call(account, "PUT", f"{path}/consumers/{consumer['consumer_id']}", body)
    queue.publish("a")
    queue.nack(queue.get_one())
    assert queue.get_one().count == 2
