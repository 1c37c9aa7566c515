"""The journal over HTTP: the same range gives the same rows, as JSON lines and as Arrow."""

import json
from contextlib import closing

import pyarrow as pa

from courier.ops.journal import PAGE_BYTES_MAX
from tests.ops.conftest import Journal
from tests.server import Server

TOLD = ["published"] * 4 + ["leased"] * 3 + ["retried", "acked", "purged", "purged", "purged"]
MESSAGE_KINDS = set(TOLD)


def test_the_story_is_told_in_dense_offsets(story: Journal) -> None:
    events = story.events(after=0, limit=1000)
    assert [event["offset"] for event in events] == list(range(1, len(events) + 1))
    assert [event["kind"] for event in events if event["kind"] in MESSAGE_KINDS] == TOLD
    assert story.head()["last"] == events[-1]["offset"]


def test_published_carries_the_message(story: Journal) -> None:
    first, second, *_ = [e for e in story.events(after=0) if e["kind"] == "published"]
    assert (first["body"], first["content_type"], first["size"]) == ('{"n":1}', "json", 7)
    assert (second["body"], second["content_type"], second["size"]) == ("text 2", "text", 6)
    assert first["published_ms"] == first["at_ms"]
    assert first["queue_name"] == "story" and first["dialect"] == "cloudflare"


def test_an_event_that_ends_a_message_tells_its_life(story: Journal) -> None:
    events = story.events(after=0)
    acked = next(event for event in events if event["kind"] == "acked")
    published = next(event for event in events if event["kind"] == "published")
    leased = next(event for event in events if event["kind"] == "leased")
    assert acked["message_id"] == published["message_id"]
    assert acked["published_ms"] == published["at_ms"]
    assert acked["first_leased_ms"] == acked["last_leased_ms"] == leased["at_ms"]
    assert (acked["attempt"], acked["size"]) == (1, 7)


def test_every_range_is_a_slice_of_the_whole(story: Journal) -> None:
    whole = story.events(after=0, limit=1000)
    for after in range(len(whole) + 1):
        for limit in (1, 2, 5, 1000):
            assert story.events(after=after, limit=limit) == whole[after : after + limit]


def test_a_tenants_key_sees_its_own_events_only(story: Journal) -> None:
    story.call("POST", "/courier/v1/tenants", {"name": "other"})
    keys = "/courier/v1/tenants/{}/keys"
    body = {"name": "reader", "scopes": ["journal"]}
    own = story.call("POST", keys.format("default"), body).json()["token"]
    other = story.call("POST", keys.format("other"), body).json()["token"]
    assert [e["kind"] for e in story.events(token=own, after=0, limit=1000)].count("published") == 4
    others = story.events(token=other, after=0, limit=1000)
    assert others and all(event["kind"].startswith("key_") for event in others)
    refused = story.call("PUT", "/journal/pipelines/mine", {"offset": 1}, token=own)
    assert refused.status_code == 403


def test_a_pipeline_is_registered_moves_forward_and_is_forgotten(story: Journal) -> None:
    path = "/journal/pipelines/lake"
    assert story.call("PUT", path, {"offset": 3}).json()["offset"] == 3
    assert story.call("PUT", path, {"offset": 2}).json()["offset"] == 3
    assert story.call("PUT", path, {"offset": 5}).json()["offset"] == 5
    # Lost events count once, however often the reader says so.
    for _ in range(2):
        assert story.call("PUT", path, {"offset": 7, "lost": 2}).json()["lost"] == 2
    # And while it says so, the journal may lose more.
    assert story.call("PUT", path, {"offset": 8, "lost": 3}).json()["lost"] == 3
    assert story.call("PUT", path, {"offset": 5, "restart": True}).json()["offset"] == 5
    listed = story.call("GET", "/journal/pipelines").json()["pipelines"]
    assert [(each["name"], each["offset"]) for each in listed] == [("lake", 5)]
    lag = f'courier_pipeline_lag_offsets{{pipeline="lake"}} {story.head()["last"] - 5:.1f}'
    assert lag in story.call("GET", "/metrics").text
    assert story.call("DELETE", path).status_code == 200
    assert story.call("DELETE", path).status_code == 404


def test_keys_never_show_their_digest_in_the_journal(story: Journal) -> None:
    for event in story.events(after=0, limit=1000):
        assert "digest" not in event.get("detail", {})


def test_readers_of_the_servers_own_are_left_to_the_server(story: Journal) -> None:
    for method, body in (("PUT", {"offset": 0}), ("DELETE", None)):
        refused = story.call(method, "/journal/pipelines/courier.events", body)
        assert refused.status_code == 400
        assert "the server's own" in refused.json()["error"]["message"]


# --- pages ---


def page(story: Journal, query: str, *, token: str | None = None) -> tuple[list[int], int]:
    """The offsets on a page, and the last that was looked at."""
    answer = story.call("GET", f"/journal?{query}", token=token)
    assert answer.status_code == 200, answer.text
    assert answer.headers["x-courier-epoch"] == story.head()["epoch"]
    offsets = [json.loads(line)["offset"] for line in answer.text.splitlines()]
    return offsets, int(answer.headers["x-courier-upto"])


