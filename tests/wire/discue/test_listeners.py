"""Listeners: made, read, changed, listed, deleted, and what they may not be."""

import base64
import uuid
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from standardwebhooks import Webhook

from tests.clients.discue import ID, DiscueClient, fail, new_name, ok, pointers
from tests.delivery.receiver import Receiver
from tests.server import Server
from tests.wire.discue.conftest import SERVER_ARGS
from tests.wire.discue.receiving import NOWHERE, Host

URL = NOWHERE
LIVE = "http://127.0.0.1:9/live"
PUBLIC = "https://app.example/hook"
SHORT = {
    *("id", "name", "alias", "queue_id", "status", "notify_url", "liveness_url", "created_at"),
    *("updated_at", "headers", "timeout_ms", "max_attempts", "ordered", "body", "max_in_flight"),
    "max_per_second",
}


def body(**members: Any) -> dict[str, Any]:
    return {"name": new_name("l"), "notify_url": URL, "liveness_url": LIVE, **members}


def public(**members: Any) -> dict[str, Any]:
    """URLs that any server may call; nothing is there."""
    return {"notify_url": PUBLIC, "liveness_url": PUBLIC, **members}


def create(client: DiscueClient, queue: str, **members: Any) -> dict[str, Any]:
    made = ok(client.post(f"/queues/{queue}/listeners", body(**members)))
    listener: dict[str, Any] = made["listener"]
    assert ID.fullmatch(listener["id"])
    path = f"{client.prefix}/queues/{queue}/listeners/{listener['id']}"
    assert made["_links"]["self"]["href"].endswith(path)
    return listener


def read(client: DiscueClient, queue: str, id: str) -> dict[str, Any]:
    found: dict[str, Any] = ok(client.get(f"/queues/{queue}/listeners/{id}"))["listener"]
    return found


def listed(client: DiscueClient, queue: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = ok(client.get(f"/queues/{queue}/listeners"))["listeners"]
    return found


def put(client: DiscueClient, queue: str, id: str, **members: Any) -> dict[str, Any]:
    answer = client.put(f"/queues/{queue}/listeners/{id}", members)
    changed: dict[str, Any] = ok(answer)["listener"]
    return changed


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Host() as receiver:
        yield receiver


@pytest.fixture(scope="module")
def closed_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DiscueClient]:
    """A server that pushes to public addresses only, as it comes."""
    server = Server(tmp_path_factory.mktemp("closed")).start()
    with httpx.Client(base_url=server.url, trust_env=False, verify=False) as http:
        yield DiscueClient(http, server.credentials["discue"]["api_key"])
    server.stop()


def bearer(token: str) -> dict[str, str]:
    return {"type": "bearer", "token": token}


def received(receiver: Receiver, discue: DiscueClient, queue: str, path: str) -> dict[str, str]:
    """The headers that a push to that path comes with."""
    before = len(receiver.received(path))
    discue.add(queue, "x")
    return receiver.wait(path, before + 1)[-1].headers


# --- made and read ---


def test_a_new_listener_is_shown_with_its_secret(discue: DiscueClient, queue: str) -> None:
    name = new_name("l")
    made = create(discue, queue, name=name)
    assert set(made) == {*SHORT, "signing_secret"}
    secret = made.pop("signing_secret")
    assert secret.startswith("whsec_") and len(base64.b64decode(secret[6:], validate=True)) == 32
    assert made == {
        "id": made["id"],
        "name": name,
        "alias": name,
        "queue_id": queue,
        "status": "enabled",
        "notify_url": URL,
        "liveness_url": LIVE,
        "created_at": made["created_at"],
        "updated_at": made["created_at"],
        "headers": {},
        "timeout_ms": 10_000,
        "max_attempts": 11,
        "ordered": False,
        "body": "raw",
        "max_in_flight": 0,
        "max_per_second": 0,
    }
    assert made["created_at"] > 1_700_000_000_000


def test_a_listener_is_read_with_its_numbers(discue: DiscueClient, queue: str) -> None:
    made = create(discue, queue)
    found = read(discue, queue, made["id"])
    assert found["liveness"] == {
        "state": "pending",
        "success_count": 0,
        "failure_count": 0,
        "last_success_at": None,
        "last_failure_at": None,
        "last_failure_msg": "",
    }
    assert found["messages"] == {
        "acknowledged_count": 0,
        "missed": [],
        "missed_count": 0,
        "last_success_at": None,
        "last_failure_at": None,
    }
    assert set(found) == {*SHORT, "liveness", "messages"}
    del made["signing_secret"]
    assert {**found, **made} == found


