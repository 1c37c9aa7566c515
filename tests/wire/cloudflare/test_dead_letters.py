"""Where messages go whose attempts are used up."""

import httpx
import pytest

from tests.wire.cloudflare.envelope import fail, ok, page
from tests.wire.cloudflare.queue import Queue

DEFAULT_SETTINGS = {
    "delivery_delay": 0,
    "delivery_paused": False,
    "message_retention_period": 345_600,
}


def named(http: httpx.Client, name: str) -> Queue:
    """The queue of that name."""
    (row,), _ = page(http.get("/queues", params={"name": name}))
    return Queue(http, row["queue_id"], row["queue_name"])


@pytest.fixture
def grave(http: httpx.Client) -> Queue:
    """A queue to bury messages in, with a pull consumer of its own."""
    queue = Queue.create(http)
    queue.consume()
    return queue


def bury(queue: Queue) -> str:
    """Let the one message there fail its one attempt; the lease it had."""
    lease: str = queue.pull_one()["lease_id"]
    assert queue.settle(retries=[lease])["retryCount"] == 1
    return lease


def test_an_existing_dead_letter_queue_is_used_as_it_is(queue: Queue, grave: Queue) -> None:
    before = grave.get()
    assert queue.consume(dead_letter_queue=grave.name)["dead_letter_queue"] == grave.name
    assert grave.get() == before


def test_a_missing_dead_letter_queue_is_made_with_the_consumer(
    queue: Queue, queue_name: str
) -> None:
    assert queue.consume(dead_letter_queue=queue_name)["dead_letter_queue"] == queue_name
    made = named(queue.http, queue_name).get()
    assert made["settings"] == DEFAULT_SETTINGS
    assert made["consumers"] == []
    assert "jurisdiction" not in made


def test_a_worker_has_a_dead_letter_queue_as_well(queue: Queue, queue_name: str) -> None:
    body = {"type": "worker", "script_name": "s", "dead_letter_queue": queue_name}
    assert ok(queue.post("/consumers", body))["dead_letter_queue"] == queue_name
    named(queue.http, queue_name)


def test_a_missing_dead_letter_queue_is_made_by_put(pull_queue: Queue, queue_name: str) -> None:
    (consumer,) = pull_queue.get()["consumers"]
    path = pull_queue.at(f"/consumers/{consumer['consumer_id']}")
    body = {"type": "http_pull", "dead_letter_queue": queue_name}
    assert ok(pull_queue.http.put(path, json=body))["dead_letter_queue"] == queue_name
    named(pull_queue.http, queue_name)


def test_a_made_dead_letter_queue_has_the_jurisdiction_of_its_source(
    http: httpx.Client, queue_name: str
) -> None:
    Queue.create(http, jurisdiction="eu").consume(dead_letter_queue=queue_name)
    assert named(http, queue_name).get()["jurisdiction"] == "eu"


@pytest.mark.parametrize(
    ("source", "target"), [("eu", "us"), ("eu", None), (None, "eu"), ("us", "fedramp")]
)
def test_a_dead_letter_queue_of_another_jurisdiction_is_refused(
    http: httpx.Client, source: str | None, target: str | None
) -> None:
    queue, other = (
        Queue.create(http, **({} if place is None else {"jurisdiction": place}))
        for place in (source, target)
    )
    body = {"type": "http_pull", "dead_letter_queue": other.name}
    fail(queue.post("/consumers", body), 400, 100127)
    assert queue.get()["consumers"] == []


def test_a_queue_is_not_its_own_dead_letter_queue(queue: Queue) -> None:
    body = {"type": "http_pull", "dead_letter_queue": queue.name}
    fail(queue.post("/consumers", body), 400, 100127)
    assert queue.get()["consumers"] == []


def test_a_refused_consumer_makes_no_dead_letter_queue(queue: Queue, queue_name: str) -> None:
    body = {
        "type": "http_pull",
        "dead_letter_queue": queue_name,
        "settings": {"batch_size": 0},
    }
    fail(queue.post("/consumers", body), 400, 100127)
    queue.consume()
    body["settings"] = {}
    fail(queue.post("/consumers", body), 400, 11004)
    assert page(queue.http.get("/queues", params={"name": queue_name}))[0] == []


def test_a_renamed_dead_letter_queue_is_shown_by_its_new_name_and_still_used(
    queue: Queue, grave: Queue, queue_name: str
) -> None:
    queue.consume(dead_letter_queue=grave.name, max_retries=0)
    ok(grave.http.patch(grave.at(), json={"queue_name": queue_name}))
    (consumer,) = queue.get()["consumers"]
    assert consumer["dead_letter_queue"] == queue_name
    queue.push("still found")
    bury(queue)
    assert grave.pull_one()["body"] == "still found"


def test_a_dead_letter_queue_cannot_be_deleted_while_it_is_one(queue: Queue, grave: Queue) -> None:
    consumer = queue.consume(dead_letter_queue=grave.name)
    grave.push("kept")
    message = fail(grave.http.delete(grave.at()), 400, 11005)
    assert "dead letter queue" in message.lower()
    assert grave.backlog() == 1
    ok(queue.http.delete(queue.at(f"/consumers/{consumer['consumer_id']}")))
    assert ok(grave.http.delete(grave.at())) is None


def test_a_dead_letter_queue_is_free_once_its_source_is_deleted(queue: Queue, grave: Queue) -> None:
    queue.consume(dead_letter_queue=grave.name)
    ok(queue.http.delete(queue.at()))
    assert ok(grave.http.delete(grave.at())) is None


def test_a_dead_letter_queue_is_free_once_put_leaves_it_out(queue: Queue, grave: Queue) -> None:
    consumer = queue.consume(dead_letter_queue=grave.name)
    path = queue.at(f"/consumers/{consumer['consumer_id']}")
    assert ok(queue.http.put(path, json={"type": "http_pull"}))["dead_letter_queue"] == ""
    assert ok(grave.http.delete(grave.at())) is None
