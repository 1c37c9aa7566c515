"""A client of every dialect on every store."""

from collections.abc import Iterator

import httpx
import pytest

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


@pytest.fixture(params=["cloudflare"])
def client(account: httpx.Client, queue_name: str) -> Client:
    return CloudflareClient(account, queue_name, dead_letter=f"{queue_name}-dead")
