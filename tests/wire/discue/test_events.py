"""Events: what happened in an organization, oldest first, page by page."""

import re
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from tests.clients.discue import DiscueClient, fail, new_name, ok
from tests.delivery.receiver import OK, Receiver, closed_port, status
from tests.server import Server
from tests.wire.discue.receiving import NOWHERE, Host

URL = NOWHERE
EVENT_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{20}")
TYPES = {
    f"{resource}_{what}"
    for resource in ("api_key", "queue", "listener")
    for what in ("added", "updated", "deleted")
} | {"message_added", "message_published_ok", "message_published_not_ok"}
WAIT_S_MAX = 20.0


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Host() as receiver:
        yield receiver


def events(client: DiscueClient, **query: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = ok(client.get("/events", params=query))["events"]
    for event in found:
        assert {"id", "type", "stored_at", "client"} <= set(event)
        assert event["type"] in TYPES
        assert EVENT_ID.fullmatch(event["id"])
        assert abs(event["stored_at"] - time.time() * 1000) < 600_000
    order = [(event["stored_at"], event["id"]) for event in found]
    assert order == sorted(order)
    return found


def of_type(client: DiscueClient, *types: str) -> list[dict[str, Any]]:
    return [event for event in events(client, limit=1_000) if event["type"] in types]


def wait_for(client: DiscueClient, type: str, count: int) -> list[dict[str, Any]]:
    end = time.monotonic() + WAIT_S_MAX
    while len(found := of_type(client, type)) < count:
        assert time.monotonic() < end, f"only {len(found)} of {type}"
        time.sleep(0.02)
    return found


def organization_id(client: DiscueClient) -> str:
    id: str = events(client)[0]["client"]["id"]
    return id


# --- what is told ---


def test_queues_are_told_of(organization: DiscueClient) -> None:
    first, second = new_name(), new_name()
    queue = organization.new_queue(first)
    ok(organization.put(f"/queues/{queue}", {"name": second}))
    ok(organization.delete(f"/queues/{queue}"))
    found = events(organization, events="queues")
    client = {"id": organization_id(organization)}
    assert [(each["type"], each["queue"]) for each in found] == [
        ("queue_added", {"id": queue, "name": first}),
        ("queue_updated", {"id": queue, "name": second}),
        ("queue_deleted", {"id": queue, "name": second}),
    ]
    for event in found:
        assert set(event) == {"id", "type", "stored_at", "client", "queue"}
        assert event["client"] == client


def test_listeners_are_told_of(organization: DiscueClient) -> None:
    name = new_name()
    queue = organization.new_queue(name)
    listener = organization.new_listener(queue, URL)
    path = f"/queues/{queue}/listeners/{listener['id']}"
    other = new_name("l")
    ok(organization.put(path, {"name": other, "headers": {"X-A": "hush"}}))
    ok(organization.delete(path))
    found = events(organization, events="listeners")
    told = {"id": queue, "name": name}
    assert [(each["type"], each["listener"]["name"]) for each in found] == [
        ("listener_added", listener["name"]),
        ("listener_updated", other),
        ("listener_deleted", other),
    ]
    for event in found:
        assert set(event) == {"id", "type", "stored_at", "client", "queue", "listener"}
        assert event["listener"]["id"] == listener["id"]
        assert event["queue"] == told


def test_a_queues_end_is_its_listeners_end(organization: DiscueClient) -> None:
    queue = organization.new_queue()
    listener = organization.new_listener(queue, URL)
    ok(organization.delete(f"/queues/{queue}"))
    (event,) = of_type(organization, "listener_deleted")
    assert event["listener"] == {"id": listener["id"], "name": listener["name"]}
    assert event["queue"]["id"] == queue


def test_keys_are_told_of(organization: DiscueClient) -> None:
    name, other = new_name("key"), new_name("key")
    made = ok(organization.post("/api_keys", {"name": name}))
    id = made["id"]
    ok(organization.put(f"/api_keys/{id}", {"name": other}))
    ok(organization.delete(f"/api_keys/{id}"))
    answer = organization.get("/events?events=api_keys")
    assert made["api_key"] not in answer.text and "digest" not in answer.text
    found = [each for each in ok(answer)["events"] if each["api_key"]["id"] == id]
    assert [(each["type"], each["api_key"]["name"]) for each in found] == [
        ("api_key_added", name),
        ("api_key_updated", other),
        ("api_key_deleted", other),
    ]
    for event in found:
        assert set(event) == {"id", "type", "stored_at", "client", "api_key"}


def test_messages_are_told_of(organization: DiscueClient) -> None:
    name = new_name()
    queue = organization.new_queue(name)
    named = organization.add(queue, "hush-hush", name="my-message")
    unnamed = organization.add(queue, "hush-hush")
    answer = organization.get("/events?events=messages")
    assert "hush" not in answer.text
    found = ok(answer)["events"]
    assert [each["type"] for each in found] == ["message_added"] * 2
    assert [each["message"]["id"] for each in found] == [named, unnamed]
    assert found[0]["message"]["name"] == "my-message"
    for event in found:
        assert set(event) == {"id", "type", "stored_at", "client", "queue", "message"}
        assert event["queue"] == {"id": queue, "name": name}


def test_each_attempt_is_told_of(organization: DiscueClient, receiver: Receiver) -> None:
    queue = organization.new_queue()
    receiver.on("/hook", status(503, b"not now"), OK)
    url, live = receiver.url("/hook"), receiver.url("/live")
    listener = organization.new_listener(queue, url, liveness_url=live)
    message = organization.add(queue, "x")
    (failed,) = wait_for(organization, "message_published_not_ok", 1)
    retry = f"/queues/{queue}/messages/{message}/deliveries/{listener['id']}/retry"
    ok(organization.post(retry))
    (arrived,) = wait_for(organization, "message_published_ok", 1)
    sent = receiver.received("/hook")
    told = ((failed, 1, 503, sent[0]), (arrived, 2, 200, sent[1]))
    for event, attempt, code, request in told:
        assert event["delivery_id"] == request.headers["x-delivery-id"]
        assert event["queue"]["id"] == queue
        assert event["listener"] == {"id": listener["id"], "name": listener["name"]}
        assert event["message"]["id"] == message
        assert (event["attempt"], event["status"]) == (attempt, code)
        assert 0 <= event["duration_ms"] < 20_000
    assert failed["answer"] == "not now"
    assert failed["stored_at"] <= arrived["stored_at"] and failed["id"] < arrived["id"]


def test_an_attempt_that_met_nobody_says_why(organization: DiscueClient) -> None:
    queue = organization.new_queue()
    organization.new_listener(queue, f"http://127.0.0.1:{closed_port()}/")
    organization.add(queue, "x")
    (failed,) = wait_for(organization, "message_published_not_ok", 1)
    assert failed["status"] == 0 and failed["error"]


def test_a_listener_that_is_gone_is_told_of_by_its_id(
    organization: DiscueClient, receiver: Receiver
) -> None:
    queue = organization.new_queue()
    listener = organization.new_listener(queue, receiver.url("/hook"))["id"]
    organization.add(queue, "x")
    wait_for(organization, "message_published_ok", 1)
    ok(organization.delete(f"/queues/{queue}/listeners/{listener}"))
    (event,) = of_type(organization, "message_published_ok")
    assert event["listener"] == {"id": listener}


def test_messages_of_other_dialects_are_told_of(
    organization: DiscueClient, server: Server, operator: httpx.Client
) -> None:
    """Under the ids that this dialect knows them by."""
    name = new_name()
    queue = organization.new_queue(name)
    made = operator.post("/tenants", json={"name": new_name("t")}).json()["credentials"]
    client = DiscueClient(organization.http, made["discue"]["api_key"])
    queue = client.new_queue(name)
    account = made["cloudflare"]
    queues = f"/client/v4/accounts/{account['account_id']}/queues"
    head = {"Authorization": f"Bearer {account['api_token']}"}
    (found,) = organization.http.get(queues, headers=head).json()["result"]
    sent = organization.http.post(
        f"{queues}/{found['queue_id']}/messages", headers=head, json={"body": "x"}
    )
    assert sent.is_success, sent.text
    (event,) = of_type(client, "message_added")
    assert event["queue"] == {"id": queue, "name": name}
    assert [event["message"]["id"]] == client.messages(queue)


def test_pulls_and_progress_are_no_events(organization: DiscueClient) -> None:
    """The organization's first key is used with every request, and that is no news."""
    for _ in range(3):
        ok(organization.get("/queues"))
    kinds = {each["type"] for each in events(organization)}
    assert kinds == {"api_key_added"}


# --- which ones ---


@pytest.fixture(scope="module")
def busy(new_organization: Callable[[], DiscueClient]) -> DiscueClient:
    """An organization in which a little of everything has happened."""
    client = new_organization()
    queue = client.new_queue()
    client.new_listener(queue, URL, status="disabled")
    for number in range(25):
        client.add(queue, str(number))
    ok(client.post("/api_keys", {}))
    return client


@pytest.mark.parametrize(
    ("family", "prefix"),
    [
        ("api_keys", "api_key_"),
        ("listeners", "listener_"),
        ("messages", "message_"),
        ("queues", "queue_"),
    ],
)
def test_some_can_be_asked_for(busy: DiscueClient, family: str, prefix: str) -> None:
    every = events(busy, limit=1_000)
    wanted = [event for event in every if event["type"].startswith(prefix)]
    assert wanted and events(busy, events=family, limit=1_000) == wanted


def test_all_are_what_is_asked_for_by_default(busy: DiscueClient) -> None:
    assert events(busy) == events(busy, events="all") == events(busy, limit=100)


def test_a_limit_limits(busy: DiscueClient) -> None:
    every = events(busy, limit=1_000)
    for limit in (1, 2, 7):
        assert events(busy, limit=limit) == every[:limit]
    assert events(busy, limit=1_000_000) == every


def test_the_default_limit_is_a_hundred_and_the_highest_a_thousand(
    organization: DiscueClient,
) -> None:
    queue = organization.new_queue()
    for _ in range(1_010):
        answer = organization.post(f"/queues/{queue}/messages", {"data": "x"})
        assert answer.status_code == 200
    assert len(events(organization)) == 100
    assert len(events(organization, limit=5_000)) == 1_000


@pytest.mark.parametrize("limit", [1, 3, 10, 1_000])
@pytest.mark.parametrize("family", ["all", "messages"])
def test_the_cursor_leads_through_all_of_them(busy: DiscueClient, family: str, limit: int) -> None:
    every = events(busy, events=family, limit=1_000)
    seen: list[dict[str, Any]] = []
    while True:
        query: dict[str, Any] = {"events": family, "limit": limit}
        if seen:
            query |= {"startAfter": seen[-1]["stored_at"], "startAfterId": seen[-1]["id"]}
        more = events(busy, **query)
        if not more:
            break
        assert len(more) <= limit
        seen += more
    assert seen == every


def test_links_lead_through_all_of_them(busy: DiscueClient) -> None:
    every = events(busy, events="messages", limit=1_000)
    seen: list[dict[str, Any]] = []
    answer = ok(busy.get("/events?events=messages&limit=4"))
    for _ in range(len(every)):
        seen += answer["events"]
        if "next" not in answer["_links"]:
            break
        href = urlsplit(answer["_links"]["next"]["href"])
        assert href.path == "/v1/events"
        answer = ok(busy.get(f"/events?{href.query}"))
    assert seen == every
    assert "next" not in answer["_links"]


def test_new_events_are_behind_the_cursor(organization: DiscueClient) -> None:
    organization.new_queue()
    last = events(organization)[-1]
    cursor = {"startAfter": last["stored_at"], "startAfterId": last["id"]}
    assert events(organization, **cursor) == []
    queue = organization.new_queue()
    (event,) = events(organization, **cursor)
    assert event["queue"]["id"] == queue


def test_half_a_cursor_is_none(busy: DiscueClient) -> None:
    every = events(busy)
    assert events(busy, startAfter=every[-1]["stored_at"]) == every
    assert events(busy, startAfterId=every[-1]["id"]) == every
    assert events(busy, startAfter="nonsense") == every


def test_a_cursor_from_the_future_finds_nothing(busy: DiscueClient) -> None:
    assert events(busy, startAfter=9_999_999_999_999, startAfterId="evt" + "9" * 18) == []


@pytest.mark.parametrize(
    "query",
    [
        *("events=everything", "events=", "events=message_added", "limit=0", "limit=-1", "limit=x"),
        *("limit=", "limit=1.5", "limit=" + "9" * 30),
        "startAfter=x&startAfterId=evt000000000000000001",
        "startAfter=&startAfterId=evt000000000000000001",
        *("startAfter=-1&startAfterId=evt000000000000000001", "startAfter=1&startAfterId="),
        *("startAfter=1&startAfterId=x", "startAfter=1&startAfterId=DCSV291zRljx4zRJ8pC9Z"),
    ],
)
def test_a_bad_query_is_refused(busy: DiscueClient, query: str) -> None:
    fail(busy.get(f"/events?{query}"), 400)


def test_no_id_has_an_underscore(busy: DiscueClient) -> None:
    text = busy.get("/events?limit=1000").text
    assert not re.search(r'"id":"[^"]*_', text)
