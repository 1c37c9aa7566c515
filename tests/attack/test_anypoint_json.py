"""Bodies of the Anypoint APIs that are not JSON, or that are JSON nobody sane would send."""

import pytest

from tests.attack.environment import Spot, accepted, refused

LONE = b"\\ud800"


def test_half_of_a_surrogate_pair_is_refused(spot: Spot) -> None:
    """It is no text and so no JSON, also where anything may stand."""
    for place in (b'"a":"%s"', b'"%s":"a"', b'"a":{"b":["%s"]}'):
        for member in (b"properties", b"headers"):
            lone = b'{"body":"x","%s":{%s}}' % (member, place % LONE)
            for destination in spot.destinations():
                path = f"/{destination}/messages"
                refused(spot.broker.ask("PUT", f"{path}/m1", lone), 400)
                refused(spot.broker.ask("PUT", path, b'[{"body":"good"},%s]' % lone), 400)
    assert spot.backlog() == 0


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


@pytest.mark.parametrize("levels", [500, 100_000])
@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}")])
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
