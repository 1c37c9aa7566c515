"""Commands against the server that all tests share."""

import httpx
import pytest

from tests.cli.command import Command
from tests.server import Server


@pytest.fixture
def courier(server: Server) -> Command:
    """The command, with the credentials of the shared server's first tenant."""
    return Command("--data", str(server.data))


@pytest.fixture
def queue(http: httpx.Client, queue_name: str) -> str:
    """A queue of the test's own that can be pulled from, as `courier queue create` makes it."""
    made = http.post("/queues", json={"queue_name": queue_name})
    assert made.status_code == 200, made.text
    consumers = f"/queues/{made.json()['result']['queue_id']}/consumers"
    consumer = {"type": "http_pull", "settings": {}}
    assert http.post(consumers, json=consumer).status_code == 200
    return queue_name
