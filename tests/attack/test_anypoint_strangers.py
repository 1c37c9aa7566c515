"""Environments, apps and tokens that belong to somebody else."""

from urllib.parse import quote

from tests.attack.environment import (
    Spot,
    body,
    complained,
    refused,
)
from tests.attack.peer import Client
from tests.attack.requests import (
    environment_requests,
    everything,
    message_requests,
    settings_requests,
    stats_requests,
)


def test_key_that_is_no_client_app_cannot_be_deleted_as_one(spot: Spot) -> None:
    """Users and connected apps are keys too, but not this API's."""
    own = spot.environment
    for id in (own.own["connected_app"]["client_id"], own.own["user"]["username"]):
        path = f"//mq/admin/api/v1{own.place}/clients/{quote(id, safe='')}"
        for method in ("POST", "DELETE"):
            complained(own.admin.ask(method, path), 404)
    assert own.token("/accounts/login", own.own["user"])
    assert own.token("/accounts/api/v2/oauth2/token", own.own["connected_app"])


def test_client_app_reaches_messages_only(spot: Spot) -> None:
    own = spot.environment
    before = everything(spot)
    admin = Client(own.server, own.admin.root, own.broker.token)
    for method, path, value in settings_requests(spot.queue, spot.exchange):
        complained(admin.ask(method, path, body(value)), 403)
    whole = Client(own.server, f"/mq/admin/api/v1{own.place}", own.broker.token)
    for method, path, value in environment_requests(own.own["client_id"]):
        if not path.startswith("/regions") or "destinations" in path:
            complained(whole.ask(method, path, body(value)), 403)
    stats = Client(own.server, own.stats.root, own.broker.token)
    for path in stats_requests(spot.queue, spot.exchange):
        complained(stats.ask("GET", path), 403)
    accounts = Client(own.server, "/accounts", own.broker.token)
    assert accounts.ask("GET", "/api/me").status == 403
    assert everything(spot) == before


def test_token_of_another_dialect_is_none_here_and_the_other_way_round(spot: Spot) -> None:
    own = spot.environment
    secrets = [
        own.credentials["cloudflare"]["api_token"],
        own.server.credentials["admin"]["token"],
        own.own["client_secret"],
        own.own["connected_app"]["client_secret"],
        own.own["user"]["password"],
        own.own["client_id"],
    ]
    before = everything(spot)
    for token in secrets:
        broker = Client(own.server, own.broker.root, token)
        for method, path, value in message_requests(spot.line, "m1", "l1"):
            refused(broker.ask(method, path, body(value)), 401)
        admin = Client(own.server, own.admin.root, token)
        complained(admin.ask("GET", "/destinations"), 401)
        answer = Client(own.server, "/accounts", token).ask("GET", "/api/me")
        assert (answer.status, answer.body) == (401, b"Unauthorized")
    assert everything(spot) == before
    cloudflare = f"/client/v4/accounts/{own.credentials['cloudflare']['account_id']}"
    for token in (own.broker.token, own.admin.token):
        assert Client(own.server, cloudflare, token).ask("GET", "/queues").status == 403
        assert Client(own.server, "/courier/v1", token).ask("GET", "/tenants").status in (401, 403)
        assert Client(own.server, "", token).ask("GET", "/journal").status in (401, 403)
