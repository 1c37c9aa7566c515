"""Claims and backlogs over HTTP, beside consumers who pull."""

import base64
import io
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import httpx
import pyarrow as pa
import pytest

from courier.lake.schema import CLAIMED
from tests.clients.anypoint import environment_client
from tests.conformance.cross.anypoint import Anypoint
from tests.server import Server

ARROW = "application/vnd.apache.arrow.stream"
MESSAGES = 1_500
EMPTY_ROUNDS = 5


@pytest.fixture(scope="module")
def operator(server: Server) -> Iterator[httpx.Client]:
    """At the root, with the admin's token."""
    with server.operator("") as client:
        yield client


class Queue:
    """A queue that Cloudflare's clients and claims share."""

    def __init__(self, http: httpx.Client, operator: httpx.Client, name: str) -> None:
        self.http = http
        self.operator = operator
        self.name = name
        self.id: str = http.post("/queues", json={"queue_name": name}).json()["result"]["queue_id"]
        http.post(f"/queues/{self.id}/consumers", json={"type": "http_pull"})

    def publish(self, *bodies: str) -> None:
        for start in range(0, len(bodies), 100):
            part = [{"body": b, "content_type": "text"} for b in bodies[start : start + 100]]
            answer = self.http.post(f"/queues/{self.id}/messages/batch", json={"messages": part})
            assert answer.status_code == 200, answer.text

    def pull(self, count: int = 100) -> list[dict[str, Any]]:
        asked = {"batch_size": count, "visibility_timeout_ms": 60_000}
        answer = self.http.post(f"/queues/{self.id}/messages/pull", json=asked)
        found: list[dict[str, Any]] = answer.json()["result"]["messages"]
        return found

    def ack(self, leases: list[str]) -> None:
        asked = {"acks": [{"lease_id": lease} for lease in leases]}
        assert self.http.post(f"/queues/{self.id}/messages/ack", json=asked).status_code == 200

    def path(self, claim: str) -> str:
        return f"/courier/v1/tenants/default/queues/{self.name}/claims/{claim}"

    def claim(self, claim: str, *, count: int = 100, lease_ms: int = 60_000) -> int:
        asked = {"count": count, "lease_ms": lease_ms}
        answer = self.operator.put(self.path(claim), json=asked)
        assert answer.status_code == 200, answer.text
        return int(answer.json()["count"])

    def lines(self, claim: str, **query: int) -> list[dict[str, Any]]:
        answer = self.operator.get(self.path(claim), params=query)
        assert answer.status_code == 200, answer.text
        assert answer.headers["content-type"] == "application/x-ndjson"
        return [json.loads(line) for line in answer.text.splitlines()]

    def table(self, claim: str, **query: int) -> pa.Table:
        answer = self.operator.get(self.path(claim), params=query, headers={"Accept": ARROW})
        assert answer.status_code == 200, answer.text
        assert answer.headers["content-type"] == ARROW
        with pa.ipc.open_stream(io.BytesIO(answer.content)) as reader:
            return reader.read_all()

    def backlog(self) -> int:
        return int(self.operator.get("/journal/backlogs").json()["queues"][self.id])


@pytest.fixture
def queue(http: httpx.Client, operator: httpx.Client, queue_name: str) -> Queue:
    return Queue(http, operator, queue_name)


def refused(answer: httpx.Response, status: int) -> str:
    assert answer.status_code == status, answer.text
    message: str = answer.json()["error"]["message"]
    return message


# --- one claim ---


def test_a_claim_is_made_read_extended_and_acknowledged(queue: Queue) -> None:
    queue.publish("a", "b", "c")
    assert queue.claim("batch-1", count=2) == 2
    assert queue.claim("batch-1", count=2) == 2
    assert [line["body"] for line in queue.lines("batch-1")] == ["a", "b"]
    answer = queue.operator.patch(queue.path("batch-1"), json={"lease_ms": 120_000})
    assert (answer.status_code, answer.json()) == (200, {})
    for _ in range(2):
        answer = queue.operator.delete(queue.path("batch-1"))
        assert (answer.status_code, answer.json()) == (200, {})
    assert queue.backlog() == 1
    assert [message["body"] for message in queue.pull()] == ["c"]


def test_a_queue_with_nothing_has_nothing_to_claim(queue: Queue) -> None:
    assert queue.claim("batch") == 0
    assert "claim 'batch'" in refused(queue.operator.get(queue.path("batch")), 404)


def test_a_page_of_arrow_has_the_columns_that_spark_expects(queue: Queue) -> None:
    queue.publish("a", "ü")
    queue.claim("batch")
    table = queue.table("batch")
    assert table.schema.names == CLAIMED.names
    assert [f.nullable for f in table.schema] == [f.nullable for f in CLAIMED.arrow()]
    assert table.schema.field("published_at").type == pa.timestamp("us", tz="UTC")
    first, second = table.to_pylist()
    assert (first["seq"], first["attempt"], first["body"]) == (1, 1, b"a")
    assert second["body"] == "ü".encode()
    assert first["content_type"] == "text"
    assert abs((datetime.now(UTC) - first["published_at"]).total_seconds()) < 60
    ids = [line["message_id"] for line in queue.lines("batch")]
    assert ids == table.column("message_id").to_pylist()
    assert queue.table("batch", first=2).num_rows == 0


