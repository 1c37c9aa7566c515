"""Queries killed at random and at chosen points, broker and all: everything happens once.

`KILLS=22` or more comes to every point of `jobs.POINTS`.
"""

import itertools
import json
import os
import random
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from courier.lake.consume import QueueStreamReader
from courier.lake.options import CONSUME, parse
from courier.lake.schema import CLAIMED
from tests.clients.cloudflare import CloudflareClient
from tests.lake import jobs
from tests.lake.brokers import bodies, events, last_offset, options, queue
from tests.lake.commands import Commands
from tests.lake.running import POLL_S, Toll, Victim, Victims
from tests.report import TOLD
from tests.server import Server

KILLS = int(os.environ.get("KILLS", "2"))
SEED = int(os.environ.get("KILL_SEED", "1"))
TIMEOUT_SECONDS = 600 + 120 * KILLS
# The short form has only this one.
FIRST = "publish: within a task"
# Spark may fail on a busy machine; then the turn is made again.
TRIES = 3
RANDOM_S_MAX = 3.0
FEED_EVERY_S = 0.7
DRAINED_S_MAX = 480.0
CHANGE_S_MAX = 10.0


@contextmanager
def beside(work: Callable[[], None], every_s: float) -> Iterator[None]:
    """Somebody who does this now and then, and goes on when the broker is back."""
    over = threading.Event()

    def repeat() -> None:
        while not over.wait(every_s):
            with suppress(httpx.TransportError, AssertionError):
                work()

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


class Trial:
    """Jobs on one checkpoint that die, each in its turn, and what they are given to do."""

    def __init__(self, folder: Path, server: Server, incoming: CloudflareClient) -> None:
        self.home = folder / "job"
        for name in ("lines", "consume", "read"):
            (self.home / name).mkdir(parents=True)
        self.toll = Toll()
        self.sent: list[str] = []
        self.written: list[str] = []
        self.args = (str(self.home), json.dumps(options(server, awaySeconds=120)))
        self._server = server
        self._incoming = incoming
        self._numbers = itertools.count()
        self._dice = random.Random(SEED)
        rest = [point for point in jobs.POINTS if point != FIRST]
        self._points = itertools.cycle([FIRST, *self._dice.sample(rest, len(rest))])

    def feed(self) -> None:
        number = next(self._numbers)
        lines = [f"{number}.{n}" for n in range(25)]
        new = self.home / "new"
        new.write_text("\n".join(lines) + "\n")
        new.rename(self.home / "lines" / str(number))
        self.written += lines
        new_bodies = [f"{number}-{n}" for n in range(10)]
        self._incoming.publish_batch(new_bodies)
        self.sent += new_bodies

    def pull(self) -> None:
        """A broker that is killed meanwhile gives the messages back when their lease ends."""
        leases = [each.lease for each in self._incoming.pull(3, lease_ms=5_000)]
        self._incoming.ack(leases)

    def run(self) -> None:
        with Victims(self.home) as victims:
            for turn in range(KILLS):
                point = "" if turn % 4 == 1 else next(self._points)
                for left in reversed(range(TRIES)):
                    with victims.next(jobs.__name__, *self.args) as victim:
                        if self._turn(victim, turn, point):
                            break
                    self.toll.missed += 1
                    assert left, f"not killed at {point or 'random'}: {victim.log()}"

    def _turn(self, victim: Victim, turn: int, point: str) -> bool:
        """Whether a job at work was killed, where it was to be."""
        alone = turn % 5 == 2
        try:
            # In the batches that an earlier victim has left, or later.
            if point and turn % 3 == 2:
                victim.arm(point, alone=alone)
            else:
                before = self._batches()
                if not victim.until(lambda: self._all_beyond(before)):
                    return False
                if turn % 3 == 1:
                    time.sleep(self._dice.random())
                    self._server.kill()
                    self.toll.broker += victim.runs
                if point:
                    victim.arm(point, alone=alone)
                else:
                    time.sleep(self._dice.uniform(0, RANDOM_S_MAX))
                    if not victim.kill(alone=alone):
                        return False
                    self.toll.random += 1
        finally:
            if not self._server.running:
                self._server.start()
        if point:
            if not victim.dies_at(point):
                return False
            self.toll.points[point] = self.toll.points.get(point, 0) + 1
        self.toll.alone += alone
        # Spark may fail; the source may not.
        assert not re.search(r"^courier\.lake\.\w+\.\w+: ", victim.log(), re.M), victim.log()
        return True

    def _batches(self) -> list[int]:
        """The last batch of each query that Spark has noted as done."""
        noted = [(self.home / f"checkpoint-{name}" / "commits") for name in jobs.NAMES]
        return [
            max((int(file.name) for file in folder.glob("[0-9]*")), default=-1) for folder in noted
        ]

    def _all_beyond(self, before: list[int]) -> bool:
        return all(new > old for new, old in zip(self._batches(), before, strict=True))

    def lines(self, name: str) -> list[str]:
        files = sorted((self.home / name).glob("*.txt"), key=lambda file: int(file.stem))
        return [line for file in files for line in file.read_text().split()]


