"""A directory of a Courier from before the engine is refused, and nothing in it is changed."""

import shutil
from pathlib import Path

import apsw
import pytest

from tests.server import Server

EARLIER = Path(__file__).with_name("earlier.sql")


def make_earlier(data: Path, *, killed: bool) -> None:
    """Its database; of a process that was killed at once, all of it is still in the log."""
    data.mkdir()
    made = data.with_name("made")
    made.mkdir()
    db = apsw.Connection(str(made / "courier.db"))
    db.wal_autocheckpoint(0)
    db.execute("PRAGMA journal_mode = wal")
    db.execute(EARLIER.read_text())
    if not killed:
        db.close()
    for name in ("courier.db", *(("courier.db-wal",) if killed else ())):
        shutil.copyfile(made / name, data / name)
    (data / "encryption.key").write_text("bmluZXRlZW4gYnl0ZXMgYW5kIHRoaXJ0ZWVuIG1vcmU=\n")
    for path in (data, *data.iterdir()):
        path.chmod(0o700 if path.is_dir() else 0o600)


def seen(data: Path) -> dict[str, tuple[bytes, int, int]]:
    stats = {file: file.stat() for file in data.iterdir()}
    return {
        file.name: (file.read_bytes(), stat.st_mode, stat.st_mtime_ns)
        for file, stat in stats.items()
    }


@pytest.mark.parametrize("killed", [False, True])
def test_a_directory_of_before_is_refused_and_left_as_it_was(tmp_path: Path, killed: bool) -> None:
    server = Server(tmp_path)
    make_earlier(server.data, killed=killed)
    before = seen(server.data)
    server.start(ready=False)
    assert server.ended() == 1
    assert seen(server.data) == before
    last = server.log().strip().splitlines()[-1]
    assert last.startswith("courier: ") and "Traceback" not in server.log(), server.log()
    assert "written by an earlier Courier (schema 6)" in last
    assert "drained" in last and "--data" in last
    # As it says.
    server.data = tmp_path / "another"
    with server.start():
        pass


@pytest.mark.parametrize("killed", [False, True])
def test_what_was_refused_is_still_there_for_the_earlier_version(
    tmp_path: Path, killed: bool
) -> None:
    server = Server(tmp_path)
    make_earlier(server.data, killed=killed)
    server.start(ready=False)
    assert server.ended() == 1
    db = apsw.Connection(str(server.data / "courier.db"))
    assert db.execute("PRAGMA integrity_check").get == "ok"
    assert db.execute("PRAGMA user_version").get == 6
    bodies = [body for (body,) in db.execute("SELECT body FROM message ORDER BY id")]
    assert bodies == [b"one", b"two", b"three"]
    db.close()
