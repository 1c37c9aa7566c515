"""One queue as a Cloudflare client sees it. Every answer's shape is checked on the way."""

import base64
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from tests.wire.cloudflare import shapes
from tests.wire.cloudflare.envelope import ok
from tests.wire.cloudflare.patience import eventually

UNKNOWN_ID = "c0" + "5" * 30


def new_name(prefix: str = "q") -> str:
    return f"{prefix}-{uuid.uuid4().hex[:16]}"


@dataclass(frozen=True)
class Queue:
    http: httpx.Client
    id: str
    name: str

    @classmethod
    def create(cls, http: httpx.Client, **fields: Any) -> "Queue":
        body = {"queue_name": new_name(), **fields}
        result = ok(http.post("/queues", json=body))
        shapes.check_queue(result)
        return cls(http, result["queue_id"], result["queue_name"])

    def at(self, path: str = "") -> str:
        return f"/queues/{self.id}{path}"

    def post(self, path: str, json: Any) -> httpx.Response:
        return self.http.post(self.at(path), json=json)

    def get(self) -> dict[str, Any]:
        result: dict[str, Any] = ok(self.http.get(self.at()))
        shapes.check_queue(result)
        return result

    def change(self, **settings: Any) -> dict[str, Any]:
        result: dict[str, Any] = ok(self.http.patch(self.at(), json={"settings": settings}))
        shapes.check_queue(result)
        return result

    def consume(self, *, dead_letter_queue: str | None = None, **settings: Any) -> dict[str, Any]:
        """Give the queue a pull consumer."""
        body: dict[str, Any] = {"type": "http_pull", "settings": settings}
        if dead_letter_queue is not None:
            body["dead_letter_queue"] = dead_letter_queue
        consumer: dict[str, Any] = ok(self.post("/consumers", body))
        shapes.check_consumer(consumer)
        return consumer

    def push(self, body: str, **fields: Any) -> dict[str, int]:
        """Push one text; the metrics of the answer."""
        message = {"body": body, "content_type": "text", **fields}
        return self._pushed(self.post("/messages", message))

    def push_json(self, body: str) -> dict[str, int]:
        """Push one JSON value, given as the very text to send."""
        content = b'{"body":' + body.encode() + b"}"
        return self._pushed(self.http.post(self.at("/messages"), content=content))

    def push_texts(self, bodies: Sequence[str], **fields: Any) -> dict[str, int]:
        """Push a batch of texts; the metrics of the answer."""
        messages = [{"body": body, "content_type": "text"} for body in bodies]
        return self._pushed(self.post("/messages/batch", {"messages": messages, **fields}))

    def _pushed(self, response: httpx.Response) -> dict[str, int]:
        result = ok(response)
        shapes.check_pushed(result)
        metrics: dict[str, int] = result["metadata"]["metrics"]
        return metrics

    def pull(self, **fields: Any) -> list[dict[str, Any]]:
        result = ok(self.post("/messages/pull", fields))
        shapes.check_pull(result)
        messages: list[dict[str, Any]] = result["messages"]
        return messages

    def pull_one(self, **fields: Any) -> dict[str, Any]:
        """The one message that is there now."""
        (message,) = self.pull(**fields)
        return message

    def await_one(self, **fields: Any) -> dict[str, Any]:
        """The one message that is there now or soon."""
        (message,) = eventually(lambda: self.pull(**fields))
        return message

    def peek(self, **fields: Any) -> list[dict[str, Any]]:
        result = ok(self.post("/messages/peek", fields))
        shapes.exactly(result, {"messages": lambda messages: isinstance(messages, list)})
        messages: list[dict[str, Any]] = result["messages"]
        for message in messages:
            shapes.check_peeked(message)
        return messages

    def settle(
        self, *, acks: Sequence[str] = (), retries: Sequence[str] = (), **retry: Any
    ) -> dict[str, Any]:
        """Ack and retry by lease id; `retry` is added to each element of the retries."""
        result: dict[str, Any] = ok(
            self.post(
                "/messages/ack",
                {
                    "acks": [{"lease_id": lease} for lease in acks],
                    "retries": [{"lease_id": lease, **retry} for lease in retries],
                },
            )
        )
        shapes.check_settled(result)
        return result

    def metrics(self) -> dict[str, int]:
        result: dict[str, int] = ok(self.http.get(self.at("/metrics")))
        shapes.check_metrics(result)
        return result

    def backlog(self) -> int:
        return self.metrics()["backlog_count"]


def unfolded(message: dict[str, Any]) -> str:
    """The JSON text inside a message that was pushed as JSON."""
    return base64.b64decode(message["body"], validate=True).decode()
