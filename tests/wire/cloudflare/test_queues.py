"""Queues: create, get, replace, change, rename, delete."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.wire.cloudflare import shapes
from tests.wire.cloudflare.endpoints import ENDPOINTS
from tests.wire.cloudflare.envelope import fail, ok, page
from tests.wire.cloudflare.patience import eventually
from tests.wire.cloudflare.queue import UNKNOWN_ID, Queue, new_name

DEFAULTS = {"delivery_delay": 0, "delivery_paused": False, "message_retention_period": 345_600}
GOOD_SETTINGS: list[tuple[str, Any]] = [
    ("delivery_delay", 0),
    ("delivery_delay", 86_400),
    ("message_retention_period", 60),
    ("message_retention_period", 1_209_600),
    ("delivery_paused", True),
    ("delivery_paused", False),
]
BAD_SETTINGS: list[tuple[str, Any]] = [
    ("delivery_delay", -1),
    ("delivery_delay", 86_401),
    ("message_retention_period", 59),
    ("message_retention_period", 1_209_601),
    ("message_retention_period", 0),
]
BAD_NAMES: list[Any] = [
    "",
    "A",
    "Upper-case",
    "-a",
    "a-",
    "-",
    "a_b",
    "a.b",
    "a b",
    " a",
    "a\n",
    "a/b",
    "é",
    "\u0660",  # a digit, but not one of ours
    "a" * 64,
]


def test_a_new_queue_has_every_field_and_the_default_settings(
    http: httpx.Client, queue_name: str
) -> None:
    result = ok(http.post("/queues", json={"queue_name": queue_name}))
    shapes.check_queue(result)
    assert result["queue_name"] == queue_name
    assert result["settings"] == DEFAULTS
    assert (result["consumers"], result["consumers_total_count"]) == ([], 0)
    assert (result["producers"], result["producers_total_count"]) == ([], 0)
    assert "jurisdiction" not in result


def test_a_queue_is_the_same_wherever_it_is_shown(http: httpx.Client, queue_name: str) -> None:
    created = ok(http.post("/queues", json={"queue_name": queue_name}))
    assert ok(http.get(f"/queues/{created['queue_id']}")) == created
    rows, _ = page(http.get("/queues", params={"name": queue_name}))
    assert rows == [created]


def test_names_have_letters_digits_and_hyphens(new_tenant: Callable[[], httpx.Client]) -> None:
    http = new_tenant()
    for name in ("a", "0", "a-b", "1-1", "a--b", "abc123", "a" * 63, "9" * 63):
        assert Queue.create(http, queue_name=name).name == name
    for name in BAD_NAMES:
        fail(http.post("/queues", json={"queue_name": name}), 400, 11003)
    assert "queue_name" in fail(http.post("/queues", json={}), 400, 11003)


def test_a_taken_name_is_a_conflict(queue: Queue) -> None:
    message = fail(queue.http.post("/queues", json={"queue_name": queue.name}), 409, 11009)
    assert message == (
        f"Queue name '{queue.name}' is already taken. Please use a different name and try again."
    )
    rows, _ = page(queue.http.get("/queues", params={"name": queue.name}))
    assert [row["queue_id"] for row in rows] == [queue.id]


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH"])
def test_settings_have_limits(http: httpx.Client, method: str) -> None:
    queue = Queue.create(http)
    for setting, value in GOOD_SETTINGS:
        body: dict[str, Any] = {"settings": {setting: value}}
        if method == "POST":
            result = ok(http.post("/queues", json={"queue_name": new_name(), **body}))
        else:
            ok(http.put(queue.at(), json={}))
            result = ok(http.request(method, queue.at(), json=body))
        shapes.check_queue(result)
        assert result["settings"] == {**DEFAULTS, setting: value}
    ok(http.put(queue.at(), json={}))
    for setting, value in BAD_SETTINGS:
        name = new_name() if method == "POST" else queue.name
        body = {"queue_name": name, "settings": {setting: value}}
        path = "/queues" if method == "POST" else queue.at()
        assert setting in fail(http.request(method, path, json=body), 400, 100128)
        if method == "POST":
            assert page(http.get("/queues", params={"name": name}))[0] == []
    assert queue.get()["settings"] == DEFAULTS


@pytest.mark.parametrize("jurisdiction", ["eu", "us", "fedramp"])
def test_a_jurisdiction_is_kept_and_shown(http: httpx.Client, jurisdiction: str) -> None:
    queue = Queue.create(http, jurisdiction=jurisdiction)
    assert queue.get()["jurisdiction"] == jurisdiction
    rows, _ = page(http.get("/queues", params={"name": queue.name}))
    assert rows[0]["jurisdiction"] == jurisdiction


@pytest.mark.parametrize("jurisdiction", ["mars", "EU", ""])
def test_an_unknown_jurisdiction_is_refused(
    http: httpx.Client, queue_name: str, jurisdiction: Any
) -> None:
    body = {"queue_name": queue_name, "jurisdiction": jurisdiction}
    fail(http.post("/queues", json=body), 400, 10026)


@pytest.mark.parametrize("method", ["PUT", "PATCH"])
def test_a_jurisdiction_cannot_be_changed(http: httpx.Client, method: str) -> None:
    european, unbound = Queue.create(http, jurisdiction="eu"), Queue.create(http)
    kept = ok(http.request(method, european.at(), json={"jurisdiction": "eu"}))
    assert kept["jurisdiction"] == "eu"
    assert ok(http.request(method, european.at(), json={}))["jurisdiction"] == "eu"
    fail(http.request(method, european.at(), json={"jurisdiction": "us"}), 400, 100128)
    fail(http.request(method, unbound.at(), json={"jurisdiction": "eu"}), 400, 100128)
    assert european.get()["jurisdiction"] == "eu"
    assert "jurisdiction" not in unbound.get()


CHANGED = {"delivery_delay": 5, "delivery_paused": True, "message_retention_period": 3600}


def test_put_sends_settings_not_given_back_to_their_defaults(http: httpx.Client) -> None:
    queue = Queue.create(http, settings=CHANGED)
    result = ok(http.put(queue.at(), json={"settings": {"delivery_delay": 9}}))
    shapes.check_queue(result)
    assert result["settings"] == {**DEFAULTS, "delivery_delay": 9}
    assert queue.get() == result


def test_put_of_an_empty_object_keeps_only_the_name(http: httpx.Client) -> None:
    queue = Queue.create(http, settings=CHANGED)
    result = ok(http.put(queue.at(), json={}))
    assert result["queue_name"] == queue.name
    assert result["settings"] == DEFAULTS


def test_patch_keeps_settings_not_given(http: httpx.Client) -> None:
    queue = Queue.create(http, settings=CHANGED)
    result = ok(http.patch(queue.at(), json={"settings": {"delivery_delay": 9}}))
    shapes.check_queue(result)
    assert result["settings"] == {**CHANGED, "delivery_delay": 9}
    assert ok(http.patch(queue.at(), json={}))["settings"] == result["settings"]
    assert ok(http.patch(queue.at(), json={"settings": {}}))["settings"] == result["settings"]
    assert queue.get()["settings"] == result["settings"]


@pytest.mark.parametrize("method", ["PUT", "PATCH"])
def test_a_change_shows_in_the_time_of_the_last_change_alone(queue: Queue, method: str) -> None:
    before = queue.get()

    def changed() -> bool:
        after = ok(queue.http.request(method, queue.at(), json={"settings": {"delivery_delay": 1}}))
        assert after["created_on"] == before["created_on"]
        return bool(after["modified_on"] > before["modified_on"])

    eventually(changed)


@pytest.mark.parametrize("method", ["PUT", "PATCH"])
def test_a_queue_can_be_renamed(queue: Queue, queue_name: str, method: str) -> None:
    http = queue.http
    queue.push("stays")
    result = ok(http.request(method, queue.at(), json={"queue_name": queue_name}))
    assert (result["queue_id"], result["queue_name"]) == (queue.id, queue_name)
    assert page(http.get("/queues", params={"name": queue.name}))[0] == []
    assert page(http.get("/queues", params={"name": queue_name}))[0] == [result]
    assert queue.peek()[0]["body"] == "stays"
    Queue.create(http, queue_name=queue.name)


@pytest.mark.parametrize("method", ["PUT", "PATCH"])
def test_a_queues_own_name_is_no_conflict(queue: Queue, method: str) -> None:
    body = {"queue_name": queue.name, "settings": {"delivery_delay": 3}}
    result = ok(queue.http.request(method, queue.at(), json=body))
    assert result["queue_name"] == queue.name
    assert result["settings"]["delivery_delay"] == 3


@pytest.mark.parametrize("method", ["PUT", "PATCH"])
def test_the_name_of_another_queue_is_a_conflict(queue: Queue, method: str) -> None:
    other = Queue.create(queue.http)
    body = {"queue_name": other.name, "settings": {"delivery_delay": 3}}
    message = fail(queue.http.request(method, queue.at(), json=body), 409, 11009)
    assert "already taken" in message
    assert queue.get()["queue_name"] == queue.name
    assert queue.get()["settings"] == DEFAULTS


@pytest.mark.parametrize("method", ["PUT", "PATCH"])
def test_a_bad_new_name_is_refused(standing_queue: Queue, method: str) -> None:
    for name in BAD_NAMES:
        body = {"queue_name": name}
        fail(standing_queue.http.request(method, standing_queue.at(), json=body), 400, 11003)
    assert standing_queue.get()["queue_name"] == standing_queue.name


def test_a_deleted_queue_is_gone_with_its_messages_and_consumer(pull_queue: Queue) -> None:
    http = pull_queue.http
    pull_queue.push("gone")
    (consumer,) = pull_queue.get()["consumers"]
    assert ok(http.delete(pull_queue.at())) is None
    fail(http.get(pull_queue.at()), 404, 11000)
    fail(http.delete(pull_queue.at()), 404, 11000)
    fail(http.get(pull_queue.at(f"/consumers/{consumer['consumer_id']}")), 404, 11000)
    fail(pull_queue.post("/messages", {"body": 1}), 404, 10104)
    fail(pull_queue.post("/messages/pull", {}), 404, 10104)
    assert page(http.get("/queues", params={"name": pull_queue.name}))[0] == []


def test_an_unknown_queue_is_not_found(http: httpx.Client) -> None:
    for endpoint in ENDPOINTS:
        if "$queue" in endpoint.path:
            code = 10104 if endpoint.family == "messages" else 11000
            fail(endpoint.send(http, {"queue": UNKNOWN_ID}), 404, code)


def test_consumers_are_shown_with_their_queue(queue: Queue) -> None:
    consumer = queue.consume(batch_size=7)
    shown = queue.get()
    assert shown["consumers"] == [consumer]
    assert shown["consumers_total_count"] == 1
    rows, _ = page(queue.http.get("/queues", params={"name": queue.name}))
    assert rows == [shown]
