"""When pushes are made again, in what order, and how many at a time."""

import time

from tests.delivery.listeners.organization import (
    Listens,
    PushQueue,
)
from tests.delivery.receiver import Receiver

IN_FLIGHT_MAX = 10
# A new listener gets one request, then two, four, eight at a time.
KNOWN_AFTER = 1 + 2 + 4 + 8
QUIET_S = 0.5


def test_first_attempts_start_in_the_order_of_the_messages(
    queue: PushQueue, receiver: Receiver
) -> None:
    """When one arrives, all before it have arrived or are among the ten that are on their way."""
    listener = queue.listen("/hook", status="disabled")
    data = [str(number) for number in range(100)]
    messages = [queue.add(each) for each in data]
    listener.put(status="enabled")
    listener.wait(messages[-1], "acknowledged")
    receiver.wait("/hook", len(data))
    missing = set(range(100))
    for body in receiver.bodies("/hook"):
        missing.discard(int(body))
        assert sum(number < int(body) for number in missing) < IN_FLIGHT_MAX


def make_known(queue: PushQueue, listener: Listens) -> None:
    for number in range(KNOWN_AFTER):
        listener.wait(queue.add(str(number)), "acknowledged")


def test_a_listener_gets_ten_at_a_time_and_no_more(queue: PushQueue, receiver: Receiver) -> None:
    listener = queue.listen("/hook")
    make_known(queue, listener)
    held = receiver.hold("/hook")
    messages = [queue.add(str(number)) for number in range(25)]
    receiver.wait("/hook", KNOWN_AFTER + IN_FLIGHT_MAX)
    time.sleep(QUIET_S)
    assert receiver.in_flight("/hook") == IN_FLIGHT_MAX
    held.let_go(3)
    receiver.wait("/hook", KNOWN_AFTER + IN_FLIGHT_MAX + 3)
    time.sleep(QUIET_S)
    assert receiver.in_flight("/hook") == IN_FLIGHT_MAX
    held.let_go(100)
    for message in messages:
        listener.wait(message, "acknowledged", attempts=1)
    assert receiver.peak("/hook") == IN_FLIGHT_MAX


def test_a_listener_gets_no_more_at_a_time_than_it_says(
    queue: PushQueue, receiver: Receiver
) -> None:
    listener = queue.listen("/hook", max_in_flight=3)
    make_known(queue, listener)
    held = receiver.hold("/hook")
    messages = [queue.add(f"m{number}") for number in range(8)]
    receiver.wait("/hook", KNOWN_AFTER + 3)
    time.sleep(QUIET_S)
    assert receiver.in_flight("/hook") == 3
    listener.put(max_in_flight=0)
    receiver.wait("/hook", KNOWN_AFTER + 8)
    held.let_go(100)
    for message in messages:
        listener.wait(message, "acknowledged")


def test_a_listener_gets_no_more_in_a_second_than_it_says(
    queue: PushQueue, receiver: Receiver
) -> None:
    listener = queue.listen("/hook", max_per_second=10)
    messages = [queue.add(f"m{number}") for number in range(25)]
    times = [each.at_s for each in receiver.wait("/hook", 25)]
    # The first burst may be one second's worth, and nothing may come sooner than the rest allows.
    for number, at_s in enumerate(times):
        assert at_s - times[0] > (number - 10) / 10 - 0.1
    assert times[-1] - times[0] < 10
    for message in messages:
        listener.wait(message, "acknowledged")
