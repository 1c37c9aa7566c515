"""How often a message is handed out, and when: attempts, retry delays, delays on sending."""

from typing import Any

import pytest

from tests.wire.cloudflare.envelope import ok
from tests.wire.cloudflare.queue import Queue


@pytest.mark.parametrize("max_retries", [0, 1, 3])
def test_a_retried_message_is_handed_out_once_more_than_it_may_be_retried(
    queue: Queue, max_retries: int
) -> None:
    queue.consume(max_retries=max_retries)
    queue.push("a")
    for attempt in range(1, max_retries + 2):
        message = queue.pull_one()
        assert message["attempts"] == attempt
        assert queue.settle(retries=[message["lease_id"]])["retryCount"] == 1
    assert queue.pull() == []
    assert queue.backlog() == 0


# Delay of the queue, of the batch, of the message: is the message there at once?
DELAYS: list[tuple[int, int | None, int | None, bool]] = [
    (0, None, None, True),
    (600, None, None, False),
    (600, None, 0, True),
    (600, 0, None, True),
    (0, 600, None, False),
    (0, None, 600, False),
    (0, 600, 0, True),
    (600, 600, 0, True),
    (600, 0, 600, False),
    (0, 0, 600, False),
]


@pytest.mark.parametrize(("of_queue", "of_batch", "of_message", "there"), DELAYS)
def test_the_delay_nearest_to_the_message_counts(
    pull_queue: Queue,
    of_queue: int,
    of_batch: int | None,
    of_message: int | None,
    there: bool,
) -> None:
    pull_queue.change(delivery_delay=of_queue)
    message: dict[str, Any] = {"body": "a"}
    batch: dict[str, Any] = {"messages": [message]}
    if of_message is not None:
        message["delay_seconds"] = of_message
    if of_batch is not None:
        batch["delay_seconds"] = of_batch
    ok(pull_queue.post("/messages/batch", batch))
    assert len(pull_queue.peek()) == int(there)
    assert len(pull_queue.pull()) == int(there)
    assert pull_queue.backlog() == 1


@pytest.mark.parametrize(
    ("of_queue", "fields", "there"),
    [(600, {}, False), (600, {"delay_seconds": 0}, True), (0, {"delay_seconds": 600}, False)],
)
def test_a_single_message_has_its_delay_or_the_queues(
    pull_queue: Queue, of_queue: int, fields: dict[str, Any], there: bool
) -> None:
    pull_queue.change(delivery_delay=of_queue)
    pull_queue.push("a", **fields)
    assert len(pull_queue.pull()) == int(there)
