"""The requests of the vendor's command-line client, as it sends them, and what it reads back.

It labels every body as text, finds a queue by the first row of a list, decides on the success
flag alone, and dereferences what it reads without looking whether it is there.
"""

import json
from typing import Any

import httpx
import pytest

from tests.wire.cloudflare.queue import Queue, new_name

LABEL = {"Content-Type": "text/plain;charset=UTF-8"}
SUBSCRIPTIONS = "/event_subscriptions/subscriptions"


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


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"jurisdiction": "eu"},
        {"settings": {"delivery_delay": 5}},
        {"settings": {"delivery_delay": 0, "message_retention_period": 60}},
    ],
)
def test_create_then_info(cli: CommandLine, queue_name: str, options: dict[str, Any]) -> None:
    cli.ask("POST", "/queues", {"queue_name": queue_name, **options})
    found = cli.find(queue_name)
    assert found["queue_name"] == queue_name
    assert found.get("jurisdiction", "none") == options.get("jurisdiction", "none")
    assert str(found["producers_total_count"]) == str(found["consumers_total_count"]) == "0"
    assert [row["type"] for row in found["producers"] + found["consumers"]] == []
    for setting, value in options.get("settings", {}).items():
        assert found["settings"][setting] == value


def test_create_of_a_taken_name_prints_what_deploy_scripts_look_for(
    cli: CommandLine, queue: Queue
) -> None:
    printed = cli.error("POST", "/queues", {"queue_name": queue.name})
    assert "already taken" in printed
    assert "[code: 11009]" in printed


def test_list_reads_every_column(cli: CommandLine, pull_queue: Queue) -> None:
    rows = {row["queue_id"]: row for row in cli.ask("GET", "/queues?page=1")}
    number = 1
    while pull_queue.id not in rows:
        number += 1
        more = cli.ask("GET", f"/queues?page={number}")
        assert more, "the queue is on no page"
        rows |= {row["queue_id"]: row for row in more}
    row = rows[pull_queue.id]
    columns = ("queue_id", "queue_name", "created_on", "modified_on")
    assert all(isinstance(row[column], str) for column in columns)
    assert str(row["consumers_total_count"]) == "1"


def test_a_queue_whose_name_begins_alike_is_never_taken_for_another(cli: CommandLine) -> None:
    name = new_name()
    cli.ask("POST", "/queues", {"queue_name": f"{name}-longer"})
    assert cli.find(name) is None
    assert cli.find(f"{name}-longer")["queue_name"] == f"{name}-longer"


def test_update_sends_back_the_settings_it_was_not_told_to_change(
    cli: CommandLine, queue: Queue
) -> None:
    queue.change(delivery_delay=9, message_retention_period=3600)
    read = cli.find(queue.name)["settings"]
    settings = {
        "delivery_delay": 11,
        "message_retention_period": read["message_retention_period"],
    }
    cli.ask("PATCH", cli.at(queue.name), {"queue_name": queue.name, "settings": settings})
    assert cli.find(queue.name)["settings"] == {**settings, "delivery_paused": False}


def test_pause_and_resume(cli: CommandLine, pull_queue: Queue) -> None:
    for paused in (True, False):
        body = {"queue_name": pull_queue.name, "settings": {"delivery_paused": paused}}
        cli.ask("PATCH", cli.at(pull_queue.name), body)
        assert cli.find(pull_queue.name)["settings"]["delivery_paused"] is paused
        assert pull_queue.post("/messages/pull", {}).status_code == (409 if paused else 200)


def test_delete(cli: CommandLine, queue: Queue) -> None:
    cli.ask("DELETE", cli.at(queue.name))
    assert cli.find(queue.name) is None


