"""Every `queues` command of an unmodified wrangler does here what it says."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.outside.wrangler import Wrangler
from tests.server import Server

pytestmark = pytest.mark.slow


@pytest.fixture
def wrangler(server: Server, tmp_path: Path) -> Wrangler:
    account = server.credentials["cloudflare"]
    return Wrangler(
        tmp_path,
        base_url=account["base_url"],
        token=account["api_token"],
        account_id=account["account_id"],
    )


def find(http: httpx.Client, name: str) -> list[dict[str, Any]]:
    """The queues of that name, as the API shows them: one or none."""
    found: list[dict[str, Any]] = http.get("/queues", params={"name": name}).json()["result"]
    return found


def queue(http: httpx.Client, name: str) -> dict[str, Any]:
    (found,) = find(http, name)
    return found


def subscriptions(http: httpx.Client, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = http.get(
        "/event_subscriptions/subscriptions", params={"queue_id": queue(http, name)["queue_id"]}
    ).json()["result"]
    return found


def cells(table: str, first: str) -> list[str]:
    """The row of a printed table that begins with `first`."""
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in table.splitlines()]
    (row,) = (row for row in rows if row and row[0] == first)
    return row


# --- queues ----------------------------------------------------------------------------------


def test_queue_is_created_listed_updated_and_deleted(
    wrangler: Wrangler, http: httpx.Client, queue_name: str
) -> None:
    printed = wrangler.ok(
        *("queues", "create", queue_name),
        *("--delivery-delay-secs", "5", "--message-retention-period-secs", "600"),
    )
    assert f"Created queue '{queue_name}'" in printed
    made = queue(http, queue_name)
    assert made["settings"] == {
        "delivery_delay": 5,
        "delivery_paused": False,
        "message_retention_period": 600,
    }

    # The youngest queue is on the last page. Other tests' queues may add a jurisdiction column.
    last = http.get("/queues", params={"page": 1}).json()["result_info"]["total_pages"]
    row = cells(wrangler.ok("queues", "list", "--page", str(last)), made["queue_id"])
    assert row[:2] == [made["queue_id"], queue_name]
    assert row[-4:] == [made["created_on"], made["modified_on"], "0", "0"]

    printed = wrangler.ok("queues", "info", queue_name)
    assert f"Queue ID: {made['queue_id']}" in printed
    assert "Number of Consumers: 0" in printed
    assert "Jurisdiction" not in printed

    wrangler.ok("queues", "update", queue_name, "--delivery-delay-secs", "9")
    assert queue(http, queue_name)["settings"] == {
        "delivery_delay": 9,
        "delivery_paused": False,
        "message_retention_period": 600,
    }

    assert f"Deleted queue {queue_name}" in wrangler.ok("queues", "delete", queue_name)
    assert find(http, queue_name) == []


def test_queue_is_paused_resumed_and_purged(
    wrangler: Wrangler, http: httpx.Client, queue_name: str
) -> None:
    id = http.post("/queues", json={"queue_name": queue_name}).json()["result"]["queue_id"]
    http.post(f"/queues/{id}/messages", json={"body": "x", "content_type": "text"})

    wrangler.ok("queues", "pause-delivery", queue_name)
    assert queue(http, queue_name)["settings"]["delivery_paused"] is True
    wrangler.ok("queues", "resume-delivery", queue_name)
    assert queue(http, queue_name)["settings"]["delivery_paused"] is False

    assert http.get(f"/queues/{id}/metrics").json()["result"]["backlog_count"] == 1
    assert f"Purged Queue '{queue_name}'" in wrangler.ok("queues", "purge", queue_name, "--force")
    assert http.get(f"/queues/{id}/metrics").json()["result"]["backlog_count"] == 0


# --- consumers -------------------------------------------------------------------------------


def test_worker_consumer_is_added_listed_and_removed(
    wrangler: Wrangler, http: httpx.Client, queue_name: str
) -> None:
    http.post("/queues", json={"queue_name": queue_name})
    wrangler.ok(
        *("queues", "consumer", "add", queue_name, "resize-images"),
        *("--batch-size", "7", "--batch-timeout", "3", "--message-retries", "2"),
        *("--max-concurrency", "5", "--retry-delay-secs", "4"),
        *("--dead-letter-queue", f"{queue_name}-dead"),
    )
    (made,) = queue(http, queue_name)["consumers"]
    assert (made["type"], made["script"]) == ("worker", "resize-images")
    assert made["settings"] == {
        "batch_size": 7,
        "max_retries": 2,
        "max_wait_time_ms": 3000,
        "max_concurrency": 5,
        "retry_delay": 4,
    }
    assert len(find(http, f"{queue_name}-dead")) == 1

    row = cells(
        wrangler.ok("queues", "consumer", "worker", "list", queue_name), made["consumer_id"]
    )
    assert row[1:] == ["resize-images", f"{queue_name}-dead", "7", "2", "3000", "5", "4"]
    assert json.loads(wrangler.ok("queues", "consumer", "list", queue_name, "--json")) == [made]
    assert "Consumers: worker:resize-images" in wrangler.ok("queues", "info", queue_name)

    wrangler.ok("queues", "consumer", "remove", queue_name, "resize-images")
    assert queue(http, queue_name)["consumers"] == []


def test_pull_consumer_is_added_listed_and_removed(
    wrangler: Wrangler, http: httpx.Client, queue_name: str
) -> None:
    http.post("/queues", json={"queue_name": queue_name})
    wrangler.ok(
        *("queues", "consumer", "http", "add", queue_name),
        *("--batch-size", "7", "--message-retries", "2", "--visibility-timeout-secs", "40"),
        *("--retry-delay-secs", "4", "--dead-letter-queue", f"{queue_name}-dead"),
    )
    (made,) = queue(http, queue_name)["consumers"]
    assert made["type"] == "http_pull"
    assert made["settings"] == {
        "batch_size": 7,
        "max_retries": 2,
        "visibility_timeout_ms": 40_000,
        "retry_delay": 4,
    }

    row = cells(wrangler.ok("queues", "consumer", "http", "list", queue_name), made["consumer_id"])
    assert row[1:] == [f"{queue_name}-dead", "7", "2", "40000", "4"]
    assert "HTTP pull consumers" in wrangler.ok("queues", "consumer", "list", queue_name)
    assert "Consumers: HTTP Pull Consumer" in wrangler.ok("queues", "info", queue_name)

    again = wrangler.refused("queues", "consumer", "http", "add", queue_name)
    assert f"Queue '{queue_name}' already has a consumer. [code: 11004]" in again

    wrangler.ok("queues", "consumer", "http", "remove", queue_name)
    assert queue(http, queue_name)["consumers"] == []


def test_worker_and_pull_commands_have_long_names_too(
    wrangler: Wrangler, http: httpx.Client, queue_name: str
) -> None:
    http.post("/queues", json={"queue_name": queue_name})
    wrangler.ok("queues", "consumer", "worker", "add", queue_name, "crop-images")
    (made,) = queue(http, queue_name)["consumers"]
    assert (made["script"], made["dead_letter_queue"]) == ("crop-images", "")
    wrangler.ok("queues", "consumer", "worker", "remove", queue_name, "crop-images")
    assert queue(http, queue_name)["consumers"] == []


# --- event subscriptions ---------------------------------------------------------------------


def test_subscription_is_created_listed_shown_updated_and_deleted(
    wrangler: Wrangler, http: httpx.Client, queue_name: str
) -> None:
    verb = ("queues", "subscription")
    http.post("/queues", json={"queue_name": queue_name})
    printed = wrangler.ok(
        *(*verb, "create", queue_name, "--name", "builds", "--source", "workersBuilds.worker"),
        *("--worker-name", "shop", "--events", "build.started,build.failed"),
    )
    (made,) = subscriptions(http, queue_name)
    assert f"'builds' with id '{made['id']}'" in printed
    assert made["source"] == {"type": "workersBuilds.worker", "worker_name": "shop"}
    assert made["enabled"] is True

    row = cells(wrangler.ok(*verb, "list", queue_name), made["id"])
    assert row[1:] == [
        "builds",
        "workersBuilds.worker",
        "build.started, build.failed",
        "shop",
        "Yes",
    ]

    shown = wrangler.ok(*verb, "get", queue_name, "--id", made["id"], "--json")
    assert json.loads(shown) == made

    wrangler.ok(
        *(*verb, "update", queue_name, "--id", made["id"], "--name", "done"),
        *("--events", "build.succeeded", "--enabled", "false"),
    )
    (changed,) = subscriptions(http, queue_name)
    assert (changed["name"], changed["enabled"]) == ("done", False)
    assert changed["events"] == ["build.succeeded"]

    wrangler.ok(*verb, "delete", queue_name, "--id", made["id"], "--force")
    assert subscriptions(http, queue_name) == []
    assert "No event subscriptions" in wrangler.ok(*verb, "list", queue_name)


def test_unknown_event_is_refused_by_its_name(
    wrangler: Wrangler, http: httpx.Client, queue_name: str
) -> None:
    http.post("/queues", json={"queue_name": queue_name})
    printed = wrangler.refused(
        *("queues", "subscription", "create", queue_name),
        *("--source", "kv", "--events", "namespace.renamed"),
    )
    assert "Unrecognized event types" in printed
    assert "namespace.renamed" in printed
    assert subscriptions(http, queue_name) == []


# --- identity and errors ---------------------------------------------------------------------


def test_whoami_names_the_account(server: Server, wrangler: Wrangler) -> None:
    printed = wrangler.ok("whoami")
    assert "You are logged in" in printed
    assert server.credentials["cloudflare"]["account_id"] in printed


def test_account_is_found_by_the_token_alone(
    server: Server, http: httpx.Client, tmp_path: Path, queue_name: str
) -> None:
    account = server.credentials["cloudflare"]
    alone = Wrangler(
        tmp_path, base_url=account["base_url"], token=account["api_token"], account_id=None
    )
    alone.ok("queues", "create", queue_name)
    assert len(find(http, queue_name)) == 1


def test_taken_name_is_refused_with_its_code(
    wrangler: Wrangler, http: httpx.Client, queue_name: str
) -> None:
    http.post("/queues", json={"queue_name": queue_name})
    printed = wrangler.refused("queues", "create", queue_name)
    assert f"'{queue_name}' is already taken" in printed
    assert "[code: 11009]" in printed


def test_name_that_is_only_the_beginning_of_another_does_not_exist(
    wrangler: Wrangler, http: httpx.Client, queue_name: str
) -> None:
    http.post("/queues", json={"queue_name": f"{queue_name}-longer"})
    assert f'"{queue_name}" does not exist' in wrangler.refused("queues", "delete", queue_name)
    assert len(find(http, f"{queue_name}-longer")) == 1


def test_wrong_token_ends_with_an_error(server: Server, tmp_path: Path) -> None:
    account = server.credentials["cloudflare"]
    stranger = Wrangler(
        tmp_path,
        base_url=account["base_url"],
        token="not-a-token-of-this-server",
        account_id=account["account_id"],
    )
    assert "Invalid access token [code: 9109]" in stranger.refused("queues", "list")