def test_a_secret_is_shown_once(discue: DiscueClient, queue: str, server: Server) -> None:
    header, token = f"header-{uuid.uuid4()}", f"token-{uuid.uuid4()}"
    made = create(discue, queue, headers={"X-Token": header}, auth=bearer(token))
    path = f"/queues/{queue}/listeners"
    answers = [
        discue.get(f"{path}/{made['id']}"),
        discue.get(path),
        discue.get("/listeners"),
        discue.put(f"{path}/{made['id']}", {"ordered": True}),
        discue.get("/events"),
    ]
    head = {"Authorization": f"Bearer {server.credentials['admin']['token']}"}
    answers.append(discue.http.get("/journal?limit=50000", headers=head))
    database = b"".join(file.read_bytes() for file in server.data.glob("courier.db*"))
    for secret in (made["signing_secret"], header, token):
        assert not [answer.url for answer in answers if secret in answer.text]
        assert secret not in server.log()
        assert secret.encode() not in database


def test_every_option_comes_back(discue: DiscueClient, queue: str) -> None:
    made = create(
        discue,
        queue,
        headers={"X-One": "1", "x-two": "2"},
        auth={"type": "basic", "username": "me", "password": "secret"},
        timeout_ms=1_000,
        max_attempts=1,
        ordered=True,
        body="envelope",
        status="disabled",
    )
    found = read(discue, queue, made["id"])
    assert found["headers"] == {"X-One": "***", "x-two": "***"}
    assert found["auth"] == {"type": "basic"}
    assert (found["timeout_ms"], found["max_attempts"]) == (1_000, 1)
    assert (found["ordered"], found["body"]) == (True, "envelope")
    assert (found["status"], found["disabled_by"]) == ("disabled", "user")


@pytest.mark.parametrize(
    ("members", "pointer"),
    [
        # What is dangerous is tried in tests/delivery.
        ({"notify_url": "http://10.1/"}, "/notify_url"),
        ({"notify_url": "https://app.example/" + "x" * 234}, "/notify_url"),
        ({"liveness_url": "http://169.254.169.254/latest/meta-data/"}, "/liveness_url"),
        ({"timeout_ms": 999}, "/timeout_ms"),
        ({"timeout_ms": 30_001}, "/timeout_ms"),
        ({"max_attempts": 0}, "/max_attempts"),
        ({"max_attempts": 12}, "/max_attempts"),
        ({"max_in_flight": 11}, "/max_in_flight"),
        ({"max_per_second": 1_001}, "/max_per_second"),
        ({"signing_secret": "whsec_dG9vIHNob3J0"}, "/signing_secret"),
        ({"signing_secret": "b" * 44}, "/signing_secret"),
        ({"body": "xml"}, "/body"),
        ({"status": "on"}, "/status"),
        ({"headers": {f"X-{number}": "a" for number in range(21)}}, "/headers"),
        ({"headers": {"": "a"}}, "/headers"),
        ({"headers": {"a b": "a"}}, "/headers"),
        ({"headers": {"a:b": "a"}}, "/headers"),
        ({"headers": {"é": "a"}}, "/headers"),
        ({"headers": {"x" * 129: "a"}}, "/headers"),
        ({"headers": {"X-A": "a\r\nX-B: b"}}, "/headers/X-A"),
        ({"headers": {"X-A": "a\x00"}}, "/headers/X-A"),
        ({"headers": {"X-A": "é"}}, "/headers/X-A"),
        ({"headers": {"X-A": " a"}}, "/headers/X-A"),
        ({"headers": {"X-A": "a" * 2_049}}, "/headers/X-A"),
        ({"headers": {"X-A": "a", "x-a": "b"}}, "/headers/x-a"),
        ({"auth": {}}, "/auth/type"),
        ({"auth": {"type": "digest"}}, "/auth/type"),
        ({"auth": {"type": "bearer"}}, "/auth/token"),
        ({"auth": {"type": "bearer", "token": ""}}, "/auth/token"),
        ({"auth": {"type": "bearer", "token": "a b"}}, "/auth/token"),
        ({"auth": {"type": "bearer", "token": "a\r\nb"}}, "/auth/token"),
        ({"auth": {"type": "bearer", "token": "x" * 2_001}}, "/auth/token"),
        ({"auth": {"type": "basic", "username": "me"}}, "/auth/password"),
        ({"auth": {"type": "basic", "username": "a:b", "password": "c"}}, "/auth/username"),
        ({"auth": {"type": "basic", "username": "a\n", "password": "c"}}, "/auth"),
        ({"auth": {"type": "basic", "username": "a", "password": "c" * 2_000}}, "/auth"),
        (
            {"auth": {"type": "bearer", "token": "a"}, "headers": {"authorization": "b"}},
            "/headers",
        ),
    ],
)
def test_what_a_listener_cannot_be_is_refused(
    discue: DiscueClient, queue: str, members: dict[str, Any], pointer: str
) -> None:
    assert pointers(discue.post(f"/queues/{queue}/listeners", body(**members))) == [pointer]
    assert listed(discue, queue) == []
    made = create(discue, queue)
    before = read(discue, queue, made["id"])
    assert pointers(discue.put(f"/queues/{queue}/listeners/{made['id']}", members)) == [pointer]
    assert read(discue, queue, made["id"]) == before


