"""What the console prints to be pasted into a shell does what it says."""

import json
import os
import shlex
import subprocess
from html import unescape

import pytest

from courier.console.plans import Plan, Selection
from courier.console.shell import plan_line
from tests.cli.command import Command
from tests.console.conftest import Visitor, new_queue
from tests.server import Server


def _filled(server: Server, name: str) -> str:
    queue = new_queue(server, name)
    with server.client() as http:
        http.post(f"/queues/{queue}/consumers", json={"type": "http_pull"})
        late = {"body": {"n": 9, "who": "it's"}, "content_type": "json", "delay_seconds": 900}
        batch = [{"body": {"n": n, "who": "x"}, "content_type": "json"} for n in range(4)]
        http.post(f"/queues/{queue}/messages/batch", json={"messages": [*batch, late]})
    return queue


def _count(visitor: Visitor, queue: str) -> int:
    return int(visitor.facts(f"/console/queues/{queue}")["now"]["count"])


@pytest.mark.parametrize(
    ("name", "form", "words", "deleted"),
    [
        ("shell-purge", {"action": "purge"}, "queue purge shell-purge", 5),
        ("shell-state", {"action": "delete", "which": "all", "state": "delayed"},
         "--state delayed", 1),
        ("shell-text", {"action": "delete", "which": "all", "q": "it's"}, "--search", 1),
        ("shell-path", {"action": "delete", "which": "all", "q": "2", "path": "n"},
         "--search 2 --path n", 1),
        ("shell-time", {"action": "delete", "which": "all", "since": "2026-01-01T00:00Z",
                        "until": "2096-01-01T00:00Z"},
         "--since 2026-01-01T00:00:00Z --until 2096-01-01T00:00:00Z", 5),
        ("shell-chosen", {"action": "delete", "selected": "2"}, "plan run", 1),
    ],
)  # fmt: skip
def test_the_line_of_a_plan_does_the_same(
    server: Server, operator: Visitor, name: str, form: dict[str, str], words: str, deleted: int
) -> None:
    queue = _filled(server, name)
    planned = operator.follow(operator.post("/console/plans", queue=queue, **form))
    facts = operator.facts(planned.url.path)
    line = facts["shell"]
    assert words in line and facts["plan"]["count"] == deleted
    assert line in unescape(planned.text)
    first, *args = shlex.split(line)
    assert first == "courier" and _count(operator, queue) == 5
    Command("--data", str(server.data))(*args)
    assert _count(operator, queue) == 5 - deleted


def test_lines_name_another_tenant_and_many_queues_by_their_plan() -> None:
    plan = Plan(id="p1", action="purge", tenant="t", made_ms=1, made_by="k", queues=[("q", "a b")])
    line = plan_line(plan, "other")
    assert line == "courier queue purge 'a b' --tenant other"
    plan.queues.append(("r", "c"))
    assert plan_line(plan, "other") == "courier plan run p1"
    plan.queues.pop()
    plan.selection = Selection(origin="x")
    assert plan_line(plan, "") == "courier plan run p1"


def test_the_lines_of_a_queue_and_a_message_show_the_same(
    server: Server, operator: Visitor
) -> None:
    queue = _filled(server, "shell-shown")
    page = operator.facts(f"/console/queues/{queue}")
    message = page["messages"]["rows"][0]["id"]
    shown = operator.facts(f"/console/messages/{message}?queue={queue}")
    token = server.credentials["admin"]["token"]
    for facts, of, table in ((page, "shell-shown", "queue_minutes"), (shown, message, "events")):
        (_, cli), (_, curl), (_, sql) = facts["shell"]
        ran = Command("--data", str(server.data))(*shlex.split(cli)[1:])
        assert of in ran.out
        asked = subprocess.run(["bash", "-c", curl], env={**os.environ, "TOKEN": token},
                               capture_output=True, check=True)  # fmt: skip
        assert json.loads(asked.stdout)["id"] == facts["id"]
        assert f"FROM {table} " in sql
