"""One server with two tenants. In the first there is one side that nobody has a key for."""

from collections.abc import Callable, Iterator

import httpx
import pytest

from tests.conformance.reach.world import Side, World
from tests.server import Server


def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    args = ("--push-networks", "127.0.0.0/8")
    server = Server(tmp_path_factory.mktemp("reach"), args=args).start()
    with httpx.Client(base_url=server.url, timeout=30.0, trust_env=False, verify=False) as http:
        yield World(server, http)
    server.stop()
    assert "Traceback" not in server.log()


world = pytest.fixture(scope="session", name="world")(started)


@pytest.fixture(scope="session")
def bravo(world: World) -> Side:
    """Beyond the reach of every key but the first."""
    return world.side("bravo")


@pytest.fixture(scope="session")
def new_side(world: World) -> Callable[[], Side]:
    return lambda: world.side("alpha")


@pytest.fixture(scope="session")
def stranger(world: World) -> World:
    """Another tenant, with a side and a key of its own."""
    return World(world.server, world.http, tenant="stranger")
