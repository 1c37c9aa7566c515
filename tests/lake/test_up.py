"""`courier up`: server and pipeline beside each other, whatever happens to either."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cli.command import Command, clean_environ, sigint_heard
from tests.cli.pasted import blocks, shell
from tests.private.looking import open_to_others, secrets_of
from tests.server import free_port

pytestmark = pytest.mark.timeout(900)

# Spark starts in five seconds on a machine that has nothing else to do.
WAIT_S_MAX = 280.0
# To look costs what others on the machine would have had.
POLL_S = 0.25
AT_ONCE_S_MAX = 10.0
WITHOUT_PACKAGE = """
import sys
sys.modules["pyspark"] = None
from courier.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def until(met: Callable[[], Any], what: str) -> Any:
    """Wait until `met` is true, and return what it is."""
    deadline = time.monotonic() + WAIT_S_MAX
    while not (found := met()):
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(POLL_S)
    return found


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] not in "ZX"
    except OSError:
        return False


def name(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def children(pid: int) -> list[int]:
    with suppress(OSError):
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def descendants(pid: int) -> list[int]:
    return [each for child in children(pid) for each in (child, *descendants(child))]


class Up:
    """A running `courier up`, and what it has started."""

    def __init__(self, folder: Path) -> None:
        self.url = f"http://127.0.0.1:{free_port()}"
        # Where `make run` puts it, so that what is pasted in this folder finds it.
        self.data = folder / "courier-data"
        self._log = folder / "up.log"
        port = self.url.rpartition(":")[2]
        args = ["--port", port, "--data", str(self.data), "--every", "3s"]
        with self._log.open("ab") as log, sigint_heard():
            self.process = subprocess.Popen(
                [sys.executable, "-m", "courier", "up", *args],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=clean_environ(),
            )

    def log(self) -> str:
        return self._log.read_text()

    def child(self, word: str) -> int:
        """The process that runs this command, 0 for none."""
        for pid in children(self.process.pid):
            with suppress(OSError):
                if word in Path(f"/proc/{pid}/cmdline").read_text().split("\0") and alive(pid):
                    return pid
        return 0

    def ready(self) -> bool:
        try:
            return self._get("/ready").status_code == 200
        except httpx.HTTPError:
            return False

    def archived(self) -> int:
        """The last offset that is in every table but `audit`, which comes later."""
        from courier.lake import archive
        from courier.lake.catalog import Lake

        lake = Lake(str(self.data / "lake"))
        return min(archive.last(table) for table in lake.tables if table != lake.audit)

    def last(self) -> int:
        """The journal's last offset."""
        token = json.loads((self.data / "credentials.json").read_text())["admin"]["token"]
        return int(self._get("/journal/head", Authorization=f"Bearer {token}").json()["last"])

    def _get(self, path: str, **headers: str) -> httpx.Response:
        # Where nothing is verified, no certificates are loaded.
        return httpx.get(self.url + path, headers=headers, trust_env=False, verify=False)


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    up = Up(tmp_path)
    started: list[int] = []
    try:
        yield up
        started = [up.process.pid, *descendants(up.process.pid)]
    finally:
        up.process.kill()
        up.process.wait()
        for pid in started:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    assert "Traceback" not in up.log()


def test_both_run_from_nothing_come_back_and_end_together(up: Up, tmp_path: Path) -> None:
    until(lambda: "courier lake query" in up.log(), f"the first data\n{up.log()}")
    # What it printed can be pasted.
    [line] = [line for line in up.log().splitlines() if line.strip().startswith("courier lake ")]
    shown = Command()(*shlex.split(line)[1:])
    assert "tenant_created" in shown.out
    assert str(up.data / "lake") in line
    # What Spark has to say is in a file.
    assert (up.data / "lake" / "_logs" / "spark.log").exists()

    server = up.child("serve")
    os.kill(server, signal.SIGKILL)
    until(lambda: up.child("serve") not in (0, server), "another server")
    until(up.ready, "the server to be ready again")

    pipeline = up.child("pipeline")
    assert pipeline, "a pipeline outlives its server"
    belongings = descendants(pipeline)
    os.kill(pipeline, signal.SIGKILL)
    until(lambda: not any(map(alive, belongings)), "what the pipeline started to end")
    until(lambda: up.child("pipeline") not in (0, pipeline), "another pipeline")

    # What the pages tell a stranger to paste meets both of them at work.
    _, first = blocks("README.md", "sh")
    asked, _ = blocks("docs/spark.md", "sh")
    shell(tmp_path, first)
    last = up.last()
    until(lambda: up.archived() >= last, f"{last} events in the lake")
    said = shell(tmp_path, asked, seconds_max=WAIT_S_MAX)
    assert re.search(r"^orders +acked +1 ", said, re.MULTILINE)
    assert "report.html: 1 message published" in said
    assert "1 message" in said.partition("report.html")[2]
    assert "orders" in (tmp_path / "report.html").read_text()

    again = [line for line in up.log().splitlines() if "again in" in line]
    assert [" ".join(line.split()[:3]) for line in again] == [
        "the server ended",
        "the pipeline ended",
    ]

    started = [up.process.pid, *descendants(up.process.pid)]
    assert len(started) >= 4
    # Nothing of this is for others on the machine to see: output, arguments, files.
    arguments = [Path(f"/proc/{pid}/cmdline").read_text() for pid in started if alive(pid)]
    secrets = secrets_of(json.loads((up.data / "credentials.json").read_text()))
    assert not [secret for secret in secrets if secret in "".join([up.log(), *arguments])]
    assert open_to_others(up.data) == []
    # As systemd does, to every process; the server outlasts the pipeline, and all is in the lake.
    for pid in started:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    assert up.process.wait(WAIT_S_MAX) == 0
    until(lambda: not any(map(alive, started)), "everything to end")
    later = up.log().rpartition(again[-1])[2]
    assert "again in" not in later and "waiting for it" not in later


def test_nothing_stays_behind_when_it_is_killed(up: Up) -> None:
    until(lambda: len(descendants(up.process.pid)) >= 3, "server, pipeline and Spark")
    started = descendants(up.process.pid)
    up.process.kill()
    up.process.wait()
    until(lambda: not any(map(alive, started)), "everything to end")


def test_an_interrupt_ends_it_at_any_time(up: Up) -> None:
    until(lambda: up.child("serve"), "the server")
    up.process.send_signal(signal.SIGINT)
    assert up.process.wait(WAIT_S_MAX) == 0


def test_it_can_be_ended_while_java_starts(up: Up) -> None:
    until(lambda: "java" in map(name, descendants(up.process.pid)), "Java")
    started = descendants(up.process.pid)
    for pid in (up.process.pid, *started):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    assert up.process.wait(WAIT_S_MAX) == 0
    until(lambda: not any(map(alive, started)), "everything to end")
    assert "again in" not in up.log()


def test_a_second_signal_ends_it_at_once(up: Up) -> None:
    until(lambda: "java" in map(name, descendants(up.process.pid)), "Java")
    started = descendants(up.process.pid)
    for _ in range(2):
        up.process.send_signal(signal.SIGINT)
    assert up.process.wait(AT_ONCE_S_MAX) == 0
    until(lambda: not any(map(alive, started)), "everything to end")


def test_a_server_that_cannot_start_is_not_tried_again(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    ran = Command().attempt("up", "--port", "0", "--data", str(tmp_path / "file" / "data"))
    assert ran.status == 1
    assert "the server did not start" in ran.err
    assert "again" not in ran.out


def test_a_wrong_setting_is_told_before_anything_starts(tmp_path: Path) -> None:
    ran = Command().attempt("up", "--port", "x", "--data", str(tmp_path / "data"))
    assert ran.status == 2
    assert "port" in ran.err
    assert not (tmp_path / "data").exists()


def test_without_the_packages_of_the_lake_nothing_starts(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", WITHOUT_PACKAGE, "up", "--data", str(tmp_path / "data")],
        capture_output=True,
        timeout=60,
        env=clean_environ(),
    )
    assert ran.returncode == 2
    assert b"courier-mq[spark]" in ran.stderr
    assert not (tmp_path / "data").exists()
