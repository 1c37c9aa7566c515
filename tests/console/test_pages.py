"""Pages through the front door, without a script: what they show and what they do."""

import re
import subprocess
import time
from collections.abc import Callable
from html import unescape
from typing import Any

import httpx
import pytest

from courier.console.consumers import shared
from courier.console.lake import AWAY
from courier.console.pages import PARAMETERS
from tests.console.conftest import Visitor, new_exchange, new_key, new_queue
from tests.server import Server

HOSTILE = '"><script>alert(1)</script>\u202e\u0000'


def publish(server: Server, queue: str, *bodies: Any) -> None:
    with server.client() as http:
        for first in range(0, len(bodies), 100):
            part = [{"body": body, "content_type": "json"} for body in bodies[first : first + 100]]
            answer = http.post(f"/queues/{queue}/messages/batch", json={"messages": part})
            assert answer.status_code == 200, answer.text


def consume(server: Server, queue: str, *, retry: bool = False) -> None:
    with server.client() as http:
        http.post(f"/queues/{queue}/consumers", json={"type": "http_pull"})
        pulled = http.post(f"/queues/{queue}/messages/pull", json={"batch_size": 1}).json()
        lease = {"lease_id": pulled["result"]["messages"][0]["lease_id"]}
        body = {"retries": [lease]} if retry else {"acks": [lease]}
        assert http.post(f"/queues/{queue}/messages/ack", json=body).status_code == 200


def test_the_first_page_of_a_new_server_helps(tmp_path: Any) -> None:
    with Server(tmp_path).start() as server:
        visitor = Visitor(server)
        visitor.sign_in(server.credentials["admin"]["token"])
        page = visitor.get("/console").text
        assert "Courier runs. Nothing here yet." in page
        assert server.credentials["cloudflare"]["api_token"] in page
        message = visitor.follow(visitor.post("/console/hello"))
        assert message.status_code == 200 and "hello" in message.text
        assert [row["name"] for row in visitor.facts("/console")["rows"]] == ["hello"]
        visitor.close()
        plain = Visitor(server)
        plain.sign_in(server.credentials["cloudflare"]["api_token"])
        assert server.credentials["cloudflare"]["api_token"] not in plain.get("/console").text
        plain.close()


def test_queues_are_filtered_sorted_and_paged(server: Server, operator: Visitor) -> None:
    for number in range(60):
        new_queue(server, f"many-{number:02d}")
    publish(server, new_queue(server, "many-full"), 1, 2, 3)
    facts = operator.facts("/console?q=many&sort=name")
    assert facts["matching"] == 61 and len(facts["rows"]) == 50
    assert facts["rows"][0]["name"] == "many-00"
    rest = operator.facts("/console?q=many&sort=name&after=50")
    assert [row["name"] for row in rest["rows"]][-1] == "many-full"
    assert operator.facts("/console?q=many&sort=waiting")["rows"][0]["waiting"] == 3
    assert [row["name"] for row in operator.facts("/console?q=many&state=held")["rows"]] == [
        "many-full"
    ]
    none = operator.get("/console?q=ordrs").text
    assert "No queue has 'ordrs' in its name." in none and "Show all" in none
    assert operator.get("/console?after=99999999999&sort=x&state=y").status_code == 200


def test_a_new_queue_or_why_not(operator: Visitor) -> None:
    made = operator.follow(operator.post("/console/queues", name="brand-new"))
    assert "brand-new" in made.text
    taken = operator.post("/console/queues", name="brand-new")
    assert taken.status_code == 409 and "already exists" in taken.text
    wrong = operator.post("/console/queues", name="No Good")
    assert wrong.status_code == 400 and "lower-case letters" in wrong.text
    assert 'value="No Good"' in wrong.text


