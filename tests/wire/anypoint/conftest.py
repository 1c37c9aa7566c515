"""Environments and destinations for the tests of the Anypoint dialect."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.server import Server
from tests.wire.anypoint.answers import ok
from tests.wire.anypoint.destination import Exchange, Queue, new_name
from tests.wire.anypoint.environment import (
    App,
    Environment,
    Tokens,
    root_client,
)
from tests.wire.anypoint.timed import Timed, timed


@pytest.fixture(scope="session")
def http(server: Server) -> Iterator[httpx.Client]:
    """The whole server, without a credential: `http.post("/api/v1/authorize")`."""
    with root_client(server.url) as client:
        yield client
    # Whatever a request was, and whatever its answer, it may not have met a bug.
    assert "Traceback" not in server.log()


@pytest.fixture(scope="session")
def anypoint(server: Server) -> dict[str, Any]:
    """What `credentials.json` says about this dialect."""
    credentials: dict[str, Any] = server.credentials["anypoint"]
    return credentials


@pytest.fixture(scope="session")
def env(http: httpx.Client, server: Server) -> Environment:
    """The first environment, in its own region, with a token of each kind."""
    return Environment.of(http, server.credentials)


@pytest.fixture(scope="session")
def tokens(env: Environment) -> Tokens:
    """Tokens of the first environment: `tokens.app`, `tokens.connected_app`, `tokens.user`."""
    return env.tokens


@pytest.fixture(scope="session")
def new_environment(http: httpx.Client, operator: httpx.Client) -> Callable[..., Environment]:
    """Makes an environment with nothing in it, of its own organization or of tenant `beside`'s."""

    def make(**fields: Any) -> Environment:
        response = operator.post("/tenants", json={"name": new_name("tenant"), **fields})
        assert response.is_success, response.text
        return Environment.of(http, response.json()["credentials"])

    return make


@pytest.fixture(scope="session")
def new_app(env: Environment) -> Callable[[], App]:
    """Makes a client app of the first environment."""

    def make() -> App:
        made = ok(
            env.call(
                "PUT", env.admin_path + "/clients", {"name": new_name("app")}, token=env.tokens.user
            )
        )
        return App(made["name"], made["clientId"], made["clientSecret"])

    return make


@pytest.fixture(scope="session")
def neighbour(new_environment: Callable[..., Environment]) -> Environment:
    """An environment of another organization on the same server."""
    return new_environment()


@pytest.fixture(scope="session")
def sibling(new_environment: Callable[..., Environment]) -> Environment:
    """Another environment of the first organization."""
    return new_environment(beside="default")


@pytest.fixture
def clocked(tmp_path: Path) -> Iterator[Timed]:
    """An environment in this process, where time passes when the test says so."""
    with timed(tmp_path) as made:
        yield made


@pytest.fixture
def queue(env: Environment) -> Queue:
    """A standard queue with nothing in it, all settings at their defaults."""
    return Queue.create(env)


@pytest.fixture
def fifo_queue(env: Environment) -> Queue:
    return Queue.create(env, fifo=True)


@pytest.fixture
def exchange(env: Environment) -> Exchange:
    """An exchange with no binding."""
    return Exchange.create(env)


@pytest.fixture(scope="session")
def standing_queue(env: Environment) -> Queue:
    """A queue for requests that must change nothing."""
    return Queue.create(env)


@pytest.fixture(scope="session")
def standing_exchange(env: Environment) -> Exchange:
    """An exchange without bindings for requests that must change nothing."""
    return Exchange.create(env)
