"""Rotation of every kind of key, on a running server."""

import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import httpx
import pytest

from tests.server import Server

GRANT = {"grant_type": "client_credentials"}
WAIT_S_MAX = 10.0


class Kind(NamedTuple):
    """A key of the first tenant or of the operator, by name; `sign_in` gives a status."""

    tenant: str
    name: str
    secret: Callable[[dict[str, Any]], str]
    sign_in: Callable[[httpx.Client, dict[str, Any], str], int]


def _cloudflare(http: httpx.Client, _: dict[str, Any], secret: str) -> int:
    headers = {"Authorization": f"Bearer {secret}"}
    return http.get("/client/v4/user/tokens/verify", headers=headers).status_code


def _discue(http: httpx.Client, _: dict[str, Any], secret: str) -> int:
    return http.get("/v1/queues", headers={"X-API-KEY": secret}).status_code


def _operator(http: httpx.Client, _: dict[str, Any], secret: str) -> int:
    headers = {"Authorization": f"Bearer {secret}"}
    return http.get("/courier/v1/tenants", headers=headers).status_code


def _app(http: httpx.Client, made: dict[str, Any], secret: str) -> int:
    asked = {"client_id": made["anypoint"]["client_id"], "client_secret": secret, **GRANT}
    return http.post("/api/v1/authorize", json=asked).status_code


def _connected_app(http: httpx.Client, made: dict[str, Any], secret: str) -> int:
    id = made["anypoint"]["connected_app"]["client_id"]
    asked = {"client_id": id, "client_secret": secret, **GRANT}
    return http.post("/accounts/api/v2/oauth2/token", json=asked).status_code


def _user(http: httpx.Client, made: dict[str, Any], secret: str) -> int:
    asked = {"username": made["anypoint"]["user"]["username"], "password": secret}
    return http.post("/accounts/login", json=asked).status_code


KINDS = {
    "token": Kind("default", "first", lambda made: made["cloudflare"]["api_token"], _cloudflare),
    "discue": Kind("default", "first-discue", lambda made: made["discue"]["api_key"], _discue),
    "app": Kind("default", "first-app", lambda made: made["anypoint"]["client_secret"], _app),
    "connected_app": Kind(
        "default",
        "first-connected-app",
        lambda made: made["anypoint"]["connected_app"]["client_secret"],
        _connected_app,
    ),
    "user": Kind(
        "default", "admin@default", lambda made: made["anypoint"]["user"]["password"], _user
    ),
    "operator": Kind("operator", "first", lambda made: made["admin"]["token"], _operator),
}
each_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("rotation")).start() as server:
        yield server
        assert "Traceback" not in server.log()


@pytest.fixture
def http(own: Server) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=own.url, trust_env=False, verify=False, timeout=30.0) as client:
        yield client


def keys(http: httpx.Client, own: Server, tenant: str) -> dict[str, dict[str, Any]]:
    headers = {"Authorization": f"Bearer {own.credentials['admin']['token']}"}
    answer = http.get(f"/courier/v1/tenants/{tenant}/keys", headers=headers)
    assert answer.status_code == 200, answer.text
    return {key["name"]: key for key in answer.json()["keys"]}


def rotate(http: httpx.Client, own: Server, kind: Kind, **body: Any) -> httpx.Response:
    headers = {"Authorization": f"Bearer {own.credentials['admin']['token']}"}
    id = keys(http, own, kind.tenant)[kind.name]["id"]
    at = f"/courier/v1/tenants/{kind.tenant}/keys/{id}/rotate"
    return http.post(at, json=body, headers=headers)


@each_kind
def test_both_secrets_work_for_a_day_unless_told_otherwise(
    http: httpx.Client, own: Server, kind: Kind
) -> None:
    made = own.credentials
    old = kind.secret(made)
    answer = rotate(http, own, kind)
    assert answer.status_code == 200, answer.text
    new = answer.json()["token"]
    assert kind.secret(own.credentials) == new != old, "the file has the new one"
    assert [kind.sign_in(http, made, secret) for secret in (old, new)] == [200, 200]
    (until_ms, *_) = keys(http, own, kind.tenant)[kind.name]["old_secrets_until_ms"]
    assert abs(until_ms / 1000 - time.time() - 86_400) < 60


@each_kind
def test_the_old_secret_stops_when_the_overlap_is_over(
    http: httpx.Client, own: Server, kind: Kind
) -> None:
    made = own.credentials
    old = kind.secret(made)
    new = rotate(http, own, kind, overlap_ms=300).json()["token"]
    deadline = time.monotonic() + WAIT_S_MAX
    while kind.sign_in(http, made, old) == 200:
        assert time.monotonic() < deadline, "the old secret still works"
        time.sleep(0.05)
    assert kind.sign_in(http, made, new) == 200


@each_kind
def test_without_an_overlap_the_old_secret_stops_at_once(
    http: httpx.Client, own: Server, kind: Kind
) -> None:
    made = own.credentials
    old = kind.secret(made)
    new = rotate(http, own, kind, overlap_ms=0).json()["token"]
    statuses = [kind.sign_in(http, made, secret) for secret in (old, new)]
    assert statuses[0] in (401, 403) and statuses[1] == 200


@pytest.mark.parametrize("overlap", [-1, 31 * 86_400_000, "1h", 1.5])
def test_an_overlap_that_makes_no_sense_is_refused(
    http: httpx.Client, own: Server, overlap: Any
) -> None:
    answer = rotate(http, own, KINDS["token"], overlap_ms=overlap)
    assert answer.status_code == 400 and "overlap_ms" in answer.text


def test_an_app_is_shown_its_new_secret(http: httpx.Client, own: Server) -> None:
    new = rotate(http, own, KINDS["app"]).json()["token"]
    anypoint = own.credentials["anypoint"]
    token = http.post("/accounts/login", json=anypoint["user"]).json()["access_token"]
    at = (
        f"/mq/admin/api/v1/organizations/{anypoint['organization_id']}"
        f"/environments/{anypoint['environment_id']}/clients"
    )
    found = http.get(at, headers={"Authorization": f"Bearer {token}"}).json()
    assert new in [client["clientSecret"] for client in found]
