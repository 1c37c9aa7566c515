"""Callers of two servers on one database: what one is told, the other knows."""

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from tests.faults.cluster import Cluster
from tests.faults.environment import Environment
from tests.report import TOLD
from tests.server import Server

# A soak run asks for more.
CHANGES = int(os.environ.get("SETTINGS_CHANGES", "30"))
POLLS = 200
WAIT_MS = 20_000
WAIT_MS_P99_MAX = 50.0
# After this long the request of a caller who waits has surely arrived.
ASKED_S = 0.05


def environment(cluster: Cluster, node: Server) -> Environment:
    return Environment(node, cluster.credentials["anypoint"])


@pytest.mark.slow
def test_settings_changed_on_one_server_are_obeyed_by_the_other_at_once(tmp_path: Path) -> None:
    """An answer means that every server knows: the next request may go to any of them."""
    with (
        Cluster(tmp_path, seed=0).start() as cluster,
        closing(environment(cluster, cluster.nodes[0])) as one,
        closing(environment(cluster, cluster.nodes[1])) as two,
    ):
        seen = 0
        for number in range(CHANGES):
            changer, other = (one, two) if number % 2 else (two, one)
            changer.create_queue("obeyed", defaultTtl=60_000 + number)
            found = other.admin("GET", "/destinations/queues/obeyed")
            seen += found["defaultTtl"] == 60_000 + number
        assert seen == CHANGES


@pytest.mark.quiet
def test_a_caller_who_waits_on_one_server_soon_gets_what_the_other_is_sent(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """Counted from the publisher's answer on."""
    with (
        Cluster(tmp_path, seed=0).start() as cluster,
        closing(environment(cluster, cluster.nodes[0])) as one,
        closing(environment(cluster, cluster.nodes[1])) as two,
        ThreadPoolExecutor(1) as pool,
    ):
        one.create_queue("awaited")

        def wait() -> tuple[list[str], float]:
            found = one.get("awaited", count=1, wait_ms=WAIT_MS)
            return [each["body"] for each in found], time.monotonic()

        waits_s = []
        for number in range(POLLS):
            waiting = pool.submit(wait)
            time.sleep(ASKED_S)
            two.publish("awaited", f"m{number}")
            answered_s = time.monotonic()
            bodies, got_s = waiting.result()
            assert bodies == [f"m{number}"]
            waits_s.append(got_s - answered_s)
    waits_s.sort()
    p50_ms, p99_ms = (1_000 * waits_s[int(part * POLLS)] for part in (0.5, 0.99))
    record_property(TOLD, f"{POLLS} long polls, {p50_ms:.1f} ms p50, {p99_ms:.1f} ms p99")
    assert p99_ms <= WAIT_MS_P99_MAX


@pytest.mark.slow
def test_what_servers_share_is_in_the_metrics_of_one_of_them(tmp_path: Path) -> None:
    with Cluster(tmp_path, seed=0).start() as cluster:
        with closing(environment(cluster, cluster.nodes[0])) as one:
            one.create_queue("counted")
        headers = {"Authorization": f"Bearer {cluster.credentials['admin']['token']}"}
        pages = [
            httpx.get(f"{node.url}/metrics", headers=headers, trust_env=False, timeout=30).text
            for node in cluster.nodes
        ]
    for shared in ("courier_backlog_messages{", "courier_journal_last_offset "):
        assert sorted(f"\n{shared}" in page for page in pages) == [False, True], shared
    for own in ("courier_store_commits_total ", "courier_database_clock_offset_seconds "):
        assert all(f"\n{own}" in page for page in pages), own
