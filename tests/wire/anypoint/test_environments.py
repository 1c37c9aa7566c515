"""Several environments in one organization, and other organizations beside it."""

from itertools import product

import httpx
import pytest

from tests.wire.anypoint.answers import admin_fail, fail, ok
from tests.wire.anypoint.destination import Exchange, Queue, new_id, new_name
from tests.wire.anypoint.environment import ADMIN, BROKER, Environment
from tests.wire.anypoint.operations import OPERATIONS, Operation, each, places

NO_IDS = ["x", "%00", "'", "%2F"]
KINDS = pytest.mark.parametrize("kind", ["app", "connected_app", "user"])


@pytest.fixture(scope="module")
def trio(
    http: httpx.Client, operator: httpx.Client
) -> tuple[Environment, Environment, Environment]:
    """Three environments: two of one organization, one of another."""
    made: list[Environment] = []
    name = new_name("tenant")
    for asked in (
        {"name": name},
        {"name": new_name("tenant"), "beside": name},
        {"name": new_name("tenant")},
    ):
        response = operator.post("/tenants", json=asked)
        assert response.is_success, response.text
        made.append(Environment.of(http, response.json()["credentials"]))
    first, second, third = made
    return first, second, third


def test_a_tenant_beside_another_is_an_environment_of_its_organization(
    trio: tuple[Environment, Environment, Environment],
) -> None:
    first, second, third = trio
    assert first.organization == second.organization != third.organization
    assert len({env.id for env in trio}) == 3


def targets(env: Environment) -> dict[str, str]:
    """Something to aim each operation at."""
    queue, exchange = Queue.create(env), Exchange.create(env)
    exchange.bind(queue)
    queue.publish("there")
    client = ok(
        env.call(
            "PUT", env.admin_path + "/clients", {"name": new_name("app")}, token=env.tokens.user
        )
    )
    return places(
        env,
        queueId=queue.name,
        exchangeId=exchange.name,
        destinationId=queue.name,
        clientId=client["clientId"],
    )


@each(*(one for one in OPERATIONS if one.name not in ("delete_environment", "delete_organization")))
def test_a_user_reaches_every_environment_of_the_organization(
    trio: tuple[Environment, Environment, Environment], operation: Operation
) -> None:
    first, second, _ = trio
    response = operation.send(first, targets(second), token=first.tokens.user)
    assert response.status_code == operation.status, response.text


@KINDS
def test_ids_that_do_not_belong_together_lead_nowhere(
    trio: tuple[Environment, Environment, Environment], kind: str
) -> None:
    first, _, third = trio
    token = getattr(first.tokens, kind)
    for organization, id in product(
        [first.organization, third.organization, new_id(), *NO_IDS],
        [first.id, third.id, new_id(), *NO_IDS],
    ):
        if (organization, id) == (first.organization, first.id):
            continue
        path = f"/organizations/{organization}/environments/{id}"
        fail(first.call("GET", f"{BROKER}{path}/destinations/x/messages", token=token), 403)
        admin_fail(first.call("GET", f"{ADMIN}{path}/regions", token=token), 403)


def test_ids_may_be_written_in_capitals(env: Environment, queue: Queue) -> None:
    path = env.region_path.replace(env.id, env.id.upper()) + queue.admin_at()
    path = path.replace(env.organization, env.organization.upper())
    assert ok(env.call("GET", path, token=env.tokens.user))["queueId"] == queue.name


def test_an_app_of_one_environment_is_no_app_of_another(
    trio: tuple[Environment, Environment, Environment],
) -> None:
    first, second, _ = trio
    apps = [
        {
            app["clientId"]
            for app in ok(env.call("GET", env.admin_path + "/clients", token=first.tokens.user))
        }
        for env in (first, second)
    ]
    assert apps[0] and apps[1] and not apps[0] & apps[1]


def test_an_app_made_by_a_user_next_door_belongs_where_it_was_made(
    trio: tuple[Environment, Environment, Environment],
) -> None:
    first, second, _ = trio
    made = ok(
        first.call(
            "PUT",
            second.admin_path + "/clients",
            {"name": new_name("app")},
            token=first.tokens.user,
        )
    )
    form = {
        "client_id": made["clientId"],
        "client_secret": made["clientSecret"],
        "grant_type": "client_credentials",
    }
    answer = ok(first.http.post("/api/v1/authorize", data=form))
    assert answer["simple_client"] == {"envId": second.id, "orgId": second.organization}
    queue = Queue.create(second)
    token = answer["access_token"]
    assert queue.put(new_id(), {"body": "a"}, token=token).status_code == 201
    there = Queue.create(first)
    assert there.put("m", {"body": "a"}, token=token).status_code == 403


def test_a_tenant_beside_an_unknown_one_is_not_made(operator: httpx.Client) -> None:
    name = new_name("tenant")
    response = operator.post("/tenants", json={"name": name, "beside": "nobody"})
    assert response.status_code == 404, response.text
    rows = operator.get("/tenants").json()["tenants"]
    assert name not in {row["name"] for row in rows}
