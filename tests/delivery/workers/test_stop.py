"""A server that stops, dies or cannot write while batches are on their way."""

import resource
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.delivery.receiver import Receiver
from tests.delivery.workers.scene import Scene
from tests.server import Server
from tests.wire.cloudflare.patience import eventually
from tests.wire.cloudflare.queue import Queue

pytestmark = pytest.mark.slow

Start = Callable[..., Scene]

KIB = 1 << 10


@pytest.fixture
def start(tmp_path_factory: pytest.TempPathFactory, receiver: Receiver) -> Iterator[Start]:
    """Starts a server of the test's own, with a scene whose calls are held."""
    servers: list[Server] = []
    clients: list[httpx.Client] = []

    def make(**settings: str) -> Scene:
        env = {f"COURIER_{name.upper()}": value for name, value in settings.items()}
        server = Server(tmp_path_factory.mktemp("stop"), env=env).start()
        servers.append(server)
        clients.extend([server.client(), server.operator()])
        scene = Scene(server, clients[-1], Queue.create(clients[-2]), receiver)
        scene.place()
        return scene

    yield make
    for client in clients:
        client.close()
    for server in servers:
        if server.running:
            server.stop()
        assert "Traceback" not in server.log()


def test_a_running_call_is_waited_for_and_no_other_begins(start: Start) -> None:
    scene = start()
    held = scene.receiver.hold(scene.path)
    scene.consume(max_concurrency=1)
    scene.queue.push_texts(["running", "waiting"])
    scene.sent(1)
    with ThreadPoolExecutor(1) as pool:
        stopped = pool.submit(scene.server.stop)
        eventually(lambda: refuses(scene))
        with pytest.raises(TimeoutError):
            stopped.result(timeout=2.0)
        held.let_go(2)
        stopped.result()
    assert [batch.bodies for batch in scene.so_far()] == [["running"]]
    scene.server.start()
    batch = scene.sent(2)[1]
    assert (batch.bodies, batch.attempts) == (["waiting"], [1])
    eventually(lambda: scene.queue.backlog() == 0)


def refuses(scene: Scene) -> bool:
    try:
        answer = httpx.get(f"{scene.server.url}/health", trust_env=False, verify=False)
    except httpx.TransportError:
        return True
    return answer.status_code == 503


def test_messages_of_a_call_that_takes_too_long_are_given_back(start: Start) -> None:
    scene = start(drain_wait_ms_max="500")
    scene.receiver.hold(scene.path)
    scene.consume()
    scene.queue.push("x")
    scene.sent(1)
    scene.server.stop()
    scene.server.start()
    # Long before its lease would have ended.
    assert scene.sent(2)[1].attempts == [2]


def test_messages_of_a_server_that_died_come_again_when_their_leases_end(start: Start) -> None:
    scene = start(worker_wait_ms_max="500")
    scene.receiver.hold(scene.path)
    scene.consume()
    scene.queue.push("x")
    scene.sent(1)
    scene.server.kill()
    scene.server.start()
    first, second = scene.sent(2)
    assert second.attempts == [2]
    assert 5.0 < second.received.at_s - first.received.at_s < 20.0


def test_what_a_worker_has_done_is_noted_as_soon_as_the_disk_takes_it(start: Start) -> None:
    scene = start()
    filler = Queue.create(scene.queue.http)
    for _ in range(15):  # so that the store's files are longer than they may be below
        filler.push("x" * 100_000)
    held = scene.receiver.hold(scene.path)
    scene.consume()
    scene.queue.push("x")
    scene.sent(1)
    hard = resource.prlimit(scene.server.pid, resource.RLIMIT_FSIZE)[1]
    resource.prlimit(scene.server.pid, resource.RLIMIT_FSIZE, (512 * KIB, hard))
    refused = filler.post("/messages", {"body": 1})
    assert refused.status_code == 503, refused.text
    held.let_go()
    eventually(lambda: scene.receiver.in_flight(scene.path) == 0)
    assert filler.post("/messages", {"body": 1}).status_code == 503
    assert scene.metric("courier_worker_batches_in_flight") == 1
    resource.prlimit(scene.server.pid, resource.RLIMIT_FSIZE, (hard, hard))
    eventually(lambda: scene.queue.backlog() == 0)
    assert len(scene.so_far()) == 1