def test_a_queue_shows_its_messages_without_leasing(server: Server, operator: Visitor) -> None:
    queue = new_queue(server, "looked-at")
    publish(server, queue, *({"n": n, "who": f"c{n % 3}"} for n in range(120)))
    facts = operator.facts(f"/console/queues/{queue}")
    assert facts["now"]["count"] == facts["now"]["waiting"] == 120
    rows = facts["messages"]["rows"]
    assert [row["seq"] for row in rows] == sorted((row["seq"] for row in rows), reverse=True)
    seen = [row["seq"] for row in rows]
    while facts["messages"]["next"]:
        after = facts["messages"]["next"]
        facts = operator.facts(f"/console/queues/{queue}?after={after}")
        seen += [row["seq"] for row in facts["messages"]["rows"]]
    assert len(seen) == len(set(seen)) == 120
    oldest = operator.facts(f"/console/queues/{queue}?order=oldest")["messages"]["rows"]
    assert oldest[0]["seq"] == min(seen) and oldest[0]["attempts"] == 0
    found = operator.facts(f"/console/queues/{queue}?q=c1&path=who")["messages"]
    assert len(found["rows"]) == 40 and found["share"] == 1
    text = operator.facts(f'/console/queues/{queue}?q="n":77')["messages"]["rows"]
    assert len(text) == 1
    ready = operator.facts(f"/console/queues/{queue}?state=ready")["messages"]["rows"]
    assert [row["attempts"] for row in ready] == [0] * 50
    with server.client() as http:
        http.post(f"/queues/{queue}/consumers", json={"type": "http_pull"})
        pulled = http.post(f"/queues/{queue}/messages/pull", json={"batch_size": 1}).json()
    assert pulled["result"]["messages"][0]["attempts"] == 1


def test_messages_of_a_selected_time(server: Server, operator: Visitor) -> None:
    queue = new_queue(server, "timed")
    publish(server, queue, 1)
    time.sleep(1.1)
    between = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    time.sleep(0.01)
    publish(server, queue, 2, 3)
    later = operator.facts(f"/console/queues/{queue}?since={between}")
    assert sorted(row["body"] for row in later["messages"]["rows"]) == ["2", "3"]
    earlier = operator.facts(f"/console/queues/{queue}?until={between}&since=2026-01-01T00:00Z")
    assert [row["body"] for row in earlier["messages"]["rows"]] == ["1"]
    compared = operator.facts(f"/console/queues/{queue}?against=day")["compared"]
    assert compared["says"] == "publishing began"
    assert operator.get(f"/console/queues/{queue}?since=never").status_code == 400


def test_consumers_are_known_by_their_keys(server: Server, operator: Visitor) -> None:
    queue = new_queue(server, "consumed")
    publish(server, queue, 1, 2)
    consume(server, queue)
    [row] = operator.facts(f"/console/queues/{queue}")["consumers"]
    assert (row["name"], row["dialect"], row["leased"], row["acked"]) == (
        "first", "cloudflare", 1, 1,
    )  # fmt: skip


def test_without_a_lake_shares_of_consumers_say_what_keeps_it(
    server: Server, operator: Visitor
) -> None:
    path = f"/console/queues/{new_queue(server, 'shared')}"
    assert "shares=1#consumers" in operator.get(f"{path}?state=leased").text
    assert operator.facts(path)["shares"] is None
    assert operator.facts(f"{path}?shares=1")["shares"]["says"] == AWAY
    assert "<code>courier up</code> keeps it" in operator.get(f"{path}?shares=1").text
    short = f"{path}?shares=1&since=2026-11-17T02:41Z&until=2026-11-17T03:10Z"
    assert "select an hour or more" in operator.facts(short)["shares"]["says"]


def test_shares_are_parts_of_all_that_was_leased() -> None:
    rows = [{"actor": "a", "leased": 30, "acked": 29, "returned": 1},
            {"actor": "b", "leased": 10, "acked": 2, "returned": 8}]  # fmt: skip
    found = [(each.name, each.share) for each in shared(rows, str.upper)]
    assert found == [("A", 0.75), ("B", 0.25)] and shared([], str.upper) == []


def test_a_consumer_is_shown_how_many_of_its_leases_expired(
    server: Server, operator: Visitor
) -> None:
    queue = new_queue(server, "expiring")
    with server.client() as http:
        http.post(f"/queues/{queue}/consumers", json={"type": "http_pull"})
    publish(server, queue, 1, 2, 3, 4)
    with server.client() as http:
        short = {"batch_size": 3, "visibility_timeout_ms": 1_000}
        http.post(f"/queues/{queue}/messages/pull", json=short)
        http.post(f"/queues/{queue}/messages/pull", json={"batch_size": 1})
    deadline = time.monotonic() + 20
    while operator.facts(f"/console/queues/{queue}")["consumers"][0]["expired"] < 3:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    [row] = operator.facts(f"/console/queues/{queue}")["consumers"]
    assert (row["leased"], row["expired"]) == (4, 3)
    assert '<span class="bad">75 %</span>' in operator.get(f"/console/queues/{queue}").text


