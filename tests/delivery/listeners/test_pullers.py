"""Listeners and those who pull, on one queue: each has a line of delivery of its own."""

import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.delivery import receiver as answers
from tests.delivery.listeners.organization import PushQueue, wait_until
from tests.delivery.receiver import Receiver
from tests.server import Server

QUIET_S = 0.5


class Pull:
    """The queue as a Cloudflare account sees it."""

    def __init__(self, http: httpx.Client, name: str) -> None:
        self._http = http
        [found] = self._call("GET", f"/queues?page=1&name={name}")
        self._path = f"/queues/{found['queue_id']}"
        self._call("POST", f"{self._path}/consumers", {"type": "http_pull"})

    def _call(self, method: str, path: str, body: Any = None) -> Any:
        answer = self._http.request(method, path, json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()["result"]

    def add(self, body: str) -> None:
        self._call("POST", f"{self._path}/messages", {"body": body, "content_type": "text"})

    def take(self) -> list[str]:
        """Pull everything there is and ack it; the bodies."""
        asked = {"batch_size": 100, "visibility_timeout_ms": 30_000}
        messages = self._call("POST", f"{self._path}/messages/pull", asked)["messages"]
        acks = [{"lease_id": message["lease_id"]} for message in messages]
        if acks:
            done = self._call("POST", f"{self._path}/messages/ack", {"acks": acks})
            assert done["ackCount"] == len(acks)
        return [message["body"] for message in messages]

    def pause(self, paused: bool) -> None:
        self._call("PATCH", self._path, {"settings": {"delivery_paused": paused}})

    def purge(self) -> None:
        self._call("POST", f"{self._path}/purge", {"delete_messages_permanently": True})


@pytest.fixture
def pull(server: Server, queue: PushQueue) -> Iterator[Pull]:
    with server.client() as http:
        yield Pull(http, queue.name)


def test_a_message_goes_to_pullers_and_to_listeners(
    queue: PushQueue, pull: Pull, receiver: Receiver
) -> None:
    listener = queue.listen("/hook")
    message = queue.add("hello")
    listener.wait(message, "acknowledged", attempts=1)
    assert pull.take() == ["hello"]
    assert pull.take() == []
    assert receiver.bodies("/hook") == ["hello"]


def test_an_ack_does_not_take_a_message_from_a_listener_that_has_yet_to_get_it(
    queue: PushQueue, pull: Pull, receiver: Receiver
) -> None:
    receiver.on("/hook", answers.retry_after("3600"), answers.OK)
    listener = queue.listen("/hook")
    message = queue.add("hello")
    listener.wait(message, "retrying", attempts=1)
    assert pull.take() == ["hello"]
    assert queue.message(message)["data"] == "hello"
    listener.retry(message)
    wait_until(lambda: listener.get()["messages"]["acknowledged_count"] == 1, "it never arrives")
    assert receiver.bodies("/hook") == ["hello", "hello"]
    assert pull.take() == []
    # Now nobody needs it any more.
    client = queue.organization.client
    wait_until(lambda: client.messages(queue.id) == [], "it is kept")


def test_an_acknowledged_push_leaves_the_message_to_pullers(
    queue: PushQueue, pull: Pull, receiver: Receiver
) -> None:
    listener = queue.listen("/hook")
    for number in range(20):
        listener.wait(queue.add(str(number)), "acknowledged")
    assert sorted(pull.take(), key=int) == [str(number) for number in range(20)]


def test_what_other_dialects_publish_is_pushed_too(
    queue: PushQueue, pull: Pull, receiver: Receiver
) -> None:
    listener = queue.listen("/hook")
    pull.add("from elsewhere")
    [request] = receiver.wait("/hook", 1)
    assert request.body == b"from elsewhere"
    listener.wait(request.headers["webhook-id"], "acknowledged")


def test_a_paused_queue_pushes_nothing_and_spends_no_attempt(
    queue: PushQueue, pull: Pull, receiver: Receiver
) -> None:
    listener = queue.listen("/hook")
    pull.pause(True)
    message = queue.add("hello")
    time.sleep(2 * QUIET_S)
    assert receiver.received("/hook") == []
    assert listener.delivery(message)["attempts"] == 0
    pull.pause(False)
    listener.wait(message, "acknowledged", attempts=1)


def test_a_purge_ends_what_has_not_been_pushed(
    queue: PushQueue, pull: Pull, receiver: Receiver
) -> None:
    receiver.on("/hook", answers.status(500))
    listener = queue.listen("/hook")
    for number in range(20):
        queue.add(str(number))
    wait_until(lambda: listener.get()["messages"]["missed_count"] == 20, "not all have failed")
    pull.purge()
    wait_until(lambda: listener.get()["messages"]["missed_count"] == 0, "pushes are left")
    receiver.on("/hook", answers.OK)
    listener.wait(queue.add("after"), "acknowledged", attempts=1)
