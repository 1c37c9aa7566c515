"""Listeners that are not there are left in peace until they are back."""

import time
from collections.abc import Callable, Iterator

import pytest

from tests.delivery import receiver as answers
from tests.delivery.listeners.organization import LIVE, Organization, organization_of, wait_until
from tests.delivery.receiver import Received, Receiver, closed_port
from tests.server import Server

EVERY_MS = 100
QUIET_S = 1.0


@pytest.fixture
def organization(start: Callable[..., Server], receiver: Receiver) -> Iterator[Organization]:
    """On a server that looks at its listeners ten times a second."""
    server = start("--liveness-every-ms", str(EVERY_MS))
    with organization_of(server, receiver) as organization:
        yield organization


def test_a_listener_that_answers_its_probes_is_stable(
    organization: Organization, receiver: Receiver
) -> None:
    listener = organization.queue().listen("/hook")
    assert listener.state == "pending"
    wait_until(lambda: listener.state == "stable", "it is never stable")
    request = receiver.wait(LIVE, 1)[0]
    assert (request.method, request.body) == ("GET", b"")
    told = listener.get()["liveness"]
    assert told["success_count"] >= 1 and told["failure_count"] == 0
    assert told["last_success_at"] > 0


@pytest.mark.parametrize("how", ["500", "redirect", "reset"])
def test_three_failed_probes_make_it_inactive_and_it_is_sent_nothing(
    organization: Organization, receiver: Receiver, how: str
) -> None:
    bad = {"500": answers.status(500), "redirect": answers.redirect("/"), "reset": answers.reset}
    receiver.on(LIVE, bad[how])
    receiver.on("/hook", answers.status(500))
    queue = organization.queue()
    listener = queue.listen("/hook", max_attempts=11)
    first = queue.add("first")
    wait_until(lambda: listener.state == "inactive", "it is never inactive")
    told = listener.get()["liveness"]
    assert told["failure_count"] >= 3
    assert told["last_failure_msg"]
    time.sleep(0.1)  # what was on its way may end
    attempts = listener.delivery(first)["attempts"]
    seen = len(receiver.received("/hook"))
    second = queue.add("second")
    time.sleep(QUIET_S)
    assert len(receiver.received("/hook")) == seen
    assert listener.delivery(first)["attempts"] == attempts
    assert listener.delivery(second)["attempts"] == 0

    receiver.on("/hook", answers.OK)
    receiver.on(LIVE, answers.OK)
    listener.wait(first, "acknowledged", attempts=attempts + 1)
    listener.wait(second, "acknowledged", attempts=1)
    assert listener.state in ("unstable", "stable")
    wait_until(lambda: listener.state == "stable", "it is never stable")


def test_five_pushes_without_an_answer_make_it_inactive_until_a_good_probe(
    organization: Organization, receiver: Receiver
) -> None:
    receiver.on("/hook", answers.reset)
    queue = organization.queue()
    listener = queue.listen("/hook", liveness_url=f"http://127.0.0.1:{closed_port()}/")
    messages = [queue.add(str(number)) for number in range(12)]
    wait_until(lambda: listener.state == "inactive", "it is never inactive")
    wait_until(lambda: receiver.in_flight("/hook") == 0, "requests hang")
    time.sleep(0.1)
    seen = len(receiver.received("/hook"))
    assert seen < 12 + 11, "a failing listener is sent everything anyway"
    time.sleep(QUIET_S)
    assert len(receiver.received("/hook")) == seen
    spent = sum(listener.delivery(message)["attempts"] for message in messages)
    assert spent == seen
    receiver.on("/hook", answers.OK)
    listener.put(liveness_url=receiver.url("/back"))
    for message in messages:
        listener.wait(message, "acknowledged")
    assert len(receiver.received("/hook")) == seen + 12


def test_a_listener_that_is_back_gets_one_then_two_then_four_at_a_time(
    organization: Organization, receiver: Receiver
) -> None:
    receiver.on(LIVE, answers.status(500))
    queue = organization.queue()
    listener = queue.listen("/hook")
    wait_until(lambda: listener.state == "inactive", "it is never inactive", seconds=60)
    messages = [queue.add(str(number)) for number in range(40)]
    receiver.on("/hook", answers.late(0.2, answers.OK))
    receiver.on(LIVE, answers.OK)
    for message in messages:
        listener.wait(message, "acknowledged", attempts=1)
    requests = receiver.received("/hook")
    assert [_together(requests, number) for number in range(3)] == [1, 1, 2]
    assert max(_together(requests, number) for number in range(7)) <= 4
    assert max(_together(requests, number) for number in range(15)) <= 8
    assert receiver.peak("/hook") == 10
    # Oldest first: none comes earlier than those that may be on their way with it.
    for place, request in enumerate(requests):
        assert abs(int(request.body) - place) < 10


def _together(requests: list[Received], number: int) -> int:
    """How many were on their way when the request of this number came, itself included."""
    at_s = requests[number].at_s
    return sum(
        1 for other in requests[: number + 1] if other.answered_s is None or other.answered_s > at_s
    )


def test_what_is_known_of_a_listener_survives_a_restart(
    organization: Organization, receiver: Receiver
) -> None:
    receiver.on(LIVE, answers.status(500))
    queue = organization.queue()
    listener = queue.listen("/hook")
    wait_until(lambda: listener.state == "inactive", "it is never inactive", seconds=60)
    organization.server.kill()
    organization.server.start()
    assert listener.state == "inactive"
    message = queue.add("hello")
    time.sleep(QUIET_S)
    assert listener.delivery(message)["attempts"] == 0
    receiver.on(LIVE, answers.OK)
    listener.wait(message, "acknowledged")
