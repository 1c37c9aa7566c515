"""Whatever is done on a page of the console, one comes back to what one was looking at."""

import re
from html import escape, unescape

import httpx
import pytest

from tests.console.conftest import Visitor, new_queue
from tests.server import Server

NOWHERE = "http://127.0.0.1:9/"
VIEW = re.compile(r'name="view" value="([^"]*)"')


def test_what_is_done_to_selected_queues_leads_back_to_the_same_list(
    server: Server, operator: Visitor
) -> None:
    one, two = new_queue(server, "back-to-1"), new_queue(server, "back-to-2")
    assert operator.post(f"/console/queues/{one}/publish", body="{}").status_code == 303
    listed = "/console?q=back-to&sort=name&tenant=default"
    assert {unescape(each) for each in VIEW.findall(operator.get(listed).text)} == {listed}
    fields = {"selected": f"{one},{two}", "view": listed}
    done = operator.post("/console/plans", action="pause", **fields)
    assert done.headers["location"] == f"..{listed}"
    plan = operator.follow(operator.post("/console/plans", action="purge", **fields))
    back = f'href="../..{escape(listed)}"'
    assert back in plan.text
    for verb in ("run", "undo"):
        at = plan.url.path
        plan = operator.follow(operator.post(f"{at}/{verb}"))
        assert back in plan.text and ">Back</a>" in plan.text


@pytest.mark.parametrize(
    "odd",
    ["//elsewhere.example/?q=1", "/console/../v1", "/console/sign-out", "/v1/docs", "https://e.x/",
     "/console?q=\r\nx: y", f"/console?q={'x' * 5_000}"],
)  # fmt: skip
def test_an_action_leads_to_pages_of_the_console_only(
    server: Server, operator: Visitor, odd: str
) -> None:
    queue = new_queue(server, f"odd-{abs(hash(odd)) % 10**9}")
    fields = {"action": "pause", "selected": queue, "view": odd}
    assert operator.post("/console/plans", **fields).headers["location"] == "../console"
    at = f"/console/queues/{queue}"
    assert operator.post(f"{at}/resume", view=odd).headers["location"] == f"../../..{at}"
    plan = operator.follow(operator.post("/console/plans", **{**fields, "action": "purge"}))
    assert f'href="../..{at}">Cancel' in plan.text


def test_every_form_of_a_queue_leads_back_to_what_was_looked_at(
    server: Server, operator: Visitor
) -> None:
    """The span, the search and the state that were chosen, whatever is done."""
    queue = new_queue(server, "looked-at")
    made = operator.post(f"/console/queues/{queue}/listeners", name="mailer", url=NOWHERE)
    assert made.status_code == 200, made.text
    [mailer] = operator.facts(f"/console/queues/{queue}")["listeners"]
    at = f"/console/queues/{queue}"
    view = f"{at}?last=6h&state=waiting&q=c00042"
    assert {unescape(each) for each in VIEW.findall(operator.get(view).text)} == {view}
    for verb in ("pause", "resume", "freeze", "unfreeze"):
        done = operator.follow(operator.post(f"{at}/{verb}", view=view))
        assert done.url.raw_path == view.encode()
    for action in ("disable", "enable"):
        done = operator.post(f"{at}/listeners/{mailer['id']}", action=action, view=view)
        assert done.headers["location"].endswith(f"{view}#listeners")
    fields = {"lease": "1m", "attempts": "", "retry": "0s", "delay": "0s", "retention": "4d",
              "modified": str(operator.facts(at)["modified_ms"]), "view": view}  # fmt: skip
    shown = operator.post(f"{at}/settings", **fields).text
    assert VIEW.findall(shown) == [escape(view)] and f'{escape(view)}">Cancel' in shown
    saved = operator.post(f"{at}/settings", confirm="true", **fields)
    assert saved.headers["location"].endswith(view)


def test_pages_about_another_tenant_lead_to_its_lists(server: Server, operator: Visitor) -> None:
    made = httpx.post(
        f"{server.url}/courier/v1/tenants",
        json={"name": "acme"},
        headers={"Authorization": f"Bearer {server.credentials['admin']['token']}"},
    )
    assert made.is_success, made.text
    new = operator.follow(operator.post("/console/queues?tenant=acme", name="theirs"))
    plan = operator.follow(
        operator.post("/console/plans", action="purge", queue=new.url.path.rpartition("/")[2])
    )
    for page in (new, plan):
        for link in ("", "/events", "/settings"):
            assert f'/console{link}?tenant=acme"' in page.text, link
        assert '<input type="hidden" name="tenant" value="acme">' in page.text
    assert "tenant=" not in operator.get(f"/console/queues/{new_queue(server, 'ours')}").text
