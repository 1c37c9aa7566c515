"""Which listeners get a message."""

import time

from tests.clients.discue import fail, ok
from tests.delivery import receiver as answers
from tests.delivery.listeners.organization import Organization, PushQueue, wait_until
from tests.delivery.receiver import Receiver

# Long enough for a push that should not be there to arrive.
QUIET_S = 0.5


def test_a_listener_gets_once_what_was_added_after_it_and_nothing_from_before(
    queue: PushQueue, receiver: Receiver
) -> None:
    before = queue.add("before")
    listener = queue.listen("/hook")
    after = queue.add("after")
    listener.wait(after, "acknowledged", attempts=1)
    time.sleep(QUIET_S)
    assert receiver.bodies("/hook") == ["after"]
    assert queue.message(before)["deliveries"] == []
    assert queue.message(before)["state"] == "stored"
    assert queue.message(after)["state"] == "delivered"


def test_every_listener_of_the_queue_gets_a_message_and_no_other(
    organization: Organization, receiver: Receiver
) -> None:
    queue, other = organization.queue(), organization.queue()
    listeners = [queue.listen(f"/{number}") for number in range(5)]
    other.listen("/other")
    message = queue.add("hello")
    for listener in listeners:
        listener.wait(message, "acknowledged")
    requests = [receiver.received(f"/{number}")[0] for number in range(5)]
    assert {each.headers["webhook-id"] for each in requests} == {message}
    assert {each.headers["x-listener-id"] for each in requests} == {each.id for each in listeners}
    assert len({each.headers["webhook-signature"] for each in requests}) == 5
    assert receiver.received("/other") == []


def test_without_a_listener_a_message_is_kept_and_listed(queue: PushQueue) -> None:
    message = queue.add("hello")
    assert queue.message(message)["state"] == "stored"
    assert queue.organization.client.messages(queue.id) == [message]


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


def test_a_listener_that_is_disabled_while_a_message_is_retried_keeps_it_for_later(
    queue: PushQueue, receiver: Receiver
) -> None:
    receiver.on("/hook", answers.status(500), answers.OK)
    listener = queue.listen("/hook")
    held = receiver.hold("/hook", answers.status(500))
    message = queue.add("hello")
    receiver.wait("/hook", 1)
    listener.put(status="disabled")
    held.let_go()
    listener.wait(message, "retrying", attempts=1)
    time.sleep(QUIET_S)
    assert listener.delivery(message)["attempts"] == 1
    receiver.on("/hook", answers.OK)
    listener.put(status="enabled")
    listener.wait(message, "acknowledged", attempts=2)


def test_a_deleted_queue_takes_its_pushes_with_it(queue: PushQueue, receiver: Receiver) -> None:
    receiver.on("/hook", answers.status(500))
    listener = queue.listen("/hook")
    listener.wait(queue.add("hello"), "retrying")
    ok(queue.organization.client.delete(queue.path))
    time.sleep(0.05)  # what was on its way may still arrive
    seen = len(receiver.received("/hook"))
    time.sleep(QUIET_S)
    assert len(receiver.received("/hook")) == seen


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
