"""Tenants and keys as the operator makes them: organizations, and kinds of keys."""

import uuid
from typing import Any

import httpx
import pytest

from tests.server import Server

UNKNOWN = "nobody-has-this-name"


def new_name() -> str:
    return f"n-{uuid.uuid4().hex[:16]}"


def made(response: httpx.Response) -> dict[str, Any]:
    assert response.status_code == 200, response.text
    body: dict[str, Any] = response.json()
    return body


def refused(response: httpx.Response, status: int) -> str:
    assert response.status_code == status, response.text
    message: str = response.json()["error"]["message"]
    return message


def names(operator: httpx.Client) -> set[str]:
    return {tenant["name"] for tenant in made(operator.get("/tenants"))["tenants"]}


# --- tenants ---


def organization(answer: dict[str, Any]) -> str:
    id: str = answer["credentials"]["anypoint"]["organization_id"]
    return id


def test_a_tenant_has_an_organization_of_its_own(operator: httpx.Client) -> None:
    one, two = (made(operator.post("/tenants", json={"name": new_name()})) for _ in range(2))
    assert organization(one) != organization(two)


def test_a_tenant_beside_another_shares_its_organization(
    operator: httpx.Client, server: Server
) -> None:
    first = made(operator.post("/tenants", json={"name": new_name()}))
    beside = {"name": new_name(), "beside": first["tenant"]["name"]}
    second = made(operator.post("/tenants", json=beside))
    assert organization(second) == organization(first)
    third = {"name": new_name(), "beside": second["tenant"]["name"]}
    assert organization(made(operator.post("/tenants", json=third))) == organization(first)
    ids = {each["credentials"]["anypoint"]["environment_id"] for each in (first, second)}
    assert len(ids) == 2
    fourth = {"name": new_name(), "beside": "default"}
    own = server.credentials["anypoint"]["organization_id"]
    assert organization(made(operator.post("/tenants", json=fourth))) == own


def test_a_tenant_outlives_the_one_it_was_made_beside(operator: httpx.Client) -> None:
    first, second = new_name(), new_name()
    made(operator.post("/tenants", json={"name": first}))
    shared = organization(made(operator.post("/tenants", json={"name": second, "beside": first})))
    made(operator.delete(f"/tenants/{first}"))
    third = {"name": new_name(), "beside": second}
    assert organization(made(operator.post("/tenants", json=third))) == shared


@pytest.mark.parametrize("beside", [UNKNOWN, "operator"])
def test_there_must_be_a_tenant_to_be_beside_of(
    operator: httpx.Client, server: Server, beside: str
) -> None:
    name = new_name()
    message = refused(operator.post("/tenants", json={"name": name, "beside": beside}), 404)
    assert beside in message
    assert name not in names(operator)
    assert not (server.data / f"credentials.{name}.json").exists()


# --- kinds of keys ---

KEYS = "/tenants/default/keys"


def listed(operator: httpx.Client) -> dict[str, dict[str, Any]]:
    return {key["id"]: key for key in made(operator.get(KEYS))["keys"]}


@pytest.mark.parametrize("asked", [{}, {"kind": "token"}])
def test_a_key_is_a_token_unless_told_otherwise(
    operator: httpx.Client, server: Server, asked: dict[str, str]
) -> None:
    key = made(operator.post(KEYS, json={"name": new_name(), "scopes": ["read"], **asked}))
    assert key["key"]["kind"] == "token"
    assert listed(operator)[key["key"]["id"]] == key["key"]
    account = server.credentials["cloudflare"]
    url = f"{account['base_url']}/accounts/{account['account_id']}/queues"
    headers = {"Authorization": f"Bearer {key['token']}"}
    assert httpx.get(url, headers=headers, trust_env=False, verify=False).status_code == 200


def test_a_connected_app_trades_its_secret_for_a_token(
    operator: httpx.Client, server: Server
) -> None:
    body = {"name": new_name(), "scopes": ["queues:read"], "kind": "connected_app"}
    app = made(operator.post(KEYS, json=body))
    assert (app["key"]["kind"], app["key"]["scopes"]) == ("connected_app", ["queues:read"])
    assert listed(operator)[app["key"]["id"]] == app["key"]
    asked = {
        "client_id": app["key"]["id"],
        "client_secret": app["token"],
        "grant_type": "client_credentials",
    }
    url = f"{server.url}/accounts/api/v2/oauth2/token"
    assert httpx.post(url, json=asked, trust_env=False, verify=False).status_code == 200
    # Its secret is no token itself, neither here nor elsewhere.
    headers = {"Authorization": f"Bearer {app['token']}"}
    account = server.credentials["cloudflare"]
    url = f"{account['base_url']}/accounts/{account['account_id']}/queues"
    assert httpx.get(url, headers=headers, trust_env=False, verify=False).is_client_error
    assert operator.get("/tenants", headers=headers).status_code == 401


def test_a_list_tells_the_kinds_apart(operator: httpx.Client) -> None:
    kinds = {key["name"]: key["kind"] for key in listed(operator).values()}
    assert kinds["first"] == "token"
    assert kinds["first-app"] == "app"
    assert kinds["first-connected-app"] == "connected_app"
    assert kinds["admin@default"] == "user"


def test_the_operator_has_tokens_only(operator: httpx.Client) -> None:
    body = {"name": new_name(), "scopes": ["admin"], "kind": "connected_app"}
    assert "kind" in refused(operator.post("/tenants/operator/keys", json=body), 400)


def test_a_connected_app_expires_when_told_to(operator: httpx.Client) -> None:
    body = {
        "name": new_name(),
        "scopes": ["read"],
        "kind": "connected_app",
        "expires_in_seconds": 60,
    }
    key = made(operator.post(KEYS, json=body))["key"]
    assert key["expires_ms"] - key["created_ms"] == 60_000
