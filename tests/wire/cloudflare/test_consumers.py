"""Consumers: one for each queue, of one of two types."""

from typing import Any

import httpx
import pytest

from tests.wire.cloudflare import shapes
from tests.wire.cloudflare.envelope import fail, ok, refused
from tests.wire.cloudflare.queue import UNKNOWN_ID, Queue, new_name

PULL: dict[str, Any] = {"type": "http_pull"}
WORKER: dict[str, Any] = {"type": "worker", "script_name": "some-script"}
BODIES = {"http_pull": PULL, "worker": WORKER}
DEFAULTS: dict[str, dict[str, Any]] = {
    "http_pull": {
        "batch_size": 5,
        "max_retries": 3,
        "retry_delay": 0,
        "visibility_timeout_ms": 30_000,
    },
    "worker": {
        "batch_size": 10,
        "max_retries": 3,
        "retry_delay": 0,
        "max_wait_time_ms": 5_000,
        "max_concurrency": None,
    },
}
RANGES = [
    ("http_pull", "batch_size", 1, 100),
    ("http_pull", "max_retries", 0, 100),
    ("http_pull", "retry_delay", 0, 86_400),
    ("http_pull", "visibility_timeout_ms", 0, 43_200_000),
    ("worker", "batch_size", 1, 100),
    ("worker", "max_retries", 0, 100),
    ("worker", "retry_delay", 0, 86_400),
    ("worker", "max_wait_time_ms", 0, 60_000),
    ("worker", "max_concurrency", 1, 250),
]
GOOD = [(kind, name, value) for kind, name, low, high in RANGES for value in (low, high)]
BEYOND = [(kind, name, value) for kind, name, low, high in RANGES for value in (low - 1, high + 1)]


@pytest.mark.parametrize("kind", ["http_pull", "worker"])
def test_a_new_consumer_has_every_field_and_the_default_settings(queue: Queue, kind: str) -> None:
    result = ok(queue.post("/consumers", BODIES[kind]))
    shapes.check_consumer(result)
    assert result["type"] == kind
    assert result["settings"] == DEFAULTS[kind]
    assert result["dead_letter_queue"] == ""
    assert (result["queue_id"], result["queue_name"]) == (queue.id, queue.name)
    assert result.get("script") == BODIES[kind].get("script_name")


@pytest.mark.parametrize("kind", ["http_pull", "worker"])
def test_a_consumer_is_the_same_wherever_it_is_shown(queue: Queue, kind: str) -> None:
    created = ok(queue.post("/consumers", BODIES[kind]))
    assert ok(queue.http.get(queue.at(f"/consumers/{created['consumer_id']}"))) == created
    assert ok(queue.http.get(queue.at("/consumers"))) == [created]
    assert queue.get()["consumers"] == [created]


def test_a_queue_without_a_consumer_lists_none(queue: Queue) -> None:
    assert ok(queue.http.get(queue.at("/consumers"))) == []


def test_a_consumer_follows_the_name_of_its_queue(pull_queue: Queue, queue_name: str) -> None:
    ok(pull_queue.http.patch(pull_queue.at(), json={"queue_name": queue_name}))
    (consumer,) = ok(pull_queue.http.get(pull_queue.at("/consumers")))
    assert consumer["queue_name"] == queue_name


@pytest.mark.parametrize("environment", ["", "production"])
def test_the_environment_of_a_script_is_accepted_and_not_shown(
    queue: Queue, environment: str
) -> None:
    result = ok(queue.post("/consumers", {**WORKER, "environment_name": environment}))
    shapes.check_consumer(result)


@pytest.mark.parametrize("script", ["a", "some-script", "Some_Script.v2"])
def test_any_script_is_accepted_unseen(queue: Queue, script: str) -> None:
    result = ok(queue.post("/consumers", {"type": "worker", "script_name": script}))
    assert (result["script_name"], result["script"]) == (script, script)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"settings": {"batch_size": 1}},
        {"type": "lambda"},
        {"type": "HTTP_PULL"},
        {"type": "worker"},
        {"type": "worker", "script_name": None},
        {"type": "worker", "script": "only-the-other-name"},
    ],
    ids=repr,
)
@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_a_consumer_of_no_known_type_is_refused(queue: Queue, method: str, body: Any) -> None:
    path = "/consumers" if method == "POST" else f"/consumers/{UNKNOWN_ID}"
    content = b"null" if body is None else None
    response = queue.http.request(method, queue.at(path), json=body, content=content)
    fail(response, 400, 10026)
    assert queue.get()["consumers"] == []


@pytest.mark.parametrize(("kind", "setting", "value"), GOOD)
def test_a_setting_at_its_limit_is_accepted(
    queue: Queue, kind: str, setting: str, value: Any
) -> None:
    result = ok(queue.post("/consumers", {**BODIES[kind], "settings": {setting: value}}))
    shapes.check_consumer(result)
    assert result["settings"] == {**DEFAULTS[kind], setting: value}


@pytest.mark.parametrize(("kind", "setting", "value"), BEYOND)
def test_a_setting_beyond_its_limit_is_refused(
    bare_queue: Queue, kind: str, setting: str, value: Any
) -> None:
    body = {**BODIES[kind], "settings": {setting: value}}
    assert setting in fail(bare_queue.post("/consumers", body), 400, 100127)
    upsert = bare_queue.http.put(bare_queue.at(f"/consumers/{UNKNOWN_ID}"), json=body)
    fail(upsert, 400, 100127)
    assert bare_queue.get()["consumers"] == []


