"""What an answer promised holds after the server was stopped or lost."""

import pytest

from tests.server import Server
from tests.wire.cloudflare.account import account_client
from tests.wire.cloudflare.envelope import ok
from tests.wire.cloudflare.queue import Queue

SUBSCRIPTIONS = "/event_subscriptions/subscriptions"


@pytest.mark.parametrize("end", ["stopped", "killed"])
def test_everything_answered_is_there_after_a_restart(fresh_server: Server, end: str) -> None:
    with account_client(fresh_server.credentials) as http:
        queue = Queue.create(http, jurisdiction="eu", settings={"message_retention_period": 3600})
        queue.consume(dead_letter_queue="the-dead", max_retries=1)
        body = {
            "source": {"type": "kv"},
            "events": ["namespace.created"],
            "destination": {"type": "queues.queue", "queue_id": queue.id},
        }
        subscription = ok(http.post(SUBSCRIPTIONS, json=body))
        queue.push_texts(["acked", "leased", "late", "waiting"])
        acked, leased, late = queue.pull(batch_size=3)
        queue.settle(acks=[acked["lease_id"]])
        ref = queue.peek()[0]["ref"]
        before, metrics = queue.get(), queue.metrics()

    if end == "killed":
        fresh_server.kill()
    fresh_server.restart()

    with account_client(fresh_server.credentials) as http:
        queue = Queue(http, queue.id, queue.name)
        assert queue.get() == before
        assert queue.metrics() == metrics
        assert ok(http.get(f"{SUBSCRIPTIONS}/{subscription['id']}")) == subscription
        # Leases hold: what was leased is still hidden, and is settled with the old lease.
        waiting = queue.pull_one()
        assert (waiting["body"], waiting["attempts"]) == ("waiting", 1)
        result = queue.settle(
            acks=[leased["lease_id"], acked["lease_id"]], retries=[late["lease_id"]]
        )
        assert (result["ackCount"], result["retryCount"]) == (1, 1)
        assert set(result["warnings"]) == {acked["lease_id"]}
        again = queue.pull_one()
        assert (again["id"], again["attempts"]) == (late["id"], 2)
        removed = ok(queue.post("/messages/purge", {"refs": [{"ref": ref}]}))
        assert removed["warnings"] == {}
        assert queue.backlog() == 1
