"""`courier pipeline run` as its users see it: few lines, an exit status, and it goes on."""

import os
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from courier.lake import archive
from courier.lake.catalog import Lake
from courier.lake.tables import Table
from tests.cli.command import Command, sigint_heard
from tests.clients.cloudflare import CloudflareClient
from tests.faults.disk import SmallDisk, may_mount
from tests.lake.brokers import bodies
from tests.lake.cluster import cluster
from tests.lake.cluster import settings as settings_of
from tests.lake.commands import Commands, commands
from tests.lake.running import kill_all
from tests.server import Server

# Spark takes its time, and so do those who share the machine.
CHANGE_S_MAX = 600.0
# What ends with the command may do so a little later.
END_S_MAX = 60.0
POLL_S = 0.1
LINES_MAX = 12
HARD = resource.RLIM_INFINITY


def _wait(
    true: Callable[[], bool], otherwise: Callable[[], str], seconds: float = CHANGE_S_MAX
) -> None:
    deadline_s = time.monotonic() + seconds
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
        sigint_heard(),
        subprocess.Popen(
            [*command, "--lake", str(root), "--data", str(server.data), "--master", "local[2]"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=err,
            start_new_session=True,
        ) as process,
    ):
        try:
            yield Running(process, errors)
        finally:
            kill_all(process)


def _group(process: subprocess.Popen[bytes]) -> set[str]:
    """The names of what runs in the process's group."""
    found = set()
    for file in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            name, _, rest = file.read_text().partition("(")[2].rpartition(") ")
            state, _, group = rest.split()[:3]
            if int(group) == process.pid and state not in "ZX":
                found.add(name)
    return found


def _end(running: Running, number: signal.Signals) -> None:
    """It ends as one that has done what was asked, with all that it started."""
    running.process.send_signal(number)
    assert running.process.wait(CHANGE_S_MAX) == 0, running.err()
    _wait(lambda: not _group(running.process), lambda: "Java is left behind", END_S_MAX)


@pytest.mark.timeout(1800)
def test_it_can_be_ended_while_java_starts(tmp_path: Path) -> None:
    with (
        Server(tmp_path).start() as server,
        _running(server, tmp_path / "lake", tmp_path / "err") as running,
    ):
        _wait(lambda: "java" in _group(running.process), running.err)
        _end(running, signal.SIGTERM)
        assert running.err() == ""


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
            _end(running, signal.SIGINT)
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


def _children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(word) for word in text.split()]


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
    """On a terminal, where a line changes in place; and then tables are made anew."""
    root, ballast = disk / "lake", disk / "ballast"
    with (
        Server(tmp_path).start() as server,
        commands(tmp_path / "commands", terminal=True) as courier,
    ):
        with server.client() as http:
            queue = CloudflareClient(http, "work")
            for _ in range(20):
                queue.publish_batch([os.urandom(45_000).hex() for _ in range(2)])
        place = ("--lake", str(root), "--data", str(server.data), "--master", "local[2]")
        once = ("pipeline", "run", "--once", *place)
        if disk == tmp_path:
            resource.prlimit(courier.process.pid, resource.RLIMIT_FSIZE, (1 << 20, HARD))
        else:
            ballast.write_bytes(bytes(11 << 20))
        status, shown, said = courier(*once)
        assert (status, shown) == (1, "")
        assert said.count("\n") <= 2
        assert f"there is no room left for the lake {root}" in said, said
        if disk == tmp_path:
            for pid in (courier.process.pid, *_children(courier.process.pid)):
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (HARD, HARD))
        else:
            ballast.unlink()
        status, shown, said = courier(*once)
        assert (status, shown) == (0, ""), said
        assert _dense(root)
        first, batch, end = said.replace("\r\n", "\n").strip("\n").split("\n")
        count = _upto(root)
        assert first == f"bringing {server.url} into {root}"
        line = rf"\rbatch [0-9]+: {count} events up to offset {count} in [0-9.]+ s, [0-9]+/s *"
        assert re.fullmatch(line, batch) and len(batch) == 80, batch
        assert end == f"{count} events in 1 batch"
        _made_anew(courier, root, *place)

        courier.begin("pipeline", "run", *place)
        courier.wait("bringing ")
        courier.process.send_signal(signal.SIGTERM)
        status, shown, said = courier.end()
        assert (status, shown) == (0, "")
        assert said.splitlines()[-1] == "0 events in 0 batches", said


def _made_anew(courier: Commands, root: Path, *place: str) -> None:
    lake = Lake(str(root))
    before = [_rows(table) for table in lake.tables]
    files = {file.path for file in lake.messages.files()}
    status, shown, said = courier("pipeline", "rebuild", *place)
    assert (status, said) == (0, "")
    assert shown == "made messages anew\nmade queue_minutes anew\nmade consumers_hours anew\n"
    assert [_rows(table) for table in lake.tables] == before
    assert not files & {file.path for file in lake.messages.files()}
    status, shown, said = courier("pipeline", "rebuild", "--table", "events", *place)
    assert (status, shown) == (2, "")
    assert "invalid choice: 'events'" in said


def _rows(table: Table) -> list[str]:
    opened = table.open()
    assert opened is not None
    return sorted(str(row) for row in opened.to_pyarrow_table().to_pylist())


def _dense(root: Path) -> bool:
    """Every offset once."""
    opened = Lake(str(root)).events.open()
    assert opened is not None
    offsets = opened.to_pyarrow_table(columns=["offset"]).column("offset").to_pylist()
    return sorted(offsets) == list(range(1, len(offsets) + 1))


@pytest.mark.timeout(1800)
def test_it_runs_on_a_cluster_and_so_does_a_replay(tmp_path: Path) -> None:
    root = tmp_path / "lake"
    with (
        Server(tmp_path).start() as server,
        cluster(tmp_path / "cluster") as master,
        commands(tmp_path / "commands") as courier,
    ):
        with server.client() as http:
            queue = CloudflareClient(http, "work")
            queue.publish_batch([f"body {n}" for n in range(50)])
            queue.ack([each.lease for each in queue.pull(20)])
            CloudflareClient(http, "again")
        settings = [f"--conf={name}={value}" for name, value in settings_of(tmp_path).items()]
        place = ("--lake", str(root), "--data", str(server.data), "--master", master, *settings)
        status, shown, said = courier("pipeline", "run", "--once", *place)
        assert (status, shown) == (0, ""), said
        assert _dense(root)
        lake = Lake(str(root))
        assert len({archive.last(table) for table in lake.tables}) == 1
        messages = lake.messages.open()
        assert messages is not None
        outcomes = messages.to_pyarrow_table(columns=["outcome"]).column("outcome").to_pylist()
        assert (outcomes.count("acked"), outcomes.count("live")) == (20, 30)

        chosen = ("--queue", "work", "--into", "again", "--where", "outcome = 'acked'")
        status, shown, said = courier("replay", *chosen, "--id", "there", *place)
        assert (status, shown) == (0, "20 messages published to 'again', replay 'there'\n"), said
        assert sorted(bodies(server, "again")) == sorted(f"body {n}" for n in range(20))


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
        for more, reason in (
            ("--master=nonsense", "Master must either be yarn or start with spark"),
            ("--conf=spark.driver.memory=lots", "Invalid maximum heap size: -Xmxlots"),
        ):
            unfit = command.attempt("pipeline", "run", "--once", more)
            assert (unfit.status, unfit.err.count("\n")) == (1, 1)
            assert unfit.err.startswith(f"courier: Spark does not start: {reason}"), unfit.err
