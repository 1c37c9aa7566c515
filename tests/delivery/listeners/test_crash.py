"""The server dies between storing a message and knowing that it arrived."""

import time
from collections.abc import Callable

import pytest

from tests.clients.discue import ok
from tests.delivery import receiver as answers
from tests.delivery.listeners.organization import organization_of
from tests.delivery.receiver import Receiver
from tests.server import Server

# A push in flight is leased for its timeout and ten seconds more.
TIMEOUT_MS = 1_000
LEASE_S_MAX = 15.0

pytestmark = pytest.mark.slow


def test_what_was_stored_and_not_sent_is_sent_after_the_start(
    start: Callable[..., Server], receiver: Receiver
) -> None:
    server = start()
    with organization_of(server, receiver) as organization:
        queue = organization.queue()
        listener = queue.listen("/hook", status="disabled")
        messages = [queue.add(str(number)) for number in range(50)]
        # Enabled with its last breath: the engine may have taken nothing, or some.
        listener.put(status="enabled")
        server.kill()
        server.start()
        receiver.wait_until(
            "/hook",
            lambda received: {each.headers["webhook-id"] for each in received} == set(messages),
            seconds=60,
        )
        for message in messages:
            listener.wait(message, "acknowledged")


def test_what_was_on_its_way_is_sent_again_with_the_same_id_and_body(
    start: Callable[..., Server], receiver: Receiver
) -> None:
    server = start()
    with organization_of(server, receiver) as organization:
        queue = organization.queue()
        receiver.on("/hook", answers.hang)
        listener = queue.listen("/hook", ordered=True, timeout_ms=TIMEOUT_MS)
        message, later = queue.add("hello"), queue.add("later")
        receiver.wait("/hook", 1)
        server.kill()
        receiver.on("/hook", answers.OK)
        server.start()
        began_s = time.monotonic()
        listener.wait(message, "acknowledged")
        listener.wait(later, "acknowledged")
        assert time.monotonic() - began_s < LEASE_S_MAX
        mine = [each for each in receiver.received("/hook") if each.body == b"hello"]
        assert {each.headers["webhook-id"] for each in mine} == {message}
        assert [each.headers["x-attempt"] for each in mine] == ["1", "2"]
        assert listener.get()["messages"]["missed_count"] == 0


def test_a_server_that_is_asked_to_stop_leaves_nothing_in_the_air(
    start: Callable[..., Server], receiver: Receiver
) -> None:
    """After the start everything goes on, nothing arrives twice, and nothing had to be given up."""
    server = start()
    receiver.on("/hook", answers.late(0.02, answers.OK))
    with organization_of(server, receiver) as organization:
        queue = organization.queue()
        listener = queue.listen("/hook", status="disabled")
        messages = [queue.add(str(number)) for number in range(500)]
        listener.put(status="enabled")
        for count in (50, 150, 300):
            receiver.wait("/hook", count)
            server.restart()
            receiver.wait("/hook", len(receiver.received("/hook")) + 1)
        listener.wait(messages[-1], "acknowledged")
        receiver.wait("/hook", len(messages))
        ok(organization.client.get(listener.path))
    received = receiver.received("/hook")
    assert sorted(int(each.body) for each in received) == list(range(500))
    assert {each.headers["x-attempt"] for each in received} == {"1"}
