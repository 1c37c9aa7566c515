"""What an attack aims at, and what must not show in the log afterwards."""

import json
from typing import Any, NamedTuple

from tests.attack.peer import Account, Answer, accepted
from tests.server import Server


class Target(NamedTuple):
    """A queue with a pull consumer, and its path below the account."""

    account: Account
    name: str
    id: str
    path: str

    def post(self, path: str, body: bytes) -> Answer:
        return self.account.ask("POST", self.path + path, body)

    def backlog(self) -> int:
        metrics = accepted(self.account.ask("GET", f"{self.path}/metrics"))
        return int(metrics["backlog_count"])

    def pull(self, count: int = 100) -> list[dict[str, Any]]:
        asked = json.dumps({"batch_size": count, "visibility_timeout_ms": 60_000}).encode()
        messages: list[dict[str, Any]] = accepted(self.post("/messages/pull", asked))["messages"]
        return messages


def aim(account: Account, name: str) -> Target:
    """Create a queue with a pull consumer."""
    asked = json.dumps({"queue_name": name}).encode()
    queue = accepted(account.ask("POST", "/queues", asked))
    path = f"/queues/{queue['queue_id']}"
    accepted(account.ask("POST", f"{path}/consumers", b'{"type":"http_pull"}'))
    return Target(account, name, queue["queue_id"], path)


def no_traceback(server: Server, *, since: int = 0) -> None:
    said = server.log()[since:]
    assert "Traceback" not in said, said[-4_000:]
