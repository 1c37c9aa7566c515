"""`courier tenant`, `courier key`, and acting for a tenant."""

from pathlib import Path

import httpx
import pytest

from tests.cli.command import Command
from tests.clients.anypoint import environment_client
from tests.server import Server

pytestmark = pytest.mark.slow


@pytest.fixture
def tenant(courier: Command, queue_name: str) -> str:
    """A tenant of the test's own."""
    name = f"t{queue_name}"
    courier("tenant", "create", name)
    return name


def test_a_created_tenant_is_listed(courier: Command, tenant: str) -> None:
    assert tenant in [row[0] for row in courier("tenant", "list").rows]
    assert {"default", tenant} <= {one["name"] for one in courier("tenant", "list", "--json").json}


def test_credentials_of_a_tenant_are_printed_and_kept(courier: Command, queue_name: str) -> None:
    made = courier("tenant", "create", queue_name, "--json").json
    assert made["tenant"]["name"] == queue_name
    kept = courier("credentials", "--tenant", queue_name, "--json").json
    assert kept == made["credentials"]


def test_credentials_for_every_dialect_are_shown_value_by_value(
    server: Server, courier: Command
) -> None:
    shown = dict(courier("credentials").rows)
    anypoint = server.credentials["anypoint"]
    assert shown["cloudflare.api_token"] == server.credentials["cloudflare"]["api_token"]
    assert shown["anypoint.environment_id"] == anypoint["environment_id"]
    assert shown["anypoint.connected_app.client_id"] == anypoint["connected_app"]["client_id"]
    assert shown["anypoint.user.password"] == anypoint["user"]["password"]


def test_a_tenant_has_an_organization_of_its_own_or_shares_one(
    server: Server, courier: Command, queue_name: str
) -> None:
    first = server.credentials["anypoint"]
    alone = courier("tenant", "create", f"{queue_name}-alone", "--json").json["credentials"]
    beside = courier(
        *("tenant", "create", f"{queue_name}-beside", "--organization-of", "default", "--json")
    ).json["credentials"]
    assert alone["anypoint"]["organization_id"] != first["organization_id"]
    assert beside["anypoint"]["organization_id"] == first["organization_id"]
    environments = {made["anypoint"]["environment_id"] for made in (alone, beside)}
    assert len(environments | {first["environment_id"]}) == 3


def test_the_organization_of_an_unknown_tenant_is_refused(
    courier: Command, queue_name: str
) -> None:
    line = courier.fails(1, "tenant", "create", queue_name, "--organization-of", f"{queue_name}-no")
    assert "does not exist" in line
    assert queue_name not in [row[0] for row in courier("tenant", "list").rows]


def test_a_tenant_has_queues_of_its_own(courier: Command, tenant: str, queue_name: str) -> None:
    courier("queue", "create", queue_name, "--tenant", tenant)
    courier("publish", queue_name, "x", "--tenant", tenant)
    assert [row[0] for row in courier("queue", "list", "--tenant", tenant).rows] == [queue_name]
    assert "does not exist" in courier.fails(1, "queue", "show", queue_name)


def test_rules_of_the_operator_reach_the_queues_of_a_tenant(
    courier: Command, tenant: str, queue_name: str
) -> None:
    courier("queue", "create", queue_name, "--tenant", tenant)
    courier("queue", "freeze", queue_name, "--tenant", tenant)
    courier.fails(1, "publish", queue_name, "x", "--tenant", tenant)


def test_a_deleted_tenant_is_gone_with_its_key(courier: Command, tenant: str) -> None:
    courier("tenant", "delete", tenant)
    assert tenant not in [row[0] for row in courier("tenant", "list").rows]
    assert courier.attempt("queue", "list", "--tenant", tenant).status != 0


def test_a_tenant_that_does_not_exist_is_refused(courier: Command, queue_name: str) -> None:
    assert "does not exist" in courier.fails(1, "tenant", "delete", queue_name)
    assert "no credentials for tenant" in courier.fails(
        2, "queue", "show", "x", "--tenant", queue_name
    )


