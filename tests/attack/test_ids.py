"""Ids that belong to somebody else, and ids that are none."""

import json
from typing import Any

import pytest

from tests.attack.peer import Account, accepted, new_tenant
from tests.attack.target import Target, aim
from tests.server import Server


@pytest.fixture(scope="module")
def stranger(server: Server) -> Account:
    """Another tenant's account on the same server."""
    return Account(server, new_tenant(server))


def body(value: Any) -> bytes:
    return b"" if value is None else json.dumps(value).encode()


def test_lease_of_another_tenant_settles_nothing(stranger: Account, target: Target) -> None:
    accepted(target.post("/messages", b'{"body":"mine","content_type":"text"}'))
    lease = target.pull()[0]["lease_id"]
    other = aim(stranger, target.name)
    settle = body({"acks": [{"lease_id": lease}], "retries": [{"lease_id": lease}]})
    result = accepted(other.post("/messages/ack", settle))
    assert (result["ackCount"], result["retryCount"]) == (0, 0)
    assert list(result["warnings"]) == [lease]
    assert target.backlog() == 1
    assert target.pull() == []
    assert accepted(target.post("/messages/ack", settle))["ackCount"] == 1


def test_lease_of_another_queue_settles_nothing(target: Target) -> None:
    other = aim(target.account, f"{target.name}-other")
    for queue in (target, other):
        accepted(queue.post("/messages", b'{"body":1}'))
    lease = target.pull()[0]["lease_id"]
    other.pull()
    for kind in ("acks", "retries"):
        result = accepted(other.post("/messages/ack", body({kind: [{"lease_id": lease}]})))
        assert (result["ackCount"], result["retryCount"]) == (0, 0)
        assert lease in result["warnings"]
    assert (target.backlog(), other.backlog()) == (1, 1)


def test_ref_of_another_queue_removes_nothing(target: Target) -> None:
    other = aim(target.account, f"{target.name}-other")
    for queue in (target, other):
        accepted(queue.post("/messages", b'{"body":1}'))
    ref = accepted(target.post("/messages/peek", b"{}"))["messages"][0]["ref"]
    assert (
        ref in accepted(other.post("/messages/purge", body({"refs": [{"ref": ref}]})))["warnings"]
    )
    lease = target.pull()[0]["lease_id"]
    # A lease is no ref, and a ref is no lease.
    refs = body({"refs": [{"ref": lease}]})
    assert lease in accepted(target.post("/messages/purge", refs))["warnings"]
    assert accepted(target.post("/messages/ack", body({"acks": [{"lease_id": ref}]})))["warnings"]
    assert (target.backlog(), other.backlog()) == (1, 1)


def test_dead_letters_stay_within_their_tenant(stranger: Account, target: Target) -> None:
    """A dead-letter queue is given by name, and names are each tenant's own."""
    name = f"{target.name}-source"
    made = accepted(stranger.ask("POST", "/queues", body({"queue_name": name})))
    path = f"/queues/{made['queue_id']}/consumers"
    consumer = {
        "type": "http_pull",
        "dead_letter_queue": target.name,
        "settings": {"max_retries": 0},
    }
    accepted(stranger.ask("POST", path, body(consumer)))
    own = accepted(stranger.ask("GET", f"/queues?name={target.name}"))
    assert len(own) == 1 and own[0]["queue_id"] != target.id
    source = Target(stranger, name, made["queue_id"], f"/queues/{made['queue_id']}")
    accepted(source.post("/messages", b'{"body":1}'))
    lease = source.pull()[0]["lease_id"]
    accepted(source.post("/messages/ack", body({"retries": [{"lease_id": lease}]})))
    assert (source.backlog(), target.backlog()) == (0, 0)


@pytest.mark.parametrize(
    "lease", ["", "x", "A" * 24, "=" * 24, "\u20ac" * 24, "A" * 100_000, "\x00", "../..", "-_" * 12]
)
def test_lease_nobody_gave_is_a_warning(target: Target, lease: str) -> None:
    accepted(target.post("/messages", b'{"body":1}'))
    target.pull()
    for kind in ("acks", "retries"):
        result = accepted(target.post("/messages/ack", body({kind: [{"lease_id": lease}]})))
        assert (result["ackCount"], result["retryCount"]) == (0, 0)
        assert list(result["warnings"]) == [lease]
    refs = body({"refs": [{"ref": lease}]})
    assert list(accepted(target.post("/messages/purge", refs))["warnings"]) == [lease]
    assert target.backlog() == 1


def test_lease_changed_in_any_place_is_a_warning(target: Target) -> None:
    accepted(target.post("/messages", b'{"body":1}'))
    lease = target.pull()[0]["lease_id"]
    changed = [
        {"lease_id": lease[:place] + ("A" if lease[place] != "A" else "B") + lease[place + 1 :]}
        for place in range(len(lease))
    ]
    assert accepted(target.post("/messages/ack", body({"acks": changed})))["ackCount"] == 0
    assert target.backlog() == 1


def test_lease_of_a_batch_changed_in_any_place_is_a_warning_or_another_of_the_batch(
    target: Target,
) -> None:
    """The first characters are a number: those who hold one lease of a pull hold all of it."""
    messages = {"messages": [{"body": n} for n in range(3)]}
    accepted(target.post("/messages/batch", body(messages)))
    accepted(target.post("/messages", b'{"body":"of another pull"}'))
    pulled = target.pull(3)
    lease = pulled[0]["lease_id"]
    changed = [
        {"lease_id": lease[:place] + digit + lease[place + 1 :]}
        for place in range(len(lease))
        for digit in "0123456789abcdefAZ-_"
        if lease[place] != digit
    ]
    assert accepted(target.post("/messages/ack", body({"acks": changed})))["ackCount"] == 2
    assert target.backlog() == 2


def test_settling_very_many_leases_at_once_gets_an_answer(target: Target) -> None:
    many = body({"acks": [{"lease_id": f"lease-{n}"} for n in range(50_000)]})
    answer = target.post("/messages/ack", many)
    assert answer.status in (200, 400, 413), answer.status
