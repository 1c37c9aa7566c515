"""A pipeline that is killed again and again, while traffic flows and the broker is killed, too.

In the end every event is in the lake once, and everything adds up. `KILLS=200` makes a long form.
"""

import itertools
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from courier.lake.catalog import Lake
from courier.lake.client import Client
from tests.clients.cloudflare import CloudflareClient
from tests.lake.lakes import place_of
from tests.server import Server

KILLS = int(os.environ.get("KILLS", "2"))
SEED = int(os.environ.get("KILL_SEED", "1"))
TIMEOUT_SECONDS = 900 + 120 * KILLS
DIED_S_MAX = 600.0
STARTED_S_MAX = 600.0
POLL_S = 0.05
# Each lives for some seconds only.
SPARK = ("--master", "local[2]", "--conf=spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1")
# Points that differ most come first; the long form has them all, many times.
POINTS = (
    ("committed", "messages"),
    ("written", "events"),
    ("random", ""),
    ("told", "audit"),
    ("written", "messages"),
    ("committed", "events"),
    ("committed", "queue_minutes"),
    ("written", "consumers_hours"),
    ("told", "events"),
    ("written", "queue_minutes"),
    ("committed", "consumers_hours"),
    ("written", "audit"),
    ("committed", "audit"),
)


class Traffic:
    """Publishes, acks and retries without end; goes on when the broker is back."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work)

    def __enter__(self) -> "Traffic":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _work(self) -> None:
        dice = random.Random(SEED)
        for number in itertools.count():
            if self._over.wait(0.05):
                return
            # Killed in the middle of an answer; what was in doubt is in the journal or is not.
            with suppress(httpx.TransportError, AssertionError), self._server.client() as http:
                name = f"busy-{number % 3}"
                found = http.get("/queues", params={"name": name}).json()["result"]
                queue = f"/queues/{found[0]['queue_id']}/messages"
                bodies = [{"body": f"{number} {n}"} for n in range(dice.randrange(1, 20))]
                http.post(f"{queue}/batch", json={"messages": bodies})
                asked = {"batch_size": dice.randrange(1, 20), "visibility_timeout_ms": 500}
                pulled = http.post(f"{queue}/pull", json=asked).json()["result"]["messages"]
                leases = [{"lease_id": each["lease_id"]} for each in pulled]
                some = len(leases) * 3 // 4
                settled = {"acks": leases[:some], "retries": leases[some : some + 1]}
                http.post(f"{queue}/ack", json=settled)


@contextmanager
def _running(server: Server, root: Path, *before: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", *(before or ("courier",)), "pipeline", "run"]
    command += ["--every", "500ms", *SPARK, "--lake", str(root)]
    log = (server.data / "pipeline.log").open("ab")
    process = subprocess.Popen(
        [*command, "--data", str(server.data)], stdout=log, stderr=log, stdin=subprocess.DEVNULL
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        log.close()


def _log(server: Server) -> str:
    return (server.data / "pipeline.log").read_text()


@pytest.mark.timeout(TIMEOUT_SECONDS)
def test_every_event_is_in_the_lake_once_whenever_the_pipeline_dies(tmp_path: Path) -> None:
    dice = random.Random(SEED)
    root = tmp_path / "lake"
    with Server(tmp_path, args=["--sweep-every-ms", "50"]).start() as server:
        with server.client() as http:
            for number in range(3):
                CloudflareClient(http, f"busy-{number}", dead_letter="dead" if number else "")
        with Traffic(server):
            for number in range(KILLS):
                point, table = POINTS[number % len(POINTS)]
                if point == "random":
                    _die_at_random(server, root, dice)
                else:
                    _die_at(server, root, point, table, kill_broker=number % 3 == 0)
        _bring_all(server, root)
        _all_there_once(server, Lake(str(root)))


def _die_at(server: Server, root: Path, point: str, table: str, *, kill_broker: bool) -> None:
    with _running(server, root, "tests.lake.killed", point, table) as process:
        if kill_broker:
            time.sleep(random.Random(SEED).random())
            server.kill()
            server.start()
        try:
            process.wait(DIED_S_MAX)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"did not come to {point} {table}: {_log(server)}") from None
        assert process.returncode == -signal.SIGKILL, _log(server)


def _die_at_random(server: Server, root: Path, dice: random.Random) -> None:
    """Some time after it has begun to work."""
    before = _version(root)
    deadline_s = time.monotonic() + STARTED_S_MAX
    with _running(server, root) as process:
        while _version(root) == before:
            assert time.monotonic() < deadline_s and process.poll() is None, _log(server)
            time.sleep(POLL_S)
        time.sleep(dice.random() * 3)


def _version(root: Path) -> int:
    table = Lake(str(root)).events.open()
    return -1 if table is None else table.version()


def _bring_all(server: Server, root: Path) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "courier", "pipeline", "run", "--once"),
            *(*SPARK, "--lake", str(root), "--data", str(server.data)),
        ],
        capture_output=True,
        timeout=DIED_S_MAX,
    )
    assert done.returncode == 0, done.stderr.decode()


def _all_there_once(server: Server, lake: Lake) -> None:
    with Client(place_of(server)) as broker:
        head = broker.head()
    rows = {table.name: _rows(lake, table.name) for table in lake.tables}
    offsets = sorted(row["offset"] for row in rows["events"])
    upto = offsets[-1]
    # The broker's own sweep may have gone on since.
    assert offsets == list(range(1, upto + 1)) and upto <= head.last
    counted: dict[str, int] = {}
    for row in rows["events"]:
        counted[row["kind"]] = counted.get(row["kind"], 0) + 1
    assert counted["acked"] and counted["retried"] and counted["lease_expired"], counted
    assert len(rows["messages"]) == counted["published"]
    assert len({(row["queue_id"], row["seq"]) for row in rows["messages"]}) == counted["published"]
    for kind in ("published", "leased", "acked", "retried", "lease_expired", "buried"):
        assert sum(row[kind] for row in rows["queue_minutes"]) == counted.get(kind, 0), kind
    assert sum(row["attempts"] for row in rows["consumers_hours"]) == counted["leased"]
    assert sum(row["acked"] for row in rows["consumers_hours"]) == counted["acked"]
    _nothing_found(rows["audit"], upto)


def _nothing_found(audit: list[dict[str, Any]], upto: int) -> None:
    assert max(row["last_offset"] for row in audit) == upto
    for row in audit:
        for name in (
            "difference",
            "gaps",
            "double_leases",
            "unleased_acks",
            "revived",
            "order_violations",
        ):
            assert not row[name], (name, row)
    spans = sorted({(row["first_offset"], row["last_offset"]) for row in audit})
    assert spans[0][0] == 1
    assert all(first == last + 1 for (_, last), (first, _) in itertools.pairwise(spans)), spans


def _rows(lake: Lake, name: str) -> list[dict[str, Any]]:
    (table,) = (table for table in lake.tables if table.name == name)
    opened = table.open()
    assert opened is not None
    found: list[dict[str, Any]] = opened.to_pyarrow_table().to_pylist()
    return found