def test_a_page_says_how_far_it_goes(story: Journal) -> None:
    last = story.head()["last"]
    assert page(story, "after=0&limit=3") == ([1, 2, 3], 3)
    assert page(story, f"after={last - 2}&limit=100") == ([last - 1, last], last)
    assert page(story, f"after={last}") == ([], last)
    assert page(story, f"after={last + 5}") == ([], last + 5)


def test_a_page_goes_as_far_whatever_is_left_out_of_it(story: Journal) -> None:
    events = story.events(after=0, limit=1000)
    last = len(events)
    offsets = {
        kind: [event["offset"] for event in events if event["kind"] == kind]
        for kind in ("published", "acked")
    }
    assert page(story, "kinds=acked") == (offsets["acked"], last)
    both = sorted(offsets["acked"] + offsets["published"])
    assert page(story, "kinds=acked,published") == (both, last)
    assert page(story, "kinds=acked&kinds=published") == (both, last)
    first = offsets["published"][0]
    assert page(story, f"kinds=acked&limit={first}") == ([], first)
    assert {"acked", "queue_created"} <= set(story.call("GET", "/journal/kinds").json()["kinds"])
    refused = story.call("GET", "/journal?kinds=ackd")
    assert refused.status_code == 400 and "unknown kind 'ackd'" in refused.text


def test_queues_are_asked_for_by_name(story: Journal) -> None:
    events = story.events(after=0, limit=1000)
    for name in ("story", ""):
        wanted = [event["offset"] for event in events if event["queue_name"] == name]
        found, _ = page(story, f"queues={name}")
        assert wanted and found == wanted
    found, _ = page(story, "queues=story&kinds=leased")
    leased = [event["offset"] for event in events if event["kind"] == "leased"]
    assert found == leased
    assert page(story, "queues=elsewhere")[0] == []


def test_filters_are_those_of_the_caller_on_top_of_what_it_may_see(story: Journal) -> None:
    story.call("POST", "/courier/v1/tenants", {"name": "stranger"})
    body = {"name": "stranger", "scopes": ["journal"]}
    made = story.call("POST", "/courier/v1/tenants/stranger/keys", body)
    token = made.json()["token"]
    last = story.head()["last"]
    for query in ("limit=1000&queues=story", "limit=1000&kinds=published"):
        assert page(story, query, token=token) == ([], last)
        answer = story.call(
            "GET", f"/journal?{query}", token=token, Accept="application/vnd.apache.arrow.stream"
        )
        with pa.ipc.open_stream(answer.content) as reader:
            assert reader.read_all().num_rows == 0
    mine, upto = page(story, "limit=1000&kinds=key_created", token=token)
    assert len(mine) >= 1 and upto == last


def test_columns_are_those_of_a_table(story: Journal) -> None:
    path = "/journal?limit=1000&kinds=published&columns={}"
    arrow = "application/vnd.apache.arrow.stream"
    answer = story.call("GET", path.format("queue,body,offset,queue"), Accept=arrow)
    with pa.ipc.open_stream(answer.content) as reader:
        rows = reader.read_all()
    assert rows.column_names == ["queue", "body", "offset"]
    assert rows.column("queue").to_pylist() == ["story"] * 4
    assert rows.column("body").to_pylist()[1] == b"text 2"
    for name in ("queue_name", "at_ms", "", "nothing"):
        refused = story.call("GET", path.format(name), Accept=arrow)
        assert refused.status_code == 400
        message = refused.json()["error"]["message"]
        assert message == f"columns: there is no column '{name}'"


def test_lines_of_json_have_no_columns(story: Journal) -> None:
    refused = story.call("GET", "/journal?columns=offset")
    assert refused.status_code == 400
    assert "columns: only a page of application/vnd" in refused.json()["error"]["message"]


def test_the_head_says_what_was_there_before_a_time(story: Journal) -> None:
    events = story.events(after=0, limit=1000)
    times = [event["at_ms"] for event in events]
    for at_ms in {0, times[0], times[-1], times[len(times) // 2] + 1}:
        before = sum(time < at_ms for time in times)
        assert story.call("GET", f"/journal/head?at_ms={at_ms}").json()["before"] == before
    later = story.call("GET", f"/journal/head?at_ms={times[-1] + 10**9}").json()
    assert later["before"] == later["last"]
    assert story.call("GET", "/journal/head?at_ms=soon").status_code == 400


def test_a_page_of_long_bodies_is_shorter_and_none_is_left_out(fresh_server: Server) -> None:
    body, count = "x" * 120_000, 200
    with closing(Journal(fresh_server)) as journal, fresh_server.client() as http:
        queue = http.post("/queues", json={"queue_name": "long"}).json()["result"]["queue_id"]
        for _ in range(count):
            made = http.post(
                f"/queues/{queue}/messages", json={"body": body, "content_type": "text"}
            )
            assert made.status_code == 200
        last, after, pages = journal.head()["last"], 0, []
        while after < last:
            offsets, upto = page(journal, f"after={after}&limit=50000")
            assert offsets == list(range(after + 1, upto + 1)) and offsets
            pages.append(len(offsets))
            after = upto
    assert len(pages) == 1 + count * len(body) // PAGE_BYTES_MAX == 2
