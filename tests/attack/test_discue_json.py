"""Bodies of the Discue API that are not JSON, or JSON that nobody sane would send."""

from typing import Any

import pytest

from tests.attack.discue import Discue, Spot, accepted, body, listens, refused, settle_down

LONE = b'"\\ud800"'


@pytest.fixture
def spot(discue: Discue, queue_name: str) -> Spot:
    return settle_down(discue, queue_name)


@pytest.mark.parametrize(
    "schema",
    [
        b'{"a":' * 200 + b"1" + b"}" * 200,
        b'{"a":{"type":"object","props":' * 50 + b"{}" + b"}}" * 50,
        b'{"a":{"type":"string","pattern":"(a+)+$"},"b":{"type":"string","pattern":"(?=x)"}}',
        b'{"a":{"type":"string","pattern":"' + b"(" * 250 + b'"}}',
        b'{"a":{"type":"string","pattern":"a{1,1000}{1,1000}{1,1000}"}}',
        b'{"a":{"type":"number","min":1e999}}',
        b'{"a":{"type":"string","max":-1,"min":1e400}}',
        b'{"a":{"type":"string","enum":[' + LONE + b"]}}",
        b'{"a":[]}',
        b'{"":{}}',
        b"[]",
        b"7",
    ],
)
def test_a_schema_that_makes_no_sense_or_too_much_of_it_is_refused(
    spot: Spot, schema: bytes
) -> None:
    told = b'{"name": "odd-schema", "schema": ' + schema + b"}"
    refused(spot.discue.ask("POST", "/queues", told), 400, 422)
    refused(spot.discue.ask("PUT", f"/queues/{spot.queue}", told), 400, 422)


WRONG: dict[str, list[Any]] = {
    "timeout_ms": [0, -1, 999, 30_001, 1 << 63, 1.5, "1000", True, []],
    "max_attempts": [0, -1, 12, 1 << 63, 1.5, "3", False],
    "ordered": [0, "true", [], {}],
    "body": ["", "RAW", 1, []],
    "status": ["", "on", True, 1],
    "headers": [
        *([], "x", {"a": 1}, {"": "x"}, {"a b": "x"}, {"a": "\r\n"}, {"x": "a\nb: c"}),
        *({"x": "v" * 100_000}, {"webhook-id": "mine"}, {"Host": "elsewhere"}),
        {f"x-{number}": "v" for number in range(21)},
    ],
    "auth": [
        *("x", [], {"type": "x"}, {"type": "bearer"}, {"type": "basic"}),
        {"type": "bearer", "token": "a\r\nx: y"},
        {"type": "basic", "username": "a:b", "password": "c"},
    ],
}


@pytest.mark.parametrize(
    ("field", "value"), [(field, value) for field, values in WRONG.items() for value in values]
)
def test_a_listeners_setting_of_the_wrong_kind_is_refused(
    spot: Spot, field: str, value: Any
) -> None:
    before = spot.discue.everything()
    told = body({**listens("odd-one"), field: value})
    refused(spot.discue.ask("POST", f"/queues/{spot.queue}/listeners", told), 400, 422)
    path = f"/queues/{spot.queue}/listeners/{spot.listener}"
    refused(spot.discue.ask("PUT", path, body({field: value})), 400, 422)
    assert spot.discue.everything() == before


def test_the_spot_takes_what_is_good(spot: Spot) -> None:
    """Else all of the above would be refused for another reason."""
    told = {**listens("good-one"), "timeout_ms": 1_000, "max_attempts": 3, "headers": {"x": "y"}}
    accepted(spot.discue.ask("POST", f"/queues/{spot.queue}/listeners", body(told)))
    good = body({"data": '{"a": "b"}'})
    accepted(spot.discue.ask("POST", f"/queues/{spot.queue}/messages", good))
