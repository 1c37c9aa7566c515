"""Bulk publish over HTTP: rows of Arrow, each of them once under its key and number."""

import itertools
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import httpx
import pyarrow as pa
import pytest

from courier.ops.bulk import KEY_CHARACTERS_MAX, REQUEST_BYTES_MAX
from courier.ops.drafts import ROWS_MAX
from tests.clients.anypoint import environment_client
from tests.clients.discue import DiscueClient, discue_http, ok
from tests.ops.conftest import Journal
from tests.server import Server

ARROW = "application/vnd.apache.arrow.stream"


def arrow(**columns: Any) -> bytes:
    batch = pa.record_batch(columns)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    whole: bytes = sink.getvalue().to_pybytes()
    return whole


class Bulk:
    """A queue of its own for every test, and the route to it."""

    def __init__(self, journal: Journal, http: httpx.Client, name: str) -> None:
        self.journal = journal
        self.name = name
        self._http = http
        made = http.post("/queues", json={"queue_name": name})
        assert made.status_code == 200, made.text
        self.id: str = made.json()["result"]["queue_id"]

    def path(self, **query: Any) -> str:
        asked = f"?{urlencode(query)}" if query else ""
        return f"/courier/v1/tenants/default/queues/{self.name}/publish{asked}"

    def send(
        self, content: bytes, *, token: str = "", kind: str = ARROW, **query: Any
    ) -> httpx.Response:
        headers = {"Authorization": f"Bearer {token or self.journal.token}", "Content-Type": kind}
        url = self.journal.server.url + self.path(**query)
        return self._http.post(url, content=content, headers=headers)

    def published(self, content: bytes, **query: Any) -> int:
        answer = self.send(content, **query)
        assert answer.status_code == 200, answer.text
        count: int = answer.json()["published"]
        return count

    def refused(self, status: int, content: bytes, **query: Any) -> str:
        """What is said; nothing must have been stored."""
        before = self.journal.head()["last"]
        answer = self.send(content, **query)
        assert answer.status_code == status, answer.text
        assert self.journal.head()["last"] == before
        message: str = answer.json()["error"]["message"]
        return message

    def told(self, content: bytes, **query: Any) -> tuple[int, str]:
        """How many were new, and the digest."""
        answer = self.send(content, **query)
        assert answer.status_code == 200, answer.text
        return answer.json()["published"], answer.json()["digest"]

    def changed(self, content: bytes, **query: Any) -> str:
        """What is said of rows that were others before; nothing must have been stored."""
        before = self.journal.head()["last"]
        answer = self.send(content, **query)
        assert answer.status_code == 409, answer.text
        assert self.journal.head()["last"] == before
        assert answer.json()["error"]["code"] == "rows_changed"
        message: str = answer.json()["error"]["message"]
        return message

    def below(self, key: str) -> int:
        answer = self.journal.call("GET", self.path(below=key))
        assert answer.status_code == 200, answer.text
        count: int = answer.json()["rows"]
        return count

    def rows(self, key: str) -> int:
        answer = self.journal.call("GET", self.path(once=key))
        assert answer.status_code == 200, answer.text
        count: int = answer.json()["rows"]
        return count

    def events(self) -> list[dict[str, Any]]:
        """What the journal tells of messages of this queue."""
        answer = self.journal.call("GET", f"/journal?limit=50000&queues={self.name}")
        found = [json.loads(line) for line in answer.text.splitlines()]
        return [event for event in found if "seq" in event]

    def bodies(self) -> list[str]:
        return [event["body"] for event in self.events() if event["kind"] == "published"]

    def key(self, *scopes: str, targets: tuple[str, ...] = ()) -> str:
        wanted = {"name": f"key-{next(NUMBERS)}", "scopes": scopes, "targets": targets}
        answer = self.journal.call("POST", "/courier/v1/tenants/default/keys", wanted)
        assert answer.status_code == 200, answer.text
        token: str = answer.json()["token"]
        return token


NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One in whose journal nothing happens by itself."""
    with Server(tmp_path_factory.mktemp("bulk")).start() as server:
        yield server


@pytest.fixture(scope="module")
def journal(server: Server) -> Iterator[Journal]:
    journal = Journal(server)
    yield journal
    journal.close()


@pytest.fixture(scope="module")
def http(server: Server) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client


@pytest.fixture
def bulk(journal: Journal, http: httpx.Client) -> Bulk:
    return Bulk(journal, http, f"bulk-{next(NUMBERS)}")


# --- what is published ---


def test_rows_are_published_in_their_order(bulk: Bulk) -> None:
    assert bulk.published(arrow(body=["a", "b", "c"]), once="k", first=0) == 3
    assert bulk.bodies() == ["a", "b", "c"]
    assert {(event["dialect"], event["queue_name"]) for event in bulk.events()} == {
        ("courier", bulk.name)
    }


def test_every_column_arrives(bulk: Bulk) -> None:
    content = arrow(
        body=[b'{"n":1}', b"\xff"],
        content_type=["json", None],
        headers=['{"k": [1]}', None],
        delay_ms=[None, 60_000],
        group=["g", None],
        message_id=["own", None],
    )
    assert bulk.published(content, once="k") == 2
    first, second = bulk.events()
    assert (first["body"], first["content_type"], first["headers"]) == (
        '{"n":1}',
        "json",
        {"k": [1]},
    )
    assert (first["group"], first["message_id"]) == ("g", "own")
    assert (second["body_base64"], second["content_type"]) == ("/w==", "bytes")
    assert second["delay_ms"] == 60_000


def test_pullers_get_them(bulk: Bulk, http: httpx.Client) -> None:
    http.post(f"/queues/{bulk.id}/consumers", json={"type": "http_pull"})
    bulk.published(arrow(body=["a", "b"], message_id=["own", None]))
    pulled = http.post(f"/queues/{bulk.id}/messages/pull", json={}).json()["result"]["messages"]
    assert [message["body"] for message in pulled] == ["a", "b"]
    assert pulled[0]["id"] == "own"


def test_a_publisher_cannot_break_what_another_dialect_shows(bulk: Bulk, server: Server) -> None:
    """A header under which a dialect keeps something of its own may hold anything here."""
    headers = ['{"anypoint.headers": "text"}', '{"anypoint.headers": {"h": 1}, "name": 5}']
    bulk.published(arrow(body=["a", "b"], headers=headers))
    anypoint = server.credentials["anypoint"]
    place = (
        f"/organizations/{anypoint['organization_id']}/environments/{anypoint['environment_id']}"
    )
    with environment_client(anypoint) as client:
        answer = client.get(f"/api/v1{place}/destinations/{bulk.name}/messages?batchSize=2")
    assert answer.status_code == 200, answer.text
    first, second = answer.json()
    assert first["properties"] == {"anypoint.headers": "text"}
    assert second["headers"]["h"] == 1 and second["properties"] == {"name": 5}


# --- once ---


def test_a_row_is_published_once_under_its_number(bulk: Bulk) -> None:
    assert bulk.rows("k") == 0
    assert bulk.published(arrow(body=["a", "b"]), once="k", first=0) == 2
    assert bulk.published(arrow(body=["a", "b"]), once="k", first=0) == 0
    assert bulk.published(arrow(body=["b", "c"]), once="k", first=1) == 1
    assert bulk.rows("k") == 3
    assert bulk.published(arrow(body=["a"]), once="l") == 1
    assert bulk.bodies() == ["a", "b", "c", "a"]


def test_rows_may_not_be_left_out(bulk: Bulk) -> None:
    bulk.published(arrow(body=["a"]), once="k/ü 1")
    told = bulk.refused(400, arrow(body=["c"]), once="k/ü 1", first=2)
    assert told == "first: is 2, but only 1 rows are published under 'k/ü 1'"


def test_without_a_key_rows_are_published_as_often_as_they_are_sent(bulk: Bulk) -> None:
    for _ in range(2):
        assert bulk.published(arrow(body=["a", "b"])) == 2
    assert bulk.bodies() == ["a", "b", "a", "b"]
    for name in ("first", "digest", "last", "listener"):
        told = bulk.refused(400, arrow(body=["a"]), **{name: "0"})
        assert told == f"{name}: needs the parameter once"


def test_more_rows_than_are_stored_at_a_time_arrive_once(bulk: Bulk) -> None:
    bodies = [str(number) for number in range(2_345)]
    assert bulk.published(arrow(body=bodies), once="k") == len(bodies)
    assert bulk.published(arrow(body=bodies[1_000:]), once="k", first=1_000) == 0
    assert bulk.bodies() == bodies


def test_rows_are_still_known_after_a_kill(fresh_server: Server) -> None:
    journal = Journal(fresh_server)
    with fresh_server.client() as http:
        bulk = Bulk(journal, http, "again")
        bulk.published(arrow(body=["a", "b"]), once="k")
        fresh_server.kill()
        fresh_server.start()
        assert bulk.rows("k") == 2
        assert bulk.published(arrow(body=["a", "b", "c"]), once="k") == 1
        assert bulk.bodies() == ["a", "b", "c"]
    journal.close()


# --- the same rows, or others ---


def test_rows_that_are_the_same_go_on_however_they_are_divided(bulk: Bulk) -> None:
    bodies = [str(number) for number in range(1_234)]
    new, half = bulk.told(arrow(body=bodies[:700]), once="k")
    assert new == 700
    assert bulk.told(arrow(body=bodies[:300]), once="k")[0] == 0
    new, whole = bulk.told(arrow(body=bodies[700:]), once="k", first=700, digest=half)
    assert new == 534
    assert bulk.told(arrow(body=bodies), once="k") == (0, whole)
    digest, place = "", 0
    for size in (1, 499, 600, 134):
        part = arrow(body=bodies[place : place + size])
        new, digest = bulk.told(part, once="l", first=place, digest=digest)
        place += size
        assert new == size
    assert digest == whole
    assert bulk.bodies() == bodies + bodies


def test_rows_that_were_others_are_refused_in_one_sentence(bulk: Bulk) -> None:
    _, digest = bulk.told(arrow(body=["a", "b", "c"]), once="k")
    told = bulk.changed(arrow(body=["a", "x", "c", "d"]), once="k")
    assert told == (
        "the rows published under 'k' before were others: there are 3, and those sent now differ "
        "from them in content, order or number"
    )
    for wrong in (
        arrow(body=["b", "a", "c", "d"]),
        arrow(body=["a", "b", "c"], group=[None, "g", None]),
        arrow(body=["a", "b", "c"], headers=[None, None, "{}"]),
        arrow(body=["a", "b", "c"], delay_ms=[0, None, None]),
        arrow(body=["a", "b", "c"], message_id=["own", None, None]),
        arrow(body=["a", "b", "c"], content_type=["text", "bytes", "text"]),
    ):
        bulk.changed(wrong, once="k")
    _, other = bulk.told(arrow(body=["a", "x"]), once="k")
    bulk.changed(arrow(body=["c", "d"]), once="k", first=2, digest=other)
    bulk.changed(arrow(body=["d"]), once="k", first=3, digest=other)
    assert bulk.bodies() == ["a", "b", "c"]
    assert bulk.published(arrow(body=["d"]), once="k", first=3, digest=digest) == 1


def test_rows_that_end_elsewhere_than_before_are_refused(bulk: Bulk) -> None:
    assert bulk.told(arrow(body=["a", "b"]), once="k", last="true")[0] == 2
    assert bulk.told(arrow(body=["a", "b"]), once="k", last="true")[0] == 0
    bulk.changed(arrow(body=["a", "b", "c"]), once="k", last="true")
    bulk.changed(arrow(body=["a", "b", "c"]), once="k")
    assert "there are 2" in bulk.changed(arrow(body=["a"]), once="k", last="true")
    assert bulk.told(arrow(body=["a"]), once="k", last="false")[0] == 0
    assert bulk.bodies() == ["a", "b"]


def test_what_broke_off_before_its_last_row_goes_on_to_it(bulk: Bulk) -> None:
    bulk.told(arrow(body=["a"]), once="k")
    assert bulk.told(arrow(body=["a", "b"]), once="k", last="true")[0] == 1
    assert bulk.told(arrow(body=["a", "b"]), once="k", last="true")[0] == 0


def test_whoever_sends_no_digest_is_served_as_ever(bulk: Bulk) -> None:
    """Without it rows from the middle are not compared, and the key is not from then on."""
    bulk.told(arrow(body=["a", "b"]), once="k")
    answer = bulk.send(arrow(body=["x"]), once="k", first=1)
    assert answer.json() == {"published": 0}
    bulk.changed(arrow(body=["a", "x"]), once="k")
    assert bulk.send(arrow(body=["c"]), once="k", first=2).json() == {"published": 1}
    assert bulk.told(arrow(body=["x", "y", "z", "d"]), once="k")[0] == 1
    assert bulk.bodies() == ["a", "b", "c", "d"]
    assert bulk.send(arrow(body=["a"])).json() == {"published": 1}


def test_rows_of_an_encrypted_queue_are_compared(bulk: Bulk, server: Server) -> None:
    anypoint = server.credentials["anypoint"]
    place = (
        f"/organizations/{anypoint['organization_id']}/environments/{anypoint['environment_id']}"
        f"/regions/{anypoint['region']}"
    )
    _, plain = bulk.told(arrow(body=["a"]), once="k")
    bulk.name = f"secret-{next(NUMBERS)}"
    with environment_client(anypoint) as client:
        made = client.put(
            f"/mq/admin/api/v1{place}/destinations/queues/{bulk.name}", json={"encrypted": True}
        )
        assert made.is_success, made.text
    new, sealed = bulk.told(arrow(body=["a"]), once="k")
    assert new == 1 and sealed != plain
    assert bulk.told(arrow(body=["a", "b"]), once="k")[0] == 1
    bulk.changed(arrow(body=["b", "a"]), once="k")


def test_rows_of_all_keys_below_another_are_counted(bulk: Bulk) -> None:
    for key in ("run/0", "run/1", "run/10", "run", "run2/0"):
        bulk.told(arrow(body=["a", "b"]), once=key)
    assert (bulk.below("run"), bulk.below("run/1"), bulk.below("ru")) == (6, 0, 0)
    answer = bulk.journal.call("GET", bulk.path(once="run", below="run"))
    assert answer.json()["error"]["message"] == "once: cannot go with below"


# --- for one listener ---


def test_rows_for_one_listener_are_owed_to_it_alone(bulk: Bulk, server: Server) -> None:
    url = "https://listener.invalid/hook"
    with discue_http(server.url) as http:
        discue = DiscueClient(http, server.credentials["discue"]["api_key"])
        queue = discue.queue_named(bulk.name)
        for name in ("mill", "shop"):
            wanted = {"name": name, "notify_url": url, "liveness_url": url, "status": "disabled"}
            ok(discue.post(f"/queues/{queue}/listeners", wanted))
    listeners = f"/courier/v1/tenants/default/queues/{bulk.name}/listeners"
    mill, _ = bulk.journal.call("GET", listeners).json()["listeners"]
    assert bulk.published(arrow(body=["a", "b"]), once="k", listener=mill["id"]) == 2
    assert bulk.published(arrow(body=["a", "b"]), once="k", listener=mill["id"]) == 0
    owed = bulk.journal.call("GET", listeners).json()["listeners"]
    assert [(each["name"], each["open"]) for each in owed] == [("mill", 2), ("shop", 0)]
    assert [event["kind"] for event in bulk.events()] == ["published"] * 2 + ["acked"] * 2
    told = bulk.refused(404, arrow(body=["a"]), once="l", listener="nobody")
    assert told == "listener 'nobody' does not exist"


# --- who may ---


def test_sealed_bodies_are_opened_only_for_readers_of_the_journal(
    bulk: Bulk, server: Server
) -> None:
    anypoint = server.credentials["anypoint"]
    place = (
        f"/organizations/{anypoint['organization_id']}/environments/{anypoint['environment_id']}"
    )
    secret = f"secret-{next(NUMBERS)}"
    with environment_client(anypoint) as client:
        region = f"{place}/regions/{anypoint['region']}"
        made = client.put(
            f"/mq/admin/api/v1{region}/destinations/queues/{secret}", json={"encrypted": True}
        )
        assert made.is_success, made.text
        sent = client.put(
            f"/api/v1{place}/destinations/{secret}/messages/one", json={"body": "hidden"}
        )
        assert sent.is_success, sent.text
    rows = bulk.journal.table(after=0, limit=50_000).to_pylist()
    [row] = [row for row in rows if row["queue"] == secret and row["kind"] == "published"]
    assert row["sealed"] and b"hidden" not in row["body"]
    content = arrow(body=[row["body"]], content_type=["text"], sealed=[row["sealed"]])
    assert "journal" in bulk.refused(403, content, token=bulk.key("messages:publish"))
    both = bulk.key("messages:publish", "journal")
    assert bulk.published(content, token=both) == 1
    assert bulk.bodies() == ["hidden"]


# --- what is refused ---


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ({"once": ""}, f"once: must have 1 to {KEY_CHARACTERS_MAX} characters, not 0"),
        ({"once": "k" * 257}, f"once: must have 1 to {KEY_CHARACTERS_MAX} characters, not 257"),
        ({"once": "k", "first": "-1"}, "first: expected a number from 0 to"),
        ({"once": "k", "first": "9" * 30}, "first: expected a number from 0 to"),
        ({"once": "k", "first": "1.5"}, "first: expected a number from 0 to"),
        ({"once": "k", "last": "yes"}, "last: expected false or true, not 'yes'"),
        ({"once": "k", "digest": "0" * 32}, "digest: must be empty where first is 0"),
        ({"once": "k", "first": 1, "digest": "0" * 31}, "digest: is not one that was told"),
        ({"once": "k", "first": 1, "digest": "X" * 32}, "digest: is not one that was told"),
    ],
)
def test_a_wrong_parameter_is_named(bulk: Bulk, query: dict[str, str], sentence: str) -> None:
    assert sentence in bulk.refused(400, arrow(body=["a"]), **query)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "does not begin with a schema"),
        (b"hello", "not a sound Arrow stream"),
        (arrow(body=["a"] * 2_000)[:9_000], "not a sound Arrow stream"),
        (arrow(text=["a"]), "text: is none of the columns body, "),
        (arrow(body=["a", None]), "body: row 1 is null"),
    ],
    ids=["empty", "garbage", "broken off", "unknown column", "null"],
)
def test_a_wrong_body_is_refused(bulk: Bulk, content: bytes, sentence: str) -> None:
    assert sentence in bulk.refused(400, content, once="k")
    assert bulk.rows("k") == 0


def test_another_content_type_is_refused(bulk: Bulk) -> None:
    told = bulk.refused(400, b"{}", kind="application/json")
    assert told == f"content-type: must be {ARROW}, not 'application/json'"


def test_the_limits_are_named(bulk: Bulk) -> None:
    told = bulk.refused(413, arrow(body=["a"] * (ROWS_MAX + 1)))
    assert told == f"the number of rows is {ROWS_MAX + 1}, the limit is {ROWS_MAX}"
    whole = bytes(REQUEST_BYTES_MAX + 1)
    assert f"the limit is {REQUEST_BYTES_MAX}" in bulk.refused(413, whole)


def test_a_request_longer_than_other_routes_take_is_taken_here(bulk: Bulk) -> None:
    content = arrow(body=["x" * 1_000_000] * 8)
    assert bulk.published(content, once="k") == 8


def test_the_count_of_rows_needs_a_key(bulk: Bulk) -> None:
    answer = bulk.journal.call("GET", bulk.path())
    assert (answer.status_code, answer.json()["error"]["message"]) == (400, "once: is missing")


def test_a_frozen_queue_takes_nothing(bulk: Bulk) -> None:
    frozen = f"/courier/v1/tenants/default/queues/{bulk.name}/frozen"
    assert bulk.journal.call("PUT", frozen, {"frozen": True}).status_code == 200
    assert "frozen" in bulk.refused(400, arrow(body=["a"]), once="k")
