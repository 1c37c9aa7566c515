"""Event subscriptions: create, get, change, delete."""

from typing import Any

import httpx
import pytest

from tests.wire.cloudflare import shapes
from tests.wire.cloudflare.envelope import fail, ok, page
from tests.wire.cloudflare.patience import eventually
from tests.wire.cloudflare.queue import UNKNOWN_ID, Queue
from tests.wire.cloudflare.sources import SOURCES

AT = "/event_subscriptions/subscriptions"
KV = {"type": "kv"}


def destination(queue: Queue) -> dict[str, str]:
    return {"type": "queues.queue", "queue_id": queue.id}


def subscribe(queue: Queue, **fields: Any) -> dict[str, Any]:
    body = {"source": KV, "events": ["namespace.created"], "destination": destination(queue)}
    result: dict[str, Any] = ok(queue.http.post(AT, json={**body, **fields}))
    shapes.check_subscription(result)
    return result


def refuse(queue: Queue, status: int, **fields: Any) -> str:
    """Try to subscribe, with None for a field that shall be absent; the message of the failure."""
    body = {"source": KV, "events": ["namespace.created"], "destination": destination(queue)}
    body = {name: value for name, value in {**body, **fields}.items() if value is not None}
    message = fail(queue.http.post(AT, json=body), status, 0)
    assert page(queue.http.get(AT, params={"queue_id": queue.id}))[0] == []
    return message


def test_a_new_subscription_has_every_field(queue: Queue) -> None:
    result = subscribe(queue, name="some name", enabled=False)
    assert result["name"] == "some name"
    assert result["enabled"] is False
    assert result["source"] == KV
    assert result["events"] == ["namespace.created"]
    assert result["destination"] == destination(queue)


def test_a_subscription_is_enabled_and_named_after_queue_and_source_by_default(
    queue: Queue,
) -> None:
    result = subscribe(queue)
    assert result["enabled"] is True
    assert result["name"] == f"{queue.name} kv"


def test_a_subscription_is_the_same_wherever_it_is_shown(queue: Queue) -> None:
    created = subscribe(queue)
    assert ok(queue.http.get(f"{AT}/{created['id']}")) == created
    assert page(queue.http.get(AT, params={"queue_id": queue.id}))[0] == [created]


def test_every_event_of_a_source_is_known(queue: Queue) -> None:
    for source in SOURCES:
        result = subscribe(queue, source=source.example(), events=list(source.events))
        assert result["source"] == source.example()
        assert result["events"] == list(source.events)
        assert result["name"] == f"{queue.name} {source.type}"


def test_each_event_of_a_source_is_known_by_itself(queue: Queue) -> None:
    for source in SOURCES:
        created = subscribe(queue, source=source.example(), events=[source.events[0]])
        for event in source.events:
            result = ok(queue.http.patch(f"{AT}/{created['id']}", json={"events": [event]}))
            assert result["events"] == [event]


def test_an_event_that_is_not_the_sources_is_refused(standing_queue: Queue) -> None:
    for source in SOURCES:
        other = "bucket.created" if source.type != "r2" else "namespace.created"
        first = source.events[0]
        for event in ("nothing.happened", "", first.upper(), f"cf.{first}", other):
            message = refuse(standing_queue, 400, source=source.example(), events=[first, event])
            assert message.startswith("Unrecognized event types")
            assert event in message


def test_a_source_without_what_identifies_it_is_refused(standing_queue: Queue) -> None:
    for source in SOURCES:
        for field in source.fields:
            lacking = {name: value for name, value in source.example().items() if name != field}
            for given in (lacking, {**lacking, field: 5}):
                said = refuse(standing_queue, 400, source=given, events=[source.events[0]])
                assert field in said


@pytest.mark.parametrize(
    "source",
    [
        {},
        {"type": "nothing"},
        {"type": "KV"},
        {"type": "workersAi"},
    ],
    ids=repr,
)
def test_an_unknown_source_is_refused(standing_queue: Queue, source: Any) -> None:
    refuse(standing_queue, 400, source=source)


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"type": "queues.queue"},
        {"queue_id": UNKNOWN_ID},
        {"type": "r2.bucket", "queue_id": UNKNOWN_ID},
    ],
    ids=repr,
)
def test_a_bad_destination_is_refused(standing_queue: Queue, wrong: Any) -> None:
    refuse(standing_queue, 400, destination=wrong)


@pytest.mark.parametrize("queue_id", [UNKNOWN_ID, "x", "not-an-id"])
def test_an_unknown_destination_is_not_found(standing_queue: Queue, queue_id: str) -> None:
    unknown = {"type": "queues.queue", "queue_id": queue_id}
    refuse(standing_queue, 404, destination=unknown)


def test_a_second_subscription_to_the_same_resource_is_refused(queue: Queue) -> None:
    for source in SOURCES:
        asked = {"source": source.example(), "destination": destination(queue)}
        first = subscribe(queue, **asked, events=[source.events[0]])
        fail(queue.http.post(AT, json={**asked, "events": [source.events[-1]]}), 405, 0)
        assert page(queue.http.get(AT, params={"queue_id": queue.id}))[0] == [first]
        ok(queue.http.delete(f"{AT}/{first['id']}"))


def test_another_resource_or_another_queue_may_be_subscribed_as_well(queue: Queue) -> None:
    other = Queue.create(queue.http)
    build = next(source for source in SOURCES if source.type == "workersBuilds.worker")
    for place in (queue, other):
        subscribe(place)
        for mark in "12":
            subscribe(place, source=build.example(mark), events=["build.started"])
    assert page(queue.http.get(AT, params={"queue_id": queue.id}))[1]["total_count"] == 3


