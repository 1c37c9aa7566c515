"""Requests just as known clients send them, and what those clients read of the answers."""

import json
from typing import Any

import httpx
import pytest

from tests.wire.anypoint.answers import ok
from tests.wire.anypoint.destination import Queue, new_id, new_name
from tests.wire.anypoint.environment import GRANT, Environment, bearer


@pytest.fixture
def app(anypoint: dict[str, Any]) -> dict[str, str]:
    return {"client_id": anypoint["client_id"], "client_secret": anypoint["client_secret"]}


def test_mule_connector_with_a_client_app(
    http: httpx.Client, app: dict[str, str], queue: Queue
) -> None:
    """Versions 1 to 3: multipart for the token, all properties as strings."""
    form = {name: (None, value) for name, value in {**app, **GRANT}.items()}
    token = http.post("/api/v1/authorize", files=form).json()["access_token"]
    path = f"{queue.env.broker_path}/{queue.name}/messages"
    headers = {**bearer(token), "Content-Type": "application/json; charset=UTF-8"}
    message = {
        "headers": {"messageId": new_id()},
        "properties": {
            "contentType": "application/json; charset=UTF-8",
            "MULE_ENCODING": "UTF-8",
            "amount": "5",
        },
        "body": '{"a":1}',
    }
    id = message["headers"]["messageId"]  # type: ignore[index]
    assert http.put(f"{path}/{id}", json=message, headers=headers).is_success
    query = {"pollingTime": 10_000, "batchSize": 10, "lockTtl": 120_000}
    [found] = http.get(path, params=query, headers=headers).json()
    assert found["properties"] == message["properties"]
    assert found["headers"]["deliveryCount"] == "1"
    lock = found["headers"]["lockId"]
    assert http.patch(f"{path}/{id}/locks/{lock}", json={"ttl": 96}, headers=headers).is_success
    answer = http.request("DELETE", f"{path}/{id}", json={"lockId": lock}, headers=headers)
    assert answer.is_success


def test_mule_connector_with_a_connected_app(
    http: httpx.Client, env: Environment, anypoint: dict[str, Any]
) -> None:
    """Version 4: 404 is a destination that does not exist, anything from 500 a region down."""
    asked = {**anypoint["connected_app"], **GRANT}
    token = http.post("/accounts/api/v2/oauth2/token", data=asked).json()["access_token"]
    base = f"/api/v1/organizations/{env.organization}/environments/{env.id}"
    query = {"pollingTime": 0, "batchSize": 10, "lockTtl": 120_000}
    path = f"{base}/destinations/{new_name()}/messages"
    assert http.get(path, params=query, headers=bearer(token)).status_code == 404


def test_a_client_that_authorizes_again_after_a_401(
    http: httpx.Client, app: dict[str, str], queue: Queue
) -> None:
    path = f"{queue.env.broker_path}/{queue.name}/messages/{new_id()}"
    assert http.put(path, json={"body": "a"}, headers=bearer("stale")).status_code == 401
    token = http.post("/api/v1/authorize", data={**app, **GRANT}).json()["access_token"]
    assert http.put(path, json={"body": "a"}, headers=bearer(token)).status_code == 201


def test_java_log_appender(http: httpx.Client, app: dict[str, str], queue: Queue) -> None:
    """Finds organization and environment in the answer to its authorization."""
    answer = http.post("/api/v1/authorize", data={**app, **GRANT}).json()
    place = answer["simple_client"]
    path = (
        f"/api/v1/organizations/{place['orgId']}/environments/{place['envId']}"
        f"/destinations/{queue.name}/messages"
    )
    lines = [
        {
            "headers": {"messageId": new_id()},
            "properties": {"contentType": "text/plain; charset=UTF-8"},
            "body": f"line {number}",
        }
        for number in range(10)
    ]
    response = http.put(path, json=lines, headers=bearer(answer["access_token"]))
    assert response.status_code == 200
    assert [each["status"] for each in response.json()] == ["successful"] * 10


def test_node_function(queue: Queue) -> None:
    """Publishes a body and nothing else, and takes nothing but 201 for success."""
    assert queue.put(new_id(), {"body": "from a function"}).status_code == 201


