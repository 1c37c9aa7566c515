"""What every attack needs: a queue to aim at, and a log that stays free of tracebacks."""

from collections.abc import Iterator

import httpx
import pytest

from tests.attack.environment import Environment, Spot, settle_down
from tests.attack.peer import Account, new_tenant
from tests.attack.target import Target, aim, no_traceback
from tests.server import Server

HASTY = {
    "COURIER_HEADER_WAIT_MS_MAX": "500",
    "COURIER_REQUEST_WAIT_MS_MAX": "1000",
    "COURIER_IDLE_WAIT_MS_MAX": "1500",
    "COURIER_CONNECTIONS_MAX": "40",
}


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for all attacks. They list everything again and again, so it holds only theirs."""
    with Server(tmp_path_factory.mktemp("attacked")).start() as server:
        yield server


@pytest.fixture(autouse=True)
def watched(server: Server) -> Iterator[None]:
    """Whatever is sent, the shared server survives it and logs no traceback."""
    said = len(server.log())
    yield
    assert httpx.get(f"{server.url}/health", trust_env=False, verify=False).status_code == 200
    no_traceback(server, since=said)


@pytest.fixture(scope="package")
def account(server: Server) -> Account:
    return Account(server)


@pytest.fixture
def target(account: Account, queue_name: str) -> Target:
    return aim(account, queue_name)


@pytest.fixture(scope="module")
def environment(server: Server) -> Environment:
    """A tenant for each module: many a test lists all that its tenant has, before and after."""
    return Environment(server, new_tenant(server))


@pytest.fixture(scope="package")
def neighbour(server: Server) -> Environment:
    """Another tenant, which is another organization, on the same server."""
    return Environment(server, new_tenant(server))


@pytest.fixture
def spot(environment: Environment, queue_name: str) -> Spot:
    return settle_down(environment, queue_name)


@pytest.fixture
def attacked(fresh_server: Server) -> Iterator[Server]:
    """A server of the test's own that survives whatever is sent."""
    yield fresh_server
    assert httpx.get(f"{fresh_server.url}/health", trust_env=False, verify=False).status_code == 200
    no_traceback(fresh_server)


@pytest.fixture(scope="module")
def hasty_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that waits for nobody for long and takes few connections."""
    with Server(tmp_path_factory.mktemp("hasty"), env=HASTY).start() as server:
        yield server
        no_traceback(server)