def test_two_spans_are_compared_with_waits_and_the_busiest_consumer(
    server: Server, operator: Visitor
) -> None:
    queue = new_queue(server, "compared")
    publish(server, queue, 1, 2)
    consume(server, queue)
    at = f"/console/queues/{queue}"
    compared = operator.facts(f"{at}?against=before")["compared"]
    here, there = compared["work_here"], compared["work_there"]
    assert here["busiest"] == "first" and here["wait_p50_ms"] <= here["wait_p95_ms"] < 60_000
    assert (there["busiest"], there["wait_p50_ms"]) == ("", None)
    two = "against=other&other_since=2026-01-01T00:00Z&other_until=2026-01-01T01:00Z"
    compared = operator.facts(f"{at}?{two}")["compared"]
    assert compared["until_ms"] - compared["since_ms"] == 3_600_000
    page = operator.get(f"{at}?{two}").text
    assert 'value="2026-01-01T00:00Z"' in page and "busiest consumer" in page
    backwards = "against=other&other_since=2026-01-01T01:00Z&other_until=2026-01-01T00:00Z"
    assert operator.get(f"{at}?{backwards}").status_code == 400


def test_a_plan_is_a_mark_on_the_chart(server: Server, operator: Visitor) -> None:
    queue = new_queue(server, "marked")
    publish(server, queue, 1)
    made = operator.post("/console/plans", action="purge", queue=queue)
    plan = operator.follow(made).url.path
    at = f"/console/queues/{queue}"
    assert [mark["plan"] for mark in operator.facts(at)["marks"] if mark["plan"]] == []
    operator.post(f"{plan}/run")
    marks = [mark for mark in operator.facts(at)["marks"] if mark["plan"]]
    assert [(mark["says"], mark["plan"]) for mark in marks] == [
        ("Delete 1 message of marked", plan.rpartition("/")[2])
    ]
    assert f'href="../..{plan}"' in operator.get(at).text


def test_pausing_and_freezing(server: Server, operator: Visitor) -> None:
    queue = new_queue(server, "stopped")
    for verb, field, value in (
        ("pause", "paused", True),
        ("resume", "paused", False),
        ("freeze", "frozen", True),
        ("unfreeze", "frozen", False),
    ):
        answer = operator.follow(operator.post(f"/console/queues/{queue}/{verb}"))
        assert answer.status_code == 200
        assert operator.facts(f"/console/queues/{queue}")["settings"][field] is value
    operator.post(f"/console/queues/{queue}/freeze")
    refused = operator.post(f"/console/queues/{queue}/publish", body="{}")
    assert refused.status_code == 400 and "frozen" in refused.text


def test_settings_show_the_difference_first(server: Server, operator: Visitor) -> None:
    queue, dead = new_queue(server, "tuned"), new_queue(server, "tuned-failed")
    before = operator.facts(f"/console/queues/{queue}")
    form = {"lease": "5s", "attempts": "3", "retry": "0s", "dead_letter": "tuned-failed",
            "delay": "0s", "retention": "4d", "modified": str(before["modified_ms"])}  # fmt: skip
    page = operator.post(f"/console/queues/{queue}/settings", **form)
    assert page.status_code == 200
    assert "5 s" in page.text and "running leases keep theirs" in page.text
    assert operator.facts(f"/console/queues/{queue}")["settings"]["lease_ms"] == 30_000
    saved = operator.post(f"/console/queues/{queue}/settings", **form, confirm="true")
    assert saved.status_code == 303
    after = operator.facts(f"/console/queues/{queue}")
    assert (after["settings"]["lease_ms"], after["dead_letter_id"]) == (5_000, dead)
    stale = operator.post(f"/console/queues/{queue}/settings", **form, confirm="true")
    assert stale.status_code == 409 and "meanwhile" in stale.text


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("lease", "soon", "not a duration"),
        ("lease", "20h", "is not from"),
        ("attempts", "0", "not a number from"),
        ("attempts", "x" * 500, "not a number from"),
        ("dead_letter", "nowhere", "no queue"),
        ("dead_letter", "misfilled", "its own dead-letter"),
        ("retention", "0s", "is not from"),
    ],
)
def test_a_wrong_setting_is_said_at_its_field(
    server: Server, operator: Visitor, field: str, value: str, says: str
) -> None:
    with server.client() as http:
        found = http.get("/queues", params={"name": "misfilled"}).json()["result"]
    queue = found[0]["queue_id"] if found else new_queue(server, "misfilled")
    form = {"lease": "5s", "attempts": "3", "retry": "0s", "delay": "0s", "retention": "4d"}
    page = operator.post(f"/console/queues/{queue}/settings", **{**form, field: value})
    assert page.status_code == 400 and says in page.text
    assert 'aria-invalid="true"' in page.text


