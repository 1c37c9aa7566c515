"""Bodies of the Discue API that are not JSON, or JSON that nobody sane would send."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.attack.discue import Discue, Spot, accepted, body, listens, refused, settle_down
from tests.attack.test_anypoint_json import BROKEN, WHOLE

DEEP = 100_000
LONE = b'"\\ud800"'


@pytest.fixture
def spot(discue: Discue, queue_name: str) -> Spot:
    return settle_down(discue, queue_name)


def takers(spot: Spot) -> Iterator[tuple[str, str]]:
    """Method and path of every request that takes a body."""
    for method, path, told in spot.requests():
        if isinstance(told, dict):
            yield method, path
    yield from (("POST", f"/{kind}") for kind in ("queues", "domains", "api_keys"))


@pytest.mark.parametrize(
    "broken", [*WHOLE, *[each.replace(b"%s", b"{}") for each in BROKEN if each]]
)
def test_what_is_not_a_json_object_is_refused_everywhere(spot: Spot, broken: bytes) -> None:
    before = spot.discue.everything()
    for method, path in takers(spot):
        refused(spot.discue.ask(method, path, broken), 400, 422)
    assert spot.discue.everything() == before


@pytest.mark.parametrize("value", [b"[]", b"null", b"1", b'"{}"', b"true", b"[{}]"])
def test_json_that_is_no_object_is_refused_everywhere(spot: Spot, value: bytes) -> None:
    before = spot.discue.everything()
    for method, path in takers(spot):
        refused(spot.discue.ask(method, path, value), 400)
    assert spot.discue.everything() == before


@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
@pytest.mark.parametrize("closed", [True, False])
def test_deep_nesting_is_refused_everywhere(spot: Spot, opening: bytes, closed: bool) -> None:
    closing = {b"[": b"]", b'{"a":': b"}"}[opening] * DEEP if closed else b""
    deep = opening * DEEP + (b"1" if closed else b"") + closing
    for method, path in takers(spot):
        answer = spot.discue.ask(method, path, b'{"name": "deep-one", "more": ' + deep + b"}")
        refused(answer, 400, 413, 422)


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


def test_half_of_a_surrogate_pair_is_refused(spot: Spot) -> None:
    messages = f"/queues/{spot.queue}/messages"
    before = spot.discue.everything()
    for told in (
        b'{"data": ' + LONE + b"}",
        b'{"data": "{\\"a\\": \\"b\\"}", "name": ' + LONE + b"}",
    ):
        refused(spot.discue.ask("POST", messages, told), 400, 422)
    assert spot.discue.everything() == before


@pytest.mark.parametrize(
    "told",
    [
        b'{"data": "{\\"a\\": \\"b\\"}", "data": "{\\"a\\": \\"c\\"}"}',
        b'{"name": "one-name", "name": "two-name", "data": "{\\"a\\": \\"b\\"}"}',
        b'{"name": "one-name", "alias": "two-name", "data": "{\\"a\\": \\"b\\"}"}',
    ],
)
def test_a_member_given_twice_is_refused(spot: Spot, told: bytes) -> None:
    before = spot.discue.everything()
    refused(spot.discue.ask("POST", f"/queues/{spot.queue}/messages", told), 400, 422)
    assert spot.discue.everything() == before


@pytest.mark.parametrize("data", [b"1", b"null", b"{}", b"[]", b"true", b'""', b"1e999"])
def test_data_that_is_no_text_is_refused(spot: Spot, data: bytes) -> None:
    told = b'{"data": ' + data + b"}"
    refused(spot.discue.ask("POST", f"/queues/{spot.queue}/messages", told), 400, 422)


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