def test_a_resource_can_be_subscribed_again_once_the_first_is_deleted(queue: Queue) -> None:
    first = subscribe(queue)
    ok(queue.http.delete(f"{AT}/{first['id']}"))
    assert subscribe(queue)["id"] != first["id"]


@pytest.mark.parametrize("method", ["GET", "PATCH", "DELETE"])
@pytest.mark.parametrize("subscription_id", [UNKNOWN_ID, "x", "z" * 32, "a.b"])
def test_an_unknown_subscription_is_not_found(
    http: httpx.Client, method: str, subscription_id: str
) -> None:
    content = b"{}" if method == "PATCH" else None
    fail(http.request(method, f"{AT}/{subscription_id}", content=content), 404, 0)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", "another name"),
        ("name", ""),
        ("enabled", False),
        ("events", ["namespace.deleted"]),
        ("events", ["namespace.deleted", "namespace.created"]),
    ],
)
def test_one_field_can_be_changed(queue: Queue, field: str, value: Any) -> None:
    created = subscribe(queue)
    result = ok(queue.http.patch(f"{AT}/{created['id']}", json={field: value}))
    shapes.check_subscription(result)
    unchanged = {"modified_at": result["modified_at"]}
    assert result == {**created, **unchanged, field: value}
    assert ok(queue.http.get(f"{AT}/{created['id']}")) == result


def test_a_subscription_can_go_to_another_queue(queue: Queue) -> None:
    created, other = subscribe(queue), Queue.create(queue.http)
    body = {"destination": destination(other)}
    result = ok(queue.http.patch(f"{AT}/{created['id']}", json=body))
    shapes.check_subscription(result)
    assert result["destination"] == destination(other)
    assert page(queue.http.get(AT, params={"queue_id": queue.id}))[0] == []
    assert page(queue.http.get(AT, params={"queue_id": other.id}))[0] == [result]


def test_a_subscription_cannot_go_where_its_source_is_subscribed_already(queue: Queue) -> None:
    other = Queue.create(queue.http)
    created, _ = subscribe(queue), subscribe(other)
    body = {"destination": destination(other)}
    fail(queue.http.patch(f"{AT}/{created['id']}", json=body), 405, 0)
    assert ok(queue.http.get(f"{AT}/{created['id']}")) == created


def test_its_own_destination_is_no_conflict(queue: Queue) -> None:
    created = subscribe(queue)
    body = {"destination": destination(queue), "name": "renamed"}
    assert ok(queue.http.patch(f"{AT}/{created['id']}", json=body))["name"] == "renamed"


@pytest.mark.parametrize("source", [{"type": "r2"}, {"type": "nothing"}, 5])
def test_the_source_cannot_be_changed_and_is_ignored(queue: Queue, source: Any) -> None:
    created = subscribe(queue)
    result = ok(queue.http.patch(f"{AT}/{created['id']}", json={"source": source}))
    assert result["source"] == KV


def test_an_empty_change_changes_nothing_else(queue: Queue) -> None:
    created = subscribe(queue)
    result = ok(queue.http.patch(f"{AT}/{created['id']}", json={}))
    assert {**result, "modified_at": created["modified_at"]} == created


def test_a_change_shows_in_the_time_of_the_last_change_alone(queue: Queue) -> None:
    created = subscribe(queue)

    def changed() -> bool:
        result = ok(queue.http.patch(f"{AT}/{created['id']}", json={"enabled": False}))
        assert result["created_at"] == created["created_at"]
        return bool(result["modified_at"] > created["modified_at"])

    eventually(changed)


BAD_CHANGES: list[tuple[Any, int]] = [
    ({"events": []}, 400),
    ({"events": ["bucket.created"]}, 400),
    ({"events": ["namespace.created", "nothing"]}, 400),
    ({"destination": {}}, 400),
    ({"destination": {"type": "r2.bucket", "queue_id": UNKNOWN_ID}}, 400),
    ({"destination": {"type": "queues.queue"}}, 400),
    ({"destination": {"type": "queues.queue", "queue_id": UNKNOWN_ID}}, 404),
]


@pytest.mark.parametrize(("body", "status"), BAD_CHANGES)
def test_a_bad_change_is_refused(queue: Queue, body: Any, status: int) -> None:
    created = subscribe(queue)
    fail(queue.http.patch(f"{AT}/{created['id']}", json=body), status, 0)
    assert ok(queue.http.get(f"{AT}/{created['id']}")) == created


def test_a_deleted_subscription_is_shown_a_last_time(queue: Queue) -> None:
    created = subscribe(queue)
    assert ok(queue.http.delete(f"{AT}/{created['id']}")) == created
    fail(queue.http.get(f"{AT}/{created['id']}"), 404, 0)
    fail(queue.http.delete(f"{AT}/{created['id']}"), 404, 0)


def test_a_queue_takes_its_subscriptions_with_it(queue: Queue) -> None:
    other = Queue.create(queue.http)
    first = subscribe(queue)
    second = subscribe(queue, source={"type": "r2"}, events=["bucket.created"])
    kept = subscribe(other)
    assert ok(queue.http.delete(queue.at())) is None
    for gone in (first, second):
        fail(queue.http.get(f"{AT}/{gone['id']}"), 404, 0)
    assert ok(queue.http.get(f"{AT}/{kept['id']}")) == kept
