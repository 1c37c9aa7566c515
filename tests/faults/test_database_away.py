"""What callers get while the database cannot be used, and that it is used again by itself."""

from collections.abc import Callable
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from tests import postgres
from tests.faults.account import wait_until
from tests.faults.cluster import CUT, Cluster
from tests.server import Server, client_of

pytestmark = pytest.mark.slow


class PlainDatabase(postgres.Database):
    """Servers are a user without special rights, as they should be."""

    def __init__(self) -> None:
        super().__init__("fsync=off")
        self.sql("CREATE ROLE plain LOGIN", "GRANT CREATE ON DATABASE postgres TO plain")

    def url(self, schema: str) -> str:
        return super().url(schema).replace("courier@", "plain@")

    def require_password(self, user: str) -> None:
        super().require_password(user)
        self.sql(CUT)


class PlainCluster(Cluster):
    def _databases(self) -> Any:
        return PlainDatabase()


class Trouble(NamedTuple):
    begin: Callable[[PlainDatabase], object]
    end: Callable[[PlainDatabase], object]
    said: str


def sql(*statements: str) -> Callable[[PlainDatabase], object]:
    return lambda database: database.sql(*statements)


def read_only(value: str) -> Callable[[PlainDatabase], object]:
    """As managed databases do when their disk is nearly full."""
    setting = f"ALTER SYSTEM SET default_transaction_read_only = {value}"
    return sql(setting, "SELECT pg_reload_conf()")


TROUBLES = {
    "stopped": Trouble(
        lambda database: database.stop("immediate"),
        lambda database: database.start(),
        "cannot be reached",
    ),
    "read-only": Trouble(read_only("on"), read_only("off"), "cannot write"),
    "no connection left": Trouble(
        sql("ALTER ROLE plain CONNECTION LIMIT 0", CUT),
        sql("ALTER ROLE plain CONNECTION LIMIT -1"),
        "has no connection left",
    ),
    "another password": Trouble(
        lambda database: database.require_password("plain"),
        lambda database: database.require_password("nobody"),
        "refused the user or the password",
    ),
    "no rights": Trouble(
        sql("REVOKE ALL ON courier.head FROM plain"),
        sql("GRANT ALL ON courier.head TO plain"),
        "the user may not do that",
    ),
}


class Writers:
    """Callers of one server, each through another API, and what is asked by who watches it."""

    def __init__(self, cluster: Cluster, node: Server) -> None:
        own = cluster.credentials
        self._http = client_of(node.url)
        self._names = count()
        self._account = f"/client/v4/accounts/{own['cloudflare']['account_id']}/queues"
        self._keys = f"/courier/v1/tenants/{own['tenant']}/keys"
        self._bearer = {"Authorization": f"Bearer {own['cloudflare']['api_token']}"}
        self._discue = {"X-API-KEY": own["discue"]["api_key"]}
        self._operator = {"Authorization": f"Bearer {own['admin']['token']}"}
        made = self._post(self._account, self._bearer, {"queue_name": "q"}).json()
        self._queue = made["result"]["queue_id"]

    def _post(self, path: str, headers: dict[str, str], body: object) -> httpx.Response:
        return self._http.post(path, headers=headers, json=body)

    def answers(self) -> list[httpx.Response]:
        name = f"name{next(self._names)}"
        key = {"name": name, "scopes": ["queues:read"]}
        messages = f"{self._account}/{self._queue}/messages"
        return [
            self._post(messages, self._bearer, {"body": name, "content_type": "text"}),
            self._post("/v1/queues", self._discue, {"alias": name}),
            self._post(self._keys, self._operator, key),
            self._http.get("/ready"),
        ]

    def looked(self) -> httpx.Response:
        return self._http.get("/courier/v1/tenants", headers=self._operator)

    def close(self) -> None:
        self._http.close()


@pytest.mark.parametrize("name", TROUBLES)
def test_callers_get_503_with_retry_after_and_then_are_served_again(
    name: str, tmp_path: Path
) -> None:
    trouble = TROUBLES[name]
    with PlainCluster(tmp_path, seed=0) as cluster:
        node = cluster.nodes[0].start()
        with closing(Writers(cluster, node)) as writers:
            assert [answer.text for answer in writers.answers() if not answer.is_success] == []
            trouble.begin(cluster.database)
            wait_until(
                lambda: {answer.status_code for answer in writers.answers()} == {503},
                "it serves on",
            )
            refused = writers.answers()
            assert [int(answer.headers["retry-after"]) > 0 for answer in refused] == [True] * 4
            # What can still be read is; otherwise what was known is good for a second.
            if name != "read-only":
                wait_until(lambda: writers.looked().status_code == 503, "it believes what it knew")
                refused.append(writers.looked())
            for answer in refused[2:]:
                assert trouble.said in answer.text and r"\n" not in answer.text, answer.text
            assert httpx.get(f"{node.url}/health", trust_env=False).status_code == 200
            trouble.end(cluster.database)
            wait_until(
                lambda: all(answer.is_success for answer in writers.answers()), "it stays away"
            )
        assert "Traceback" not in cluster.log()
