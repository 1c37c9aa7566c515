"""Who a token is of, and which organization and environments it reaches."""

from typing import Any

import httpx
import pytest

from tests.wire.anypoint.answers import ok
from tests.wire.anypoint.environment import Environment

ME = "/accounts/api/me"
TEXT = "text/plain; charset=UTF-8"


def organization_path(organization: str, path: str = "") -> str:
    return f"/accounts/api/organizations/{organization}{path}"


def get(env: Environment, path: str, *, token: str | None = None) -> httpx.Response:
    return env.call("GET", path, token=token or env.tokens.user)


def refused(response: httpx.Response, status: int) -> str:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == TEXT
    return response.text


def check_organization(found: Any, env: Environment) -> None:
    assert found["id"] == env.organization
    assert isinstance(found["name"], str) and found["name"]


def test_a_user_learns_its_name_and_organization(
    env: Environment, anypoint: dict[str, Any]
) -> None:
    answer = ok(get(env, ME))
    assert set(answer) == {"user"}
    user = answer["user"]
    assert user["username"] == anypoint["user"]["username"]
    check_organization(user["organization"], env)
    (member,) = user["memberOfOrganizations"]
    check_organization(member, env)
    assert member["name"] == user["organization"]["name"]


def test_a_connected_app_learns_its_organization(env: Environment) -> None:
    user = ok(get(env, ME, token=env.tokens.connected_app))["user"]
    check_organization(user["organization"], env)
    check_organization(user["memberOfOrganizations"][0], env)
    assert isinstance(user["username"], str) and user["username"]


@pytest.mark.parametrize("kind", ["user", "connected_app"])
def test_an_organization_is_shown(env: Environment, kind: str) -> None:
    path = organization_path(env.organization)
    check_organization(ok(get(env, path, token=getattr(env.tokens, kind))), env)


def environments(env: Environment, token: str | None = None) -> list[dict[str, Any]]:
    answer = ok(get(env, organization_path(env.organization, "/environments"), token=token))
    assert set(answer) == {"data", "total"}
    rows: list[dict[str, Any]] = answer["data"]
    assert answer["total"] == len(rows)
    for row in rows:
        known = {"id", "organizationId", "name", "isProduction", "type", "clientId"}
        assert set(row) >= known, row
        assert row["organizationId"] == env.organization
        assert type(row["isProduction"]) is bool
        assert all(isinstance(row[name], str) for name in known - {"isProduction"})
        assert row["id"] and row["name"] and row["type"]
    return rows


def test_a_user_sees_every_environment_of_the_organization(
    env: Environment, sibling: Environment, neighbour: Environment, anypoint: dict[str, Any]
) -> None:
    rows = {row["id"]: row for row in environments(env)}
    assert {env.id, sibling.id} <= set(rows)
    assert neighbour.id not in rows
    assert rows[env.id]["name"] == "default"
    assert rows[env.id]["clientId"] == anypoint["client_id"]
    assert {row["id"] for row in environments(sibling)} == set(rows)
    assert [row["id"] for row in environments(neighbour)] == [neighbour.id]


def test_a_connected_app_sees_its_own_environment(env: Environment, sibling: Environment) -> None:
    for each in (env, sibling):
        rows = environments(each, each.tokens.connected_app)
        assert [row["id"] for row in rows] == [each.id]


def test_everyone_of_an_organization_calls_it_by_the_same_name(
    env: Environment, sibling: Environment
) -> None:
    path = organization_path(env.organization)
    assert ok(get(env, path)) == ok(get(sibling, path))


@pytest.mark.parametrize("below", ["", "/environments"])
def test_client_apps_have_no_account(env: Environment, below: str) -> None:
    refused(get(env, ME, token=env.tokens.app), 403)
    path = organization_path(env.organization, below)
    refused(get(env, path, token=env.tokens.app), 403)
