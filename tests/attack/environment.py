"""The server's Anypoint APIs as raw requests see them, and what an attack on them aims at."""

import json
from typing import Any, NamedTuple
from urllib.parse import quote

import httpx

from tests.attack.peer import Answer, Client
from tests.server import Server

LONG_MS = 600_000


class Environment:
    """The four APIs: messages as the client app, settings, numbers and accounts as the user.

    `credentials` are a tenant's, the first one's if none are given; `own` is the part of them that
    is about Anypoint.
    """

    def __init__(self, server: Server, credentials: dict[str, Any] | None = None) -> None:
        self.server = server
        self.credentials = credentials or server.credentials
        self.own: dict[str, Any] = self.credentials["anypoint"]
        self.organization = f"/organizations/{self.own['organization_id']}"
        self.place = f"{self.organization}/environments/{self.own['environment_id']}"
        region = f"{self.place}/regions/{self.own['region']}"
        app = {name: self.own[name] for name in ("client_id", "client_secret")}
        token = self.token("/api/v1/authorize", app)
        user = self.token("/accounts/login", self.own["user"])
        self.broker = Client(server, f"/api/v1{self.place}/destinations", token)
        self.admin = Client(server, f"/mq/admin/api/v1{region}", user)
        self.stats = Client(server, f"/mq/stats/api/v1{region}", user)
        self.accounts = Client(server, "/accounts", user)

    def token(self, path: str, credentials: dict[str, str]) -> str:
        asked = {**credentials, "grant_type": "client_credentials"}
        answer = httpx.post(f"{self.server.url}{path}", json=asked, trust_env=False, verify=False)
        assert answer.status_code == 200, answer.text
        return str(answer.json()["access_token"])

    def put(self, path: str, value: Any = None) -> Any:
        """Create or change something below the region."""
        return accepted(self.admin.ask("PUT", path, body(value)))


class Spot(NamedTuple):
    """A standard queue, a FIFO queue, and an exchange that copies to the standard queue."""

    environment: Environment
    queue: str
    line: str
    exchange: str

    @property
    def broker(self) -> Client:
        return self.environment.broker

    def destinations(self) -> tuple[str, str, str]:
        return self.queue, self.line, self.exchange

    def backlog(self) -> int:
        """Messages on both queues, under a lock or not."""
        path = f"/queues?destinationIds={self.queue},{self.line}"
        rows = accepted(self.environment.stats.ask("GET", path))
        assert len(rows) == 2
        return sum(int(row["messages"]) + int(row["inflightMessages"]) for row in rows)

    def publish(self, destination: str, id: str, value: Any = None) -> None:
        path = f"/{destination}/messages/{quote(id, safe='')}"
        accepted(self.broker.ask("PUT", path, body(value or {"body": id})), 201)

    def get(self, destination: str, *, lock_ms: int = LONG_MS) -> list[dict[str, Any]]:
        """Up to ten messages of a queue; none at all is an empty list."""
        path = f"/{destination}/messages?batchSize=10&pollingTime=0&lockTtl={lock_ms}"
        found: list[dict[str, Any]] = accepted(self.broker.ask("GET", path), 200, 204) or []
        return found

    def lock(self, destination: str, id: str) -> str:
        """The lock on a message that is published and got."""
        self.publish(destination, id)
        [found] = self.get(destination)
        assert found["headers"]["messageId"] == id
        return str(found["headers"]["lockId"])


def settle_down(environment: Environment, name: str) -> Spot:
    """Create the two queues and the exchange of a spot."""
    spot = Spot(environment, name, f"{name}.fifo", f"{name}.exchange")
    environment.put(f"/destinations/queues/{spot.queue}", {})
    environment.put(f"/destinations/queues/{spot.line}", {"fifo": True})
    environment.put(f"/destinations/exchanges/{spot.exchange}")
    environment.put(f"/bindings/exchanges/{spot.exchange}/queues/{spot.queue}")
    return spot


def body(value: Any) -> bytes:
    """As JSON, unless it is bytes already; None is no body."""
    if value is None or isinstance(value, bytes):
        return value or b""
    return json.dumps(value).encode()


def accepted(answer: Answer | None, *statuses: int) -> Any:
    """The JSON of a success with one of these statuses, 200 if none is named; None: no body."""
    assert answer is not None, "hung up without an answer"
    assert answer.status in (statuses or (200,)), f"{answer.status}: {answer.body[:500]!r}"
    return answer.json() if answer.body else None


def refused(answer: Answer | None, *statuses: int) -> str:
    """Check that it is a refusal of the broker API; the sentence it gives."""
    failure = _refused(answer, *statuses)
    assert failure["status"] == "failure", failure
    assert set(failure) <= {"status", "statusMessage", "messageId", "lockId"}, failure
    return _sentence(failure["statusMessage"])


def complained(answer: Answer | None, *statuses: int) -> str:
    """Check that it is a refusal of the admin or stats API; the sentence it gives."""
    failure = _refused(answer, *statuses)
    assert answer is not None and failure["status"] == answer.status, failure
    assert set(failure) == {"status", "message"}, failure
    return _sentence(failure["message"])


def _refused(answer: Answer | None, *statuses: int) -> dict[str, Any]:
    assert answer is not None, "hung up without an answer"
    told = f"{answer.status} instead of {statuses}: {answer.body[:500]!r}"
    assert answer.status in statuses, told
    assert answer.headers["content-type"] == "application/json; charset=UTF-8"
    failure = answer.json()
    assert isinstance(failure, dict), failure
    return failure


def _sentence(said: Any) -> str:
    assert isinstance(said, str) and said, "a refusal says why"
    assert len(said) < 2_000, f"a refusal need not repeat all that was sent: {said[:200]}"
    return said
