"""Who may do what: credentials, permissions, keys that reach only some queues."""

from collections.abc import Callable

import httpx
import pytest

from tests.wire.cloudflare.endpoints import BY_NAME, ENDPOINTS, Endpoint, each
from tests.wire.cloudflare.envelope import fail, ok, page, refused
from tests.wire.cloudflare.patience import eventually
from tests.wire.cloudflare.queue import UNKNOWN_ID, Queue, new_name

NewToken = Callable[..., str]
MESSAGES = tuple(endpoint for endpoint in ENDPOINTS if endpoint.family == "messages")


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@pytest.fixture(scope="module")
def places(http: httpx.Client) -> dict[str, str]:
    """A queue, its consumer and a subscription to it: whatever a path may name."""
    queue = Queue.create(http)
    consumer = queue.consume()
    subscription = ok(BY_NAME["create_subscription"].send(http, {"queue": queue.id}))
    return {
        "queue": queue.id,
        "consumer": consumer["consumer_id"],
        "subscription": subscription["id"],
    }


@each(*ENDPOINTS)
def test_a_request_without_a_credential_is_refused(
    anonymous: httpx.Client, account: str, endpoint: Endpoint
) -> None:
    path = endpoint.path.replace("$queue", UNKNOWN_ID)
    message = fail(anonymous.request(endpoint.method, f"/accounts/{account}{path}"), 400, 9106)
    assert "Authorization" in message


@pytest.mark.parametrize("value", ["Basic dXNlcjpwYXNz", "Bearer", "Token abc", "abc", "Bearerabc"])
@pytest.mark.parametrize("path", ["/queues", "/queues/x/messages/pull"])
def test_a_credential_of_the_wrong_form_is_refused(
    http: httpx.Client, path: str, value: str
) -> None:
    fail(http.request("GET", path, headers={"Authorization": value}), 400, 6003)


@each(*ENDPOINTS)
def test_an_unknown_token_is_refused(http: httpx.Client, endpoint: Endpoint) -> None:
    headers = bearer("nobody-has-this-token-0123456789abcdef")
    message = fail(endpoint.send(http, {}, headers=headers), 403, 9109)
    assert message == "Invalid access token"


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


@each(*ENDPOINTS)
def test_a_token_of_another_account_is_refused(
    http: httpx.Client, neighbour: httpx.Client, places: dict[str, str], endpoint: Endpoint
) -> None:
    headers = {"Authorization": neighbour.headers["Authorization"]}
    message = fail(endpoint.send(http, places, headers=headers), 403, 10000)
    assert message == "Authentication error"


@pytest.fixture(scope="module")
def read_token(new_token: NewToken) -> str:
    return new_token("read")


def test_a_token_without_permission_learns_nothing_about_what_exists(
    http: httpx.Client, read_token: str, queue: Queue
) -> None:
    headers = bearer(read_token)
    for queue_id in (queue.id, UNKNOWN_ID):
        fail(http.post(f"/queues/{queue_id}/messages/pull", headers=headers), 403, 10000)


@each(*MESSAGES)
def test_a_token_for_other_queues_may_not_use_this_one(
    http: httpx.Client, new_token: NewToken, pull_queue: Queue, endpoint: Endpoint
) -> None:
    own = Queue.create(http)
    headers = bearer(new_token("write", targets=[own.name]))
    fail(endpoint.send(http, {"queue": pull_queue.id}, headers=headers), 403, 10106)
    assert pull_queue.backlog() == 0


def test_an_unknown_key_with_an_email_is_refused(anonymous: httpx.Client, account: str) -> None:
    headers = {"X-Auth-Email": "someone@example.com", "X-Auth-Key": "0123456789abcdef"}
    assert refused(anonymous.get(f"/accounts/{account}/queues", headers=headers)) in (400, 403)
