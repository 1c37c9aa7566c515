"""`courier journal`."""

import json
import re
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cli.command import Command
from tests.cli.terminal import on_terminal
from tests.server import Server

pytestmark = pytest.mark.slow


def last_offset(server: Server) -> int:
    """Where the journal ends now."""
    last: int = server.operate("GET", "/journal/head").json()["last"]
    return last


def test_events_of_a_message_are_printed_in_order(
    server: Server, courier: Command, queue: str
) -> None:
    after = last_offset(server)
    courier("publish", queue, "hello")
    courier("pull", queue, "--ack")
    printed = courier("journal", "--after", str(after), "--json").out.splitlines()
    events = [json.loads(line) for line in printed]
    ours = [event for event in events if event["queue_name"] == queue]
    assert [event["kind"] for event in ours] == ["published", "leased", "acked"]
    assert ours[0]["body"] == "hello"
    rows = courier("journal", "--after", str(after)).rows
    assert [row[2] for row in rows if queue in row] == ["published", "leased", "acked"]


def test_the_last_events_are_shown_and_found_by_queue_kind_time_and_message(
    courier: Command, queue: str
) -> None:
    def printed(*flags: str) -> list[dict[str, Any]]:
        lines = courier("journal", "--json", *flags).out.splitlines()
        return [json.loads(line) for line in lines]

    courier("publish", queue, "--lines", stdin=b"x\n" * 30)
    [pulled] = courier("pull", queue, "--ack", "--count", "1", "--json").json
    last = printed()
    offsets = [event["offset"] for event in last]
    assert len(last) == 20 and offsets == list(range(offsets[0], offsets[0] + 20))
    assert last[-1]["kind"] == "acked"
    courier("queue", "create", f"{queue}-other")
    assert {e["queue_name"] for e in printed("--queue", queue)} == {queue}
    [created] = printed("--queue", queue, "--kind", "queue_created")
    assert created["kind"] == "queue_created"
    kinds = [e["kind"] for e in printed("--message", pulled["id"])]
    assert kinds == ["published", "leased", "acked"]
    assert [e["kind"] for e in printed("--since", "1h", "--queue", queue)][-1] == "acked"
    assert len(printed("--since", "1h", "--queue", queue, "--kind", "published")) == 30
    assert printed("--since", "2100-01-01T00:00:00Z") == []
    said = courier.fails(1, "journal", "--kind", "nonsense")
    assert "unknown kind 'nonsense'; known: acked, " in said
    nothing = courier("journal", "--queue", "no-such-queue")
    assert (nothing.out, nothing.err) == ("", "no such events\n")


def test_follow_starts_now(courier: Command, queue: str) -> None:
    courier("publish", queue, "before")
    with courier.start("journal", "--follow", "--queue", queue, "--limit", "1") as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b" OFFSET")
        time.sleep(1)  # until it has looked where the journal ends
        courier("publish", queue, "behind")
        [line] = process.stdout.readlines()
    assert line.endswith(b"behind\n")


def test_limit_ends_the_list(server: Server, courier: Command, queue: str) -> None:
    courier("publish", queue, "--lines", stdin=b"x\n" * 20)
    assert len(courier("journal", "--limit", "7", "--json").out.splitlines()) == 7


def test_a_list_longer_than_a_page_has_no_gap_and_no_repetition(
    server: Server, courier: Command, queue: str
) -> None:
    after = last_offset(server)
    courier("publish", queue, "--lines", stdin=b"x\n" * 2_500)
    printed = courier("journal", "--after", str(after), "--limit", "2400", "--json").out
    offsets = [json.loads(line)["offset"] for line in printed.splitlines()]
    assert offsets == list(range(after + 1, after + 2_401))


def test_nothing_is_printed_past_the_end(courier: Command) -> None:
    assert courier("journal", "--after", str(10**12), "--json").out == ""


