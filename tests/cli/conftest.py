"""Commands against the server that all tests share."""

import pytest

from tests.cli.command import Command
from tests.server import Server


@pytest.fixture
def courier(server: Server) -> Command:
    """The command, with the credentials of the shared server's first tenant."""
    return Command("--data", str(server.data))


@pytest.fixture
def queue(courier: Command, queue_name: str) -> str:
    """A queue of the test's own that can be pulled from."""
    courier("queue", "create", queue_name)
    return queue_name
