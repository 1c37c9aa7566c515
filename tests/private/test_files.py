"""Whatever the umask, and whatever was there before: files are for their owner alone."""

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import pytest

from tests.cli.command import Command, clean_environ
from tests.clients.cloudflare import CloudflareClient
from tests.private.looking import open_to_others
from tests.server import Server


@contextmanager
def umask(mode: int) -> Iterator[None]:
    before = os.umask(mode)
    try:
        yield
    finally:
        os.umask(before)


def use(server: Server) -> None:
    """Something of everything that the server writes."""
    courier = Command("--data", str(server.data))
    courier("tenant", "create", "acme")
    with server.client() as http:
        queue = CloudflareClient(http, "orders")
        queue.publish_batch([f"{n}" * 1_000 for n in range(100)])
        queue.pull(10)


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
def test_what_the_server_writes_is_for_its_owner_alone(tmp_path: Path, mask: int) -> None:
    with umask(mask):
        server = Server(tmp_path).start()
    with server:
        use(server)
        # With its log, its lock and what the log's readers share.
        names = {path.name for path in server.data.iterdir()}
        assert {"courier.db", "courier.db-wal", "courier.db-shm", "courier.db.lock"} <= names
        assert {"encryption.key", "credentials.json", "credentials.acme.json"} <= names
        assert open_to_others(server.data) == []
        server.kill()
        with umask(mask):
            server.start()
        assert open_to_others(server.data) == []
        server.stop()
        assert open_to_others(server.data) == []


def test_files_stay_private_when_the_database_is_written_again(tmp_path: Path) -> None:
    with umask(0), Server(tmp_path).start() as server:
        use(server)
        server.stop()
        db = apsw.Connection(str(server.data / "courier.db"))
        db.execute("VACUUM")
        db.close()
        server.start()
        assert open_to_others(server.data) == []


def test_what_was_open_to_others_is_closed_at_the_start_and_said_in_one_line(
    tmp_path: Path,
) -> None:
    with Server(tmp_path).start() as server:
        use(server)
        assert "files_tightened" not in server.log()
        server.kill()
        paths = [server.data, *server.data.iterdir()]
        for path in paths:
            path.chmod(0o755 if path.is_dir() else 0o666)
        server.start()
        assert open_to_others(server.data) == []
        [line] = [line for line in server.log().splitlines() if "files_tightened" in line]
        assert f'"count":{len(paths)}' in line
        server.restart()
        assert server.log().count("files_tightened") == 1


def test_what_others_keep_in_the_directory_stays_as_it_is(tmp_path: Path) -> None:
    server = Server(tmp_path)
    server.data.mkdir()
    script, inside = server.data / "script.sh", server.data / "project" / "code"
    inside.parent.mkdir(mode=0o755)
    for path in (script, inside):
        path.touch()
        path.chmod(0o755)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.touch()
    elsewhere.chmod(0o644)
    (server.data / "credentials.linked.json").symlink_to(elsewhere)
    with server.start():
        assert stat.S_IMODE(server.data.stat().st_mode) == 0o700
        for path, mode in ((script, 0o755), (inside, 0o755), (elsewhere, 0o644)):
            assert stat.S_IMODE(path.stat().st_mode) == mode


def test_a_directory_that_all_may_share_is_left_to_them(tmp_path: Path) -> None:
    server = Server(tmp_path)
    server.data.mkdir()
    server.data.chmod(0o1777)
    with server.start():
        assert stat.S_IMODE(server.data.stat().st_mode) == 0o1777
        found = {*open_to_others(server.data)}
        assert found == {".: 1777"}


def test_processes_that_a_command_starts_write_for_their_owner_alone(tmp_path: Path) -> None:
    """As the pipeline starts Java."""
    script = (
        "import subprocess, sys\n"
        "from courier.cli.main import main\n"
        "main(['config'])\n"
        "subprocess.run(['touch', sys.argv[1]], check=True)\n"
    )
    written = tmp_path / "written"
    with umask(0):
        command = [sys.executable, "-c", script, str(written)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=clean_environ())
    assert stat.S_IMODE(written.stat().st_mode) == 0o600


def test_directories_above_the_data_are_private_when_they_are_made(tmp_path: Path) -> None:
    server = Server(tmp_path)
    server.data = tmp_path / "a" / "b" / "data"
    with umask(0):
        server.start()
    with server:
        assert open_to_others(tmp_path / "a") == []
