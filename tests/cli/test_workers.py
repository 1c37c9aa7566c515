"""`courier worker`."""

from pathlib import Path

import pytest

from tests.cli.command import Command
from tests.server import Server

pytestmark = pytest.mark.slow

URL = "http://127.0.0.1:9/worker"


@pytest.fixture
def script(queue_name: str) -> str:
    return f"s{queue_name}"


def test_an_added_worker_is_listed_and_its_secret_printed(courier: Command, script: str) -> None:
    secret = courier("worker", "add", script, URL).out.strip()
    assert secret.startswith("whsec_")
    rows = {row[0]: row for row in courier("worker", "list").rows}
    assert rows[script][1:3] == [URL, "record"]
    assert secret not in courier("worker", "list", "--json").out
    assert courier("worker", "secret", script).out.strip() == secret


def test_what_is_added_is_printed_as_json(courier: Command, script: str) -> None:
    made = courier("worker", "add", script, URL, "--json").json
    assert (made["worker"]["name"], made["worker"]["url"]) == (script, URL)
    listed = {one["name"]: one for one in courier("worker", "list", "--json").json}
    assert listed[script] == made["worker"]


def test_a_worker_that_is_added_again_moves_and_keeps_its_secret(
    courier: Command, script: str
) -> None:
    first = courier("worker", "add", script, URL).out
    assert courier("worker", "add", script, URL + "/2").out == first
    assert {row[0]: row[1] for row in courier("worker", "list").rows}[script] == URL + "/2"


def test_a_secret_can_be_given_or_read_from_a_file(
    courier: Command, script: str, tmp_path: Path
) -> None:
    given, filed = "whsec_" + "A" * 40, "whsec_" + "B" * 40
    assert courier("worker", "add", script, URL, "--secret", given).out.strip() == given
    file = tmp_path / "secret"
    file.write_text(filed + "\n")
    assert courier("worker", "add", script, URL, "--secret", f"@{file}").out.strip() == filed
    assert "cannot read the secret" in courier.fails(
        *(2, "worker", "add", script, URL, "--secret", f"@{tmp_path}/none")
    )
    assert "secret:" in courier.fails(1, "worker", "add", script, URL, "--secret", "word")
    assert courier("worker", "secret", script).out.strip() == filed


def test_a_removed_worker_is_gone(courier: Command, script: str) -> None:
    courier("worker", "add", script, URL)
    assert courier("worker", "remove", script).out == f"removed worker '{script}'\n"
    assert script not in [row[0] for row in courier("worker", "list").rows]
    assert "does not exist" in courier.fails(1, "worker", "remove", script)
    assert "does not exist" in courier.fails(1, "worker", "secret", script)


def test_a_tenant_has_workers_of_its_own(courier: Command, script: str) -> None:
    courier("tenant", "create", script)
    courier("worker", "add", script, URL, "--tenant", script)
    assert [row[0] for row in courier("worker", "list", "--tenant", script).rows] == [script]
    assert script not in [row[0] for row in courier("worker", "list").rows]


def test_an_address_that_cannot_be_called_is_refused(courier: Command, script: str) -> None:
    assert "url:" in courier.fails(1, "worker", "add", script, "mill")


def test_the_token_of_a_tenant_is_not_enough(server: Server, script: str) -> None:
    token = server.credentials["cloudflare"]["api_token"]
    tenant = Command("--url", server.url, "--token", token)
    tenant.fails(1, "worker", "list")
    tenant.fails(1, "worker", "add", script, URL)


def test_the_secret_of_a_worker_from_the_setting_can_be_shown(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    server = Server(tmp_path_factory.mktemp("setting"), args=["--worker-urls", f"mill={URL}"])
    server.start()
    courier = Command("--data", str(server.data))
    assert courier("worker", "list").rows == [["mill", URL, "setting", "-"]]
    secret = courier("worker", "secret", "mill").out.strip()
    assert secret.startswith("whsec_")
    assert "worker_urls" in courier.fails(1, "worker", "remove", "mill")
    server.restart()
    assert courier("worker", "secret", "mill").out.strip() == secret
    server.stop()
