"""Ways for a server to go and come back, and servers whose disk can be filled."""

from collections.abc import Iterator

import pytest

from tests.faults.disk import Disk, FileLimit, SmallDisk, may_mount
from tests.faults.stories import Again
from tests.server import Server


def again_after_stop(server: Server) -> None:
    server.restart()


def again_after_kill(server: Server) -> None:
    server.kill()
    server.start()


@pytest.fixture(scope="module", params=[again_after_stop, again_after_kill])
def again(request: pytest.FixtureRequest) -> Again:
    """Ways for a server to go and come back."""
    way: Again = request.param
    return way


@pytest.fixture(scope="module")
def storied_server(tmp_path_factory: pytest.TempPathFactory, again: Again) -> Iterator[Server]:
    """A server for the stories of a module, with nothing in it."""
    with Server(tmp_path_factory.mktemp("storied")).start() as server:
        yield server


@pytest.fixture(params=["limit", "small disk"] if may_mount() else ["limit"])
def fillable(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Server, Disk]]:
    """A running server, and the disk it writes to."""
    server = Server(tmp_path_factory.mktemp("full"))
    if request.param == "limit":
        yield from _running(server, FileLimit())
    else:
        with SmallDisk(server.data) as disk:
            yield from _running(server, disk)


def _running(server: Server, disk: Disk) -> Iterator[tuple[Server, Disk]]:
    with server.start():
        yield server, disk
