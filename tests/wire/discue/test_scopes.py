"""What a key may do with each scope, and with targets."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from tests.clients.discue import DiscueClient, fail, new_name, ok
from tests.wire.discue.receiving import NOWHERE

URL = NOWHERE
Request = tuple[str, str, Any]


@dataclass(frozen=True)
class Place:
    """One of everything, in an organization of its own."""

    client: DiscueClient
    queue: str
    schema: str
    listener: str
    message: str
    domain: str

    def requests(self, resource: str, access: str) -> list[Request]:
        """What takes this access to this resource; writing what changes next to nothing."""
        queue = f"/queues/{self.queue}"
        listener = f"{queue}/listeners/{self.listener}"
        table: dict[tuple[str, str], list[Request]] = {
            ("queues", "read"): [("GET", "/queues", None), ("GET", queue, None)],
            ("queues", "write"): [
                ("POST", "/queues", {"name": new_name()}),
                ("PUT", "/queues", {"name": new_name()}),
                ("PUT", queue, {}),
            ],
            ("schemas", "read"): [("GET", f"{queue}/schemas/{self.schema}", None)],
            ("listeners", "read"): [
                ("GET", "/listeners", None),
                ("GET", f"{queue}/listeners", None),
                ("GET", listener, None),
            ],
            ("listeners", "write"): [
                ("POST", f"{queue}/listeners", listener_body()),
                ("PUT", f"{queue}/listeners", listener_body()),
                ("PUT", listener, {}),
                ("POST", f"{listener}/rotate_secret", None),
                ("POST", f"{listener}/backfill", {}),
            ],
            ("messages", "read"): [
                ("GET", "/messages", None),
                ("GET", f"{queue}/messages", None),
                ("GET", f"{queue}/messages/{self.message}", None),
            ],
            ("messages", "write"): [
                ("POST", f"{queue}/messages", {"data": '{"a": "b"}'}),
                ("PUT", f"{queue}/messages/{self.message}", {"name": "other"}),
            ],
            ("domains", "read"): [
                ("GET", "/domains", None),
                ("GET", f"/domains/{self.domain}", None),
            ],
            ("domains", "write"): [
                ("POST", "/domains", domain_body()),
                ("PUT", "/domains", domain_body()),
                ("PUT", f"/domains/{self.domain}", {}),
            ],
            ("events", "read"): [("GET", "/events", None)],
            ("stats", "read"): [("GET", "/stats/messages", None)],
            ("api_keys", "read"): [("GET", "/api_keys", None)],
            ("api_keys", "write"): [("POST", "/api_keys", {})],
            ("api_clients", "write"): [("POST", "/api_clients", {})],
        }
        return table.get((resource, access), [])

    def key(self, http: httpx.Client, *scopes: dict[str, Any]) -> DiscueClient:
        made = ok(self.client.post("/api_keys", {"scopes": list(scopes)}))
        return DiscueClient(http, made["api_key"])


RESOURCES = [
    *("queues", "schemas", "listeners", "messages", "domains", "events", "stats", "channels"),
    "topics",
]
OTHERS = ["api_keys", "api_clients"]


def listener_body() -> dict[str, str]:
    return {"name": new_name("l"), "notify_url": URL, "liveness_url": URL}


def domain_body() -> dict[str, Any]:
    return {"alias": new_name("d"), "hostname": "app.example", "port": 443}


def make(client: DiscueClient) -> Place:
    queue = client.new_queue(schema={"a": {"type": "string"}})
    schema = ok(client.get(f"/queues/{queue}"))["queue"]["schema_id"]
    message = client.add(queue, '{"a": "b"}')
    listener = client.new_listener(queue, URL, status="disabled")["id"]
    domain = ok(client.post("/domains", domain_body()))["domain"]["id"]
    return Place(client, queue, schema, listener, message, domain)


@pytest.fixture(scope="module")
def place(new_organization: Callable[[], DiscueClient]) -> Iterator[Place]:
    yield make(new_organization())


@pytest.mark.parametrize("resource", RESOURCES)
@pytest.mark.parametrize("access", ["read", "write"])
def test_a_scope_is_good_for_its_own_resource_only(
    place: Place, http: httpx.Client, resource: str, access: str
) -> None:
    key = place.key(http, {"resource": resource, "access": access, "targets": "*"})
    for other in (*RESOURCES, *OTHERS):
        for needed in ("read", "write"):
            allowed = other == resource and (needed == "read" or access == "write")
            for method, path, body in place.requests(other, needed):
                answer = key.request(method, path, body)
                if allowed:
                    ok(answer)
                else:
                    fail(answer, 403)


def test_writing_is_what_a_scope_means_unless_it_says_otherwise(
    place: Place, http: httpx.Client
) -> None:
    key = place.key(http, {"resource": "queues"})
    ok(key.put(f"/queues/{place.queue}", {}))


@pytest.mark.parametrize("targets", ["*", ["*"], [], None])
def test_no_targets_are_all(place: Place, http: httpx.Client, targets: Any) -> None:
    key = place.key(http, {"resource": "queues", "access": "read", "targets": targets})
    ok(key.get(f"/queues/{place.queue}"))
    made = ok(place.client.get("/api_keys"))["api_keys"][-1]["scopes"]
    assert made == [{"resource": "queues", "access": "read", "targets": targets or ["*"]}]


@pytest.fixture(scope="module")
def other(place: Place) -> Place:
    """Another of everything in the same organization."""
    return make(place.client)


@pytest.mark.parametrize("resource", ["queues", "schemas", "listeners", "messages"])
def test_a_queue_as_target_limits_to_that_queue(
    place: Place, other: Place, http: httpx.Client, resource: str
) -> None:
    scope = {"resource": resource, "access": "write", "targets": [place.queue]}
    key = place.key(http, scope)
    for needed in ("read", "write"):
        for method, path, body in place.requests(resource, needed):
            if place.queue in path:
                ok(key.request(method, path, body))
        for method, path, body in other.requests(resource, needed):
            if other.queue in path:
                fail(key.request(method, path, body), 403)
    fail(key.get(f"/queues/{place.message}/messages"), 404)


def test_a_listener_as_target_limits_to_that_listener(
    place: Place, other: Place, http: httpx.Client
) -> None:
    second = place.client.new_listener(place.queue, URL)["id"]
    key = place.key(http, {"resource": "listeners", "targets": [place.listener]})
    base = f"/queues/{place.queue}/listeners"
    ok(key.get(f"{base}/{place.listener}"))
    ok(key.put(f"{base}/{place.listener}", {}))
    fail(key.get(f"{base}/{second}"), 403)
    fail(key.delete(f"{base}/{second}"), 403)
    fail(key.post(base, listener_body()), 403)
    fail(key.get(f"/queues/{other.queue}/listeners/{other.listener}"), 403)
    assert [each["id"] for each in ok(key.get("/listeners"))["listeners"]] == [place.listener]


def test_a_domain_as_target_limits_to_that_domain(
    place: Place, other: Place, http: httpx.Client
) -> None:
    key = place.key(http, {"resource": "domains", "targets": [place.domain]})
    ok(key.get(f"/domains/{place.domain}"))
    ok(key.put(f"/domains/{place.domain}", {}))
    for method in ("GET", "DELETE"):
        fail(key.request(method, f"/domains/{other.domain}"), 403)
    assert [each["id"] for each in ok(key.get("/domains"))["domains"]] == [place.domain]


@pytest.mark.parametrize("target", ["_Tzrg1O3jk4_FZTAEThNq", "zzzzzzzzzzzzzzzzzzzzz"])
def test_the_target_of_nothing_is_no_target_of_everything(
    place: Place, http: httpx.Client, target: str
) -> None:
    key = place.key(http, {"resource": "queues", "access": "read", "targets": [target]})
    fail(key.get(f"/queues/{place.queue}"), 403)
    assert ok(key.get("/queues"))["queues"] == []
    fail(key.get(f"/queues/{target}"), 404)