@pytest.fixture(scope="module")
def bare_queue(http: httpx.Client) -> Queue:
    """A queue without a consumer, for requests that must not give it one."""
    return Queue.create(http)


@pytest.mark.parametrize(("kind", "setting"), [(kind, name) for kind, name, _, _ in RANGES])
def test_null_stands_for_the_default(queue: Queue, kind: str, setting: str) -> None:
    result = ok(queue.post("/consumers", {**BODIES[kind], "settings": {setting: None}}))
    assert result["settings"] == DEFAULTS[kind]


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("http_pull", {"max_wait_time_ms": 100, "max_concurrency": 2}),
        ("http_pull", {"max_wait_time_ms": -1, "max_concurrency": "many"}),
        ("worker", {"visibility_timeout_ms": 100}),
        ("worker", {"visibility_timeout_ms": -1}),
    ],
)
def test_settings_of_the_other_type_are_ignored(
    queue: Queue, kind: str, settings: dict[str, Any]
) -> None:
    result = ok(queue.post("/consumers", {**BODIES[kind], "settings": settings}))
    shapes.check_consumer(result)
    assert result["settings"] == DEFAULTS[kind]


@pytest.mark.parametrize("second", ["http_pull", "worker"])
@pytest.mark.parametrize("first", ["http_pull", "worker"])
def test_a_queue_has_one_consumer_at_most(queue: Queue, first: str, second: str) -> None:
    consumer = ok(queue.post("/consumers", BODIES[first]))
    message = fail(queue.post("/consumers", BODIES[second]), 400, 11004)
    assert message == f"Queue '{queue.name}' already has a consumer."
    assert ok(queue.http.get(queue.at("/consumers"))) == [consumer]


@pytest.mark.parametrize("method", ["GET", "DELETE"])
@pytest.mark.parametrize("consumer_id", [UNKNOWN_ID, "x", "z" * 32, "a.b"])
def test_an_unknown_consumer_is_not_found(
    standing_queue: Queue, method: str, consumer_id: str
) -> None:
    path = standing_queue.at(f"/consumers/{consumer_id}")
    fail(standing_queue.http.request(method, path), 404, 11002)


def test_a_deleted_consumer_is_gone_and_another_may_come(pull_queue: Queue) -> None:
    (consumer,) = pull_queue.get()["consumers"]
    path = pull_queue.at(f"/consumers/{consumer['consumer_id']}")
    assert ok(pull_queue.http.delete(path)) is None
    fail(pull_queue.http.get(path), 404, 11002)
    fail(pull_queue.http.delete(path), 404, 11002)
    assert pull_queue.get()["consumers"] == []
    fail(pull_queue.post("/messages/pull", {}), 405, 0)
    successor = ok(pull_queue.post("/consumers", WORKER))
    assert successor["consumer_id"] != consumer["consumer_id"]


def test_put_replaces_everything_but_the_identity(queue: Queue) -> None:
    created = queue.consume(
        dead_letter_queue=new_name("dlq"), batch_size=9, max_retries=9, retry_delay=9
    )
    path = queue.at(f"/consumers/{created['consumer_id']}")
    result = ok(queue.http.put(path, json={**PULL, "settings": {"max_retries": 1}}))
    shapes.check_consumer(result)
    assert result["settings"] == {**DEFAULTS["http_pull"], "max_retries": 1}
    assert result["dead_letter_queue"] == ""
    assert result["consumer_id"] == created["consumer_id"]
    assert result["created_on"] == created["created_on"]
    assert ok(queue.http.get(path)) == result


@pytest.mark.parametrize(("before", "after"), [("http_pull", "worker"), ("worker", "http_pull")])
def test_put_may_change_the_type(queue: Queue, before: str, after: str) -> None:
    created = ok(queue.post("/consumers", BODIES[before]))
    path = queue.at(f"/consumers/{created['consumer_id']}")
    result = ok(queue.http.put(path, json=BODIES[after]))
    shapes.check_consumer(result)
    assert (result["type"], result["settings"]) == (after, DEFAULTS[after])
    assert result["consumer_id"] == created["consumer_id"]


def test_put_on_a_queue_without_a_consumer_makes_one_with_that_id(queue: Queue) -> None:
    consumer_id = "c0" + "ab" * 15
    path = queue.at(f"/consumers/{consumer_id}")
    result = ok(queue.http.put(path, json=PULL))
    shapes.check_consumer(result)
    assert result["consumer_id"] == consumer_id
    assert ok(queue.http.get(path)) == result
    ok(queue.http.delete(path))


def test_put_on_a_queue_with_another_consumer_finds_nothing(pull_queue: Queue) -> None:
    before = pull_queue.get()["consumers"]
    path = pull_queue.at(f"/consumers/{UNKNOWN_ID}")
    fail(pull_queue.http.put(path, json=WORKER), 404, 11002)
    assert pull_queue.get()["consumers"] == before


def test_an_object_that_was_read_can_be_put_back_unchanged(queue: Queue) -> None:
    for body in (PULL, WORKER):
        created = ok(queue.post("/consumers", body))
        path = queue.at(f"/consumers/{created['consumer_id']}")
        assert ok(queue.http.put(path, json=created)) == created
        ok(queue.http.delete(path))


@pytest.mark.parametrize("name", ["Not A Name", "a" * 64])
def test_a_dead_letter_queue_needs_the_name_of_a_queue(bare_queue: Queue, name: str) -> None:
    response = bare_queue.post("/consumers", {**PULL, "dead_letter_queue": name})
    assert refused(response) == 400
    assert bare_queue.get()["consumers"] == []
