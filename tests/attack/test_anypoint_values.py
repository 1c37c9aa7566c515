"""Values in the bodies of the Anypoint APIs that nobody could mean, or that mean something else."""

import pytest

from tests.attack.environment import Spot, accepted, body, refused

HUGE = [
    *(b"1e400", b"-1e400", b"1" + b"0" * 25, b"-1" + b"0" * 25, b"1" + b"0" * 400, b"9" * 5_000),
    *(b"9223372036854775808", b"18446744073709551615", b"18446744073709551616"),
    *(b"0." + b"3" * 5_000, b"12345678901234567890.12345678901234567890"),
]


def stored_nothing(spot: Spot) -> None:
    assert spot.backlog() == 0


@pytest.mark.parametrize("number", HUGE, ids=lambda number: number[:12])
def test_number_of_any_size_is_kept_or_refused(spot: Spot, number: bytes) -> None:
    """Never changed into another whole number, and what is accepted can be got again."""
    place = b"properties"
    message = b'{"%s":{"n":%s},"body":"x"}' % (place, number)
    for destination in spot.destinations():
        queue = spot.queue if destination == spot.exchange else destination
        before = spot.backlog()
        answer = spot.broker.ask("PUT", f"/{destination}/messages/m1", message)
        if answer.status != 201:
            refused(answer, 400)
            assert spot.backlog() == before
            continue
        [found] = spot.get(queue)
        kept = found[place.decode()]["n"]
        if number.lstrip(b"-").isdigit() and len(number) < 4_000:
            assert kept == int(number), f"{number!r} became {kept}"
        else:
            assert float(kept) == float(number)
        lock = found["headers"]["lockId"]
        path = f"/{queue}/messages/m1"
        accepted(spot.broker.ask("DELETE", path, body({"lockId": lock})))


def test_field_given_twice_in_a_batch_spoils_its_own_message_only(spot: Spot) -> None:
    batch = b'[{"body":"a","body":"b"},{"body":"good"}]'
    answer = spot.broker.ask("PUT", f"/{spot.line}/messages", batch)
    if answer.status != 400:
        results = accepted(answer)
        assert [result["status"] for result in results] == ["failure", "successful"], results
        assert "body" in results[0]["statusMessage"]
    assert [found["body"] for found in spot.get(spot.line)] == ["good"] * (answer.status == 200)


@pytest.mark.parametrize(
    "headers",
    [
        b'"messageGroupId":"a","messageGroupId":"b"',
        b'"messageGroupId":"a","messageGroup\\u0049d":"b"',
        b'"ttl":1000000,"ttl":1',
        b'"messageId":"a","messageId":"b"',
    ],
)
def test_header_with_a_meaning_given_twice_is_refused(spot: Spot, headers: bytes) -> None:
    """Which of the two was meant is anybody's guess, and order or life depend on it."""
    message = b'{"headers":{%s},"body":"x"}' % headers
    if b"messageId" not in headers:  # the path's wins, however many there are
        refused(spot.broker.ask("PUT", f"/{spot.line}/messages/m1", message), 400)
    answer = spot.broker.ask("PUT", f"/{spot.line}/messages", b"[%s]" % message)
    assert answer.status == 400 or answer.json()[0]["status"] == "failure", answer
    stored_nothing(spot)


def test_names_that_mean_something_to_python_are_names_like_others(spot: Spot) -> None:
    odd = {"__class__": 1, "__proto__": {"a": 1}, "constructor": "x", "": 0, "a.b": [None, True]}
    for destination in (spot.queue, spot.line):
        spot.publish(destination, "m1", {"properties": odd, "headers": odd, "body": ""})
        [found] = spot.get(destination)
        assert found["properties"] == odd
        assert {name: found["headers"][name] for name in odd} == odd


def test_answer_is_json_whatever_stands_in_a_message(spot: Spot) -> None:
    """Every character there is, in every place where a publisher may put it."""
    for start in (0, 0x80, 0x2000, 0xD7F0, 0xE000, 0xFFF0, 0x1F600, 0x10FFF0):
        text = "".join(
            chr(code) for code in range(start, start + 0x10) if not 0xD800 <= code < 0xE000
        )
        message = {"body": text, "properties": {text: text}, "headers": {text: text}}
        spot.publish(spot.queue, text or "x", message)
        [found] = spot.get(spot.queue)
        assert found["headers"]["messageId"] == text
        assert found["body"] == text and found["properties"] == {text: text}
        assert found["headers"][text] == text