@pytest.mark.parametrize(
    "name",
    [
        *("webhook-id", "Webhook-Signature", "webhook-anything", "X-Queue-Id", "x-queue-name"),
        *("X-Listener-Id", "X-Message-Name", "X-Delivery-Id", "X-Attempt", "Host"),
        *("Content-Length", "Content-Type", "Content-Encoding", "Transfer-Encoding", "Connection"),
        *("Keep-Alive", "Upgrade", "TE", "Trailer", "Expect", "User-Agent", "traceparent"),
        *("Proxy-Authorization", "Proxy-Connection"),
    ],
)
def test_some_headers_cannot_be_chosen(discue: DiscueClient, queue: str, name: str) -> None:
    answer = discue.post(f"/queues/{queue}/listeners", body(headers={name: "a"}))
    assert pointers(answer) == [f"/headers/{name}"]
    assert listed(discue, queue) == []


@pytest.mark.parametrize(
    "url",
    [
        "http://a.b",
        "http://app.example:8080/a?b=c&d=%20",
        "HTTPS://App.Example/Hook",
        "http://my_service:3000/",
        "http://8.8.8.8/",
        "http://[2606:4700:4700::1111]/",
        "https://app.example/" + "x" * 233,
        # The server of these tests allows its own machine.
        "http://127.0.0.1:9/",
        "http://127.1:9/",
        "http://2130706433:9/",
        "http://localhost:9/",
    ],
)
def test_good_urls_come_back_as_they_are(discue: DiscueClient, queue: str, url: str) -> None:
    made = create(discue, queue, notify_url=url, liveness_url=url, status="disabled")
    found = read(discue, queue, made["id"])
    assert found["notify_url"] == found["liveness_url"] == url


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/",
        "http://2130706433/",
        "http://localhost/",
    ],
)
def test_this_machine_is_refused_unless_the_operator_allows_it(
    closed_server: DiscueClient, url: str
) -> None:
    queue = closed_server.new_queue()
    path = f"/queues/{queue}/listeners"
    for member in ("notify_url", "liveness_url"):
        asked = body(**public(**{member: url}))
        assert pointers(closed_server.post(path, asked)) == [f"/{member}"]
    assert listed(closed_server, queue) == []


# --- names and numbers ---


def test_a_queue_has_room_for_a_hundred(discue: DiscueClient, queue: str) -> None:
    made = [create(discue, queue, status="disabled") for _ in range(100)]
    fail(discue.post(f"/queues/{queue}/listeners", body()), 422)
    assert [each["id"] for each in listed(discue, queue)] == [each["id"] for each in made]
    create(discue, discue.new_queue())
    ok(discue.delete(f"/queues/{queue}/listeners/{made[0]['id']}"))
    create(discue, queue)


