"""What the documentation tells a stranger to paste works as it is printed."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.pasted import ROOT, blocks, run, shell
from tests.server import Server

pytestmark = pytest.mark.slow


@pytest.fixture
def place(fresh_server: Server, tmp_path: Path) -> Iterator[Path]:
    """A directory in which a server's data are where `make run` would have put them."""
    (tmp_path / "courier-data").symlink_to(fresh_server.data)
    yield tmp_path


def test_the_first_session_of_the_readme(fresh_server: Server, place: Path) -> None:
    two_commands, command, cloudflare, wrangler, anypoint, discue, lake = blocks("README.md", "sh")
    assert two_commands.startswith("make run")  # as the fixture has done
    assert "courier lake query" in lake  # tests/cli/test_up.py runs it, where a lake is
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
    *_, pasted = blocks("docs/operations.md", "sh")
    old = (fresh_server.data / "encryption.key").read_text().strip()
    shell(place, pasted)
    new, *others = (fresh_server.data / "encryption.key").read_text().strip().split(",")
    assert (others, len(new)) == ([old], 44)
    fresh_server.restart()
    said = shell(place, *blocks("docs/cli.md", "sh"), "courier publish payments a")
    assert "updated queue 'payments'" in said