def test_headers_and_bytes_are_told_as_they_are(queue: Queue) -> None:
    rows = {"body": [b"\x00\xff"], "content_type": ["bytes"], "headers": ['{"k":[1,null]}']}
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, (table := pa.table(rows)).schema) as writer:
        writer.write_table(table)
    path = queue.path("").replace("/claims/", "/publish")
    sent = sink.getvalue().to_pybytes()
    answer = queue.operator.post(path, content=sent, headers={"Content-Type": ARROW})
    assert answer.status_code == 200, answer.text
    queue.claim("batch")
    [line] = queue.lines("batch")
    assert base64.b64decode(line["body_base64"]) == b"\x00\xff"
    assert line["headers"] == {"k": [1, None]}
    [row] = queue.table("batch").to_pylist()
    assert row["body"] == b"\x00\xff"
    assert json.loads(row["headers"]) == {"k": [1, None]}


def test_pages_join_to_the_whole(queue: Queue) -> None:
    bodies = [str(number) for number in range(250)]
    queue.publish(*bodies)
    assert queue.claim("batch", count=1_000) == 250
    found: list[str] = []
    while page := queue.lines("batch", first=len(found), count=90):
        assert len(page) <= 90
        found += [line["body"] for line in page]
    assert found == bodies


def test_a_page_is_no_longer_than_an_answer_may_be(queue: Queue) -> None:
    body = "x" * 100_000
    for _ in range(200):
        queue.publish(body)
    assert queue.claim("batch", count=200) == 200
    sizes: list[int] = []
    while rows := queue.table("batch", first=sum(sizes), count=200).num_rows:
        sizes.append(rows)
    assert sum(sizes) == 200
    assert max(sizes) == (16 << 20) // 100_000
    queue.operator.delete(queue.path("batch"))


def test_an_encrypted_queue_is_read_in_clear(
    server: Server, operator: httpx.Client, http: httpx.Client, queue_name: str
) -> None:
    account = server.credentials["anypoint"]
    with environment_client(account) as client:
        anypoint = Anypoint(client, account)
        queue = Queue(http, operator, queue_name)
        anypoint.edit(queue_name, encrypted=True)
        anypoint.publish(queue_name, "secret ü")
    assert queue.claim("batch") == 1
    assert queue.lines("batch")[0]["body"] == "secret ü"
    assert queue.table("batch").column("body").to_pylist() == ["secret ü".encode()]


def test_a_paused_queue_has_nothing_new_to_claim(queue: Queue) -> None:
    queue.publish("a", "b")
    assert queue.claim("before", count=1) == 1
    paused = {"settings": {"delivery_paused": True}}
    assert queue.http.patch(f"/queues/{queue.id}", json=paused).status_code == 200
    assert queue.claim("after") == 0
    assert queue.claim("before") == 1
    assert [line["body"] for line in queue.lines("before")] == ["a"]
    assert queue.operator.delete(queue.path("before")).status_code == 200


# --- refusals ---


def test_a_lost_claim_is_a_conflict(queue: Queue) -> None:
    queue.publish("a", "b")
    queue.claim("batch", lease_ms=60_000)
    assert queue.http.post(f"/queues/{queue.id}/purge", json=PURGE).status_code == 200
    path = queue.path("batch")
    for answer in (
        queue.operator.put(path, json={"count": 1, "lease_ms": 1_000}),
        queue.operator.get(path),
        queue.operator.patch(path, json={"lease_ms": 1_000}),
        queue.operator.delete(path),
    ):
        assert "claim 'batch' is lost" in refused(answer, 409)
        assert answer.json()["error"]["code"] == "claim_lost"


PURGE = {"delete_messages_permanently": True}


def test_an_unknown_claim_is_not_found(queue: Queue) -> None:
    path = queue.path("nobody")
    refused(queue.operator.get(path), 404)
    refused(queue.operator.patch(path, json={"lease_ms": 1_000}), 404)
    refused(queue.operator.delete(path), 404)


def test_a_claim_that_follows_another_lets_it_be_forgotten(queue: Queue) -> None:
    queue.publish("a", "b")
    for name in ("one", "two"):
        assert queue.claim(name, count=1) == 1
    for _ in range(2):
        assert queue.operator.delete(queue.path("one") + "?after=").status_code == 200
    assert queue.operator.delete(queue.path("two") + "?after=one").status_code == 200
    refused(queue.operator.delete(queue.path("one") + "?after="), 404)
    assert queue.operator.delete(queue.path("two") + "?after=one").status_code == 200
    assert "after" in refused(queue.operator.delete(queue.path("two") + "?after=a%20b"), 400)


