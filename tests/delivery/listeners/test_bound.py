"""Which listeners get a message."""

import time

from tests.clients.discue import fail, ok
from tests.delivery import receiver as answers
from tests.delivery.listeners.organization import PushQueue, wait_until
from tests.delivery.receiver import Receiver

# Long enough for a push that should not be there to arrive.
QUIET_S = 0.5


def test_a_listeners_new_timeout_holds_from_the_next_attempt_on(
    queue: PushQueue, receiver: Receiver
) -> None:
    receiver.on("/slow", answers.late(1.5, answers.OK))
    listener = queue.listen("/slow", timeout_ms=1_000, max_attempts=1)
    message = queue.add("hello")
    listener.wait(message, "exhausted", attempts=1)
    listener.put(timeout_ms=10_000)
    listener.retry(message)
    listener.wait(message, "acknowledged")


def test_a_deleted_listener_gets_nothing_more_and_others_do(
    queue: PushQueue, receiver: Receiver
) -> None:
    receiver.on("/gone", answers.status(500))
    gone, stays = queue.listen("/gone"), queue.listen("/stays")
    message = queue.add("hello")
    gone.wait(message, "retrying")
    gone.delete()
    fail(queue.organization.client.get(gone.path), 404)

    def dropped() -> bool:
        deliveries = queue.message(message)["deliveries"]
        return [each["listener"]["id"] for each in deliveries] == [stays.id]

    wait_until(dropped, "its delivery stays")
    seen = len(receiver.received("/gone"))
    later = queue.add("later")
    stays.wait(later, "acknowledged")
    time.sleep(QUIET_S)
    assert len(receiver.received("/gone")) == seen
    assert queue.message(message)["state"] == "delivered"


def test_a_disabled_listener_waits_and_spends_no_attempt(
    queue: PushQueue, receiver: Receiver
) -> None:
    listener = queue.listen("/hook", status="disabled")
    messages = [queue.add(str(number)) for number in range(5)]
    time.sleep(QUIET_S)
    assert receiver.received("/hook") == []
    for message in messages:
        delivery = listener.delivery(message)
        assert (delivery["state"], delivery["attempts"]) == ("pending", 0)
    listener.put(status="enabled")
    for message in messages:
        listener.wait(message, "acknowledged", attempts=1)
    assert sorted(receiver.bodies("/hook")) == ["0", "1", "2", "3", "4"]


def test_a_message_deleted_while_on_its_way_is_forgotten_in_peace(
    queue: PushQueue, receiver: Receiver
) -> None:
    held = receiver.hold("/hook")
    listener = queue.listen("/hook")
    message = queue.add("hello")
    receiver.wait("/hook", 1)
    ok(queue.organization.client.delete(f"{queue.path}/messages/{message}"))
    held.let_go()
    receiver.on("/hook", answers.OK)
    listener.wait(queue.add("next"), "acknowledged")
    assert listener.get()["messages"]["missed_count"] == 0
