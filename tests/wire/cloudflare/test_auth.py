"""Who may do what: credentials, permissions, keys that reach only some queues."""

from collections.abc import Callable

import httpx
import pytest

from tests.wire.cloudflare.envelope import fail, page, refused
from tests.wire.cloudflare.patience import eventually
from tests.wire.cloudflare.queue import UNKNOWN_ID, Queue, new_name

NewToken = Callable[..., str]


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def test_a_request_without_a_credential_is_refused(anonymous: httpx.Client, account: str) -> None:
    message = fail(anonymous.get(f"/accounts/{account}/queues"), 400, 9106)
    assert "Authorization" in message


@pytest.mark.parametrize("value", ["Basic dXNlcjpwYXNz", "Bearer", "Token abc", "abc", "Bearerabc"])
@pytest.mark.parametrize("path", ["/queues", "/queues/x/messages/pull"])
def test_a_credential_of_the_wrong_form_is_refused(
    http: httpx.Client, path: str, value: str
) -> None:
    fail(http.request("GET", path, headers={"Authorization": value}), 400, 6003)


def test_an_unknown_token_is_refused(http: httpx.Client) -> None:
    headers = bearer("nobody-has-this-token-0123456789abcdef")
    assert fail(http.get("/queues", headers=headers), 403, 9109) == "Invalid access token"


def test_a_revoked_token_is_refused(
    http: httpx.Client, operator: httpx.Client, new_token: NewToken
) -> None:
    name = new_name("revoked")
    created = operator.post("/tenants/default/keys", json={"name": name, "scopes": ["write"]})
    key, token = created.json()["key"], created.json()["token"]
    page(http.get("/queues", headers=bearer(token)))
    assert operator.delete(f"/tenants/default/keys/{key['id']}").is_success
    fail(http.get("/queues", headers=bearer(token)), 403, 9109)


def test_an_expired_token_is_refused(http: httpx.Client, new_token: NewToken) -> None:
    token = new_token("write", expires_in_seconds=1)
    page(http.get("/queues", headers=bearer(token)))
    eventually(lambda: http.get("/queues", headers=bearer(token)).status_code == 403)
    fail(http.get("/queues", headers=bearer(token)), 403, 9109)


def test_a_token_of_another_account_is_refused(
    http: httpx.Client, neighbour: httpx.Client, queue: Queue
) -> None:
    headers = {"Authorization": neighbour.headers["Authorization"]}
    for path in ("/queues", queue.at()):
        assert fail(http.get(path, headers=headers), 403, 10000) == "Authentication error"


@pytest.fixture(scope="module")
def read_token(new_token: NewToken) -> str:
    return new_token("read")


def test_a_token_without_permission_learns_nothing_about_what_exists(
    http: httpx.Client, read_token: str, queue: Queue
) -> None:
    headers = bearer(read_token)
    for queue_id in (queue.id, UNKNOWN_ID):
        fail(http.post(f"/queues/{queue_id}/messages/pull", headers=headers), 403, 10000)


def test_a_token_for_other_queues_may_not_use_this_one(
    http: httpx.Client, new_token: NewToken, pull_queue: Queue
) -> None:
    own = Queue.create(http)
    headers = bearer(new_token("write", targets=[own.name]))
    path = pull_queue.at("/messages")
    fail(http.post(path, json={"body": 1}, headers=headers), 403, 10106)
    assert pull_queue.backlog() == 0


def test_an_unknown_key_with_an_email_is_refused(anonymous: httpx.Client, account: str) -> None:
    headers = {"X-Auth-Email": "someone@example.com", "X-Auth-Key": "0123456789abcdef"}
    assert refused(anonymous.get(f"/accounts/{account}/queues", headers=headers)) in (400, 403)
