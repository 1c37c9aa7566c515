"""A tenant as a client of Cloudflare Queues sees it; queues are named by their names."""

import base64
from typing import Any

import httpx


class Cloudflare:
    def __init__(self, http: httpx.Client) -> None:
        self._http = http

    def call(self, method: str, path: str, body: Any = None) -> Any:
        answer = self._http.request(method, path, json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()["result"]

    def attempt(self, method: str, path: str, body: Any = None) -> int:
        """The status, whatever it is."""
        return self._http.request(method, path, json=body).status_code

    # --- queues ---

    def create(self, name: str, **settings: Any) -> None:
        self.call("POST", "/queues", {"queue_name": name, "settings": settings})

    def queues(self) -> list[str]:
        return [queue["queue_name"] for queue in self.call("GET", "/queues")]

    def queue(self, name: str) -> dict[str, Any]:
        [queue] = self.call("GET", f"/queues?name={name}")
        found: dict[str, Any] = queue
        return found

    def path(self, name: str) -> str:
        return f"/queues/{self.queue(name)['queue_id']}"

    def edit(self, name: str, **settings: Any) -> None:
        self.call("PATCH", self.path(name), {"settings": settings})

    def consume(self, name: str, *, dead_letter: str = "", **settings: Any) -> None:
        """Let clients pull from the queue; this replaces the rules of its attempts."""
        body: dict[str, Any] = {"type": "http_pull", "settings": settings}
        if dead_letter:
            body["dead_letter_queue"] = dead_letter
        self.call("POST", f"{self.path(name)}/consumers", body)

    def consumer(self, name: str) -> dict[str, Any]:
        [consumer] = self.queue(name)["consumers"]
        found: dict[str, Any] = consumer
        return found

    def delete(self, name: str) -> None:
        self.call("DELETE", self.path(name))

    def purge(self, name: str) -> None:
        self.call("POST", f"{self.path(name)}/purge", {"delete_messages_permanently": True})

    def metrics(self, name: str) -> dict[str, int]:
        metrics: dict[str, int] = self.call("GET", f"{self.path(name)}/metrics")
        return metrics

    # --- messages ---

    def publish(self, name: str, body: Any, *, kind: str = "text", **fields: Any) -> None:
        message = {"body": body, "content_type": kind, **fields}
        self.call("POST", f"{self.path(name)}/messages", message)

    def pull(self, name: str, count: int = 10, *, lease_ms: int = 30_000) -> list[dict[str, Any]]:
        """Messages as they come, JSON bodies decoded from base64 to text."""
        asked = {"batch_size": count, "visibility_timeout_ms": lease_ms}
        messages: list[dict[str, Any]] = self.call(
            "POST", f"{self.path(name)}/messages/pull", asked
        )["messages"]
        for message in messages:
            if message["metadata"]["CF-Content-Type"] != "text":
                message["body"] = base64.b64decode(message["body"]).decode()
        return messages

    def peek(self, name: str) -> list[dict[str, Any]]:
        peeked = self.call("POST", f"{self.path(name)}/messages/peek", {})
        messages: list[dict[str, Any]] = peeked["messages"]
        return messages

    def ack(self, name: str, *leases: str) -> int:
        """How many of them counted."""
        acks = [{"lease_id": lease} for lease in leases]
        count: int = self.call("POST", f"{self.path(name)}/messages/ack", {"acks": acks})[
            "ackCount"
        ]
        return count

    def retry(self, name: str, lease: str, **fields: Any) -> int:
        retries = {"retries": [{"lease_id": lease, **fields}]}
        count: int = self.call("POST", f"{self.path(name)}/messages/ack", retries)["retryCount"]
        return count