def test_publishing_leads_to_the_message(server: Server, operator: Visitor) -> None:
    queue = new_queue(server, "written")
    form = {"body": '{"order": 1}', "kind": "json", "headers": '{"colour": "blue"}', "delay": "30s"}
    page = operator.follow(operator.post(f"/console/queues/{queue}/publish", **form))
    assert '"order": 1' in page.text and "colour" in page.text
    assert "published with a delay" in page.text
    for field, value, says in (
        ("body", "{", "not JSON"),
        ("headers", "[]", "not a JSON object"),
        ("delay", "soon", "not a duration"),
        ("delay", "13h", "at most"),
    ):
        refused = operator.post(f"/console/queues/{queue}/publish", **{**form, field: value})
        assert refused.status_code == 400 and says in refused.text
    raw = {"body": "AP8=", "kind": "bytes"}
    page = operator.follow(operator.post(f"/console/queues/{queue}/publish", **raw))
    facts = operator.facts(str(page.url))
    body = operator.get(f"/console/messages/{facts['id']}/body?queue={queue}")
    assert body.content == b"\x00\xff"
    assert body.headers["content-type"] == "application/octet-stream"
    assert body.headers["content-disposition"].startswith("attachment")


def test_hostile_names_and_bodies_are_text(server: Server, operator: Visitor) -> None:
    queue = new_queue(server, "hostile")
    form = {"body": HOSTILE, "kind": "text", "headers": '{"<b>": "<i>\\u202e"}'}
    page = operator.follow(operator.post(f"/console/queues/{queue}/publish", **form))
    for shown in (page, operator.get(f"/console/queues/{queue}?q=%3Cscript%3E")):
        assert "<script>alert" not in shown.text and "<i>" not in shown.text
        assert "\u202e" not in shown.text and "\x00" not in shown.text
        assert "\\u202e" in shown.text
    found = operator.get("/console/find?q=%3Cscript%3E%E2%80%AE").text
    assert "<script>%" not in found and "\u202e" not in found


def test_the_life_of_a_message_goes_on_after_its_burial(server: Server, operator: Visitor) -> None:
    queue = new_queue(server, "lived")
    with server.client() as http:
        consumer = {"type": "http_pull", "dead_letter_queue": "lived-failed",
                    "settings": {"max_retries": 0}}  # fmt: skip
        made = http.post(f"/queues/{queue}/consumers", json=consumer)
        assert made.status_code == 200, made.text
        dead = http.get("/queues", params={"name": "lived-failed"}).json()["result"][0]["queue_id"]
    publish(server, queue, {"order": 7})
    [row] = operator.facts(f"/console/queues/{queue}")["messages"]["rows"]
    consume(server, queue, retry=True)
    [letter] = operator.facts(f"/console/queues/{dead}")["messages"]["rows"]
    admin = {"Authorization": f"Bearer {server.credentials['admin']['token']}"}
    redrive = f"{server.url}/courier/v1/tenants/default/queues/lived-failed/redrive"
    assert httpx.post(redrive, json={}, headers=admin).json()["redriven"] == 1
    [back] = operator.facts(f"/console/queues/{queue}")["messages"]["rows"]
    consume(server, queue)
    story = ["published", "leased", "retried", "buried", "published", "published", "deleted",
             "leased", "acked"]  # fmt: skip
    for id, where in ((row["id"], queue), (letter["id"], dead), (back["id"], queue)):
        facts = operator.facts(f"/console/messages/{id}?queue={where}")
        assert [step["kind"] for step in facts["life"]["steps"]] == story, id
        assert facts["over"] and "as a dead letter" in facts["took"]
    html = operator.get(f"/console/messages/{row['id']}?queue={queue}").text
    assert "lived-failed" in html and "Where did the time go?" in html
    # Where it goes on is said once: as a dead letter, on the queue again, and when the letter went.
    life = html.partition('<ol class="life">')[2].partition("</ol>")[0]
    places = re.findall(r"<span>on <a [^>]*>(\S+) ", life)
    assert places == ["lived-failed", "lived", "lived-failed", "lived"]


