"""Tokens from the account service: client apps, connected apps, users."""

from typing import Any

import httpx
import pytest

from tests.wire.anypoint.answers import ok
from tests.wire.anypoint.destination import Queue, new_id
from tests.wire.anypoint.environment import GRANT, Environment

APP = "/accounts/oauth2/token"
CONNECTED_APP = "/accounts/api/v2/oauth2/token"
LOGINS = ["/accounts/login", "/accounts/api/login"]
TEXT = "text/plain; charset=UTF-8"


def client(anypoint: dict[str, Any], path: str) -> dict[str, str]:
    """What the caller of this path sends."""
    if path in LOGINS:
        return dict(anypoint["user"])
    app = anypoint if path == APP else anypoint["connected_app"]
    return {"client_id": app["client_id"], "client_secret": app["client_secret"], **GRANT}


def unauthorized(response: httpx.Response) -> None:
    assert response.status_code == 401, response.text
    assert response.text == "Unauthorized"
    assert response.headers["content-type"] == TEXT


# --- getting one ---


def test_a_client_app_gets_the_token_it_has_with_the_broker(
    http: httpx.Client, env: Environment, anypoint: dict[str, Any]
) -> None:
    answer = ok(http.post(APP, json=client(anypoint, APP)))
    assert answer == {
        "access_token": env.tokens.app,
        "token_type": "bearer",
        "simple_client": {"envId": env.id, "orgId": env.organization},
    }


@pytest.mark.parametrize("form", ["json", "data"])
def test_a_connected_app_gets_a_token_for_an_hour(
    http: httpx.Client, env: Environment, anypoint: dict[str, Any], form: str
) -> None:
    asked: dict[str, Any] = {form: client(anypoint, CONNECTED_APP)}
    answer = ok(http.post(CONNECTED_APP, **asked))
    assert set(answer) == {"access_token", "expires_in", "token_type"}
    assert (answer["expires_in"], answer["token_type"]) == (3_600, "bearer")
    ok(env.call("GET", env.region_path + "/destinations", token=answer["access_token"]))


@pytest.mark.parametrize("path", LOGINS)
def test_a_user_gets_a_token(
    http: httpx.Client, env: Environment, anypoint: dict[str, Any], path: str
) -> None:
    answer = ok(http.post(path, json=client(anypoint, path)))
    assert set(answer) == {"access_token", "token_type", "redirectUrl"}
    assert (answer["token_type"], answer["redirectUrl"]) == ("bearer", "/home/")
    ok(env.call("GET", env.region_path + "/destinations", token=answer["access_token"]))


def test_a_token_of_any_kind_publishes(queue: Queue, anypoint: dict[str, Any]) -> None:
    for path in (APP, CONNECTED_APP, *LOGINS):
        asked = queue.env.http.post(path, json=client(anypoint, path))
        token = ok(asked)["access_token"]
        assert queue.put(new_id(), {"body": "a"}, token=token).status_code == 201


# --- not getting one ---


@pytest.mark.parametrize("path", [APP, CONNECTED_APP, *LOGINS])
def test_wrong_or_missing_credentials_get_none(
    http: httpx.Client, anypoint: dict[str, Any], path: str
) -> None:
    good = client(anypoint, path)
    for member in good.keys() - GRANT.keys():
        for value in ("wrong", "", None):
            unauthorized(http.post(path, json={**good, member: value}))
        unauthorized(http.post(path, json={name: good[name] for name in good if name != member}))


@pytest.mark.parametrize("path", [APP, CONNECTED_APP])
@pytest.mark.parametrize("grant", ["password", "authorization_code", "", None])
def test_another_grant_type_is_refused(
    http: httpx.Client, anypoint: dict[str, Any], path: str, grant: str | None
) -> None:
    response = http.post(path, json={**client(anypoint, path), "grant_type": grant})
    assert response.status_code == 400, response.text
    assert "grant_type" in response.text