def test_a_name_that_is_taken_is_refused(courier: Command, tenant: str) -> None:
    assert "already exists" in courier.fails(1, "tenant", "create", tenant)


def test_a_created_key_opens_what_its_scope_says(
    server: Server, courier: Command, tenant: str, queue_name: str
) -> None:
    courier("queue", "create", queue_name, "--tenant", tenant)
    token = courier("key", "create", "reader", "--scope", "read", "--tenant", tenant).out.strip()
    reader = Command("--url", server.url, "--token", token)
    assert [row[0] for row in reader("queue", "list").rows] == [queue_name]
    reader.fails(1, "publish", queue_name, "x")
    reader.fails(1, "tenant", "list")


def test_a_key_can_be_limited_to_a_queue(
    server: Server, courier: Command, tenant: str, queue_name: str
) -> None:
    for name in (queue_name, f"{queue_name}-other"):
        courier("queue", "create", name, "--tenant", tenant)
    token = courier(
        *("key", "create", "one", "--scope", "write", "--queue", queue_name, "--tenant", tenant)
    ).out.strip()
    writer = Command("--url", server.url, "--token", token)
    writer("publish", queue_name, "x")
    writer.fails(1, "publish", f"{queue_name}-other", "x")


def test_keys_are_listed_until_they_are_deleted(
    server: Server, courier: Command, tenant: str
) -> None:
    made = courier(
        *("key", "create", "mine", "--scope", "read", "--scope", "journal"),
        *("--expires", "1d", "--json", "--tenant", tenant),
    ).json
    rows = {row[0]: row[1:] for row in courier("key", "list", "--tenant", tenant).rows}
    name, hint = rows[made["key"]["id"]][:2]
    assert name == "mine"
    assert made["token"].startswith(hint.rstrip("."))
    assert made["token"] not in str(rows)
    courier("key", "delete", made["key"]["id"], "--tenant", tenant)
    left = courier("key", "list", "--tenant", tenant, "--json").json
    assert made["key"]["id"] not in {key["id"] for key in left}
    Command("--url", server.url, "--token", made["token"]).fails(1, "queue", "list")


def test_a_created_connected_app_may_do_what_its_scope_says(
    server: Server, courier: Command, tenant: str, queue_name: str
) -> None:
    courier("queue", "create", queue_name, "--tenant", tenant)
    app = dict(
        courier(
            *("key", "create", "sender", "--connected-app", "--scope", "messages:publish"),
            *("--tenant", tenant),
        ).rows
    )
    place = courier("credentials", "--tenant", tenant, "--json").json["anypoint"]
    login = {"base_url": server.url, "connected_app": app}
    messages = (
        f"/api/v1/organizations/{place['organization_id']}"
        f"/environments/{place['environment_id']}/destinations/{queue_name}/messages"
    )
    with environment_client(login) as sender:
        assert sender.put(f"{messages}/1", json={"body": "x"}).status_code == 201
        assert sender.get(messages).status_code == 403
    assert courier("pull", queue_name, "--json", "--tenant", tenant).json[0]["body"] == "x"


def test_a_connected_app_is_listed_as_one_and_gone_when_it_is_deleted(
    server: Server, courier: Command, tenant: str
) -> None:
    made = courier(
        *("key", "create", "app", "--connected-app", "--scope", "write", "--json"),
        *("--tenant", tenant),
    ).json
    assert set(made) == {"key", "client_id", "client_secret"}
    app = {name: made[name] for name in ("client_id", "client_secret")}
    rows = {row[0]: row for row in courier("key", "list", "--tenant", tenant).rows}
    assert rows[app["client_id"]][1:4] == ["app", made["key"]["hint"], "connected_app"]
    login = {"base_url": server.url, "connected_app": app}
    with environment_client(login) as client:
        assert client.get("/accounts/api/me").status_code == 200
        courier("key", "delete", app["client_id"], "--tenant", tenant)
        assert client.get("/accounts/api/me").status_code == 401


