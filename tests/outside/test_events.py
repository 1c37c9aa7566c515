"""Events reach the unmodified SDKs and wrangler's subscriptions, Courier's own among them."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from cloudflare import Cloudflare

from tests.cli.command import Command
from tests.outside.node import HERE, installed, run_node
from tests.outside.wrangler import Wrangler
from tests.server import Server

pytestmark = pytest.mark.slow

DELIVERED = {"delivered": 1, "repeated": 0, "refused": 0}
COME_SECONDS_MAX = 10.0


def url(server: Server) -> str:
    return f"{server.url}/courier/v1/tenants/default/events"


def told(server: Server, source: dict[str, str], event: str, payload: dict[str, Any]) -> None:
    """Tell of an event to which one queue subscribes."""
    body = {"source": source, "event": event, "payload": payload}
    answer = server.operate("POST", url(server).removeprefix(server.url), json=body)
    assert answer.json() == DELIVERED


# --- Python ----------------------------------------------------------------------------------


@pytest.fixture
def sdk(server: Server) -> Iterator[Cloudflare]:
    account = server.credentials["cloudflare"]
    http = httpx.Client(trust_env=False, verify=False)
    with Cloudflare(
        api_token=account["api_token"], base_url=account["base_url"], http_client=http
    ) as sdk:
        yield sdk


def pulled(sdk: Cloudflare, account: str, queue: str) -> dict[str, Any]:
    """The next event that the queue is told."""
    deadline = time.monotonic() + COME_SECONDS_MAX
    while time.monotonic() < deadline:
        answer = sdk.queues.messages.pull(queue, account_id=account, batch_size=1)
        assert answer is not None and answer.messages is not None
        for message in answer.messages:
            assert message.body is not None and message.lease_id is not None
            acks = [{"lease_id": message.lease_id}]
            sdk.queues.messages.ack(queue, account_id=account, acks=cast(Any, acks))
            event: dict[str, Any] = json.loads(message.body)
            return event
        time.sleep(0.05)
    raise AssertionError("no message came")


def test_python_sdk_subscribes_and_pulls_events(
    server: Server, sdk: Cloudflare, queue_name: str
) -> None:
    account = str(server.credentials["cloudflare"]["account_id"])

    def create(name: str) -> str:
        made = sdk.queues.create(account_id=account, queue_name=name)
        assert made is not None and made.queue_id is not None
        return str(made.queue_id)

    def subscribe(source: dict[str, str], *events: str) -> str:
        made = sdk.queues.subscriptions.create(
            account_id=account,
            source=cast(Any, source),
            destination={"type": "queues.queue", "queue_id": queue},
            events=list(events),
        )
        assert made is not None
        return str(made.id)

    queue = create(queue_name)
    sdk.queues.consumers.create(queue, account_id=account, type="http_pull")
    model = {"type": "workersAi.model", "model_name": queue_name}
    id = subscribe(model, "batch.failed")
    told(server, model, "batch.failed", {"requestId": "r-1", "httpCode": 500})
    event = pulled(sdk, account, queue)
    assert event["type"] == "cf.workersAi.model.batch.failed"
    assert event["source"] == {"type": "workersAi.model", "modelName": queue_name}
    assert event["payload"] == {"requestId": "r-1", "httpCode": 500}
    assert event["metadata"]["accountId"] == account
    assert event["metadata"]["eventSubscriptionId"] == id

    subscribe({"type": "courier.queue"}, "created")
    listed = sdk.queues.subscriptions.list(account_id=account, per_page=1)
    sources = [one.source.type for one in listed if one.destination.queue_id == queue]
    assert sorted(map(str, sources)) == ["courier.queue", "workersAi.model"]
    other = create(f"{queue_name}-other")
    event = pulled(sdk, account, queue)
    while event["payload"]["id"] != other:  # other tests make queues as well
        event = pulled(sdk, account, queue)
    assert event["type"] == "courier.queue.created"
    assert event["payload"] == {"id": other, "name": f"{queue_name}-other"}
    sdk.queues.delete(queue, account_id=account)


# --- npm -------------------------------------------------------------------------------------


def test_npm_sdk_subscribes_and_pulls_events(
    server: Server, tmp_path: Path, queue_name: str
) -> None:
    account = server.credentials["cloudflare"]
    ran = run_node(
        HERE / "npm_events.cjs",
        *(account["account_id"], queue_name, url(server), server.credentials["admin"]["token"]),
        directory=tmp_path,
        env={
            "NODE_PATH": str(installed("cloudflare").parent),
            "CLOUDFLARE_BASE_URL": account["base_url"],
            "CLOUDFLARE_API_TOKEN": account["api_token"],
        },
    )
    assert ran.status == 0, ran.out
    seen = json.loads(ran.out)
    assert seen["sent"] == DELIVERED
    [event] = seen["outside"]
    assert event["type"] == "cf.workersBuilds.worker.build.failed"
    assert event["source"] == {"type": "workersBuilds.worker", "workerName": queue_name}
    assert event["payload"] == {"buildUuid": "b-1"}
    assert event["metadata"]["eventSubscriptionId"] == seen["subscription"]
    assert sorted(seen["listed"]) == ["courier.message", "workersBuilds.worker"]
    event = seen["own"]
    assert event["type"] == "courier.message.buried"
    assert event["payload"]["queue"]["name"] == f"{queue_name}-failing"


# --- wrangler --------------------------------------------------------------------------------


@pytest.fixture
def wrangler(server: Server, tmp_path: Path) -> Wrangler:
    account = server.credentials["cloudflare"]
    return Wrangler(
        tmp_path,
        base_url=account["base_url"],
        token=account["api_token"],
        account_id=account["account_id"],
    )


def test_a_subscription_made_by_wrangler_is_told(
    server: Server, wrangler: Wrangler, queue_name: str
) -> None:
    courier = Command("--data", str(server.data))
    what = ("workflows.workflow", "instance.completed", "--field", f"workflow_name={queue_name}")
    send = ("event", "send", *what, "--payload")
    wrangler.ok("queues", "create", queue_name)
    wrangler.ok("queues", "consumer", "http", "add", queue_name)
    printed = wrangler.ok(
        *("queues", "subscription", "create", queue_name, "--source", "workflows.workflow"),
        *("--workflow-name", queue_name, "--events", "instance.completed"),
    )
    assert courier(*send, '{"instanceId":"i-1"}').out == "sent to 1 subscription\n"
    [message] = courier("pull", queue_name, "--ack", "--json").json
    event = json.loads(message["body"])
    assert event["type"] == "cf.workflows.workflow.instance.completed"
    assert event["source"] == {"type": "workflows.workflow", "workflowName": queue_name}
    assert event["payload"] == {"instanceId": "i-1"}
    id = event["metadata"]["eventSubscriptionId"]
    assert f"with id '{id}'" in printed

    verb = ("queues", "subscription")
    wrangler.ok(*verb, "update", queue_name, "--id", id, "--enabled", "false")
    assert courier(*send, '{"instanceId":"i-2"}').out == "sent to 0 subscriptions\n"
    wrangler.ok(*verb, "update", queue_name, "--id", id, "--enabled", "true")
    assert courier(*send, '{"instanceId":"i-3"}').out == "sent to 1 subscription\n"
    wrangler.ok(*verb, "delete", queue_name, "--id", id, "--force")
    assert courier(*send, '{"instanceId":"i-4"}').out == "sent to 0 subscriptions\n"
    [message] = courier("pull", queue_name, "--json").json
    assert json.loads(message["body"])["payload"] == {"instanceId": "i-3"}


def test_wrangler_shows_changes_and_deletes_subscriptions_to_courier_itself(
    server: Server, wrangler: Wrangler, http: httpx.Client, queue_name: str
) -> None:
    queue = http.post("/queues", json={"queue_name": queue_name}).json()["result"]["queue_id"]
    made = http.post(
        "/event_subscriptions/subscriptions",
        json={
            "name": "crowded",
            "source": {"type": "courier.queue", "threshold": "500"},
            "events": ["backlog.exceeded", "deleted"],
            "destination": {"type": "queues.queue", "queue_id": queue},
        },
    ).json()["result"]
    verb = ("queues", "subscription")
    printed = wrangler.ok(*verb, "list", queue_name)
    for shown in (made["id"], "crowded", "courier.queue", "backlog.exceeded, deleted"):
        assert shown in printed
    shown = wrangler.ok(*verb, "get", queue_name, "--id", made["id"], "--json")
    assert json.loads(shown) == made
    assert "courier.queue" in wrangler.ok(*verb, "get", queue_name, "--id", made["id"])
    wrangler.ok(*verb, "update", queue_name, "--id", made["id"], "--events", "paused")
    shown = wrangler.ok(*verb, "get", queue_name, "--id", made["id"], "--json")
    assert json.loads(shown)["events"] == ["paused"]
    wrangler.ok(*verb, "delete", queue_name, "--id", made["id"], "--force")
    assert "No event subscriptions" in wrangler.ok(*verb, "list", queue_name)
