"""Deleting every message of a queue."""

from typing import Any

import pytest

from tests.wire.cloudflare import shapes
from tests.wire.cloudflare.envelope import fail, ok
from tests.wire.cloudflare.patience import eventually
from tests.wire.cloudflare.queue import Queue


def status(queue: Queue) -> dict[str, str]:
    result: dict[str, str] = ok(queue.http.get(queue.at("/purge")))
    shapes.check_purge_status(result)
    return result


@pytest.mark.parametrize("body", [{}, {"delete_messages_permanently": True}])
def test_a_purge_needs_no_confirmation(queue: Queue, body: Any) -> None:
    queue.push("a")
    ok(queue.post("/purge", body))
    eventually(lambda: queue.backlog() == 0)


@pytest.mark.parametrize("answer", [False, "yes", 1])
def test_a_purge_that_is_not_meant_is_refused(queue: Queue, answer: Any) -> None:
    queue.push("kept")
    body = {"delete_messages_permanently": answer}
    fail(queue.post("/purge", body), 400, 10026)
    assert queue.backlog() == 1
    assert status(queue) == {"completed": "", "started_at": ""}


def test_before_any_purge_its_status_is_empty(queue: Queue) -> None:
    assert status(queue) == {"completed": "", "started_at": ""}


def test_after_a_purge_its_status_says_when_it_began(queue: Queue) -> None:
    queue.push_texts(["x"] * 100)
    ok(queue.post("/purge", {}))
    done = eventually(lambda: (seen := status(queue))["completed"] == "true" and seen)
    assert done
    assert shapes.moment(done["started_at"])

    def later() -> bool:
        ok(queue.post("/purge", {}))
        return status(queue)["started_at"] > done["started_at"]

    eventually(later)


def test_a_purge_keeps_settings_and_consumer(pull_queue: Queue) -> None:
    pull_queue.change(delivery_delay=3)
    before = pull_queue.get()
    result = ok(pull_queue.post("/purge", {}))
    for kept in ("queue_id", "queue_name", "created_on", "settings", "consumers"):
        assert result[kept] == before[kept]
