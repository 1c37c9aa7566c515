"""Where a queue's dead letters go, as the admin API sets it: PUT, PATCH and the newer PATCH."""

from typing import Any

import pytest

from tests.wire.anypoint.answers import admin_fail, nothing, ok
from tests.wire.anypoint.destination import Queue, new_name, segment
from tests.wire.anypoint.environment import ADMIN, ADMIN_2, Environment
from tests.wire.anypoint.shapes import queue_object

DELIVERIES_DEFAULT = 10


@pytest.fixture
def dlq(env: Environment) -> Queue:
    return Queue.create(env)


@pytest.fixture
def source(env: Environment, dlq: Queue) -> Queue:
    """A queue whose dead letters go to `dlq` after three deliveries; a TTL of its own."""
    return Queue.create(env, deadLetterQueueId=dlq.name, maxDeliveries=3, defaultTtl=60_000)


def put(queue: Queue, settings: Any) -> Any:
    return queue.env.admin("PUT", queue.admin_at(), settings)


def patch(queue: Queue, settings: Any) -> Any:
    return queue.env.admin("PATCH", queue.admin_at(), settings)


def patch_2(queue: Queue, settings: Any) -> Any:
    env = queue.env
    path = env.region_path.replace(ADMIN, ADMIN_2, 1) + queue.admin_at()
    return env.call("PATCH", path, settings, token=env.tokens.user)


EVERY = pytest.mark.parametrize("write", [put, patch, patch_2])


def pair(dlq: Queue, deliveries: int = DELIVERIES_DEFAULT) -> dict[str, Any]:
    return {"deadLetterQueueId": dlq.name, "maxDeliveries": deliveries}


# --- setting it ---


@EVERY
def test_a_queue_gets_a_dead_letter_queue(queue: Queue, dlq: Queue, write: Any) -> None:
    for deliveries in (1, 5, 1_000, "5"):
        sent = {"deadLetterQueueId": dlq.name, "maxDeliveries": deliveries}
        expected = queue_object(queue.name, **pair(dlq, int(deliveries)))
        assert ok(write(queue, sent)) == expected
        assert queue.settings() == expected


@EVERY
def test_ten_deliveries_are_the_default(queue: Queue, dlq: Queue, write: Any) -> None:
    expected = queue_object(queue.name, **pair(dlq, 10))
    assert ok(write(queue, {"deadLetterQueueId": dlq.name})) == expected


def test_a_queue_is_made_with_its_dead_letter_queue(env: Environment, dlq: Queue) -> None:
    queue = Queue(env, new_name())
    assert ok(put(queue, pair(dlq, 7))) == queue_object(queue.name, **pair(dlq, 7))


@EVERY
def test_deliveries_out_of_their_range_are_refused(queue: Queue, dlq: Queue, write: Any) -> None:
    for deliveries in (0, -1, 1_001, 1.5, "x", ""):
        sent = {"deadLetterQueueId": dlq.name, "maxDeliveries": deliveries}
        assert "maxDeliveries" in admin_fail(write(queue, sent), 400)
    assert queue.settings() == queue_object(queue.name)


@EVERY
def test_a_dead_letter_queue_must_exist(queue: Queue, write: Any) -> None:
    sent = {"deadLetterQueueId": new_name(), "maxDeliveries": 5}
    assert "deadLetterQueueId" in admin_fail(write(queue, sent), 400)
    assert queue.settings() == queue_object(queue.name)


@EVERY
def test_an_exchange_is_no_dead_letter_queue(queue: Queue, exchange: Any, write: Any) -> None:
    assert "deadLetterQueueId" in admin_fail(
        write(queue, {"deadLetterQueueId": exchange.name, "maxDeliveries": 5}), 400
    )


@EVERY
def test_a_queue_is_not_its_own_dead_letter_queue(queue: Queue, write: Any) -> None:
    assert "deadLetterQueueId" in admin_fail(write(queue, pair(queue)), 400)
    assert queue.settings() == queue_object(queue.name)


def test_a_queue_that_is_just_being_made_is_not_its_own_dead_letter_queue(
    env: Environment,
) -> None:
    queue = Queue(env, new_name())
    admin_fail(put(queue, pair(queue)), 400)
    assert env.admin("GET", queue.admin_at()).status_code == 404


