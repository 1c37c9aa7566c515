"""Too much of everything, sent to the Anypoint APIs."""

import json

import pytest

from tests.attack.environment import Spot, accepted, body, complained

pytestmark = pytest.mark.slow

MIB = 1 << 20
REQUEST_BYTES_MAX = 64 * MIB
BODY_BYTES_MAX = 10 * MIB


def message(text: bytes) -> bytes:
    return b'{"body":"%s"}' % text


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


def test_message_of_just_the_limit_may_be_written_with_escapes(spot: Spot) -> None:
    """Six bytes for each of its own, which is the most that JSON can make of it."""
    written = message(b"\\u0041" * BODY_BYTES_MAX)
    assert len(written) < REQUEST_BYTES_MAX
    accepted(spot.broker.ask("PUT", f"/{spot.queue}/messages/m1", written), 201)
    assert got(spot, spot.queue) == ["A" * BODY_BYTES_MAX]


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