def test_what_is_over_a_limit_is_refused_by_name(queue: Queue) -> None:
    for name, asked in (
        ("count", {"count": 20_001, "lease_ms": 1}),
        ("count", {"count": 0, "lease_ms": 1}),
        ("count", {"lease_ms": 1}),
        ("lease_ms", {"count": 1, "lease_ms": 12 * 3_600_000 + 1}),
        ("lease_ms", {"count": 1, "lease_ms": 0}),
        ("lease_ms", {"count": 1, "lease_ms": "1"}),
    ):
        assert name in refused(queue.operator.put(queue.path("batch"), json=asked), 400)
    fine = {"count": 20_000, "lease_ms": 12 * 3_600_000}
    assert queue.operator.put(queue.path("batch"), json=fine).json() == {"count": 0}
    for bad in ("a b", "%C3%BC", "-a", "x" * 201):
        assert "name" in refused(queue.operator.put(queue.path(bad), json=fine), 400)
    for query in ("first=-1", "first=x", "count=0", "count=20001"):
        assert "expected" in refused(queue.operator.get(queue.path("batch") + "?" + query), 400)


# --- beside others ---


def test_every_message_goes_to_a_claim_or_to_a_puller_and_never_to_both(queue: Queue) -> None:
    """Three clients claim, two of them under the same names, while others pull and publish."""
    bodies = [f"m{number}" for number in range(MESSAGES)]

    def publish() -> list[str]:
        queue.publish(*bodies)
        return []

    def pull() -> list[str]:
        got: list[str] = []
        empty = 0
        while empty < EMPTY_ROUNDS or len(got) == 0:
            messages = queue.pull(20)
            empty = 0 if messages else empty + 1
            if messages:
                queue.ack([message["lease_id"] for message in messages])
            got += [message["body"] for message in messages]
        return got

    def claim(prefix: str) -> list[str]:
        got: list[str] = []
        empty = number = 0
        while empty < EMPTY_ROUNDS or len(got) == 0:
            name = f"{prefix}-{number}"
            count = queue.claim(name, count=40)
            if not count:
                empty += 1
                continue
            empty, number = 0, number + 1
            answer = queue.operator.get(queue.path(name), params={"count": count})
            if answer.status_code == 409:  # a twin has acknowledged it meanwhile
                continue
            assert answer.status_code == 200, answer.text
            got += [json.loads(line)["body"] for line in answer.text.splitlines()]
            assert queue.operator.delete(queue.path(name)).status_code == 200
        return got

    with ThreadPoolExecutor(7) as pool:
        publishing = pool.submit(publish)
        pulling = [pool.submit(pull) for _ in range(2)]
        alone = pool.submit(claim, "alone")
        twins = [pool.submit(claim, "twin") for _ in range(2)]
        publishing.result(120)
        pulled = [body for each in pulling for body in each.result(120)]
        of_alone = alone.result(120)
        of_twins = [each.result(120) for each in twins]
    rest: list[str] = []
    while queue.backlog() > 0:
        messages = queue.pull()
        assert messages, "a message that nobody holds is not handed out"
        queue.ack([message["lease_id"] for message in messages])
        rest += [message["body"] for message in messages]
    one_twin, other_twin = map(set, of_twins)
    taken = [*pulled, *of_alone, *(one_twin | other_twin), *rest]
    assert sorted(taken) == sorted(bodies)
    assert pulled and of_alone and one_twin | other_twin
    assert queue.claim("left") == 0


# --- figures ---


def test_claims_count_in_the_figures_like_pulls(queue: Queue, operator: httpx.Client) -> None:
    queue.publish("a", "b", "c")
    queue.claim("batch", count=2)
    figures = operator.get("/metrics").text.splitlines()
    assert [line for line in figures if queue.name in line and "courier_leases" in line] == [
        f'courier_leases{{queue="{queue.name}",tenant="default"}} 2.0'
    ]
    assert any("claim_messages" in line and "requests" in line for line in figures)


def test_backlogs_belong_to_an_offset(queue: Queue, operator: httpx.Client) -> None:
    queue.publish("a", "b", "c")
    queue.claim("batch", count=1)
    queue.operator.delete(queue.path("batch"))
    told = operator.get("/journal/backlogs").json()
    assert told["queues"][queue.id] == 2
    assert told["offset"] <= operator.get("/journal/head").json()["last"]


def test_a_tenant_sees_the_backlogs_of_its_own_queues(queue: Queue, operator: httpx.Client) -> None:
    queue.publish("a")
    other = f"b-{queue.name}"
    assert operator.post("/courier/v1/tenants", json={"name": other}).status_code == 200
    seen = []
    for tenant in ("default", other):
        asked = {"name": f"j-{queue.name}", "scopes": ["journal"]}
        made = operator.post(f"/courier/v1/tenants/{tenant}/keys", json=asked).json()
        headers = {"Authorization": f"Bearer {made['token']}"}
        seen.append(operator.get("/journal/backlogs", headers=headers).json()["queues"])
    assert seen[0][queue.id] == 1
    assert seen[1] == {}
