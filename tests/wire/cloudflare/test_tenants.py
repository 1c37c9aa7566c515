"""Two tenants on one server see nothing of each other."""

import httpx
import pytest

from tests.wire.cloudflare.endpoints import BY_NAME, ENDPOINTS, Endpoint, each
from tests.wire.cloudflare.envelope import fail, ok, page
from tests.wire.cloudflare.queue import Queue

QUEUE_ENDPOINTS = tuple(endpoint for endpoint in ENDPOINTS if "$queue" in endpoint.path)
SUBSCRIPTION_ENDPOINTS = tuple(one for one in ENDPOINTS if "$subscription" in one.path)


@pytest.fixture(scope="module")
def secret(http: httpx.Client) -> Queue:
    """A queue of the default tenant with a message, a consumer and a subscription."""
    queue = Queue.create(http)
    queue.consume()
    queue.push("secret")
    ok(BY_NAME["create_subscription"].send(http, {"queue": queue.id}))
    return queue


@pytest.fixture(scope="module")
def places(secret: Queue) -> dict[str, str]:
    (consumer,) = secret.get()["consumers"]
    path = "/event_subscriptions/subscriptions"
    (subscription,), _ = page(secret.http.get(path, params={"queue_id": secret.id}))
    return {
        "queue": secret.id,
        "consumer": consumer["consumer_id"],
        "subscription": subscription["id"],
    }


@each(*QUEUE_ENDPOINTS)
def test_a_neighbours_queue_is_not_found(
    neighbour: httpx.Client, secret: Queue, places: dict[str, str], endpoint: Endpoint
) -> None:
    before = secret.get()
    code = 10104 if endpoint.family == "messages" else 11000
    response = endpoint.send(neighbour, places)
    fail(response, 404, code)
    assert secret.name not in response.text
    assert secret.get() == before
    assert [(one["body"], one["attempts"]) for one in secret.peek()] == [("secret", 0)]


@each(*SUBSCRIPTION_ENDPOINTS)
def test_a_neighbours_subscription_is_not_found(
    neighbour: httpx.Client, secret: Queue, places: dict[str, str], endpoint: Endpoint
) -> None:
    response = endpoint.send(neighbour, places)
    fail(response, 404, 0)
    assert secret.name not in response.text


def test_a_neighbours_queue_cannot_be_subscribed_to(
    neighbour: httpx.Client, places: dict[str, str]
) -> None:
    fail(BY_NAME["create_subscription"].send(neighbour, places), 404, 0)


def test_lists_hold_nothing_of_a_neighbour(neighbour: httpx.Client, secret: Queue) -> None:
    own = Queue.create(neighbour)
    rows, _ = page(neighbour.get("/queues"))
    assert own.name in {row["queue_name"] for row in rows}
    assert secret.name not in {row["queue_name"] for row in rows}
    assert page(neighbour.get("/queues", params={"name": secret.name}))[0] == []
    path = "/event_subscriptions/subscriptions"
    assert page(neighbour.get(path, params={"queue_id": secret.id}))[0] == []
    assert page(neighbour.get(path))[0] == []


def test_a_name_a_neighbour_uses_is_free(neighbour: httpx.Client, secret: Queue) -> None:
    own = Queue.create(neighbour, queue_name=secret.name)
    assert own.id != secret.id
    assert own.backlog() == 0


def test_a_dead_letter_queue_is_never_a_neighbours(
    neighbour: httpx.Client, http: httpx.Client
) -> None:
    target, source = Queue.create(http), Queue.create(neighbour)
    source.consume(dead_letter_queue=target.name, max_retries=0)
    source.push("private")
    source.settle(retries=[source.pull_one()["lease_id"]])
    assert target.backlog() == 0
    (made,), _ = page(neighbour.get("/queues", params={"name": target.name}))
    assert made["queue_id"] != target.id


def test_a_neighbours_lease_is_good_for_nothing(neighbour: httpx.Client, pull_queue: Queue) -> None:
    pull_queue.push("mine")
    lease = pull_queue.pull_one()["lease_id"]
    own = Queue.create(neighbour)
    assert set(own.settle(acks=[lease])["warnings"]) == {lease}
    assert pull_queue.settle(acks=[lease])["ackCount"] == 1


def test_a_deleted_tenant_is_locked_out(operator: httpx.Client) -> None:
    created = operator.post("/tenants", json={"name": "short-lived"})
    assert created.is_success, created.text
    account = created.json()["credentials"]["cloudflare"]
    url = f"{account['base_url']}/accounts/{account['account_id']}/queues"
    headers = {"Authorization": f"Bearer {account['api_token']}"}
    page(operator.get(url, headers=headers))
    assert operator.delete("/tenants/short-lived").is_success
    fail(operator.get(url, headers=headers), 403, 9109)
