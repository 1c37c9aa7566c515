"""Workers that are not there, fail, hang or lie."""

import itertools
import time

import pytest

from tests.delivery import receiver as behaviour
from tests.delivery.receiver import Answer, Receiver, closed_port, retry_after, status
from tests.delivery.workers.scene import LONG_MS, Scene, saying
from tests.wire.cloudflare.patience import eventually

pytestmark = pytest.mark.slow


def settled(scene: Scene) -> None:
    eventually(lambda: scene.queue.backlog() == 0, seconds_max=20.0)


# What else is no answer, or none that can be understood, is tried in test_transport.py and
# test_verdict.py.
@pytest.mark.parametrize(
    "failure",
    [
        pytest.param(status(500), id="500"),
        pytest.param(behaviour.redirect("http://127.0.0.1:1/"), id="redirect"),
        pytest.param(behaviour.hang, id="hang"),
        pytest.param(behaviour.reset, id="reset"),
        pytest.param(status(200, b'{"retries": ["'), id="half-an-object"),
        pytest.param(status(200, b'{"x": "' + b"x" * 200_000 + b'"}'), id="too-long"),
    ],
)
def test_what_is_no_success_is_sent_again_as_a_whole(scene: Scene, failure: Answer) -> None:
    scene.on(failure, saying())
    scene.consume(batch_size=2, max_wait_time_ms=LONG_MS)
    scene.queue.push_texts(["1", "2"])
    first, second = scene.sent(2)
    assert first.bodies == second.bodies == ["1", "2"]
    assert second.attempts == [2, 2]
    settled(scene)


def test_an_answer_longer_than_promised_is_as_good_as_what_was_promised(scene: Scene) -> None:
    scene.on(behaviour.too_long)
    scene.consume(max_concurrency=1)
    scene.queue.push_texts(["1", "2"])
    settled(scene)


def test_messages_for_a_worker_that_is_not_there_lose_no_attempt(scene: Scene) -> None:
    port = closed_port()
    scene.place(f"http://127.0.0.1:{port}{scene.path}")
    scene.consume()
    scene.queue.push_texts(["1", "2", "3"])
    eventually(lambda: unreachable(scene) >= 3, seconds_max=20.0)
    with Receiver(port=port) as late_receiver:
        batches = late_receiver.wait(scene.path, 3)
        assert all(b'"attempts":1' in batch.body for batch in batches)
        settled(scene)


def unreachable(scene: Scene) -> int:
    lines = scene.server.log().splitlines()
    return sum("worker_unreachable" in line and scene.queue.id in line for line in lines)


def test_a_worker_that_went_away_costs_one_attempt_and_not_one_each_time(scene: Scene) -> None:
    port = closed_port()
    scene.place(f"http://127.0.0.1:{port}{scene.path}")
    with Receiver(port=port):
        scene.consume(max_concurrency=1)
        scene.queue.push("before")
        settled(scene)
    scene.queue.push("meanwhile")
    eventually(lambda: unreachable(scene) >= 3, seconds_max=20.0)
    assert scene.queue.peek()[0]["attempts"] == 1
    with Receiver(port=port) as again:
        [batch] = again.wait(scene.path, 1)
        assert b'"attempts":2' in batch.body
        settled(scene)


def test_a_worker_that_fails_is_left_alone_longer_each_time(scene: Scene) -> None:
    held = scene.receiver.hold(scene.path, status(500))
    scene.consume(max_retries=100, max_concurrency=4)
    scene.queue.push_texts([str(number) for number in range(20)])
    eventually(lambda: scene.receiver.in_flight(scene.path) == 4)
    scene.on(status(500))
    held.let_go(4)
    eventually(lambda: scene.receiver.in_flight(scene.path) == 0)
    # Those were on their way together, and are one failure.
    times = [batch.received.at_s for batch in scene.sent(8)][4:]
    gaps = [after - before for before, after in itertools.pairwise(times)]
    assert all(gap > least for gap, least in zip(gaps, (0.9, 1.9, 3.9), strict=True)), gaps
    assert sum(gaps) < 12.0, gaps


