"""What each scope of a connected app allows, and that it allows nothing else."""

import httpx
import pytest

from tests.wire.anypoint.answers import ok
from tests.wire.anypoint.destination import Exchange, Queue, new_name
from tests.wire.anypoint.environment import ADMIN, Environment, connected_app_token
from tests.wire.anypoint.operations import (
    ADMIN_OPERATIONS,
    BROKER_OPERATIONS,
    OPERATIONS,
    STATS_OPERATIONS,
    places,
)

# The vendor's scopes in the words that the server's operator uses.
SCOPES: dict[str, tuple[str, ...]] = {
    "publish:destinations": ("messages:publish",),
    "subscribe:destinations": ("messages:consume",),
    "administer:destinations": ("queues:read", "queues:write"),
    "view:destinations": ("queues:read",),
    "clear:destinations": ("queues:read",),
    "manage:clients": ("keys:write",),
    "view:clients": ("keys:read",),
    "read:stats": ("usage:read",),
}


class Ground:
    """An environment of its own, where nothing is lost when too much is allowed."""

    def __init__(self, http: httpx.Client, operator: httpx.Client) -> None:
        self._http = http
        self._operator = operator
        self._tenant = new_name("tenant")
        made = operator.post("/tenants", json={"name": self._tenant})
        assert made.is_success, made.text
        self.env = Environment.of(http, made.json()["credentials"])

    def token(self, *scopes: str, **fields: object) -> str:
        """A token of a connected app that has these scopes and no other."""
        body = {"name": new_name("app"), "scopes": scopes, "kind": "connected_app", **fields}
        response = self._operator.post(f"/tenants/{self._tenant}/keys", json=body)
        assert response.is_success, response.text
        key = response.json()
        app = {"client_id": key["key"]["id"], "client_secret": key["token"]}
        return connected_app_token(self._http, app)

    def places(self) -> dict[str, str]:
        """A queue with a message, bound to an exchange, and an app."""
        env = self.env
        queue, exchange = Queue.create(env), Exchange.create(env)
        exchange.bind(queue)
        queue.publish("there")
        name = {"name": new_name("app")}
        app = ok(env.call("PUT", env.admin_path + "/clients", name, token=env.tokens.user))
        return places(
            env,
            queueId=queue.name,
            exchangeId=exchange.name,
            destinationId=queue.name,
            clientId=app["clientId"],
        )


@pytest.fixture(scope="module")
def ground(http: httpx.Client, operator: httpx.Client) -> Ground:
    return Ground(http, operator)


@pytest.mark.parametrize("scope", SCOPES)
def test_a_scope_allows_what_it_is_for_and_nothing_else(ground: Ground, scope: str) -> None:
    token, there = ground.token(*SCOPES[scope]), ground.places()
    allowed = set()
    for operation in OPERATIONS:
        response = operation.send(ground.env, there, token=token)
        if response.status_code != 403:
            allowed.add(operation.name)
            assert response.status_code == operation.status, (operation.name, response.text)
        else:
            operation.fails(response, 403)
    assert allowed == {
        operation.name
        for operation in OPERATIONS
        if operation.scopes is None or scope in operation.scopes
    }


def test_all_scopes_together_allow_everything_but_to_empty_the_organization(
    ground: Ground,
) -> None:
    scopes = {word for words in SCOPES.values() for word in words}
    token, there = ground.token(*scopes), ground.places()
    for operation in (*BROKER_OPERATIONS, *STATS_OPERATIONS, *ADMIN_OPERATIONS):
        response = operation.send(ground.env, there, token=token)
        assert response.status_code == operation.status, (operation.name, response.text)
    path = f"{ADMIN}/organizations/{ground.env.organization}"
    assert ground.env.call("DELETE", path, token=token).status_code == 403


def test_the_tokens_of_a_connected_app_end_with_it(
    http: httpx.Client, operator: httpx.Client, env: Environment
) -> None:
    body = {"name": new_name("app"), "scopes": ["queues:read"], "kind": "connected_app"}
    key = operator.post("/tenants/default/keys", json=body).json()
    app = {"client_id": key["key"]["id"], "client_secret": key["token"]}
    token = connected_app_token(http, app)
    path = env.region_path + "/destinations?limit=1"
    ok(env.call("GET", path, token=token))
    assert operator.delete(f"/tenants/default/keys/{key['key']['id']}").is_success
    assert env.call("GET", path, token=token).status_code == 401
    asked = {**app, "grant_type": "client_credentials"}
    assert http.post("/accounts/api/v2/oauth2/token", json=asked).status_code == 401


def test_the_secret_of_a_connected_app_is_no_token(
    operator: httpx.Client, env: Environment
) -> None:
    body = {"name": new_name("app"), "scopes": ["write"], "kind": "connected_app"}
    secret = operator.post("/tenants/default/keys", json=body).json()["token"]
    path = env.region_path + "/destinations?limit=1"
    assert env.call("GET", path, token=secret).status_code == 401
    # And a token of the operator's making is no token of Anypoint's.
    body = {"name": new_name("key"), "scopes": ["write"]}
    token = operator.post("/tenants/default/keys", json=body).json()["token"]
    assert env.call("GET", path, token=token).status_code == 401
