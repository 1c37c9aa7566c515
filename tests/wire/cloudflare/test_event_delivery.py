"""Events of sources outside of Courier become messages on the queues that subscribe to them."""

import json
from collections.abc import Callable

import httpx
import pytest

from tests.wire.cloudflare.envelope import ok
from tests.wire.cloudflare.events import AT, change, send, subscribe, subscribed, told, types
from tests.wire.cloudflare.queue import Queue, new_name
from tests.wire.cloudflare.sources import SOURCES

VENDORS = [one for one in SOURCES if not one.type.startswith("courier.")]
EVENTS = [(source, event) for source in VENDORS for event in source.events]
# Fields of a source as a subscription has them, and as a message does.
SHOWN = {
    "model_name": "modelName",
    "worker_name": "workerName",
    "workflow_name": "workflowName",
    "script_tag": "id",
    "namespace": "namespace",
    "repo_name": "repoName",
    "zone_id": "zoneId",
    "domain": "domain",
}
DELIVERED = {"delivered": 1, "repeated": 0, "refused": 0}
NOBODY = {"delivered": 0, "repeated": 0, "refused": 0}


def worker(name: str | None = None) -> dict[str, str]:
    """A source that no other test has."""
    return {"type": "workersBuilds.worker", "worker_name": name or new_name("worker")}


# --- the message -----------------------------------------------------------------------------


def test_every_event_of_a_source_becomes_a_message_in_the_vendors_shape(
    new_tenant: Callable[[], httpx.Client], operator: httpx.Client
) -> None:
    http = new_tenant()
    tenant = name_of(operator, http)
    queue = Queue.create(http)
    queue.consume(batch_size=100)
    subscriptions = {
        source.type: subscribe(queue, source.example(), *source.events)["id"] for source in VENDORS
    }
    for source, event in EVENTS:
        given: dict[str, str] = source.example()
        shown = {"type": source.type, **{SHOWN[name]: given[name] for name in source.fields}}
        if event == "job.object.migrated":
            given["job_id"] = "job-7"
            shown = {"type": "superSlurper.job", "jobId": "job-7"}
        payload = {"id": new_name(), "deep": {"list": [1, None, "é"]}}
        assert send(operator, given, event, payload, tenant=tenant) == DELIVERED
        [message] = told(queue)
        assert message["type"] == f"cf.{source.type}.{event}"
        assert message["source"] == shown
        assert message["payload"] == payload
        assert message["metadata"]["accountId"] == account_of(http)
        assert message["metadata"]["eventSubscriptionId"] == subscriptions[source.type]


def account_of(http: httpx.Client) -> str:
    return str(http.base_url).rstrip("/").rpartition("/")[2]


def name_of(operator: httpx.Client, http: httpx.Client) -> str:
    """The name of the tenant that a client is of."""
    tenants = operator.get("/tenants").json()["tenants"]
    [name] = [each["name"] for each in tenants if each["id"] == account_of(http)]
    return str(name)


@pytest.mark.parametrize(
    "payload",
    [
        '{"n":1.000000000000000000001,"m":-0.0,"e":1E400,"i":123456789012345678901234567890}',
        '{"text":"a\\u00e9\\ud83d\\ude00\\/ \\u0000","a":"é","":{}}',
        '{"twice":1,"twice":2}',
        "{}",
    ],
)
def test_a_payload_is_kept_as_it_was_written(
    http: httpx.Client, operator: httpx.Client, payload: str
) -> None:
    source = worker()
    queue = subscribed(http, source, "build.failed")
    spaced = payload.replace(":", " : ", 1)
    body = f'{{"source":{json.dumps(source)},"event":"build.failed","payload": {spaced} }}'
    response = operator.post("/tenants/default/events", content=body.encode())
    assert response.json() == DELIVERED
    assert f',"payload":{payload},"metadata":' in queue.pull_one()["body"]


def test_an_event_of_courier_itself_has_no_vendors_prefix(
    http: httpx.Client, operator: httpx.Client
) -> None:
    queue = subscribed(http, {"type": "courier.pipeline"}, "run.completed", "run.failed")
    payload = {"run": "2026-11-16", "events": 12}
    send(operator, {"type": "courier.pipeline"}, "run.completed", payload)
    send(operator, {"type": "courier.pipeline"}, "run.failed", {"run": "2026-11-17"})
    one, two = told(queue)
    assert one["type"] == "courier.pipeline.run.completed"
    assert one["source"] == {"type": "courier.pipeline"}
    assert one["payload"] == payload
    assert two["type"] == "courier.pipeline.run.failed"
    ok(http.delete(queue.at()))  # the source is the same for all tests


# --- to whom ---------------------------------------------------------------------------------


def test_every_subscription_to_the_source_is_told(
    http: httpx.Client, operator: httpx.Client
) -> None:
    source = worker()
    queues = [subscribed(http, source, "build.started") for _ in range(3)]
    answer = send(operator, source, "build.started", {"n": 1})
    assert answer == {"delivered": 3, "repeated": 0, "refused": 0}
    seen = [told(queue) for queue in queues]
    assert [[event["payload"] for event in events] for events in seen] == [[{"n": 1}]] * 3
    assert len({events[0]["metadata"]["eventSubscriptionId"] for events in seen}) == 3


