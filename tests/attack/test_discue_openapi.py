"""The published description of the Discue API, against the server that publishes it."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.attack.description import Attack, table
from tests.attack.discue import Discue, Spot, accepted, settle_down
from tests.server import Server

DOCUMENT = "/v1/openapi.json"
QUEUE = "/v1/queues/{queue_id}"
LISTENER = f"{QUEUE}/listeners/{{listener_id}}"
MESSAGE = f"{QUEUE}/messages/{{message_id}}"
KEY = "/v1/api_keys/{api_key_id}"
DOMAIN = "/v1/domains/{domain_id}"
SPOTS = 8


class KeyAttack(Attack):
    """This API's key goes into a header of its own."""

    def _config(self, examples: int) -> str:
        text = super()._config(examples)
        bearer = f'"Authorization" = "Bearer {self.token}"'
        assert bearer in text
        return text.replace(bearer, f'"X-API-KEY" = "{self.token}"')


class Ground:
    """Things to attack by their real ids: made-up ids would only ever be refused."""

    def __init__(self, server: Server) -> None:
        self.discue = Discue(server)
        self.spots = [settle_down(self.discue, f"attacked-{number}") for number in range(SPOTS)]
        for spot in self.spots:
            # The schemas stay readable, and no longer refuse whatever is made up.
            accepted(self.discue.ask("PUT", f"/queues/{spot.queue}", b'{"schema": null}'))

    def ids(self, number: int) -> dict[str, Any]:
        spot: Spot = self.spots[number]
        return {
            "path.queue_id": spot.queue,
            "path.schema_id": spot.schema,
            "path.listener_id": spot.listener,
            "path.message_id": spot.message,
            "path.api_key_id": spot.key,
            "path.domain_id": spot.domain,
        }

    def fixed(self) -> str:
        """Always the same spot, except where an operation would take it away from the others."""
        tables = [table("parameters", self.ids(0))]
        for number, path in enumerate((MESSAGE, LISTENER, KEY, DOMAIN, QUEUE), 1):
            tables.append(f'[[operations]]\ninclude-name = "DELETE {path}"')
            tables.append(table("operations.parameters", self.ids(number)))
        return "\n".join(tables)

    def drawn(self) -> str:
        """Any of the ids most of the time, and sometimes none of them."""
        every = [self.ids(number) for number in range(SPOTS)]
        names = list(every[0])
        dictionaries = {
            name.removeprefix("path."): {"values": [ids[name] for ids in every]} for name in names
        }
        bound = {
            name: {"dictionary": name.removeprefix("path."), "probability": 0.8} for name in names
        }
        return "\n".join([table("dictionaries", dictionaries), table("parameters", bound)])


@pytest.fixture
def ground(attacked: Server) -> Ground:
    return Ground(attacked)


def attack(ground: Ground, ids: str) -> KeyAttack:
    return KeyAttack(ground.discue.server, DOCUMENT, ground.discue.token, ids)


def test_every_request_is_answered_as_the_description_says(ground: Ground, tmp_path: Path) -> None:
    seen = attack(ground, ground.fixed()).run(tmp_path, phases="examples,coverage", examples=1)
    # A description cannot say that of `name` and `alias` one must be there; what needs a new name
    # is not among these.
    for method, ending in (
        ("GET", "/queues"),
        ("PUT", "/queues/[^/]+"),
        ("GET", "/schemas/[^/]+"),
        ("PUT", "/listeners/[^/]+"),
        ("POST", "/rotate_secret"),
        ("POST", "/backfill"),
        ("POST", "/messages"),
        ("GET", "/messages/[^/]+"),
        ("PUT", "/api_keys/[^/]+"),
        ("GET", "/domains/[^/]+"),
        ("GET", "/api_keys/[^/]+"),
        ("GET", "/events"),
        ("GET", "/stats/messages"),
        ("DELETE", "/messages/[^/]+"),
        ("DELETE", "/listeners/[^/]+"),
        ("DELETE", "/queues/[^/]+"),
    ):
        assert 200 in seen.statuses(method, ending), f"{method} {ending} never succeeded"


def test_random_requests_are_answered_as_the_description_says(
    ground: Ground, tmp_path: Path
) -> None:
    seen = attack(ground, ground.drawn()).run(tmp_path, phases="fuzzing", examples=30)
    assert 200 in seen.statuses("POST", "/messages")
    assert 200 in seen.statuses("GET", "/listeners/[^/]+")


def test_the_description_names_every_route_and_is_the_same_for_everybody(server: Server) -> None:
    with httpx.Client(base_url=server.url, trust_env=False, verify=False) as client:
        documents = [client.get(path).json() for path in (DOCUMENT, "/openapi.json")]
    paths = {path.removeprefix("/v1") for path in documents[0]["paths"]}
    for path in (QUEUE, LISTENER, MESSAGE, KEY, DOMAIN):
        assert path.removeprefix("/v1") in paths
    assert f"{MESSAGE.removeprefix('/v1')}/deliveries/{{listener_id}}/retry" in paths
    assert "{" in json.dumps(documents[0])
