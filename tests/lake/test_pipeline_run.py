"""`courier pipeline run` as its users see it: few lines, an exit status, and it goes on."""

import os
import re
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from courier.lake import archive
from courier.lake.catalog import Lake
from courier.lake.client import Client
from courier.lake.tables import FEW_BYTES
from tests.cli.command import Command
from tests.clients.cloudflare import CloudflareClient
from tests.faults.disk import SmallDisk, may_mount
from tests.lake.commands import Commands
from tests.lake.lakes import place_of, rows
from tests.lake.processes import CONTAINER, Started, first_of
from tests.lake.running import CHANGE_S_MAX, bury, running, wait_for
from tests.server import Server

# What a person sees while Spark starts, and then no more.
STARTING = f"starting Spark ...\r{18 * ' '}\r"
LINES_MAX = 12
HARD = resource.RLIM_INFINITY


def _upto(root: Path) -> int:
    return archive.last(Lake(str(root)).events)


def _to_group(process: Started) -> None:
    os.killpg(process.pid, signal.SIGTERM)


def _to_unit(process: Started) -> None:
    """As systemd does: to every process that was started."""
    for pid in process.belongings():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)


def _to_first(process: Started) -> None:
    """As Kubernetes does: to the first process of the container."""
    os.kill(first_of(process.pid), signal.SIGTERM)


@pytest.mark.timeout(1800)
def test_it_can_be_ended_while_java_starts(tmp_path: Path) -> None:
    log = tmp_path / "log"
    words = f"pipeline run --every 500ms --lake {tmp_path / 'lake'} --master local[2]"
    with Server(tmp_path).start() as server, running(server, words, log) as process:
        wait_for(lambda: "java" in process.belongings().values(), log.read_text)
        _to_group(process)
        assert process.wait(CHANGE_S_MAX) == 0, log.read_text()
        bury(process, log.read_text)
        assert log.read_text() == ""


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("ask", "inside"), [(_to_unit, ()), (_to_first, CONTAINER)], ids=["systemd", "kubernetes"]
)
def test_asked_by_a_supervisor_it_ends_the_batch_and_leaves_nothing_behind(
    tmp_path: Path, ask: Callable[[Started], None], inside: tuple[str, ...]
) -> None:
    root, log = tmp_path / "lake", tmp_path / "log"
    words = f"pipeline run --every 500ms --lake {root} --master local[2]"
    with Server(tmp_path).start() as server:
        with server.client() as http:
            queue = CloudflareClient(http, "work")
            # As much as only Spark's tasks bring.
            for _ in range(FEW_BYTES // 200_000 + 1):
                queue.publish_batch(["x" * 10_000 for _ in range(20)])
        with Client(place_of(server)) as broker:
            last = broker.head().last
        with running(server, words, log, inside=inside) as process:
            # The files of a batch are being written.
            wait_for((root / "events" / "data").exists, log.read_text)
            ask(process)
            assert process.wait(CHANGE_S_MAX) == 0, log.read_text()
            assert process.belongings() == {}
        [upto] = {archive.last(table) for table in Lake(str(root)).tables}
        assert upto >= last
        first, *_, end = log.read_text().splitlines()
        assert (first, end) == (
            f"loading the journal of {server.url} into {root}",
            f"{upto} events in 1 batch",
        )


@pytest.mark.timeout(1800)
def test_it_waits_for_its_broker_says_little_and_ends_in_order(
    courier: Commands, tmp_path: Path
) -> None:
    root = tmp_path / "lake"
    with Server(tmp_path).start() as server:
        with server.client() as http:
            CloudflareClient(http, "work").publish("one")
        place = ("--lake", str(root), "--data", str(server.data))
        courier.begin("pipeline", "run", "--every", "500ms", "--master", "local[2]", *place)
        wait_for(lambda: root.exists() and _upto(root) > 0, courier.said)
        first = _upto(root)
        server.kill()
        # Another one is refused while this one runs.
        command = Command(*place)
        refused = command.attempt("pipeline", "run", "--once")
        assert refused.status == 1
        assert refused.err == (
            f"courier: another pipeline is running on the lake {root}: "
            f"process {courier.process.pid}\n"
        )
        courier.wait("waiting for it")
        server.start()
        with server.client() as http:
            found = http.get("/queues", params={"name": "work"}).json()["result"]
            sent = {"body": "two", "content_type": "text"}
            http.post(f"/queues/{found[0]['queue_id']}/messages", json=sent).raise_for_status()
        wait_for(lambda: _upto(root) > first, courier.said)
        assert "is there again" in courier.said()
        courier.process.send_signal(signal.SIGINT)
        status, shown, said = courier.end()
        assert (status, shown) == (0, ""), said
        lines = said.splitlines()
        assert lines[0] == f"loading the journal of {server.url} into {root}"
        # However often the broker's end broke a batch off, all of it counts.
        assert re.fullmatch(rf"{_upto(root)} events in [0-9]+ batch(es)?", lines[-1]), lines
        assert len(lines) <= LINES_MAX, lines
        assert not [line for line in lines if "WARN" in line or "Spark" in line], lines
        # All tables came to the end.
        assert len({archive.last(table) for table in Lake(str(root)).tables}) == 1
        told = command("pipeline", "status", "--json").json
        assert {each["table"] for each in told["tables"]} >= {"events", "audit"}
        assert told["lag_offsets"] is not None
        assert [row[0] for row in command("pipeline", "status").rows][:1] == ["events"]


def _limit_files(pid: int, bytes_max: int) -> None:
    """Of a process and those that it has started."""
    started = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    for each in (pid, *map(int, started)):
        resource.prlimit(each, resource.RLIMIT_FSIZE, (bytes_max, HARD))


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
    courier: Commands, disk: Path, tmp_path: Path
) -> None:
    """On a terminal, where a line changes in place; and then tables are made anew."""
    root, ballast = disk / "lake", disk / "ballast"
    with Server(tmp_path).start() as server:
        with server.client() as http:
            queue = CloudflareClient(http, "work")
            for _ in range(20):
                queue.publish_batch([os.urandom(45_000).hex() for _ in range(2)])
        place = ("--lake", str(root), "--data", str(server.data), "--master", "local[2]")
        once = ("pipeline", "run", "--once", *place)
        if disk == tmp_path:
            _limit_files(courier.process.pid, 1 << 20)
        else:
            ballast.write_bytes(bytes(11 << 20))
        status, shown, said = courier(*once, terminal=True)
        assert (status, shown) == (1, "")
        assert said.count("\n") <= 2
        assert f"there is no room left for the lake {root}" in said, said
        if disk == tmp_path:
            _limit_files(courier.process.pid, HARD)
        else:
            ballast.unlink()
        status, shown, said = courier(*once, terminal=True)
        assert (status, shown) == (0, ""), said
        offsets = sorted(row["offset"] for row in rows(Lake(str(root)).events))
        assert offsets == [*range(1, _upto(root) + 1)]
        first, batch, end = said.replace("\r\n", "\n").strip("\n").split("\n")
        count = _upto(root)
        assert first == f"{STARTING}loading the journal of {server.url} into {root}"
        line = rf"\rbatch [0-9]+: {count} events up to offset {count} in [0-9.]+ s, [0-9]+/s *"
        assert re.fullmatch(line, batch) and len(batch) == 80, batch
        assert end == f"{count} events in 1 batch"
        _made_anew(courier, root, *place)

        courier.begin("pipeline", "run", *place, terminal=True)
        courier.wait("loading the journal ")
        courier.process.send_signal(signal.SIGTERM)
        status, shown, said = courier.end()
        assert (status, shown) == (0, "")
        assert said.splitlines()[-1] == "0 events in 0 batches", said