def test_all_listeners_are_listed_over_all_queues(organization: DiscueClient) -> None:
    assert ok(organization.get("/listeners"))["listeners"] == []
    queues = [organization.new_queue() for _ in range(3)]
    same = new_name("l")
    made = [create(organization, queue, name=same) for queue in queues]
    answer = ok(organization.get("/listeners"))
    assert {each["id"]: each["queue_id"] for each in answer["listeners"]} == {
        each["id"]: queue for each, queue in zip(made, queues, strict=True)
    }
    # Of those that share a name, one link has it and the others go by their ids.
    hrefs = {link["href"].rpartition("/")[2] for link in answer["_links"].values()}
    assert hrefs == {"listeners", *(each["id"] for each in made)}
    page = ok(organization.get("/listeners?per_page=2"))
    assert len(page["listeners"]) == 2
    assert page["_links"]["next"]["href"].endswith("/v1/listeners?page=2&per_page=2")
    assert len(ok(organization.get("/listeners?per_page=2&page=2"))["listeners"]) == 1
    fail(organization.get("/listeners?page=0"), 400)


def test_a_queue_links_to_its_listeners(discue: DiscueClient, queue: str) -> None:
    made = create(discue, queue)
    links = ok(discue.get(f"/queues/{queue}"))["_links"]
    path = f"/queues/{queue}/listeners/{made['id']}"
    assert links[made["name"]]["href"].endswith(path)


# --- changed ---


def test_a_change_merges(discue: DiscueClient, queue: str) -> None:
    made = create(
        discue, queue, headers={"X-A": "a"}, auth=bearer("b"), timeout_ms=2_000, ordered=True
    )
    before = read(discue, queue, made["id"])
    members: dict[str, Any] = {
        "name": new_name("l"),
        "notify_url": "https://other.example/",
        "liveness_url": "https://other.example/live",
        "timeout_ms": 3_000,
        "max_attempts": 3,
        "ordered": False,
        "body": "envelope",
        "max_in_flight": 3,
        "max_per_second": 100,
    }
    for name, value in members.items():
        changed = put(discue, queue, made["id"], **{name: value})
        expected = {**before, name: value, "updated_at": changed["updated_at"]}
        if name == "name":
            expected["alias"] = value
        assert read(discue, queue, made["id"]) == expected
        assert changed == {key: expected[key] for key in (*SHORT, "auth")}
        before = expected
    assert put(discue, queue, made["id"]) == {
        **{key: before[key] for key in (*SHORT, "auth")},
        "updated_at": read(discue, queue, made["id"])["updated_at"],
    }


def test_a_listener_is_disabled_and_enabled(discue: DiscueClient, queue: str) -> None:
    id = create(discue, queue)["id"]
    assert put(discue, queue, id, status="disabled")["status"] == "disabled"
    found = read(discue, queue, id)
    assert (found["status"], found["disabled_by"]) == ("disabled", "user")
    put(discue, queue, id, timeout_ms=5_000)
    assert read(discue, queue, id)["status"] == "disabled"
    put(discue, queue, id, status="enabled")
    found = read(discue, queue, id)
    assert found["status"] == "enabled" and "disabled_by" not in found


def test_headers_and_auth_are_sent_and_changed_apart(
    discue: DiscueClient, queue: str, receiver: Receiver
) -> None:
    url = receiver.url("/hook")
    id = create(
        discue,
        queue,
        notify_url=url,
        liveness_url=url + "/live",
        headers={"X-One": "1", "X-Two": "two words"},
        auth=bearer("b"),
    )["id"]
    sent = received(receiver, discue, queue, "/hook")
    assert (sent["x-one"], sent["x-two"]) == ("1", "two words")
    assert sent["authorization"] == "Bearer b"
    basic = {"type": "basic", "username": "mé", "password": "a:b"}
    assert put(discue, queue, id, auth=basic)["headers"] == {"X-One": "***", "X-Two": "***"}
    sent = received(receiver, discue, queue, "/hook")
    assert sent["x-one"] == "1"
    assert base64.b64decode(sent["authorization"].removeprefix("Basic ")).decode() == "mé:a:b"
    assert put(discue, queue, id, headers={"X-Three": "3"})["auth"] == {"type": "basic"}
    sent = received(receiver, discue, queue, "/hook")
    assert "x-one" not in sent and sent["x-three"] == "3" and "authorization" in sent
    fail(discue.put(f"/queues/{queue}/listeners/{id}", {"headers": {"Authorization": "mine"}}), 422)
    assert "auth" not in put(discue, queue, id, auth=None)
    sent = received(receiver, discue, queue, "/hook")
    assert "authorization" not in sent and sent["x-three"] == "3"
    put(discue, queue, id, headers={"Authorization": "mine"})
    assert received(receiver, discue, queue, "/hook")["authorization"] == "mine"
    assert put(discue, queue, id, headers=None)["headers"] == {}
    assert "authorization" not in received(receiver, discue, queue, "/hook")


