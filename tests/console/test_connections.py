"""Listeners, workers, exchanges, subscriptions and domains, made and changed with forms."""

import json
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.console.conftest import Visitor, new_exchange, new_key, new_queue
from tests.server import Server

PAGE = "/console/settings/connections"


def kinds(server: Server, after: int) -> list[tuple[str, str]]:
    """Kind and dialect of the events after an offset."""
    headers = {"Authorization": f"Bearer {server.credentials['admin']['token']}"}
    params = {"after": after, "limit": 1_000}
    lines = httpx.get(f"{server.url}/journal", params=params, headers=headers).text.splitlines()
    found = [json.loads(line) for line in lines]
    return [(each["kind"], each["dialect"]) for each in found if "session" not in each["kind"]]


def last(operator: Visitor) -> int:
    return int(operator.facts("/console/events")["last"])


def test_a_listener_is_made_disabled_and_deleted_by_its_name(
    server: Server, operator: Visitor
) -> None:
    queue = new_queue(server, "pushed-from")
    at, begun = f"/console/queues/{queue}", last(operator)
    for name, url, says in (
        ("x", "http://127.0.0.1:9/a", "4 to 64 letters"),
        ("mailer", "ftp://127.0.0.1/", "http"),
        ("mailer", "http://10.1.1.1/", "push_networks"),
    ):
        wrong = operator.post(f"{at}/listeners", name=name, url=url)
        assert wrong.status_code == 400 and says in wrong.text, wrong.text
        assert 'aria-invalid="true"' in wrong.text
    made = operator.post(f"{at}/listeners", name="mailer", url="http://127.0.0.1:9/hook")
    assert made.status_code == 200 and "whsec_" in made.text
    again = operator.post(f"{at}/listeners", name="mailer", url="http://127.0.0.1:9/hook")
    assert again.status_code == 409
    [listener] = operator.facts(at)["listeners"]
    form = f"{at}/listeners/{listener['id']}"
    assert operator.follow(operator.post(form, action="disable")).status_code == 200
    assert operator.facts(at)["listeners"][0]["disabled_by"] == "user"
    operator.follow(operator.post(form, action="enable"))
    assert operator.facts(at)["listeners"][0]["disabled_by"] == ""
    refused = operator.post(form, action="delete", confirm="mail")
    assert refused.status_code == 400 and "type mailer" in refused.text
    operator.follow(operator.post(form, action="delete", confirm="mailer"))
    assert operator.facts(at)["listeners"] == []
    assert [each for each in kinds(server, begun) if each[0].startswith("listener_")] == [
        ("listener_created", "console"),
        ("listener_updated", "console"),
        ("listener_updated", "console"),
        ("listener_deleted", "console"),
    ]


def test_a_key_of_another_queue_makes_no_listener(
    server: Server, visitor: Callable[..., Visitor]
) -> None:
    own, other = new_queue(server, "reached"), new_queue(server, "beyond")
    key = new_key(server, "limited", ["listeners:write", "queues:read"], "reached")["token"]
    url = "http://127.0.0.1:9/hook"
    limited = visitor(key)
    assert limited.post(f"/console/queues/{own}/listeners", name="mine", url=url).is_success
    refused = limited.post(f"/console/queues/{other}/listeners", name="mine", url=url)
    assert refused.status_code == 403
    assert limited.post(PAGE, action="worker", name="w", url=url).status_code == 403


def test_a_worker_is_saved_moved_and_removed(server: Server, operator: Visitor) -> None:
    wrong = operator.post(PAGE, action="worker", name="resize", url="nowhere")
    assert wrong.status_code == 400 and 'id="worker-problem"' in wrong.text
    first = operator.post(PAGE, action="worker", name="resize", url="http://127.0.0.1:9/a")
    assert first.status_code == 200 and "whsec_" in first.text
    operator.post(PAGE, action="worker", name="resize", url="http://127.0.0.1:9/b")
    rows = {row["name"]: row["url"] for row in operator.facts(PAGE)["workers"]}
    assert rows["resize"] == "http://127.0.0.1:9/b"
    operator.follow(operator.post(PAGE, action="remove_worker", target="resize"))
    assert "resize" not in {row["name"] for row in operator.facts(PAGE)["workers"]}
    gone = operator.post(PAGE, action="remove_worker", target="resize")
    assert gone.status_code == 409 and "does not exist" in gone.text
    assert operator.post(PAGE, action="something").status_code == 400


