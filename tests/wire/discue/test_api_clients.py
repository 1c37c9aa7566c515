"""API clients: organizations that only the operator makes and renames."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from tests.clients.discue import ID, DiscueClient, fail, new_name, ok, pointers
from tests.server import Server

SOME_ID = "DCSV291zRljx4zRJ8pC9Z"


@pytest.fixture(scope="module")
def bootstrap(server: Server, http: httpx.Client) -> DiscueClient:
    """The operator's own key."""
    return DiscueClient(http, server.credentials["admin"]["token"])


def file(server: Server, name: str) -> Path:
    return server.data / f"credentials.{quote(name, safe='')}.json"


def credentials(server: Server, name: str) -> dict[str, Any]:
    path = file(server, name)
    assert path.stat().st_mode & 0o777 == 0o600
    loaded: dict[str, Any] = json.loads(path.read_bytes())
    return loaded


def create(client: DiscueClient, name: str) -> tuple[str, str]:
    """An organization: its id and first key."""
    made = ok(client.post("/api_clients", {"name": name}))
    assert set(made) == {"api_client", "api_key", "_links"}
    id = made["api_client"]["id"]
    assert made["api_client"] == {"id": id, "name": name, "alias": name}
    assert ID.fullmatch(id)
    assert made["_links"]["self"]["href"].endswith(f"{client.prefix}/api_clients/{id}")
    return id, made["api_key"]


def tenants(operator: httpx.Client) -> dict[str, str]:
    found = operator.get("/tenants").json()["tenants"]
    return {each["name"]: each["id"] for each in found}


def test_a_new_organization_is_ready_to_be_used(
    bootstrap: DiscueClient, discue: DiscueClient, server: Server, http: httpx.Client
) -> None:
    name = new_name("org")
    id, key = create(bootstrap, name)
    client = DiscueClient(http, key)
    assert ok(client.get("/queues"))["queues"] == []
    queue = client.new_queue()
    fail(discue.get(f"/queues/{queue}"), 404)
    made = credentials(server, name)
    assert made["tenant"] == name
    assert made["discue"] == {"base_url": server.url + "/v1", "api_key": key}
    assert {"cloudflare", "anypoint", "discue"} <= set(made) and "admin" not in made
    event = ok(client.get("/events"))["events"][0]
    assert event["client"]["id"] == id


def test_the_first_key_of_an_organization_makes_others(
    bootstrap: DiscueClient, http: httpx.Client
) -> None:
    _, key = create(bootstrap, new_name("org"))
    client = DiscueClient(http, key)
    made = ok(client.post("/api_keys", {}))["api_key"]
    ok(DiscueClient(http, made).get("/queues"))
    fail(client.post("/api_clients", {}), 403)


@pytest.mark.parametrize("content", [None, b"", b"{}"])
def test_an_organization_needs_no_name(
    bootstrap: DiscueClient, operator: httpx.Client, content: bytes | None
) -> None:
    headers = {} if content is None else {"Content-Type": "application/json"}
    made = ok(bootstrap.request("POST", "/api_clients", content=content, headers=headers))
    name = made["api_client"]["name"]
    assert 4 <= len(name) <= 64
    assert name in tenants(operator)


@pytest.mark.parametrize("prefix", ["", "/v1"])
@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_clients_are_served_with_and_without_a_version(
    bootstrap: DiscueClient, prefix: str, method: str
) -> None:
    client = bootstrap.under(prefix)
    made = ok(client.request(method, "/api_clients", {"alias": new_name("org")}))
    path = f"/api_clients/{made['api_client']['id']}"
    assert made["_links"]["self"]["href"].endswith(prefix + path)
    again = ok(client.put(path, {}))
    assert again["api_client"] == made["api_client"]
    assert again["_links"]["self"]["href"].endswith(prefix + path)


def test_names_may_hold_slashes(
    bootstrap: DiscueClient, server: Server, operator: httpx.Client
) -> None:
    name = f"example.com/{new_name('dev')}"
    _, key = create(bootstrap, name)
    assert credentials(server, name)["discue"]["api_key"] == key
    assert name in tenants(operator)
    # The command line and the operator find it under that name as well.
    place = ["--data", str(server.data), "--tenant", name, "--json"]
    shown = subprocess.run(
        [sys.executable, "-m", "courier", "credentials", *place], capture_output=True, timeout=60
    )
    assert json.loads(shown.stdout) == credentials(server, name)
    answer = operator.get(f"/tenants/{quote(name, safe='')}/keys")
    assert "first-discue" in {each["name"] for each in answer.json()["keys"]}
    assert operator.delete(f"/tenants/{quote(name, safe='')}").is_success
    assert not file(server, name).exists()


@pytest.mark.parametrize(
    "name",
    ["", "abc", "x" * 65, "a blank", "../../x", "/etc/x", "..", "é" * 5, "a\x00bcd", None, 5],
)
def test_a_name_must_be_one(
    bootstrap: DiscueClient, operator: httpx.Client, server: Server, name: Any
) -> None:
    before = tenants(operator), sorted(server.data.iterdir())
    assert pointers(bootstrap.post("/api_clients", {"name": name})) == ["/name"]
    assert (tenants(operator), sorted(server.data.iterdir())) == before