# --- secrets ---


def test_a_new_secret_signs_beside_the_old_one(
    discue: DiscueClient, queue: str, receiver: Receiver
) -> None:
    url, live = receiver.url("/hook"), receiver.url("/live")
    made = create(discue, queue, notify_url=url, liveness_url=live)
    path = f"/queues/{queue}/listeners/{made['id']}"
    rotated = ok(discue.post(f"{path}/rotate_secret"))
    assert rotated["_links"]["self"]["href"].endswith(path)
    new = rotated["listener"]["signing_secret"]
    assert new != made["signing_secret"] and new.startswith("whsec_")
    assert "signing_secret" not in read(discue, queue, made["id"])
    discue.add(queue, '{"a": 1}')
    (came,) = receiver.wait("/hook", 1)
    assert len(came.headers["webhook-signature"].split()) == 2
    for secret in (made["signing_secret"], new):
        assert Webhook(secret).verify(came.body, came.headers) == {"a": 1}


# --- deleted, unknown, other people's ---


def test_a_deleted_listener_is_gone(discue: DiscueClient, queue: str) -> None:
    kept, gone = create(discue, queue), create(discue, queue)
    path = f"/queues/{queue}/listeners/{gone['id']}"
    ok(discue.delete(path))
    assert [each["id"] for each in listed(discue, queue)] == [kept["id"]]
    for method, suffix in (("GET", ""), ("PUT", ""), ("DELETE", ""), ("POST", "/rotate_secret")):
        fail(discue.request(method, path + suffix, {} if method == "PUT" else None), 404)
    fail(discue.post(path + "/backfill", {}), 404)
    create(discue, queue, name=gone["name"])


# --- backfill ---


def test_a_listener_gets_the_past_when_asked(
    discue: DiscueClient, queue: str, receiver: Receiver
) -> None:
    texts = [f"m{number}" for number in range(3)]
    for text in texts:
        discue.add(queue, text)
    url, live = receiver.url("/hook"), receiver.url("/live")
    id = create(discue, queue, notify_url=url, liveness_url=live)["id"]
    discue.add(queue, "new")
    assert receiver.wait("/hook", 1)[0].body == b"new"
    path = f"/queues/{queue}/listeners/{id}"
    answer = ok(discue.post(f"{path}/backfill", {}))
    assert answer["backfill"] == {"bound": 3}
    assert answer["_links"]["self"]["href"].endswith(path)
    receiver.wait("/hook", 4)
    assert sorted(receiver.bodies("/hook")) == sorted(["new", *texts])
    assert ok(discue.post(f"{path}/backfill"))["backfill"] == {"bound": 0}


# --- domains and restarts ---


def test_domains_may_be_required(tmp_path_factory: pytest.TempPathFactory) -> None:
    args = (*SERVER_ARGS, "--domains-required")
    server = Server(tmp_path_factory.mktemp("domains"), args=args).start()
    try:
        with httpx.Client(base_url=server.url, trust_env=False, verify=False) as http:
            client = DiscueClient(http, server.credentials["discue"]["api_key"])
            queue = client.new_queue()
            path = f"/queues/{queue}/listeners"
            assert pointers(client.post(path, body(**public()))) == ["/notify_url"]
            domain = {"alias": "home", "hostname": "App.example", "port": 443}
            id = ok(client.post("/domains", domain))["domain"]["id"]
            listener = create(client, queue, **public())["id"]
            for url in ("https://other.example/", "http://app.example/", "https://app.example:444"):
                for member in ("notify_url", "liveness_url"):
                    asked = body(**public(**{member: url}))
                    assert pointers(client.post(path, asked)) == [f"/{member}"]
                    changed = client.put(f"{path}/{listener}", {member: url})
                    assert pointers(changed) == [f"/{member}"]
            create(client, queue, **public(notify_url="https://APP.example:443/x"))
            ok(client.delete(f"/domains/{id}"))
            assert pointers(client.post(path, body(**public()))) == ["/notify_url"]
            put(client, queue, listener, timeout_ms=1_000)
            assert len(listed(client, queue)) == 2
    finally:
        server.stop()
