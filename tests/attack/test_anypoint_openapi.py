"""The published descriptions of the Anypoint APIs, against the server that publishes them."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.attack.description import Attack, table
from tests.attack.environment import Environment, accepted, settle_down
from tests.server import Server

BROKER = "/api/v1"
ADMIN = "/mq/admin/api"
STATS = "/mq/stats/api/v1"
ORGANIZATION = "/organizations/{organizationId}"
ENVIRONMENT = f"{ORGANIZATION}/environments/{{environmentId}}"
REGION = f"{ENVIRONMENT}/regions/{{regionId}}"
MESSAGES = f"{ENVIRONMENT}/destinations/{{destinationId}}/messages"
LOCK = f"{MESSAGES}/{{messageId}}/locks/{{lockId}}"
QUEUE = f"{REGION}/destinations/queues/{{queueId}}"
EXCHANGE = f"{REGION}/destinations/exchanges/{{exchangeId}}"
BINDINGS = f"{REGION}/bindings/exchanges/{{exchangeId}}"
BINDING = f"{BINDINGS}/queues/{{queueId}}"
CLIENT = f"{ENVIRONMENT}/clients/{{clientId}}"
NOBODY = "00000000-0000-4000-8000-000000000000"
SPOTS = 8
NOT_OFFERED = ["2xx", "4xx", "501"]
METHODS = ("get", "put", "post", "patch", "delete")

Apart = list[tuple[str, str, dict[str, Any]]]


class Ground:
    """Things to attack by their real ids: made-up ids would only ever be refused."""

    def __init__(self, server: Server) -> None:
        self.environment = Environment(server)
        self.spots = [settle_down(self.environment, f"attacked-{n}") for n in range(SPOTS)]
        self.locks = [spot.lock(spot.queue, "m1") for spot in self.spots]
        for spot in self.spots:
            for number in range(10):
                spot.publish(spot.exchange, f"copy-{number}")
                spot.publish(spot.line, f"first-{number}")
        self.clients = [self._client(f"app-{number}") for number in range(4)]

    def _client(self, name: str) -> str:
        admin = self.environment.admin
        path = f"//mq/admin/api/v1{self.environment.place}/clients"
        made = accepted(admin.ask("PUT", path, json.dumps({"name": name}).encode()))
        return str(made["clientId"])

    def ids(self, number: int) -> dict[str, Any]:
        """The ids of one spot and of the message that is locked there."""
        own, spot = self.environment.own, self.spots[number]
        return {
            "path.organizationId": own["organization_id"],
            "path.environmentId": own["environment_id"],
            "path.regionId": own["region"],
            "path.destinationId": spot.queue,
            "path.messageId": "m1",
            "path.lockId": self.locks[number],
            "path.queueId": spot.queue,
            "path.exchangeId": spot.exchange,
            "path.clientId": self.clients[number % len(self.clients)],
            # Without it, a GET waits ten seconds for a message.
            "query.pollingTime": 0,
        }

    def fixed(self, prefix: str, apart: Apart) -> str:
        """Always the same spot, except for the operations that are given others."""
        tables = [table("parameters", self.ids(0))]
        for method, path, ids in apart:
            tables.append(f'[[operations]]\ninclude-name = "{method} {prefix}{path}"')
            tables.append(table("operations.parameters", ids))
        return "\n".join([*tables, self._special()])

    def drawn(self) -> str:
        """Any of the ids most of the time, and sometimes none of them."""
        names = [name for spot in self.spots for name in spot.destinations()]
        values = {
            "destinations": names,
            "queues": [*(spot.queue for spot in self.spots), *(spot.line for spot in self.spots)],
            "exchanges": [spot.exchange for spot in self.spots],
            "messages": ["m1", "copy-1", "first-1", "new"],
            "locks": self.locks,
            "clients": self.clients,
        }
        bound: dict[str, Any] = {
            name: value
            for name, value in self.ids(0).items()
            if name in ("path.organizationId", "path.environmentId", "query.pollingTime")
        }
        bound["path.regionId"] = self.environment.own["region"]
        for parameter, dictionary in (
            ("path.destinationId", "destinations"),
            ("path.queueId", "queues"),
            ("path.exchangeId", "exchanges"),
            ("path.messageId", "messages"),
            ("path.lockId", "locks"),
            ("path.clientId", "clients"),
            ("query.destinationIds", "queues"),
        ):
            bound[parameter] = {"dictionary": dictionary, "probability": 0.8}
        dictionaries = {name: {"values": entries} for name, entries in values.items()}
        return "\n".join(
            [table("dictionaries", dictionaries), table("parameters", bound), self._special()]
        )

    def _special(self) -> str:
        """What would take everything away aims at nobody, and what is not offered says so."""
        nobody = {"path.organizationId": NOBODY, "path.environmentId": NOBODY}
        parts = [
            f'[[operations]]\ninclude-name = "PUT {ADMIN}/v1{QUEUE}/fallback"',
            table("operations.checks", {"not_a_server_error": {"expected-statuses": NOT_OFFERED}}),
        ]
        for path in (ORGANIZATION, ENVIRONMENT):
            parts.append(f'[[operations]]\ninclude-name = "DELETE {ADMIN}/v1{path}"')
            parts.append(table("operations.parameters", nobody))
        return "\n".join(parts)

    def broker(self, ids: str) -> Attack:
        token = self.environment.broker.token
        return Attack(self.environment.server, f"{BROKER}/openapi.json", token, ids)

    def admin(self, ids: str) -> Attack:
        token = self.environment.admin.token
        return Attack(self.environment.server, f"{ADMIN}/v1/openapi.json", token, ids)

    def stats(self, ids: str) -> Attack:
        token = self.environment.stats.token
        return Attack(self.environment.server, f"{STATS}/openapi.json", token, ids)


# --- every value the description allows or forbids -------------------------------------------


@pytest.mark.slow
def test_every_message_request_is_answered_as_the_description_says(
    attacked: Server, tmp_path: Path
) -> None:
    ground = Ground(attacked)
    apart: Apart = [
        ("DELETE", f"{MESSAGES}/{{messageId}}", ground.ids(1)),
        ("DELETE", LOCK, ground.ids(2)),
        ("PATCH", LOCK, ground.ids(3)),
        ("PUT", MESSAGES, {**ground.ids(4), "path.destinationId": ground.spots[4].exchange}),
        (
            "PUT",
            f"{MESSAGES}/{{messageId}}",
            {**ground.ids(4), "path.destinationId": ground.spots[4].line},
        ),
    ]
    attack = ground.broker(ground.fixed(BROKER, apart))
    seen = attack.run(tmp_path, phases="examples,coverage", examples=1)
    # The attack is worth nothing when it does not get past the door.
    assert {200, 400} <= seen.statuses("GET", "/messages")
    assert {200, 400} <= seen.statuses("PUT", "/messages")
    assert {200, 400} <= seen.statuses("DELETE", "/messages")
    assert {200, 400} <= seen.statuses("DELETE", "/messages/locks")
    assert {200, 400} <= seen.statuses("PATCH", "/messages/locks")
    assert {201, 400} <= seen.statuses("PUT", "/messages/m1")
    assert 400 in seen.statuses("DELETE", "/messages/m1")
    assert {200, 400} <= seen.statuses("PATCH", "/locks/[^/]+")
    assert 200 in seen.statuses("DELETE", "/locks/[^/]+")
    assert {400, 401} <= seen.statuses("POST", "/authorize")


@pytest.mark.slow
def test_every_settings_request_is_answered_as_the_description_says(
    attacked: Server, tmp_path: Path
) -> None:
    ground = Ground(attacked)
    apart: Apart = [
        ("DELETE", f"/v1{QUEUE}", ground.ids(1)),
        ("DELETE", f"/v1{EXCHANGE}", ground.ids(2)),
        ("DELETE", f"/v1{BINDING}", ground.ids(3)),
        ("DELETE", f"/v1{CLIENT}", ground.ids(3)),
        ("POST", f"/v1{CLIENT}", ground.ids(2)),
    ]
    attack = ground.admin(ground.fixed(ADMIN, apart))
    seen = attack.run(tmp_path, phases="examples,coverage", examples=1)
    assert {200, 400} <= seen.statuses("PUT", "/destinations/queues/[^/]+")
    assert {200, 400} <= seen.statuses("PATCH", "/v1/.*/destinations/queues/[^/]+")
    assert {200, 400} <= seen.statuses("PATCH", "/v2/.*/destinations/queues/[^/]+")
    assert {204, 404} <= seen.statuses("DELETE", "/destinations/queues/[^/]+")
    assert {200, 400} <= seen.statuses("PUT", "/destinations/exchanges/[^/]+")
    assert {200, 400} <= seen.statuses("PATCH", "/destinations/exchanges/[^/]+")
    assert {200} <= seen.statuses("PUT", "/bindings/exchanges/[^/]+/queues/[^/]+")
    assert {400} <= seen.statuses("PUT", "/rules/routing")
    assert {204} <= seen.statuses("DELETE", "/rules/routing")
    assert {200, 400} <= seen.statuses("PUT", "/clients")
    assert {200} <= seen.statuses("POST", "/clients/[^/]+")
    assert {200, 404} <= seen.statuses("DELETE", "/clients/[^/]+")
    assert {200} <= seen.statuses("GET", "/destinations")


@pytest.mark.slow
def test_every_numbers_request_is_answered_as_the_description_says(
    attacked: Server, tmp_path: Path
) -> None:
    ground = Ground(attacked)
    attack = ground.stats(ground.fixed(STATS, []))
    seen = attack.run(tmp_path, phases="examples,coverage", examples=1)
    assert {200} <= seen.statuses("GET", "/queues")
    for path in ("/queues/[^/]+", "/exchanges/[^/]+", "/environments/[^/]+"):
        assert {400} <= seen.statuses("GET", path), path


# --- at random -------------------------------------------------------------------------------


@pytest.mark.slow
def test_random_message_requests_are_answered_as_the_description_says(
    attacked: Server, tmp_path: Path
) -> None:
    ground = Ground(attacked)
    seen = ground.broker(ground.drawn()).run(tmp_path, phases="fuzzing", examples=60)
    assert {200, 400, 404} <= seen.statuses("GET", "/messages")
    assert {200, 400} <= seen.statuses("PUT", "/messages")
    assert {201, 400} <= seen.statuses("PUT", "/messages/[^/]+")
    assert {400} <= seen.statuses("DELETE", "/messages/[^/]+")


@pytest.mark.slow
def test_random_settings_requests_are_answered_as_the_description_says(
    attacked: Server, tmp_path: Path
) -> None:
    ground = Ground(attacked)
    seen = ground.admin(ground.drawn()).run(tmp_path, phases="fuzzing", examples=40)
    assert {200, 400} <= seen.statuses("PUT", "/destinations/queues/[^/]+")
    assert {200, 400} <= seen.statuses("PATCH", "/destinations/queues/[^/]+")
    assert {200, 400} <= seen.statuses("PUT", "/clients")
    assert 400 in seen.statuses("PUT", "/rules/routing")


@pytest.mark.slow
def test_random_numbers_requests_are_answered_as_the_description_says(
    attacked: Server, tmp_path: Path
) -> None:
    ground = Ground(attacked)
    seen = ground.stats(ground.drawn()).run(tmp_path, phases="fuzzing", examples=80)
    assert {200, 400} <= seen.statuses("GET", "/queues")
    assert {400, 404} <= seen.statuses("GET", "/queues/[^/]+")


# --- the descriptions themselves -------------------------------------------------------------


def described(server: Server, document: str) -> set[tuple[str, str]]:
    answer = httpx.get(f"{server.url}{document}", trust_env=False, verify=False).json()
    assert answer["openapi"].startswith("3.")
    return {
        (method.upper(), path)
        for path, item in answer["paths"].items()
        for method in item
        if method in METHODS
    }


def test_descriptions_name_every_route(server: Server) -> None:
    assert described(server, f"{BROKER}/openapi.json") >= {
        ("POST", f"{BROKER}/authorize"),
        *((method, f"{BROKER}{MESSAGES}") for method in ("GET", "PUT", "DELETE")),
        *((method, f"{BROKER}{MESSAGES}/locks") for method in ("PATCH", "DELETE")),
        *((method, f"{BROKER}{MESSAGES}/{{messageId}}") for method in ("PUT", "DELETE")),
        *((method, f"{BROKER}{LOCK}") for method in ("PATCH", "DELETE")),
    }
    v1 = f"{ADMIN}/v1"
    settings = ("PUT", "GET", "PATCH", "DELETE")
    assert described(server, f"{v1}/openapi.json") >= {
        ("POST", f"{v1}/authorize"),
        ("GET", f"{v1}{ENVIRONMENT}/regions"),
        ("GET", f"{v1}{REGION}"),
        ("GET", f"{v1}{REGION}/destinations"),
        *((method, f"{v1}{QUEUE}") for method in settings),
        ("PATCH", f"{ADMIN}/v2{QUEUE}"),
        ("DELETE", f"{v1}{QUEUE}/messages"),
        ("PUT", f"{v1}{QUEUE}/fallback"),
        *((method, f"{v1}{EXCHANGE}") for method in settings),
        ("GET", f"{v1}{BINDINGS}"),
        ("GET", f"{v1}{REGION}/bindings/queues/{{queueId}}"),
        *((method, f"{v1}{BINDING}") for method in ("GET", "PUT", "DELETE")),
        *((method, f"{v1}{BINDING}/rules/routing") for method in ("PUT", "DELETE")),
        *((method, f"{v1}{ENVIRONMENT}/clients") for method in ("GET", "PUT")),
        *((method, f"{v1}{CLIENT}") for method in ("POST", "DELETE")),
        ("DELETE", f"{v1}{ENVIRONMENT}"),
        ("DELETE", f"{v1}{ORGANIZATION}"),
    }
    assert described(server, f"{STATS}/openapi.json") >= {
        ("GET", f"{STATS}{REGION}/queues"),
        ("GET", f"{STATS}{REGION}/queues/{{queueId}}"),
        ("GET", f"{STATS}{REGION}/exchanges/{{exchangeId}}"),
        ("GET", f"{STATS}{ORGANIZATION}"),
        ("GET", f"{STATS}{ENVIRONMENT}"),
    }
