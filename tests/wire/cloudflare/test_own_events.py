"""What happens in Courier itself becomes messages on the queues that subscribe to it."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import httpx
import pytest

from tests.server import Server, account_client
from tests.wire.cloudflare.envelope import fail, ok, page
from tests.wire.cloudflare.events import AT, change, subscribe, subscribed, told, types
from tests.wire.cloudflare.patience import eventually
from tests.wire.cloudflare.queue import Queue, new_name

QUEUES = {"type": "courier.queue"}
MESSAGES = {"type": "courier.message"}
QUEUE_EVENTS = ("created", "updated", "deleted", "paused", "resumed", "purged")
PIPELINE = "courier.events"
KILLS = 3


@pytest.fixture
def tenant(new_tenant: Callable[[], httpx.Client]) -> httpx.Client:
    """A tenant of the test's own: what others do to their queues is no news here."""
    return new_tenant()


def await_told(queue: Queue, count: int = 1) -> list[dict[str, Any]]:
    """The next `count` events that the queue is told."""
    seen: list[dict[str, Any]] = []

    def enough() -> bool:
        seen.extend(told(queue))
        return len(seen) >= count

    eventually(enough, seconds_max=15)
    assert len(seen) == count, seen
    return seen


def settled(queue: Queue) -> list[dict[str, Any]]:
    """Everything that the queue is told of what happened so far.

    A change of a subscription, be it none at all, waits until that has been told.
    """
    subscriptions, _ = page(queue.http.get(AT, params={"queue_id": queue.id}))
    for subscription in subscriptions:
        change(queue, subscription)
    return told(queue)


# --- queues ----------------------------------------------------------------------------------


def test_a_queue_is_followed_from_its_creation_to_its_deletion(tenant: httpx.Client) -> None:
    news = subscribed(tenant, QUEUES, *QUEUE_EVENTS)
    queue = Queue.create(tenant)
    queue.change(delivery_paused=True)
    queue.change(delivery_paused=False)
    queue.change(delivery_delay=5, message_retention_period=600)
    queue.change(delivery_delay=5)  # nothing new
    queue.push("x")
    ok(queue.post("/purge", {}))
    ok(tenant.delete(queue.at()))
    seen = await_told(news, 6)
    assert types(seen) == [
        "courier.queue.created",
        "courier.queue.paused",
        "courier.queue.resumed",
        "courier.queue.updated",
        "courier.queue.purged",
        "courier.queue.deleted",
    ]
    plain = {"id": queue.id, "name": queue.name}
    for event in seen:
        assert event["source"] == QUEUES
        changed = {"changed": ["delay_ms", "retention_ms"]}
        updated = event["type"] == "courier.queue.updated"
        assert event["payload"] == {**plain, **(changed if updated else {})}
    assert settled(news) == []


def test_one_request_may_be_several_events(tenant: httpx.Client) -> None:
    news = subscribed(tenant, QUEUES, *QUEUE_EVENTS)
    queue = Queue.create(tenant)
    renamed = new_name()
    body = {"queue_name": renamed, "settings": {"delivery_paused": True}}
    ok(tenant.patch(queue.at(), json=body))
    created, paused, updated = await_told(news, 3)
    assert types([created, paused, updated]) == [
        "courier.queue.created",
        "courier.queue.paused",
        "courier.queue.updated",
    ]
    assert created["payload"]["name"] == queue.name
    assert updated["payload"] == {"id": queue.id, "name": renamed, "changed": ["name"]}


def test_the_rules_of_a_consumer_are_settings_of_its_queue(tenant: httpx.Client) -> None:
    queue = Queue.create(tenant)
    news = subscribed(tenant, QUEUES, "updated", "created")
    queue.consume(max_retries=7, dead_letter_queue=new_name())
    created, updated = await_told(news, 2)
    assert created["type"] == "courier.queue.created"  # the dead-letter queue
    assert updated["payload"]["id"] == queue.id
    assert {"attempts_max", "dead_letter"} <= set(updated["payload"]["changed"])


# --- when ------------------------------------------------------------------------------------


def test_what_happened_before_a_subscription_was_deleted_is_told(tenant: httpx.Client) -> None:
    for _ in range(5):
        news = Queue.create(tenant)
        news.consume(batch_size=100)
        subscription = subscribe(news, QUEUES, "created")
        queue = Queue.create(tenant)
        ok(tenant.delete(f"{AT}/{subscription['id']}"))
        assert [event["payload"]["id"] for event in told(news)] == [queue.id]


