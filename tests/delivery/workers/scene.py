"""A queue, its worker consumer, and the receiver that plays the worker."""

import json
from dataclasses import dataclass, field
from typing import Any

import httpx
from standardwebhooks.webhooks import Webhook

from tests.delivery.receiver import Answer, Peer, Received, Receiver, status
from tests.server import Server
from tests.wire.cloudflare.envelope import ok
from tests.wire.cloudflare.queue import Queue

LONG_MS = 60_000


class Sent:
    """One batch as it came to the worker, its signature verified."""

    def __init__(self, received: Received, secret: str) -> None:
        assert received.method == "POST"
        self.received = received
        self.headers = received.headers
        Webhook(secret).verify(received.body, self.headers)
        payload = json.loads(received.body)
        assert set(payload) == {"queue", "messages"}
        self.queue: str = payload["queue"]
        self.messages: list[dict[str, Any]] = payload["messages"]
        assert self.messages, "a batch is never empty"

    @property
    def bodies(self) -> list[Any]:
        return [message["body"] for message in self.messages]

    @property
    def attempts(self) -> list[int]:
        return [message["attempts"] for message in self.messages]


@dataclass
class Scene:
    server: Server
    operator: httpx.Client
    queue: Queue
    receiver: Receiver
    secret: str = field(init=False, default="")

    @property
    def script(self) -> str:
        return self.queue.name

    @property
    def path(self) -> str:
        return f"/{self.script}"

    def place(self, url: str = "", **fields: str) -> str:
        """Say where the script runs: at the receiver, unless told otherwise. Returns the secret."""
        wanted = {"url": url or self.receiver.url(self.path), **fields}
        answer = self.operator.put(f"/tenants/default/workers/{self.script}", json=wanted)
        assert answer.status_code == 200, answer.text
        self.secret = answer.json()["secret"]
        return self.secret

    def consume(self, *, dead_letter: str = "", **settings: Any) -> str:
        """Give the queue a worker consumer that sends every message at once; returns its id."""
        consumer = ok(self.queue.post("/consumers", self.consumer(dead_letter, **settings)))
        id: str = consumer["consumer_id"]
        return id

    def consumer(self, dead_letter: str = "", **settings: Any) -> dict[str, Any]:
        """The request that makes one."""
        settings = {"batch_size": 1, "max_wait_time_ms": 0, **settings}
        body: dict[str, Any] = {"type": "worker", "script_name": self.script, "settings": settings}
        return {**body, "dead_letter_queue": dead_letter} if dead_letter else body

    def on(self, *answers: Answer) -> None:
        self.receiver.on(self.path, *answers)

    def sent(self, count: int) -> list[Sent]:
        """The batches that came, once there are at least so many."""
        return [Sent(each, self.secret) for each in self.receiver.wait(self.path, count)]

    def so_far(self) -> list[Sent]:
        return [Sent(each, self.secret) for each in self.receiver.received(self.path)]

    def metric(self, name: str) -> float:
        text = self.operator.get(f"{self.server.url}/metrics").text
        [line] = [line for line in text.splitlines() if line.startswith(f"{name} ")]
        return float(line.rpartition(" ")[2])

    def events(self) -> list[dict[str, Any]]:
        """What the journal says of the queue."""
        answer = self.operator.get(f"{self.server.url}/journal?after=0&limit=50000")
        found = [json.loads(line) for line in answer.content.split(b"\n") if line]
        return [event for event in found if event["queue"] == self.queue.id]


def saying(code: int = 200, **words: Any) -> Answer:
    """Answer with a JSON object, in which `$0` is the id of the first message, and so on."""

    async def answer(peer: Peer) -> None:
        text = json.dumps(words)
        for number, message in enumerate(json.loads(peer.request.body)["messages"]):
            text = text.replace(f"${number}", message["id"])
        await status(code, text.encode())(peer)

    return answer