def test_purge(cli: CommandLine, queue: Queue) -> None:
    queue.push("a")
    cli.ask("POST", f"{cli.at(queue.name)}/purge", {"delete_messages_permanently": True})
    assert queue.backlog() == 0


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {
            "batch_size": 50,
            "max_retries": 2,
            "max_wait_time_ms": 0,
            "max_concurrency": 3,
            "retry_delay": 10,
        },
    ],
)
def test_consumer_add_then_remove(cli: CommandLine, queue: Queue, settings: dict[str, Any]) -> None:
    body = {
        "script_name": "my-worker",
        "environment_name": "",
        "type": "worker",
        "settings": settings,
        "dead_letter_queue": new_name("dlq"),
    }
    cli.ask("POST", f"{cli.at(queue.name)}/consumers", body)
    consumers = cli.find(queue.name)["consumers"]
    (mine,) = [one for one in consumers if one["type"] == "worker" and one["script"] == "my-worker"]
    assert not {"service", "environment"} & set(mine)
    assert settings.items() <= mine["settings"].items()
    assert mine["dead_letter_queue"] == body["dead_letter_queue"]
    cli.ask("DELETE", f"{cli.at(queue.name)}/consumers/{mine['consumer_id']}")
    assert cli.find(queue.name)["consumers"] == []


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"batch_size": 50, "max_retries": 2, "visibility_timeout_ms": 5000, "retry_delay": 10},
    ],
)
def test_consumer_http_add_then_remove(
    cli: CommandLine, queue: Queue, settings: dict[str, Any]
) -> None:
    body = {"type": "http_pull", "settings": settings}
    cli.ask("POST", f"{cli.at(queue.name)}/consumers", body)
    first = cli.find(queue.name)["consumers"][0]
    assert first["type"] == "http_pull"
    assert settings.items() <= first["settings"].items()
    cli.ask("DELETE", f"{cli.at(queue.name)}/consumers/{first['consumer_id']}")
    assert cli.find(queue.name)["consumers"] == []


def test_bad_settings_print_the_codes_it_replaces_by_a_sentence(
    cli: CommandLine, queue: Queue
) -> None:
    bad_queue = {"queue_name": queue.name, "settings": {"message_retention_period": 1}}
    assert "[code: 100128]" in cli.error("PATCH", queue.at(), bad_queue)
    bad_consumer = {"type": "http_pull", "settings": {"batch_size": 101}}
    assert "[code: 100127]" in cli.error("POST", queue.at("/consumers"), bad_consumer)


def test_subscription_commands(cli: CommandLine, queue: Queue) -> None:
    queue_id = cli.find(queue.name)["queue_id"]
    created = cli.ask(
        "POST",
        SUBSCRIPTIONS,
        {
            "name": f"{queue.name} workersBuilds.worker",
            "enabled": True,
            "source": {"type": "workersBuilds.worker", "worker_name": "w"},
            "destination": {"type": "queues.queue", "queue_id": queue_id},
            "events": ["build.started", "build.failed"],
        },
    )
    assert created["name"]
    listed = cli.ask("GET", f"{SUBSCRIPTIONS}?queue_id={queue_id}&page=1&per_page=20")
    assert listed == [created]
    at = f"{SUBSCRIPTIONS}/{created['id']}"
    assert cli.ask("GET", at)["destination"]["queue_id"] == queue_id
    change = {"name": "new", "events": ["build.canceled"], "enabled": False}
    assert change.items() <= cli.ask("PATCH", at, change).items()
    cli.ask("DELETE", at)
    assert cli.ask("GET", f"{SUBSCRIPTIONS}?queue_id={queue_id}&page=1&per_page=20") == []


def test_an_unknown_event_is_printed_as_such(cli: CommandLine, queue: Queue) -> None:
    body = {
        "source": {"type": "kv"},
        "destination": {"type": "queues.queue", "queue_id": queue.id},
        "events": ["namespace.renamed"],
    }
    assert cli.error("POST", SUBSCRIPTIONS, body).startswith("Unrecognized event types")


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


def test_whoami(cli: CommandLine, account: str) -> None:
    root = str(cli.http.base_url).split("/accounts/")[0]
    assert cli.ask("GET", f"{root}/user/tokens/verify")["status"] == "active"
    cli.ask("GET", f"{root}/user")
    accounts = {row["id"] for row in cli.ask("GET", f"{root}/accounts?page=1")}
    members = {row["account"]["id"] for row in cli.ask("GET", f"{root}/memberships?page=1")}
    # Only accounts in both lists are usable, and one alone is chosen without a question.
    assert accounts & members == {account}