def _made_anew(courier: Commands, root: Path, *place: str) -> None:
    lake = Lake(str(root))
    before = [rows(table) for table in lake.tables]
    files = {file.path for file in lake.messages.files()}
    status, shown, said = courier("pipeline", "rebuild", *place, terminal=True)
    assert (status, said) == (0, STARTING)
    assert shown == "rebuilt messages\nrebuilt queue_minutes\nrebuilt consumers_hours\n"
    assert [rows(table) for table in lake.tables] == before
    assert not files & {file.path for file in lake.messages.files()}
    status, shown, said = courier("pipeline", "rebuild", "--table", "events", *place, terminal=True)
    assert (status, shown) == (2, "")
    assert "'events' is not one of messages" in said


def test_what_cannot_be_used_is_one_line(courier: Commands, tmp_path: Path) -> None:
    with Server(tmp_path).start() as server:
        once = ("pipeline", "run", "--once", "--data", str(server.data))
        file, none = str(tmp_path / "file"), str(tmp_path / "none")
        Path(file).touch()
        looked = ("pipeline", "status", "--data", str(server.data), "--lake", none)
        for asked, expected, reason in (
            ((*once, "--lake", file), 2, file),
            ((*once, "--token", "wrong"), 1, "does not know this token"),
            (looked, 1, "`courier pipeline run` makes one"),
        ):
            status, shown, said = courier(*asked)
            assert (status, shown, said.count("\n")) == (expected, "", 1), said
            assert reason in said
        # This is told by a Spark that does not even start.
        for more, reason in (
            ("--master=nonsense", "Master must either be yarn or start with spark"),
            ("--conf=spark.driver.memory=lots", "Invalid maximum heap size: -Xmxlots"),
        ):
            unfit = Command().attempt(*once, more)
            assert (unfit.status, unfit.err.count("\n")) == (1, 1)
            assert unfit.err.startswith(f"courier: Spark does not start: {reason}"), unfit.err