def test_finding_by_name_and_id(server: Server, operator: Visitor) -> None:
    queue = new_queue(server, "find-me-here")
    publish(server, queue, 1)
    [row] = operator.facts(f"/console/queues/{queue}")["messages"]["rows"]
    by_name = operator.get("/console/find?q=find-me")
    assert by_name.status_code == 303 and queue in by_name.headers["location"]
    by_id = operator.get(f"/console/find?q={row['id']}")
    assert by_id.status_code == 303 and row["id"] in by_id.headers["location"]
    nothing = operator.get("/console/find?q=nothing-is-called-this").text
    assert "Looked through the names of" in nothing
    assert operator.get(f"/console/messages/{row['id']}").status_code == 200
    assert operator.get("/console/messages/unknown").status_code == 404


def test_an_offset_is_found_in_the_journal(
    server: Server, operator: Visitor, visitor: Callable[..., Visitor]
) -> None:
    publish(server, new_queue(server, "with-offsets"), 1)
    last = operator.facts("/console/events")["last"]
    found = operator.get(f"/console/find?q=%23{last}")
    assert found.status_code == 303
    assert (
        operator.facts("/console/events" + "?" + found.headers["location"].partition("?")[2])[
            "rows"
        ][0]["offset"]
        == last
    )
    assert "has the offsets" in operator.get(f"/console/find?q=%23{last + 10_000}").text
    assert "has the offsets" in operator.get("/console/find?q=%23first").text
    reader = visitor(new_key(server, "no-journal", ["read"])["token"])
    assert "need the scope journal" in reader.get("/console/find?q=%231").text


def test_what_is_not_there_says_what_is_like_it(
    server: Server, operator: Visitor, visitor: Callable[..., Visitor]
) -> None:
    queue = new_queue(server, "shipments")
    link = f'queues/{queue}">shipments</a>'
    for path in ("/console/queues/shipmnts", "/console/queues/shipments"):
        answer = operator.get(path)
        assert answer.status_code == 404 and link in answer.text
    assert link in operator.get("/console/find?q=shpments").text
    plain = operator.get("/console/queues/shipmnts", Accept="application/json").json()
    assert plain["error"]["near"] == ["shipments"]
    new_queue(server, "not-shipped")
    limited = visitor(new_key(server, "one-only", ["read"], "not-shipped")["token"])
    for path in ("/console/queues/shipmnts", "/console/find?q=shpments"):
        assert "shipments" not in limited.get(path).text


def test_a_key_that_only_reads_is_shown_no_buttons(
    server: Server, visitor: Callable[..., Visitor]
) -> None:
    queue = new_queue(server, "read-only")
    publish(server, queue, {"secret": "hush"})
    reader = visitor(new_key(server, "reader", ["read"])["token"])
    page = reader.get(f"/console/queues/{queue}").text
    assert "Pause" not in page and "Publish" not in page and "secret" in page
    refused = reader.post(f"/console/queues/{queue}/pause")
    assert refused.status_code == 403 and "queues:write" in refused.text
    bare = visitor(new_key(server, "bare", ["queues:read"])["token"])
    page = bare.get(f"/console/queues/{queue}?q=secret").text
    assert "messages:read" in page and "hush" not in page
    [row] = bare.facts(f"/console/queues/{queue}")["messages"]["rows"]
    assert row["body"] == "" and row["size"] > 0
    facts = bare.facts(f"/console/messages/{row['id']}?queue={queue}")
    assert facts["body"] is None and facts["headers"] == {}
    assert bare.get(f"/console/messages/{row['id']}/body?queue={queue}").status_code == 403


def test_a_missing_page_is_a_page(operator: Visitor) -> None:
    for path in ("/console/nowhere", "/console/queues/nowhere", "/console/static/x.css"):
        answer = operator.get(path)
        assert answer.status_code == 404 and "<h1>Not found</h1>" in answer.text
    assert operator.http.delete("/console").status_code == 405


def test_files_are_kept_for_a_year(operator: Visitor) -> None:
    page = operator.get("/console").text
    for part in page.split('"'):
        if "/static/" in part:
            answer = operator.get(f"/{part}")
            assert answer.status_code == 200
            assert "max-age=31536000" in answer.headers["cache-control"]