def test_an_exchange_is_made_bound_by_rules_and_deleted(server: Server, operator: Visitor) -> None:
    begun = last(operator)
    for name in ("north", "south"):
        new_queue(server, name)
    assert operator.post(PAGE, action="exchange", name="Not This").status_code == 400
    operator.follow(operator.post(PAGE, action="exchange", name="regions"))
    assert operator.post(PAGE, action="exchange", name="regions").status_code == 409
    [row] = [row for row in operator.facts(PAGE)["exchanges"] if row["name"] == "regions"]
    at = f"/console/exchanges/{row['id']}"
    rule = {"header": "latitude", "test": "gt", "value": "0"}
    operator.follow(operator.post(at, action="bind", queue="north", **rule))
    operator.follow(operator.post(at, action="bind", queue="south"))
    facts = operator.facts(f"{at}?headers=%7B%22latitude%22%3A%20-3%7D")
    assert {each["name"]: (each["rule"], each["reached"]) for each in facts["rows"]} == {
        "north": ("latitude is above 0.0", False),
        "south": ("everything", True),
    }
    for field, form in (
        ("queue", {"queue": "nowhere"}),
        ("value", {"queue": "north", "header": "a", "test": "lt", "value": "b"}),
        ("value", {"queue": "north", "header": "a", "test": "range", "value": "1"}),
        ("test", {"queue": "north", "header": "a", "test": "like"}),
    ):
        wrong = operator.post(at, action="bind", **form)
        assert wrong.status_code == 400 and 'id="bind-problem"' in wrong.text, field
    operator.follow(operator.post(at, action="unbind", queue="south"))
    assert [each["name"] for each in operator.facts(at)["rows"]] == ["north"]
    assert "type regions" in operator.post(at, action="delete", confirm="region").text
    operator.follow(operator.post(at, action="delete", confirm="regions"))
    assert operator.get(at).status_code == 404
    made = [each[0] for each in kinds(server, begun) if each[1] == "console"]
    assert made == [
        "exchange_created", "binding_created", "binding_updated", "binding_created",
        "binding_deleted", "binding_deleted", "exchange_deleted",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("test", "value", "says"),
    [
        ("eq", "NL", "country is NL"),
        ("any_of", "NL, BE", "country is one of NL, BE"),
        ("exists", "no", "country is not there"),
        ("range", "1, 5", "country is from, to 1.0, 5.0"),
    ],
)
def test_rules_of_a_form(
    server: Server, operator: Visitor, test: str, value: str, says: str
) -> None:
    with server.client() as http:
        known = http.get("/queues", params={"name": "ruled-0"}).json()["result"]
    if not known:
        new_queue(server, "ruled-0")
        new_exchange(server, "ruled", ["ruled-0"], country="DE")
    [row] = [row for row in operator.facts(PAGE)["exchanges"] if row["name"] == "ruled"]
    at = f"/console/exchanges/{row['id']}"
    form = {"queue": "ruled-0", "header": "country", "test": test, "value": value}
    operator.follow(operator.post(at, action="bind", **form))
    assert operator.facts(at)["rows"][0]["rule"] == says


def test_events_become_messages_by_a_subscription(server: Server, operator: Visitor) -> None:
    queue = new_queue(server, "told")
    form: dict[str, Any] = {"name": "news", "source": "courier.queue", "events": "created"}
    for field, change in (("queue", {"queue": "nowhere"}), ("events", {"events": "born"}),
                          ("source", {"source": "mars"}), ("name", {"name": ""})):  # fmt: skip
        wrong = operator.post(PAGE, action="subscription", **{"queue": "told", **form, **change})
        assert wrong.status_code == 400, field
        assert 'id="subscription-problem"' in wrong.text
    operator.follow(operator.post(PAGE, action="subscription", queue="told", **form))
    new_queue(server, "newborn")
    at = f"/console/queues/{queue}"
    assert _soon(lambda: operator.facts(at)["now"]["count"] == 1)
    [row] = operator.facts(PAGE)["subscriptions"]
    operator.follow(operator.post(PAGE, action="switch_subscription", target=row["id"]))
    assert operator.facts(PAGE)["subscriptions"][0]["enabled"] is False
    operator.follow(operator.post(PAGE, action="remove_subscription", target=row["id"]))
    assert operator.facts(PAGE)["subscriptions"] == []


def test_a_domain_is_claimed_and_given_up(server: Server, operator: Visitor) -> None:
    for field, value in (("hostname", "-"), ("port", "0"), ("port", "x")):
        form = {"hostname": "hooks.example.org", "port": "443", field: value}
        assert operator.post(PAGE, action="domain", **form).status_code == 400, field
    form = {"name": "hooks", "hostname": "Hooks.Example.org", "port": "443"}
    operator.follow(operator.post(PAGE, action="domain", **form))
    [row] = operator.facts(PAGE)["domains"]
    assert row["host"] == "hooks.example.org:443" and row["url"].startswith("https://hooks.")
    assert row["content"] in operator.get(PAGE).text
    operator.follow(operator.post(PAGE, action="remove_domain", target=row["id"]))
    assert operator.facts(PAGE)["domains"] == []


def _soon(holds: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 30
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True
