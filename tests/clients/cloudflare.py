"""The Cloudflare dialect, as the scenarios see it."""

from typing import Any

import httpx

from tests.clients.base import Taken


class CloudflareClient:
    def __init__(self, http: httpx.Client, name: str, *, dead_letter: str = "") -> None:
        self._http = http
        self._dead_letter = dead_letter
        found = self._call("GET", f"/queues?page=1&name={name}")
        if not found:
            found = [self._call("POST", "/queues", {"queue_name": name})]
        self._queue = f"/queues/{found[0]['queue_id']}"
        consumer: dict[str, Any] = {"type": "http_pull"}
        if dead_letter:
            consumer |= {"dead_letter_queue": dead_letter, "settings": {"max_retries": 1}}
        self._call("POST", f"{self._queue}/consumers", consumer)

    def _call(self, method: str, path: str, body: Any = None) -> Any:
        answer = self._http.request(method, path, json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()["result"]

    def _messages(self, verb: str, body: dict[str, Any]) -> Any:
        return self._call("POST", f"{self._queue}/messages{verb}", body)

    def publish(self, body: str, *, delay_s: int | None = None) -> None:
        delay = {} if delay_s is None else {"delay_seconds": delay_s}
        self._messages("", {"body": body, "content_type": "text", **delay})

    def publish_batch(self, bodies: list[str]) -> None:
        messages = [{"body": body, "content_type": "text"} for body in bodies]
        self._messages("/batch", {"messages": messages})

    def pull(self, count: int, *, lease_ms: int = 30_000) -> list[Taken]:
        asked = {"batch_size": count, "visibility_timeout_ms": lease_ms}
        return [
            Taken(each["id"], each["body"], each["attempts"], each["lease_id"])
            for each in self._messages("/pull", asked)["messages"]
        ]

    def ack(self, leases: list[str]) -> int:
        acks = [{"lease_id": lease} for lease in leases]
        count: int = self._messages("/ack", {"acks": acks})["ackCount"]
        return count

    def retry(self, lease: str) -> None:
        assert self._messages("/ack", {"retries": [{"lease_id": lease}]})["retryCount"] == 1

    def backlog(self) -> int:
        count: int = self._call("GET", f"{self._queue}/metrics")["backlog_count"]
        return count

    def purge(self) -> None:
        self._call("POST", f"{self._queue}/purge", {"delete_messages_permanently": True})

    def dead_letters(self) -> "CloudflareClient":
        return CloudflareClient(self._http, self._dead_letter)

    def delete(self) -> None:
        self._call("DELETE", self._queue)

    def exists(self) -> bool:
        return self._http.get(self._queue).status_code == 200
