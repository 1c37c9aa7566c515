"""`courier console`: a link that works once."""

import httpx

from tests.cli.command import Command
from tests.server import Server


def test_the_link_signs_in_once(server: Server, courier: Command) -> None:
    link = courier("console", "--print").out.strip()
    assert link.startswith(f"{server.url}/console/enter?code=")
    first = httpx.get(link)
    assert first.status_code == 303 and "courier_console=" in first.headers["set-cookie"]
    assert httpx.get(link).status_code == 401


def test_a_plan_is_listed_shown_and_undone(server: Server, courier: Command) -> None:
    courier("queue", "create", "planned")
    for body in ("one", "two"):
        courier("publish", "planned", body)
    bearer = {"Authorization": f"Bearer {server.credentials['admin']['token']}",
              "Accept": "application/json"}  # fmt: skip
    queues = httpx.get(f"{server.url}/console?q=planned", headers=bearer).json()["rows"]
    asked = {"action": "purge", "queue": queues[0]["id"]}
    made = httpx.post(f"{server.url}/console/plans", json=asked, headers=bearer).json()
    ran = httpx.post(f"{server.url}{made['path']}/run", json={}, headers=bearer)
    assert ran.status_code == 303
    [row] = [row for row in courier("plan", "list").rows if row[1].endswith("of planned")]
    id = made["path"].rpartition("/")[2]
    assert row[0] == id
    assert "done: 2 done" in courier("plan", "show", id).out
    assert "Put back 2 messages on planned" in courier("plan", "undo", id).out
    assert courier.attempt("plan", "undo", id).status == 1
    assert len(courier("peek", "planned", "--count", "10", "--json").out.splitlines()) >= 2