def test_events_of_one_tenant_are_found_among_those_of_others(
    server: Server, courier: Command, queue: str, queue_name: str
) -> None:
    tenant = f"t{queue_name}"
    courier("tenant", "create", tenant)
    token = courier("key", "create", "own", "--scope", "journal", "--tenant", tenant).out.strip()
    after = str(last_offset(server))
    courier("publish", queue, "--lines", stdin=b"x\n" * 2_500)
    courier("queue", "create", queue_name, "--tenant", tenant, "--no-consumer")
    courier("publish", queue, "x")
    by_operator = courier("journal", "--after", after, "--tenant", tenant, "--json").out
    by_tenant = Command("--url", server.url, "--token", token)(
        "journal", "--after", after, "--json"
    )
    (line,) = by_operator.splitlines()
    event = json.loads(line)
    assert (event["kind"], event["queue_name"]) == ("queue_created", queue_name)
    assert by_tenant.out == by_operator


def test_a_tenant_that_does_not_exist_has_no_events(courier: Command, queue_name: str) -> None:
    assert "does not exist" in courier.fails(1, "journal", "--json", "--tenant", queue_name)


def test_follow_prints_events_as_they_happen(server: Server, courier: Command, queue: str) -> None:
    after = last_offset(server)
    with courier.start("journal", "--follow", "--json", "--after", str(after)) as process:
        assert process.stdout is not None
        events = map(json.loads, process.stdout)
        seen: list[str] = []
        for text in ("one", "two"):
            courier("publish", queue, text)
            seen += islice((e["body"] for e in events if e["queue_name"] == queue), 1)
        process.send_signal(signal.SIGINT)
        _, complaint = process.communicate(timeout=30)
    assert (seen, complaint, process.returncode) == (["one", "two"], b"", 130)


def test_follow_has_no_gap_and_no_repetition_while_events_keep_coming(
    server: Server, courier: Command, http: httpx.Client, queue: str
) -> None:
    [found] = http.get("/queues", params={"name": queue}).json()["result"]
    after = last_offset(server)
    follow = ("journal", "--follow", "--json", "--after", str(after), "--limit", "600")
    with ThreadPoolExecutor(1) as pool:
        following = pool.submit(courier, *follow)
        while not following.done():
            http.post(f"/queues/{found['queue_id']}/messages", json={"body": "x"})
    offsets = [json.loads(line)["offset"] for line in following.result().out.splitlines()]
    assert offsets == list(range(after + 1, after + 601))


def test_follow_ends_at_its_limit(server: Server, courier: Command, queue: str) -> None:
    after = last_offset(server)
    courier("publish", queue, "--lines", stdin=b"x\n" * 3)
    ran = courier("journal", "--follow", "--after", str(after), "--limit", "3")
    assert len(ran.rows) == 3


def test_a_key_without_the_scope_is_refused(server: Server, courier: Command) -> None:
    token = courier("key", "create", "reader", "--scope", "read").out.strip()
    reader = Command("--url", server.url, "--token", token)
    assert "journal" in reader.fails(1, "journal", "--json")


def test_a_server_with_small_pages_is_read_without_a_gap(tmp_path: Path) -> None:
    with Server(tmp_path, args=["--journal-page-max", "7"]).start() as server:
        courier = Command("--data", str(server.data))
        courier("queue", "create", "small")
        courier("publish", "small", "--lines", stdin=b"x\n" * 40)
        last = last_offset(server)
        for flags in ((), ("--follow",)):
            args = ("journal", "--json", "--after", "0", "--limit", str(last), *flags)
            printed = courier(*args).out
            offsets = [json.loads(line)["offset"] for line in printed.splitlines()]
            assert offsets == list(range(1, last + 1))


def test_on_80_columns_no_line_wraps_and_ids_are_whole(
    server: Server, courier: Command, queue: str
) -> None:
    courier("publish", queue, '{"a": "rather long body that has no room beside an id"}')
    [message] = [line.split()[0] for line in courier("peek", queue).out.splitlines()[1:]]
    courier("queue", "purge", queue)
    for args in (("journal", "--queue", queue), ("plan", "list")):
        status, shown = on_terminal(*args, "--data", str(server.data))
        lines = re.sub(r"\x1b\[[0-9;]*m", "", shown).splitlines()
        assert status == 0 and max(map(len, lines)) <= 80, shown
        assert args[0] != "journal" or message in shown
