"""What callers of a server get while its database is away, and that it comes back by itself."""

from pathlib import Path

import httpx
import pytest

from tests.faults.account import wait_until
from tests.faults.cluster import Cluster

pytestmark = pytest.mark.slow


def test_callers_get_503_with_retry_after_and_then_are_served_again(tmp_path: Path) -> None:
    with Cluster(tmp_path, seed=0) as cluster:
        node = cluster.nodes[0].start()
        own = cluster.credentials
        places = {
            f"/client/v4/accounts/{own['cloudflare']['account_id']}/queues": {
                "Authorization": f"Bearer {own['cloudflare']['api_token']}"
            },
            "/v1/queues": {"X-API-KEY": own["discue"]["api_key"]},
            "/courier/v1/tenants": {"Authorization": f"Bearer {own['admin']['token']}"},
            "/ready": {},
        }

        def answers() -> list[httpx.Response]:
            return [
                httpx.get(f"{node.url}{path}", headers=headers, timeout=30, trust_env=False)
                for path, headers in places.items()
            ]

        assert [answer.status_code for answer in answers()] == [200] * 4
        cluster.database.stop("immediate")
        wait_until(lambda: all(a.status_code == 503 for a in answers()), "it serves on")
        assert [int(answer.headers["retry-after"]) > 0 for answer in answers()] == [True] * 4
        assert all("cannot be reached" in answer.text for answer in answers()[2:])
        assert httpx.get(f"{node.url}/health", trust_env=False).status_code == 200
        cluster.database.start()
        wait_until(lambda: all(a.status_code == 200 for a in answers()), "it stays away")
        assert "Traceback" not in cluster.log()
