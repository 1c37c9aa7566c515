"""Names and ids that are none, or that are odd ones."""

import httpx
import pytest

from tests.attack.environment import (
    Spot,
)
from tests.attack.peer import Peer

# Any text may be a message's id, when it is encoded.


@pytest.mark.parametrize("case", ["upper", "braces", "bare", "padded"])
def test_id_written_otherwise_reaches_the_same_or_nothing(spot: Spot, case: str) -> None:
    own = spot.environment
    id = own.own["environment_id"]
    other = {
        "upper": id.upper(),
        "braces": f"%7B{id}%7D",
        "bare": id.replace("-", ""),
        "padded": f"{id}%20",
    }[case]
    place = own.place.replace(id, other)
    answer = own.broker.ask("PUT", f"//api/v1{place}/destinations/{spot.queue}/messages/m", b"{}")
    assert answer.status in (201, 403), answer
    assert spot.backlog() == (answer.status == 201)


def test_ids_that_are_no_text_are_not_taken_for_each_other(spot: Spot) -> None:
    """Bytes that are not UTF-8: refused, or else each is a message of its own."""
    broken = ["%ff", "%fe", "%c0%af", "%ed%a0%80"]
    answers = [
        spot.broker.ask("PUT", f"/{spot.line}/messages/{id}", b'{"body":"x"}') for id in broken
    ]
    assert all(answer.status in (201, 400) for answer in answers), answers
    assert spot.backlog() == sum(answer.status == 201 for answer in answers), "one was dropped"


@pytest.mark.parametrize("host", ["mq-us-east-2.localhost", "mq-eu-west-1.example.org:8787"])
def test_queue_of_another_region_is_another_queue(spot: Spot, host: str) -> None:
    with httpx.Client(base_url=spot.environment.server.url, trust_env=False, verify=False) as http:
        headers = {"Host": host, "Authorization": f"Bearer {spot.broker.token}"}
        for destination in spot.destinations():
            path = f"{spot.broker.root}/{destination}/messages"
            answer = http.put(f"{path}/m1", json={"body": "x"}, headers=headers)
            assert answer.status_code == 404, answer.text
    assert spot.backlog() == 0


@pytest.mark.parametrize(
    "host", ["mq-", "mq-.", "mq-nowhere.x", "mq-us-east-1.", "[::1", "\xff", "", "a" * 10_000]
)
def test_odd_host_does_no_harm(spot: Spot, host: str) -> None:
    head = spot.broker.head("PUT", f"/{spot.queue}/messages/m1", "Content-Length: 2")
    request = head.replace(b"Host: 127.0.0.1", b"Host: " + host.encode("latin-1"))
    with Peer(spot.environment.server) as peer:
        peer.send(request + b"\r\n{}")
        answer = peer.answer()
    assert answer is not None and answer.status in (201, 400), answer
    assert spot.backlog() == (answer.status == 201)
