"""How much of the journal is kept."""

import re
import time
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from courier.lake.catalog import Lake
from tests.cli.command import Command
from tests.ops.conftest import Journal
from tests.server import Server

pytestmark = pytest.mark.slow


WAIT_S_MAX = 40.0


def publish(http: httpx.Client, count: int) -> None:
    queue = http.post("/queues", json={"queue_name": "much"}).json()["result"]["queue_id"]
    for _ in range(count):
        body = {"messages": [{"body": "x" * 1_000, "content_type": "text"}] * 50}
        assert http.post(f"/queues/{queue}/messages/batch", json=body).status_code == 200


def metric(journal: Journal, name: str) -> float:
    lines = journal.call("GET", "/metrics").text.splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(f"{name} "))


def size(journal: Journal) -> float:
    return metric(journal, "courier_journal_bytes")


def wait_for_first(journal: Journal, above: int, bytes_max: int | None = None) -> int:
    """Until trimming has got that far, and made the journal as small as it is to be."""
    deadline = time.monotonic() + WAIT_S_MAX
    while time.monotonic() < deadline:
        first: int = journal.head()["first"]
        if first > above and (bytes_max is None or size(journal) <= bytes_max):
            return first
        time.sleep(0.1)
    raise AssertionError("not enough was trimmed")


def test_a_journal_over_its_size_gives_up_its_oldest_events_loudly(tmp_path: Path) -> None:
    """Even those that a registered pipeline has yet to read; it then hears of it."""
    with (
        Server(tmp_path, args=["--journal-bytes-max", "300000"]).start() as server,
        closing(Journal(server)) as journal,
        server.client() as http,
    ):
        journal.call("PUT", "/journal/pipelines/slow", {"offset": 0})
        epoch = journal.head()["epoch"]
        publish(http, 20)
        last = journal.head()["last"]
        first = wait_for_first(journal, above=1, bytes_max=300_000)
        assert journal.head()["last"] >= last and journal.head()["epoch"] == epoch
        answer = journal.call("GET", "/journal?after=0")
        assert answer.status_code == 410
        assert str(first) in answer.json()["error"]["message"] or first > 1
        assert journal.events(after=journal.head()["first"] - 1, limit=1)
        assert "journal_trimmed_for_space" in server.log()
        metrics = journal.call("GET", "/metrics").text
        assert "courier_journal_forced_trims_total 0.0" not in metrics
        # What comes in a few seconds fills it, and its retention is seven days.
        room = journal.call("GET", "/journal/head?room=true").json()["room"]
        assert room["holds_ms"] < room["retention_ms"] == 7 * 24 * 3_600_000
        assert "courier_journal_retention_seconds 604800.0" in metrics
        # Time goes on between the two, but not a hundred times as much as there was.
        holds_s = metric(journal, "courier_journal_holds_seconds")
        assert 0.01 < 1000 * holds_s / room["holds_ms"] < 100
        assert 0 <= metric(journal, "courier_journal_left_seconds") <= 2 * holds_s
        _status_tells_of_the_cap(tmp_path / "lake", server)
        server.restart()  # the first sweep after a start looks
        deadline = time.monotonic() + WAIT_S_MAX
        while "journal_too_small_for_retention" not in server.log():
            assert time.monotonic() < deadline, "nothing is logged of the cap"
            time.sleep(0.1)


def _status_tells_of_the_cap(root: Path, server: Server) -> None:
    for table in Lake(str(root)).tables:
        table.create(epoch="e")
    command = Command("--lake", str(root), "--data", str(server.data))
    told = command("pipeline", "status", "--json").json
    assert told["journal_days"] < told["retention_days"] == 7
    assert 0 <= told["journal_days_left"] <= told["journal_days"]
    said = " ".join(command("pipeline", "status").out.split())  # lines are wrapped
    assert re.search(
        r"holds \d[^;]* of events, and is reached in \d[^;]*; the retention is 7 d", said
    )
    assert "events will be deleted before their retention ends: raise journal_bytes_max" in said


def test_old_events_stay_until_every_pipeline_has_them(tmp_path: Path) -> None:
    with (
        Server(tmp_path, args=["--journal-retention-ms", "0"]).start() as server,
        closing(Journal(server)) as journal,
        server.client() as http,
    ):
        journal.call("PUT", "/journal/pipelines/lake", {"offset": 0})
        publish(http, 3)
        server.restart()  # the first sweep after a start trims
        assert journal.head()["first"] == 1
        journal.call("PUT", "/journal/pipelines/lake", {"offset": journal.head()["last"]})
        first = wait_for_first(journal, above=1)
        assert first <= journal.head()["last"]
