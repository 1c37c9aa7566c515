"""Deleting everything that an environment or an organization holds."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.wire.anypoint.answers import admin_fail, fail, nothing, ok
from tests.wire.anypoint.destination import Exchange, Queue, new_id, new_name
from tests.wire.anypoint.environment import ADMIN, Environment, connected_app_token


@pytest.fixture
def pair(
    http: httpx.Client, operator: httpx.Client
) -> tuple[Environment, Environment, Callable[..., str]]:
    """Two environments of an organization, and how to get a token for scopes in the first."""
    name = new_name("tenant")
    made = operator.post("/tenants", json={"name": name})
    assert made.is_success, made.text
    beside = operator.post("/tenants", json={"name": new_name("tenant"), "beside": name})
    assert beside.is_success, beside.text

    def connected_app(*scopes: str) -> str:
        body = {"name": new_name("app"), "scopes": scopes, "kind": "connected_app"}
        key = operator.post(f"/tenants/{name}/keys", json=body).json()
        return connected_app_token(
            http, {"client_id": key["key"]["id"], "client_secret": key["token"]}
        )

    first, second = (Environment.of(http, each.json()["credentials"]) for each in (made, beside))
    for env in (first, second):
        dlq, exchange = Queue.create(env), Exchange.create(env)
        queue = Queue.create(env, deadLetterQueueId=dlq.name)
        exchange.bind(queue)
        exchange.publish("waiting")
        Queue.create(env.in_region("eu-west-1"))
    return first, second, connected_app


def delete(env: Environment, token: str) -> httpx.Response:
    return env.call("DELETE", env.admin_path, token=token)


def delete_organization(env: Environment, token: str) -> httpx.Response:
    return env.call("DELETE", f"{ADMIN}/organizations/{env.organization}", token=token)


def contents(env: Environment) -> tuple[int, int, int]:
    """How many destinations there are here and in Ireland, and how many apps."""
    destinations = [
        len(ok(each.admin("GET", "/destinations"))) for each in (env, env.in_region("eu-west-1"))
    ]
    apps = ok(env.call("GET", env.admin_path + "/clients", token=env.tokens.user))
    return destinations[0], destinations[1], len(apps)


FULL, EMPTY = (3, 1, 1), (0, 0, 0)


def test_an_environment_is_emptied(pair: Any) -> None:
    env, other, _ = pair
    assert contents(env) == FULL
    nothing(delete(env, env.tokens.user))
    assert contents(env) == EMPTY
    assert contents(other) == FULL
    nothing(delete(env, env.tokens.user))


def test_the_apps_of_an_emptied_environment_are_out(pair: Any) -> None:
    env, _, _ = pair
    nothing(delete(env, env.tokens.user))
    queue = Queue.create(env)
    fail(queue.put("m", {"body": "a"}), 401, "m")
    assert queue.put(new_id(), {"body": "a"}, token=env.tokens.user).status_code == 201
    assert queue.put(new_id(), {"body": "a"}, token=env.tokens.connected_app).status_code == 201


def test_an_emptied_environment_can_be_filled_again(pair: Any) -> None:
    env, _, _ = pair
    names = [row.get("queueId") for row in ok(env.admin("GET", "/destinations"))]
    nothing(delete(env, env.tokens.user))
    for name in filter(None, names):
        queue = Queue.create(env, name)
        response = env.broker("GET", queue.at("?pollingTime=0"), token=env.tokens.user)
        nothing(response)


def test_an_organization_is_emptied_with_all_its_environments(
    pair: Any, standing_queue: Queue
) -> None:
    env, other, _ = pair
    nothing(delete_organization(env, env.tokens.user))
    assert contents(env) == contents(other) == EMPTY
    standing_queue.settings()


@pytest.mark.parametrize(
    "scopes",
    [
        ["queues:write", "queues:read"],
        ["keys:write", "keys:read"],
        ["queues:read", "keys:write"],
        ["messages:publish", "messages:consume", "usage:read"],
    ],
)
def test_half_the_scopes_are_not_enough(pair: Any, scopes: list[str]) -> None:
    env, _, connected_app = pair
    token = connected_app(*scopes)
    admin_fail(delete(env, token), 403)
    admin_fail(delete_organization(env, token), 403)
    assert contents(env) == FULL


def test_a_connected_app_with_both_scopes_empties_its_environment(pair: Any) -> None:
    env, other, connected_app = pair
    token = connected_app("queues:write", "keys:write")
    admin_fail(delete(other, token), 403)
    admin_fail(delete_organization(env, token), 403)
    assert contents(env) == contents(other) == FULL
    nothing(delete(env, token))
    assert contents(env) == EMPTY
