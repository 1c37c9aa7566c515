"""What a listener is sent."""

import base64
import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from courier import __version__
from tests.clients.discue import ok
from tests.delivery import receiver as answers
from tests.delivery.listeners.organization import PushQueue, organization_of
from tests.delivery.receiver import Received, Receiver
from tests.server import Server

DATA = [
    "{}",
    ' { "a" : 1.50 , "a" : 2 }\r\n',
    "plain",
    "ümläut € 🦆",
    " ",
    "\t\r\n\x00\x7f",
    "a" * 200_000,
    "null",
]


def verify(request: Received, secret: str) -> None:
    Webhook(secret).verify(request.body, request.headers, json_parse=False)


@pytest.mark.parametrize("data", DATA, ids=range(len(DATA)))
def test_the_body_is_the_messages_data_byte_by_byte_and_a_stock_library_verifies_it(
    queue: PushQueue, receiver: Receiver, data: str
) -> None:
    listener = queue.listen("/hook")
    queue.add(data)
    [request] = receiver.wait("/hook", 1)
    assert request.body == data.encode()
    verify(request, listener.secret)
    with pytest.raises(WebhookVerificationError):
        verify(request, "whsec_" + base64.b64encode(b"another" * 5).decode())


def test_headers_say_what_is_sent_and_why(queue: PushQueue, receiver: Receiver) -> None:
    listener = queue.listen("/hook?tenant=7")
    message = queue.add('{"a": 1}', name="order-7")
    began_s = time.time()
    [request] = receiver.wait("/hook?tenant=7", 1)
    headers = request.headers
    assert request.method == "POST"
    assert headers.pop("host") == f"127.0.0.1:{receiver.port}"
    assert headers.pop("content-length") == "8"
    assert headers.pop("webhook-signature").startswith("v1,")
    assert abs(int(headers.pop("webhook-timestamp")) - began_s) < 10
    assert len(headers.pop("x-delivery-id")) == 21
    assert headers.pop("accept") == "*/*"
    headers.pop("accept-encoding", None)
    assert headers == {
        "content-type": "application/json; charset=utf-8",
        "user-agent": f"Courier/{__version__}",
        "webhook-id": message,
        "x-attempt": "1",
        "x-listener-id": listener.id,
        "x-message-name": "order-7",
        "x-queue-id": queue.id,
        "x-queue-name": queue.name,
    }


def test_an_envelope_has_the_data_and_what_it_is(queue: PushQueue, receiver: Receiver) -> None:
    receiver.on("/hook", answers.status(500), answers.OK)
    listener = queue.listen("/hook", body="envelope")
    message = queue.add('{"a": "ü"}', name="order-7")
    first, second = receiver.wait("/hook", 2)
    for attempt, request in enumerate((first, second), 1):
        verify(request, listener.secret)
        assert request.headers["content-type"] == "application/json; charset=utf-8"
        assert json.loads(request.body) == {
            "message": {
                "id": message,
                "name": "order-7",
                "created_at": queue.message(message)["created_at"],
                "data": '{"a": "ü"}',
            },
            "queue": {"id": queue.id, "name": queue.name},
            "listener": {"id": listener.id, "name": listener.name},
            "attempt": attempt,
        }


def test_every_attempt_is_signed_anew_under_the_same_id(
    queue: PushQueue, receiver: Receiver
) -> None:
    receiver.on("/hook", answers.retry_after("1"), answers.OK)
    listener = queue.listen("/hook")
    message = queue.add("hello")
    first, second = receiver.wait("/hook", 2)
    assert {each.headers["webhook-id"] for each in (first, second)} == {message}
    assert first.headers["x-delivery-id"] != second.headers["x-delivery-id"]
    assert int(first.headers["webhook-timestamp"]) < int(second.headers["webhook-timestamp"])
    verify(first, listener.secret)
    verify(second, listener.secret)


def test_a_private_address_is_refused_unless_the_operator_allows_it(
    start: Callable[..., Server], receiver: Receiver
) -> None:
    """Listeners made while it was allowed get nothing once it is not."""
    server = start("--push-networks", "127.0.0.0/8", "--push-delay-percent", "1", usual=False)
    with organization_of(server, receiver) as organization:
        queue = organization.queue()
        by_address = queue.listen("/address", max_attempts=1)
        by_name = queue.listen(f"http://localhost:{receiver.port}/name", max_attempts=1)
        message = queue.add("allowed")
        by_address.wait(message, "acknowledged")
        by_name.wait(message, "acknowledged")

        server.args = ["--push-delay-percent", "1"]
        server.restart()
        message = queue.add("refused")
        for listener in (by_address, by_name):
            delivery = listener.wait(message, "exhausted")
            assert "not a public address" in delivery["last_error"]
            assert not delivery["last_status"]
        for url in (receiver.url("/x"), "http://localhost/x", "http://169.254.169.254/x"):
            body: dict[str, Any] = {"name": "more", "notify_url": url, "liveness_url": url}
            answer = organization.client.post(f"{queue.path}/listeners", body)
            assert answer.status_code == 422, answer.text
    assert receiver.bodies("/address") == receiver.bodies("/name") == ["allowed"]


def test_a_listener_may_bring_its_own_secret(queue: PushQueue, receiver: Receiver) -> None:
    own, next_one = (f"whsec_{base64.b64encode(key * 32).decode()}" for key in (b"k", b"n"))
    listener = queue.listen("/hook", signing_secret=own)
    assert listener.secret == own
    queue.add("one")
    verify(receiver.wait("/hook", 1)[0], own)
    client = queue.organization.client
    rotated = ok(client.post(f"{listener.path}/rotate_secret", {"signing_secret": next_one}))
    assert rotated["listener"]["signing_secret"] == next_one
    queue.add("two")
    for secret in (own, next_one):
        verify(receiver.wait("/hook", 2)[1], secret)
    assert client.put(listener.path, {"signing_secret": own}).status_code == 422
