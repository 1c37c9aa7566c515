"""The routes of our own, with input that nobody should send."""

import json
from typing import Any

import pytest

from tests.attack.peer import Account, Answer
from tests.server import Server

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