def test_a_worker_that_works_again_is_sent_everything_at_once(scene: Scene) -> None:
    scene.on(status(503), status(503), saying())
    scene.consume(max_concurrency=1)
    scene.queue.push_texts([str(number) for number in range(20)])
    times = [batch.received.at_s for batch in scene.sent(22)]
    assert times[2] - times[1] > 0.9
    assert times[-1] - times[2] < 10.0  # not a second before each
    settled(scene)


def test_a_worker_that_works_again_is_sent_as_many_batches_as_before(scene: Scene) -> None:
    scene.on(status(503), saying())
    scene.consume(max_concurrency=3)
    scene.queue.push("x")
    settled(scene)
    held = scene.receiver.hold(scene.path)
    scene.queue.push_texts(["1", "2", "3"])
    eventually(lambda: scene.receiver.in_flight(scene.path) == 3)
    held.let_go(3)
    settled(scene)


def test_a_worker_may_ask_to_be_left_alone(scene: Scene) -> None:
    scene.on(retry_after("3"), saying())
    scene.consume()
    scene.queue.push("x")
    first, second = scene.sent(2)
    assert second.received.at_s - first.received.at_s > 2.9


def test_messages_of_a_script_without_a_url_wait(scene: Scene) -> None:
    before = scene.metric("courier_workers_missing")
    scene.operator.delete(f"/tenants/default/workers/{scene.script}")
    scene.consume(batch_size=2, max_wait_time_ms=LONG_MS)
    scene.queue.push("1")
    eventually(lambda: scene.metric("courier_workers_missing") == before + 1)
    scene.place()
    eventually(lambda: scene.metric("courier_workers_missing") == before)
    scene.queue.push("2")
    assert scene.sent(1)[0].attempts == [1, 1]
    settled(scene)
    logged = [line for line in scene.server.log().splitlines() if "worker_url_missing" in line]
    assert sum(scene.queue.id in line for line in logged) == 1


def test_batches_are_counted_by_their_outcome(scene: Scene) -> None:
    names = ("done", "refused", "unanswered")

    def counts() -> list[float]:
        return [scene.metric(f'courier_worker_batches_total{{outcome="{name}"}}') for name in names]

    before = counts()
    held = scene.receiver.hold(scene.path, saying(500))
    scene.consume()
    scene.queue.push("x")
    scene.receiver.wait(scene.path, 1)  # else it would get the next answer
    assert scene.metric("courier_worker_batches_in_flight") == 1
    scene.on(behaviour.reset, saying())
    held.let_go()
    settled(scene)
    after = [now - then for now, then in zip(counts(), before, strict=True)]
    assert after == [1, 1, 1]
    assert scene.metric("courier_worker_batches_in_flight") == 0


@pytest.mark.parametrize("failure", [status(500), behaviour.hang])
def test_neither_secrets_nor_bodies_reach_the_log(scene: Scene, failure: Answer) -> None:
    path = f"{scene.path}?token=hush-hush"
    scene.receiver.on(path, failure, saying())
    scene.place(scene.receiver.url(path))
    scene.consume()
    scene.queue.push("private words")
    settled(scene)
    log = scene.server.log()
    assert "worker_failed" in log and scene.queue.id in log
    assert not any(words in log for words in (scene.secret, "private words", "hush-hush"))


def test_a_worker_that_hangs_does_not_hold_up_another(scene: Scene, receiver: Receiver) -> None:
    scene.on(behaviour.hang)
    scene.consume(max_retries=0)
    scene.queue.push("x")
    scene.sent(1)
    other = Scene(
        scene.server, scene.operator, type(scene.queue).create(scene.queue.http), receiver
    )
    other.place()
    other.consume()
    began_s = time.perf_counter()
    other.queue.push("y")
    assert other.sent(1)[0].received.at_s - began_s < 1.4
    other.queue.http.delete(other.queue.at())
