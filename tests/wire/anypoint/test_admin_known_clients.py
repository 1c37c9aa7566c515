"""What known clients of the admin and stats APIs send, and what they need to read."""

import json
import time
from collections.abc import Callable
from email.utils import formatdate
from typing import Any

import httpx
import pytest

from tests.wire.anypoint.answers import admin_fail, nothing, ok
from tests.wire.anypoint.destination import Exchange, Queue, new_name, rule
from tests.wire.anypoint.environment import GRANT, Environment
from tests.wire.anypoint.shapes import binding_object, exchange_object, queue_object


@pytest.fixture(scope="module")
def home(new_environment: Callable[..., Environment]) -> Environment:
    """An environment whose lists hold only what these clients make."""
    return new_environment()


def test_the_admin_cli(home: Environment, http: httpx.Client) -> None:
    """No content type, null members, numbers as text, lower-case bearer."""
    headers = {"Authorization": f"bearer {home.tokens.user}", "X-ANYPNT-ENV-ID": home.id}

    def send(method: str, path: str, body: Any = None) -> httpx.Response:
        content = None if body is None else json.dumps(body).encode()
        return http.request(method, home.region_path + path, content=content, headers=headers)

    dlq, name, exchange = new_name("dlq"), new_name("cli"), new_name("x")
    assert send("GET", f"/destinations/queues/{name}").status_code == 404
    ok(send("PUT", f"/destinations/queues/{dlq}", {"fifo": None, "defaultTtl": None}))
    sent = {
        "defaultTtl": "604800000",
        "defaultLockTtl": "10000",
        "defaultDeliveryDelay": None,
        "encrypted": True,
        "fifo": False,
        "deadLetterQueueId": dlq,
        "maxDeliveries": "5",
    }
    expected = queue_object(
        name, defaultLockTtl=10_000, encrypted=True, deadLetterQueueId=dlq, maxDeliveries=5
    )
    assert ok(send("PUT", f"/destinations/queues/{name}", sent)) == expected
    assert ok(send("PATCH", f"/destinations/queues/{name}", sent)) == expected
    assert ok(send("PUT", f"/destinations/exchanges/{exchange}", {"encrypted": None})) == (
        exchange_object(exchange)
    )
    path = f"/bindings/exchanges/{exchange}/queues/{name}"
    ok(send("PUT", path, {}))
    assert ok(send("GET", f"/bindings/exchanges/{exchange}")) == [binding_object(exchange, name)]
    listed = {row.get("queueId"): row for row in ok(send("GET", "/destinations"))}
    assert listed[name] == expected
    assert listed[dlq]["deadLetterSources"] == [name]
    nothing(send("DELETE", path))
    nothing(send("DELETE", f"/destinations/queues/{name}"))


def test_the_terraform_provider(home: Environment) -> None:
    """All settings at once, zero for what was left out; a binding, its rule, and all shown."""
    queue, exchange = Queue(home, new_name("tf")), Exchange(home, new_name("tf"))
    sent = {
        "type": "queue",
        "defaultTtl": 0,
        "defaultLockTtl": 0,
        "defaultDeliveryDelay": 0,
        "encrypted": False,
        "fifo": False,
    }
    assert ok(home.admin("PUT", queue.admin_at(), sent)) == queue_object(queue.name)
    assert ok(home.admin("PATCH", queue.admin_at(), sent)) == queue_object(queue.name)
    ok(home.admin("PUT", exchange.admin_at(), {"type": "exchange", "encrypted": True}))
    wanted = rule("tf", "STRING", "ANY_OF", ["a", "b"])
    ok(home.admin("PUT", exchange.binding_at(queue.name)))
    path = exchange.binding_at(queue.name, "/rules/routing")
    ok(home.admin("PUT", path, {"routingRules": [wanted]}), 201)
    shown = ok(home.admin("GET", exchange.binding_at(queue.name) + "?inclusion=ALL"))
    assert shown == binding_object(exchange.name, queue.name, routingRules=[wanted])
    nothing(home.admin("DELETE", path))
    nothing(home.admin("DELETE", exchange.binding_at(queue.name)))
    nothing(home.admin("DELETE", exchange.admin_at()))
    nothing(home.admin("DELETE", queue.admin_at()))
    assert home.admin("GET", queue.admin_at()).status_code == 404


