"""Clients and queues for the tests of the Cloudflare dialect."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import httpx
import pytest

from tests.server import Server, account_client
from tests.wire.cloudflare.queue import Queue, new_name


@pytest.fixture(scope="session")
def http(server: Server) -> Iterator[httpx.Client]:
    """One client for all tests here: to make one takes longer than most of them run."""
    with account_client(server.credentials) as client:
        yield client
    # Whatever a request was, and whatever its answer, it may not have met a bug.
    assert "Traceback" not in server.log()


@pytest.fixture(scope="session")
def anonymous(server: Server) -> Iterator[httpx.Client]:
    """A client below `/client/v4` that carries no credential."""
    base_url = f"{server.url}/client/v4"
    with httpx.Client(base_url=base_url, trust_env=False, verify=False) as client:
        yield client


@pytest.fixture(scope="session")
def account(server: Server) -> str:
    """The id of the default account."""
    account_id: str = server.credentials["cloudflare"]["account_id"]
    return account_id


@pytest.fixture(scope="session")
def token(server: Server) -> str:
    """The token of the default account."""
    api_token: str = server.credentials["cloudflare"]["api_token"]
    return api_token


@pytest.fixture(scope="session")
def new_tenant(operator: httpx.Client) -> Iterator[Callable[[], httpx.Client]]:
    """Makes a tenant with nothing in it; the answer is a client of its account."""
    with ExitStack() as clients:

        def make() -> httpx.Client:
            response = operator.post("/tenants", json={"name": new_name("tenant")})
            assert response.is_success, response.text
            return clients.enter_context(account_client(response.json()["credentials"]))

        yield make


@pytest.fixture(scope="session")
def neighbour(new_tenant: Callable[[], httpx.Client]) -> httpx.Client:
    """Another tenant of the same server."""
    return new_tenant()


@pytest.fixture(scope="session")
def new_token(operator: httpx.Client) -> Callable[..., str]:
    """Makes a key of the default tenant; the answer is its token."""

    def make(*scopes: str, **fields: Any) -> str:
        body = {"name": new_name("key"), "scopes": list(scopes), **fields}
        response = operator.post("/tenants/default/keys", json=body)
        assert response.is_success, response.text
        token: str = response.json()["token"]
        return token

    return make


@pytest.fixture
def queue(http: httpx.Client) -> Queue:
    """A queue with nothing in it and no consumer."""
    return Queue.create(http)


@pytest.fixture
def pull_queue(queue: Queue) -> Queue:
    """A queue with a pull consumer, all settings at their defaults."""
    queue.consume()
    return queue


@pytest.fixture(scope="session")
def standing_queue(http: httpx.Client) -> Queue:
    """A queue with a pull consumer, for requests that must change nothing."""
    queue = Queue.create(http)
    queue.consume()
    return queue
