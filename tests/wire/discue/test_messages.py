"""Messages: add, list, read, rename, delete, and how far each has come."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from courier.core.types import Message, Queue
from courier.dialects.discue import message_wire, names
from courier.long_texts import LongTexts
from tests.clients.anypoint import AnypointClient, environment_client
from tests.clients.discue import ID, DiscueClient, fail, new_name, ok, pointers
from tests.delivery.receiver import OK, Receiver, closed_port, status
from tests.server import Server

WAIT_SECONDS_MAX = 20.0
POLL_SECONDS = 0.02
DATA_BYTES_MAX = 256 << 10
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


def await_state(discue: DiscueClient, queue: str, message: str, state: str) -> dict[str, Any]:
    """The message, once all of its deliveries have this state."""
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while True:
        found = discue.message(queue, message)
        if all(each["state"] == state for each in found["deliveries"]):
            return found
        assert time.monotonic() < deadline, found
        time.sleep(POLL_SECONDS)


# --- add -------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_an_added_message_is_there_in_the_very_next_request(
    discue: DiscueClient, queue: str, method: str
) -> None:
    before_ms = int(time.time() * 1_000) - 1
    body = {"name": "myapp.io/first", "data": '{ "userId": "481512342" }'}
    answer = ok(discue.request(method, f"/queues/{queue}/messages", body))
    message = answer["message"]
    assert message == {"id": message["id"], "name": body["name"], "alias": body["name"]}
    assert ID.fullmatch(message["id"])
    assert list(answer["_links"]) == ["self"]
    path = f"/queues/{queue}/messages/{message['id']}"
    assert answer["_links"]["self"]["href"].endswith(f"/v1{path}")
    found = ok(discue.get(path))
    assert found["_links"] == answer["_links"]
    created_ms = found["message"].pop("created_at")
    assert before_ms <= created_ms <= time.time() * 1_000 + 1
    assert found["message"] == {
        **message,
        "data": body["data"],
        "size": len(body["data"]),
        "state": "stored",
        "deliveries": [],
    }
    assert discue.messages(queue) == [message["id"]]


@pytest.mark.parametrize(
    "data",
    ["a", " ", "\n", "\x00", "é", "😀", '"', "\\", "{}", "null", "12", "\ufeff", "\u2028",
     "x" * DATA_BYTES_MAX, "é" * (DATA_BYTES_MAX // 2), "😀" * (DATA_BYTES_MAX // 4)],
)  # fmt: skip
def test_data_is_opaque_text_that_comes_back_as_it_was(
    discue: DiscueClient, queue: str, data: str
) -> None:
    found = discue.message(queue, discue.add(queue, data))
    assert found["data"] == data
    assert found["size"] == len(data.encode())
    assert "encoding" not in found


@pytest.mark.parametrize(
    "data",
    ["", "x" * (DATA_BYTES_MAX + 1), "é" * (DATA_BYTES_MAX // 2) + "x"],
)
def test_other_data_is_refused(discue: DiscueClient, queue: str, data: str) -> None:
    body = {"name": "some-name", "data": data}
    assert pointers(discue.post(f"/queues/{queue}/messages", body)) == ["/data"]
    assert discue.messages(queue) == []


@pytest.mark.parametrize("length", [4, 56, 57, 64])
def test_a_message_without_a_name_is_called_after_its_queue_and_id(
    organization: DiscueClient, length: int
) -> None:
    name = "q" * length
    queue = organization.new_queue(name)
    answer = ok(organization.post(f"/queues/{queue}/messages", {"data": "x"}))["message"]
    assert answer["name"] == f"{name[:56]}-{answer['id'][:7]}"
    assert len(answer["name"]) <= 64
    assert organization.message(queue, answer["id"])["name"] == answer["name"]
    [listed] = ok(organization.get(f"/queues/{queue}/messages"))["messages"]
    assert listed == answer


# --- once ------------------------------------------------------------------------------------


def test_a_repeated_key_gets_the_first_answer(discue: DiscueClient, queue: str) -> None:
    path = f"/queues/{queue}/messages"
    for body in ({"data": "x"}, {"data": "y", "name": "some-name"}):
        headers = {"Idempotency-Key": new_name("key")}
        first = ok(discue.post(path, body, headers=headers))
        for _ in range(3):
            assert ok(discue.post(path, body, headers=headers)) == first
    assert len(discue.messages(queue)) == 2
    ok(discue.post(path, {"data": "x"}))
    ok(discue.post(path, {"data": "x"}, headers={"Idempotency-Key": new_name("key")}))
    assert len(discue.messages(queue)) == 4


def test_a_key_with_another_message_is_a_conflict(discue: DiscueClient, queue: str) -> None:
    path = f"/queues/{queue}/messages"
    headers = {"Idempotency-Key": "the key"}
    first = ok(discue.post(path, {"data": "x"}, headers=headers))
    fail(discue.post(path, {"data": "y"}, headers=headers), 409)
    assert ok(discue.post(path, {"data": "x"}, headers=headers)) == first
    assert discue.messages(queue) == [first["message"]["id"]]
    assert discue.message(queue, first["message"]["id"])["data"] == "x"


def test_a_key_holds_on_its_queue_and_in_its_dialect_only(
    discue: DiscueClient, server: Server
) -> None:
    name = new_name()
    queue, other = discue.new_queue(name), discue.new_queue()
    with server.client() as cloudflare:
        [found] = cloudflare.get("/queues", params={"name": name}).json()["result"]
        path = f"/queues/{found['queue_id']}/messages"
        for key in ("same", "same 0"):
            headers = {"Idempotency-Key": key}
            cloudflare.post(path, json={"body": "theirs"}, headers=headers).raise_for_status()
            for place in (queue, other):
                ok(discue.post(f"/queues/{place}/messages", {"data": "ours"}, headers=headers))
    assert len(discue.messages(queue)) == 4
    assert len(discue.messages(other)) == 2


@pytest.mark.parametrize(("key", "good"), [("k" * 128, True), ("k" * 129, False), ("", False)])
def test_a_key_has_up_to_128_characters(
    discue: DiscueClient, queue: str, key: str, good: bool
) -> None:
    response = discue.post(
        f"/queues/{queue}/messages", {"data": "x"}, headers={"Idempotency-Key": key}
    )
    if good:
        ok(response)
    else:
        fail(response, 400)
    assert len(discue.messages(queue)) == good


# --- list ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def stocked(discue: DiscueClient) -> tuple[str, list[str]]:
    """A queue with 25 messages, and their ids in order."""
    queue = discue.new_queue()
    return queue, [discue.add(queue, f"{number}") for number in range(25)]


def followed(client: DiscueClient, path: str) -> Iterator[list[str]]:
    """The ids of every page from this one on, by the links between them."""
    url = f"{client.http.base_url}".rstrip("/") + client.prefix + path
    for _ in range(100):
        answer = ok(client.http.get(url, headers={"X-API-KEY": client.key}))
        yield [each["id"] for each in answer["messages"]]
        if "next" not in answer["_links"]:
            return
        url = answer["_links"]["next"]["href"]
    raise AssertionError("the list has no end")


@pytest.mark.parametrize(
    ("query", "start", "stop"),
    [("", 0, 25), ("?page=1", 0, 10), ("?page=2", 10, 20), ("?page=3", 20, 25), ("?page=4", 25, 25),
     ("?per_page=7", 0, 7), ("?page=2&per_page=20", 20, 25), ("?per_page=1000", 0, 25)],
)  # fmt: skip
def test_pages_of_messages(
    discue: DiscueClient, stocked: tuple[str, list[str]], query: str, start: int, stop: int
) -> None:
    queue, ids = stocked
    answer = ok(discue.get(f"/queues/{queue}/messages{query}"))
    assert [each["id"] for each in answer["messages"]] == ids[start:stop]
    assert ("next" in answer["_links"]) == (stop < 25)


@pytest.mark.parametrize("query", ["?per_page=10", "?page=1", ""])
def test_following_the_links_leads_through_all_messages(
    discue: DiscueClient, stocked: tuple[str, list[str]], query: str
) -> None:
    queue, ids = stocked
    pages = list(followed(discue, f"/queues/{queue}/messages{query}"))
    assert [id for page in pages for id in page] == ids
    assert all(pages)


def test_links_go_on_behind_what_was_seen_whatever_happens(
    discue: DiscueClient, queue: str
) -> None:
    ids = [discue.add(queue, "x") for _ in range(6)]
    pages = followed(discue, f"/queues/{queue}/messages?per_page=2")
    assert next(pages) == ids[:2]
    for id in (*ids[:2], ids[3]):
        ok(discue.delete(f"/queues/{queue}/messages/{id}"))
    last = discue.add(queue, "x")
    assert next(pages) == [ids[2], ids[4]]
    assert next(pages) == [ids[5], last]
    assert next(pages, None) is None


@pytest.mark.parametrize(
    "query",
    ["after=x", "after=AAAAAAAAAAAAAAAAAAAAA", "after=$&page=2", "page=1001",
     "page=101&per_page=100", "page=999999999"],
)  # fmt: skip
def test_a_list_goes_on_where_it_could_and_not_too_far(
    discue: DiscueClient, stocked: tuple[str, list[str]], query: str
) -> None:
    queue, ids = stocked
    fail(discue.get(f"/queues/{queue}/messages?{query.replace('$', ids[0])}"), 400)
    assert ok(discue.get(f"/queues/{queue}/messages?page=1000"))["messages"] == []


def test_a_list_ends_after_a_thousand_and_says_where_it_goes_on(
    discue: DiscueClient, server: Server
) -> None:
    name = new_name()
    queue = discue.new_queue(name)
    with server.client() as cloudflare:
        [found] = cloudflare.get("/queues", params={"name": name}).json()["result"]
        for _ in range(11):
            batch = {"messages": [{"body": f"{number}"} for number in range(100)]}
            path = f"/queues/{found['queue_id']}/messages/batch"
            cloudflare.post(path, json=batch).raise_for_status()
    pages = list(followed(discue, f"/queues/{queue}/messages"))
    assert [len(page) for page in pages] == [1_000, 100]
    assert len({id for page in pages for id in page}) == 1_100


def test_messages_of_all_queues_are_listed_queue_by_queue(organization: DiscueClient) -> None:
    assert ok(organization.get("/messages"))["messages"] == []
    queues = [organization.new_queue() for _ in range(4)]
    ids: dict[str, list[str]] = {queue: [] for queue in queues}
    for _ in range(3):
        for queue in (queues[3], queues[0], queues[2]):
            ids[queue].append(organization.add(queue, "x"))
    expected = [id for queue in queues for id in ids[queue]]
    answer = ok(organization.get("/messages"))
    assert [each["id"] for each in answer["messages"]] == expected
    assert set(answer["messages"][0]) == {"id", "name", "alias"}
    for each in answer["messages"]:
        href = answer["_links"][each["name"]]["href"]
        found = organization.http.get(href, headers={"X-API-KEY": organization.key})
        assert ok(found)["message"]["id"] == each["id"]
    for query in ("?per_page=2", "?per_page=3", "?per_page=9", "?page=1"):
        pages = list(followed(organization, f"/messages{query}"))
        assert [id for page in pages for id in page] == expected
    second = ok(organization.get("/messages?page=2&per_page=4"))["messages"]
    assert [each["id"] for each in second] == expected[4:8]


def test_the_list_of_all_messages_goes_on_when_queues_come_and_go(
    organization: DiscueClient,
) -> None:
    queues = [organization.new_queue() for _ in range(3)]
    ids = [organization.add(queue, "x") for queue in queues for _ in range(2)]
    pages = followed(organization, "/messages?per_page=1")
    assert next(pages) == ids[:1]
    ok(organization.delete(f"/queues/{queues[1]}"))
    new = organization.add(organization.new_queue(), "x")
    assert [id for page in pages for id in page] == [ids[1], *ids[4:], new]
    answer = ok(organization.get("/messages?per_page=1"))
    ok(organization.delete(f"/queues/{queues[0]}"))
    following = answer["_links"]["next"]["href"]
    fail(organization.http.get(following, headers={"X-API-KEY": organization.key}), 400)


@pytest.mark.parametrize("after", ["x", "x.y", ".", "$queue.x", "$other.$message"])
def test_the_list_of_all_messages_goes_on_only_where_it_could(
    organization: DiscueClient, after: str
) -> None:
    queue, other = organization.new_queue(), organization.new_queue()
    message = organization.add(queue, "x")
    after = after.replace("$queue", queue).replace("$other", other).replace("$message", message)
    fail(organization.get(f"/messages?after={after}"), 400)


def test_a_thousand_queues_are_looked_into_at_a_time(organization: DiscueClient) -> None:
    queues = [organization.new_queue() for _ in range(1_002)]
    ids = [organization.add(queues[number], "x") for number in (0, 1_000, 1_001)]
    assert list(followed(organization, "/messages")) == [ids[:1], ids[1:]]


# --- read ------------------------------------------------------------------------------------


def test_bytes_are_written_in_base64() -> None:
    queue = Queue(id="c0" + "1" * 30, tenant="", name="some", created_ms=0, modified_ms=0)
    message = Message(1, "own", 5, b"\x00\xff\xfe", "bytes")
    found = message_wire.member(queue, message, [], LongTexts(0))
    assert (found.data, found.encoding, found.size) == ("AP/+", "base64", 3)


def test_a_message_with_an_id_of_its_publishers_own_has_one_of_ours(
    discue: DiscueClient, server: Server
) -> None:
    name = new_name()
    queue = discue.new_queue(name)
    first = discue.add(queue, "first")
    anypoint = server.credentials["anypoint"]
    place = (
        f"/api/v1/organizations/{anypoint['organization_id']}"
        f"/environments/{anypoint['environment_id']}/destinations/{name}/messages"
    )
    with environment_client(anypoint) as client:
        # Also those that are another message's, as the core spells it or as shown here.
        for own in ("an own id", names.read(first), first):
            path = f"{place}/{own}"
            properties = {"name": "from-anypoint" if own == first else 'not\na "name"'}
            body = {"body": own, "properties": properties}
            client.put(path, json=body).raise_for_status()
    ids = discue.messages(queue)
    assert len(ids) == 4 and ids[0] == first
    found = [discue.message(queue, id) for id in ids]
    assert [each["data"] for each in found] == ["first", "an own id", names.read(first), first]
    assert all(ID.fullmatch(id) for id in ids)
    assert [each["name"] for each in found[1:]] == [
        *(f"{name}-{id[:7]}" for id in ids[1:3]),
        "from-anypoint",
    ]
    ok(discue.delete(f"/queues/{queue}/messages/{first}"))
    fail(discue.get(f"/queues/{queue}/messages/{first}"), 404)
    for id in ids[1:]:
        ok(discue.delete(f"/queues/{queue}/messages/{id}"))
    assert discue.messages(queue) == []


def test_sealed_bodies_are_read_in_clear(discue: DiscueClient, server: Server) -> None:
    name = new_name()
    anypoint = server.credentials["anypoint"]
    place = (
        f"/organizations/{anypoint['organization_id']}/environments/{anypoint['environment_id']}"
    )
    admin = f"/mq/admin/api/v1{place}/regions/{anypoint['region']}/destinations/queues/{name}"
    with environment_client(anypoint) as client:
        client.put(admin, json={"encrypted": True}).raise_for_status()
    [queue] = [each["id"] for each in ok(discue.get("/queues"))["queues"] if each["name"] == name]
    headers = {"Idempotency-Key": "sealed"}
    path = f"/queues/{queue}/messages"
    message = ok(discue.post(path, {"data": "a secret"}, headers=headers))["message"]
    found = discue.message(queue, message["id"])
    assert (found["data"], found["size"]) == ("a secret", 8)
    # The same message is known again, though it lies there sealed.
    assert ok(discue.post(path, {"data": "a secret"}, headers=headers))["message"] == message
    fail(discue.post(path, {"data": "another"}, headers=headers), 409)
    for file in Path(server.data).glob("courier.db*"):
        assert b"a secret" not in file.read_bytes()


# --- rename ----------------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["name", "alias"])
def test_a_message_can_be_renamed(discue: DiscueClient, queue: str, word: str) -> None:
    message = discue.add(queue, "x", name="before")
    known = discue.message(queue, message)
    path = f"/queues/{queue}/messages/{message}"
    answer = ok(discue.put(path, {word: "after/that", "data": "ignored"}))
    assert answer["message"] == {"id": message, "name": "after/that", "alias": "after/that"}
    assert answer["_links"]["self"]["href"].endswith(f"/v1{path}")
    found = discue.message(queue, message)
    assert found == {**known, "name": "after/that", "alias": "after/that"}
    assert ok(discue.get(f"/queues/{queue}/messages"))["messages"] == [answer["message"]]


# --- delete ----------------------------------------------------------------------------------


def test_a_deleted_message_is_gone_for_everybody(discue: DiscueClient, server: Server) -> None:
    name = new_name()
    queue = discue.new_queue(name)
    message, other = discue.add(queue, "x"), discue.add(queue, "y")
    path = f"/queues/{queue}/messages"
    answer = ok(discue.delete(f"{path}/{message}"))
    assert list(answer) == ["_links"]
    assert answer["_links"]["self"]["href"].endswith(f"/v1{path}")
    for method, body in (("GET", None), ("PUT", {"name": "other"}), ("DELETE", None)):
        fail(discue.request(method, f"{path}/{message}", body), 404)
    assert discue.messages(queue) == [other]
    anypoint = server.credentials["anypoint"]
    with environment_client(anypoint) as client:
        assert [each.body for each in AnypointClient(client, anypoint, name).pull(10)] == ["y"]


# --- deliveries ------------------------------------------------------------------------------


def test_a_message_tells_how_far_it_has_come_to_each_listener(
    discue: DiscueClient, queue: str, receiver: Receiver
) -> None:
    receiver.on("/bad", status(500, b"no"))
    good = discue.new_listener(queue, receiver.url("/good"))
    message = discue.add(queue, "hello", name="first")
    found = await_state(discue, queue, message, "acknowledged")
    assert found["state"] == "delivered"
    [delivery] = found["deliveries"]
    assert delivery["listener"] == {"id": good["id"], "name": good["name"]}
    assert (delivery["attempts"], delivery["last_status"]) == (1, 200)
    assert delivery["last_error"] is None and delivery["next_attempt_at"] is None
    assert delivery["first_attempt_at"] == delivery["last_attempt_at"] >= found["created_at"]
    assert delivery["duration_ms"] >= 0
    assert receiver.bodies("/good") == ["hello"]

    bad = discue.new_listener(queue, receiver.url("/bad"))
    idle = discue.new_listener(queue, receiver.url("/idle"), status="disabled")
    ok(discue.delete(f"/queues/{queue}/listeners/{good['id']}"))
    later = discue.add(queue, "again")
    receiver.wait("/bad", 1)
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while (found := discue.message(queue, later))["deliveries"][0]["state"] != "retrying":
        assert time.monotonic() < deadline, found
        time.sleep(POLL_SECONDS)
    assert found["state"] == "delivering"
    failed, waiting = found["deliveries"]
    assert failed["listener"]["id"] == bad["id"]
    assert (failed["attempts"], failed["last_status"]) == (1, 500)
    assert failed["next_attempt_at"] > failed["last_attempt_at"]
    assert (failed["last_error"], failed["last_answer"]) == (None, "no")
    assert waiting["last_answer"] is None
    assert waiting["listener"]["id"] == idle["id"]
    assert (waiting["state"], waiting["attempts"]) == ("pending", 0)
    assert waiting["first_attempt_at"] is waiting["last_status"] is waiting["duration_ms"] is None
    # The first message was never meant for the later listeners.
    assert discue.message(queue, message)["deliveries"] == []


def test_a_delivery_that_was_given_up_makes_a_message_failed_until_it_is_retried(
    discue: DiscueClient, queue: str, receiver: Receiver
) -> None:
    receiver.on("/hook", status(500), OK)
    listener = discue.new_listener(queue, receiver.url("/hook"), max_attempts=1)["id"]
    message = discue.add(queue, "hello")
    path = f"/queues/{queue}/messages/{message}/deliveries/{listener}/retry"
    found = await_state(discue, queue, message, "exhausted")
    assert found["state"] == "failed"
    assert found["deliveries"][0]["next_attempt_at"] is None
    answer = ok(discue.post(path))
    assert answer["delivery"]["listener"]["id"] == listener
    assert answer["delivery"]["state"] in ("pending", "retrying", "in_flight", "acknowledged")
    assert answer["_links"]["self"]["href"].endswith(f"/queues/{queue}/messages/{message}")
    found = await_state(discue, queue, message, "acknowledged")
    assert (found["state"], found["deliveries"][0]["attempts"]) == ("delivered", 2)
    assert receiver.bodies("/hook") == ["hello", "hello"]
    fail(discue.post(path), 422)


def test_a_delivery_that_waits_for_its_next_attempt_can_be_had_at_once(
    discue: DiscueClient, queue: str, receiver: Receiver
) -> None:
    receiver.on("/hook", status(503, headers={"Retry-After": "3000"}), OK)
    listener = discue.new_listener(queue, receiver.url("/hook"))["id"]
    message = discue.add(queue, "hello")
    await_state(discue, queue, message, "retrying")
    ok(discue.post(f"/queues/{queue}/messages/{message}/deliveries/{listener}/retry"))
    await_state(discue, queue, message, "acknowledged")


def test_only_a_delivery_that_there_is_can_be_retried(
    discue: DiscueClient, queue: str, receiver: Receiver
) -> None:
    before = discue.add(queue, "before")
    url = f"http://127.0.0.1:{closed_port()}/"
    listener = discue.new_listener(queue, url, status="disabled")["id"]
    other = discue.new_queue()
    foreign = discue.new_listener(other, url, status="disabled")["id"]
    message = discue.add(queue, "x")
    for path in (
        f"/queues/{queue}/messages/{before}/deliveries/{listener}/retry",
        f"/queues/{queue}/messages/{message}/deliveries/{foreign}/retry",
        f"/queues/{other}/messages/{message}/deliveries/{foreign}/retry",
        f"/queues/{queue}/messages/{message}/deliveries/x/retry",
        f"/queues/{queue}/messages/x/deliveries/{listener}/retry",
    ):
        fail(discue.post(path), 404)
    # It waits for its listener, not for its next attempt.
    fail(discue.post(f"/queues/{queue}/messages/{message}/deliveries/{listener}/retry"), 422)


@pytest.mark.parametrize(("sent", "passed"), [(TRACE, True), ("nonsense", False), ("", False)])
def test_the_trace_of_the_publisher_goes_on_to_listeners(
    discue: DiscueClient, queue: str, receiver: Receiver, sent: str, passed: bool
) -> None:
    discue.new_listener(queue, receiver.url("/hook"))
    headers = {"traceparent": sent}
    ok(discue.post(f"/queues/{queue}/messages", {"data": "x", "name": "named"}, headers=headers))
    [request] = receiver.wait("/hook", 1)
    assert request.headers.get("traceparent") == (sent if passed else None)
    assert request.headers["x-message-name"] == "named"


# --- journal ---------------------------------------------------------------------------------


def test_the_journal_says_through_which_dialect(
    discue: DiscueClient, operator: httpx.Client, server: Server
) -> None:
    name = new_name()
    before = operator.get(f"{server.url}/journal/head").json()["last"]
    queue = discue.new_queue(name, schema={"a": {"type": "string"}})
    message = discue.add(queue, '{"a":"b"}', name="first")
    ok(discue.put(f"/queues/{queue}/messages/{message}", {"name": "second"}))
    ok(discue.delete(f"/queues/{queue}/messages/{message}"))
    ok(discue.put(f"/queues/{queue}", {"schema": None}))
    ok(discue.delete(f"/queues/{queue}"))
    url = f"{server.url}/journal"
    lines = operator.get(url, params={"after": before, "limit": 10_000}).text.splitlines()
    events = [each for line in lines if (each := json.loads(line)).get("queue_name") == name]
    assert [each["kind"] for each in events] == [
        "queue_created",
        "schema_created",
        "published",
        "renamed",
        "deleted",
        "queue_updated",
        "queue_deleted",
        "schema_deleted",
    ]
    assert {each["dialect"] for each in events} == {"discue"}
    assert {each["actor"] for each in events} == {events[0]["actor"]} != {""}
