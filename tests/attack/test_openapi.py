"""The published description of the API, against the server that publishes it."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.attack.description import Attack, table
from tests.attack.peer import Account, accepted
from tests.attack.target import Target, aim
from tests.server import Server

ROOT = "/client/v4/accounts/{account_id}"
QUEUE = "/queues/{queue_id}"
CONSUMER = f"{QUEUE}/consumers/{{consumer_id}}"
SUBSCRIPTIONS = "/event_subscriptions/subscriptions"
SUBSCRIPTION = f"{SUBSCRIPTIONS}/{{subscription_id}}"
DOCUMENT = "/client/v4/openapi.json"


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


@pytest.mark.slow
def test_every_value_the_description_allows_or_forbids_is_answered_as_it_says(
    attacked: Server, tmp_path: Path
) -> None:
    ground = Ground(attacked)
    attack = Attack(attacked, DOCUMENT, token=ground.account.token, ids=ground.fixed())
    seen = attack.run(tmp_path, phases="examples,coverage", examples=1)
    # The attack is worth nothing when it does not get past the door.
    for verb in ("messages", "batch", "pull", "ack", "peek", "purge", "queues", "consumers"):
        assert {200, 400} <= seen.statuses("POST", f"/{verb}"), verb


@pytest.mark.slow
def test_random_requests_are_answered_as_the_description_says(
    attacked: Server, tmp_path: Path
) -> None:
    ground = Ground(attacked)
    attack = Attack(attacked, DOCUMENT, token=ground.account.token, ids=ground.drawn())
    seen = attack.run(tmp_path, phases="fuzzing", examples=100)
    for verb in ("messages", "batch", "pull", "ack", "peek", "purge", "queues"):
        assert {200, 400} <= seen.statuses("POST", f"/{verb}"), verb


def test_description_names_every_route(server: Server) -> None:
    document = httpx.get(f"{server.url}{DOCUMENT}", trust_env=False, verify=False).json()
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
