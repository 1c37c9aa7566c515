"""Pure: a batch as a worker is sent it."""

import json

import pytest
from standardwebhooks.webhooks import Webhook

from courier.clock import SystemClock
from courier.core.types import ContentType, Message, Queue
from courier.delivery import calls, secrets

QUEUE = Queue(id="c0" + "1" * 30, tenant="t", name="orders", created_ms=1, modified_ms=1)


@pytest.mark.parametrize(
    ("kind", "body", "shown"),
    [
        ("text", b"", '""'),
        ("text", 'a "word"\n\u2028'.encode(), '"a \\"word\\"\\n\u2028"'),
        ("json", b"null", "null"),
        ("json", b'{"b":1.10,"a":1e400,"b":2}', '{"b":1.10,"a":1e400,"b":2}'),
        ("json", b'"\\ud800"', '"\\ud800"'),
        ("bytes", b"\x00\xff", '"AP8="'),
        ("bytes", b"", '""'),
    ],
)
def test_a_body_is_shown_by_its_content_type(kind: ContentType, body: bytes, shown: str) -> None:
    message = Message(7, "id-7", 1_000, body, kind, attempts=2)
    assert calls.batch_body(QUEUE, [message]).decode() == (
        '{"queue":"orders","messages":[{"id":"id-7","timestamp_ms":1000,"attempts":2,'
        f'"content_type":"{kind}","body":{shown}}}]}}'
    )


def test_headers_of_a_message_are_its_metadata() -> None:
    messages = [
        Message(1, "a", 1, b"", "text", headers={"n": 1, "s": "é"}),
        Message(2, "b", 1, b"", "text", headers={}),
    ]
    first, second = json.loads(calls.batch_body(QUEUE, messages))["messages"]
    assert first["metadata"] == {"n": 1, "s": "é"}
    assert "metadata" not in second


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("orders", "orders"),
        ("a.b/c@eu-west-1", "a.b/c@eu-west-1"),
        ("é\r\nx: y", "%C3%A9%0D%0Ax%3A%20y"),
    ],
)
def test_a_queues_name_fits_into_its_header(name: str, shown: str) -> None:
    queue = Queue(id=QUEUE.id, tenant="t", name=name, created_ms=1, modified_ms=1)
    made = calls.batch_headers(queue, [secrets.new_secret()], id="i", at_ms=1, body=b"")
    assert made["x-courier-queue"] == shown


def test_a_batch_is_signed_with_every_secret() -> None:
    keys = [secrets.new_secret(), secrets.new_secret()]
    body = calls.batch_body(QUEUE, [Message(1, "a", 1, b"x", "text")])
    now_ms = SystemClock().now_ms()
    made = calls.batch_headers(QUEUE, keys, id="batch-1", at_ms=now_ms, body=body)
    assert made["webhook-id"] == "batch-1"
    for secret in keys:
        assert Webhook(secret).verify(body, made)["queue"] == "orders"
