"""Ways for a server to go and come back, and servers whose disk can be filled."""

from collections.abc import Callable, Iterator

import pytest

from tests.faults.disk import Disk, FileLimit, SmallDisk, may_mount
from tests.server import Server


def again_after_stop(server: Server) -> None:
    server.restart()


def again_after_kill(server: Server) -> None:
    server.kill()
    server.start()


@pytest.fixture(params=[again_after_stop, again_after_kill])
def again(request: pytest.FixtureRequest) -> Callable[[Server], None]:
    """Ways for a server to go and come back."""
    way: Callable[[Server], None] = request.param
    return way


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
