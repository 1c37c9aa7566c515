"""Queries killed at random and at chosen points, broker and all: everything happens once."""

import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from tests.clients.cloudflare import CloudflareClient
from tests.lake.brokers import bodies, events, last_offset, options, queue
from tests.lake.jobs import NAMES, POINTS
from tests.report import TOLD
from tests.server import Server

KILLS = int(os.environ.get("KILLS", "2"))
SEED = int(os.environ.get("KILL_SEED", "1"))
RUN_S_MAX = 240
TIMEOUT_SECONDS = 600 + 120 * KILLS
POLL_S = 0.05
HERE = Path(__file__).resolve().parents[2]


class Job:
    """The job of `jobs.py`, which may die as often as it likes."""

    def __init__(self, home: Path, server: Server) -> None:
        self.home = home
        for name in ("lines", "consume", "read"):
            (home / name).mkdir()
        given = json.dumps(options(server, awaySeconds=120))
        self._command = [sys.executable, "-m", "tests.lake.jobs", str(home), given]

    def start(self, *names: str) -> None:
        (self.home / "started").unlink(missing_ok=True)
        env = {**os.environ, "PYTHONPATH": str(HERE)}
        with (self.home / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*self._command, *names],
                stdout=log,
                stderr=log,
                env=env,
                cwd=HERE,
                start_new_session=True,
            )

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def wait_until_started(self) -> None:
        deadline = time.monotonic() + RUN_S_MAX
        while not (self.home / "started").exists() and self._process.poll() is None:
            assert time.monotonic() < deadline, self.log()
            time.sleep(POLL_S)

    def wait(self) -> int:
        """Its exit status. Spark may fail on a busy machine; the source may not."""
        try:
            status = self._process.wait(RUN_S_MAX)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the job does not end\n{self.log()}") from None
        finally:
            self.kill()
        assert not re.search(r"^courier\.lake\.\w+\.\w+: ", self.log(), re.M), self.log()
        return status

    def ends_well(self) -> bool:
        self.start(*NAMES)
        return self.wait() == 0

    def log(self) -> str:
        return (self.home / "log").read_text()

    def lines(self, name: str) -> list[str]:
        files = sorted((self.home / name).glob("*.txt"), key=lambda file: int(file.stem))
        return [line for file in files for line in file.read_text().split()]


@contextmanager
def pulling(server: Server, orders: CloudflareClient) -> Iterator[None]:
    """Another consumer of the queue, who takes a few now and then and settles them."""
    over = threading.Event()

    def pull() -> None:
        while not over.wait(0.5):
            # A broker that is killed meanwhile gives the messages back when their lease ends.
            with suppress(httpx.TransportError, AssertionError):
                orders.ack([each.lease for each in orders.pull(3, lease_ms=5_000)])

    thread = threading.Thread(target=pull)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.mark.timeout(TIMEOUT_SECONDS)
def test_everything_happens_once_however_often_the_queries_and_the_broker_are_killed(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    chosen = random.Random(SEED)
    points = chosen.sample(POINTS, len(POINTS))
    sent: list[str] = []
    written: list[str] = []
    deaths: Counter[str] = Counter()
    with Server(tmp_path, args=["--sweep-every-ms", "100"]).start() as server:
        home = tmp_path / "job"
        home.mkdir()
        job = Job(home, server)
        with queue(server, "out"), queue(server, "in") as incoming:

            def feed(turn: int) -> None:
                for batch in range(2):
                    new = [f"{turn}-{batch}-{n}" for n in range(50)]
                    incoming.publish_batch(new)
                    sent.extend(new)
                for number in range(2):
                    new = [f"{turn}.{number}.{n}" for n in range(35)]
                    (home / "lines" / f"{turn}-{number}").write_text("\n".join(new) + "\n")
                    written.extend(new)

            with pulling(server, incoming):
                for turn in range(KILLS):
                    feed(turn)
                    at_random = turn % 3 == 1
                    point = (
                        chosen.choice(NAMES)
                        if at_random
                        else points[(turn - turn // 3) % len(points)]
                    )
                    if not at_random:
                        (home / "die").write_text(point)
                    job.start(point.partition(":")[0])
                    try:
                        job.wait_until_started()
                        if at_random:
                            time.sleep(chosen.uniform(0, 4))
                            server.kill()
                            time.sleep(chosen.uniform(0, 1))
                            job.kill()
                            server.start()
                        job.wait()
                    finally:
                        job.kill()
                    deaths["killed" if at_random or not (home / "die").exists() else "missed"] += 1
                    (home / "die").unlink(missing_ok=True)
            feed(KILLS)
            _until(lambda: job.ends_well() and incoming.backlog() == 0)
        assert Counter(bodies(server, "out")) == Counter(written)
        _consumed_once(server, job, sent)
        read = [int(line) for line in job.lines("read")]
        assert read == [*range(1, len(read) + 1)] and len(read) > len(sent)
        assert last_offset(server) >= len(read)
    record_property(TOLD, f"{dict(deaths)}, {len(sent)} consumed, {len(written)} published")
    assert deaths["killed"] >= KILLS / 2, deaths


def _until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 2 * RUN_S_MAX
    while not true():
        assert time.monotonic() < deadline
        time.sleep(POLL_S)


def _consumed_once(server: Server, job: Job, sent: list[str]) -> None:
    """What the job acknowledged is what its files have; the pullers have all the rest."""
    names = {
        event["message_id"]: event["body"] for event in events(server, kind="published", queue="in")
    }
    assert Counter(names.values()) == Counter(sent)
    acked = events(server, kind="acked", queue="in")
    assert Counter(event["message_id"] for event in acked) == Counter(dict.fromkeys(names, 1))
    by_dialect: dict[str, list[str]] = {}
    for event in acked:
        by_dialect.setdefault(event["dialect"], []).append(names[event["message_id"]])
    pulled = by_dialect.pop("cloudflare")
    [consumed] = by_dialect.values()
    assert Counter(job.lines("consume")) == Counter(consumed)
    assert pulled and not set(pulled) & set(consumed)