def test_samples_of_the_vendor(http: httpx.Client, queue: Queue) -> None:
    """No blank after the scheme, an old spelling, a parameter nobody knows, acks in a batch."""
    env = queue.env
    headers = {"Authorization": f"bearer{env.tokens.app}"}
    path = f"{env.broker_path}/{queue.name}/messages"
    query = {"poolingTime": "0", "batchSize": "1", "ackMode": "NONE"}
    assert not http.get(path, params=query, headers=headers).content
    http.put(f"{path}/{new_id()}", json={"body": "sample"}, headers=headers)
    found = http.get(path, params=query, headers=headers).json()
    assert found[0]["body"] == "sample"
    items = [{name: found[0]["headers"][name] for name in ("messageId", "lockId")}]
    answer = http.request("DELETE", path, json=items, headers=headers)
    assert (answer.status_code, answer.json()[0]["status"]) == (200, "successful")


def test_java_retrofit_client(queue: Queue) -> None:
    """Reads headers and properties as maps of strings, and arrays from both batch calls."""
    item = {
        "headers": {"messageId": new_id(), "contentType": "application/json"},
        "properties": {"contentType": "application/json"},
        "body": "{}",
    }
    assert isinstance(queue.put_batch([item]).json(), list)
    query = "?lockTtl=60000&batchSize=10&poolingTime=0"
    [found] = queue.env.broker("GET", queue.at(query)).json()
    for name in ("headers", "properties"):
        assert all(isinstance(value, str) for value in found[name].values()), found
    assert found["headers"]["contentType"] == "application/json"
    items = [{"messageId": found["headers"]["messageId"], "lockId": found["headers"]["lockId"]}]
    assert isinstance(queue.env.broker("DELETE", queue.at(), items).json(), list)


def test_js_test_client(http: httpx.Client, app: dict[str, str]) -> None:
    basic = (app["client_id"], app["client_secret"])
    answer = ok(http.post("/api/v1/authorize", auth=basic, data=GRANT))
    assert answer["token_type"] == "bearer"


def test_mule_proxy_app(queue: Queue) -> None:
    """Nacks with a form, and reads the text of a 404 and of an ack."""
    nowhere = Queue(queue.env, new_name())
    response = nowhere.poll(pollingTime=2_000)
    assert response.status_code == 404
    assert response.json() == {"status": "failure", "statusMessage": "Destination not found"}
    id = queue.publish("a")
    message = queue.get_one(pollingTime=2_000)
    response = queue.delete_lock(id, message.lock, data={"lockId": message.lock})
    assert response.status_code == 200
    message = queue.get_one()
    answer = ok(queue.delete_message(id, {"lockId": message.lock}))
    assert answer["statusMessage"] == "Acknowledgement operation successful"


def test_metrics_exporter(queue: Queue) -> None:
    """Browses by getting ten and nacking them in fives, and acks once without a body."""
    env = queue.env
    headers = {"X-ANYPNT-ORG-ID": env.organization, "X-ANYPNT-ENV-ID": env.id}
    for number in range(7):
        message = {"headers": {"ttl": 600_000, "deliveryDelay": 0}, "body": str(number)}
        assert queue.put(new_id(), message, headers=headers).status_code == 201
    query = "?batchSize=10&pollingTime=1000&lockTtl=10000"
    found = ok(env.broker("GET", queue.at(query), headers=headers))
    items = [{name: each["headers"][name] for name in ("messageId", "lockId")} for each in found]
    for start in (0, 5):
        answered = queue.nack_batch(items[start : start + 5])
        assert {each["status"] for each in answered} == {"successful"}
    assert len(queue.get()) == 7
    assert queue.delete_message(items[0]["messageId"], headers=headers).status_code == 400


def test_a_command_line_without_content_types(env: Environment) -> None:
    """Sends JSON without saying so, null for what it does not mean, and numbers as texts."""
    dead, queue = Queue.create(env), Queue(env, new_name())
    settings = {
        "defaultTtl": "604800000",
        "defaultLockTtl": "120000",
        "defaultDeliveryDelay": None,
        "maxDeliveries": "5",
        "deadLetterQueueId": dead.name,
        "fifo": None,
        "encrypted": None,
    }
    headers = {"Authorization": f"bearer {env.tokens.user}", "X-ANYPNT-ENV-ID": env.id}
    path = env.region_path + queue.admin_at()
    response = env.http.put(path, content=json.dumps(settings).encode(), headers=headers)
    assert ok(response)["maxDeliveries"] == 5
    message = {"headers": {"ttl": "60000", "deliveryDelay": "0"}, "properties": None, "body": None}
    path = f"{env.broker_path}/{queue.name}/messages/m"
    headers["Authorization"] = f"bearer {env.tokens.app}"
    response = env.http.put(path, content=json.dumps(message).encode(), headers=headers)
    assert response.status_code == 201
    found = queue.get_one()
    assert (found.headers["ttl"], found.body) == ("60000", "")
