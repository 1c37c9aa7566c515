"""What a server knew before it stopped, it knows when it is back."""

import os
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.faults.account import (
    SUBSCRIPTIONS,
    backlog,
    bodies,
    create_queue,
    publish,
    pull,
    result,
    settle,
    wait_until,
)
from tests.faults.stories import Again, Ends, Stories, Story, Tenant
from tests.server import Server, account_client

pytestmark = pytest.mark.slow

story = Stories()


@story
def lease_is_kept(tenant: Tenant) -> Story:
    with tenant.client() as client:
        path = create_queue(client)
        publish(client, path, "mine", "free")
        mine = pull(client, path, count=1)
        assert bodies(mine) == ["mine"]
    yield
    with tenant.client() as client:
        assert bodies(pull(client, path)) == ["free"]
        lease = {"lease_id": mine[0]["lease_id"]}
        assert settle(client, path, acks=[lease])["ackCount"] == 1
        assert backlog(client, path) == 1


@story
def settings_are_kept(tenant: Tenant) -> Story:
    with tenant.client() as client:
        settings = {"delivery_delay": 7, "delivery_paused": True, "message_retention_period": 90}
        asked = {"queue_name": "kept", "jurisdiction": "eu", "settings": settings}
        queue = result(client.post("/queues", json=asked))["queue_id"]
        path = f"/queues/{queue}"
        consumer = {
            "type": "http_pull",
            "dead_letter_queue": "kept-dead",
            "settings": {
                "batch_size": 9,
                "max_retries": 8,
                "retry_delay": 7,
                "visibility_timeout_ms": 6_000,
            },
        }
        result(client.post(f"{path}/consumers", json=consumer))
        worker = result(client.post("/queues", json={"queue_name": "pushed"}))["queue_id"]
        asked = {"type": "worker", "script_name": "script", "settings": {"max_concurrency": 3}}
        result(client.post(f"/queues/{worker}/consumers", json=asked))
        for enabled, source in ((True, "kv"), (False, "r2")):
            subscription = {
                "name": f"from {source}",
                "enabled": enabled,
                "source": {"type": source},
                "events": ["namespace.created"] if source == "kv" else ["bucket.created"],
                "destination": {"type": "queues.queue", "queue_id": queue},
            }
            result(client.post(SUBSCRIPTIONS, json=subscription))
        result(client.patch(path, json={"queue_name": "renamed"}))
        pages = ("/queues", path, f"{path}/consumers", f"{path}/purge", SUBSCRIPTIONS)
        before = [result(client.get(page)) for page in pages]
    yield
    with tenant.client() as client:
        assert [result(client.get(page)) for page in pages] == before
        assert client.post(f"{path}/messages/pull", json={}).status_code == 409


def test_purge_broken_off_in_the_middle_is_finished(fresh_server: Server) -> None:
    with fresh_server.client() as client:
        path = create_queue(client)
        for start in range(0, 3_000, 100):
            publish(client, path, *(f"old-{number}" for number in range(start, start + 100)))
        with ThreadPoolExecutor(1) as pool:
            purge = pool.submit(client.post, f"{path}/purge", json={})
            time.sleep(0.01)
            fresh_server.kill()
            answered = purge.exception() is None
    fresh_server.start()
    with fresh_server.client() as client:
        if answered or result(client.get(f"{path}/purge"))["started_at"]:

            def is_over() -> bool:
                # The last messages go before it is noted that they have gone.
                return bool(result(client.get(f"{path}/purge"))["completed"] == "true")

            wait_until(is_over, "the purge is forgotten")
            assert backlog(client, path) == 0
        else:
            assert backlog(client, path) == 3_000


@story
def tenants_and_keys_are_kept(tenant: Tenant) -> Story:
    with tenant.server.operator() as client:
        keys = "/tenants/default/keys"
        made = [
            client.post(keys, json={"name": name, "scopes": ["read"]}).json()
            for name in ("kept", "dropped")
        ]
        assert client.delete(f"{keys}/{made[1]['key']['id']}").is_success
        second = client.post("/tenants", json={"name": "second"}).json()["credentials"]
    yield
    with tenant.server.client() as client:
        for key, status in zip(made, (200, 403), strict=True):
            token = {"Authorization": f"Bearer {key['token']}"}
            assert client.get("/queues", headers=token).status_code == status
    with account_client(tenant.server.credentials, token=made[0]["token"]) as client:
        assert client.post("/queues", json={"queue_name": "x"}).status_code == 403
    with account_client(second) as client:
        assert result(client.get("/queues")) == []


def test_torn_end_of_the_write_ahead_log_costs_nothing_answered(fresh_server: Server) -> None:
    """Power can go in the middle of a write; what was answered lies before it."""
    with fresh_server.client() as client:
        path = create_queue(client)
        publish(client, path, *(f"kept-{number}" for number in range(100)))
    fresh_server.kill()
    logs = list(fresh_server.data.rglob("*-wal"))
    assert logs
    for log in logs:
        with log.open("ab") as file:
            file.write(os.urandom(10_000))
    fresh_server.start()
    with fresh_server.client() as client:
        assert len(pull(client, path)) == 100
        publish(client, path, "more")
        assert bodies(pull(client, path)) == ["more"]


# --- what ends while the server is away -------------------------------------------------------


@story
def lease_that_ends_while_the_server_is_away_is_over(tenant: Tenant) -> Story:
    with tenant.client() as client:
        path = create_queue(client)
        publish(client, path, "mine")
        assert pull(client, path, lease_ms=200)
    yield
    with tenant.client() as client:
        found: list[dict[str, Any]] = []

        def pulled() -> bool:
            found.extend(pull(client, path))
            return bool(found)

        wait_until(pulled, "the lease never ends")
        assert [message["attempts"] for message in found] == [2]


# --- all of them ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ends(storied_server: Server, again: Again) -> Ends:
    return story.tell(storied_server, again)


@pytest.mark.parametrize("name", story.names)
def test_what_a_server_knew_it_knows_when_it_is_back(ends: Ends, name: str) -> None:
    if error := ends[name]:
        raise error
