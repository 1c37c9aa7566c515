"""`courier serve`: what a person sees at the start, and when it cannot start."""

from pathlib import Path

import pytest

from tests.cli.command import Command
from tests.server import Server, free_port

pytestmark = pytest.mark.slow


def test_the_start_prints_the_address_and_where_the_credentials_are(fresh_server: Server) -> None:
    assert f"Courier is running on {fresh_server.url}" in fresh_server.log()
    assert f"Credentials are in {fresh_server.data / 'credentials.json'}." in fresh_server.log()


def test_any_free_port_is_taken_when_asked_for_none(tmp_path: Path, queue_name: str) -> None:
    with Command("--data", str(tmp_path)).start("serve", "--port", "0") as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b"Courier is running on http://127.0.0.1:")
        Command("--data", str(tmp_path))("queue", "create", queue_name)
        process.terminate()
        process.communicate()
    assert process.returncode == 0


def test_a_port_that_is_taken_is_told_in_one_line(server: Server, tmp_path: Path) -> None:
    courier = Command("--data", str(tmp_path / "data"))
    line = courier.fails(1, "serve", "--port", str(server.port))
    assert "already in use" in line
    assert str(server.port) in line


def test_a_store_that_another_server_uses_is_told_in_one_line(server: Server) -> None:
    courier = Command("--data", str(server.data))
    line = courier.fails(1, "serve", "--port", str(free_port()))
    assert str(server.data) in line


def test_a_data_directory_that_cannot_be_made_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    courier = Command("--data", str(tmp_path / "file"))
    assert str(tmp_path / "file") in courier.fails(1, "serve", "--port", str(free_port()))


def test_settings_of_a_file_and_of_variables_reach_the_server(
    tmp_path: Path, queue_name: str
) -> None:
    settings = tmp_path / "courier.toml"
    settings.write_text('queues_max = 1\nstore = "memory"')
    variables = {"COURIER_REQUEST_BYTES_MAX": "1KiB"}
    with Server(tmp_path, args=["--config", str(settings)], env=variables).start() as server:
        courier = Command("--data", str(server.data))
        courier("queue", "create", queue_name)
        courier.fails(1, "queue", "create", f"{queue_name}-2")
        courier.fails(1, "publish", queue_name, "x" * 1_024)
        assert not list(server.data.glob("*.db"))
