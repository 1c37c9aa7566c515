"""Clients run against one server, and against two behind a balancer, as if they were one."""

from collections.abc import Iterator

import pytest

from tests.outside.balancer import TwoServers
from tests.server import Server


@pytest.fixture(
    scope="session",
    params=[pytest.param("one"), pytest.param("two", marks=pytest.mark.slow)],
)
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    if request.param == "one":
        with Server(tmp_path_factory.mktemp("server")).start() as server:
            yield server
        return
    with TwoServers(tmp_path_factory.mktemp("servers")) as servers:
        servers.start()
        yield servers
        counts = list(servers.balancer.requests.values())
        assert max(counts) - min(counts) <= 1, "requests did not go to both in turn"