# --- messages --------------------------------------------------------------------------------


def bury(queue: Queue, body: str) -> str:
    """Push a message and let it fail for good; its id."""
    queue.push(body)
    message = queue.pull_one()
    queue.settle(retries=[message["lease_id"]])
    return str(message["id"])


@pytest.mark.parametrize("dead", [True, False], ids=["into a queue", "nowhere"])
def test_a_buried_message_is_told_without_its_body(tenant: httpx.Client, dead: bool) -> None:
    news = subscribed(tenant, MESSAGES, "buried")
    queue, letters = Queue.create(tenant), Queue.create(tenant)
    queue.consume(max_retries=0, dead_letter_queue=letters.name if dead else None)
    id = bury(queue, "a secret")
    [event] = await_told(news)
    assert event["type"] == "courier.message.buried"
    assert event["source"] == MESSAGES
    assert event["payload"] == {
        "queue": {"id": queue.id, "name": queue.name},
        "messageId": id,
        "attempts": 1,
        "deadLetterQueue": {"id": letters.id, "name": letters.name} if dead else None,
    }


def test_news_of_burials_do_not_beget_news(tenant: httpx.Client) -> None:
    """Two queues that are told of burials, each of which buries what it is told."""
    letters = Queue.create(tenant)
    letters.consume(max_retries=0)
    news = []
    for _ in range(2):
        one = Queue.create(tenant)
        one.consume(max_retries=0, dead_letter_queue=letters.name)
        subscribe(one, MESSAGES, "buried")
        news.append(one)
    queue = Queue.create(tenant)
    queue.consume(max_retries=0)
    bury(queue, "x")
    for one in news:
        message = one.await_one()
        one.settle(retries=[message["lease_id"]])
    # Now two dead letters tell of it; they are buried as well.
    failed = eventually(lambda: letters.pull())
    letters.settle(retries=[message["lease_id"] for message in failed])
    for one in news:
        assert settled(one) == []
    # Of other queues they are still told.
    bury(queue, "y")
    for one in news:
        assert len(await_told(one)) == 1


# --- backlogs --------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_backlog_over_the_threshold_is_told_once_until_it_has_shrunk(
    tenant: httpx.Client, neighbour: httpx.Client
) -> None:
    source = {**QUEUES, "threshold": "10"}
    news = subscribed(tenant, source, "backlog.exceeded")
    queue = Queue.create(tenant)
    queue.consume(batch_size=100)
    queue.push_texts(["x"] * 10)

    def leases(count: int) -> list[str]:
        return [message["lease_id"] for message in queue.pull(batch_size=count)]

    looked(neighbour)
    assert told(news) == []
    queue.push("x")
    [event] = await_told(news)
    assert event["type"] == "courier.queue.backlog.exceeded"
    assert event["source"] == QUEUES
    payload = {"id": queue.id, "name": queue.name, "backlog": 11, "threshold": 10}
    assert event["payload"] == payload
    # Down to 80 % and up again is no news, further down and up again is.
    queue.settle(acks=leases(3))
    looked(neighbour)
    queue.push_texts(["x"] * 3)
    looked(neighbour)
    assert told(news) == []
    queue.settle(acks=leases(4))
    looked(neighbour)
    queue.push_texts(["x"] * 10)
    [event] = await_told(news)
    assert event["payload"]["backlog"] == 17


def looked(neighbour: httpx.Client) -> None:
    """Return when backlogs have been looked at: another tenant was told of one of its own."""
    full = Queue.create(neighbour)
    full.push_texts(["x"] * 2)
    news = subscribed(neighbour, {**QUEUES, "threshold": "1"}, "backlog.exceeded")
    await_told(news)
    ok(neighbour.delete(news.at()))
    ok(neighbour.delete(full.at()))


def test_a_subscriptions_own_queue_is_no_news_to_it(
    tenant: httpx.Client, neighbour: httpx.Client
) -> None:
    news = subscribed(tenant, {**QUEUES, "threshold": "1"}, "backlog.exceeded")
    news.push_texts(["x"] * 5)
    looked(neighbour)
    assert news.backlog() == 5


