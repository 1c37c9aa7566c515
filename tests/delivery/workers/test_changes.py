"""Settings that change while batches are on their way take effect within a second."""

import time

import pytest
from standardwebhooks.webhooks import Webhook

from tests.delivery.receiver import status
from tests.delivery.workers.scene import LONG_MS, Scene
from tests.wire.cloudflare.envelope import ok
from tests.wire.cloudflare.patience import eventually
from tests.wire.cloudflare.queue import Queue

pytestmark = pytest.mark.slow

SOON_S = 2.0


def test_nothing_is_sent_while_the_queue_is_paused(scene: Scene) -> None:
    scene.consume()
    scene.queue.push("before")
    eventually(lambda: scene.queue.backlog() == 0)
    scene.queue.change(delivery_paused=True)
    scene.queue.push("meanwhile")
    # Another consumer's message is sent meanwhile, so there was time for this one.
    prove_time_passed(scene)
    assert [batch.bodies for batch in scene.so_far()] == [["before"]]
    began_s = time.perf_counter()
    scene.queue.change(delivery_paused=False)
    assert scene.sent(2)[1].received.at_s - began_s < SOON_S


def prove_time_passed(scene: Scene) -> None:
    """Return when a batch of another queue has been sent from its beginning."""
    queue = Queue.create(scene.queue.http)
    other = Scene(scene.server, scene.operator, queue, scene.receiver)
    other.place()
    other.consume()
    queue.push("x")
    other.sent(1)
    ok(queue.http.delete(queue.at()))


def test_a_running_call_is_settled_on_a_paused_queue(scene: Scene) -> None:
    held = scene.receiver.hold(scene.path)
    scene.consume()
    scene.queue.push("x")
    scene.sent(1)
    scene.queue.change(delivery_paused=True)
    held.let_go()
    eventually(lambda: scene.queue.backlog() == 0)


def test_a_worker_that_moved_is_called_at_its_new_place(scene: Scene) -> None:
    scene.consume()
    scene.queue.push("here")
    eventually(lambda: scene.queue.backlog() == 0)
    scene.place(scene.receiver.url("/moved"))
    scene.queue.push("there")
    [received] = scene.receiver.wait("/moved", 1)
    Webhook(scene.secret).verify(received.body, received.headers)
    assert len(scene.so_far()) == 1


def test_a_worker_that_moved_is_not_made_to_wait_for_what_the_old_one_did(scene: Scene) -> None:
    scene.on(status(500))
    scene.consume(max_retries=100)
    scene.queue.push("x")
    scene.sent(4)  # the next would come after four seconds
    began_s = time.perf_counter()
    scene.place(scene.receiver.url(f"{scene.path}/moved"))
    [received] = scene.receiver.wait(f"{scene.path}/moved", 1)
    assert received.at_s - began_s < SOON_S


def test_a_deleted_consumer_sends_nothing_more_and_its_messages_stay(scene: Scene) -> None:
    held = scene.receiver.hold(scene.path)
    consumer = scene.consume(max_concurrency=1)
    scene.queue.push_texts(["1", "2"])
    scene.sent(1)
    ok(scene.queue.http.delete(scene.queue.at(f"/consumers/{consumer}")))
    held.let_go(2)
    eventually(lambda: scene.queue.backlog() == 1)
    prove_time_passed(scene)
    assert len(scene.so_far()) == 1
    assert scene.queue.peek()[0]["body"] == "2"


def test_a_queue_that_is_deleted_while_a_batch_is_on_its_way_is_gone(scene: Scene) -> None:
    held = scene.receiver.hold(scene.path)
    scene.consume()
    scene.queue.push("x")
    scene.sent(1)
    ok(scene.queue.http.delete(scene.queue.at()))
    held.let_go()
    eventually(lambda: scene.metric("courier_worker_batches_in_flight") == 0)
    assert "worker_call_failed" not in scene.server.log()


def test_changed_settings_of_a_consumer_hold_for_messages_that_wait(scene: Scene) -> None:
    consumer = scene.consume(batch_size=100, max_wait_time_ms=LONG_MS)
    scene.queue.push_texts(["1", "2"])
    prove_time_passed(scene)
    assert scene.so_far() == []
    began_s = time.perf_counter()
    changed = scene.consumer(batch_size=2, max_wait_time_ms=LONG_MS)
    ok(scene.queue.http.put(scene.queue.at(f"/consumers/{consumer}"), json=changed))
    [batch] = scene.sent(1)
    assert batch.bodies == ["1", "2"]
    assert batch.received.at_s - began_s < SOON_S


def test_a_pull_consumer_becomes_a_worker_and_a_pull_consumer_again(scene: Scene) -> None:
    http, at = scene.queue.http, scene.queue.at
    pull = {"type": "http_pull", "settings": {"batch_size": 1}}
    id = scene.queue.consume()["consumer_id"]
    scene.queue.push_texts(["pulled", "pushed"])
    pulled = scene.queue.pull(batch_size=1)[0]
    ok(http.put(at(f"/consumers/{id}"), json=scene.consumer()))
    assert scene.sent(1)[0].bodies == ["pushed"]
    assert scene.queue.post("/messages/pull", {}).status_code == 405
    # What was leased by a pull is still the puller's.
    assert scene.queue.settle(retries=[pulled["lease_id"]])["retryCount"] == 1
    again = scene.sent(2)[1]
    assert (again.bodies, again.attempts) == (["pulled"], [2])
    eventually(lambda: scene.queue.backlog() == 0)
    ok(http.put(at(f"/consumers/{id}"), json=pull))
    scene.queue.push("pulled again")
    prove_time_passed(scene)
    message = scene.queue.pull_one()
    assert (message["body"], message["attempts"]) == ("pulled again", 1)
    assert scene.queue.settle(acks=[message["lease_id"]])["ackCount"] == 1
    ok(http.put(at(f"/consumers/{id}"), json=scene.consumer()))
    scene.queue.push("pushed again")
    assert scene.sent(3)[2].bodies == ["pushed again"]


def test_two_secrets_sign_while_one_replaces_the_other(scene: Scene) -> None:
    old = scene.secret
    new = "whsec_" + "A" * 40
    assert scene.place(secret=new) == new != old
    scene.consume()
    scene.queue.push("x")
    [received] = scene.receiver.wait(scene.path, 1)
    assert len(received.headers["webhook-signature"].split(" ")) == 2
    for secret in (old, new):
        Webhook(secret).verify(received.body, received.headers)
