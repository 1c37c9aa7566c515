"""Pushing one message: what is stored, what is refused."""

import json
from typing import Any

import httpx
import pytest

from tests.wire.cloudflare.envelope import fail, ok
from tests.wire.cloudflare.queue import Queue, new_name, unfolded

BODY_BYTES_MAX = 128_000
# Each as it is sent and as it must be stored.
JSON_TEXTS = [
    ("0", "0"),
    ("-0", "-0"),
    ("0.0", "0.0"),
    ("-0.0", "-0.0"),
    ("1.10", "1.10"),
    ("1e2", "1e2"),
    ("1E2", "1E2"),
    ("1E+2", "1E+2"),
    ("1e-7", "1e-7"),
    ("1e400", "1e400"),
    ("12345678901234567890", "12345678901234567890"),
    ("-12345678901234567890", "-12345678901234567890"),
    ("123456789012345678901234567890.123456789", "123456789012345678901234567890.123456789"),
    ("0.1000000000000000055511151231257827", "0.1000000000000000055511151231257827"),
    ("null", "null"),
    ("true", "true"),
    ("false", "false"),
    ('""', '""'),
    ('"a JSON string"', '"a JSON string"'),
    ('"  spaces \u00a0 stay  "', '"  spaces \u00a0 stay  "'),
    ('"été 😀"', '"été 😀"'),
    ("[]", "[]"),
    ("{}", "{}"),
    (" [ ] ", "[]"),
    ("{ }", "{}"),
    ("[\n\t1,\r\n 2 , 3 ]", "[1,2,3]"),
    ('{"b": 1, "a": 2, "c": 0}', '{"b":1,"a":2,"c":0}'),
    ('{ "z" : { "y" : [ 1.50 , { "x" : null } ] } }', '{"z":{"y":[1.50,{"x":null}]}}'),
    ('{"10": 1, "9": 2, "1": 3}', '{"10":1,"9":2,"1":3}'),
    ('[" [ 1 , 2 ] ", "{ }", ":", " , "]', '[" [ 1 , 2 ] ","{ }",":"," , "]'),
]


@pytest.mark.parametrize(
    ("path", "form"), [("", '{"body":%s}'), ("/batch", '{"messages":[{"body":%s}]}')]
)
@pytest.mark.parametrize(("sent", "stored"), JSON_TEXTS)
def test_json_is_stored_compact_with_its_numbers_and_key_order_kept(
    pull_queue: Queue, sent: str, stored: str, path: str, form: str
) -> None:
    content = form.replace("%s", sent).encode()
    pushed = ok(pull_queue.http.post(pull_queue.at(f"/messages{path}"), content=content))
    assert pushed["metadata"]["metrics"]["backlog_bytes"] == len(stored.encode())
    message = pull_queue.pull_one()
    assert message["metadata"]["CF-Content-Type"] == "json"
    assert unfolded(message) == stored


@pytest.mark.parametrize(
    "sent",
    [
        *(r'"\u00e9\ud83d\ude00"', r'"\"\\\/\b\f\n\r\t"', r'"\u0000\u001f"'),
        *(r'{"k\u00e9y \" : [ 1 , 2 ]": "\\"}', r'"\\\" , \\"'),
    ],
)
def test_escaped_json_text_keeps_its_meaning(pull_queue: Queue, sent: str) -> None:
    pull_queue.push_json(sent)
    assert json.loads(unfolded(pull_queue.pull_one())) == json.loads(sent)


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "plain", '{"not": "json here"}', "line\nbreak\r\n\ttab", "\x00\x01\x1f\x7f"),
        *("été", "日本語", "😀👩‍👩‍👧", '"quoted" \\ back', "\u2028\u2029\ufeff"),
    ],
    ids=ascii,
)
def test_text_is_stored_as_it_is(pull_queue: Queue, text: str) -> None:
    metrics = pull_queue.push(text)
    assert (metrics["backlog_count"], metrics["backlog_bytes"]) == (1, len(text.encode()))
    message = pull_queue.pull_one()
    assert message["body"] == text
    assert message["metadata"]["CF-Content-Type"] == "text"


def test_a_message_is_json_unless_it_says_otherwise(pull_queue: Queue) -> None:
    ok(pull_queue.post("/messages", {"body": "a string"}))
    ok(pull_queue.post("/messages", {"body": "a string", "content_type": "json"}))
    for message in pull_queue.pull():
        assert message["metadata"]["CF-Content-Type"] == "json"
        assert unfolded(message) == '"a string"'


def test_the_answer_counts_the_message_just_written(pull_queue: Queue) -> None:
    first = pull_queue.push("12345")
    assert (first["backlog_count"], first["backlog_bytes"]) == (1, 5)
    second = pull_queue.push("678", delay_seconds=600)
    assert (second["backlog_count"], second["backlog_bytes"]) == (2, 8)
    message = pull_queue.pull_one()
    for metrics in (first, second):
        assert metrics["oldest_message_timestamp_ms"] == message["timestamp_ms"]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"content_type": "json"},
        {"messages": [{"body": "wrapped"}]},
        {"Body": "wrong case"},
        {"body": 5, "content_type": "text"},
        {"body": {"a": 1}, "content_type": "text"},
    ],
)
def test_a_message_without_a_fitting_body_is_refused(standing_queue: Queue, body: Any) -> None:
    assert "body" in fail(standing_queue.post("/messages", body), 400, 10207)
    assert standing_queue.backlog() == 0


