"""Telling of events over HTTP: who may, what is refused, and that a refusal stores nothing."""

import json
import uuid
from typing import Any

import httpx
import pytest

from tests.server import Server

KV: dict[str, Any] = {"source": {"type": "kv"}, "event": "namespace.created", "payload": {}}
MIGRATED = {"event": "job.object.migrated", "payload": {}}


class Home:
    """A tenant with one queue that is told everything of some sources."""

    def __init__(self, operator: httpx.Client, server: Server) -> None:
        self.operator = operator
        self.name = new_name()
        made = operator.post("/tenants", json={"name": self.name}).json()["credentials"]
        self.token: str = made["cloudflare"]["api_token"]
        self.account = f"{server.url}/client/v4/accounts/{made['cloudflare']['account_id']}"
        self.queue_name = new_name()
        self.queue = self._ask("POST", "/queues", {"queue_name": self.queue_name})["queue_id"]
        worker = {"type": "workersBuilds.worker", "worker_name": "shop"}
        for source, events in (
            ({"type": "kv"}, ["namespace.created"]),
            ({"type": "superSlurper"}, ["job.started", "job.object.migrated"]),
            ({"type": "images"}, ["image.*"]),
            (worker, ["build.started"]),
        ):
            subscription = {
                "source": source,
                "events": events,
                "destination": {"type": "queues.queue", "queue_id": self.queue},
            }
            self._ask("POST", "/event_subscriptions/subscriptions", subscription)

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        headers = {"Authorization": f"Bearer {self.token}"}
        answer = self.operator.request(method, self.account + path, json=body, headers=headers)
        assert answer.status_code == 200, answer.text
        return answer.json()["result"]

    @property
    def backlog(self) -> int:
        count: int = self._ask("GET", f"/queues/{self.queue}/metrics")["backlog_count"]
        return count

    def send(self, body: dict[str, Any] | bytes, **named: Any) -> httpx.Response:
        """Tell of an event, as the operator; `named` are for the request."""
        content = body if isinstance(body, bytes) else json.dumps(body)
        return self.operator.post(f"/tenants/{self.name}/events", content=content, **named)

    def send_as(self, token: str) -> httpx.Response:
        return self.send(KV, headers={"Authorization": f"Bearer {token}" if token else ""})

    def key(self, *scopes: str, tenant: str = "", **fields: Any) -> str:
        """A key of the tenant's, or of another's."""
        body = {"name": new_name(), "scopes": list(scopes), **fields}
        made = self.operator.post(f"/tenants/{tenant or self.name}/keys", json=body)
        assert made.is_success, made.text
        return str(made.json()["token"])


@pytest.fixture(scope="module")
def home(operator: httpx.Client, server: Server) -> Home:
    return Home(operator, server)


def new_name() -> str:
    return f"n-{uuid.uuid4().hex[:16]}"


def refused(response: httpx.Response, status: int) -> str:
    assert response.status_code == status, response.text
    error = response.json()["error"]
    assert set(error) == {"code", "message"}
    return str(error["message"])


# --- who ---


def test_the_operator_and_those_who_may_change_queues_may_tell(home: Home) -> None:
    before = home.backlog
    assert home.send(KV).json() == {"delivered": 1, "repeated": 0, "refused": 0}
    for token in (home.token, home.key("queues:write"), home.key("write")):
        assert home.send_as(token).json()["delivered"] == 1
    assert home.backlog == before + 4


def test_a_tenant_tells_of_its_own_events_only(
    home: Home, operator: httpx.Client, server: Server
) -> None:
    before = home.backlog
    refused(home.send_as(server.credentials["cloudflare"]["api_token"]), 403)
    # Not even whether there is such a tenant.
    unknown = "/tenants/nobody-has-this-name/events"
    headers = {"Authorization": f"Bearer {home.token}"}
    refused(operator.post(unknown, json=KV, headers=headers), 403)
    assert "nobody-has-this-name" in refused(operator.post(unknown, json=KV), 404)
    assert home.backlog == before


def test_the_journal_says_who_told(home: Home, operator: httpx.Client, server: Server) -> None:
    keys = f"/tenants/{home.name}/keys"
    made = operator.post(keys, json={"name": "teller", "scopes": ["write"]}).json()
    after = operator.get(f"{server.url}/journal/head").json()["last"]
    assert home.send_as(made["token"]).json()["delivered"] == 1
    lines = operator.get(f"{server.url}/journal?after={after}").text.splitlines()
    actors = [json.loads(line)["actor"] for line in lines if home.queue in line]
    assert actors == [made["key"]["id"]]


