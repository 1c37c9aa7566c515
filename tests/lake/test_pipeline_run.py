"""`courier pipeline run` as its users see it: few lines, an exit status, and it goes on."""

import os
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from courier.lake import archive
from courier.lake.catalog import Lake
from tests.cli.command import Command
from tests.clients.cloudflare import CloudflareClient
from tests.faults.disk import SmallDisk, may_mount
from tests.lake.cluster import cluster
from tests.lake.cluster import settings as settings_of
from tests.server import Server

# Spark takes its time, and so do those who share the machine.
CHANGE_S_MAX = 600.0
POLL_S = 0.1
LINES_MAX = 12


def _wait(true: Callable[[], bool], otherwise: Callable[[], str]) -> None:
    deadline_s = time.monotonic() + CHANGE_S_MAX
    while not true():
        assert time.monotonic() < deadline_s, otherwise()
        time.sleep(POLL_S)


def _upto(root: Path) -> int:
    return archive.last(Lake(str(root)).events)


class Running:
    """A pipeline that runs until it is told to end."""

    def __init__(self, process: subprocess.Popen[bytes], errors: Path) -> None:
        self.process = process
        self._errors = errors

    def err(self) -> str:
        return self._errors.read_text()


@contextmanager
def _running(server: Server, root: Path, errors: Path) -> Iterator[Running]:
    command = [sys.executable, "-m", "courier", "pipeline", "run", "--every", "500ms"]
    with (
        errors.open("wb") as err,
        subprocess.Popen(
            [*command, "--lake", str(root), "--data", str(server.data), "--master", "local[2]"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=err,
        ) as process,
    ):
        try:
            yield Running(process, errors)
        finally:
            process.kill()


@pytest.mark.timeout(1800)
def test_it_waits_for_its_broker_says_little_and_ends_in_order(tmp_path: Path) -> None:
    root = tmp_path / "lake"
    with Server(tmp_path).start() as server:
        with server.client() as http:
            CloudflareClient(http, "work").publish("one")
        with _running(server, root, tmp_path / "err") as running:
            _wait(lambda: root.exists() and _upto(root) > 0, running.err)
            first = _upto(root)
            # Another one is refused while this one runs.
            command = Command("--data", str(server.data), "--lake", str(root))
            refused = command.attempt("pipeline", "run", "--once")
            assert refused.status == 1
            assert refused.err == (
                f"courier: another pipeline is at work on the lake {root}: "
                f"process {running.process.pid}\n"
            )
            server.kill()
            _wait(lambda: "waiting for it" in running.err(), running.err)
            server.start()
            with server.client() as http:
                found = http.get("/queues", params={"name": "work"}).json()["result"]
                sent = {"body": "two", "content_type": "text"}
                http.post(f"/queues/{found[0]['queue_id']}/messages", json=sent).raise_for_status()
            _wait(lambda: _upto(root) > first, running.err)
            assert "is there again" in running.err()
            running.process.send_signal(signal.SIGTERM)
            assert running.process.wait(CHANGE_S_MAX) == 0, running.err()
        lines = running.err().splitlines()
        assert lines[0] == f"bringing {server.url} into {root}"
        assert re.fullmatch(r"[0-9]+ events in [0-9]+ batches", lines[-1]), lines
        assert len(lines) <= LINES_MAX, lines
        assert not [line for line in lines if "WARN" in line or "Spark" in line], lines
        # All tables came to the end, and what Spark has to say is in a file.
        assert len({archive.last(table) for table in Lake(str(root)).tables}) == 1
        assert (root / "_logs" / "spark.log").exists()
        shown = command("pipeline", "status", "--json").json
        assert {each["table"] for each in shown["tables"]} >= {"events", "audit"}
        assert shown["lag_offsets"] is not None
        assert [row[0] for row in command("pipeline", "status").rows][:1] == ["events"]


def _once(server: Server, root: Path, *more: str, file_bytes_max: int = -1) -> tuple[int, str]:
    """Exit status and what was said."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes_max, resource.RLIM_INFINITY))

    command = [sys.executable, "-m", "courier", "pipeline", "run", "--once", "--lake", str(root)]
    done = subprocess.run(
        [*command, "--data", str(server.data), *(more or ("--master", "local[2]"))],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=CHANGE_S_MAX,
        preexec_fn=limit,
    )
    assert not done.stdout
    return done.returncode, done.stderr.decode()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small one, or, for those who may not make any, a folder."""
    if not may_mount():
        yield tmp_path
        return
    with SmallDisk(tmp_path / "disk") as small:
        yield small.mount


@pytest.mark.timeout(1800)
def test_on_a_full_disk_it_says_so_and_goes_on_when_there_is_room(
    disk: Path, tmp_path: Path
) -> None:
    root, ballast = disk / "lake", disk / "ballast"
    with Server(tmp_path).start() as server:
        with server.client() as http:
            queue = CloudflareClient(http, "work")
            for _ in range(20):
                queue.publish_batch([os.urandom(45_000).hex() for _ in range(2)])
        if disk == tmp_path:
            status, said = _once(server, root, file_bytes_max=1 << 20)
        else:
            ballast.write_bytes(bytes(11 << 20))
            status, said = _once(server, root)
            ballast.unlink()
        assert status == 1
        assert said.count("\n") <= 2
        assert f"there is no room left for the lake {root}" in said, said
        assert _once(server, root)[0] == 0
        assert _dense(root)


def _dense(root: Path) -> bool:
    """Every offset once."""
    opened = Lake(str(root)).events.open()
    assert opened is not None
    offsets = opened.to_pyarrow_table(columns=["offset"]).column("offset").to_pylist()
    return sorted(offsets) == list(range(1, len(offsets) + 1))


@pytest.mark.timeout(1800)
def test_it_runs_on_a_cluster(tmp_path: Path) -> None:
    root = tmp_path / "lake"
    with Server(tmp_path).start() as server, cluster(tmp_path / "cluster") as master:
        with server.client() as http:
            queue = CloudflareClient(http, "work")
            queue.publish_batch([f"body {n}" for n in range(50)])
            queue.ack([each.lease for each in queue.pull(20)])
        settings = [f"--conf={name}={value}" for name, value in settings_of(tmp_path).items()]
        status, said = _once(server, root, "--master", master, *settings)
        assert status == 0, said
        assert _dense(root)
        lake = Lake(str(root))
        assert len({archive.last(table) for table in lake.tables}) == 1
        messages = lake.messages.open()
        assert messages is not None
        outcomes = messages.to_pyarrow_table(columns=["outcome"]).column("outcome").to_pylist()
        assert (outcomes.count("acked"), outcomes.count("live")) == (20, 30)


def test_what_cannot_be_used_is_one_line(tmp_path: Path) -> None:
    with Server(tmp_path).start() as server:
        command = Command("--data", str(server.data))
        (tmp_path / "file").touch()
        taken = command.attempt("pipeline", "run", "--once", "--lake", str(tmp_path / "file"))
        assert (taken.status, taken.err.count("\n")) == (2, 1)
        assert str(tmp_path / "file") in taken.err
        unknown = command.attempt("pipeline", "run", "--once", "--token", "wrong")
        assert (unknown.status, unknown.err.count("\n")) == (1, 1)
        assert "does not know this token" in unknown.err
        none = command.attempt("pipeline", "status", "--lake", str(tmp_path / "none"))
        assert (none.status, none.err.count("\n")) == (1, 1)
        assert "`courier pipeline run` makes one" in none.err
