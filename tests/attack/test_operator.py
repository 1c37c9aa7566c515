"""The routes of our own, with input that nobody should send."""

import json
from typing import Any

import httpx
import pytest

from tests.attack.peer import Account, Answer
from tests.attack.target import Target
from tests.server import Server

VALUES: list[Any] = [None, "", [], {}, True, 1.5, -1, 10**30, "5"]
NOT_JSON = [b"\xff", b"{", b'{"a":NaN}', b'{"a":1}}', b"[" * 100_000, b'{"a":"\\ud800"}']
NO_NUMBER = ["abc", "-1", "1.5", "1e400", "9" * 5_000, "NaN", "%D9%A1", "1%00", "1_0"]
KEYS = "/courier/v1/tenants/default/keys"


@pytest.fixture(scope="module")
def operator(server: Server) -> Account:
    account = Account(server)
    account.token = server.credentials["admin"]["token"]
    return account


def ask(operator: Account, method: str, path: str, value: Any = None) -> Answer:
    """`value` is sent as JSON unless it is bytes already."""
    body = (
        b"" if value is None else value if isinstance(value, bytes) else json.dumps(value).encode()
    )
    return operator.ask(method, "/" + path, body)


def refused(answer: Answer, *statuses: int) -> str:
    assert answer.status in statuses, answer
    error = answer.json()["error"]
    assert isinstance(error["code"], str) and error["code"]
    assert isinstance(error["message"], str) and error["message"]
    return str(error["message"])


@pytest.mark.parametrize("body", NOT_JSON, ids=lambda body: body[:20])
def test_what_is_not_json_is_refused(operator: Account, target: Target, body: bytes) -> None:
    queue = f"/courier/v1/tenants/default/queues/{target.name}"
    for method, path in (
        ("POST", "/courier/v1/tenants"),
        ("POST", KEYS),
        ("POST", f"{queue}/redrive"),
        ("PUT", f"{queue}/frozen"),
        ("PUT", "/journal/pipelines/attacked"),
    ):
        refused(ask(operator, method, path, body), 400)


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_field_of_the_wrong_kind_is_refused_by_name(
    operator: Account, target: Target, value: Any
) -> None:
    key = {"name": "k", "scopes": ["read"]}
    queue = f"/courier/v1/tenants/default/queues/{target.name}"
    requests: list[tuple[str, str, dict[str, Any], str, list[Any]]] = [
        ("POST", "/courier/v1/tenants", {}, "name", ["5"]),
        ("POST", KEYS, key, "name", ["", "5", None]),
        ("POST", KEYS, key, "scopes", []),
        ("POST", KEYS, key, "targets", [None, []]),
        ("POST", KEYS, key, "expires_in_seconds", [None]),
        ("POST", f"{queue}/redrive", {}, "messages", [None, []]),
        ("POST", f"{queue}/redrive", {}, "dry_run", [None, True]),
        ("PUT", f"{queue}/frozen", {}, "frozen", [True]),
        ("PUT", "/journal/pipelines/attacked", {}, "offset", []),
    ]
    for method, path, body, field, takes in requests:
        answer = ask(operator, method, path, {**body, field: value})
        if any(type(value) is type(other) and value == other for other in takes):
            assert answer.status < 500, (path, field, answer)
        else:
            assert field in refused(answer, 400), (path, field, answer)
    thaw = ask(operator, "PUT", f"{queue}/frozen", {"frozen": False})
    assert thaw.status == 200
    ask(operator, "DELETE", "/courier/v1/tenants/5")


@pytest.mark.parametrize("value", NO_NUMBER, ids=lambda value: value[:10])
@pytest.mark.parametrize("parameter", ["after", "limit"])
def test_range_of_the_journal_must_be_numbers(
    operator: Account, parameter: str, value: str
) -> None:
    assert parameter in refused(operator.ask("GET", f"//journal?{parameter}={value}"), 400)


@pytest.mark.parametrize("after", [10**15, 2**62])
def test_range_behind_the_journals_end_is_empty(operator: Account, after: int) -> None:
    answer = operator.ask("GET", f"//journal?after={after}")
    assert (answer.status, answer.body) == (200, b"")


@pytest.mark.parametrize("offset", [10**15, 2**62])
def test_pipeline_cannot_be_ahead_of_the_journal(operator: Account, offset: int) -> None:
    answer = ask(operator, "PUT", "/journal/pipelines/ahead", {"offset": offset})
    refused(answer, 400, 409)
    assert b"ahead" not in operator.ask("GET", "//journal/pipelines").body


@pytest.mark.parametrize(
    "name", ["", "a/b", "..", "a b", "\u20ac", "x" * 10_000, "\x00", "operator"]
)
def test_tenant_name_that_is_no_name_is_refused(
    operator: Account, server: Server, name: str
) -> None:
    """Names become part of a file's name."""
    before = sorted(path.name for path in server.data.rglob("*"))
    refused(ask(operator, "POST", "/courier/v1/tenants", {"name": name}), 400, 409)
    assert sorted(path.name for path in server.data.rglob("*")) == before


def test_scope_nobody_knows_is_refused(operator: Account) -> None:
    for scopes in (["everything"], ["read", "ADMIN"], [""], [None], [["read"]], ["read"] * 10_000):
        answer = ask(operator, "POST", KEYS, {"name": "k", "scopes": scopes})
        assert answer.status == 400 or (scopes[0] == scopes[-1] == "read" and answer.status == 200)


@pytest.mark.parametrize("odd", ["%2F", "%00", "..%2f", "%0A", "%ff", "a" * 10_000, "'--", "%20"])
def test_odd_name_in_a_path_is_refused(operator: Account, odd: str) -> None:
    for method, path, value in (
        ("DELETE", f"/courier/v1/tenants/{odd}", None),
        ("GET", f"/courier/v1/tenants/{odd}/keys", None),
        ("POST", f"/courier/v1/tenants/{odd}/keys", {"name": "k", "scopes": ["read"]}),
        ("DELETE", f"{KEYS}/{odd}", None),
        ("POST", f"/courier/v1/tenants/default/queues/{odd}/redrive", {}),
        ("PUT", f"/courier/v1/tenants/default/queues/{odd}/frozen", {"frozen": True}),
        ("DELETE", f"/journal/pipelines/{odd}", None),
    ):
        refused(ask(operator, method, path, value), 400, 404)


def test_every_route_of_our_own_wants_a_credential(server: Server, target: Target) -> None:
    queue = f"/courier/v1/tenants/default/queues/{target.name}"
    with httpx.Client(base_url=server.url, trust_env=False, verify=False) as nobody:
        for token in ({}, {"Authorization": "Bearer wrong"}):
            for method, path in (
                ("GET", "/journal"),
                ("GET", "/journal/head"),
                ("GET", "/journal/pipelines"),
                ("PUT", "/journal/pipelines/x"),
                ("DELETE", "/journal/pipelines/x"),
                ("GET", "/courier/v1/tenants"),
                ("POST", "/courier/v1/tenants"),
                ("DELETE", "/courier/v1/tenants/default"),
                ("GET", KEYS),
                ("POST", KEYS),
                ("DELETE", f"{KEYS}/x"),
                ("POST", f"{queue}/redrive"),
                ("PUT", f"{queue}/frozen"),
            ):
                answer = nobody.request(method, path, headers=token)
                assert answer.status_code in (401, 403), (method, path, answer.text)
                assert answer.json()["error"]["code"]
