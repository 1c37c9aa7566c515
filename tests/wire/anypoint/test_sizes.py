"""How large a message and a request may be, and how much a queue may hold."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.server import Server
from tests.wire.anypoint.answers import fail, ok, result, results
from tests.wire.anypoint.destination import Exchange, Queue, bodies
from tests.wire.anypoint.environment import Environment, root_client

BODY_BYTES_MAX = 10_485_760
REQUEST_BYTES_MAX = 64 << 20
HEADERS_BYTES_MAX = 1 << 20


def largest(character: str) -> str:
    """A text of just as many bytes as a body may have."""
    return character * (BODY_BYTES_MAX // len(character.encode()))


# A letter, one of two bytes, one of four, and one that JSON writes with six characters.
@pytest.mark.parametrize(
    "character", ["x", "é", "🚚", pytest.param("\x01", marks=pytest.mark.slow)]
)
def test_a_body_may_have_so_many_bytes_and_no_more(queue: Queue, character: str) -> None:
    body = largest(character)
    queue.publish(body, id="m")
    found = queue.get_one()
    assert found.body == body
    text = fail(queue.put("n", {"body": body + "x"}), 413, "n")
    assert str(BODY_BYTES_MAX) in text
    assert queue.get() == []


def test_a_body_too_long_for_an_exchange_is_too_long(exchange: Exchange, queue: Queue) -> None:
    exchange.bind(queue)
    fail(exchange.put("m", {"body": largest("x") + "x"}), 413, "m")
    assert queue.get() == []


def test_a_batch_with_a_body_too_long_is_refused_as_a_whole(queue: Queue) -> None:
    items = [
        {"headers": {"messageId": "1"}, "body": "small"},
        {"headers": {"messageId": "2"}, "body": largest("x") + "x"},
        {"headers": {"messageId": "3"}, "body": 5},
        {"headers": {"messageId": "4"}, "body": "small"},
    ]
    answered = results(queue.put_batch(items), 413)
    assert [(each["messageId"], each["status"]) for each in answered] == [
        (id, "failure") for id in "1234"
    ]
    assert queue.get() == []


@pytest.mark.slow
def test_a_batch_may_hold_several_of_the_largest_bodies(queue: Queue) -> None:
    body = largest("x")
    assert queue.publish_batch([body] * 3)
    # An answer holds no more than fits, and at least one.
    bodies: list[str | None] = []
    while found := queue.get():
        bodies += [message.body for message in found]
    assert [each == body for each in bodies] == [True] * 3


@pytest.mark.slow
@pytest.mark.parametrize("path", ["", "/m"])
def test_a_request_may_have_so_many_bytes_and_no_more(queue: Queue, path: str) -> None:
    """What is over is padding: it is the request that is too large, and not the message."""

    def padded(size: int) -> bytes:
        message = json.dumps({"headers": {"messageId": "m"}, "body": "b"})
        text = f"[{message}]" if not path else message
        return text.encode() + b" " * (size - len(text))

    id = "m" if path else None
    too_much = queue.env.broker("PUT", queue.at(path), content=padded(REQUEST_BYTES_MAX + 1))
    fail(too_much, 413, id)
    assert queue.get() == []
    enough = queue.env.broker("PUT", queue.at(path), content=padded(REQUEST_BYTES_MAX))
    assert enough.is_success, enough.text
    assert bodies(queue.get()) == ["b"]


def test_a_request_of_unknown_length_is_cut_at_the_same_size(queue: Queue) -> None:
    def parts() -> Iterator[bytes]:
        yield b'{"body":"b"}'
        for _ in range(65):
            yield b" " * (1 << 20)

    response = queue.put("m", content=parts())
    fail(response, 413, "m")
    assert queue.get() == []


@pytest.mark.parametrize("place", ["headers", "properties"])
def test_headers_have_a_limit_of_their_own(queue: Queue, place: str) -> None:
    good: dict[str, Any] = {place: {"long": "y" * (HEADERS_BYTES_MAX - 100)}, "body": "b"}
    result(queue.put("m", good), "m", 201)
    found = queue.get_one()
    assert getattr(found, place)["long"] == good[place]["long"]
    fail(queue.put("n", {place: {"long": "y" * HEADERS_BYTES_MAX}}), 413, "n")
    answered = results(queue.put_batch([{place: {"long": "y" * HEADERS_BYTES_MAX}}]), 413)
    assert [each["status"] for each in answered] == ["failure"]
    assert queue.get() == []


# --- a server with small queues ---

QUEUE_BYTES_MAX = 1_000


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    """An environment whose queues hold little."""
    server = Server(
        tmp_path_factory.mktemp("narrow"),
        env={"COURIER_QUEUE_BYTES_MAX": str(QUEUE_BYTES_MAX)},
    ).start()
    with root_client(server.url) as http:
        yield Environment.of(http, server.credentials)
    server.stop()


def test_a_full_queue_takes_nothing_until_there_is_room(narrow: Environment) -> None:
    queue = Queue.create(narrow)
    queue.publish("x" * QUEUE_BYTES_MAX)
    response = queue.put("m", {"body": "x"})
    assert "queue bytes" in fail(response, 429, "m")
    assert int(response.headers["retry-after"]) > 0
    fail(queue.put_batch([{"body": "x"}]), 429)
    queue.ack(queue.get_one())
    queue.publish("room")
    assert bodies(queue.get()) == ["room"]


def test_a_batch_that_does_not_fit_is_not_stored_in_part(narrow: Environment) -> None:
    queue = Queue.create(narrow)
    fail(queue.put_batch([{"body": "x" * 400}] * 3), 429)
    assert queue.get() == []


@pytest.mark.parametrize("full_one", [0, 1, 2])
@pytest.mark.parametrize("batch", [False, True])
def test_one_full_queue_keeps_the_message_from_all(
    narrow: Environment, full_one: int, batch: bool
) -> None:
    exchange = Exchange.create(narrow)
    queues = [Queue.create(narrow) for _ in range(3)]
    for queue in queues:
        exchange.bind(queue)
    queues[full_one].publish("x" * 900)
    message = {"headers": {"messageId": "m"}, "body": "y" * 150}
    if batch:
        fail(exchange.put_batch([{"body": "tiny"}, message]), 429)
    else:
        fail(exchange.put("m", message), 429, "m")
    for number, queue in enumerate(queues):
        assert bodies(queue.get()) == (["x" * 900] if number == full_one else [])
    path = f"{narrow.stats_path}/queues?destinationIds={','.join(q.name for q in queues)}"
    numbers = ok(narrow.call("GET", path, token=narrow.tokens.user))
    totals = [each["messages"] + each["inflightMessages"] for each in numbers]
    assert totals == [int(number == full_one) for number in range(3)]


def test_a_rule_that_does_not_hold_needs_no_room(narrow: Environment) -> None:
    exchange = Exchange.create(narrow)
    full, free = Queue.create(narrow), Queue.create(narrow)
    full.publish("x" * QUEUE_BYTES_MAX)
    exchange.bind(free)
    rule = {"propertyName": "k", "propertyType": "STRING", "matcherType": "EQ", "value": "v"}
    exchange.bind(full, rule)
    exchange.publish("b")
    assert bodies(free.get()) == ["b"]