@EVERY
@pytest.mark.parametrize("fifo", [False, True])
def test_both_must_be_standard_or_both_fifo(env: Environment, write: Any, fifo: bool) -> None:
    queue, other, same = (Queue.create(env, fifo=kind) for kind in (fifo, not fifo, fifo))
    kind = {"fifo": fifo}
    assert "deadLetterQueueId" in admin_fail(write(queue, {**pair(other), **kind}), 400)
    assert queue.settings() == queue_object(queue.name, **kind)
    assert ok(write(queue, {**pair(same), **kind})) == queue_object(
        queue.name, **kind, **pair(same)
    )


def test_a_dead_letter_queue_of_another_region_or_environment_is_unknown(
    queue: Queue, sibling: Environment
) -> None:
    for other in (queue.env.in_region("eu-west-1"), sibling):
        admin_fail(put(queue, pair(Queue.create(other))), 400)


def test_queues_of_another_region_have_their_own_dead_letter_queues(env: Environment) -> None:
    other = env.in_region("eu-west-1")
    dlq, queue = Queue.create(other), Queue.create(other)
    assert ok(put(queue, pair(dlq))) == queue_object(queue.name, **pair(dlq))
    assert dlq.settings()["deadLetterSources"] == [queue.name]


def test_a_dead_letter_queue_may_have_its_own_and_two_each_other(env: Environment) -> None:
    first, second = Queue.create(env), Queue.create(env)
    ok(put(first, pair(second)))
    assert ok(put(second, pair(first, 2))) == queue_object(
        second.name, **pair(first, 2), deadLetterSources=[first.name]
    )


# --- which queues bury here ---


def test_a_dead_letter_queue_names_its_sources(env: Environment, dlq: Queue) -> None:
    assert "deadLetterSources" not in dlq.settings()
    sources = [Queue.create(env, deadLetterQueueId=dlq.name) for _ in range(3)]
    named = dlq.settings()["deadLetterSources"]
    assert sorted(named) == sorted(source.name for source in sources)
    sources[0].delete()
    ok(put(sources[1], {}))
    expected = queue_object(dlq.name, deadLetterSources=[sources[2].name])
    assert dlq.settings() == expected
    listed = ok(env.admin("GET", f"/destinations?startsWith={segment(dlq.name)}"))
    assert listed == [expected]


def test_a_deleted_dead_letter_queue_leaves_its_sources_without_one(
    source: Queue, dlq: Queue
) -> None:
    nothing(dlq.env.admin("DELETE", dlq.admin_at()))
    expected = queue_object(source.name, defaultTtl=60_000)
    assert source.settings() == expected
    # One of the same name that comes later is another queue.
    Queue.create(dlq.env, dlq.name)
    assert source.settings() == expected


# --- PUT: what is not said ends ---


@pytest.mark.parametrize(
    "sent", [{}, {"deadLetterQueueId": None}, {"maxDeliveries": 5}, {"maxDeliveries": None}]
)
def test_a_put_without_a_dead_letter_queue_removes_it(source: Queue, sent: dict[str, Any]) -> None:
    assert ok(put(source, sent)) == queue_object(source.name)


@pytest.mark.parametrize("write", [put, patch])
def test_deliveries_without_a_dead_letter_queue_mean_nothing(queue: Queue, write: Any) -> None:
    """A client writes zeros for what its user has not set."""
    for deliveries in (0, 1, "5", 1_000):
        assert ok(write(queue, {"maxDeliveries": deliveries})) == queue_object(queue.name)


# --- PATCH of version 1: the others stay, except for dead letters ---


def test_a_patch_keeps_what_it_does_not_name(env: Environment) -> None:
    settings: dict[str, Any] = {
        "defaultTtl": 60_000,
        "defaultLockTtl": 5_000,
        "defaultDeliveryDelay": 1_000,
        "encrypted": True,
    }
    for setting, value in (
        ("defaultTtl", 70_000),
        ("defaultLockTtl", 6_000),
        ("defaultDeliveryDelay", 2_000),
        ("encrypted", False),
    ):
        for write in (patch, patch_2):
            queue = Queue.create(env, **settings)
            expected = queue_object(queue.name, **{**settings, setting: value})
            assert ok(write(queue, {setting: value})) == expected
            assert queue.settings() == expected
            assert ok(write(queue, {})) == expected
            assert ok(write(queue, dict.fromkeys(settings))) == expected


