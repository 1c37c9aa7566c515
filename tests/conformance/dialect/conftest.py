"""A client of every dialect on every store."""

from collections.abc import Iterator

import httpx
import pytest

from tests.clients.anypoint import AnypointClient, environment_client
from tests.clients.base import Client
from tests.clients.cloudflare import CloudflareClient
from tests.server import Server


@pytest.fixture(scope="module", params=["sqlite", "memory"])
def store_server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("dialect"), args=["--store", request.param]).start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def account(store_server: Server) -> Iterator[httpx.Client]:
    with store_server.client() as client:
        yield client


@pytest.fixture(scope="module")
def environment(store_server: Server) -> Iterator[httpx.Client]:
    with environment_client(store_server.credentials["anypoint"]) as client:
        yield client


@pytest.fixture(params=["cloudflare", "anypoint"])
def client(
    request: pytest.FixtureRequest,
    store_server: Server,
    account: httpx.Client,
    environment: httpx.Client,
    queue_name: str,
) -> Client:
    dead_letter = f"{queue_name}-dead"
    if request.param == "cloudflare":
        return CloudflareClient(account, queue_name, dead_letter=dead_letter)
    anypoint = store_server.credentials["anypoint"]
    return AnypointClient(environment, anypoint, queue_name, dead_letter=dead_letter)
