"""The journal says who was not let in, and from where administrative acts came."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.server import Server

ADDRESS = "127.0.3.7"
GRANT = {"grant_type": "client_credentials"}
SETTINGS = ("_created", "_updated", "_deleted")


class Desk:
    """A server, spoken to from an address of the test's own."""

    def __init__(self, server: Server) -> None:
        self.server = server
        transport = httpx.HTTPTransport(local_address=ADDRESS, verify=False)
        self.http = httpx.Client(base_url=server.url, transport=transport, timeout=30.0)
        self.made = server.credentials
        self.admin = {"Authorization": f"Bearer {self.made['admin']['token']}"}

    def new_key(self, name: str, **fields: Any) -> tuple[str, str]:
        body = {"name": name, "scopes": ["read"], **fields}
        made = self.http.post("/courier/v1/tenants/default/keys", json=body, headers=self.admin)
        assert made.status_code == 200, made.text
        return made.json()["key"]["id"], made.json()["token"]

    def events(self) -> list[dict[str, Any]]:
        page = self.http.get("/journal", params={"limit": 10_000}, headers=self.admin)
        return [json.loads(line) for line in page.text.splitlines()]

    def failures(self) -> dict[tuple[str, str, str], int]:
        """Dialect, reason and key -> how often, once the server has written it down."""
        self.server.restart()
        found = [event for event in self.events() if event["kind"] == "signin_failed"]
        assert all(event["detail"]["address"] == ADDRESS for event in found)
        return {
            (event["dialect"], event["detail"]["reason"], event["actor"]): event["detail"]["count"]
            for event in found
        }


@pytest.fixture
def desk(fresh_server: Server) -> Iterator[Desk]:
    desk = Desk(fresh_server)
    yield desk
    desk.http.close()


def test_every_reason_is_told_with_key_and_address_and_no_secret(desk: Desk) -> None:
    http, made = desk.http, desk.made
    good = made["cloudflare"]["api_token"]
    wrong = good[:-6] + ("aaaaaa" if good[-6:] != "aaaaaa" else "bbbbbb")
    stranger = "f" * len(good)
    expired_id, expired = desk.new_key("short", expires_in_seconds=1)
    read_id, read = desk.new_key("reader")
    account = f"/client/v4/accounts/{made['cloudflare']['account_id']}"
    first = next(
        key["id"]
        for key in http.get("/courier/v1/tenants/default/keys", headers=desk.admin).json()["keys"]
        if key["name"] == "first"
    )
    for _ in range(3):
        http.get(f"{account}/queues", headers={"Authorization": f"Bearer {wrong}"})
    http.get(f"{account}/queues", headers={"Authorization": f"Bearer {stranger}"})
    http.get(f"{account}/queues", headers={"Authorization": "Basic x"})
    http.get(f"{account}/queues")  # shows nothing, and so guesses nothing
    refused = http.post(
        f"{account}/queues", json={"queue_name": "q"}, headers={"Authorization": f"Bearer {read}"}
    )
    assert refused.status_code == 403
    http.get("/v1/queues", headers={"X-API-KEY": wrong})
    http.get("/journal", headers={"Authorization": f"Bearer {stranger}"})
    app = {"client_id": made["anypoint"]["client_id"], "client_secret": stranger, **GRANT}
    http.post("/api/v1/authorize", json=app)
    http.get("/accounts/api/me", headers={"Authorization": f"Bearer {stranger}"})
    while http.get("/v1/queues", headers={"X-API-KEY": expired}).status_code == 200:
        pass
    metrics = http.get("/metrics", headers=desk.admin).text
    assert 'courier_signin_failures_total{reason="wrong_secret"} 4.0' in metrics

    assert desk.failures() == {
        ("cloudflare", "wrong_secret", first): 3,
        ("cloudflare", "unknown_key", ""): 1,
        ("cloudflare", "malformed", ""): 1,
        ("cloudflare", "scope", read_id): 1,
        ("discue", "wrong_secret", first): 1,
        ("discue", "expired", expired_id): 1,
        ("courier", "unknown_key", ""): 1,
        ("anypoint", "unknown_key", ""): 1,
        ("anypoint", "unknown_session", ""): 1,
    }
    told = json.dumps(desk.events()) + desk.server.log()
    for secret in (wrong, stranger, expired, read):
        assert secret not in told
    tenants = {event["tenant"] for event in desk.events() if event["actor"] == first}
    assert tenants == {made["cloudflare"]["account_id"]}, "its own tenant sees it too"


def test_an_address_that_is_locked_out_is_told(desk: Desk) -> None:
    for _ in range(12):
        desk.http.get("/v1/queues", headers={"X-API-KEY": "f" * 64})
    found = desk.failures()
    assert found["discue", "unknown_key", ""] == 10
    assert found["discue", "locked_out", ""] == 2


def test_changes_of_settings_tell_the_address_in_every_dialect(desk: Desk) -> None:
    http, made = desk.http, desk.made
    anypoint = made["anypoint"]
    token = http.post("/accounts/login", json=anypoint["user"]).json()["access_token"]
    region = (
        f"/mq/admin/api/v1/organizations/{anypoint['organization_id']}/environments"
        f"/{anypoint['environment_id']}/regions/{anypoint['region']}"
    )
    account = f"/client/v4/accounts/{made['cloudflare']['account_id']}"
    bearer = {"Authorization": f"Bearer {made['cloudflare']['api_token']}"}
    for answer in (
        http.post(f"{account}/queues", json={"queue_name": "a"}, headers=bearer),
        http.put(
            f"{region}/destinations/queues/b",
            json={},
            headers={"Authorization": f"Bearer {token}"},
        ),
        http.post(
            "/v1/queues",
            json={"name": "from-discue"},
            headers={"X-API-KEY": made["discue"]["api_key"]},
        ),
        http.put(
            "/courier/v1/tenants/default/queues/a/frozen", json={"frozen": True}, headers=desk.admin
        ),
    ):
        assert answer.status_code == 200, answer.text
    found = [
        (event["dialect"], event["kind"], event["detail"].get("address"))
        for event in desk.events()
        if event["kind"].endswith(SETTINGS) and event["dialect"] != "broker"
    ]
    assert found == [
        ("anypoint", "session_created", ADDRESS),
        ("cloudflare", "queue_created", ADDRESS),
        ("anypoint", "queue_created", ADDRESS),
        ("discue", "queue_created", ADDRESS),
        ("courier", "queue_updated", ADDRESS),
    ]