@pytest.mark.parametrize("write", [patch, patch_2])
def test_a_zero_in_a_patch_is_the_default(env: Environment, write: Any) -> None:
    settings = ["defaultTtl", "defaultLockTtl", "defaultDeliveryDelay"]
    queue = Queue.create(env, defaultTtl=60_000, defaultLockTtl=5_000, defaultDeliveryDelay=1_000)
    assert ok(write(queue, dict.fromkeys(settings, 0))) == queue_object(queue.name)


@pytest.mark.parametrize("write", [patch, patch_2])
@pytest.mark.parametrize(
    ("setting", "value"),
    [("defaultTtl", -1), ("defaultLockTtl", "x"), ("defaultDeliveryDelay", 900_001)],
)
def test_a_bad_patch_changes_nothing(queue: Queue, write: Any, setting: str, value: Any) -> None:
    sent = {"encrypted": True, setting: value}
    assert setting in admin_fail(write(queue, sent), 400)
    assert queue.settings() == queue_object(queue.name)


@pytest.mark.parametrize(
    "sent",
    [
        {},
        {"defaultLockTtl": 5_000},
        {"maxDeliveries": 5},
        {"deadLetterQueueId": None, "maxDeliveries": 5},
        {"deadLetterQueueId": None, "maxDeliveries": None},
    ],
)
def test_a_patch_that_names_no_dead_letter_queue_removes_it(
    source: Queue, dlq: Queue, sent: dict[str, Any]
) -> None:
    lock = {name: value for name, value in sent.items() if name == "defaultLockTtl"}
    assert ok(patch(source, sent)) == queue_object(source.name, defaultTtl=60_000, **lock)
    assert dlq.settings() == queue_object(dlq.name)


def test_a_patch_that_names_only_the_dead_letter_queue_means_ten_deliveries(
    source: Queue, dlq: Queue
) -> None:
    expected = queue_object(source.name, defaultTtl=60_000, **pair(dlq, 10))
    assert ok(patch(source, {"deadLetterQueueId": dlq.name})) == expected


# --- PATCH of version 2: only what is named changes ---


@pytest.mark.parametrize(
    "sent", [{}, {"deadLetterQueueId": None}, {"maxDeliveries": None}, {"encrypted": False}]
)
def test_the_newer_patch_keeps_dead_letters_it_does_not_name(
    source: Queue, dlq: Queue, sent: dict[str, Any]
) -> None:
    expected = queue_object(source.name, defaultTtl=60_000, **pair(dlq, 3))
    assert ok(patch_2(source, sent)) == expected


def test_the_newer_patch_changes_one_of_the_pair(source: Queue, dlq: Queue) -> None:
    other = Queue.create(source.env)
    own = {"defaultTtl": 60_000}
    assert ok(patch_2(source, {"maxDeliveries": 9})) == queue_object(
        source.name, **own, **pair(dlq, 9)
    )
    assert ok(patch_2(source, {"deadLetterQueueId": other.name})) == queue_object(
        source.name, **own, **pair(other, 9)
    )


@pytest.mark.parametrize("deliveries", [5, 0, 1_001])
def test_the_newer_patch_refuses_deliveries_without_a_dead_letter_queue(
    queue: Queue, deliveries: int
) -> None:
    assert "maxDeliveries" in admin_fail(patch_2(queue, {"maxDeliveries": deliveries}), 400)
    assert queue.settings() == queue_object(queue.name)


def test_the_newer_patch_knows_only_queues_that_exist(env: Environment) -> None:
    queue = Queue(env, new_name())
    assert admin_fail(patch_2(queue, {}), 404) == "queue not found"


def test_nothing_else_has_a_version_2(queue: Queue) -> None:
    env = queue.env
    path = env.region_path.replace(ADMIN, ADMIN_2, 1) + queue.admin_at()
    for method in ("GET", "PUT", "DELETE"):
        response = env.call(method, path, {}, token=env.tokens.user)
        assert response.status_code in (404, 405)
        admin_fail(response, response.status_code)
    assert queue.settings() == queue_object(queue.name)
