"""The published descriptions of the APIs: valid, complete, and in the contract's words."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.wire.anypoint.environment import ADMIN, BROKER, STATS
from tests.wire.anypoint.operations import OPERATIONS

DOCUMENTS = [BROKER, ADMIN, STATS, "/accounts"]
METHODS = ("get", "put", "post", "delete", "patch")

_M = "OrganizationsByOrganizationidEnvironmentsByEnvironmentidDestinationsByDestinationidMessages"
_MESSAGES = (
    BROKER
    + "/organizations/{organizationId}/environments/{environmentId}"
    + "/destinations/{destinationId}/messages"
)
CONTRACT = {
    ("get", _MESSAGES): f"get{_M}",
    ("put", _MESSAGES): f"update{_M}",
    ("delete", _MESSAGES): f"delete{_M}",
    ("patch", _MESSAGES + "/locks"): f"patch{_M}Locks",
    ("delete", _MESSAGES + "/locks"): f"delete{_M}Locks",
    ("put", _MESSAGES + "/{messageId}"): f"update{_M}ByMessageid",
    ("delete", _MESSAGES + "/{messageId}"): f"delete{_M}ByMessageid",
    (
        "patch",
        _MESSAGES + "/{messageId}/locks/{lockId}",
    ): f"patch{_M}ByMessageidLocksByLockid",
    (
        "delete",
        _MESSAGES + "/{messageId}/locks/{lockId}",
    ): f"delete{_M}ByMessageidLocksByLockid",
    ("post", BROKER + "/authorize"): "createAuthorize",
}
ACCOUNTS = {
    ("post", "/accounts/oauth2/token"),
    ("post", "/accounts/api/v2/oauth2/token"),
    ("post", "/accounts/login"),
    ("post", "/accounts/api/login"),
    ("get", "/accounts/api/me"),
    ("get", "/accounts/api/organizations/{organizationId}"),
    ("get", "/accounts/api/organizations/{organizationId}/environments"),
}


@pytest.fixture(scope="module")
def documents(http: httpx.Client) -> dict[str, dict[str, Any]]:
    """Every description, which needs no token."""
    return {path: http.get(f"{path}/openapi.json").raise_for_status().json() for path in DOCUMENTS}


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, item in document["paths"].items():
        for method in METHODS:
            if method in item:
                yield method, path, item[method]


def test_the_broker_has_the_ten_operations_of_the_contract(
    documents: dict[str, dict[str, Any]],
) -> None:
    found = {
        (method, path): operation["operationId"]
        for method, path, operation in operations(documents[BROKER])
    }
    assert found == CONTRACT


@pytest.mark.parametrize(("path", "api"), [(BROKER, "broker"), (ADMIN, "admin"), (STATS, "stats")])
def test_every_route_is_described(
    documents: dict[str, dict[str, Any]], path: str, api: str
) -> None:
    expected = {(one.method.lower(), one.path) for one in OPERATIONS if one.api == api}
    if api != "stats":
        expected.add(("post", path + "/authorize"))
    assert {(method, place) for method, place, _ in operations(documents[path])} == expected


def test_the_account_calls_are_described(documents: dict[str, dict[str, Any]]) -> None:
    found = {(method, path) for method, path, _ in operations(documents["/accounts"])}
    assert found == ACCOUNTS


def test_a_token_needs_no_token(documents: dict[str, dict[str, Any]]) -> None:
    for document in documents.values():
        for _, path, operation in operations(document):
            if path.endswith(("/authorize", "/token", "/login")):
                assert "security" not in operation
