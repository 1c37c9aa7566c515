"""The requests of the vendor's command-line client, as it sends them, and what it reads back.

It labels every body as text, finds a queue by the first row of a list, decides on the success
flag alone, and dereferences what it reads without looking whether it is there.
"""

import json
from typing import Any

import httpx
import pytest

from tests.wire.cloudflare.queue import Queue

LABEL = {"Content-Type": "text/plain;charset=UTF-8"}


class CommandLine:
    """Reads answers as carelessly as the client does."""

    def __init__(self, http: httpx.Client) -> None:
        self.http = http

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        content = None if body is None else json.dumps(body).encode()
        headers = {} if body is None else LABEL
        answer = self.http.request(method, path, content=content, headers=headers).json()
        assert answer["success"], answer
        return answer["result"]

    def error(self, method: str, path: str, body: Any = None) -> str:
        """What it prints of a failure."""
        content = None if body is None else json.dumps(body).encode()
        answer = self.http.request(method, path, content=content, headers=LABEL).json()
        assert not answer["success"], answer
        (error,) = answer["errors"]
        return f"{error['message']} [code: {error['code']}]"

    def find(self, name: str) -> Any:
        """The queue it takes for the one of that name, None if it says there is none."""
        rows = self.ask("GET", f"/queues?page=1&name={name}")
        return rows[0] if rows else None

    def at(self, name: str) -> str:
        return f"/queues/{self.find(name)['queue_id']}"


@pytest.fixture(scope="session")
def cli(http: httpx.Client) -> CommandLine:
    return CommandLine(http)


def test_bad_settings_print_the_codes_it_replaces_by_a_sentence(
    cli: CommandLine, queue: Queue
) -> None:
    bad_queue = {"queue_name": queue.name, "settings": {"message_retention_period": 1}}
    assert "[code: 100128]" in cli.error("PATCH", queue.at(), bad_queue)
    bad_consumer = {"type": "http_pull", "settings": {"batch_size": 101}}
    assert "[code: 100127]" in cli.error("POST", queue.at("/consumers"), bad_consumer)


def test_deploy_finds_its_queues_and_adds_or_replaces_the_consumer(
    cli: CommandLine, http: httpx.Client
) -> None:
    queues = [Queue.create(http), Queue.create(http)]
    query = "&".join(f"name={queue.name}" for queue in queues)
    rows = cli.ask("GET", f"/queues?{query}&page=1")
    assert {row["queue_name"] for row in rows} == {queue.name for queue in queues}
    body: dict[str, Any] = {"script_name": "deployed", "type": "worker", "settings": {}}
    at = f"{cli.at(queues[0].name)}/consumers"
    cli.ask("POST", at, body)
    listed = cli.find(queues[0].name)["consumers"]
    (mine,) = [consumer for consumer in listed if consumer.get("script") == "deployed"]
    body["settings"] = {"batch_size": 99}
    cli.ask("PUT", f"{at}/{mine['consumer_id']}", body)
    assert cli.find(queues[0].name)["consumers"][0]["settings"]["batch_size"] == 99