def test_only_what_is_subscribed_to_is_told(
    http: httpx.Client, operator: httpx.Client, new_tenant: Callable[[], httpx.Client]
) -> None:
    source = worker()
    queue = subscribed(http, source, "build.started", "build.failed")
    theirs = subscribed(new_tenant(), source, "build.started")
    assert send(operator, source, "build.canceled") == NOBODY
    assert send(operator, worker(), "build.started") == NOBODY
    assert told(queue) == []
    assert send(operator, source, "build.failed") == DELIVERED
    assert types(told(queue)) == ["cf.workersBuilds.worker.build.failed"]
    assert told(theirs) == []


@pytest.mark.parametrize("wanted", ["image.uploaded", "image.*"])
def test_any_event_of_images_can_be_subscribed_to(
    new_tenant: Callable[[], httpx.Client], operator: httpx.Client, wanted: str
) -> None:
    http = new_tenant()
    tenant = name_of(operator, http)
    queue = subscribed(http, {"type": "images"}, wanted)
    send(operator, {"type": "images"}, "image.uploaded", tenant=tenant)
    send(operator, {"type": "images"}, "image.blurred", tenant=tenant)
    expected = ["cf.images.image.uploaded", "cf.images.image.blurred"]
    assert types(told(queue)) == (expected if wanted == "image.*" else expected[:1])


# --- when ------------------------------------------------------------------------------------


def test_a_disabled_subscription_is_told_nothing(
    http: httpx.Client, operator: httpx.Client
) -> None:
    source = worker()
    queue = Queue.create(http)
    queue.consume()
    subscription = subscribe(queue, source, "build.started", enabled=False)
    assert send(operator, source, "build.started", {"n": 1}) == NOBODY
    change(queue, subscription, enabled=True)
    assert send(operator, source, "build.started", {"n": 2}) == DELIVERED
    change(queue, subscription, enabled=False)
    assert send(operator, source, "build.started", {"n": 3}) == NOBODY
    assert [event["payload"] for event in told(queue)] == [{"n": 2}]


def test_a_subscription_is_told_nothing_that_happened_before_it(
    http: httpx.Client, operator: httpx.Client
) -> None:
    source = worker()
    assert send(operator, source, "build.started", {"n": 1}) == NOBODY
    queue = subscribed(http, source, "build.started")
    assert send(operator, source, "build.started", {"n": 2}) == DELIVERED
    assert [event["payload"] for event in told(queue)] == [{"n": 2}]


def test_a_change_holds_for_later_events(http: httpx.Client, operator: httpx.Client) -> None:
    source = worker()
    queue, other = Queue.create(http), Queue.create(http)
    queue.consume()
    other.consume()
    subscription = subscribe(queue, source, "build.started")
    send(operator, source, "build.started")
    change(queue, subscription, events=["build.failed"])
    assert send(operator, source, "build.started") == NOBODY
    send(operator, source, "build.failed")
    change(queue, subscription, destination={"type": "queues.queue", "queue_id": other.id})
    send(operator, source, "build.failed", {"n": 2})
    began, failed = types(told(queue))
    assert (began.rpartition(".")[2], failed.rpartition(".")[2]) == ("started", "failed")
    assert [event["payload"] for event in told(other)] == [{"n": 2}]


@pytest.mark.parametrize("gone", ["subscription", "queue"])
def test_what_is_deleted_is_told_nothing(
    http: httpx.Client, operator: httpx.Client, gone: str
) -> None:
    source = worker()
    queue, kept = Queue.create(http), subscribed(http, source, "build.started")
    subscription = subscribe(queue, source, "build.started")
    assert send(operator, source, "build.started")["delivered"] == 2
    ok(http.delete(queue.at() if gone == "queue" else f"{AT}/{subscription['id']}"))
    assert send(operator, source, "build.started") == DELIVERED
    assert len(told(kept)) == 2


# --- once ------------------------------------------------------------------------------------


def test_an_event_with_an_id_is_told_once(http: httpx.Client, operator: httpx.Client) -> None:
    source = worker()
    queue = subscribed(http, source, "build.started")
    assert send(operator, source, "build.started", {"n": 1}, id="build-1") == DELIVERED
    late = subscribed(http, source, "build.started")
    again = send(operator, source, "build.started", {"n": 1}, id="build-1")
    assert again == {"delivered": 1, "repeated": 1, "refused": 0}
    assert send(operator, source, "build.started", {"n": 2}, id="build-2")["delivered"] == 2
    assert [event["payload"] for event in told(queue)] == [{"n": 1}, {"n": 2}]
    assert [event["payload"] for event in told(late)] == [{"n": 1}, {"n": 2}]
    # What was told stays told, though the message is done.
    assert send(operator, source, "build.started", id="build-1")["repeated"] == 2


# --- queues with ideas of their own ----------------------------------------------------------


def test_a_queue_that_refuses_messages_keeps_no_news_from_the_others(
    http: httpx.Client, operator: httpx.Client
) -> None:
    source = worker()
    frozen, queue = (subscribed(http, source, "build.started") for _ in range(2))
    path = f"/tenants/default/queues/{frozen.name}/frozen"
    assert operator.put(path, json={"frozen": True}).is_success
    answer = send(operator, source, "build.started")
    assert answer == {"delivered": 1, "repeated": 0, "refused": 1}
    assert len(told(queue)) == 1
    operator.put(path, json={"frozen": False})
    assert send(operator, source, "build.started")["delivered"] == 2
    assert len(told(frozen)) == 1