@pytest.mark.slow
def test_the_threshold_is_ten_thousand_unless_given(
    tenant: httpx.Client, neighbour: httpx.Client
) -> None:
    news = subscribed(tenant, QUEUES, "backlog.exceeded")
    queue = Queue.create(tenant)
    for _ in range(100):
        queue.push_texts(["x"] * 100)
    looked(neighbour)
    assert told(news) == []
    queue.push("x")
    [event] = await_told(news)
    assert (event["payload"]["backlog"], event["payload"]["threshold"]) == (10_001, 10_000)


@pytest.mark.parametrize("threshold", ["", "0", "-1", "1.0", "01", "x", "1000000001", "1\n", 5])
def test_a_threshold_is_a_number_in_a_string(queue: Queue, threshold: Any) -> None:
    body = {
        "source": {**QUEUES, "threshold": threshold},
        "events": ["backlog.exceeded"],
        "destination": {"type": "queues.queue", "queue_id": queue.id},
    }
    assert "threshold" in fail(queue.http.post(AT, json=body), 400, 0)


@pytest.mark.parametrize("threshold", ["1", "10000", "999999999", "1000000000"])
def test_a_threshold_is_shown_as_it_was_given(tenant: httpx.Client, threshold: str) -> None:
    source = {**QUEUES, "threshold": threshold}
    made = subscribe(Queue.create(tenant), source, "backlog.exceeded")
    assert made["source"] == source


# --- over the end of the process -------------------------------------------------------------


@pytest.fixture
def account(fresh_server: Server) -> Iterator[httpx.Client]:
    with account_client(fresh_server.credentials) as client:
        yield client


def pipelines(server: Server, account: httpx.Client) -> dict[str, int]:
    headers = {"Authorization": f"Bearer {server.credentials['admin']['token']}"}
    answer = account.get(f"{server.url}/journal/pipelines", headers=headers)
    return {each["name"]: each["offset"] for each in answer.json()["pipelines"]}


@pytest.mark.slow
def test_what_the_journal_says_is_told_once_whenever_the_server_is_killed(
    fresh_server: Server, account: httpx.Client
) -> None:
    """Queues are made without a pause, so a kill meets the server in the middle of telling."""
    news = subscribed(account, QUEUES, "created")
    start = journal_of(fresh_server, account)[-1]["offset"]
    for number in range(KILLS):
        made = 0

        def make() -> None:
            nonlocal made
            with suppress(httpx.TransportError):
                while True:
                    Queue.create(account)
                    made += 1

        making = threading.Thread(target=make)
        making.start()
        eventually(lambda: made >= 10 + 7 * number, seconds_max=60)  # noqa: B023
        fresh_server.kill()
        making.join()
        fresh_server.start()
    happened = [
        event["queue"]
        for event in journal_of(fresh_server, account)
        if event["kind"] == "queue_created" and event["offset"] > start
    ]
    assert len(happened) >= KILLS * 10
    seen = settled(news)
    while more := told(news):
        seen += more
    assert [event["payload"]["id"] for event in seen] == happened


def journal_of(server: Server, account: httpx.Client) -> list[dict[str, Any]]:
    headers = {"Authorization": f"Bearer {server.credentials['admin']['token']}"}
    lines = account.get(f"{server.url}/journal?after=0&limit=100000", headers=headers).text
    return [json.loads(line) for line in lines.splitlines()]


@pytest.mark.slow
def test_the_journal_is_held_back_only_while_somebody_is_to_be_told(
    fresh_server: Server, account: httpx.Client
) -> None:
    outside = subscribed(account, {"type": "kv"}, "namespace.created")
    assert pipelines(fresh_server, account) == {}
    subscription = subscribe(outside, QUEUES, "created")
    eventually(lambda: PIPELINE in pipelines(fresh_server, account), seconds_max=15)
    before = pipelines(fresh_server, account)[PIPELINE]
    Queue.create(account)
    eventually(lambda: pipelines(fresh_server, account)[PIPELINE] > before, seconds_max=15)
    change(outside, subscription, enabled=False)
    eventually(lambda: pipelines(fresh_server, account) == {}, seconds_max=15)
    Queue.create(account)
    change(outside, subscription, enabled=True)
    eventually(lambda: PIPELINE in pipelines(fresh_server, account), seconds_max=15)
    fresh_server.restart()
    queue = Queue.create(account)
    seen = await_told(outside, 2)
    assert seen[1]["payload"]["id"] == queue.id
    ok(account.delete(f"{AT}/{subscription['id']}"))
    eventually(lambda: pipelines(fresh_server, account) == {}, seconds_max=15)
