"""Organizations, keys and queues for the tests of the Discue dialect."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from tests.clients.discue import DiscueClient, discue_http, new_name
from tests.server import Server

# Listeners of tests are on this machine, where none may be by default.
SERVER_ARGS = ("--push-networks", "127.0.0.0/8")
EVERYTHING = ("write", "keys:read", "keys:write", "usage:read")

_strangers = itertools.count(2)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for all tests of this dialect. Each works on queues of its own."""
    server = Server(tmp_path_factory.mktemp("discue-server"), args=SERVER_ARGS).start()
    yield server
    if server.running:
        server.stop()
    # Whatever a request was, and whatever its answer, it may not have met a bug.
    assert "Traceback" not in server.log()


@pytest.fixture(scope="session")
def http(server: Server) -> Iterator[httpx.Client]:
    """The whole server, without a credential."""
    with discue_http(server.url) as client:
        yield client


@pytest.fixture(scope="session")
def operator(server: Server) -> Iterator[httpx.Client]:
    """Its own routes; a fixture of the shared server's would be that one's for good."""
    with server.operator() as client:
        yield client


@pytest.fixture
def stranger(server: Server) -> Iterator[httpx.Client]:
    """The whole server, from an address of the test's own: it may be locked out."""
    number = next(_strangers)
    address = f"127.0.{number // 250 + 1}.{number % 250 + 1}"
    with discue_http(server.url, local_address=address) as client:
        yield client


@pytest.fixture(scope="session")
def new_key(http: httpx.Client, operator: httpx.Client) -> Callable[..., DiscueClient]:
    """Makes a key of the first organization, or of tenant `tenant`; the answer is its client.

    Scopes are the core's, like `messages:publish`; `targets` are names of queues.
    """

    def make(*scopes: str, tenant: str = "default", **fields: Any) -> DiscueClient:
        body = {"name": new_name("key"), "scopes": list(scopes), **fields}
        response = operator.post(f"/tenants/{tenant}/keys", json=body)
        assert response.is_success, response.text
        return DiscueClient(http, response.json()["token"], tenant=tenant)

    return make


@pytest.fixture(scope="session")
def new_organization(
    operator: httpx.Client, new_key: Callable[..., DiscueClient]
) -> Callable[[], DiscueClient]:
    """Makes an organization with nothing in it; the answer is a client that may do everything."""

    def make() -> DiscueClient:
        name = new_name("tenant")
        response = operator.post("/tenants", json={"name": name})
        assert response.is_success, response.text
        return new_key(*EVERYTHING, tenant=name)

    return make


@pytest.fixture(scope="session")
def discue(new_key: Callable[..., DiscueClient]) -> DiscueClient:
    """The first organization, with a key that may do everything there."""
    return new_key(*EVERYTHING)


@pytest.fixture(scope="session")
def neighbour(new_organization: Callable[[], DiscueClient]) -> DiscueClient:
    """Another organization on the same server."""
    return new_organization()


@pytest.fixture
def organization(new_organization: Callable[[], DiscueClient]) -> DiscueClient:
    """An organization of the test's own."""
    return new_organization()


@pytest.fixture
def queue(discue: DiscueClient) -> str:
    """The id of a queue with nothing in it."""
    return discue.new_queue()
