"""A server that waits for workers no longer than tests do, and scenes on it."""

from collections.abc import Callable, Iterator

import httpx
import pytest

from tests.clients.anypoint import environment_client
from tests.conformance.cross.anypoint import Anypoint
from tests.delivery.receiver import Receiver
from tests.delivery.workers.scene import Scene
from tests.server import Server
from tests.wire.cloudflare.envelope import ok
from tests.wire.cloudflare.queue import Queue

ANSWER_MS_MAX = 1_500


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    args = ["--worker-wait-ms-max", str(ANSWER_MS_MAX)]
    server = Server(tmp_path_factory.mktemp("workers"), args=args).start()
    yield server
    server.stop()
    assert "Traceback" not in server.log()


@pytest.fixture(scope="package")
def http(server: Server) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client


@pytest.fixture(scope="package")
def operator(server: Server) -> Iterator[httpx.Client]:
    with server.operator() as client:
        yield client


@pytest.fixture(scope="package")
def anypoint(server: Server) -> Iterator[Anypoint]:
    account = server.credentials["anypoint"]
    with environment_client(account) as client:
        yield Anypoint(client, account)


@pytest.fixture
def scene(
    server: Server, http: httpx.Client, operator: httpx.Client, receiver: Receiver
) -> Iterator[Scene]:
    """A queue with no consumer yet, whose script runs at the receiver."""
    queue = Queue.create(http)
    scene = Scene(server, operator, queue, receiver)
    scene.place()
    yield scene
    http.delete(queue.at())


@pytest.fixture
def anypoint_scene(
    server: Server,
    http: httpx.Client,
    operator: httpx.Client,
    receiver: Receiver,
    anypoint: Anypoint,
    queue_name: str,
) -> Iterator[Callable[..., Scene]]:
    """The same, on a queue that was made through the other dialect, with these settings."""
    made: list[Queue] = []

    def make(**settings: object) -> Scene:
        anypoint.create(queue_name, **settings)
        [found] = http.get("/queues", params={"name": queue_name}).json()["result"]
        queue = Queue(http, found["queue_id"], queue_name)
        made.append(queue)
        scene = Scene(server, operator, queue, receiver)
        scene.place()
        return scene

    yield make
    for queue in made:
        ok(http.delete(queue.at()))
