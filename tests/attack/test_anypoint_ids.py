"""Names and ids that are none, or that are odd ones."""

import pytest

from tests.attack.environment import (
    Spot,
)
from tests.attack.peer import Peer

# Any text may be a message's id, when it is encoded.


def test_ids_that_are_no_text_are_not_taken_for_each_other(spot: Spot) -> None:
    """Bytes that are not UTF-8: refused, or else each is a message of its own."""
    broken = ["%ff", "%fe", "%c0%af", "%ed%a0%80"]
    answers = [
        spot.broker.ask("PUT", f"/{spot.line}/messages/{id}", b'{"body":"x"}') for id in broken
    ]
    assert all(answer.status in (201, 400) for answer in answers), answers
    assert spot.backlog() == sum(answer.status == 201 for answer in answers), "one was dropped"


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
