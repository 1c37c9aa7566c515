"""A pipeline that is killed again and again, while traffic flows and the broker is killed, too.

Some events are lost before the first kill, and some after it. In the end every other event is in
the lake once, and every table is as it is computed again from the journal's lines of JSON.
`KILLS=28` or more comes to every point of `killed.PIPELINE`.
"""

import itertools
import os
import random
import re
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pyarrow.fs as pafs
import pytest

from courier.lake import archive, storage
from courier.lake.audit import FINDINGS
from courier.lake.catalog import Lake
from courier.lake.client import Client, CourierError
from courier.lake.log import LOG
from courier.lake.tables import Table
from tests.cli.command import Command
from tests.clients.cloudflare import CloudflareClient
from tests.lake import killed
from tests.lake.commands import Commands
from tests.lake.lakes import place_of, rows
from tests.lake.recomputed import (
    Recomputed,
    same_consumers_hours,
    same_events,
    same_messages,
    same_queue_minutes,
    same_totals,
)
from tests.lake.running import Toll, Victim, Victims, wait_for
from tests.report import TOLD
from tests.server import Server

KILLS = int(os.environ.get("KILLS", "2"))
SEED = int(os.environ.get("KILL_SEED", "1"))
TIMEOUT_SECONDS = 600 + 120 * KILLS
# The short form has only this one. In a bucket batches run elsewhere in the process than on a disk.
FIRST = {"disk": "messages: after the commit", "bucket": "before the source commit"}
RANDOM_S_MAX = 3.0
# Between publishing, pulling and settling some: batches are to be many, not large.
PAUSE_S = 0.25
# A batch must end well before a turn does, on the busiest machine, and batches that are killed are
# made again in one: there is little traffic while the lake is this far behind.
SLOW_PAUSE_S = 10 * PAUSE_S
BEHIND_MAX = 3_000
LOOK_EVERY = 10
_COMMIT = re.compile(r"([0-9]{20})\.json")


class Traffic:
    """Publishes, acks and retries without end; goes on when the broker is back."""

    def __init__(self, server: Server, root: str) -> None:
        self._server = server
        self._lake = Lake(root)
        self._place = replace(place_of(server), away_s_max=0)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work)

    def __enter__(self) -> "Traffic":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _work(self) -> None:
        dice, pause_s = random.Random(SEED), PAUSE_S
        for number in itertools.count():
            if number % LOOK_EVERY == 0:
                pause_s = SLOW_PAUSE_S if self._is_far_ahead() else PAUSE_S
            if self._over.wait(pause_s):
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

    def _is_far_ahead(self) -> bool:
        """Of the lake; not known while the broker is away."""
        with suppress(CourierError), Client(self._place) as broker:
            return broker.head().last > archive.last(self._lake.consumers_hours) + BEHIND_MAX
        return True


class Trial:
    """Pipelines on one lake that die, each in its turn."""

    def __init__(self, folder: Path, server: Server, *, root: str, kills: int, first: str) -> None:
        self.home = folder / "home"
        self.home.mkdir()
        self.root = root
        self._kills = kills
        self.toll = Toll()
        self._server = server
        self.gaps: list[archive.Span] = []
        self._dice = random.Random(SEED)
        rest = [point for point in killed.PIPELINE if point != first]
        self._points = itertools.cycle([first, *self._dice.sample(rest, len(rest))])
        self._command = [
            *("tests.lake.killed", str(self.home), "pipeline", "run", "--every", "300ms"),
            *("--master", "local[2]", "--lake", self.root, "--data", str(server.data)),
        ]

    def run(self) -> None:
        """On a lake that has some events already."""
        self._lose_some()
        with Victims(self.home) as victims:
            for turn in range(self._kills):
                with victims.next(*self._command) as victim:
                    self._turn(victim, turn)
                if turn == 0:
                    self._lose_some()

    def _lose_some(self) -> None:
        """As with --accept-gap after the journal was trimmed; here it is kept, to compare with."""
        lake = Lake(self.root)
        after = archive.last(lake.events)
        with Client(place_of(self._server)) as broker:
            wait_for(lambda: broker.head().last > after, lambda: "there is no traffic")
            gap = archive.Span(after, broker.head().last)
        archive.pass_gap(lake.events, gap, pipeline="lake", now=datetime.now(UTC))
        self.gaps.append(gap)

    def _turn(self, victim: Victim, turn: int) -> None:
        point = "" if turn % 4 == 1 else next(self._points)
        alone = turn % 5 == 2
        # In the batch that an earlier victim has left, or later.
        if point and turn % 3 == 2:
            victim.arm(point, alone=alone)
        else:
            before = max(self._commits(), len(Lake(self.root).tables))
            assert victim.until(lambda: self._commits() > before), victim.log()
            if turn % 3 == 1:
                time.sleep(self._dice.random())
                assert victim.runs, victim.log()
                self._server.kill()
                self.toll.broker += 1
            if point:
                victim.arm(point, alone=alone)
            else:
                time.sleep(self._dice.uniform(0, RANDOM_S_MAX))
                assert victim.kill(alone=alone), victim.log()
                self.toll.random += 1
            if not self._server.running:
                self._server.start()
        if point:
            assert victim.dies_at(point), f"not killed at {point}: {victim.log()}"
            self.toll.points[point] = self.toll.points.get(point, 0) + 1
        self.toll.alone += alone

    def _commits(self) -> int:
        """Of all tables; each begins with one, before Spark is there.

        By their numbers: upkeep removes those that are older than an hour, and a long loop takes
        longer.
        """
        return sum(self._commits_of(table) for table in Lake(self.root).tables)

    def _commits_of(self, table: Table) -> int:
        system, log = storage.filesystem(f"{table.uri}/{LOG}")
        found = system.get_file_info(pafs.FileSelector(log, allow_not_found=True))
        numbers = [int(it[1]) for each in found if (it := _COMMIT.fullmatch(each.base_name))]
        return max(numbers, default=-1) + 1


