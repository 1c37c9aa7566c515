"""Locks of other places, and locks that are none."""

from urllib.parse import quote

from tests.attack.environment import (
    Environment,
    Spot,
    accepted,
    body,
    refused,
    settle_down,
)
from tests.attack.peer import Account, Answer

SETTLES = (("DELETE", ""), ("DELETE", "/locks"), ("PATCH", "/locks"))


def settle_all(spot: Spot, destination: str, message: str, lock: str) -> list[Answer]:
    """Every way to settle a lock."""
    path = f"/{destination}/messages"
    one = f"{path}/{quote(message, safe='')}"
    item = body([{"messageId": message, "lockId": lock, "ttl": 1}])
    return [
        *(spot.broker.ask(method, path + where, item) for method, where in SETTLES),
        spot.broker.ask("DELETE", one, body({"lockId": lock})),
        spot.broker.ask("DELETE", f"{one}/locks/{quote(lock, safe='') or '%20'}"),
        spot.broker.ask("PATCH", f"{one}/locks/{quote(lock, safe='') or '%20'}", b'{"ttl":1}'),
    ]


def settled_nothing(answers: list[Answer]) -> None:
    for answer in answers[: len(SETTLES)]:
        [result] = accepted(answer)
        assert result["status"] == "failure", result
        assert result["statusMessage"], result
    for answer in answers[len(SETTLES) :]:
        refused(answer, 400)


def test_lock_of_another_place_settles_nothing(neighbour: Environment, spot: Spot) -> None:
    """The same message id, and the same place in line: only the queue differs."""
    lock = spot.lock(spot.queue, "m1")
    spot.lock(spot.line, "m1")
    settled_nothing(settle_all(spot, spot.line, "m1", lock))
    other = settle_down(neighbour, spot.queue)
    other.lock(other.queue, "m1")
    settled_nothing(settle_all(other, other.queue, "m1", lock))
    assert (spot.backlog(), other.backlog()) == (2, 1)
    assert spot.get(spot.queue) == spot.get(spot.line) == other.get(other.queue) == []
    path = f"/{spot.queue}/messages/m1"
    accepted(spot.broker.ask("DELETE", path, body({"lockId": lock})))


def test_lock_changed_in_any_place_settles_nothing(spot: Spot) -> None:
    lock = spot.lock(spot.line, "m1")
    path = f"/{spot.line}/messages"
    changed = [
        lock[:place] + ("A" if lock[place] != "A" else "B") + lock[place + 1 :]
        for place in range(len(lock))
    ]
    changed += [lock[:-1], lock + "A", lock.lower(), lock.upper(), f" {lock}", f"{lock}="]
    for each in changed:
        if each != lock:
            item = body([{"messageId": "m1", "lockId": each, "ttl": 1}])
            for method, where in SETTLES:
                [result] = accepted(spot.broker.ask(method, path + where, item))
                assert result["status"] == "failure", (each, result)
    assert spot.backlog() == 1 and spot.get(spot.line) == []


def test_cloudflares_lease_is_no_lock_and_the_other_way_round(spot: Spot) -> None:
    """A queue has both faces; a token is good only where it was given."""
    lock = spot.lock(spot.queue, "m1")
    account = Account(spot.environment.server, spot.environment.credentials)
    [found] = account.ask("GET", f"/queues?name={spot.queue}").json()["result"]
    path = f"/queues/{found['queue_id']}/messages/ack"
    settled = account.ask("POST", path, body({"acks": [{"lease_id": lock}]})).json()["result"]
    assert settled["ackCount"] == 0 and list(settled["warnings"]) == [lock]
    assert spot.backlog() == 1
