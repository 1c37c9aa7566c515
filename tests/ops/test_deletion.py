"""Deleting a tenant with much in it: killed half-way, nothing of it answers, and it can go on."""

import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.server import Server
from tests.wire.anypoint.environment import ADMIN, BROKER, Tokens, bearer, root_client

pytestmark = pytest.mark.slow

QUEUES = 1_000
# After the first refusal; None: at once, before anything else is asked, which is half-way.
KILL_AFTER_S = (None, None, 0.0, 0.01)


class Doomed:
    """A tenant of the default tenant's organization, and all ways to call it."""

    def __init__(self, http: httpx.Client, given: dict[str, Any], name: str) -> None:
        self._http = http
        self.operator = bearer(given["admin"]["token"])
        self.name = name
        made = http.post(
            "/courier/v1/tenants",
            json={"name": name, "beside": "default"},
            headers=self.operator,
        )
        owned = made.raise_for_status().json()["credentials"]
        cloudflare, anypoint = owned["cloudflare"], owned["anypoint"]
        own, others = Tokens.of(http, anypoint), Tokens.of(http, given["anypoint"])
        place = (
            f"/organizations/{anypoint['organization_id']}"
            f"/environments/{anypoint['environment_id']}"
        )
        queues = f"{ADMIN}{place}/regions/{anypoint['region']}/destinations"
        messages = f"{BROKER}{place}/destinations/q0/messages?pollingTime=0"
        token = bearer(cloudflare["api_token"])
        self._list = f"/client/v4/accounts/{cloudflare['account_id']}/queues"
        self._calls = {
            "token": (self._list, token),
            "API key": ("/v1/queues", {"x-api-key": owned["discue"]["api_key"]}),
            "app": (messages, bearer(own.app)),
            "connected app": (queues, bearer(own.connected_app)),
            "user": (queues, bearer(own.user)),
            "user of another tenant of the organization": (queues, bearer(others.user)),
        }
        for number in range(QUEUES):
            http.post(self._list, json={"queue_name": f"q{number}"}, headers=token)

    def answered(self) -> dict[str, int]:
        """Which calls are let in, with their status."""
        statuses = {
            what: self._http.get(path, headers=headers).status_code
            for what, (path, headers) in self._calls.items()
        }
        return {what: status for what, status in statuses.items() if status < 400}

    def await_refusal(self) -> None:
        """By the call that is answered soonest."""
        path, headers = self._calls["app"]
        while self._http.get(path, headers=headers).status_code < 400:
            pass

    def delete(self) -> int:
        path = f"/courier/v1/tenants/{self.name}"
        return self._http.delete(path, headers=self.operator).status_code

    def listed(self) -> bool:
        known = self._http.get("/courier/v1/tenants", headers=self.operator).json()["tenants"]
        return self.name in [tenant["name"] for tenant in known]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("deleting")).start() as server:
        yield server


@pytest.mark.timeout(300)
def test_nothing_of_a_tenant_answers_once_its_deletion_has_begun(server: Server) -> None:
    half_way = []
    for number, after_s in enumerate(KILL_AFTER_S):
        with root_client(server.url) as http:
            doomed = Doomed(http, server.credentials, f"doomed-{number}")
            assert len(doomed.answered()) == len(doomed._calls), "all are good before"

            def delete(doomed: Doomed = doomed) -> None:
                with suppress(httpx.HTTPError):
                    doomed.delete()

            deleting = threading.Thread(target=delete)
            deleting.start()
            doomed.await_refusal()
            if after_s is not None:
                answered = doomed.answered()
                assert not answered, f"{answered} were let in after another was not"
                time.sleep(after_s)
            server.kill()
            deleting.join()
        server.start()
        with root_client(server.url) as http:
            doomed._http = http
            assert doomed.answered() == {}
            half_way.append(doomed.listed())
            assert doomed.delete() == (200 if half_way[-1] else 404)
            assert doomed.answered() == {}
            assert not doomed.listed()
            assert doomed.delete() == 404
            metrics = http.get("/metrics", headers=doomed.operator).text
            assert doomed.name not in metrics
    assert any(half_way), "no kill was early enough"


def test_who_was_let_in_before_a_deletion_leaves_nothing_behind(tmp_path: Path) -> None:
    """Requests for new queues that wait while the tenant is deleted are refused."""
    with Server(tmp_path).start() as server, root_client(server.url) as http:
        doomed = Doomed(http, server.credentials, "doomed")
        path, headers = doomed._calls["token"]
        statuses: list[int] = []

        def create(first: int) -> None:
            with root_client(server.url) as own:
                for number in range(200):
                    body = {"queue_name": f"late-{first}-{number}"}
                    answer = own.post(path, json=body, headers=headers)
                    statuses.append(answer.status_code)

        creators = [threading.Thread(target=create, args=(first,)) for first in range(8)]
        for creator in creators:
            creator.start()
        assert doomed.delete() == 200
        for creator in creators:
            creator.join()
        assert not any(status >= 500 for status in statuses)
        made = 200 in statuses
        events = http.get("/journal?limit=100000", headers=doomed.operator).text.splitlines()
        created = sum('"queue_created"' in line for line in events)
        deleted = sum('"queue_deleted"' in line for line in events)
        assert created == deleted, f"{created} created, {deleted} deleted; some late: {made}"
