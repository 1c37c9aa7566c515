"""Bodies of the Anypoint APIs that are not JSON, or that are JSON nobody sane would send."""

import pytest

from tests.attack.environment import Spot, accepted, complained, refused
from tests.attack.requests import all_bodies, all_settings, settings

# %s stands for a value in a place where one belongs.
BROKEN = [
    b"\xff",
    b"\xff%s",
    b"%s\xff",
    b'"\xff"',
    b'"\xc0\xaf"',
    b'"\xed\xa0\x80"',
    b'"\xf4\x90\x80\x80"',
    b'"\xe2\x82"',
    b"NaN",
    b"Infinity",
    b"-Infinity",
    b"[NaN]",
    b"01",
    b".5",
    b"1.",
    b"+1",
    b"0x10",
    b"tru",
    b"[1,]",
    b'{"a":1,}',
    b"{a:1}",
    b"'text'",
    b'"\x00"',
    b'"\n"',
    b'"\\x41"',
    b'"\\u12"',
    b'"open',
    b"",
]
WHOLE = [
    b"\xef\xbb\xbf{}",
    "{}".encode("utf-16"),
    "{}".encode("utf-32"),
    b"{",
    b"{}}",
    b"{} x",
    b"{}{}",
    b"[]]",
    b"/* */{}",
    b"{}\x00",
    b"body=1",
    b"\x1f\x8b\x08\x00",
    b"<body>1</body>",
    b"\xff\xfe\x00\x01" * 100,
]
LONE = b"\\ud800"


def stored_nothing(spot: Spot) -> None:
    assert spot.backlog() == 0


@pytest.mark.parametrize("broken", BROKEN, ids=repr)
def test_message_that_is_not_json_is_refused(spot: Spot, broken: bytes) -> None:
    good = b'{"headers":{"x":%s},"properties":{"y":%s},"body":"text"}'
    value = broken.replace(b"%s", b"1")
    for destination in spot.destinations():
        path = f"/{destination}/messages"
        for places in ((value, b"1"), (b"1", value)):
            bad = good % places
            refused(spot.broker.ask("PUT", f"{path}/m1", bad), 400)
            refused(spot.broker.ask("PUT", path, b"[%s]" % bad), 400)
            refused(spot.broker.ask("PUT", path, b"[%s,%s]" % (good % (b"1", b"1"), bad)), 400)
        refused(spot.broker.ask("PUT", f"{path}/m1", b'{"body":%s}' % value), 400)
    stored_nothing(spot)


@pytest.mark.parametrize("whole", WHOLE, ids=lambda whole: repr(whole[:20]))
def test_what_is_not_json_is_refused_everywhere(spot: Spot, whole: bytes) -> None:
    before = settings(spot)
    for method, path in all_bodies(spot):
        refused(spot.broker.ask(method, path, whole), 400)
    for method, path in all_settings(spot):
        complained(spot.environment.admin.ask(method, path, whole), 400)
    stored_nothing(spot)
    assert settings(spot) == before


@pytest.mark.parametrize("value", [b"null", b'"text"', b"1", b"true", b"[[]]", b"[null]", b"[1]"])
def test_body_of_another_shape_is_refused(spot: Spot, value: bytes) -> None:
    before = settings(spot)
    for method, path in all_bodies(spot):
        refused(spot.broker.ask(method, path, value), 400)
    for method, path in all_settings(spot):
        complained(spot.environment.admin.ask(method, path, value), 400)
    stored_nothing(spot)
    assert settings(spot) == before


@pytest.mark.parametrize("items", [0, 11, 1_000, 20_000])
def test_batch_of_the_wrong_size_is_refused(spot: Spot, items: int) -> None:
    locks = b"[%s]" % b",".join([b'{"messageId":"m","lockId":"l","ttl":1}'] * items)
    messages = b"[%s]" % b",".join([b'{"body":"m"}'] * items)
    for destination in spot.destinations():
        path = f"/{destination}/messages"
        refused(spot.broker.ask("PUT", path, messages), 400)
        refused(spot.broker.ask("DELETE", path, locks), 400)
        refused(spot.broker.ask("DELETE", f"{path}/locks", locks), 400)
        refused(spot.broker.ask("PATCH", f"{path}/locks", locks), 400)
    stored_nothing(spot)


