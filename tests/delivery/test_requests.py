"""The HTTP request that carries one message to one listener."""

import json
from typing import Any

import pytest
from msgspec.structs import replace
from standardwebhooks.webhooks import Webhook

from courier import ids
from courier.clock import SystemClock
from courier.core.lifecycle import NAME_HEADER
from courier.core.types import ContentType, Listener, Message, Queue
from courier.delivery import requests, secrets
from courier.delivery.transport import PushRequest

QUEUE = Queue(id=ids.new_id(), tenant="t", name="orders", created_ms=0, modified_ms=0)
LISTENER = Listener(
    id=ids.new_id(),
    tenant="t",
    parent=QUEUE.id,
    name=f"{QUEUE.id}/billing",
    created_ms=0,
    title="billing",
    modified_ms=0,
    url="https://app.example/hooks?x=1",
    liveness_url="https://app.example/live",
)
SECRET = secrets.new_secret()
JSON = "application/json; charset=utf-8"
TEXT = "text/plain; charset=utf-8"
OURS = {
    *("content-type", "webhook-id", "webhook-timestamp", "webhook-signature", "x-queue-id"),
    *("x-queue-name", "x-listener-id", "x-message-name", "x-delivery-id", "x-attempt"),
}


class Spelling:
    """How some dialect might name things."""

    def id(self, id: str) -> str:
        return shown(id)

    def name(self, queue: Queue, message: Message, id: str) -> str:
        name = (message.headers or {}).get(NAME_HEADER)
        return name if isinstance(name, str) else f"{queue.name}-1"


def shown(id: str) -> str:
    return id.removeprefix("c0").upper()


def message(
    body: bytes = b"{}",
    content_type: ContentType = "text",
    *,
    attempts: int = 1,
    headers: dict[str, Any] | None = None,
    own_id: str | None = None,
) -> Message:
    now_ms = SystemClock().now_ms()
    id = own_id or ids.message_id(published_ms=now_ms, seq=7, queue=QUEUE.id)
    return Message(7, id, now_ms, body, content_type, headers=headers, attempts=attempts)


def request(
    sent: Message,
    *,
    listener: Listener = LISTENER,
    queue: Queue = QUEUE,
    headers: dict[str, str] | None = None,
) -> PushRequest:
    prepared = requests.prepared(listener, queue, [SECRET], headers or {}, Spelling())
    return requests.request(
        listener, queue, sent, prepared, Spelling(), wall_ms=SystemClock().now_ms()
    )


def names(push: PushRequest) -> list[str]:
    """Of its headers, as the other side reads them."""
    return [name.lower() for name in all_headers(push)]


def all_headers(push: PushRequest) -> dict[str, str]:
    """All headers that are not the client's; none of those is there twice."""
    assert push.headers.keys().isdisjoint(push.target.headers)
    return {**push.target.headers, **push.headers}


def generated_id(sent: Message) -> str:
    return shown(ids.message_id(published_ms=sent.published_ms, seq=sent.seq, queue=QUEUE.id))


def test_it_has_the_messages_bytes_and_says_in_headers_what_they_are() -> None:
    sent = message(b' {"a":1} ', attempts=3, headers={NAME_HEADER: "order-7"})
    push = request(sent)
    assert (push.target.url, push.body, push.target.trusted) == (LISTENER.url, b' {"a":1} ', False)
    assert set(all_headers(push)) == OURS
    told = all_headers(push)
    Webhook(SECRET).verify(push.body, told)
    assert told["content-type"] == JSON
    assert told["webhook-id"] == generated_id(sent)
    assert told["x-queue-id"] == shown(QUEUE.id)
    assert told["x-queue-name"] == "orders"
    assert told["x-listener-id"] == shown(LISTENER.id)
    assert told["x-message-name"] == "order-7"
    assert told["x-attempt"] == "3"


def test_every_attempt_has_the_messages_id_and_one_of_its_own() -> None:
    sent = message()
    pushes = [request(replace(sent, attempts=attempt)) for attempt in (1, 2, 3)]
    assert len({all_headers(push)["webhook-id"] for push in pushes}) == 1
    assert len({all_headers(push)["x-delivery-id"] for push in pushes}) == 3
    assert [all_headers(push)["x-attempt"] for push in pushes] == ["1", "2", "3"]


def test_who_knows_listener_message_and_attempt_knows_the_id_of_the_delivery() -> None:
    sent = message(attempts=2)
    core_id = ids.message_id(published_ms=sent.published_ms, seq=sent.seq, queue=QUEUE.id)
    made = requests.delivery_id(LISTENER.id, core_id, 2)
    assert all_headers(request(sent))["x-delivery-id"] == shown(made)
    assert (len(made), made[:2]) == (32, "c0")
    others = {requests.delivery_id(ids.new_id(), core_id, 2), requests.delivery_id("", "", 2)}
    assert made not in others


