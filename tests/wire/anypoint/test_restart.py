"""What an answer promised holds after the server was stopped or lost."""

import pytest

from tests.server import Server
from tests.wire.anypoint.answers import fail, ok
from tests.wire.anypoint.destination import Exchange, Queue, bodies
from tests.wire.anypoint.environment import GRANT, Environment, root_client


@pytest.mark.parametrize("end", ["stopped", "killed"])
def test_everything_answered_is_there_after_a_restart(fresh_server: Server, end: str) -> None:
    with root_client(fresh_server.url) as http:
        env = Environment.of(http, fresh_server.credentials)
        dead = Queue.create(env)
        queue = Queue.create(env, deadLetterQueueId=dead.name, maxDeliveries=3, encrypted=True)
        exchange = Exchange.create(env)
        exchange.bind(queue)
        exchange.publish("acked", id="1")
        queue.publish_batch(["locked", "nacked", "waiting"])
        queue.publish("late", headers={"deliveryDelay": 900_000})
        queue.publish("own", id="a/b", headers={"h": 1, "ttl": 70_000}, properties={"p": [True]})
        acked, locked, nacked = queue.get(batchSize=3)
        queue.ack(acked)
        queue.nack(nacked)
        queue.set_lock(locked, ttl_s=600)
        queue.publish("buried")

    if end == "killed":
        fresh_server.kill()
    fresh_server.restart()

    with root_client(fresh_server.url) as http:
        # The tokens of before, all of them.
        env = Environment(http, env.organization, env.id, env.region, env.tokens)
        anypoint = fresh_server.credentials["anypoint"]
        app = {name: anypoint[name] for name in ("client_id", "client_secret")}
        token = ok(http.post("/api/v1/authorize", data={**app, **GRANT}))["access_token"]
        assert token == env.tokens.app
        queue, dead = Queue(env, queue.name), Queue(env, dead.name)
        exchange = Exchange(env, exchange.name)
        assert queue.settings()["maxDeliveries"] == 3
        # Locks hold: what was locked is still hidden, and is settled with the old lock.
        found = queue.get()
        assert [(message.body, message.count) for message in found] == [
            ("nacked", 2),
            ("waiting", 1),
            ("own", 1),
            ("buried", 1),
        ]
        own = found[2]
        assert (own.id, own.headers["h"], own.headers["ttl"]) == ("a/b", 1, "70000")
        assert own.properties == {"p": [True]}
        fail(queue.delete_message("1", {"lockId": acked.lock}), 400, "1")
        fail(queue.delete_lock(nacked.id, nacked.lock), 400, nacked.id)
        queue.ack(locked)
        queue.nack(found[0])
        message = queue.get_one()
        assert (message.body, message.count) == ("nacked", 3)
        queue.nack(message)
        assert bodies(dead.get()) == ["nacked"]
        exchange.publish("after")
        assert bodies(queue.get()) == ["after"]
