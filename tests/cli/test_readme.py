"""What the documentation tells a stranger to paste works as it is printed."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.command import SECONDS_MAX, clean_environ
from tests.server import Server

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
SPARK_SECONDS_MAX = 240


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", (ROOT / page).read_text(), re.M | re.S)


@pytest.fixture
def place(fresh_server: Server, tmp_path: Path) -> Iterator[Path]:
    """A directory in which a server's data are where `make run` would have put them."""
    (tmp_path / "courier-data").symlink_to(fresh_server.data)
    yield tmp_path


def run(place: Path, *command: str, seconds_max: float = SECONDS_MAX) -> str:
    """What the command prints; it must succeed, and reach the server without a proxy."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command,
        cwd=place,
        env={**clean_environ(), "PATH": path, "NO_PROXY": "*", "no_proxy": "*"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=seconds_max,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def shell(place: Path, *pasted: str, seconds_max: float = SECONDS_MAX) -> str:
    command = ["bash", "-e", "-u", "-o", "pipefail", "-c", "\n".join(pasted)]
    return run(place, *command, seconds_max=seconds_max)


def test_the_first_session_of_the_readme(fresh_server: Server, place: Path) -> None:
    two_commands, command, cloudflare, wrangler, anypoint, discue, _ = blocks("README.md", "sh")
    assert two_commands.startswith("make run")  # as the fixture has done
    assert "npx wrangler" in wrangler  # tests/outside runs it, from a folder of its own
    assert '--push-networks 127.0.0.0/8"' in (ROOT / "README.md").read_text()
    fresh_server.args = ["--push-networks", "127.0.0.0/8"]
    fresh_server.restart()
    said = shell(place, command, cloudflare, anypoint, discue)
    assert "created queue 'orders'" in said
    assert '"backlog_count":1' in said
    assert '"messageId":"order-3","status":"successful"' in said
    assert '"properties":{"country":"NL"},"body":"three"' in said
    assert '"signing_secret":"whsec_' in said
    assert '"message":{"id":' in said


@pytest.mark.spark
def test_the_lake_of_the_readme(place: Path) -> None:
    *_, pasted = blocks("README.md", "sh")
    _, first, *_ = blocks("README.md", "sh")
    # `make run` would have had it in the lake by now.
    said = shell(place, first, "courier pipeline run --once", pasted, seconds_max=SPARK_SECONDS_MAX)
    assert "orders  acked    1" in said
    assert "report.html: 1 message published" in said
    assert "1 message" in said.partition("report.html")[2]
    assert "Everything adds up" in (place / "report.html").read_text()


def test_the_python_clients_of_the_readme(place: Path) -> None:
    shell(place, "courier queue create orders")
    cloudflare, anypoint = blocks("README.md", "python")
    assert "queue_name='orders'" in run(place, sys.executable, "-c", cloudflare)
    assert "Destination(orders, queue)" in run(place, sys.executable, "-c", anypoint)


def test_how_the_command_line_gets_a_fifo_queue(place: Path) -> None:
    [pasted] = blocks("docs/cli.md", "sh")
    said = shell(place, pasted, "courier publish payments a", "courier pull payments --json")
    assert '"queueId":"payments","fifo":true' in said
    assert "updated queue 'payments'" in said
    assert '"body": "a"' in said


def test_how_the_encryption_key_is_changed(fresh_server: Server, place: Path) -> None:
    _, pasted = blocks("docs/operations.md", "sh")
    old = (fresh_server.data / "encryption.key").read_text().strip()
    shell(place, pasted)
    new, *others = (fresh_server.data / "encryption.key").read_text().strip().split(",")
    assert (others, len(new)) == ([old], 44)
    fresh_server.restart()
    said = shell(place, *blocks("docs/cli.md", "sh"), "courier publish payments a")
    assert "updated queue 'payments'" in said
