"""A new listener is fed from the lake and the broker: with everything once, and only it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from pyspark.sql import SparkSession

from courier.lake import backfill, replay
from courier.lake.catalog import Lake
from courier.lake.replay import Asked, Chosen
from tests.clients.cloudflare import CloudflareClient
from tests.delivery import receiver as answers
from tests.delivery.listeners.organization import PushQueue, organization_of
from tests.delivery.receiver import Receiver
from tests.lake.brokers import options
from tests.lake.cluster import CONNECT_PYTHON, connect
from tests.lake.lakes import ARGS, bring, place_of
from tests.lake.running import RUN_S_MAX, running
from tests.server import Server

GONE = [f"gone {n}" for n in range(4)]
KEPT = ["kept 0"]
LIVE = ["live 0", "live 1"]


class Scene:
    """A queue with an old listener that still owes one message, and a new listener."""

    def __init__(
        self, spark: SparkSession, server: Server, http: httpx.Client, queue: PushQueue
    ) -> None:
        self.spark = spark
        self.server = server
        self.queue = queue
        self.receiver = queue.organization.receiver
        self.old = queue.listen("/old")
        self.pullers = CloudflareClient(http, queue.name)
        self._end(GONE)
        for each in [queue.add(body) for body in LIVE]:
            self.old.wait(each, "acknowledged")
        self.receiver.on("/old", answers.retry_after("3600"))
        self._keep()
        self.new = queue.listen("/new")
        self.lake: Lake = bring(spark, server, server.data / "lake")

    def _end(self, bodies: list[str]) -> None:
        """The listener takes them, and so do pullers."""
        for body in bodies:
            self.old.wait(self.queue.add(body), "acknowledged")
        leases = [each.lease for each in self.pullers.pull(len(bodies))]
        assert self.pullers.ack(leases) == len(bodies)

    def _keep(self) -> None:
        """Pullers are done with it, the listener is not."""
        for body in KEPT:
            self.queue.add(body)
        self.receiver.wait("/old", len(GONE) + len(LIVE) + len(KEPT))
        taken = {each.body: each.lease for each in self.pullers.pull(10)}
        leases = [lease for body, lease in taken.items() if any(kept in body for kept in KEPT)]
        assert self.pullers.ack(leases) == len(KEPT)
        for lease in taken.values():
            if lease not in leases:
                self.pullers.retry(lease)

    def answered(self) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {self.server.credentials['admin']['token']}"}
        path = f"/courier/v1/tenants/default/queues/{self.queue.name}/listeners"
        answer = httpx.get(self.server.url + path, headers=headers, trust_env=False)
        found: dict[str, Any] = answer.json()
        return found

    def listeners(self) -> list[backfill.QueueListener]:
        return [
            backfill.QueueListener(
                each["id"],
                each["created_ms"],
                owes=bool(each["open"] or each["in_flight"] or each["missed"]),
            )
            for each in self.answered()["listeners"]
        ]

    def choose(self, *, where: str = "") -> tuple[Chosen, int]:
        listeners = self.listeners()
        wanted = Asked(queue=self.queue.name, listener=listeners[-1].id, where=where)
        return backfill.choose(
            self.spark,
            self.lake,
            place_of(self.server),
            wanted,
            tenant=self.server.credentials["cloudflare"]["account_id"],
            listeners=listeners,
            retention_ms=self.answered()["retention_ms"],
            replay_id="look",
            now_ms=replay.now_ms(),
        )

    def got(self, place: str) -> list[str]:
        """Which of the messages came to a place, sorted; as often as they came."""
        bodies = self.receiver.bodies(place)
        return sorted(each for each in (*GONE, *KEPT, *LIVE) for body in bodies if each in body)


@pytest.fixture(scope="module")
def scene(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with (
        Receiver() as receiver,
        Server(tmp_path_factory.mktemp("backfill"), args=ARGS).start() as server,
        organization_of(server, receiver) as organization,
        server.client() as http,
    ):
        yield Scene(spark, server, http, organization.queue())


def bodies(chosen: Chosen) -> list[str]:
    return sorted(bytes(row["body"]).decode() for row in chosen.rows.collect())


def test_only_what_is_over_for_good_is_taken_from_the_lake(scene: Scene) -> None:
    chosen, doubtful = scene.choose()
    assert bodies(chosen) == GONE
    assert doubtful == len(KEPT)
    some, _ = scene.choose(where="body in ('gone 2', 'live 0', 'kept 0')")
    assert bodies(some) == ["gone 2"]


def test_a_new_listener_gets_everything_once_and_nobody_else_does(
    scene: Scene, tmp_path: Path
) -> None:
    before = scene.got("/old")
    words = f"lake backfill-listener --queue {scene.queue.name} --listener {scene.new.name}"
    log = tmp_path / "backfill.log"
    with (
        connect(scene.spark) as remote,
        running(scene.server, f"{words} --remote {remote}", log, CONNECT_PYTHON) as command,
    ):
        assert command.wait(RUN_S_MAX) == 0, log.read_text()
    told = log.read_text()
    assert "1 message left out" in told
    assert f"{len(GONE)} messages published to '{scene.queue.name}'" in told
    assert f"{len([*KEPT, *LIVE])} messages that the queue still holds will be pushed too" in told
    everything = sorted([*GONE, *KEPT, *LIVE])
    scene.receiver.wait("/new", len(everything), seconds=RUN_S_MAX)
    # Whatever came twice would have come by now: the second time is no later than the next.
    last = scene.queue.add("last")
    scene.new.wait(last, "acknowledged")
    assert scene.got("/new") == everything
    assert scene.got("/old") == before
    assert scene.pullers.backlog() == len([*LIVE, "last"])


def test_what_was_sent_is_not_sent_again(scene: Scene) -> None:
    chosen, _ = scene.choose()
    assert bodies(chosen) == []


def test_rows_of_any_job_can_be_published_for_one_listener(scene: Scene) -> None:
    before, backlog = scene.got("/old"), scene.pullers.backlog()
    arrived = len(scene.receiver.bodies("/new"))
    rows = scene.spark.range(0, 3, 1, 2).selectExpr("concat('own ', id) as body")
    asked = {"queue": scene.queue.name, "listener": scene.listeners()[-1].id, "writeId": "own"}
    for _ in range(2):
        writer = rows.write.format("courier").options(**options(scene.server, **asked))
        writer.mode("append").save()
    scene.receiver.wait("/new", arrived + 3, seconds=RUN_S_MAX)
    last = scene.queue.add("last of all")
    scene.new.wait(last, "acknowledged")
    came = [str(body) for body in scene.receiver.bodies("/new")[arrived:]]
    assert sum("last of all" in body for body in came) == 1 and len(came) == 4
    for n in range(3):
        assert sum(f"own {n}" in body for body in came) == 1
    assert scene.got("/old") == before
    assert scene.pullers.backlog() == backlog + 1
