"""`courier listener`."""

import base64
from collections.abc import Iterator

import pytest

from tests.cli.command import Command
from tests.clients.discue import DiscueClient, discue_http, ok
from tests.server import Server
from tests.wire.cloudflare.patience import eventually

pytestmark = pytest.mark.slow

# A name that never resolves: what is pushed there fails, and stays owed.
URL = "https://listener.invalid/hook"


@pytest.fixture
def discue(server: Server) -> Iterator[DiscueClient]:
    with discue_http(server.url) as http:
        yield DiscueClient(http, server.credentials["discue"]["api_key"])


@pytest.fixture
def queue_id(discue: DiscueClient, queue: str) -> str:
    return discue.queue_named(queue)


@pytest.fixture
def listener(discue: DiscueClient, queue_id: str) -> str:
    ok(
        discue.post(
            f"/queues/{queue_id}/listeners",
            {"name": "billing", "notify_url": URL, "liveness_url": URL, "status": "disabled"},
        )
    )
    return "billing"


def test_listeners_are_listed_with_what_they_are_owed(
    courier: Command, queue: str, listener: str
) -> None:
    courier("publish", queue, "one")
    (row,) = courier("listener", "list", queue, "--json").json
    assert (row["name"], row["url"], row["enabled"]) == (listener, URL, False)
    assert (row["open"], row["missed"], row["acknowledged"]) == (1, 0, 0)
    assert [cells[0] for cells in courier("listener", "list", queue).rows] == [listener]


def test_a_listener_is_enabled_and_disabled(courier: Command, queue: str, listener: str) -> None:
    def enabled() -> bool:
        (row,) = courier("listener", "list", queue, "--json").json
        return bool(row["enabled"])

    assert "is enabled" in courier("listener", "enable", queue, listener).out
    assert enabled()
    assert "is disabled" in courier("listener", "disable", queue, listener).out
    assert not enabled()


def test_backfill_gives_a_listener_what_the_queue_still_holds(
    courier: Command, discue: DiscueClient, queue: str, queue_id: str
) -> None:
    for body in ("one", "two", "three"):
        courier("publish", queue, body)
    wanted = {"name": "late", "notify_url": URL, "liveness_url": URL, "status": "disabled"}
    ok(discue.post(f"/queues/{queue_id}/listeners", wanted))

    def backfill(*flags: str) -> str:
        return courier("listener", "backfill", queue, "late", *flags).out

    assert "0 messages will" in backfill("--until", "2020-01-01T00:00:00Z")
    assert "0 messages will" in backfill("--since", "2100-01-01T00:00:00Z")
    assert "3 messages will be pushed to 'late'" in backfill("--since", "2h")
    assert "0 messages will" in backfill()
    (row,) = courier("listener", "list", queue, "--json").json
    assert row["open"] == 3


def test_what_does_not_exist_is_refused(courier: Command, queue: str, listener: str) -> None:
    assert "listener 'nobody'" in courier.fails(1, "listener", "enable", queue, "nobody")
    assert "listener 'nobody'" in courier.fails(1, "listener", "backfill", queue, "nobody")
    assert "queue 'nowhere'" in courier.fails(1, "listener", "list", "nowhere")
    wrong = courier.fails(2, "listener", "backfill", queue, listener, "--since", "soon")
    assert "'soon' is not a duration" in wrong


def test_a_listener_is_added_shown_tested_and_retried(
    courier: Command, discue: DiscueClient, queue: str, queue_id: str
) -> None:
    secret = f"whsec_{base64.b64encode(b'k' * 32).decode()}"
    flags = ("--in-flight", "2", "--per-second", "5", "--attempts", "1", "--secret", secret)
    added = courier("listener", "add", queue, "billing", URL, *flags).out
    assert added == f"{secret}\n"
    [shown] = ok(discue.get(f"/queues/{queue_id}/listeners"))["listeners"]
    assert (shown["max_in_flight"], shown["max_per_second"], shown["max_attempts"]) == (2, 5, 1)
    ran = courier.attempt("listener", "test", queue, "billing")
    assert ran.status == 1 and ran.out.startswith("none: ") and "did not take it" in ran.err
    ran = courier.attempt("listener", "test", queue, "billing", "--json")
    assert ran.status == 1 and ran.json["ok"] is False
    courier("publish", queue, "x")
    eventually(
        lambda: courier("listener", "list", queue, "--json").json[0]["missed"] == 1, seconds_max=20
    )
    rows = courier("listener", "show", queue, "billing").rows
    assert ["failed", "1"] in rows and rows[-1][2:4] == ["1", "none"]
    assert ["state", "failing; it has taken none yet"] in rows
    found = courier("listener", "show", queue, "billing", "--json").json
    assert found["attempts"][0]["error"] and found["last_failure_ms"]
    again = courier("listener", "retry-failed", queue, "billing").out
    assert again == "1 message will be pushed again now\n"
    courier("listener", "disable", queue, "billing")
    assert "disabled" in courier("listener", "show", queue, "billing").out
    said = courier.fails(1, "listener", "add", queue, "b", URL)
    assert "must have 4 to 64 letters" in said
    local = courier.fails(1, "listener", "add", queue, "local", "http://127.0.0.1/")
    assert "push_networks" in local
