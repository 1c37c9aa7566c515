"""Listeners and worker consumers of two servers: one serves each, and another takes over."""

import os
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.delivery.receiver import Receiver
from tests.faults.account import wait_until
from tests.faults.cluster import Cluster
from tests.faults.connection import Connection
from tests.faults.push_crew import KeyChannel
from tests.faults.test_kill_push import (
    CATCH_UP_SECONDS,
    PUBLISHERS,
    SETTINGS,
    PushTrial,
    deliver,
)
from tests.faults.trial import KILLS, SEED, TIMEOUT_SECONDS
from tests.server import Server

pytestmark = pytest.mark.slow

PARTS = 16
# Leases of duties last five seconds, and are asked for every second; the rest is for a busy
# machine.
TAKEN_OVER_SECONDS_MAX = 45.0


class ClusterPushTrial(PushTrial):
    kills = KILLS if "KILLS" in os.environ else 3


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


@pytest.mark.timeout(TIMEOUT_SECONDS + CATCH_UP_SECONDS)
def test_every_message_arrives_at_every_listener_though_servers_and_database_are_killed(
    tmp_path: Path, receiver: Receiver, capsys: pytest.CaptureFixture[str]
) -> None:
    with Cluster(tmp_path, seed=SEED, env=SETTINGS).start() as cluster:
        trial = ClusterPushTrial(cluster, receiver)
        publishers = [trial.publisher(number) for number in range(PUBLISHERS)]
        deliver(trial, publishers, capsys)


class Scene:
    """A queue with a listener and another with a worker consumer, on two servers."""

    def __init__(self, cluster: Cluster, receiver: Receiver) -> None:
        self.cluster = cluster
        self.receiver = receiver
        self.published = 0
        with closing(KeyChannel(cluster)) as discue:
            made = discue.ask("POST", "/queues", {"name": "pushed"})
            self.pushed = made["queue"]["id"]
            listener = {
                "name": "hook",
                "notify_url": receiver.url("/hook"),
                "liveness_url": receiver.url("/live"),
                "timeout_ms": 10_000,  # one that was too late would come twice
            }
            discue.ask("POST", f"/queues/{self.pushed}/listeners", listener)
        self.operate("PUT", "/tenants/default/workers/script", {"url": receiver.url("/script")})
        with closing(Connection(cluster)) as account:
            self.batched = account.ask("POST", "/queues", {"queue_name": "batched"})["queue_id"]
            settings = {"batch_size": 1, "max_wait_time_ms": 0}
            consumer = {"type": "worker", "script_name": "script", "settings": settings}
            account.ask("POST", f"/queues/{self.batched}/consumers", consumer)

    def operate(self, method: str, path: str, body: Any = None) -> str:
        node = next(node for node in self.cluster.nodes if node.running)
        token = self.cluster.credentials["admin"]["token"]
        headers = {"Authorization": f"Bearer {token}"}
        url = f"{node.url}/courier/v1{path}"
        answer = httpx.request(method, url, json=body, headers=headers, trust_env=False, timeout=30)
        assert answer.status_code == 200, answer.text
        return answer.text

    def share(self) -> list[int]:
        """How many parts of listeners and of workers each server has."""
        found = self.cluster.database.sql(
            "SELECT count(*) FROM courier.duty WHERE until > clock_timestamp() "
            "AND name ~ '/' GROUP BY token, split_part(name, '/', 1)"
        )
        return [int(count) for count in found.split()]

    def wait_for_shares(self, servers: int) -> None:
        parts = [PARTS // servers] * 2 * servers
        wait_until(lambda: self.share() == parts, f"not shared by {servers}: {self.share()}")

    def publish(self, count: int) -> None:
        """As many to each queue, by turns over both servers; until all have arrived."""
        for _ in range(count):
            self.published += 1
            with closing(KeyChannel(self.cluster)) as discue:
                path = f"/queues/{self.pushed}/messages"
                discue.ask("POST", path, {"data": f"m{self.published}"})
            with closing(Connection(self.cluster)) as account:
                message = {"body": f"m{self.published}", "content_type": "text"}
                account.ask("POST", f"/queues/{self.batched}/messages", message)
        for place in ("/hook", "/script"):
            self.receiver.wait(place, self.published, seconds=TAKEN_OVER_SECONDS_MAX)

    def noted(self, count: int, *nodes: Server) -> dict[Server, tuple[int, int]]:
        """What each server has sent, once that is so many pushes and batches in all."""

        def counts() -> dict[Server, tuple[int, int]]:
            return {node: self.counts(node) for node in nodes}

        def all_counted() -> bool:
            pushes, batches = zip(*counts().values(), strict=True)
            return bool(sum(pushes) >= count and sum(batches) >= count)

        wait_until(all_counted, "not all are noted")
        return counts()

    def arrived(self) -> tuple[list[str], list[str]]:
        """What came to the listener and to the worker, sorted."""
        batches = "".join(self.receiver.bodies("/script"))
        found = re.findall(r'"body": ?"(m\d+)"', batches)
        return sorted(self.receiver.bodies("/hook")), sorted(found)

    def counts(self, node: Server) -> tuple[int, int]:
        """How many pushes and batches a server has made."""
        token = self.cluster.credentials["admin"]["token"]
        headers = {"Authorization": f"Bearer {token}"}
        page = httpx.get(f"{node.url}/metrics", headers=headers, trust_env=False, timeout=30).text
        names = (
            r'courier_pushes_total{outcome="taken"}',
            r'courier_worker_batches_total{outcome="done"}',
        )
        found = [re.search(rf"^{re.escape(name)} (\S+)$", page, re.MULTILINE) for name in names]
        assert all(found), page
        return int(float(found[0][1])), int(float(found[1][1]))  # type: ignore[index]


def test_one_server_serves_a_listener_or_consumer_and_another_takes_over_from_the_dead(
    tmp_path: Path, receiver: Receiver
) -> None:
    with Cluster(tmp_path, seed=SEED, env=SETTINGS).start() as cluster:
        scene = Scene(cluster, receiver)
        scene.wait_for_shares(2)
        scene.publish(20)
        counts = scene.noted(20, *cluster.nodes)
        pushes, batches = zip(*counts.values(), strict=True)
        assert sorted(pushes) == sorted(batches) == [0, 20]
        # The one that pushes dies; what it served goes on, and what the other served too.
        [dead] = [node for node, (pushed, _) in counts.items() if pushed]
        [living] = [node for node in cluster.nodes if node is not dead]
        dead.kill()
        scene.publish(20)
        before = counts[living]
        [(pushed, sent)] = scene.noted(20, living).values()
        assert (pushed, sent - before[1]) == (20, 20)
        scene.wait_for_shares(1)
        # A server that comes back gets its part again, and nothing is sent twice on the way.
        dead.start()
        scene.publish(20)
        scene.wait_for_shares(2)
        scene.publish(20)
        every = sorted(f"m{number}" for number in range(1, scene.published + 1))
        assert scene.arrived() == (every, every)
        assert "Traceback" not in cluster.log()
