"""Verbs of a Discue organization as the tests here say them, and waiting with an end."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.clients.discue import DiscueClient, discue_http, ok
from tests.delivery.receiver import Receiver
from tests.server import Server

CHANGE_S_MAX = 20.0
POLL_S = 0.01
LIVE = "/live"
EVENTS_MAX = 1_000


def wait_until(true: Callable[[], bool], otherwise: str, *, seconds: float = CHANGE_S_MAX) -> None:
    deadline_s = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline_s, otherwise
        time.sleep(POLL_S)


class Organization:
    """The first organization of a server, and the receiver that its listeners lead to."""

    def __init__(self, server: Server, client: DiscueClient, receiver: Receiver) -> None:
        self.server = server
        self.client = client
        self.receiver = receiver

    def queue(self) -> "PushQueue":
        return PushQueue(self, self.client.new_queue())

    def events(self, queue: "PushQueue", kind: str) -> list[dict[str, Any]]:
        """Of one queue and one type, oldest first."""
        found: list[dict[str, Any]] = []
        after = ""
        while True:
            path = f"/events?events=messages&limit={EVENTS_MAX}{after}"
            page = ok(self.client.get(path))["events"]
            found += [e for e in page if e["type"] == kind and e["queue"]["id"] == queue.id]
            if len(page) < EVENTS_MAX:
                return found
            after = f"&startAfter={page[-1]['stored_at']}&startAfterId={page[-1]['id']}"


class PushQueue:
    def __init__(self, organization: Organization, id: str) -> None:
        self.organization = organization
        self.id = id
        self._client = organization.client
        self._receiver = organization.receiver
        self.path = f"/queues/{id}"

    @property
    def name(self) -> str:
        return str(ok(self._client.get(self.path))["queue"]["name"])

    def listen(self, place: str, **members: Any) -> "Listens":
        """A listener at a path of the receiver, or at a URL. Its probes go elsewhere."""
        url = place if "://" in place else self._receiver.url(place)
        live = self._receiver.url(LIVE)
        made = self._client.new_listener(self.id, url, **{"liveness_url": live, **members})
        return Listens(self, made)

    def add(self, data: str, **members: Any) -> str:
        return self._client.add(self.id, data, **members)

    def message(self, message: str) -> dict[str, Any]:
        return self._client.message(self.id, message)


class Listens:
    """A listener."""

    def __init__(self, queue: PushQueue, made: dict[str, Any]) -> None:
        self.queue = queue
        self.id: str = made["id"]
        self.name: str = made["name"]
        self.secret: str = made["signing_secret"]
        self.path = f"{queue.path}/listeners/{self.id}"
        self._client = queue.organization.client

    def get(self) -> dict[str, Any]:
        found: dict[str, Any] = ok(self._client.get(self.path))["listener"]
        return found

    @property
    def state(self) -> str:
        """Of its liveness."""
        return str(self.get()["liveness"]["state"])

    def put(self, **members: Any) -> None:
        ok(self._client.put(self.path, members))

    def delete(self) -> None:
        ok(self._client.delete(self.path))

    def rotate(self) -> str:
        rotated = ok(self._client.post(f"{self.path}/rotate_secret"))
        return str(rotated["listener"]["signing_secret"])

    def backfill(self, **members: Any) -> int:
        return int(ok(self._client.post(f"{self.path}/backfill", members))["backfill"]["bound"])

    def delivery(self, message: str) -> dict[str, Any]:
        """How far a message has come on its way here."""
        found = [
            each
            for each in self.queue.message(message)["deliveries"]
            if each["listener"]["id"] == self.id
        ]
        assert len(found) == 1, found
        delivery: dict[str, Any] = found[0]
        return delivery

    def wait(self, message: str, state: str, *, attempts: int | None = None) -> dict[str, Any]:
        """The delivery, once it is in this state."""

        def there() -> bool:
            now = self.delivery(message)
            return now["state"] == state and attempts in (None, now["attempts"])

        wait_until(there, f"{message} does not become {state}")
        return self.delivery(message)

    def retry(self, message: str) -> None:
        path = f"{self.queue.path}/messages/{message}/deliveries/{self.id}/retry"
        ok(self._client.post(path))


@contextmanager
def organization_of(server: Server, receiver: Receiver) -> Iterator[Organization]:
    """With the key of the first start."""
    with discue_http(server.url) as http:
        client = DiscueClient(http, server.credentials["discue"]["api_key"])
        yield Organization(server, client, receiver)
