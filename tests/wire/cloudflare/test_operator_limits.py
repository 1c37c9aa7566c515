"""Limits the operator of a server may set: rates, sizes, counts, and the form of JSON bodies."""

from collections.abc import Iterator

import httpx
import pytest

from tests.server import Server, account_client
from tests.wire.cloudflare.envelope import fail, ok, page, refused
from tests.wire.cloudflare.patience import eventually
from tests.wire.cloudflare.queue import Queue

RATE_MAX = 20
BYTES_MAX = 1_000
QUEUES_MAX = 12
API_MAX = 15
FIVE_MINUTES = 300

NARROW = f"""
queue_rate_max = {RATE_MAX}
queue_bytes_max = {BYTES_MAX}
queues_max = {QUEUES_MAX}
json_body_encoding = "plain"
"""
METERED = f"""
api_rate_max = {API_MAX}
"""


def serve(factory: pytest.TempPathFactory, name: str, config: str) -> Iterator[Server]:
    directory = factory.mktemp(name)
    file = directory / "courier.toml"
    file.write_text(config)
    server = Server(directory, args=["--config", str(file)]).start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def narrow_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose every limit on a queue is low."""
    yield from serve(tmp_path_factory, "narrow", NARROW)


@pytest.fixture(scope="module")
def narrow(narrow_server: Server) -> Iterator[httpx.Client]:
    with account_client(narrow_server.credentials) as client:
        yield client


@pytest.fixture
def narrow_queue(narrow: httpx.Client) -> Iterator[Queue]:
    """Deleted in the end, for the server holds only a few."""
    queue = Queue.create(narrow)
    queue.consume()
    yield queue
    ok(narrow.delete(queue.at()))


@pytest.fixture
def metered_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that counts requests for settings; nobody has asked it anything yet."""
    yield from serve(tmp_path_factory, "metered", METERED)


def test_a_queue_over_its_rate_refuses_messages_for_a_while(narrow_queue: Queue) -> None:
    accepted = 0
    refusal: httpx.Response | None = None
    for _ in range(50):
        response = narrow_queue.post("/messages/batch", {"messages": [{"body": 1}] * 5})
        if response.status_code != 200:
            refusal = response
            break
        accepted += 5
    assert refusal is not None, "250 messages were taken at once"
    fail(refusal, 429, 10250)
    assert 1 <= int(refusal.headers["retry-after"]) <= 2
    assert accepted >= RATE_MAX // 2
    assert narrow_queue.backlog() == accepted

    other = Queue.create(narrow_queue.http)
    assert other.push("has a rate of its own")["backlog_count"] == 1
    ok(other.http.delete(other.at()))

    again = {"body": 1}
    eventually(lambda: narrow_queue.post("/messages", again).status_code == 200)


def test_a_single_message_over_the_rate_is_refused_as_well(narrow_queue: Queue) -> None:
    responses = [narrow_queue.post("/messages", {"body": 1}) for _ in range(RATE_MAX * 3)]
    refusals = [response for response in responses if response.status_code != 200]
    assert refusals
    for response in refusals:
        fail(response, 429, 10250)
    assert narrow_queue.backlog() == len(responses) - len(refusals)


def test_a_full_queue_refuses_messages_until_some_are_gone(narrow_queue: Queue) -> None:
    assert narrow_queue.push("x" * BYTES_MAX)["backlog_bytes"] == BYTES_MAX
    fail(narrow_queue.post("/messages", {"body": 1}), 429, 10251)
    fail(narrow_queue.post("/messages/batch", {"messages": [{"body": 1}]}), 429, 10251)
    assert narrow_queue.backlog() == 1
    lease = narrow_queue.pull_one()["lease_id"]
    assert narrow_queue.settle(acks=[lease])["ackCount"] == 1
    assert narrow_queue.push("x")["backlog_bytes"] == 1


def test_a_batch_that_does_not_fit_is_refused_whole(narrow_queue: Queue) -> None:
    message = {"body": "x" * (BYTES_MAX // 2), "content_type": "text"}
    fail(narrow_queue.post("/messages/batch", {"messages": [message] * 3}), 429, 10251)
    assert narrow_queue.backlog() == 0
    ok(narrow_queue.post("/messages/batch", {"messages": [message] * 2}))


def test_an_account_holds_so_many_queues_and_no_more(narrow: httpx.Client) -> None:
    _, info = page(narrow.get("/queues"))
    made = [Queue.create(narrow) for _ in range(QUEUES_MAX - info["total_count"])]
    refused(narrow.post("/queues", json={"queue_name": "one-too-many"}))
    # A dead-letter queue made on the way counts as any other.
    body = {"type": "http_pull", "dead_letter_queue": "one-too-many"}
    refused(made[0].post("/consumers", body))
    assert made[0].get()["consumers"] == []
    assert page(narrow.get("/queues"))[1]["total_count"] == QUEUES_MAX
    ok(narrow.delete(made.pop().at()))
    made.append(Queue.create(narrow))
    for queue in made:
        ok(narrow.delete(queue.at()))


def test_json_bodies_come_plain_when_the_server_says_so(narrow_queue: Queue) -> None:
    narrow_queue.push_json('{ "b": 1.10, "a": [ 1e2, "é" ] }')
    narrow_queue.push("text")
    for messages in (narrow_queue.peek(), narrow_queue.pull()):
        value, text = messages
        assert value["body"] == '{"b":1.10,"a":[1e2,"é"]}'
        assert value["metadata"]["CF-Content-Type"] == "json"
        assert text["body"] == "text"


def test_too_many_requests_for_settings_are_refused_but_messages_flow(
    metered_server: Server,
) -> None:
    with account_client(metered_server.credentials) as http:
        queue = Queue.create(http)
        queue.consume()
        refusal: httpx.Response | None = None
        answered = 2
        for _ in range(API_MAX * 2):
            response = http.get("/queues")
            if response.status_code != 200:
                refusal = response
                break
            answered += 1
        assert refusal is not None, f"{answered} requests were answered"
        assert answered == API_MAX
        fail(refusal, 429)
        assert 1 <= int(refusal.headers["retry-after"]) <= FIVE_MINUTES

        queue.push("still flows")
        lease = queue.pull_one()["lease_id"]
        assert queue.settle(retries=[lease])["retryCount"] == 1
        lease = queue.pull_one()["lease_id"]
        assert queue.settle(acks=[lease])["ackCount"] == 1
        for _ in range(API_MAX * 2):
            assert queue.pull() == []
        fail(http.get("/queues"), 429)

    # The budget belongs to the key.
    body = {"name": "another", "scopes": ["write"]}
    created = metered_server.operate("POST", "/courier/v1/tenants/default/keys", json=body)
    assert created.is_success, created.text
    with account_client(metered_server.credentials, token=created.json()["token"]) as http:
        page(http.get("/queues"))
