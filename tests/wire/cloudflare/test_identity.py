"""What a client asks to learn who it is."""

import httpx
import pytest

from tests.wire.cloudflare.envelope import fail, ok, page
from tests.wire.cloudflare.shapes import exactly, filled, identifier, one_of

IDENTITY = ["/user/tokens/verify", "/user", "/accounts", "/memberships"]


@pytest.fixture
def me(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def test_a_good_token_is_active(anonymous: httpx.Client, me: dict[str, str]) -> None:
    result = ok(anonymous.get("/user/tokens/verify", headers=me))
    exactly(result, {"id": filled, "status": one_of("active")})


def test_an_unknown_token_does_not_verify(anonymous: httpx.Client) -> None:
    response = anonymous.get("/user/tokens/verify", headers={"Authorization": "Bearer unknown"})
    assert fail(response, 401, 1000) == "Invalid API Token"


@pytest.mark.parametrize("path", ["/user", "/accounts", "/memberships"])
def test_an_unknown_token_is_refused_elsewhere(anonymous: httpx.Client, path: str) -> None:
    fail(anonymous.get(path, headers={"Authorization": "Bearer unknown"}), 403, 9109)


@pytest.mark.parametrize("path", IDENTITY)
def test_identity_needs_a_credential(anonymous: httpx.Client, path: str) -> None:
    fail(anonymous.get(path), 400, 9106)


@pytest.mark.parametrize("path", IDENTITY)
def test_identity_needs_a_credential_of_the_right_form(anonymous: httpx.Client, path: str) -> None:
    fail(anonymous.get(path, headers={"Authorization": "Basic x"}), 400, 6003)


def test_a_user_has_an_email(anonymous: httpx.Client, me: dict[str, str]) -> None:
    result = ok(anonymous.get("/user", headers=me))
    assert "@" in result["email"]


@pytest.mark.parametrize("query", ["", "?page=1", "?page=1&per_page=50"])
def test_a_token_sees_its_own_account_alone(
    anonymous: httpx.Client, me: dict[str, str], account: str, neighbour: httpx.Client, query: str
) -> None:
    rows, info = page(anonymous.get(f"/accounts{query}", headers=me))
    (row,) = rows
    exactly(row, {"id": identifier, "name": filled, "type": filled})
    assert row["id"] == account
    assert (info["page"], info["total_count"], info["total_pages"]) == (1, 1, 1)


@pytest.mark.parametrize("query", ["", "?page=1"])
def test_a_token_is_a_member_of_the_account_it_sees(
    anonymous: httpx.Client, me: dict[str, str], account: str, query: str
) -> None:
    rows, info = page(anonymous.get(f"/memberships{query}", headers=me))
    (row,) = rows
    assert filled(row["id"])
    assert filled(row["status"])
    assert row["account"]["id"] == account
    assert info["total_count"] == 1
    (seen,), _ = page(anonymous.get("/accounts", headers=me))
    assert row["account"]["name"] == seen["name"]


@pytest.mark.parametrize("path", ["/accounts", "/memberships"])
def test_a_second_page_of_identity_is_empty(
    anonymous: httpx.Client, me: dict[str, str], path: str
) -> None:
    rows, info = page(anonymous.get(path, params={"page": 2}, headers=me))
    assert rows == []
    assert (info["page"], info["total_count"]) == (2, 1)


def test_a_script_has_a_default_environment(http: httpx.Client) -> None:
    result = ok(http.get("/workers/services/some-script"))
    assert isinstance(result["default_environment"]["environment"], str)