@pytest.mark.parametrize(
    "message",
    [
        b'{"body":"%s"}',
        b'{"body":"before %s after"}',
        b'{"body":"\\udc00\\ud800%s"}',
        b'{"body":"x","properties":{"a":"%s"}}',
        b'{"body":"x","properties":{"%s":"a"}}',
        b'{"body":"x","properties":{"a":{"b":["%s"]}}}',
        b'{"body":"x","headers":{"a":"%s"}}',
        b'{"body":"x","headers":{"%s":"a"}}',
        b'{"body":"x","headers":{"messageGroupId":"%s"}}',
        b'{"body":"x","headers":{"messageId":"%s"}}',
        b'{"body":"x","headers":{"ttl":"%s"}}',
        b'{"body":"x","headers":{"deliveryDelay":"%s"}}',
    ],
)
def test_half_of_a_surrogate_pair_is_refused(spot: Spot, message: bytes) -> None:
    """It is no text and so no JSON, in whatever place and however good the rest is."""
    lone = message % LONE
    for destination in spot.destinations():
        path = f"/{destination}/messages"
        refused(spot.broker.ask("PUT", f"{path}/m1", lone), 400)
        refused(spot.broker.ask("PUT", path, b"[%s]" % lone), 400)
        refused(spot.broker.ask("PUT", path, b'[{"body":"good"},%s]' % lone), 400)
    stored_nothing(spot)


def test_half_of_a_surrogate_pair_settles_nothing(spot: Spot) -> None:
    lock = spot.lock(spot.line, "m1").encode()
    path = f"/{spot.line}/messages"
    for message, lone in ((b"m1", LONE), (LONE, lock), (LONE, LONE)):
        item = b'[{"messageId":"%s","lockId":"%s","ttl":1}]' % (message, lone)
        for method, where in (("DELETE", ""), ("DELETE", "/locks"), ("PATCH", "/locks")):
            answer = spot.broker.ask(method, path + where, item)
            if answer.status == 200:
                assert [result["status"] for result in answer.json()] == ["failure"]
            else:
                refused(answer, 400)
    refused(spot.broker.ask("DELETE", f"{path}/m1", b'{"lockId":"%s"}' % LONE), 400)
    assert spot.backlog() == 1
    accepted(spot.broker.ask("DELETE", f"{path}/m1", b'{"lockId":"%s"}' % lock))


def test_half_of_a_surrogate_pair_in_a_setting_is_refused(spot: Spot) -> None:
    admin = spot.environment.admin
    before = settings(spot)
    queue = f"/destinations/queues/{spot.queue}"
    rules = f"/bindings/exchanges/{spot.exchange}/queues/{spot.queue}/rules/routing"
    clients = f"//mq/admin/api/v1{spot.environment.place}/clients"
    rule = b'{"propertyName":"%s","propertyType":"STRING","matcherType":"%s","value":%s}'
    for method, path, value in (
        ("PUT", queue, b'{"deadLetterQueueId":"%s"}' % LONE),
        ("PATCH", queue, b'{"deadLetterQueueId":"%s"}' % LONE),
        ("PUT", queue, b'{"defaultTtl":"%s"}' % LONE),
        ("PUT", clients, b'{"name":"%s"}' % LONE),
        ("PUT", rules, b'{"routingRules":[%s]}' % (rule % (LONE, b"EQ", b'"a"'))),
        ("PUT", rules, b'{"routingRules":[%s]}' % (rule % (b"a", b"EQ", b'"%s"' % LONE))),
        ("PUT", rules, b'{"routingRules":[%s]}' % (rule % (b"a", b"ANY_OF", b'["%s"]' % LONE))),
    ):
        complained(admin.ask(method, path, value), 400)
    assert settings(spot) == before


