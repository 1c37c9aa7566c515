"""The receiver of `examples/`, beside the commands of the page about webhooks."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.command import Command
from tests.examples.test_workers import EXAMPLES
from tests.server import Server, free_port
from tests.wire.cloudflare.patience import eventually

pytestmark = pytest.mark.slow


def test_a_receiver_prints_what_is_genuine_once(fresh_server: Server, tmp_path: Path) -> None:
    fresh_server.args = ["--push-networks", "127.0.0.0/8"]
    fresh_server.restart()
    courier = Command("--data", str(fresh_server.data))
    port, output = str(free_port()), tmp_path / "output"
    courier("queue", "create", "signups")
    at = ("signups", "mailer")
    secret = courier("listener", "add", *at, f"http://127.0.0.1:{port}/signup").out.strip()
    with output.open("wb") as file:
        receiver = subprocess.Popen(
            [sys.executable, str(EXAMPLES / "webhook_receiver.py")],
            env={**os.environ, "SECRET": secret, "PORT": port},
            stdout=file,
        )
    try:
        eventually(lambda: courier.attempt("listener", "test", *at).status == 0)
        courier("publish", "signups", "hello")
        eventually(lambda: "signups hello" in output.read_text())
        forged = f"http://127.0.0.1:{port}/"
        other = ("signups", "other", forged, "--secret", f"whsec_{'A' * 32}")
        courier("listener", "add", *other)
        assert "401" in courier.attempt("listener", "test", "signups", "other").out
    finally:
        receiver.terminate()
        receiver.wait(10)
    assert output.read_text().count("hello") == 1