@pytest.mark.parametrize("login", ["user", "connected_app"])
def test_the_python_client(
    env: Environment, http: httpx.Client, anypoint: dict[str, Any], login: str
) -> None:
    """JSON whatever happens, and a first point in every series."""
    if login == "user":
        answer = http.post("/accounts/login", json=anypoint["user"])
    else:
        asked = {**anypoint["connected_app"], **GRANT}
        answer = http.post("/accounts/api/v2/oauth2/token", json=asked)
    token = answer.json()["access_token"]

    def get(path: str, **query: Any) -> Any:
        return env.call("GET", path, token=token, params=query).json()

    organization = get("/accounts/api/me")["user"]["organization"]["id"]
    path = f"/accounts/api/organizations/{organization}/environments"
    (home, *_) = get(path)["data"]
    at = f"organizations/{organization}/environments/{home['id']}/regions/us-east-1"
    queue = Queue.create(env)
    queue.publish("a")
    assert queue_object(queue.name) in get(f"/mq/admin/api/v1/{at}/destinations")
    stats = f"/mq/stats/api/v1/{at}/queues/{queue.name}"
    now_s = time.time()
    for dates in (
        {},
        {
            "startDate": formatdate(now_s - 86_400, usegmt=True).replace("GMT", "UTC"),
            "endDate": formatdate(now_s + 5, usegmt=True).replace("GMT", "UTC"),
        },
        {
            "startDate": formatdate(now_s - 86_400, usegmt=True).removesuffix(" GMT"),
            "endDate": formatdate(now_s + 5, usegmt=True).removesuffix(" GMT"),
        },
    ):
        found = get(stats, period=86_400, **dates)
        assert found.pop("destination") == queue.name
        assert all(type(points[0]["value"]) is int for points in found.values())
        assert sum(point["value"] for point in found["messagesSent"]) == 1


def test_the_monitoring_plugin(env: Environment) -> None:
    """A start without an end; for exchanges it takes the id of a queue, which they have not."""
    queue = Queue.create(env)
    queue.publish("a")
    start = formatdate(time.time() - 60, usegmt=True)
    query = {"startDate": start, "period": 60}
    path = f"{env.stats_path}/queues/{queue.name}"
    found = ok(env.call("GET", path, token=env.tokens.user, params=query))
    for metric, points in found.items():
        if metric != "destination":
            assert [point["value"] for point in points]
    assert sum(point["value"] for point in found["messagesSent"]) == 1
    path = f"{env.stats_path}/queues/"
    admin_fail(env.call("GET", path, token=env.tokens.user, params=query), 400)


def test_the_migration_script(home: Environment) -> None:
    queue, exchange = Queue(home, new_name("old")), Exchange(home, new_name("old"))
    made = ok(home.admin("PUT", queue.admin_at(), {"defaultTtl": 1_208_736_000}))
    assert made == queue_object(queue.name, defaultTtl=1_208_736_000)
    ok(home.admin("PUT", exchange.admin_at()))
    assert ok(home.admin("PUT", exchange.binding_at(queue.name))) == (
        binding_object(exchange.name, queue.name)
    )


def test_the_metrics_exporter(home: Environment) -> None:
    """Lists everything, then asks for the present and the past of each queue."""
    headers = {"X-ANYPNT-ORG-ID": home.organization, "X-ANYPNT-ENV-ID": home.id}
    queue, exchange = Queue.create(home), Exchange.create(home)
    queue.publish_batch(["a", "b", "c"])
    queue.get(batchSize=1)
    rows = ok(home.admin("GET", "/destinations", headers=headers))
    kinds = {row.get("queueId") or row["exchangeId"]: row["type"] for row in rows}
    assert (kinds[queue.name], kinds[exchange.name]) == ("queue", "exchange")
    path = f"{home.stats_path}/queues?destinationIds={queue.name}"
    (current,) = ok(home.call("GET", path, token=home.tokens.user, headers=headers))
    assert (current["messages"], current["inflightMessages"]) == (2, 1)
    now_s = time.time()
    dates = {
        "startDate": time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(now_s - 600)),
        "endDate": time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(now_s + 1)),
        "period": 600,
    }
    path = f"{home.stats_path}/queues/{queue.name}"
    found = ok(home.call("GET", path, token=home.tokens.user, params=dates))
    assert sum(point["value"] for point in found["messagesSent"]) == 3
    assert found["messages"][-1]["value"] == 2
    path = f"{home.stats_path}/exchanges/{exchange.name}"
    found = ok(home.call("GET", path, token=home.tokens.user, params=dates))
    assert sum(point["value"] for point in found["messagesPublished"]) == 0
