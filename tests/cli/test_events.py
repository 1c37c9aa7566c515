"""`courier event`."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from courier.dialects.cloudflare.sources import SOURCES
from tests.cli.command import SECONDS_MAX, Command, clean_environ
from tests.server import Server

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[2] / "docs" / "events.md"

WORKER = ("workersBuilds.worker", "build.started")


@pytest.fixture
def subscribed(http: httpx.Client, queue: str) -> str:
    """A queue that is told of builds of a worker that has its name."""
    id = http.get("/queues", params={"name": queue}).json()["result"][0]["queue_id"]
    body = {
        "source": {"type": WORKER[0], "worker_name": queue},
        "events": [WORKER[1]],
        "destination": {"type": "queues.queue", "queue_id": id},
    }
    assert http.post("/event_subscriptions/subscriptions", json=body).is_success
    return queue


def told(courier: Command, queue: str) -> list[dict[str, Any]]:
    """What the queue has been told since the last time."""
    pulled = courier("pull", queue, "--count", "100", "--ack", "--json").json
    return [json.loads(message["body"]) for message in pulled]


def test_an_event_is_sent_to_its_subscriptions(courier: Command, subscribed: str) -> None:
    field = ("--field", f"worker_name={subscribed}")
    payload = '{"buildUuid": "b-1", "n": 1.00}'
    sent = courier("event", "send", *WORKER, *field, "--payload", payload)
    assert sent.out == "sent to 1 subscription\n"
    [event] = told(courier, subscribed)
    assert event["type"] == "cf.workersBuilds.worker.build.started"
    assert event["source"] == {"type": "workersBuilds.worker", "workerName": subscribed}
    assert event["payload"] == {"buildUuid": "b-1", "n": 1.0}
    nobody = courier("event", "send", *WORKER, "--field", f"worker_name={subscribed}-other")
    assert nobody.out == "sent to 0 subscriptions\n"
    assert told(courier, subscribed) == []


def test_a_payload_is_kept_digit_for_digit_from_stdin_too(
    courier: Command, subscribed: str
) -> None:
    field = ("--field", f"worker_name={subscribed}")
    exact = '{"n":1.000000000000000000001}'
    courier("event", "send", *WORKER, *field, "--payload", "-", stdin=exact.encode())
    courier("event", "send", *WORKER, *field)
    one, two = courier("pull", subscribed, "--count", "2", "--ack", "--json").json
    assert exact in one["body"]
    assert '"payload":{}' in two["body"]


def test_an_id_makes_sending_again_harmless(courier: Command, subscribed: str) -> None:
    send = ("event", "send", *WORKER, "--field", f"worker_name={subscribed}", "--id", "build-1")
    assert courier(*send, "--json").json == {"delivered": 1, "repeated": 0, "refused": 0}
    assert courier(*send).out == "sent to 0 subscriptions; 1 had it already\n"
    assert len(told(courier, subscribed)) == 1


def test_a_queue_that_takes_nothing_is_said(courier: Command, subscribed: str) -> None:
    courier("queue", "freeze", subscribed)
    sent = courier("event", "send", *WORKER, "--field", f"worker_name={subscribed}")
    assert sent.out == "sent to 0 subscriptions; 1 could not take it\n"


def test_it_is_sent_for_the_tenant_named(
    courier: Command, server: Server, subscribed: str, queue_name: str
) -> None:
    courier("tenant", "create", f"t-{queue_name}")
    field = ("--field", f"worker_name={subscribed}")
    sent = courier("event", "send", *WORKER, *field, "--tenant", f"t-{queue_name}")
    assert sent.out == "sent to 0 subscriptions\n"
    token = server.credentials["cloudflare"]["api_token"]
    alone = Command("--url", server.url, "--token", token)
    assert alone("event", "send", *WORKER, *field).out == "sent to 1 subscription\n"
    line = alone.fails(1, "event", "send", *WORKER, *field, "--tenant", f"t-{queue_name}")
    assert "queues:write" in line


@pytest.mark.parametrize(
    ("args", "status", "said"),
    [
        (("kv", "namespace.renamed"), 1, "namespace.renamed"),
        (("nothing", "namespace.created"), 1, "source.type"),
        (("courier.queue", "created"), 1, "arise in Courier itself"),
        (("kv", "namespace.created", "--field", "color=red"), 1, "source.color"),
        (("kv", "namespace.created", "--payload", "[]"), 1, "payload"),
        (("kv", "namespace.created", "--id", ""), 1, "id"),
        (("kv", "namespace.created", "--payload", "{"), 2, "payload is not JSON"),
        (("kv", "namespace.created", "--field", "color"), 2, "NAME=VALUE"),
        (("kv", "namespace.created", "--field", "=red"), 2, "NAME=VALUE"),
        (("kv", "namespace.created", "--field", "type=r2"), 2, "type"),
        (("kv", "namespace.created", "--field", "a=1", "--field", "a=2"), 2, "twice"),
        (("kv",), 2, "EVENT"),
    ],
)
def test_what_cannot_be_sent_is_explained(
    courier: Command, args: tuple[str, ...], status: int, said: str
) -> None:
    assert said in courier.fails(status, "event", "send", *args)


def test_the_example_of_the_documentation(fresh_server: Server, tmp_path: Path) -> None:
    (tmp_path / "courier-data").symlink_to(fresh_server.data)
    [pasted] = re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text(), re.M | re.S)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-e", "-u", "-o", "pipefail", "-c", pasted],
        cwd=tmp_path,
        env={**clean_environ(), "PATH": path, "NO_PROXY": "*", "no_proxy": "*"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=SECONDS_MAX,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    assert "sent to 1 subscription\n" in done.stdout
    assert '"payload":{"buildUuid":"b-1"}' in done.stdout


@pytest.mark.parametrize("kind", SOURCES)
def test_the_documentation_names_a_source_its_fields_and_its_events(kind: str) -> None:
    fields, events = SOURCES[kind]
    [row, *_] = re.findall(
        rf"^\| `{re.escape(kind)}` (.*?)(?=^\| `|^$)", PAGE.read_text(), re.M | re.S
    )
    for field in set(fields) - {"threshold"}:
        assert f"`{field}`" in row
    for event in set(events) - {"image.*"}:
        # `job.started`, `.paused` saves the reader some words.
        assert f"`{event}`" in row or f"`.{event.partition('.')[2]}`" in row, event