@pytest.mark.timeout(TIMEOUT_SECONDS)
@pytest.mark.parametrize("where", ["disk", "bucket"])
def test_every_event_is_in_the_lake_once_whenever_the_pipeline_dies(
    courier: Commands,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
    where: str,
) -> None:
    in_bucket = where == "bucket"
    root = f"{request.getfixturevalue('bucket')}/killed" if in_bucket else f"{tmp_path}/lake"
    kills = KILLS // 2 if in_bucket else KILLS
    with Server(tmp_path, args=["--sweep-every-ms", "50"]).start() as server:
        with server.client() as http:
            for number in range(3):
                CloudflareClient(http, f"busy-{number}", dead_letter="dead" if number else "")
        trial = Trial(tmp_path, server, root=root, kills=kills, first=FIRST[where])
        once = ("pipeline", "run", "--once", "--master", "local[2]", "--lake", root)
        status, _, said = courier(*once, "--data", str(server.data))
        assert status == 0, said
        with Traffic(server, root):
            trial.run()
        with Client(place_of(server)) as broker:
            head = broker.head()
        status, _, said = courier(*once, "--data", str(server.data))
        assert status == 0, said
        lake = Lake(root)
        upto = archive.last(lake.events)
        # The broker's own sweep may have gone on since.
        assert upto >= head.last
        said = Command("--data", str(server.data))("journal", "--json", "--limit", str(upto)).out
    (tmp_path / "lines").write_text(said)
    again = Recomputed(tmp_path / "lines", [(gap.after + 1, gap.upto) for gap in trial.gaps])
    kinds = Counter(row["kind"] for row in same_events(lake, again))
    assert kinds["acked"] and kinds["retried"] and kinds["lease_expired"], kinds
    same_messages(lake, again)
    # Of the messages of a gap, some were heard of only after a minute was written.
    same_queue_minutes(lake, again, but=("backlog", "oldest_ms"))
    same_consumers_hours(lake, again)
    same_totals(lake, again)
    _only_the_gaps_are_found(rows(lake.audit), upto, trial.gaps)
    record_property(TOLD, f"{where}: {trial.toll}; {upto} events, each in the lake once")
    missing = set(killed.PIPELINE) - set(trial.toll.points)
    assert not missing or sum(trial.toll.points.values()) < len(killed.PIPELINE), missing


def _only_the_gaps_are_found(
    audit: list[dict[str, Any]], upto: int, gaps: list[archive.Span]
) -> None:
    assert max(row["last_offset"] for row in audit) == upto
    assert sum(row["gaps"] for row in audit) == sum(gap.rows for gap in gaps)
    for row in audit:
        # What went on in a gap is not known, so what came after it may look wrong.
        if row["last_offset"] <= gaps[0].after:
            assert not any(row[name] for name in ("difference", *FINDINGS)), row
    spans = sorted({(row["first_offset"], row["last_offset"]) for row in audit})
    assert spans[0][0] == 1
    assert all(first == last + 1 for (_, last), (first, _) in itertools.pairwise(spans)), spans
