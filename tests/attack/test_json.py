"""Bodies that are not JSON, or that are JSON nobody sane would send."""

import base64

import pytest

from tests.attack.peer import accepted
from tests.attack.target import Target

PUSH = "/messages"
BATCH = "/messages/batch"
LONE = b"\\ud800"
EXACT = [
    b"1e400",
    b"-1e400",
    b"1e-400",
    b"1" + b"0" * 400,
    b"-0",
    b"-0.0",
    b"1.10",
    b"1E+2",
    b"12345678901234567890.12345678901234567890",
    b"9" * 5_000,
    b"0." + b"3" * 5_000,
]


def test_surrogate_pair_is_one_character(target: Target) -> None:
    accepted(target.post(PUSH, b'{"body":"\\ud83d\\ude00","content_type":"text"}'))
    assert target.pull()[0]["body"] == "\U0001f600"


def test_lone_surrogate_inside_a_json_message_does_no_harm(target: Target) -> None:
    answer = target.post(PUSH, b'{"body":{"a":"%s"}}' % LONE)
    assert answer.status in (200, 400)
    assert len(target.pull()) == target.backlog() == (answer.status == 200)


@pytest.mark.parametrize("levels", [500, 5_000, 60_000, 100_000])
def test_deep_nesting_inside_a_message_is_kept_or_refused(target: Target, levels: int) -> None:
    deep = b"[" * levels + b"]" * levels
    answer = target.post(PUSH, b'{"body":%s}' % deep)
    assert answer.status in (200, 400, 413)
    for message in target.pull():
        assert base64.b64decode(message["body"]) == deep
    assert target.backlog() == (answer.status == 200)


@pytest.mark.parametrize(
    "number",
    EXACT,
    ids=lambda number: number[:12],
)
def test_number_inside_a_message_keeps_its_exact_text(target: Target, number: bytes) -> None:
    accepted(target.post(PUSH, b'{"body":%s}' % number))
    accepted(target.post(PUSH, b'{"body":{"n": [%s]}}' % number))
    assert [base64.b64decode(message["body"]) for message in target.pull()] == [
        number,
        b'{"n":[%s]}' % number,
    ]


@pytest.mark.parametrize("number", [b"2.0", b"2e0", b"20e-1", b"0.2e1", b"2.000000000000000"])
def test_number_without_a_fraction_is_whole_however_it_is_written(
    target: Target, number: bytes
) -> None:
    accepted(target.post(BATCH, b'{"messages":[{"body":1},{"body":2},{"body":3}]}'))
    assert (
        len(accepted(target.post("/messages/pull", b'{"batch_size":%s}' % number))["messages"]) == 2
    )


def test_key_given_twice_inside_a_message_is_the_publishers_business(target: Target) -> None:
    accepted(target.post(PUSH, b'{"body":{"a":1,"a":2}}'))
    assert base64.b64decode(target.pull()[0]["body"]) == b'{"a":1,"a":2}'