def test_links_work_behind_a_proxy_with_a_prefix(server: Server, operator: Visitor) -> None:
    new_queue(server, "behind-a-proxy")  # with none, the page has whole addresses to paste
    for path in ("/console", "/console/find?q=x"):
        page = operator.get(path).text
        assert 'href="/' not in page and 'action="/' not in page and "http://" not in page


def test_settings_are_the_operators(
    server: Server, operator: Visitor, visitor: Callable[..., Visitor]
) -> None:
    facts = operator.facts("/console/settings")
    assert ["port", str(server.port)] in [each[:2] for each in facts["settings"]]
    page = operator.get("/console/settings").text
    assert "push_networks" in page and "nav-settings" in page
    described = re.findall(r'href="([^"]+/docs)"', page)
    at = f"{server.url}/console/settings"
    assert len(described) == 7
    for path in described:
        assert httpx.get(str(httpx.URL(at).join(path)), trust_env=False).status_code == 200
    assert "default" in operator.get("/console/settings/tenants").text
    tenant = visitor(new_key(server, "everything", ["write", "keys:read", "keys:write"])["token"])
    assert "nav-settings" not in tenant.get("/console").text
    for path in ("/console/settings", "/console/settings/keys", "/console/settings/tenants"):
        assert tenant.get(path).status_code == 403
    assert tenant.post("/console/settings/keys", name="x").status_code == 403


def test_a_key_is_made_and_shown_once_and_deleted_by_its_name(
    server: Server, operator: Visitor, visitor: Callable[..., Visitor]
) -> None:
    queue = new_queue(server, "keyed")
    form = {"name": "one-queue", "scopes": "read, messages:publish", "targets": "keyed"}
    made = operator.post("/console/settings/keys", **form)
    assert made.status_code == 200
    secret = made.text.partition('aria-label="Secret">')[2].partition("<")[0]
    assert secret not in operator.get("/console/settings/keys").text
    for lines in _pasted(made.text):
        answer = subprocess.run(["bash", "-c", f"{lines} -sf"], capture_output=True, text=True)
        assert answer.returncode == 0 and "keyed" in answer.stdout, (lines, answer)
    holder = visitor(secret)
    assert [row["id"] for row in holder.facts("/console")["rows"]] == [queue]
    [row] = [
        each
        for each in operator.facts("/console/settings/keys")["rows"]
        if each["name"] == "one-queue"
    ]
    assert row["targets"] == ["keyed"] and row["used_ms"] is not None
    plan = operator.post("/console/plans", action="delete_key", target=row["id"])
    path = operator.follow(plan).url.path
    assert "type one-queue" in operator.post(f"{path}/run", confirm="other").text
    assert holder.get("/console").status_code == 200
    assert operator.post(f"{path}/run", confirm="one-queue").status_code == 303
    assert holder.get("/console").status_code == 303
    gone = operator.post("/console/plans", action="delete_key", target=row["id"])
    assert gone.status_code == 404


def _pasted(page: str) -> list[str]:
    """The first requests that a page shows for a new key, without their markup."""
    found = re.findall(r'aria-label="First request to [^"]*">(.*?)</pre>', page, re.S)
    return [unescape(each) for each in found]


def test_a_connected_app_is_made_for_anypoint(operator: Visitor) -> None:
    form = {"name": "mule-2", "kind": "connected_app", "scopes": "read"}
    [lines] = _pasted(operator.post("/console/settings/keys", **form).text)
    answer = subprocess.run(["bash", "-c", f"{lines} -sf"], capture_output=True, text=True)
    assert "access_token" in answer.stdout


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("name", "no good", "A key&#39;s name has"),
        ("scopes", "everything", "is not a scope"),
        ("targets", "nowhere", "no queue or exchange"),
    ],
)
def test_a_wrong_key_is_said_at_its_field(
    operator: Visitor, field: str, value: str, says: str
) -> None:
    form = {"name": "good", "scopes": "read", "targets": "", field: value}
    answer = operator.post("/console/settings/keys", **form)
    assert answer.status_code == 400 and says in answer.text
    assert 'aria-invalid="true"' in answer.text


def test_a_query_that_means_nothing_is_not_repeated_in_links(
    server: Server, operator: Visitor
) -> None:
    queue = new_queue(server, "asked-at-length")
    junk = "&".join(f"a{number}={'x' * 50}" for number in range(900))
    for path in ("/console", f"/console/queues/{queue}", "/console/events"):
        answer = operator.get(f"{path}?{junk}&q={'y' * 5_000}")
        assert answer.status_code == 200 and "xxxxx" not in answer.text
        assert len(answer.content) < 150_000


