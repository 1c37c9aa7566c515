"""The published descriptions of the APIs: valid, complete, and in the contract's words."""

import re
from collections.abc import Iterator
from typing import Any

import httpx
import jsonschema_rs
import pytest
from schemathesis.specs.openapi.definitions import OPENAPI_31

from tests.wire.anypoint.environment import ADMIN, BROKER, STATS
from tests.wire.anypoint.operations import OPERATIONS

DOCUMENTS = [BROKER, ADMIN, STATS, "/accounts"]
METHODS = ("get", "put", "post", "delete", "patch")
PARAMETER = re.compile(r"{(\w+)}")

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


def schemas(value: Any) -> Iterator[dict[str, Any]]:
    """Every schema inside."""
    if isinstance(value, dict):
        if isinstance(value.get("schema"), dict):
            yield value["schema"]
        for child in value.values():
            yield from schemas(child)
    elif isinstance(value, list):
        for child in value:
            yield from schemas(child)


@pytest.mark.parametrize("path", DOCUMENTS)
def test_a_description_is_valid(documents: dict[str, dict[str, Any]], path: str) -> None:
    document = documents[path]
    assert document["openapi"].startswith("3.1.")
    validator = jsonschema_rs.Draft202012Validator(OPENAPI_31)
    assert [error.message for error in validator.iter_errors(document)] == []


@pytest.mark.parametrize("path", DOCUMENTS)
def test_every_schema_is_valid_and_every_reference_leads_somewhere(
    documents: dict[str, dict[str, Any]], path: str
) -> None:
    document = documents[path]
    found = [*schemas(document), *document["components"]["schemas"].values()]
    assert len(found) > 5
    for schema in found:
        jsonschema_rs.Draft202012Validator({**schema, "components": document["components"]})


@pytest.mark.parametrize("path", DOCUMENTS)
def test_every_name_of_an_operation_is_its_own(
    documents: dict[str, dict[str, Any]], path: str
) -> None:
    names = [operation["operationId"] for _, _, operation in operations(documents[path])]
    assert sorted(names) == sorted(set(names))


@pytest.mark.parametrize("path", DOCUMENTS)
def test_every_variable_part_of_a_path_is_a_parameter(
    documents: dict[str, dict[str, Any]], path: str
) -> None:
    for _, place, operation in operations(documents[path]):
        parameters = operation.get("parameters", [])
        named = [one["name"] for one in parameters if one["in"] == "path"]
        assert named == PARAMETER.findall(place)
        assert all(one["required"] for one in parameters if one["in"] == "path")
        assert place.startswith(path) or path == ADMIN


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


def test_the_usual_answer_is_described(documents: dict[str, dict[str, Any]]) -> None:
    described = {
        (method, path): operation
        for document in documents.values()
        for method, path, operation in operations(document)
    }
    for one in OPERATIONS:
        operation = described[one.method.lower(), one.path]
        assert str(one.status) in operation["responses"], one.name
        assert {"400", "401", "403", "404"} <= set(operation["responses"])
        assert operation["security"], one.name
        if one.body is not None and one.name != "put_binding":
            assert "requestBody" in operation, one.name


def test_a_token_needs_no_token(documents: dict[str, dict[str, Any]]) -> None:
    for document in documents.values():
        for _, path, operation in operations(document):
            if path.endswith(("/authorize", "/token", "/login")):
                assert "security" not in operation


@pytest.mark.parametrize("path", DOCUMENTS)
def test_a_description_can_be_read_as_a_page(http: httpx.Client, path: str) -> None:
    response = http.get(f"{path}/docs")
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/html")
    assert f"{path}/openapi.json" in response.text
