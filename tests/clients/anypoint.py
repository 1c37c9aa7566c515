"""The Anypoint dialect, as the scenarios see it."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from tests.clients.base import Taken
from tests.server import client_of

BATCH_MAX = 10
DELIVERIES_MAX = 2


@contextmanager
def environment_client(anypoint: dict[str, Any]) -> Iterator[httpx.Client]:
    """A client with the token of a connected app, which may use all the APIs."""
    asked = {**anypoint["connected_app"], "grant_type": "client_credentials"}
    with client_of(anypoint["base_url"]) as client:
        answer = client.post("/accounts/api/v2/oauth2/token", json=asked)
        assert answer.status_code == 200, answer.text
        client.headers["Authorization"] = f"Bearer {answer.json()['access_token']}"
        yield client


class AnypointClient:
    def __init__(
        self, http: httpx.Client, anypoint: dict[str, Any], name: str, *, dead_letter: str = ""
    ) -> None:
        self._http = http
        self._anypoint = anypoint
        self._name = name
        self._dead_letter = dead_letter
        place = (
            f"/organizations/{anypoint['organization_id']}"
            f"/environments/{anypoint['environment_id']}"
        )
        region = f"{place}/regions/{anypoint['region']}"
        self._queues = f"/mq/admin/api/v1{region}/destinations/queues"
        self._stats = f"/mq/stats/api/v1{region}/queues?destinationIds={name}"
        self._messages = f"/api/v1{place}/destinations/{name}/messages"
        settings: dict[str, Any] = {}
        if dead_letter:
            self._call("PUT", f"{self._queues}/{dead_letter}", {})
            settings = {"deadLetterQueueId": dead_letter, "maxDeliveries": DELIVERIES_MAX}
        if not self.exists():
            self._call("PUT", f"{self._queues}/{name}", settings)

    def _call(self, method: str, path: str, body: Any = None) -> Any:
        answer = self._http.request(method, path, json=body)
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None

    def publish(self, body: str, *, delay_s: int | None = None) -> None:
        headers = {} if delay_s is None else {"deliveryDelay": delay_s * 1_000}
        message = {"headers": headers, "body": body}
        self._call("PUT", f"{self._messages}/{uuid.uuid4()}", message)

    def publish_batch(self, bodies: list[str]) -> None:
        for start in range(0, len(bodies), BATCH_MAX):
            results = self._call(
                "PUT",
                self._messages,
                [
                    {"headers": {"messageId": str(uuid.uuid4())}, "body": body}
                    for body in bodies[start : start + BATCH_MAX]
                ],
            )
            assert all(each["status"] == "successful" for each in results), results

    def pull(self, count: int, *, lease_ms: int = 30_000) -> list[Taken]:
        query = f"?pollingTime=0&batchSize={min(count, BATCH_MAX)}&lockTtl={lease_ms}"
        return [
            Taken(
                each["headers"]["messageId"],
                each["body"],
                int(each["headers"]["deliveryCount"]),
                f"{each['headers']['lockId']} {each['headers']['messageId']}",
            )
            for each in self._call("GET", self._messages + query) or []
        ]

    def ack(self, leases: list[str]) -> int:
        count = 0
        for start in range(0, len(leases), BATCH_MAX):
            items = [_item(lease) for lease in leases[start : start + BATCH_MAX]]
            results = self._call("DELETE", self._messages, items)
            count += sum(each["status"] == "successful" for each in results)
        return count

    def retry(self, lease: str) -> None:
        [result] = self._call("DELETE", f"{self._messages}/locks", [_item(lease)])
        assert result["status"] == "successful", result

    def backlog(self) -> int:
        [numbers] = self._call("GET", self._stats)
        count: int = numbers["messages"] + numbers["inflightMessages"]
        return count

    def purge(self) -> None:
        self._call("DELETE", f"{self._queues}/{self._name}/messages")

    def dead_letters(self) -> "AnypointClient":
        return AnypointClient(self._http, self._anypoint, self._dead_letter)

    def delete(self) -> None:
        self._call("DELETE", f"{self._queues}/{self._name}")

    def exists(self) -> bool:
        return self._http.get(f"{self._queues}/{self._name}").status_code == 200


def _item(lease: str) -> dict[str, str]:
    lock, _, message = lease.partition(" ")
    return {"messageId": message, "lockId": lock}