# --- what ---

LONG = "x" * 256
BAD: list[tuple[dict[str, Any], str]] = [
    ({"source": {}}, "source.type"),
    ({"source": {"type": "nothing"}}, "source.type"),
    ({"source": {"type": 5}}, "source.type"),
    ({"source": {"type": None}}, "source.type"),
    ({"source": []}, "source"),
    ({"source": "kv"}, "source"),
    ({"source": {"type": "kv", "namespace": "x"}}, "source.namespace"),
    ({"source": {"type": "kv", LONG: "x"}}, "source.xxx"),
    ({"source": {"type": "workersBuilds.worker"}, "event": "build.started"}, "source.worker_name"),
    ({"source": {"type": "workersBuilds.worker", "worker_name": ""}, "event": "build.started"},
     "source.worker_name"),
    ({"source": {"type": "workersBuilds.worker", "worker_name": LONG}, "event": "build.started"},
     "source.worker_name"),
    ({"source": {"type": "workersBuilds.worker", "worker_name": 5}, "event": "build.started"},
     "source.worker_name"),
    ({"source": {"type": "superSlurper"}, **MIGRATED}, "source.job_id"),
    ({"source": {"type": "superSlurper", "job_id": None}, **MIGRATED}, "source.job_id"),
    ({"source": {"type": "superSlurper", "job_id": "7"}, "event": "job.started"}, "source.job_id"),
    ({"source": {"type": "courier.queue"}, "event": "created"}, "source.type"),
    ({"source": {"type": "courier.message"}, "event": "buried"}, "source.type"),
    ({"source": {"type": "courier.pipeline"}, "event": "run.started"}, "event"),
    ({"event": "bucket.created"}, "event"),
    ({"event": "cf.kv.namespace.created"}, "event"),
    ({"event": ""}, "event"),
    ({"event": 5}, "event"),
    ({"source": {"type": "images"}, "event": "image.*"}, "event"),
    ({"source": {"type": "images"}, "event": "images.uploaded"}, "event"),
    ({"payload": []}, "payload"),
    ({"payload": "x"}, "payload"),
    ({"payload": None}, "payload"),
    ({"payload": 5}, "payload"),
    ({"id": ""}, "id"),
    ({"id": "x" * 129}, "id"),
    ({"id": 5}, "id"),
    ({"id": None}, "id"),
    ({"ids": "x"}, "ids"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("wrong", "field"), BAD, ids=[f"{field}-{number}" for number, (_, field) in enumerate(BAD)]
)
def test_what_is_wrong_is_named_and_nothing_is_stored(
    home: Home, wrong: dict[str, Any], field: str
) -> None:
    before = home.backlog
    assert field in refused(home.send({**KV, **wrong}), 400)
    assert home.backlog == before


def test_a_deep_payload_is_taken_or_refused_but_breaks_nothing(home: Home) -> None:
    for depth in (100, 900, 1_100, 5_000, 40_000):
        payload = b'{"a":' * depth + b"1" + b"}" * depth
        body = b'{"source":{"type":"kv"},"event":"namespace.created","payload":%s}' % payload
        answer = home.send(body)
        assert answer.status_code in (200, 400, 413), answer.text


# --- how much ---


def test_a_payload_has_at_most_100_kb(home: Home) -> None:
    before = home.backlog
    fits = {"text": "x" * (100_000 - len('{"text":""}'))}
    assert home.send({**KV, "payload": fits}).json()["delivered"] == 1
    more = {"text": fits["text"] + "x"}
    message = refused(home.send({**KV, "payload": more}), 413)
    assert "payload" in message and "100000" in message
    # Space between does not count, up to the limit on the whole request.
    spaced = json.dumps({**KV, "payload": fits}, indent=4).replace(" ", " " * 10)
    assert home.send(spaced.encode()).json()["delivered"] == 1
    refused(home.send(b" " * (2 << 20)), 413)
    assert home.backlog == before + 2


def test_the_longest_id_and_fields_are_taken(home: Home) -> None:
    for id in ("x" * 128, "é\n" * 40, "\u0000"):
        for expected in ("delivered", "repeated"):
            assert home.send({**KV, "id": id}).json()[expected] == 1
    source = {"type": "superSlurper", "job_id": "é" * 255}
    assert home.send({"source": source, **MIGRATED}).json()["delivered"] == 1
