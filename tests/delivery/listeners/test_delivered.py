"""A queue that only pushes does not fill up, and what it delivered can still be read."""

from collections.abc import Callable

from tests.clients.discue import fail, ok
from tests.delivery import receiver as answers
from tests.delivery.listeners.organization import organization_of
from tests.delivery.receiver import Receiver
from tests.server import Server

BYTES_MAX = 1_000
DATA = "x" * 200


def test_the_sixth_message_finds_room(start: Callable[..., Server], receiver: Receiver) -> None:
    server = start("--queue-bytes-max", str(BYTES_MAX))
    with organization_of(server, receiver) as organization:
        queue = organization.queue()
        listener = queue.listen("/hook")
        messages = []
        for _ in range(6):
            messages.append(queue.add(DATA))
            listener.wait(messages[-1], "acknowledged")
        # The first made room for the sixth.
        fail(organization.client.get(f"{queue.path}/messages/{messages[0]}"), 404)
        for message in messages[1:]:
            assert queue.message(message)["data"] == DATA
        listed = ok(organization.client.get(f"{queue.path}/messages"))["messages"]
        assert {each["id"] for each in listed} == set(messages[1:])
        later = queue.listen("/later")
        assert later.backfill() == 5
        receiver.wait("/later", 5)


def test_what_was_not_delivered_still_fills_it(
    start: Callable[..., Server], receiver: Receiver
) -> None:
    server = start("--queue-bytes-max", str(BYTES_MAX))
    receiver.on("/hook", answers.retry_after("3600"))
    with organization_of(server, receiver) as organization:
        queue = organization.queue()
        queue.listen("/hook")
        for _ in range(5):
            queue.add(DATA)
        fail(organization.client.post(f"{queue.path}/messages", {"data": DATA}), 402)
