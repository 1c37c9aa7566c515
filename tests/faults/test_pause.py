"""A server that was stopped for a while and goes on does not act on what it has lost meanwhile."""

import os
import signal
import time
from pathlib import Path

import httpx
import pytest

from tests import postgres
from tests.faults.account import wait_until
from tests.faults.cluster import Cluster
from tests.server import Server, client_of

pytestmark = pytest.mark.slow

DUTIES = 5
# A soak run lets it sleep for a minute; at least until another has taken over.
PAUSE_SECONDS = float(os.environ.get("PAUSE_SECONDS", "0"))
OPEN_SECONDS_MAX = 60.0


def operate(
    cluster: Cluster, node: Server, method: str, path: str, **more: object
) -> httpx.Response:
    url, token = f"{node.url}/courier/v1", cluster.credentials["admin"]["token"]
    with client_of(url, token, timeout=OPEN_SECONDS_MAX) as client:
        return client.request(method, path, **more)  # type: ignore[arg-type]


def status(cluster: Cluster, node: Server, token: str) -> int:
    account = cluster.credentials["cloudflare"]["account_id"]
    url = f"{node.url}/client/v4/accounts/{account}/queues"
    headers = {"Authorization": f"Bearer {token}"}
    return httpx.get(url, headers=headers, trust_env=False, timeout=OPEN_SECONDS_MAX).status_code


def test_a_server_that_slept_in_the_middle_of_a_group_acts_on_nothing_it_lost(
    tmp_path: Path,
) -> None:
    """It stops while its sweep waits for its turn, so that it wakes up with a sweep to finish."""
    with Cluster(tmp_path, seed=0) as cluster:
        asleep, awake = cluster.nodes
        asleep.start()
        database = cluster.database

        def holders() -> list[str]:
            # Parts of what servers share are for those who wake up, too.
            live = "SELECT token FROM courier.duty WHERE until > clock_timestamp() AND name !~ '/'"
            found: str = database.sql(live)
            return found.split()

        wait_until(lambda: len(holders()) >= DUTIES - 1, "no duties")
        first = set(holders())
        assert len(first) == 1
        path = f"/tenants/{cluster.credentials['tenant']}/keys"
        asked = {"name": "soon-gone", "scopes": ["queues:read"]}
        answer = operate(cluster, asleep, "POST", path, json=asked)
        assert answer.status_code < 300, answer.text
        made = answer.json()
        assert status(cluster, asleep, made["token"]) == 200
        # Nobody's group goes on as long as this is open.
        lock = postgres.OpenTransaction(database, "SELECT FROM courier.head FOR UPDATE")
        waits = (
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' "
            "AND application_name = 'courier'"
        )
        wait_until(lambda: int(database.sql(waits)) >= 1, "nobody waits for a turn")
        os.kill(asleep.pid, signal.SIGSTOP)
        lock.end()
        awake.start()
        # The database ends the open group of the one that sleeps, and the other goes on.
        deadline = time.monotonic() + OPEN_SECONDS_MAX
        while not holders() or set(holders()) & first:
            assert time.monotonic() < deadline, "nobody takes over"
            time.sleep(0.2)
        time.sleep(PAUSE_SECONDS)
        gone = operate(cluster, awake, "DELETE", f"{path}/{made['key']['id']}")
        assert gone.status_code < 300, gone.text
        os.kill(asleep.pid, signal.SIGCONT)
        assert status(cluster, asleep, made["token"]) in (401, 403)
        wait_until(lambda: "duty_lost" in asleep.log(), "it does not know what it has lost")
        assert operate(cluster, asleep, "GET", path).status_code == 200
        assert not set(holders()) & first
        assert "Traceback" not in cluster.log()
