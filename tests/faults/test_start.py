"""Starts that cannot go well end with one sentence and touch nothing."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.account import bodies, create_queue, publish, pull, result
from tests.server import Server, free_port

pytestmark = pytest.mark.slow


def failed_start(data: Path, port: int) -> str:
    """What a server that refuses to start says: one sentence, and no traceback."""
    ran = subprocess.run(
        [
            *(sys.executable, "-m", "courier", "serve"),
            *("--host", "127.0.0.1", "--port", str(port), "--data", str(data)),
        ],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert ran.returncode != 0
    said = (ran.stdout + ran.stderr).strip()
    assert "Traceback" not in said, said
    assert said and len(said.splitlines()) == 1, said
    return said


def test_second_server_on_the_same_data_refuses_to_start(fresh_server: Server) -> None:
    with fresh_server.client() as client:
        path = create_queue(client)
        publish(client, path, "mine")
        said = failed_start(fresh_server.data, free_port())
        assert str(fresh_server.data) in said
        assert bodies(pull(client, path)) == ["mine"]


def test_data_is_free_again_after_a_kill(fresh_server: Server) -> None:
    """A lock that outlives its process would need an operator."""
    for _ in range(2):
        fresh_server.kill()
        fresh_server.start()
    with fresh_server.client() as client:
        assert result(client.get("/queues")) == []


def test_server_on_a_port_in_use_refuses_to_start(fresh_server: Server, tmp_path: Path) -> None:
    said = failed_start(tmp_path / "other", fresh_server.port)
    assert str(fresh_server.port) in said


def test_server_whose_data_directory_is_a_file_refuses_to_start(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("not a directory")
    assert str(file) in failed_start(file, free_port())
    assert file.read_text() == "not a directory"


def test_server_on_a_store_it_cannot_read_refuses_to_start_and_leaves_it_alone(
    fresh_server: Server,
) -> None:
    fresh_server.stop()
    stores = [
        path
        for path in fresh_server.data.rglob("*")
        if path.is_file() and path.read_bytes().startswith(b"SQLite format 3")
    ]
    assert stores
    for store in stores:
        store.write_bytes(b"this is no database " * 1_000)
    failed_start(fresh_server.data, free_port())
    for store in stores:
        assert store.read_bytes() == b"this is no database " * 1_000