def test_a_deleted_queue_still_has_a_page_and_is_created_again(
    server: Server, operator: Visitor, visitor: Callable[..., Visitor]
) -> None:
    queue = new_queue(server, "bygone")
    with server.client() as http:
        http.patch(f"/queues/{queue}", json={"settings": {"delivery_delay": 9}})
        http.post(f"/queues/{queue}/messages", json={"body": "x", "content_type": "text"})
        assert http.delete(f"/queues/{queue}").status_code == 200
    page = operator.get(f"/console/queues/{queue}")
    assert page.status_code == 200 and "This queue was deleted" in page.text
    assert "1 published" in page.text
    made = operator.follow(operator.post("/console/queues", name="bygone", like=queue))
    facts = operator.facts(made.url.path)
    assert (facts["name"], facts["settings"]["delay_ms"]) == ("bygone", 9_000)
    assert operator.post("/console/queues", name="bygone", like=queue).status_code == 409
    assert operator.get("/console/queues/c0" + "1" * 30).status_code == 404
    other = new_key(server, "other-queue", ["read"], "bygone")["token"]
    assert visitor(other).get(f"/console/queues/{queue}").status_code == 403


def test_an_exchange_says_which_queues_headers_reach(server: Server, operator: Visitor) -> None:
    for name in ("here", "there"):
        new_queue(server, f"routed-{name}")
    new_exchange(server, "routes", ["routed-here", "routed-there"], country="NL")
    [row] = operator.facts("/console?q=routes")["rows"]
    path = f"/console/exchanges/{row['id']}"
    assert "country is NL" in operator.get(path).text
    for headers, reached in (('{"country": "NL"}', [True, True]), ('{"country": "PT"}',
                                                                   [False, True])):  # fmt: skip
        rows = operator.facts(f"{path}?headers={headers}")["rows"]
        assert [each["reached"] for each in rows] == reached
    assert operator.get(f"{path}?headers=NL").status_code == 400


def test_events_are_filtered_by_the_name_of_who_did_it(server: Server, operator: Visitor) -> None:
    """Of a key, and of a listener, whose id is that of what pushed."""
    key = new_key(server, "name-of-a-key", ["read", "write"])
    queue = new_queue(server, "by-name")
    headers = {"Authorization": f"Bearer {key['token']}"}
    at = f"{server.url}/console/queues/{queue}"
    assert httpx.post(f"{at}/pause", headers=headers, json={}).status_code == 303
    [row] = operator.facts("/console/events?actor=name-of-a-key")["rows"]
    assert (row["queue"], row["actor_name"], row["says"]) == (
        queue,
        "name-of-a-key",
        "changed paused",
    )
    made = operator.post(
        f"/console/queues/{queue}/listeners", name="a-mailer", url="http://127.0.0.1:9/"
    )
    assert made.status_code == 200
    assert operator.post(f"/console/queues/{queue}/resume").status_code == 303
    assert operator.post(f"/console/queues/{queue}/publish", body="{}").status_code == 303
    wanted = f"/console/events?actor=a-mailer&queue={queue}&kind=push_failed"
    deadline = time.monotonic() + 30.0
    while not (rows := operator.facts(wanted)["rows"]) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert rows[0]["actor_name"] == "a-mailer"
    assert operator.facts("/console/events?actor=nobody-is-called-this")["rows"] == []


@pytest.mark.parametrize("odd", ["soon", "-1", "9" * 30, "\u202e%00\r\n", "2026-02-31T99:00Z"])
def test_every_page_answers_whatever_a_parameter_is(
    server: Server, operator: Visitor, odd: str
) -> None:
    """In a browser, where a refusal is a page too."""
    queue = new_queue(server, f"odd-{len(odd)}-{ord(odd[0])}")
    publish(server, queue, {"n": 1})
    [row] = operator.facts(f"/console/queues/{queue}")["messages"]["rows"]
    pages = ("", f"/queues/{queue}", f"/messages/{row['id']}", "/events", "/plans", "/settings",
             "/settings/keys", "/settings/connections", "/find")  # fmt: skip
    for page in pages:
        for name in sorted(PARAMETERS):
            answer = operator.http.get(f"/console{page}", params={name: odd})
            assert answer.status_code in (200, 303, 400, 403, 404), (page, name, answer.status_code)
            assert answer.status_code == 303 or "</html>" in answer.text, (page, name)
