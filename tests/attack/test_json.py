"""Bodies that are not JSON, or that are JSON nobody sane would send."""

import base64

import pytest

from tests.attack.peer import accepted
from tests.attack.target import Target

PUSH = "/messages"
LONE = b"\\ud800"


def test_lone_surrogate_inside_a_json_message_does_no_harm(target: Target) -> None:
    answer = target.post(PUSH, b'{"body":{"a":"%s"}}' % LONE)
    assert answer.status in (200, 400)
    assert len(target.pull()) == target.backlog() == (answer.status == 200)


@pytest.mark.parametrize("levels", [500, 100_000])
def test_deep_nesting_inside_a_message_is_kept_or_refused(target: Target, levels: int) -> None:
    deep = b"[" * levels + b"]" * levels
    answer = target.post(PUSH, b'{"body":%s}' % deep)
    assert answer.status in (200, 400, 413)
    for message in target.pull():
        assert base64.b64decode(message["body"]) == deep
    assert target.backlog() == (answer.status == 200)


def test_key_given_twice_inside_a_message_is_the_publishers_business(target: Target) -> None:
    accepted(target.post(PUSH, b'{"body":{"a":1,"a":2}}'))
    assert base64.b64decode(target.pull()[0]["body"]) == b'{"a":1,"a":2}'
