"""API keys: made in two spellings, shown once, changed, disabled, deleted."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.clients.discue import ID, DiscueClient, fail, new_name, ok, pointers
from tests.server import Server

UNPROTECTED = [
    *("channels", "domains", "events", "listeners", "messages", "queues", "schemas", "stats"),
    "topics",
]
PROTECTED = ["api_clients", "api_keys", "subscriptions"]
MEMBERS = {
    *("id", "name", "alias", "key", "status", "scopes", "created_at", "updated_at", "last_used_at"),
}
READ_QUEUES = [{"resource": "queues", "access": "read", "targets": "*"}]
SOME_ID = "DCSV291zRljx4zRJ8pC9Z"


def create(client: DiscueClient, **body: Any) -> tuple[str, str]:
    """A key made as the documentation says: its id and secret."""
    made = ok(client.post("/api_keys", {"name": new_name("key"), **body}))
    assert set(made) == {"api_key", "id", "_links"}
    assert made["_links"]["self"]["href"].endswith(f"/v1/api_keys/{made['id']}")
    assert ID.fullmatch(made["id"])
    return made["id"], made["api_key"]


def read(client: DiscueClient, id: str) -> dict[str, Any]:
    found: dict[str, Any] = ok(client.get(f"/api_keys/{id}"))["api_key"]
    assert set(found) == MEMBERS
    assert found["name"] == found["alias"]
    return found


def listed(client: DiscueClient) -> dict[str, dict[str, Any]]:
    found = ok(client.get("/api_keys"))["api_keys"]
    assert all(set(each) == MEMBERS for each in found)
    return {each["id"]: each for each in found}


# --- made and shown ---


def test_a_key_works_and_is_shown_once(discue: DiscueClient, http: httpx.Client) -> None:
    name = new_name("key")
    id, secret = create(discue, name=name)
    assert len(secret) == 64 and secret.isascii()
    ok(DiscueClient(http, secret).get("/queues"))
    shown = read(discue, id)
    assert (shown["id"], shown["name"], shown["status"]) == (id, name, "enabled")
    assert len(shown["key"]) == 6 and secret.startswith(shown["key"])
    assert listed(discue)[id] == shown
    for answer in (discue.get("/api_keys"), discue.get(f"/api_keys/{id}")):
        assert secret not in answer.text


def test_newer_clients_get_an_object(discue: DiscueClient, http: httpx.Client) -> None:
    alias = new_name("key")
    scopes = {"queues": {"access": "read", "targets": ["*"]}}
    made = ok(discue.post("/api_keys", {"alias": alias, "scopes": scopes, "status": "enabled"}))
    key = made["api_key"]
    assert set(key) == MEMBERS
    assert (key["alias"], key["name"], key["scopes"]) == (alias, alias, scopes)
    assert key["last_used_at"] is None
    ok(DiscueClient(http, key["key"]).get("/queues"))
    shown = read(discue, key["id"])
    assert shown["scopes"] == scopes
    assert shown["key"] == key["key"][:6]


@pytest.mark.parametrize(
    ("body", "as_object"),
    [
        ({}, False),
        ({"name": "N"}, False),
        ({"scopes": READ_QUEUES}, False),
        ({"name": "N", "scopes": []}, False),
        ({"alias": "N"}, True),
        ({"alias": "N", "name": "N"}, True),
        ({"scopes": {}}, True),
        ({"name": "N", "scopes": {"queues": {}}}, True),
        ({"alias": "N", "scopes": READ_QUEUES}, True),
    ],
)
def test_the_request_decides_the_spelling_and_the_key_keeps_it(
    discue: DiscueClient, body: dict[str, Any], as_object: bool
) -> None:
    name = new_name("key")
    body = {field: name if value == "N" else value for field, value in body.items()}
    made = ok(discue.post("/api_keys", body))
    id = (made["api_key"] if as_object else made)["id"]
    assert isinstance(made["api_key"], dict if as_object else str)
    kind = dict if as_object else list
    assert isinstance(read(discue, id)["scopes"], kind)
    assert isinstance(listed(discue)[id]["scopes"], kind)
    # A change that says nothing about it leaves it so.
    assert isinstance(ok(discue.put(f"/api_keys/{id}", {}))["api_key"]["scopes"], kind)
    ok(discue.put(f"/api_keys/{id}", {"scopes": READ_QUEUES if as_object else {"queues": {}}}))
    assert isinstance(read(discue, id)["scopes"], list if as_object else dict)


@pytest.mark.parametrize("content", [None, b"", b"{}"])
def test_a_key_needs_nothing_to_be_said(
    discue: DiscueClient, http: httpx.Client, content: bytes | None
) -> None:
    headers = {} if content is None else {"Content-Type": "application/json"}
    made = ok(discue.request("POST", "/api_keys", content=content, headers=headers))
    shown = read(discue, made["id"])
    assert shown["name"].startswith("key-") and 4 <= len(shown["name"]) <= 64
    everything = [{"resource": each, "access": "write", "targets": ["*"]} for each in UNPROTECTED]
    assert shown["scopes"] == everything
    key = DiscueClient(http, made["api_key"])
    queue = key.new_queue()
    ok(key.delete(f"/queues/{queue}"))
    fail(key.get("/api_keys"), 403)


def test_dates_are_kept(discue: DiscueClient, http: httpx.Client) -> None:
    id, secret = create(discue)
    new = read(discue, id)
    assert new["created_at"] == new["updated_at"] > 1_700_000_000_000
    assert new["last_used_at"] is None
    ok(DiscueClient(http, secret).get("/queues"))
    used = read(discue, id)
    assert used["last_used_at"] >= new["created_at"]
    ok(discue.put(f"/api_keys/{id}", {"name": new_name("key")}))
    changed = read(discue, id)
    assert changed["created_at"] == new["created_at"]
    assert changed["updated_at"] >= used["last_used_at"]
    assert changed["last_used_at"] == used["last_used_at"]


# --- changed ---


def test_a_change_merges(discue: DiscueClient) -> None:
    name = new_name("key")
    id, _ = create(discue, name=name, scopes=READ_QUEUES)
    before = read(discue, id)
    same = ok(discue.put(f"/api_keys/{id}", {"status": "disabled"}))["api_key"]
    assert same == {**before, "status": "disabled", "updated_at": same["updated_at"]}
    other = new_name("key")
    renamed = ok(discue.put(f"/api_keys/{id}", {"name": other}))["api_key"]
    assert renamed["name"] == renamed["alias"] == other
    assert (renamed["status"], renamed["scopes"]) == ("disabled", before["scopes"])
    assert read(discue, id) == renamed
    for empty in ({}, {"unknown": 1}):
        kept = ok(discue.put(f"/api_keys/{id}", empty))["api_key"]
        assert kept == {**renamed, "updated_at": kept["updated_at"]}


def test_scopes_are_replaced_as_a_whole(discue: DiscueClient, http: httpx.Client) -> None:
    id, secret = create(discue, scopes=READ_QUEUES)
    key = DiscueClient(http, secret)
    ok(key.get("/queues"))
    fail(key.get("/messages"), 403)
    scopes = [{"resource": "messages", "access": "read", "targets": ["*"]}]
    assert ok(discue.put(f"/api_keys/{id}", {"scopes": scopes}))["api_key"]["scopes"] == scopes
    fail(key.get("/queues"), 403)
    ok(key.get("/messages"))
    ok(discue.put(f"/api_keys/{id}", {"scopes": []}))
    for path in ("/queues", "/messages", "/events"):
        fail(key.get(path), 403)


def test_a_disabled_key_is_unknown_at_once(
    discue: DiscueClient, stranger: httpx.Client, http: httpx.Client
) -> None:
    id, secret = create(discue)
    ok(DiscueClient(http, secret).get("/queues"))
    ok(discue.put(f"/api_keys/{id}", {"status": "disabled"}))
    fail(DiscueClient(stranger, secret).get("/queues"), 401)
    ok(discue.put(f"/api_keys/{id}", {"status": "enabled"}))
    ok(DiscueClient(stranger, secret).get("/queues"))


def test_a_deleted_key_is_gone(discue: DiscueClient, stranger: httpx.Client) -> None:
    id, secret = create(discue)
    ok(DiscueClient(stranger, secret).get("/queues"))
    ok(discue.delete(f"/api_keys/{id}"))
    fail(DiscueClient(stranger, secret).get("/queues"), 401)
    assert id not in listed(discue)
    for method in ("GET", "PUT", "DELETE"):
        fail(discue.request(method, f"/api_keys/{id}", {} if method == "PUT" else None), 404)


# --- refused ---


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"status": "on"}, "/status"),
        ({"scopes": None}, "/scopes"),
        ({"scopes": "*"}, "/scopes"),
        ({"scopes": [{}]}, "/scopes/0/resource"),
        ({"scopes": [{"resource": "queue"}]}, "/scopes/0/resource"),
        ({"scopes": [{"resource": "queues", "access": "all"}]}, "/scopes/0/access"),
        ({"scopes": [{"resource": "queues", "targets": "all"}]}, "/scopes/0/targets"),
        ({"scopes": [{"resource": "queues", "targets": ["x"]}]}, "/scopes/0/targets"),
        ({"scopes": [{"resource": "queues", "targets": ["*", SOME_ID]}]}, "/scopes/0/targets"),
        ({"scopes": [{"resource": "queues", "targets": ["*", "*"]}]}, "/scopes/0/targets"),
        ({"scopes": [{"resource": "queues", "targets": [SOME_ID] * 1_001}]}, "/scopes/0/targets"),
        ({"scopes": [{"resource": "queues"}, {"resource": "queues"}]}, "/scopes/1/resource"),
        ({"scopes": [{"resource": "queues"}] * 1_000}, "/scopes/1/resource"),
        ({"scopes": {"queue": {}}}, "/scopes"),
        ({"scopes": {"queues": {"access": "all"}}}, "/scopes/queues/access"),
        ({"scopes": {"queues": {"targets": ["x"]}}}, "/scopes/queues/targets"),
    ],
)
def test_what_a_key_cannot_be_is_refused(
    discue: DiscueClient, body: dict[str, Any], pointer: str
) -> None:
    before = listed(discue)
    assert pointers(discue.post("/api_keys", body)) == [pointer]
    id = next(iter(before))
    assert pointers(discue.put(f"/api_keys/{id}", body)) == [pointer]
    assert listed(discue) == before


@pytest.mark.parametrize("resource", PROTECTED)
@pytest.mark.parametrize("access", ["read", "write"])
def test_some_scopes_no_key_can_be_given(discue: DiscueClient, resource: str, access: str) -> None:
    scope = {"resource": resource, "access": access, "targets": ["*"]}
    assert pointers(discue.post("/api_keys", {"scopes": [scope]})) == ["/scopes/0"]
    body = {"scopes": {resource: {"access": access, "targets": ["*"]}}}
    assert pointers(discue.post("/api_keys", body)) == [f"/scopes/{resource}"]
    id, _ = create(discue, scopes=READ_QUEUES)
    fail(discue.put(f"/api_keys/{id}", body), 422)
    assert read(discue, id)["scopes"] == READ_QUEUES


# --- who may make keys, and which ---


def test_no_key_made_here_can_manage_keys(discue: DiscueClient, http: httpx.Client) -> None:
    id, secret = create(discue)
    key = DiscueClient(http, secret)
    fail(key.get("/api_keys"), 403)
    fail(key.get(f"/api_keys/{id}"), 403)
    fail(key.post("/api_keys", {}), 403)
    fail(key.put(f"/api_keys/{id}", {}), 403)
    fail(key.delete(f"/api_keys/{id}"), 403)
    assert read(discue, id)["status"] == "enabled"


@pytest.mark.parametrize("resource", UNPROTECTED)
@pytest.mark.parametrize("access", ["read", "write"])
def test_nobody_gives_what_the_own_key_lacks(
    discue: DiscueClient, new_key: Callable[..., DiscueClient], resource: str, access: str
) -> None:
    maker = new_key("keys:read", "keys:write", "queues:read", "queues:write")
    id, _ = create(discue, scopes=[])
    scopes = {resource: {"access": access, "targets": ["*"]}}
    if resource in ("queues", "channels", "topics"):
        ok(maker.post("/api_keys", {"scopes": scopes}))
        ok(maker.put(f"/api_keys/{id}", {"scopes": scopes}))
        return
    before = set(listed(discue))
    fail(maker.post("/api_keys", {"scopes": scopes}), 403)
    fail(maker.put(f"/api_keys/{id}", {"scopes": scopes}), 403)
    assert set(listed(discue)) == before
    assert read(discue, id)["scopes"] == []


# --- keys from elsewhere ---


def test_the_first_key_may_do_everything(server: Server, http: httpx.Client) -> None:
    section = server.credentials["discue"]
    assert section["base_url"] == server.url + "/v1"
    key = DiscueClient(http, section["api_key"])
    (own,) = [each for each in listed(key).values() if each["name"] == "first-discue"]
    everything = [*UNPROTECTED, "api_keys"]
    expected = {
        each: "read" if each in ("events", "schemas", "stats") else "write"
        for each in everything
        if each not in ("channels", "topics")
    }
    assert {each["resource"]: each["access"] for each in own["scopes"]} == expected
    assert all(each["targets"] == ["*"] for each in own["scopes"])
    for path in ("/queues", "/listeners", "/messages", "/domains", "/events", "/stats/messages"):
        ok(key.get(path))
    id, _ = create(key)
    ok(key.delete(f"/api_keys/{id}"))


def test_the_operators_keys_show_what_they_may_do(
    discue: DiscueClient, new_key: Callable[..., DiscueClient]
) -> None:
    queue_name, name = new_name(), new_name("key")
    queue = discue.new_queue(queue_name)
    new_key("messages:publish", "queues:read", "events:read", name=name, targets=[queue_name])
    (shown,) = [each for each in listed(discue).values() if each["name"] == name]
    assert shown["scopes"] == [
        {"resource": "events", "access": "read", "targets": [queue]},
        {"resource": "messages", "access": "write", "targets": [queue]},
        {"resource": "queues", "access": "read", "targets": [queue]},
    ]
    # Another name leaves them what they are.
    key = ok(discue.put(f"/api_keys/{shown['id']}", {"status": "disabled"}))["api_key"]
    assert key["scopes"] == shown["scopes"]


def test_apps_and_users_are_no_api_keys(discue: DiscueClient, server: Server) -> None:
    anypoint = server.credentials["anypoint"]
    assert not {each["name"] for each in listed(discue).values()} & {
        "first-app",
        "first-connected-app",
        anypoint["user"]["username"],
    }
    # Nor is any of them a key to show.
    for secret in (anypoint["client_secret"], anypoint["connected_app"]["client_secret"]):
        assert secret[:30] not in {each["key"] for each in listed(discue).values()}


def test_the_operators_token_is_no_organizations_key(server: Server, http: httpx.Client) -> None:
    operator = DiscueClient(http, server.credentials["admin"]["token"])
    for path in ("/queues", "/api_keys", "/events", "/stats/messages", "/domains", "/listeners"):
        fail(operator.get(path), 403)
    fail(operator.post("/api_keys", {}), 403)


# --- limits, secrets, restarts ---


def test_an_organization_has_room_for_a_thousand_keys(organization: DiscueClient) -> None:
    known = len(listed(organization))
    for _ in range(1_000 - known):
        assert organization.post("/api_keys", {"scopes": []}).status_code == 200
    fail(organization.post("/api_keys", {"scopes": []}), 402)
    every = listed(organization)
    assert len(every) == 1_000
    ok(organization.delete(f"/api_keys/{list(every)[-1]}"))
    create(organization)


def test_secrets_are_kept_nowhere(discue: DiscueClient, server: Server) -> None:
    _, secret = create(discue)
    made = ok(discue.post("/api_keys", {"alias": new_name("key")}))["api_key"]
    head = {"Authorization": f"Bearer {server.credentials['admin']['token']}"}
    journal = discue.http.get("/journal?limit=50000", headers=head).text
    database = b"".join(file.read_bytes() for file in server.data.glob("courier.db*"))
    for text in (secret, made["key"]):
        assert text not in server.log()
        assert text not in journal
        assert text.encode() not in database