@pytest.mark.timeout(TIMEOUT_SECONDS)
def test_everything_happens_once_however_often_the_queries_and_the_broker_are_killed(
    courier: Commands, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    with (
        Server(tmp_path, args=["--sweep-every-ms", "100"]).start() as server,
        queue(server, "out"),
        queue(server, "in") as incoming,
    ):
        trial = Trial(tmp_path, server, incoming)
        with beside(trial.feed, FEED_EVERY_S), beside(trial.pull, FEED_EVERY_S):
            trial.run()
        deadline_s = time.monotonic() + DRAINED_S_MAX
        while True:
            status, _, said = courier(*trial.args, jobs.ONCE, module=jobs.__name__)
            assert status == 0, said
            if not incoming.backlog():
                break
            assert time.monotonic() < deadline_s, "messages are left over"
        assert Counter(bodies(server, "out")) == Counter(trial.written)
        consumed = _consumed_once(server, trial)
        read = [int(line) for line in trial.lines("read")]
        assert read == [*range(1, len(read) + 1)] and len(read) > len(trial.sent)
        assert last_offset(server) >= len(read)
    record_property(
        TOLD,
        f"{trial.toll}; {len(trial.written)} rows published once, {consumed} messages consumed "
        f"once, {len(read)} events read once",
    )
    missing = set(jobs.POINTS) - set(trial.toll.points)
    assert not missing or sum(trial.toll.points.values()) < len(jobs.POINTS), missing


def _consumed_once(server: Server, trial: Trial) -> int:
    """What the job acknowledged is what its files have; the puller has all the rest."""
    names = {
        event["message_id"]: event["body"] for event in events(server, kind="published", queue="in")
    }
    # Whatever was in doubt when the broker died is there once or not at all.
    assert set(trial.sent) <= set(names.values())
    assert len(set(names.values())) == len(names)
    acked = events(server, kind="acked", queue="in")
    assert Counter(event["message_id"] for event in acked) == Counter(dict.fromkeys(names, 1))
    by_dialect: dict[str, list[str]] = {}
    for event in acked:
        by_dialect.setdefault(event["dialect"], []).append(names[event["message_id"]])
    pulled = by_dialect.pop("cloudflare")
    [consumed] = by_dialect.values()
    assert Counter(trial.lines("consume")) == Counter(consumed)
    assert pulled and not set(pulled) & set(consumed)
    return len(consumed)


def test_a_query_that_is_back_has_the_whole_lease_again(tmp_path: Path) -> None:
    with (
        Server(tmp_path).start() as server,
        queue(server, "in") as incoming,
        ExitStack() as stops,
    ):
        asked = parse(options(server, mode="consume", queue="in", leaseMs=600_000), CONSUME)

        def query() -> QueueStreamReader:
            made = QueueStreamReader(asked, CLAIMED.spark())
            stops.callback(made.stop)
            return made

        def extended() -> int:
            return len(events(server, kind="extended", queue="in"))

        incoming.publish("a")
        begun = query()
        start = begun.initialOffset()
        first = begun.latestOffset(start)
        begun.partitions(start, first)
        assert not extended()
        # It died after Spark had written the claim down, so the batch is planned again.
        query().partitions(start, first)
        wait_until(lambda: extended() == 1)
        # It died before that: the same claim is asked for again.
        incoming.publish("b")
        second = begun.latestOffset(first)
        assert query().latestOffset(first) == second
        wait_until(lambda: extended() == 2)


def wait_until(true: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + CHANGE_S_MAX
    while not true():
        assert time.monotonic() < deadline_s
        time.sleep(POLL_S)
