"""The published description of the API, against the server that publishes it."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.attack.peer import Account, accepted
from tests.attack.target import Target, aim, no_traceback
from tests.server import Server

SEED = 20_261_116
RUN_SECONDS_MAX = 150
ROOT = "/client/v4/accounts/{account_id}"
QUEUE = "/queues/{queue_id}"
CONSUMER = f"{QUEUE}/consumers/{{consumer_id}}"
SUBSCRIPTIONS = "/event_subscriptions/subscriptions"
SUBSCRIPTION = f"{SUBSCRIPTIONS}/{{subscription_id}}"
CHECKS = [
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
]


class Ground:
    """Things to attack by their real ids: made-up ids would only ever be refused."""

    def __init__(self, server: Server) -> None:
        self.account = Account(server)
        self.targets = [aim(self.account, f"attacked-{number}") for number in range(20)]
        self.consumers = [self._consumer(target) for target in self.targets]
        self.subscriptions = [self._subscription(target) for target in self.targets]
        for target in self.targets:
            accepted(target.post("/messages/batch", b'{"messages":[{"body":1},{"body":"two"}]}'))
        self.bare = accepted(self.account.ask("POST", "/queues", b'{"queue_name":"bare"}'))

    def _consumer(self, target: Target) -> str:
        listed = accepted(self.account.ask("GET", f"{target.path}/consumers"))
        return str(listed[0]["consumer_id"])

    def _subscription(self, target: Target) -> str:
        asked = {
            "source": {"type": "kv"},
            "events": ["namespace.created"],
            "destination": {"type": "queues.queue", "queue_id": target.id},
        }
        made = accepted(self.account.ask("POST", SUBSCRIPTIONS, json.dumps(asked).encode()))
        return str(made["id"])

    def ids(self, number: int) -> dict[str, Any]:
        """The ids of one queue, its consumer and its subscription."""
        return {
            "path.account_id": self.account.root.rpartition("/")[2],
            "path.queue_id": self.targets[number].id,
            "path.consumer_id": self.consumers[number],
            "path.subscription_id": self.subscriptions[number],
        }

    def fixed(self) -> str:
        """Always the same queue, except where an operation would take it away from the others."""
        apart = [
            ("DELETE", QUEUE, self.ids(1)),
            ("DELETE", CONSUMER, self.ids(2)),
            ("DELETE", SUBSCRIPTION, self.ids(3)),
            ("PUT", QUEUE, self.ids(4)),
            ("PATCH", QUEUE, self.ids(4)),
            ("PUT", CONSUMER, self.ids(5)),
            ("PATCH", SUBSCRIPTION, self.ids(6)),
            ("POST", f"{QUEUE}/consumers", {**self.ids(0), "path.queue_id": self.bare["queue_id"]}),
        ]
        tables = [table("parameters", self.ids(0))]
        for method, path, ids in apart:
            tables.append(f'[[operations]]\ninclude-name = "{method} {ROOT}{path}"')
            tables.append(table("operations.parameters", ids))
        return "\n".join(tables)

    def drawn(self) -> str:
        """Any of the ids most of the time, and sometimes none of them."""
        values = {
            "queues": [target.id for target in self.targets],
            "consumers": self.consumers,
            "subscriptions": self.subscriptions,
            "names": [f"drawn-{number}" for number in range(50)],
        }
        bound: dict[str, Any] = {"path.account_id": self.ids(0)["path.account_id"]}
        for parameter, dictionary in (
            ("path.queue_id", "queues"),
            ("path.consumer_id", "consumers"),
            ("path.subscription_id", "subscriptions"),
            ("body.destination.queue_id", "queues"),
            ("body.queue_name", "names"),
        ):
            bound[parameter] = {"dictionary": dictionary, "probability": 0.8}
        dictionaries = {name: {"values": entries} for name, entries in values.items()}
        return f"{table('dictionaries', dictionaries)}\n{table('parameters', bound)}"

    def config(self, ids: str, *, examples: int) -> str:
        general = {
            "seed": SEED,
            "workers": 2,
            "request-timeout": 15,
            "continue-on-failure": True,
            "headers": {"Authorization": f"Bearer {self.account.token}"},
        }
        generation = {"max-examples": examples, "no-shrink": True, "database": "none"}
        parts = [table("", general), table("cache", {"enabled": False})]
        return "\n".join([*parts, table("generation", generation), ids])


def table(name: str, entries: dict[str, Any]) -> str:
    """A table of a TOML file."""
    head = [f"[{name}]"] if name else []
    return "\n".join([*head, *(f'"{key}" = {value_text(value)}' for key, value in entries.items())])


def value_text(value: Any) -> str:
    if isinstance(value, dict):
        inner = ", ".join(f'"{key}" = {value_text(item)}' for key, item in value.items())
        return f"{{ {inner} }}"
    return json.dumps(value)


@pytest.fixture
def attacked(fresh_server: Server) -> Iterator[Server]:
    yield fresh_server
    assert httpx.get(f"{fresh_server.url}/health", trust_env=False).status_code == 200
    no_traceback(fresh_server)


def run(server: Server, directory: Path, config: str, *, phases: str) -> dict[str, set[int]]:
    """Let schemathesis loose, and fail with its report; the statuses seen, by operation."""
    (directory / "schemathesis.toml").write_text(config)
    seen = directory / "seen.har"
    ran = subprocess.run(
        [
            *(sys.executable, "-m", "schemathesis.cli", "--no-color", "run"),
            f"{server.url}/client/v4/openapi.json",
            *("--url", server.url, "--phases", phases, "--checks", ",".join(CHECKS)),
            *("--warnings", "off", "--report", "har", "--report-har-path", str(seen)),
        ],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS_MAX,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-20_000:] + ran.stderr[-2_000:]
    statuses: dict[str, set[int]] = {}
    for entry in json.loads(seen.read_bytes())["log"]["entries"]:
        path = str(entry["request"]["url"]).partition("?")[0].rpartition("/")[2]
        operation = f"{entry['request']['method']} {path}"
        statuses.setdefault(operation, set()).add(entry["response"]["status"])
    return statuses


@pytest.mark.slow
def test_every_value_the_description_allows_or_forbids_is_answered_as_it_says(
    attacked: Server, tmp_path: Path
) -> None:
    ground = Ground(attacked)
    config = ground.config(ground.fixed(), examples=1)
    statuses = run(attacked, tmp_path, config, phases="examples,coverage")
    # The attack is worth nothing when it does not get past the door.
    for verb in ("messages", "batch", "pull", "ack", "peek", "purge", "queues", "consumers"):
        assert {200, 400} <= statuses[f"POST {verb}"], statuses


@pytest.mark.slow
def test_random_requests_are_answered_as_the_description_says(
    attacked: Server, tmp_path: Path
) -> None:
    ground = Ground(attacked)
    statuses = run(
        attacked, tmp_path, ground.config(ground.drawn(), examples=100), phases="fuzzing"
    )
    for verb in ("messages", "batch", "pull", "ack", "peek", "purge", "queues"):
        assert {200, 400} <= statuses[f"POST {verb}"], statuses


def test_description_names_every_route(server: Server) -> None:
    document = httpx.get(f"{server.url}/client/v4/openapi.json", trust_env=False).json()
    assert document["openapi"].startswith("3.")
    operations = {
        (method.upper(), path.partition("/accounts/{account_id}")[2])
        for path, item in document["paths"].items()
        for method in item
        if method in ("get", "put", "post", "patch", "delete")
    }
    assert operations >= {
        ("POST", "/queues"),
        ("GET", "/queues"),
        ("GET", QUEUE),
        ("PUT", QUEUE),
        ("PATCH", QUEUE),
        ("DELETE", QUEUE),
        ("GET", f"{QUEUE}/metrics"),
        ("POST", f"{QUEUE}/consumers"),
        ("GET", f"{QUEUE}/consumers"),
        ("GET", CONSUMER),
        ("PUT", CONSUMER),
        ("DELETE", CONSUMER),
        ("POST", f"{QUEUE}/messages"),
        ("POST", f"{QUEUE}/messages/batch"),
        ("POST", f"{QUEUE}/messages/pull"),
        ("POST", f"{QUEUE}/messages/ack"),
        ("POST", f"{QUEUE}/messages/peek"),
        ("POST", f"{QUEUE}/messages/purge"),
        ("POST", f"{QUEUE}/purge"),
        ("GET", f"{QUEUE}/purge"),
        ("POST", SUBSCRIPTIONS),
        ("GET", SUBSCRIPTIONS),
        ("GET", SUBSCRIPTION),
        ("PATCH", SUBSCRIPTION),
        ("DELETE", SUBSCRIPTION),
    }