def test_surrogate_pair_is_one_character(spot: Spot) -> None:
    face = b"\\ud83d\\ude00"
    message = b'{"body":"%s","properties":{"%s":"%s"}}' % (face, face, face)
    accepted(spot.broker.ask("PUT", f"/{spot.line}/messages/%F0%9F%98%80", message), 201)
    [found] = spot.get(spot.line)
    assert found["headers"]["messageId"] == found["body"] == "\U0001f600"
    assert found["properties"] == {"\U0001f600": "\U0001f600"}


@pytest.mark.parametrize("levels", [500, 5_000, 60_000, 100_000])
@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}"), (b"[", b"")])
def test_deep_nesting_where_it_means_nothing_is_refused(
    spot: Spot, levels: int, opening: bytes, closing: bytes
) -> None:
    deep = opening * levels + b"1" + closing * levels
    for destination in spot.destinations():
        path = f"/{destination}/messages"
        refused(spot.broker.ask("PUT", f"{path}/m1", b'{"body":%s}' % deep), 400)
        refused(spot.broker.ask("PUT", path, b'[{"body":"x"},%s,3]' % deep), 400)
        refused(spot.broker.ask("DELETE", f"{path}/m1", b'{"lockId":%s}' % deep), 400)
        refused(spot.broker.ask("PATCH", f"{path}/m1/locks/l", b'{"ttl":%s}' % deep), 400)
    admin = spot.environment.admin
    before = settings(spot)
    for method, path in all_settings(spot):
        for name in (b"encrypted", b"name", b"routingRules", b"fallbackEnabled"):
            answer = admin.ask(method, path, b'{"%s":%s}' % (name, deep))
            # A field that the request does not have may be passed over.
            assert answer.status in (200, 400, 501), answer
    stored_nothing(spot)
    assert settings(spot) == before


@pytest.mark.parametrize("levels", [500, 5_000, 60_000, 100_000])
@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}"), (b"[", b"")])
@pytest.mark.parametrize("place", [b"properties", b"headers"])
def test_deep_nesting_inside_a_message_is_kept_or_refused(
    spot: Spot, place: bytes, levels: int, opening: bytes, closing: bytes
) -> None:
    deep = opening * levels + b"1" + closing * levels
    message = b'{"%s":{"deep":%s},"body":"x"}' % (place, deep)
    for destination in spot.destinations():
        queue = spot.queue if destination == spot.exchange else destination
        answer = spot.broker.ask("PUT", f"/{destination}/messages/m1", message)
        if answer.status != 201:
            refused(answer, 400, 413)
            continue
        got = spot.broker.ask("GET", f"/{queue}/messages?pollingTime=0")
        assert got.status == 200 and deep in got.body
    before = spot.backlog()
    batch = spot.broker.ask("PUT", f"/{spot.exchange}/messages", b"[%s]" % message)
    assert batch.status in (200, 400, 413), batch
    stored = batch.status == 200 and batch.json()[0]["status"] == "successful"
    assert spot.backlog() == before + stored


@pytest.mark.parametrize(
    "kind", ["text/plain", "multipart/form-data; boundary=x", "\xff", "", "a" * 500]
)
def test_body_is_json_whatever_its_content_type_says(spot: Spot, kind: str) -> None:
    path = f"/{spot.queue}/messages/m1"
    answer = spot.broker.ask("PUT", path, b'{"body":"x"}', f"Content-Type: {kind}")
    accepted(answer, 201)
    assert spot.backlog() == 1


@pytest.mark.parametrize("coding", ["gzip", "br", "nonsense"])
def test_coded_body_is_refused_not_guessed(spot: Spot, coding: str) -> None:
    coded = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03"
    header = f"Content-Encoding: {coding}"
    refused(spot.broker.ask("PUT", f"/{spot.queue}/messages/m1", coded, header), 400, 415)
    stored_nothing(spot)
