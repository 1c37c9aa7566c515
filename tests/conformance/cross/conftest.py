"""One tenant, through every dialect."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.clients.anypoint import environment_client
from tests.conformance.cross.anypoint import Anypoint
from tests.conformance.cross.cloudflare import Cloudflare
from tests.server import Server


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that is spoken to in every dialect, and may push to this machine."""
    args = ["--push-networks", "127.0.0.0/8"]
    server = Server(tmp_path_factory.mktemp("cross"), args=args).start()
    yield server
    server.stop()
    assert "Traceback" not in server.log()


@pytest.fixture(scope="module")
def cloudflare(both: Server) -> Iterator[Cloudflare]:
    with both.client() as http:
        yield Cloudflare(http)


@pytest.fixture(scope="module")
def anypoint(both: Server) -> Iterator[Anypoint]:
    account = both.credentials["anypoint"]
    with environment_client(account) as http:
        yield Anypoint(http, account)


@pytest.fixture(scope="module")
def operate(both: Server) -> Iterator[Callable[..., Any]]:
    """The server's own routes, below the tenant."""
    with both.operator("/courier/v1/tenants/default") as http:

        def call(method: str, path: str, body: Any = None) -> Any:
            answer = http.request(method, path, json=body)
            assert answer.status_code == 200, answer.text
            return answer.json()

        yield call


@pytest.fixture
def queue(cloudflare: Cloudflare, queue_name: str) -> str:
    """A queue that clients of both dialects may consume from."""
    cloudflare.create(queue_name)
    cloudflare.consume(queue_name)
    return queue_name


@pytest.fixture(params=["cloudflare", "anypoint"])
def either(
    request: pytest.FixtureRequest, cloudflare: Cloudflare, anypoint: Anypoint, queue_name: str
) -> str:
    """Such a queue made through either dialect: it differs in its settings."""
    makers: dict[str, Callable[[str], None]] = {
        "cloudflare": cloudflare.create,
        "anypoint": anypoint.create,
    }
    makers[request.param](queue_name)
    cloudflare.consume(queue_name)
    return queue_name


@pytest.fixture
def fifo(cloudflare: Cloudflare, anypoint: Anypoint, queue_name: str) -> str:
    """A FIFO queue, that clients of both dialects may consume from."""
    anypoint.create(queue_name, fifo=True)
    cloudflare.consume(queue_name)
    return queue_name