def test_a_token_is_no_connected_app(server: Server, courier: Command, tenant: str) -> None:
    made = courier("key", "create", "k", "--scope", "write", "--json", "--tenant", tenant).json
    app = {"client_id": made["key"]["id"], "client_secret": made["token"]}
    asked = {**app, "grant_type": "client_credentials"}
    answer = httpx.post(
        f"{server.url}/accounts/api/v2/oauth2/token", json=asked, trust_env=False, verify=False
    )
    assert answer.status_code == 401


def test_the_operator_has_no_connected_apps(courier: Command) -> None:
    courier.fails(
        *(1, "key", "create", "k", "--connected-app", "--scope", "write", "--tenant", "operator")
    )


def test_keys_of_the_operator_can_be_listed(courier: Command) -> None:
    assert courier("key", "list", "--tenant", "operator").rows != []


@pytest.mark.parametrize("scope", ["everything", ""])
def test_an_unknown_scope_is_refused(courier: Command, tenant: str, scope: str) -> None:
    courier.fails(1, "key", "create", "k", "--scope", scope, "--tenant", tenant)


def test_a_key_that_does_not_exist_is_refused(courier: Command, tenant: str) -> None:
    assert "does not exist" in courier.fails(1, "key", "delete", "0" * 32, "--tenant", tenant)


def test_address_and_token_are_enough_for_a_server_elsewhere(
    server: Server, queue: str, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text(server.credentials["cloudflare"]["api_token"])
    elsewhere = Command("--url", server.url, "--token", f"@{token}", cwd=tmp_path)
    assert queue in [row[0] for row in elsewhere("queue", "list").rows]


def test_an_account_of_someone_else_is_refused(courier: Command) -> None:
    assert "[code: 10000]" in courier.fails(1, "queue", "show", "x", "--account", "0" * 32)


def test_a_wrong_token_is_refused(server: Server) -> None:
    stranger = Command("--url", server.url, "--token", "nobody")
    assert "[code: 9109]" in stranger.fails(1, "queue", "show", "x", "--account", "0" * 32)
    stranger.fails(1, "tenant", "list")


def test_a_rotated_key_has_two_good_secrets_until_the_old_one_is_ended(
    server: Server, courier: Command, tenant: str
) -> None:
    def status(token: str) -> int:
        headers = {"Authorization": f"Bearer {token}"}
        url = f"{server.url}/client/v4/user/tokens/verify"
        return httpx.get(url, headers=headers, trust_env=False, verify=False).status_code

    at = ("--tenant", tenant)
    old = courier("key", "create", "batch", "--scope", "read", *at).out.strip()
    new = courier("key", "rotate", "batch", "--overlap", "1h", *at).out.strip()
    assert old != new and [status(old), status(new)] == [200, 200]
    made = courier("key", "rotate", "batch", "--overlap", "0", "--json", *at).json
    assert made["key"]["old_secrets_until_ms"] == []
    assert [status(old), status(new), status(made["token"])] == [401, 401, 200]


def test_an_unknown_key_cannot_be_rotated(courier: Command, tenant: str) -> None:
    refused = courier.attempt("key", "rotate", "nobody", "--tenant", tenant)
    assert refused.status == 1
    assert "key 'nobody' does not exist" in refused.err


def test_a_key_for_metrics_is_made_for_the_operator(
    server: Server, courier: Command, queue_name: str
) -> None:
    made = courier("key", "create", queue_name, "--tenant", "operator", "--scope", "metrics")
    headers = {"Authorization": f"Bearer {made.out.strip()}"}
    answer = httpx.get(f"{server.url}/metrics", headers=headers, trust_env=False, verify=False)
    assert answer.status_code == 200