def test_a_name_is_taken_once(
    bootstrap: DiscueClient, server: Server, operator: httpx.Client
) -> None:
    name = new_name("org")
    create(bootstrap, name)
    before = credentials(server, name)
    for taken in (name, "default", "operator"):
        fail(bootstrap.post("/api_clients", {"name": taken}), 422)
    assert credentials(server, name) == before
    other, _ = create(bootstrap, new_name("org"))
    for taken in (name, "default", "operator"):
        fail(bootstrap.put(f"/api_clients/{other}", {"name": taken}), 422)
    assert credentials(server, name) == before
    assert "operator" not in tenants(operator)


def test_an_organization_is_renamed_with_its_file(
    bootstrap: DiscueClient, server: Server, operator: httpx.Client, http: httpx.Client
) -> None:
    old, new = new_name("org"), f"example.com/{new_name('org')}"
    id, key = create(bootstrap, old)
    client = DiscueClient(http, key)
    queue = client.new_queue()
    before = credentials(server, old)
    answer = ok(bootstrap.put(f"/api_clients/{id}", {"id": SOME_ID, "name": new}))
    assert answer["api_client"] == {"id": id, "name": new, "alias": new}
    assert set(answer) == {"api_client", "_links"}
    assert new in tenants(operator) and old not in tenants(operator)
    assert credentials(server, new) == {**before, "tenant": new}
    assert not file(server, old).exists()
    ok(client.get(f"/queues/{queue}"))
    # Its old name is free, and what is its own stays its own.
    other, other_key = create(bootstrap, old)
    assert other != id
    fail(DiscueClient(http, other_key).get(f"/queues/{queue}"), 404)
    assert credentials(server, new)["discue"]["api_key"] == key


def test_a_renamed_organization_still_works_with_the_other_dialects(
    bootstrap: DiscueClient, server: Server, http: httpx.Client
) -> None:
    id, _ = create(bootstrap, new_name("org"))
    new = new_name("org")
    ok(bootstrap.put(f"/api_clients/{id}", {"name": new}))
    own = credentials(server, new)
    cloudflare = own["cloudflare"]
    answer = http.get(
        f"/client/v4/accounts/{cloudflare['account_id']}/queues",
        headers={"Authorization": f"Bearer {cloudflare['api_token']}"},
    )
    assert answer.status_code == 200, answer.text
    assert http.post("/accounts/login", json=own["anypoint"]["user"]).status_code == 200


def test_the_first_organization_keeps_its_name(
    bootstrap: DiscueClient, discue: DiscueClient, server: Server
) -> None:
    id = ok(discue.get("/events"))["events"][0]["client"]["id"]
    assert pointers(bootstrap.put(f"/api_clients/{id}", {"name": new_name("org")})) == ["/name"]
    assert ok(bootstrap.put(f"/api_clients/{id}", {"name": "default"}))
    assert server.credentials["tenant"] == "default"


def test_only_the_operators_key_will_do(
    bootstrap: DiscueClient,
    discue: DiscueClient,
    new_key: Callable[..., DiscueClient],
    operator: httpx.Client,
) -> None:
    id, _ = create(bootstrap, new_name("org"))
    before = tenants(operator)
    # A tenant's key does not become the operator's by its scopes.
    for client in (discue, new_key("admin"), new_key("journal", tenant="operator")):
        fail(client.post("/api_clients", {"name": new_name("org")}), 403)
        fail(client.put(f"/api_clients/{id}", {"name": new_name("org")}), 403)
    ok(new_key("admin", tenant="operator").post("/api_clients", {}))
    assert len(tenants(operator)) == len(before) + 1
    assert before.items() <= tenants(operator).items()


def test_a_first_key_is_in_its_file_and_nowhere_else(
    bootstrap: DiscueClient, server: Server
) -> None:
    _, key = create(bootstrap, new_name("org"))
    head = {"Authorization": f"Bearer {server.credentials['admin']['token']}"}
    journal = bootstrap.http.get("/journal?limit=50000", headers=head).text
    database = b"".join(path.read_bytes() for path in server.data.glob("courier.db*"))
    assert key not in journal and key not in server.log()
    assert key.encode() not in database


def test_a_file_from_before_gets_a_key(fresh_server: Server) -> None:
    """As when a server is started on the data of one that did not speak this dialect."""
    path = fresh_server.data / "credentials.json"
    own = fresh_server.credentials
    old_key = own.pop("discue")["api_key"]
    fresh_server.stop()
    path.write_text(json.dumps(own))
    fresh_server.start()
    made = fresh_server.credentials
    assert made["discue"]["base_url"] == fresh_server.url + "/v1"
    assert {name: made[name] for name in own} == own
    with httpx.Client(base_url=fresh_server.url, trust_env=False, verify=False) as http:
        ok(DiscueClient(http, made["discue"]["api_key"]).get("/api_keys"))
        fail(DiscueClient(http, old_key).get("/api_keys"), 401)
    fresh_server.restart()
    assert fresh_server.credentials == made