def test_an_id_of_the_publishers_own_is_not_what_listeners_see() -> None:
    """It may be anything, and two messages may have it."""
    sent = message(own_id="chosen\r\nX-Evil: 1")
    assert all_headers(request(sent))["webhook-id"] == generated_id(sent)


@pytest.mark.parametrize(
    ("body", "content_type", "told"),
    [
        (b"{}", "text", JSON),
        (b"[1]", "text", JSON),
        (b'"text"', "text", JSON),
        (b"12.5e3", "text", JSON),
        (b"null", "text", JSON),
        (b" {} \n", "text", JSON),
        (b"{", "text", TEXT),
        (b"hello", "text", TEXT),
        (b"", "text", TEXT),
        (b"NaN", "text", TEXT),
        (b"{'a': 1}", "text", TEXT),
        (b'{"a": 1} x', "text", TEXT),
        ("ü".encode(), "text", TEXT),
        (b"[" * 100_000, "text", TEXT),
        (b"[" * 5_000 + b"]" * 5_000, "text", TEXT),
        (b"{}", "json", JSON),
        (b"\x00\xff", "bytes", "application/octet-stream"),
        (b"{}", "bytes", "application/octet-stream"),
    ],
)
def test_the_content_type_is_json_for_what_parses_as_json(
    body: bytes, content_type: ContentType, told: str
) -> None:
    push = request(message(body, content_type))
    assert push.body == body
    assert all_headers(push)["content-type"] == told


def test_an_envelope_says_in_its_body_what_the_headers_say() -> None:
    sent = message('{"a": "ü"}'.encode(), attempts=2, headers={NAME_HEADER: "order-7"})
    push = request(sent, listener=replace(LISTENER, envelope=True))
    assert all_headers(push)["content-type"] == JSON
    assert json.loads(push.body) == {
        "message": {
            "id": generated_id(sent),
            "name": "order-7",
            "created_at": sent.published_ms,
            "data": '{"a": "ü"}',
        },
        "queue": {"id": shown(QUEUE.id), "name": "orders"},
        "listener": {"id": shown(LISTENER.id), "name": "billing"},
        "attempt": 2,
    }
    Webhook(SECRET).verify(push.body, dict(all_headers(push)))


def test_bytes_in_an_envelope_are_base64_and_it_says_so() -> None:
    push = request(message(b"\x00\xff", "bytes"), listener=replace(LISTENER, envelope=True))
    told = json.loads(push.body)["message"]
    assert (told["data"], told["encoding"]) == ("AP8=", "base64")


def test_what_the_owner_wants_is_sent_along() -> None:
    push = request(message(), headers={"authorization": "Bearer t", "X-Shop": "7"})
    assert all_headers(push)["authorization"] == "Bearer t"
    assert all_headers(push)["X-Shop"] == "7"
    assert len(all_headers(push)) == len(OURS) + 2


@pytest.mark.parametrize(
    "name", [*sorted(OURS), "traceparent", "user-agent", "host", "content-length"]
)
@pytest.mark.parametrize("spelled", [str.lower, str.upper, str.title])
def test_what_the_owner_wants_never_overrides_ours(name: str, spelled: Any) -> None:
    sent = message(headers={"traceparent": "00-ours"})
    push = request(sent, headers={spelled(name): "theirs"})
    assert "theirs" not in all_headers(push).values()
    assert len(set(names(push))) == len(all_headers(push))


@pytest.mark.parametrize(
    "name",
    [
        *("transfer-encoding", "connection", "keep-alive", "upgrade", "te", "trailer", "expect"),
        *("proxy-authorization", "proxy-connection", "accept-encoding"),
    ],
)
def test_the_owner_has_no_say_in_how_the_connection_is_used(name: str) -> None:
    assert name not in names(request(message(), headers={name: "theirs"}))


def test_a_trace_is_passed_on() -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    assert all_headers(request(message(headers={"traceparent": trace})))["traceparent"] == trace
    assert "traceparent" not in all_headers(request(message()))


@pytest.mark.parametrize("trace", ["a\r\nx-evil: 1", "\x00", "ü", 7, None, ["a"], ""])
def test_what_cannot_be_a_trace_is_not_passed_on(trace: Any) -> None:
    assert "traceparent" not in all_headers(request(message(headers={"traceparent": trace})))


@pytest.mark.parametrize("name", ["a\r\nx-evil: 1", "tab\t", "\x00", "ümläut", "\x7f", "日本"])
def test_names_with_what_a_header_cannot_hold_are_quoted(name: str) -> None:
    """They can come from other dialects, which have other rules."""
    push = request(message(headers={NAME_HEADER: name}), queue=replace(QUEUE, name=name))
    for header in ("x-message-name", "x-queue-name"):
        value = all_headers(push)[header]
        assert value.isascii() and value.isprintable(), value