@pytest.mark.parametrize("kind", ["bytes", "v8", "xml", "TEXT", "application/json", ""])
def test_another_content_type_than_text_and_json_is_refused(
    standing_queue: Queue, kind: Any
) -> None:
    response = standing_queue.post("/messages", {"body": "a", "content_type": kind})
    assert "content_type" in fail(response, 400, 10203)
    assert standing_queue.backlog() == 0


@pytest.mark.parametrize("delay", [0, 1, 86_400])
def test_a_delay_within_its_limits_is_accepted(queue: Queue, delay: int) -> None:
    assert queue.push("a", delay_seconds=delay)["backlog_count"] == 1


@pytest.mark.parametrize("delay", [-1, 86_401])
def test_a_delay_beyond_its_limits_is_refused(standing_queue: Queue, delay: Any) -> None:
    response = standing_queue.post("/messages", {"body": "a", "delay_seconds": delay})
    assert "delay_seconds" in fail(response, 400, 10203)
    assert standing_queue.backlog() == 0


# Sizes count what is stored, neither characters nor what was sent.
LARGEST = {
    "ascii": ("text", "x" * BODY_BYTES_MAX),
    "two bytes each": ("text", "é" * (BODY_BYTES_MAX // 2)),
    "four bytes each": ("text", "😀" * (BODY_BYTES_MAX // 4)),
    "json string": ("json", "x" * (BODY_BYTES_MAX - 2)),
    "json array": ("json", ["x" * (BODY_BYTES_MAX - 4)]),
}


@pytest.mark.parametrize(("kind", "body"), LARGEST.values(), ids=LARGEST.keys())
def test_the_largest_message_is_accepted(pull_queue: Queue, kind: str, body: Any) -> None:
    result = ok(pull_queue.post("/messages", {"body": body, "content_type": kind}))
    assert result["metadata"]["metrics"]["backlog_bytes"] == BODY_BYTES_MAX
    message = pull_queue.pull_one()
    assert (message["body"] if kind == "text" else json.loads(unfolded(message))) == body


@pytest.mark.parametrize(("kind", "body"), LARGEST.values(), ids=LARGEST.keys())
def test_one_byte_more_than_the_largest_message_is_refused(
    standing_queue: Queue, kind: str, body: Any
) -> None:
    larger = [body[0] + "x"] if isinstance(body, list) else body + "x"
    response = standing_queue.post("/messages", {"body": larger, "content_type": kind})
    assert "128000" in fail(response, 413, 10204).replace(",", "")
    assert standing_queue.backlog() == 0


def test_the_largest_message_may_be_sent_in_a_longer_form(pull_queue: Queue) -> None:
    escaped = b'{"content_type": "text", "body": "' + rb"\u0061" * BODY_BYTES_MAX + b'"}'
    result = ok(pull_queue.http.post(pull_queue.at("/messages"), content=escaped))
    assert result["metadata"]["metrics"]["backlog_bytes"] == BODY_BYTES_MAX
    spaced = b'{"body": [' + b" " * 2 * BODY_BYTES_MAX + b"1 ]}"
    result = ok(pull_queue.http.post(pull_queue.at("/messages"), content=spaced))
    assert result["metadata"]["metrics"]["backlog_bytes"] == BODY_BYTES_MAX + 3


def test_the_same_idempotency_key_stores_one_message(pull_queue: Queue) -> None:
    headers = {"Idempotency-Key": new_name("key")}
    path = pull_queue.at("/messages")
    for _ in range(3):
        ok(pull_queue.http.post(path, json={"body": "once"}, headers=headers))
    assert pull_queue.backlog() == 1
    other = {"Idempotency-Key": new_name("key")}
    ok(pull_queue.http.post(path, json={"body": "once"}, headers=other))
    assert pull_queue.backlog() == 2


def test_an_idempotency_key_covers_a_whole_batch(pull_queue: Queue) -> None:
    headers = {"Idempotency-Key": new_name("key")}
    body = {"messages": [{"body": 1}, {"body": 2}]}
    for _ in range(2):
        ok(pull_queue.http.post(pull_queue.at("/messages/batch"), json=body, headers=headers))
    assert [unfolded(message) for message in pull_queue.pull()] == ["1", "2"]


def test_a_frozen_queue_refuses_messages_until_it_thaws(
    operator: httpx.Client, pull_queue: Queue
) -> None:
    pull_queue.push("before")
    frozen = f"/tenants/default/queues/{pull_queue.name}/frozen"
    assert operator.put(frozen, json={"frozen": True}).is_success
    fail(pull_queue.post("/messages", {"body": 1}), 429, 10252)
    fail(pull_queue.post("/messages/batch", {"messages": [{"body": 1}]}), 429, 10252)
    # What is wrong with the request comes before the state of the queue.
    fail(pull_queue.post("/messages", {}), 400, 10207)
    message = pull_queue.pull_one()
    assert message["body"] == "before"
    assert pull_queue.settle(acks=[message["lease_id"]])["ackCount"] == 1
    assert operator.put(frozen, json={"frozen": False}).is_success
    assert pull_queue.push("after")["backlog_count"] == 1
