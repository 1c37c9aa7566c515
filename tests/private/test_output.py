"""What a server prints, logs and shows of itself holds no secret, unless a person looks at it."""

import base64
import os
import pty
import select
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from courier import config
from tests.cli.command import Command, clean_environ
from tests.clients.anypoint import AnypointClient, environment_client
from tests.clients.cloudflare import CloudflareClient
from tests.private.looking import holding, secrets_of
from tests.server import Server, free_port

KEY = base64.b64encode(b"an encryption key of 32 bytes ..").decode()
SHOWN_S_MAX = 30.0
SECRET_SETTINGS = [setting for setting in config.settings() if setting.spec.secret]


def story(server: Server) -> list[str]:
    """Some of everything, refusals too; the secrets that were made on the way."""
    made = [*secrets_of(server.credentials)]
    courier = Command("--data", str(server.data))
    site, discue = server.credentials["anypoint"], server.credentials["discue"]
    with server.client() as http, environment_client(site) as environment:
        made.append(environment.headers["Authorization"].removeprefix("Bearer "))
        queue = CloudflareClient(http, "orders")
        queue.publish("hello")
        leases = [each.lease for each in queue.pull(1)]
        assert queue.ack(leases) == 1
        made += leases
        AnypointClient(environment, site, "orders").publish("hello")
        for wrong in ("x", made[0][:-1], made[0] + "x"):
            headers = {"Authorization": f"Bearer {wrong}", "X-API-KEY": wrong}
            assert http.get("/queues", headers=headers).status_code >= 400
        for path in ("/queues", "/queues/nowhere", "/nowhere"):
            headers = {"X-API-KEY": discue["api_key"]}
            httpx.get(discue["base_url"] + path, headers=headers, trust_env=False, verify=False)
    made.append(courier("key", "create", "robot", "--scope", "read", "--json").json["token"])
    courier("worker", "add", "mill", "http://127.0.0.1:1/")
    made.append(courier("worker", "secret", "mill").out.strip())
    courier("tenant", "create", "acme")
    other = Command("--data", str(server.data), "--tenant", "acme")("credentials", "--json").json
    made += secrets_of(other)
    return made


def test_neither_output_nor_logs_of_a_whole_story_hold_a_secret(tmp_path: Path) -> None:
    loud = ["--log-level", "debug", "--log-requests"]
    env = {"COURIER_ENCRYPTION_KEYS": KEY}
    with Server(tmp_path, args=loud, env=env).start() as server:
        made = story(server)
        server.kill()
        server.start()
        server.restart()
        seen = server.log()
        assert "credentials.json" in seen and '"event":"request"' in seen
        assert len(made) > 12
        assert [secret for secret in [*made, KEY] if secret in seen] == []
        assert "Authorization" not in seen
        # Nor do the database's files, as bytes.
        files = [*server.data.glob("courier.db*")]
        assert len(files) > 2
        assert [secret for secret in [*made, KEY] if holding(secret.encode(), files)] == []
        arguments = Path(f"/proc/{server.pid}/cmdline").read_text()
        assert [secret for secret in [*made, KEY] if secret in arguments] == []


def test_a_person_at_a_terminal_gets_lines_to_paste(tmp_path: Path) -> None:
    terminal, given = pty.openpty()
    command = ["serve", "--data", str(tmp_path / "data"), "--port", str(free_port())]
    process = subprocess.Popen(
        [sys.executable, "-m", "courier", *command],
        stdout=given,
        stderr=subprocess.DEVNULL,
        env=clean_environ(),
    )
    os.close(given)
    try:
        seen, until_s = "", time.monotonic() + SHOWN_S_MAX
        while "greetings" not in seen and time.monotonic() < until_s:
            if select.select([terminal], [], [], 0.1)[0]:
                with suppress(OSError):
                    seen += os.read(terminal, 65_536).decode()
    finally:
        process.terminate()
        process.wait()
        os.close(terminal)
    assert seen.count("curl ") == 3
    assert "Authorization: Bearer " in seen


@pytest.mark.parametrize("setting", SECRET_SETTINGS, ids=lambda setting: setting.name)
def test_a_secret_setting_is_masked_and_has_no_flag(setting: config.Setting) -> None:
    assert KEY not in repr(config.load({}, environ={f"COURIER_{setting.name.upper()}": KEY}))
    courier = Command()
    environ = {f"COURIER_{setting.name.upper()}": KEY}
    for shape in ((), ("--json",)):
        ran = courier("config", *shape, environ=environ)
        assert KEY not in ran.out + ran.err
        assert "********" in ran.out
    for command in ("serve", "up", "config"):
        for flag in ((f"{setting.flag}={KEY}",), (setting.flag, KEY)):
            ran = courier.attempt(command, *flag)
            assert ran.status == 2
            assert KEY not in ran.out + ran.err
            assert f"COURIER_{setting.name.upper()}" in ran.err
        assert setting.flag not in courier(command, "--help").out


@pytest.mark.parametrize("bad", [KEY[:-4], f"{KEY},{KEY[1:]}", KEY + "!"])
def test_a_key_that_cannot_be_used_is_not_shown(tmp_path: Path, bad: str) -> None:
    environ = {"COURIER_ENCRYPTION_KEYS": bad}
    ran = Command().attempt("serve", "--data", str(tmp_path / "data"), environ=environ)
    assert ran.status == 1
    assert ran.err.count("\n") == 1
    assert KEY[:20] not in ran.out + ran.err
