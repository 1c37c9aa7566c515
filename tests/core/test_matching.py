"""Which messages a search finds: a pure rule."""

import pytest

from courier import ids
from courier.core.matching import Sought, matcher
from courier.core.types import Message

QUEUE = "c0" + "1" * 30


@pytest.mark.parametrize(
    ("text", "path", "found"),
    [
        ("c00042", "", True),
        ("blue", "", True),
        ("own-id", "", True),
        ("c0", "", True),
        ("nowhere", "", False),
        ("c00042", "customer.id", True),
        ("2", "list.1", True),
        ("2", "list.9", False),
        ("2", "list.x", False),
        ("c00042", "customer", False),
        ("true", "flag", True),
    ],
)
def test_a_message_matches_by_body_headers_or_id(text: str, path: str, found: bool) -> None:
    body = b'{"customer": {"id": "c00042"}, "list": [1, 2], "flag": true}'
    message = Message(1, "own-id-1", 1_794_950_030_000, body, "json", {"colour": "blue"})
    assert matcher(QUEUE, Sought(text, path))(message) is found


def test_a_generated_id_matches_as_a_whole() -> None:
    id = ids.message_id(published_ms=1_794_950_030_000, seq=1, queue=QUEUE)
    message = Message(1, id, 1_794_950_030_000, b"", "text")
    assert matcher(QUEUE, Sought(id))(message) is True
    assert matcher(QUEUE, Sought(id[2:9]))(message) is False


def test_a_body_too_long_to_parse_or_deeply_nested_has_no_value() -> None:
    for body in (b'{"a": "' + b"x" * (1 << 20) + b'"}', b"[" * 100_000):
        assert matcher(QUEUE, Sought("x", "a"))(Message(1, "own", 1, body, "json")) is False
