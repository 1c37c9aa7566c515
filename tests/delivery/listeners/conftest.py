"""A server that pushes to this machine and does not wait long."""

from collections.abc import Callable, Iterator

import pytest

from tests.delivery.listeners.organization import Organization, PushQueue, organization_of
from tests.delivery.receiver import Receiver
from tests.server import Server

# The usual waits are 5 s, 30 s, 2 min and so on; here they are 50 ms, 300 ms, 1.2 s.
ARGS = ("--push-networks", "127.0.0.0/8", "--push-delay-percent", "1")


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Tests share it: each works on queues of its own."""
    server = Server(tmp_path_factory.mktemp("listeners"), args=ARGS).start()
    yield server
    server.stop()
    assert "Traceback" not in server.log()
    for event in ("push_line_failed", "push_broken", "probe_failed"):
        assert event not in server.log()


@pytest.fixture
def organization(server: Server, receiver: Receiver) -> Iterator[Organization]:
    with organization_of(server, receiver) as organization:
        yield organization


@pytest.fixture
def queue(organization: Organization) -> PushQueue:
    return organization.queue()


@pytest.fixture
def start(
    tmp_path_factory: pytest.TempPathFactory, receiver: Receiver
) -> Iterator[Callable[..., Server]]:
    """Start a server of the test's own, with these settings besides the usual ones."""
    started: list[Server] = []

    def make(*args: str, usual: bool = True) -> Server:
        settings = [*(ARGS if usual else ()), *args]
        server = Server(tmp_path_factory.mktemp("own"), args=settings).start()
        started.append(server)
        return server

    yield make
    for server in started:
        if server.running:
            server.stop()
        assert "Traceback" not in server.log()
