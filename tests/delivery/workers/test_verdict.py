"""Pure: an answer, and what becomes of three messages."""

import json
from typing import Any

import pytest

from courier.core.types import DAY_MS, Ack, Message, Retry
from courier.delivery.calls import judge
from courier.delivery.transport import PushResult

MESSAGES = [Message(seq, id, 1, b"", "text", attempts=seq + 1) for seq, id in enumerate("abc")]
NONE = object()  # a retry without a delay of its own


def fates(status: int, words: dict[str, Any]) -> list[object]:
    """Of each message: "ack", the delay of its retry in ms, or NONE."""
    judged = judge(MESSAGES, PushResult(status, 1, body=json.dumps(words).encode()))
    found: list[object] = []
    for message, item in zip(MESSAGES, judged.settlements, strict=True):
        assert (item.seq, item.attempt) == (message.seq, message.attempts)
        if isinstance(item, Ack):
            assert item.late
            found.append("ack")
        else:
            assert isinstance(item, Retry)
            found.append(NONE if item.delay_ms is None else item.delay_ms)
    return found


@pytest.mark.parametrize(
    ("words", "success", "failure"),
    [
        ({}, ["ack", "ack", "ack"], [NONE, NONE, NONE]),
        ({"acks": ["b"]}, ["ack", "ack", "ack"], [NONE, "ack", NONE]),
        ({"retries": ["b"]}, ["ack", NONE, "ack"], [NONE, NONE, NONE]),
        (
            {"retries": [{"id": "b", "delay_seconds": 2}]},
            ["ack", 2_000, "ack"],
            [NONE, 2_000, NONE],
        ),
        ({"retries": ["b"], "delay_seconds": 3}, ["ack", 3_000, "ack"], [3_000, 3_000, 3_000]),
        ({"retry_all": True}, [NONE, NONE, NONE], [NONE, NONE, NONE]),
        ({"retry_all": False}, ["ack", "ack", "ack"], [NONE, NONE, NONE]),
        ({"retry_all": True, "delay_seconds": 0}, [0, 0, 0], [0, 0, 0]),
        ({"retry_all": True, "acks": ["c"]}, [NONE, NONE, "ack"], [NONE, NONE, "ack"]),
        ({"acks": ["a"], "retries": ["a"]}, ["ack", "ack", "ack"], ["ack", NONE, NONE]),
        (
            {"retries": [{"id": "a", "delay_seconds": 1}, {"id": "a", "delay_seconds": 9}, "a"]},
            [1_000, "ack", "ack"],
            [1_000, NONE, NONE],
        ),
        (
            {"retries": [{"id": "a", "delay_seconds": 0}], "delay_seconds": 7},
            [0, "ack", "ack"],
            [0, 7_000, 7_000],
        ),
        ({"retries": ["nobody"], "acks": ["nothing"]}, ["ack", "ack", "ack"], [NONE, NONE, NONE]),
        ({"acks": None, "retries": None, "other": [1]}, ["ack", "ack", "ack"], [NONE, NONE, NONE]),
        ({"retry_all": True, "delay_seconds": 0.25}, [250, 250, 250], [250, 250, 250]),
        ({"retry_all": True, "delay_seconds": -5}, [0, 0, 0], [0, 0, 0]),
        ({"retry_all": True, "delay_seconds": 1e300}, [DAY_MS] * 3, [DAY_MS] * 3),
    ],
)
def test_an_answer_settles_every_message(
    words: dict[str, Any], success: list[object], failure: list[object]
) -> None:
    assert fates(200, words) == success
    assert fates(500, words) == failure


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_two_hundreds_are_success(status: int) -> None:
    assert judge(MESSAGES, PushResult(status, 1)).outcome == "done"


@pytest.mark.parametrize("status", [100, 199, 300, 302, 400, 404, 429, 500, 599])
def test_everything_else_is_a_refusal(status: int) -> None:
    judged = judge(MESSAGES, PushResult(status, 1))
    assert (judged.outcome, judged.reason) == ("refused", f"answered {status}")
    assert judged.settlements == [Retry(m.seq, m.attempts) for m in MESSAGES]


def test_no_answer_retries_everything_whatever_came() -> None:
    judged = judge(MESSAGES, PushResult(0, 1, "reset", body=b'{"acks": ["a"]}'))
    assert (judged.outcome, judged.reason) == ("unanswered", "reset")
    assert judged.settlements == [Retry(m.seq, m.attempts) for m in MESSAGES]


@pytest.mark.parametrize("body", [b"", b" ", b"OK", b"null", b"[]", b'"{"', b"\xff", b"<p>"])
def test_a_body_that_is_no_object_says_nothing(body: bytes) -> None:
    assert judge(MESSAGES, PushResult(200, 1, body=body)).outcome == "done"


@pytest.mark.parametrize(
    "body",
    [
        b"{", b'\n {"acks"', b'{"acks": ["a"]} x', b'{"acks": "a"}', b'{"acks": [1]}',
        b'{"retries": {"id": "a"}}', b'{"retries": [{"delay_seconds": 1}]}', b'{"retries": [[]]}',
        b'{"retry_all": "yes"}', b'{"retry_all": 1}', b'{"delay_seconds": "1"}',
        b'{"delay_seconds": true}', b'{"delay_seconds": NaN}', b'{"delay_seconds": 1e999}',
        b'{"a":' * 10_000,
    ],
)  # fmt: skip
@pytest.mark.parametrize("status", [200, 500])
def test_an_object_that_cannot_be_understood_acks_nothing(status: int, body: bytes) -> None:
    judged = judge(MESSAGES, PushResult(status, 1, body=body))
    assert judged.outcome == "refused"
    assert "cannot be understood" in judged.reason
    assert judged.settlements == [Retry(m.seq, m.attempts) for m in MESSAGES]


def test_messages_of_one_id_share_their_fate() -> None:
    twins = [Message(seq, "same", 1, b"", "text", attempts=1) for seq in (1, 2)]
    judged = judge(twins, PushResult(200, 1, body=b'{"retries": ["same"]}'))
    assert judged.settlements == [Retry(1, 1), Retry(2, 1)]
