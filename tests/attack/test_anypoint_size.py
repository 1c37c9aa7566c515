"""Too much of everything, sent to the Anypoint APIs."""

import json
from collections.abc import Iterator

import pytest

from tests.attack.environment import Spot, accepted, body, complained, refused
from tests.attack.peer import Answer, Peer

pytestmark = pytest.mark.slow

MIB = 1 << 20
REQUEST_BYTES_MAX = 64 * MIB
BODY_BYTES_MAX = 10 * MIB
HEADERS_BYTES_MAX = MIB
PIECE = b"x" * (64 << 10)


def chunks(total: int) -> Iterator[bytes]:
    """A JSON string that goes on and on."""
    yield b'10\r\n{"body":"xxxxxxx\r\n'
    for _ in range(total // len(PIECE)):
        yield b"%x\r\n%s\r\n" % (len(PIECE), PIECE)


def message(text: bytes) -> bytes:
    return b'{"body":"%s"}' % text


def failed(answer: Answer, count: int) -> list[str]:
    """A batch that is too large fails as one; the sentences of its items."""
    assert answer.status == 413, answer.status
    results = answer.json()
    assert len(results) == count
    assert {result["status"] for result in results} == {"failure"}
    return [result["statusMessage"] for result in results]


def got(spot: Spot, queue: str) -> list[str]:
    """The bodies of all messages, which are then gone."""
    bodies: list[str] = []
    while found := spot.get(queue):
        for each in found:
            bodies.append(each["body"])
            headers = each["headers"]
            path = f"/{queue}/messages/{headers['messageId']}"
            accepted(spot.broker.ask("DELETE", path, body({"lockId": headers["lockId"]})))
    return bodies


def test_body_of_unknown_length_is_cut_off_at_the_cap(spot: Spot) -> None:
    sent = 0
    head = spot.broker.head("PUT", f"/{spot.line}/messages/m1", "Transfer-Encoding: chunked")
    with Peer(spot.environment.server) as peer:
        peer.send(head + b"\r\n")
        for chunk in chunks(3 * REQUEST_BYTES_MAX):
            if peer.answered(within_s=0) or not peer.send(chunk):
                break
            sent += len(chunk)
        refused(peer.answer(), 413)
        assert peer.hung_up()
    assert sent < 2 * REQUEST_BYTES_MAX
    assert spot.backlog() == 0


def test_message_of_just_the_limit_may_be_written_with_escapes(spot: Spot) -> None:
    """Six bytes for each of its own, which is the most that JSON can make of it."""
    written = message(b"\\u0041" * BODY_BYTES_MAX)
    assert len(written) < REQUEST_BYTES_MAX
    accepted(spot.broker.ask("PUT", f"/{spot.queue}/messages/m1", written), 201)
    assert got(spot, spot.queue) == ["A" * BODY_BYTES_MAX]


def test_batch_of_large_messages_within_the_cap_is_stored(spot: Spot) -> None:
    text = b"x" * (6 * MIB)
    batch = b"[%s]" % b",".join([message(text)] * 10)
    assert len(batch) < REQUEST_BYTES_MAX
    results = accepted(spot.broker.ask("PUT", f"/{spot.exchange}/messages", batch))
    assert [result["status"] for result in results] == ["successful"] * 10
    assert spot.backlog() == 10
    [first] = accepted(spot.broker.ask("GET", f"/{spot.queue}/messages?pollingTime=0"))
    assert first["body"] == text.decode()
    path = f"/destinations/queues/{spot.queue}/messages"
    assert spot.environment.admin.ask("DELETE", path).status == 204


@pytest.mark.parametrize("place", ["headers", "properties"])
def test_headers_and_properties_over_the_limit_are_refused(spot: Spot, place: str) -> None:
    for values in (
        {"a": "x" * HEADERS_BYTES_MAX},
        {"x" * HEADERS_BYTES_MAX: 1},
        {f"name-{number}": number for number in range(80_000)},
        {"a": "\u20ac" * (HEADERS_BYTES_MAX // 3 + 1)},
    ):
        asked = {place: values, "body": "x"}
        for destination in spot.destinations():
            path = f"/{destination}/messages"
            refused(spot.broker.ask("PUT", f"{path}/m1", body(asked)), 413)
            failed(spot.broker.ask("PUT", path, body([{"body": "x"}, asked])), 2)
    assert spot.backlog() == 0
    spot.publish(spot.line, "m1", {place: {"a": "x" * (HEADERS_BYTES_MAX - 1_000)}, "body": ""})
    assert spot.backlog() == 1


def test_very_many_properties_do_not_break_the_rules(spot: Spot) -> None:
    """A rule sees none of so many, so its binding takes nothing; without one it takes all."""
    path = f"/bindings/exchanges/{spot.exchange}/queues/{spot.queue}/rules/routing"
    rule = {"propertyName": "n1", "propertyType": "NUMERIC", "matcherType": "EQ", "value": 1}
    accepted(spot.environment.admin.ask("PUT", path, body({"routingRules": [rule]})), 201)
    many = {f"n{number}": number for number in range(30_000)}
    spot.publish(spot.exchange, "many", {"properties": many, "body": ""})
    spot.publish(spot.exchange, "few", {"properties": {"n1": 1}, "body": ""})
    assert [found["headers"]["messageId"] for found in spot.get(spot.queue)] == ["few"]


def test_rule_whose_text_invites_a_slow_match_is_answered_at_once(spot: Spot) -> None:
    """Allowed characters up to the last, which is not."""
    path = f"/bindings/exchanges/{spot.exchange}/queues/{spot.queue}/rules/routing"
    rule = {"propertyName": "a", "propertyType": "STRING", "matcherType": "EQ"}
    for text in ("a " * 250_000 + "\\", " " * 500_000 + "^", "\u00e4" * 100_000 + "~"):
        asked = body({"routingRules": [{**rule, "value": text}]})
        complained(spot.environment.admin.ask("PUT", path, asked), 400)


def test_answer_of_many_large_messages_is_whole(spot: Spot) -> None:
    texts = [f"{number}" * 900_000 for number in range(10)]
    for number, text in enumerate(texts):
        spot.publish(spot.line, f"m{number}", {"body": text})
    answer = spot.broker.ask("GET", f"/{spot.line}/messages?batchSize=10&pollingTime=0")
    assert [found["body"] for found in json.loads(answer.body)] == texts
