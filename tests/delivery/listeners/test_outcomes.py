"""What an answer does to a push."""

import time

import pytest

from tests.delivery import receiver as answers
from tests.delivery.listeners.organization import Organization, PushQueue, wait_until
from tests.delivery.receiver import Receiver

QUIET_S = 0.5


@pytest.mark.parametrize("code", [200, 204, 299])
def test_two_hundreds_acknowledge(queue: PushQueue, receiver: Receiver, code: int) -> None:
    receiver.on("/hook", answers.status(code))
    listener = queue.listen("/hook")
    began_s = time.monotonic()
    message = queue.add("hello")
    delivery = listener.wait(message, "acknowledged")
    took_ms = (time.monotonic() - began_s) * 1_000
    assert (delivery["attempts"], delivery["last_status"]) == (1, code)
    assert not delivery["last_error"]
    assert delivery["next_attempt_at"] is None
    assert 0 <= delivery["duration_ms"] <= took_ms
    assert delivery["first_attempt_at"] == delivery["last_attempt_at"] is not None


# What else is no answer is tried in tests/delivery/test_transport.py.
FAILURES: dict[str, tuple[answers.Answer, int | None]] = {
    **{str(code): (answers.status(code), code) for code in (301, 400, 500)},
    "hang": (answers.hang, None),
    "reset": (answers.reset, None),
}


@pytest.mark.parametrize("how", FAILURES)
def test_everything_else_is_a_failure_and_the_push_is_made_again(
    organization: Organization, receiver: Receiver, how: str
) -> None:
    queue = organization.queue()
    answer, status = FAILURES[how]
    held = receiver.hold("/hook")
    receiver.on("/hook", answer, held)
    listener = queue.listen("/hook", timeout_ms=1_000)
    message = queue.add("hello")
    receiver.wait("/hook", 2)
    delivery = listener.wait(message, "in_flight", attempts=2)
    assert (delivery["last_status"] or None) == status
    assert bool(delivery["last_error"]) == (status is None)
    assert listener.get()["messages"]["missed"] == [message]
    held.let_go()
    listener.wait(message, "acknowledged", attempts=2)
    messages = listener.get()["messages"]
    assert (messages["missed"], messages["missed_count"]) == ([], 0)
    assert messages["acknowledged_count"] == 1
    [bad] = organization.events(queue, "message_published_not_ok")
    [good] = organization.events(queue, "message_published_ok")
    assert (bad["attempt"], good["attempt"]) == (1, 2)
    assert (bad["status"] or None, good["status"]) == (status, 200)


def test_a_listener_is_waited_for_as_long_as_it_asked_for(
    queue: PushQueue, receiver: Receiver
) -> None:
    """One that asks for a second is given up while one that asks for thirty is waited for."""
    receiver.on("/hook", answers.hang)
    receiver.on("/patient", answers.hang)
    listener = queue.listen("/hook", timeout_ms=1_000, max_attempts=1)
    queue.listen("/patient", timeout_ms=30_000, max_attempts=1)
    delivery = listener.wait(queue.add("hello"), "exhausted")
    # Timers count whole milliseconds.
    assert delivery["duration_ms"] >= 990
    [request] = receiver.received("/hook")
    receiver.wait_until("/hook", lambda _: request.answered_s is not None)
    [other] = receiver.wait("/patient", 1)
    assert other.answered_s is None


def test_a_wait_that_was_asked_for_is_waited(queue: PushQueue, receiver: Receiver) -> None:
    receiver.on("/hook", answers.retry_after("2"), answers.OK)
    listener = queue.listen("/hook")
    message = queue.add("hello")
    first, second = receiver.wait("/hook", 2)
    assert second.at_s - first.at_s >= 2
    listener.wait(message, "acknowledged", attempts=2)


def test_a_listener_that_says_it_is_gone_is_disabled_and_the_rest_waits(
    organization: Organization, receiver: Receiver
) -> None:
    queue = organization.queue()
    receiver.on("/hook", answers.status(410))
    listener = queue.listen("/hook", ordered=True)
    first, second = queue.add("first"), queue.add("second")
    delivery = listener.wait(first, "retrying", attempts=1)
    assert delivery["last_status"] == 410
    wait_until(lambda: listener.get()["status"] == "disabled", "it is not disabled")
    time.sleep(QUIET_S)
    assert [listener.delivery(each)["attempts"] for each in (first, second)] == [1, 0]
    assert len(receiver.received("/hook")) == 1
    receiver.on("/hook", answers.OK)
    listener.put(status="enabled")
    listener.wait(first, "acknowledged", attempts=2)
    listener.wait(second, "acknowledged", attempts=1)
    assert receiver.bodies("/hook") == ["first", "first", "second"]
