"""Admin and stats: no token, unknown URLs, wrong methods, and what makes no difference."""

from typing import Any

import httpx
import pytest

from tests.wire.anypoint.answers import admin_fail, nothing, ok
from tests.wire.anypoint.destination import Exchange, Queue
from tests.wire.anypoint.environment import ADMIN, GRANT, Environment
from tests.wire.anypoint.operations import (
    ADMIN_OPERATIONS,
    EVERYTHING_OPERATIONS,
    STATS_OPERATIONS,
    Operation,
    each,
    places,
)
from tests.wire.anypoint.shapes import queue_object

REGIONAL = [one for one in ADMIN_OPERATIONS + STATS_OPERATIONS if "{regionId}" in one.path]


def somewhere(env: Environment) -> dict[str, str]:
    """Places where there is nothing."""
    return places(env, queueId="nothing", exchangeId="nothing", clientId="nothing")


@each(*ADMIN_OPERATIONS, *EVERYTHING_OPERATIONS, *STATS_OPERATIONS)
def test_the_token_of_a_client_app_is_not_for_admin_and_stats(
    env: Environment, operation: Operation
) -> None:
    operation.fails(operation.send(env, somewhere(env), token=env.tokens.app), 403)


@each(*REGIONAL)
def test_an_unknown_region_is_not_found(env: Environment, operation: Operation) -> None:
    there = {**somewhere(env), "regionId": "mars-north-1"}
    message = operation.fails(operation.send(env, there, token=env.tokens.user), 404)
    assert "region" in message


def test_a_slash_at_the_end_makes_no_difference(queue: Queue) -> None:
    env = queue.env
    assert ok(env.admin("GET", queue.admin_at() + "/")) == queue_object(queue.name)
    assert ok(env.admin("GET", f"/destinations/?destinationIds={queue.name}")) == [
        queue_object(queue.name)
    ]
    path = f"{env.stats_path}/queues/?destinationIds={queue.name}"
    assert len(ok(env.call("GET", path, token=env.tokens.user))) == 1


def test_headers_that_name_another_place_make_no_difference(
    queue: Queue, neighbour: Environment
) -> None:
    headers = {
        "X-ANYPNT-ORG-ID": neighbour.organization,
        "X-ANYPNT-ENV-ID": neighbour.id,
        "Cache-Control": "no-cache",
        "X-Correlation-ID": "x",
        "Postman-Token": "x",
    }
    response = queue.env.admin("GET", queue.admin_at(), headers=headers)
    assert ok(response) == queue_object(queue.name)


@pytest.mark.parametrize("write", ["bearer {}", "BEARER {}", "bearer{}", "Bearer{}"])
def test_a_token_is_shown_in_many_ways(env: Environment, http: httpx.Client, write: str) -> None:
    headers = {"Authorization": write.format(env.tokens.user)}
    ok(http.get(env.region_path + "/destinations", headers=headers))


def test_a_body_where_none_is_wanted_is_ignored(queue: Queue, exchange: Exchange) -> None:
    env = queue.env
    for path in (
        queue.admin_at("/messages"),
        exchange.admin_at(),
        queue.admin_at(),
    ):
        nothing(env.admin("DELETE", path, {"whatever": [1, 2, 3]}))


# --- the token of a client app, asked for here ---

AUTHORIZE = ADMIN + "/authorize"


def test_the_admin_api_gives_a_client_app_its_token(
    http: httpx.Client, env: Environment, anypoint: dict[str, Any]
) -> None:
    app = {name: anypoint[name] for name in ("client_id", "client_secret")}
    answer = ok(http.post(AUTHORIZE, data={**app, **GRANT}))
    assert answer == {"access_token": env.tokens.app, "token_type": "bearer"}


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"client_id": "wrong"}, 401),
        ({"client_id": ""}, 401),
        ({"client_secret": "wrong"}, 401),
        ({"client_secret": ""}, 401),
        ({"grant_type": "password"}, 400),
        ({"grant_type": ""}, 400),
    ],
)
def test_the_admin_api_refuses_a_token_in_its_own_words(
    http: httpx.Client, anypoint: dict[str, Any], change: dict[str, str], status: int
) -> None:
    app = {name: anypoint[name] for name in ("client_id", "client_secret")}
    admin_fail(http.post(AUTHORIZE, data={**app, **GRANT, **change}), status)
    admin_fail(http.post(AUTHORIZE, json={**app, **GRANT, **change}), status)
