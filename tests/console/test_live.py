"""The journal as a page, and streams of what changes."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from tests.console.conftest import Visitor, new_key, new_queue
from tests.server import Server

STREAM = {"Accept": "text/event-stream"}


def events(answer: httpx.Response) -> Iterator[tuple[str, Any]]:
    kind = ""
    for line in answer.iter_lines():
        if line.startswith("event: "):
            kind = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield kind, json.loads(line.removeprefix("data: "))


def publish(server: Server, queue: str, count: int = 1) -> None:
    with server.client() as http:
        batch = {"messages": [{"body": n, "content_type": "json"} for n in range(count)]}
        assert http.post(f"/queues/{queue}/messages/batch", json=batch).status_code == 200


def test_a_page_is_sent_what_changes(server: Server, operator: Visitor) -> None:
    queue = new_queue(server, "followed")
    path = f"/console/live?page=queue&queue={queue}"
    with operator.http.stream("GET", path, headers=STREAM) as answer:
        assert answer.headers["content-type"] == "text/event-stream"
        found = events(answer)
        assert next(found)[1]["waiting"] == "0"
        publish(server, queue, 100)
        kind, values = next(found)
        assert (kind, values["waiting"]) == ("values", "100")
        assert "leased" not in values


def test_events_are_sent_as_they_happen_and_the_rest_is_counted(
    server: Server, operator: Visitor
) -> None:
    queue = new_queue(server, "busy-events")
    path = "/console/live?page=events&queue=busy-events&kind=published"
    with operator.http.stream("GET", path, headers=STREAM) as answer:
        publish(server, queue, 100)
        kind, got = next(events(answer))
        assert kind == "rows" and len(got["rows"]) == 50 and got["more"] == 50
        assert got["rows"][-1]["queue_name"] == "busy-events"


def test_following_begins_where_the_page_ends(server: Server, operator: Visitor) -> None:
    """What happened since the page was made, or since the connection was lost, is not left out."""
    queue = new_queue(server, "caught-up")
    path = "/console/live?page=events&queue=caught-up&kind=published"
    upto = operator.facts("/console/events")["upto"]
    publish(server, queue, 3)
    with operator.http.stream("GET", f"{path}&upto={upto}", headers=STREAM) as answer:
        _, got = next(events(answer))
        assert len(got["rows"]) == 3
    lost = {**STREAM, "Last-Event-ID": str(got["rows"][-2]["offset"])}
    with operator.http.stream("GET", f"{path}&upto={upto}", headers=lost) as answer:
        _, got = next(events(answer))
        assert len(got["rows"]) == 1


def test_a_stream_ends_with_its_key(server: Server, visitor: Callable[..., Visitor]) -> None:
    queue = new_queue(server, "short-stream")
    made = new_key(server, "ends", ["read"])
    known = visitor(made["token"])
    path = f"/console/live?page=queue&queue={queue}"
    admin = {"Authorization": f"Bearer {server.credentials['admin']['token']}"}
    with known.http.stream("GET", path, headers=STREAM) as answer:
        found = events(answer)
        next(found)
        place = f"{server.url}/courier/v1/tenants/default/keys/{made['key']['id']}"
        assert httpx.delete(place, headers=admin).status_code == 200
        assert [kind for kind, _ in found] == ["gone"]


def test_a_stop_of_the_server_ends_streams(tmp_path: Any) -> None:
    with Server(tmp_path).start() as server:
        visitor = Visitor(server)
        visitor.sign_in(server.credentials["admin"]["token"])
        with visitor.http.stream("GET", "/console/live", headers=STREAM) as answer:
            lines = answer.iter_lines()
            assert next(lines).startswith("retry")
            server.stop()
        visitor.close()


def test_the_journal_needs_its_scope(server: Server, visitor: Callable[..., Visitor]) -> None:
    reader = visitor(new_key(server, "no-journal", ["read"])["token"])
    assert reader.get("/console/events").status_code == 403
    assert reader.get("/console/live?page=events").status_code == 403
    assert "nav-events" not in reader.get("/console").text
    allowed = visitor(new_key(server, "journal", ["read", "journal"])["token"])
    assert allowed.get("/console/events").status_code == 200


def test_a_tenant_sees_its_own_events_only(
    server: Server, operator: Visitor, visitor: Callable[..., Visitor]
) -> None:
    admin = {"Authorization": f"Bearer {server.credentials['admin']['token']}"}
    place = f"{server.url}/courier/v1/tenants"
    assert httpx.post(place, json={"name": "other"}, headers=admin).status_code == 200
    body = {"name": "theirs", "scopes": ["read", "journal"]}
    made = httpx.post(f"{place}/other/keys", json=body, headers=admin).json()
    new_queue(server, "not-theirs")
    theirs = visitor(made["token"])
    for query in ("", "?tenant=default", "?queue=not-theirs"):
        rows = theirs.facts(f"/console/events{query}")["rows"]
        assert not [row for row in rows if "not-theirs" in row["json"]]
    found = operator.facts("/console/events?queue=not-theirs")["rows"]
    assert [row["kind"] for row in found] == ["queue_created"]


def test_events_are_filtered_and_paged(server: Server, operator: Visitor) -> None:
    queue = new_queue(server, "many-events")
    publish(server, queue, 100)
    publish(server, queue, 100)
    first = operator.facts("/console/events?queue=many-events&kind=published")
    assert len(first["rows"]) == 100
    offsets = [row["offset"] for row in first["rows"]]
    assert offsets == sorted(offsets, reverse=True)
    second = operator.facts(
        f"/console/events?queue=many-events&kind=published&before={first['before']}"
    )
    assert len(second["rows"]) == 100
    assert not set(offsets) & {row["offset"] for row in second["rows"]}
    text = operator.facts("/console/events?queue=many-events&q=queue_created")
    assert [row["kind"] for row in text["rows"]] == ["queue_created"]
    nothing = operator.facts("/console/events?until=2020-01-01T00:00Z")
    assert nothing["rows"] == []
    assert operator.get("/console/events?since=x").status_code == 400


@pytest.mark.parametrize("query", ["page=queue&queue=unknown", "page=queue"])
def test_what_is_not_there_is_not_followed(operator: Visitor, query: str) -> None:
    assert operator.get(f"/console/live?{query}").status_code == 403
